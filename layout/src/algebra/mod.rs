//! The algebra of layouts, one operation a file.

mod by_mode;
mod coalesce;
mod common;
mod complement;
mod compose;
mod composed;
mod divide;
mod exact;
mod filter;
mod group;
mod inverse;
mod nullspace;
mod product;
mod recast;
mod slice;
mod tile_to_shape;

pub use by_mode::Tiler;
pub use composed::{Composed, Outer};
pub use exact::ENUMERATION_BUDGET;
pub(crate) use exact::recognise;
pub use slice::Pattern;
