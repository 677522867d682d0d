//! CuTe-style hierarchical layouts with a checked algebra: the right layout, or the reason there is none.
//!
//! A [`Layout`] is a nested `shape:stride` and denotes a function on integers: split the index into
//! coordinates, leftmost fastest, and take their dot product with the strides. The algebra composes, inverts,
//! complements, divides and multiplies these functions, and never returns a layout of another function:
//!
//! ```
//! use reshard_layout::Layout;
//!
//! let a: Layout = "(6,2):(8,2)".parse()?;
//! let b: Layout = "(4,3):(3,1)".parse()?;
//! assert_eq!(a.compose(&b)?.to_string(), "((2,2),3):((24,2),8)");
//!
//! let a: Layout = "(12,2):(1,100)".parse()?;
//! let b: Layout = "(2,2,2):(3,4,6)".parse()?;
//! let error = a.compose(&b).unwrap_err(); // A(B(7)) = 101 is not A(B(1)) + A(B(2)) + A(B(4))
//! assert_eq!(error.code(), "not_representable");
//! # Ok::<(), reshard_layout::Error>(())
//! ```
//!
//! * [`Layout`] and [`IntTuple`]: the values; `Display` and `FromStr` are inverse of each other, `serde` is the notation.
//! * [`Mode`], [`Modes`], [`Stride`]: the elements of layouts. A stride is an integer, a step along an axis
//!   of a mesh ([`AxisStride`], `2@0`), or a pair of strides: two layouts of one domain, as in a copy.
//! * [`NamedLayout`]: a layout with the names of its axes, `(4,2):(1@tp,8)`, and [`NamedPoint`], its values.
//! * [`algebra`]: the operations and the table of their properties. Tilers, lazy compositions, patterns.
//! * [`Answer`]: the answer of a predicate that preconditions are written in.
//! * [`Swizzle`]: exchanging bits of an index.
//! * [`Exponent`]: the exponent of a norm, which reductions name.
//! * [`expression`]: the algebra as text.
//! * [`theory`]: four chapters with worked numbers.
//!
//! All arithmetic is checked 64-bit; nothing panics; layouts of up to 8 leaves need no heap.
#![forbid(unsafe_code)]

pub mod algebra;
mod banks;
mod error;
mod error_kind;
mod exponent;
pub mod expression;
mod few;
mod index_run;
mod int_tuple;
#[doc(hidden)]
pub mod internal;
mod layout;
mod modes;
mod named;
mod notation;
mod order;
mod profile;
mod properties;
#[doc(hidden)]
pub mod reference;
mod serde_impls;
mod shapes;
mod stride;
mod swizzle;
pub mod theory;

pub use algebra::zip::Boundary;
pub use banks::Banks;
pub use error::{Counted, Defect, Error, ErrorCode, Excerpt, Obstacle, Operation, ParseError, Quantity};
pub use error_kind::{ErrorKind, UnknownErrorKind};
pub use exponent::{Exponent, ParseExponentError};
pub use few::{InlineVec, Values};
pub use index_run::IndexRun;
pub use int_tuple::IntTuple;
pub use layout::Layout;
pub use modes::{Mode, Modes, size_of};
pub use named::{NamedLayout, NamedPoint};
pub use profile::{MAX_DEPTH, MAX_LEAVES};
pub use properties::Answer;
pub use stride::{AxisStride, Point, Span, Stride};
pub use swizzle::Swizzle;
