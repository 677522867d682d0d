//! The laws of the algebra, each a test named by the law: over all small layouts first, then over random ones.
//!
//! Bounds of loops come from the inputs, never from the answer. `RESHARD_LAWS=full` takes the larger spaces (minutes);
//! without it the whole suite takes seconds.

mod nesting;
mod one;
mod random;
mod small;
mod three;
mod two;
