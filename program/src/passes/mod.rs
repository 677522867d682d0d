//! Passes: from a program to a program that makes the same to the bit, in less memory or in less time.
//!
//! | pass | |
//! |---|---|
//! | [`again`](crate::Program::again) | backward makes values of forward again, in place of keeping them |
//! | [`recompute`](crate::Program::recompute) | which of them, so that the program fits |
//! | [`chunked`](crate::Program::chunked) | what is moved and what is computed with it come in pieces |
//! | [`chunk`](crate::Program::chunk) | where that takes less time |
//! | [`wired`](crate::Program::wired) | what travels in a narrower type is cast, moved, cast and added |
//!
//! What comes out is a program like any other: typed, printed, reported, compiled. Passes that know one rank, such as hoisting and buckets, are
//! [options](crate::schedule::Options) of a schedule.

pub(crate) mod again;
mod chunk;
mod recompute;
mod wires;
mod worth;
