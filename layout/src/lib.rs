//! CuTe-style hierarchical layouts with a checked algebra: the right layout, or the reason there is none.
#![forbid(unsafe_code)]

pub mod algebra;
mod error;
mod int_tuple;
mod layout;
mod notation;
mod order;
mod profile;
mod serde_impls;

pub use error::{Defect, Error, ErrorKind, Obstacle, Operation, ParseError, Quantity};
pub use int_tuple::IntTuple;
pub use layout::Layout;
pub use profile::{MAX_DEPTH, MAX_LEAVES};
