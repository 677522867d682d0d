//! The theory of the solver in one chapter; every example is a test.
//!
//! [Solving](#solving): what is minimised, why a finished search is right, and what an unfinished one can lose.
//!
#![doc = include_str!("../theory/solving.md")]
