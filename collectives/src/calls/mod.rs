//! A plan as a framework's calls between strided views.
//!
//! Frameworks have collectives, strided views and groups, and neither our loop nests nor our engines. So an exchange is lowered for
//! them to one call of theirs between two copies:
//!
//! ```text
//! Plan --RankCalls::new(plan, rank, dtype, offers)--> [pack views, call on a group, unpack views]     one rank: eager frameworks
//! Plan --Spmd::new(plan, dtype)--> the same for all ranks at once, or NotAlike                       frameworks that trace
//! ```
//!
//! * A [`View`] is an offset and loops: `3+(2:8,4:1)`. The blocks of all peers are mostly one view.
//! * [`Offers`] are the groups that exist. No group is made: where none has exactly the members that a plan wants, the call is an
//!   all-to-all on the smallest group that holds them, and where there is none, messages.
//! * **A reduction is called on exactly its members or not at all**; otherwise terms are received one by one and combined by whoever
//!   wants the value, in the plan's order.
//! * All members of a group make its calls in one order, those included that have nothing to move: [`RankCalls`] says how.
//! * [`interpret`] says what calls mean, in a page.
//!
//! ```
//! use reshard_collectives::calls::{Offers, RankCalls, Spmd};
//! use reshard_kernels::DType;
//! use reshard_planner::Planner;
//! use reshard_sharding::{Mesh, Sharding};
//!
//! let mesh: Mesh = "dp=2,tp=2".parse()?;
//! let from = Sharding::parse(&mesh, &[4, 4], "S(0),S(1)")?;
//! let to = Sharding::parse(&mesh, &[4, 4], "S(0),R")?;
//! let plan = Planner::new().plan(&from, &to, DType::F32)?;
//!
//! // Of one rank, on groups that are there.
//! let offers = Offers::new([("tp", vec![0, 1]), ("tp", vec![2, 3])])?;
//! let calls = RankCalls::new(&plan, 2, DType::F32, &offers)?;
//! assert_eq!(calls.to_string(), "0+(4:1) -> all_gather tp[2,3] -> 0+(2:2,2:4,2:1)");
//!
//! // Of all ranks, as one program.
//! let spmd = Spmd::new(&plan, DType::F32)?;
//! assert_eq!(spmd.to_string(), "1 x 4:1 -> all_gather [[0, 1], [2, 3]] -> 0+(2:2,2:4,2:1)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod call;
mod carry;
mod exchange;
mod fuse;
mod interpret;
mod offers;
mod permute;
mod rank_calls;
mod spmd;
mod view;

pub use call::{CollectiveCall, Combine, PartialInput, RankCall};
pub use interpret::interpret;
pub use offers::{FrameworkGroup, FrameworkGroups};
pub use rank_calls::RankCalls;
pub use spmd::{CommPattern, RankTable, SpmdCall, SpmdProgram};
pub use view::{View, Views};
