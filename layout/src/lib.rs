//! CuTe-style hierarchical layouts with a checked algebra: the right layout, or the reason there is none.
#![forbid(unsafe_code)]

pub mod algebra;
pub mod draw;
mod error;
pub mod expression;
mod int_tuple;
mod layout;
mod notation;
mod order;
mod profile;
pub mod properties;
pub mod reference;
mod serde_impls;
mod swizzle;

pub use error::{Counted, Defect, Error, ErrorKind, Obstacle, Operation, ParseError, Quantity};
pub use int_tuple::IntTuple;
pub use layout::Layout;
pub use profile::{MAX_DEPTH, MAX_LEAVES};
pub use swizzle::Swizzle;
