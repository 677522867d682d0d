//! Device meshes, placements and shardings as layouts: the elements of a tensor that each rank holds.
//!
//! * [`Mesh`]: named axes over ranks, an offset and a layout; [`GroupPattern`]: the ranks of a communication
//!   group.
//! * [`Placement`]: the effect of one mesh axis on a tensor, with PyTorch's exact semantics, also for sizes
//!   that do not divide; [`Sharding`]: the elements of each rank, canonical, with its
//!   [ownership](Sharding::ownership) as one layout where there is one and a [region](Sharding::region)
//!   always.
//! * [`DimPartition`]: a custom dim partition among ranks; zigzag is one, and users can add theirs.
//! * [`shards`]: the shards of a tensor, and the one tensor that a set of shards represents.
//!
//! The cheapest plan from one sharding to another is in `reshard-planner`, the sharding rules of ops in
//! `reshard-ops`.
#![forbid(unsafe_code)]

mod axis;
mod error;
mod group;
mod layout;
mod mesh;
#[doc(hidden)]
pub mod notation;
mod partition;
mod placement;
mod reduce;
mod region;
mod runs;
mod sharding;
mod sharding_type;
#[doc(hidden)]
pub mod shards;
mod strided;
pub mod theory;
mod view;

pub use axis::{Axis, AxisName, SubAxis};
pub use error::Error;
pub use group::{GroupPattern, GroupRegistry, ProcessGroup, ProcessGroups};
pub use mesh::{Coordinate, Mesh, recipes};
pub use partition::{
    Block, Counts, DimPartition, NamedPartition, PartitionRegistry, RankRanges, Rolled, Zigzag,
    check_partition,
};
pub use placement::{Placement, Placements};
pub use reduce::ReduceOp;
pub use region::{Interval, Intervals, Region};
pub use reshard_layout::{ErrorKind, Exponent, IndexRun};
pub use runs::Runs;
pub use sharding::{PartialAxis, Sharding};
pub use sharding_type::ShardingType;
pub use strided::Strided;

/// Internals for the other crates of this project; they may change with any version.
#[doc(hidden)]
pub mod internal {
    pub use crate::layout::encode::share_out;
    pub use crate::layout::{dim_of, local_len};
    pub use crate::mesh::{
        axis_of, coordinate_of, digit, for_each_value, members_along, ranks_of_both, set_digit,
    };
    pub use crate::notation::StoredSharding;
    pub use crate::notation::brackets::outside_brackets;
    pub use crate::notation::cursor::Cursor;
    pub use crate::partition::{DimCut, Made, chunk};
    pub use crate::region::{Run, append, shared, shared_len};
    pub use crate::sharding::{AxisCut, Cuts, Shape, canonical_partial, check_sizes, cut_after, numel};
    pub use crate::sharding_type::one_rank::OneRank;
    pub use crate::view::advice::advised;
}
