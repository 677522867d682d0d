//! Device meshes, placements and shardings as layouts: who holds which elements of a tensor.
//!
//! * [`Mesh`]: named axes over ranks, an offset and a layout; [`Group`]: the ranks that talk to each other.
//! * [`Placement`]: what one mesh axis does to a tensor, with PyTorch's exact semantics, also for sizes that do not
//!   divide; [`Sharding`]: who holds which elements, canonical, with its [ownership](Sharding::ownership) as one layout
//!   where there is one and a [region](Sharding::region) always.
//! * [`meaning`]: the one tensor that a set of shards denotes: the definition everything is tested against.
//!
//! The cheapest way from one sharding to another is `reshard-planner`, what ops do to shardings `reshard-ops`.
#![forbid(unsafe_code)]

pub mod axis;
mod cut;
mod error;
pub mod group;
pub mod layout;
pub mod meaning;
pub mod mesh;
pub mod notation;
pub mod placement;
pub mod reduce;
pub mod region;
pub mod sharding;
pub mod strided;
pub mod theory;
mod view;

pub use axis::{Axis, AxisName, SubAxis};
pub use error::Error;
pub use group::Group;
pub use mesh::Mesh;
pub use placement::{Placement, Placements};
pub use reduce::ReduceOp;
pub use region::{Interval, Region};
pub use sharding::{PartialAxis, Sharding};

/// What only the other crates of this project need; it may change with any version.
#[doc(hidden)]
pub mod internal {
    pub use crate::cut::{Cut, chunk};
    pub use crate::layout::encode::share_out;
    pub use crate::layout::{dim_of, local_len};
    pub use crate::mesh::{
        Coordinate, axis_of, coordinate_of, digit, for_each_value, members_along, ranks_of_both, set_digit,
    };
    pub use crate::notation::cursor::Cursor;
    pub use crate::region::{Intervals, Run, append, shared, shared_len};
    pub use crate::sharding::{AxisCut, Cuts, Shape, canonical_partial, check_sizes, numel};
    pub use crate::view::advice::advised;
}
