//! The command line, subcommand by subcommand, as its contract has it.

mod calibrate;
mod check;
mod checkpoint_answers;
#[path = "../checkpoints/mod.rs"]
mod checkpoints;
mod grad;
mod hostile;
mod layout;
mod pages;
mod pictures;
mod plan;
mod process;
#[path = "../program/mod.rs"]
mod program;
mod propagate;
mod random;
mod rule;
mod run;
#[cfg(unix)]
mod run_ends;
#[cfg(unix)]
mod run_faults;
mod run_limits;
mod run_made;
mod run_refusals;
mod shards;
#[cfg(unix)]
mod snapshots;
mod step;
mod trace;
mod transfer;
mod typings;
mod view_mesh;
