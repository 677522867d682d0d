//! Transforms: rewrite a program into one with bit-identical results that needs less memory or less time.
//!
//! | transform | |
//! |---|---|
//! | [`rematerialize`](crate::Program::rematerialize) | backward rematerializes values of forward instead of saving them |
//! | [`rematerialize_to_fit`](crate::Program::rematerialize_to_fit) | selects these values so that the program fits in memory |
//! | [`overlap_value`](crate::Program::overlap_value) | splits a redistribution and its consumer into overlap chunks |
//! | [`overlap`](crate::Program::overlap) | does so where it saves time |
//! | [`lower_comm_dtypes`](crate::Program::lower_comm_dtypes) | lowers a communication dtype to casts, a redistribution and a sum |
//!
//! The result is a program like any other: it can be typed, printed, reported and compiled. Transforms for
//! one rank, such as hoisting and buckets, are [options](crate::schedule::CompileOptions) of a schedule.

mod fit_memory;
mod lower_comm_dtypes;
mod overlap;
mod overlap_value;
pub(crate) mod rematerialize;
