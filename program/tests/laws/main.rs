//! The laws of programs, a file per concept.

mod again;
mod megatron;
mod meshes;
mod pipeline;
mod report;
mod schedules;
mod strategies;
mod texts;
mod timeline;
