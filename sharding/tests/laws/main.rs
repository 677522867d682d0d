//! The laws of meshes, placements, notations and views, a file per concept.
#![allow(clippy::needless_pass_by_value, reason = "quickcheck hands cases to laws by value")]

mod balance;
mod extremes;
mod facts;
mod meshes;
mod notations;
mod permuted;
mod prefixes;
mod recipes;
mod shardings;
mod texts;
mod types;
mod views;
