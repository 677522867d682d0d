//! The properties of the algebra, each a test of that name: over all small layouts first, then over random
//! ones.
//!
//! Bounds of loops come from the inputs, never from the answer. `RESHARD_EXHAUSTIVE=all` takes the larger
//! spaces (minutes), a number an eighth of them; without it the whole suite takes seconds.

mod banks;
mod cases;
mod compact;
mod compositions;
mod cute;
mod drawn;
mod expressions;
mod linear;
mod modules;
mod nesting;
mod offsets;
mod one;
mod random;
mod shapes;
mod slow;
mod small;
mod swizzled;
mod texts;
mod thread_values;
mod three;
mod two;
mod zipping;
