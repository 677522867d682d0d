//! Device meshes, placements and shardings as layouts, and the plans that redistribute between them.
//!
//! * [`Mesh`]: named axes over ranks, an offset and a layout; [`Group`]: the ranks that talk to each other.
//! * [`Placement`]: what one mesh axis does to a tensor, with PyTorch's exact semantics, also for sizes that do not
//!   divide; [`Sharding`]: who holds which elements, canonical, with its [ownership](Sharding::ownership) as one layout
//!   where there is one and a [region](Sharding::region) always.
//! * [`cut::Cut`]: any other way to share a dim out among ranks, for which zigzag is one and anybody brings theirs.
//! * [`meaning`]: the one tensor that a set of shards denotes: the definition everything is tested against.
//! * [`redistribute`]: the cheapest way from one sharding to another.
#![forbid(unsafe_code)]

pub mod axis;
pub mod cut;
mod error;
pub mod group;
pub mod layout;
pub mod meaning;
pub mod mesh;
pub mod notation;
pub mod placement;
pub mod propagate;
pub mod redistribute;
pub mod reduce;
pub mod region;
pub mod rules;
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
