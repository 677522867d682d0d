//! A plan as a framework's calls between strided views.
//!
//! Frameworks have collectives, strided views and groups, but not the loop nests and engines of this library.
//! An exchange is therefore lowered for them to one framework call between two copies:
//!
//! ```text
//! Plan --RankCalls::new(plan, rank, dtype, groups)--> [pack views, call, unpack views]    eager: one rank
//! Plan --SpmdProgram::new(plan, dtype)--> the same for all ranks, or PlanMismatch         traced: all ranks
//! ```
//!
//! * A [`View`] is an offset and loops: `3+(2:8,4:1)`. The blocks of all peers are usually one view.
//! * [`FrameworkGroups`] are the existing groups. No group is created: if none has exactly the members that a plan
//!   needs, the call is an all-to-all on the smallest group that contains them, and if there is none,
//!   messages.
//! * **A reduction is called on exactly its members or not at all**; otherwise partial values are received
//!   separately and combined by each rank that needs the value, in the plan's order.
//! * All members of a group make its calls in one order, including members without data: [`RankCalls`]
//!   defines it.
//! * [`interpret`] defines the semantics of calls, in a page.
//!
//! ```
//! use reshard_collectives::calls::{FrameworkGroups, RankCalls, SpmdProgram};
//! use reshard_kernels::DType;
//! use reshard_planner::Planner;
//! use reshard_sharding::{Mesh, Sharding};
//!
//! let mesh: Mesh = "dp=2,tp=2".parse()?;
//! let from = Sharding::parse(&mesh, &[4, 4], "S(0),S(1)")?;
//! let to = Sharding::parse(&mesh, &[4, 4], "S(0),R")?;
//! let plan = Planner::new().plan(&from, &to, DType::F32)?;
//!
//! // For one rank, on existing groups.
//! let offers = FrameworkGroups::new([("tp", vec![0, 1]), ("tp", vec![2, 3])])?;
//! let calls = RankCalls::new(&plan, 2, DType::F32, &offers)?;
//! assert_eq!(calls.to_string(), "0+(4:1) -> all_gather tp[2,3] -> 0+(2:2,2:4,2:1)");
//!
//! // For all ranks, as one SPMD program.
//! let spmd = SpmdProgram::new(&plan, DType::F32)?;
//! assert_eq!(spmd.to_string(), "1 x 4:1 -> all_gather [[0, 1], [2, 3]] -> 0+(2:2,2:4,2:1)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod call;
mod exchange;
mod framework_group;
mod fuse;
mod interpret;
mod pack;
mod permute;
mod rank_calls;
mod spmd;
mod view;

pub use call::{CollectiveCall, Combine, PartialInput, RankCall};
pub use framework_group::{FrameworkGroup, FrameworkGroups};
pub use interpret::interpret;
pub use rank_calls::RankCalls;
pub use spmd::{CommPattern, RankTable, SpmdCall, SpmdProgram};
pub use view::{View, Views};
