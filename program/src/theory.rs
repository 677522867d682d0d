//! The theory of the solver in one chapter; every example is a test.
//!
//! [Solving](#solving): the cost, why a finished search is right, and a bound on the loss of an unfinished one.
//!
#![doc = include_str!("../theory/solving.md")]
