//! The laws of programs, a file per concept.

mod megatron;
mod meshes;
mod report;
mod strategies;
mod timeline;
mod schedules;
