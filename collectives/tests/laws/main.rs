//! Properties of execution: plans on the engines of one process, compared with the global tensors of the
//! shards.

mod all_pairs;
mod any_order;
mod batches;
mod calls;
mod contract;
mod counts;
mod faults;
mod large;
mod lies;
#[allow(unreachable_pub, dead_code, reason = "the module of an example")]
#[path = "../../../examples/own_communicator/mailbox.rs"]
mod mailbox;
mod messages;
mod mirror;
mod native;
mod norms;
mod pair;
mod phases;
mod random;
mod scratch;
mod soak;
mod spmd;
mod started;
mod two_mesh;
mod types;
