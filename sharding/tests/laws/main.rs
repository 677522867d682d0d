//! The properties of meshes, placements, notations and views, a file per concept.
#![allow(clippy::needless_pass_by_value, reason = "quickcheck passes arguments by value")]

mod balance;
mod counts;
mod extremes;
mod facts;
mod meanings;
mod meshes;
mod notations;
mod permuted;
mod prefixes;
mod recipes;
mod runs;
mod shardings;
mod texts;
mod types;
mod views;
