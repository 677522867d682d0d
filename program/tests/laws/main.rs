//! The laws of programs, a file per concept.

mod meshes;
mod report;
