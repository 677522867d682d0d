//! The extension module `reshard._reshard`: a class for each value of the library, and nothing that plans, prices or decides.
//!
//! ```text
//! Python object --argument types--> Rust value --the library--> Rust value --class--> Python object
//!                                        |
//!                                        '--rejected-> Failure --> a ReshardError with its kind
//! ```
//!
//! Classes are frozen. `==` and `hash` are Rust's, `str` is the notation, `repr` evaluates to an equal value, and copies and
//! pickles go through the notation. Work of more than 50 us runs detached from the interpreter; searches
//! answer Ctrl-C.
#![cfg(feature = "extension")]
#![allow(
    clippy::needless_pass_by_value,
    clippy::trivially_copy_pass_by_ref,
    clippy::unused_self,
    reason = "methods called from Python take a reference to their object, and values made for the call"
)]

mod arguments;
mod arrays;
mod buffers;
mod calibrate;
mod call;
mod calls;
mod checkpoint;
mod checkpoint_reports;
mod checkpoint_writer;
mod command_line;
mod composed_layout;
mod dtype;
mod element_text;
mod engine;
mod failure;
mod graph;
mod group;
mod json;
mod kernels;
mod layout;
mod local_region;
mod mesh;
mod named_layout;
mod numbers;
mod op;
mod operand;
mod operations;
mod parallelize;
mod placement;
mod plan;
mod planner;
mod program;
mod progress;
mod propagate;
mod random;
mod ranks;
mod rates;
mod region;
mod report;
mod run;
mod schedule;
mod sequences;
mod sharding;
mod shards;
mod solver;
mod spmd;
mod step;
mod stop;
mod table;
mod tensor_type;
mod texts;
mod topology;
mod transfer;
mod value;
mod values;
mod verify;
mod view;
mod wanted;
mod whole_file;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
fn _reshard(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    failure::register(module)?;
    dtype::register(module)?;
    layout::register(module)?;
    named_layout::register(module)?;
    composed_layout::register(module)?;
    values::register(module)?;
    mesh::register(module)?;
    group::register(module)?;
    placement::register(module)?;
    region::register(module)?;
    sharding::register(module)?;
    tensor_type::register(module)?;
    rates::register(module)?;
    table::register(module)?;
    op::register(module)?;
    operand::register(module)?;
    propagate::register(module)?;
    verify::register(module)?;
    random::register(module)?;
    topology::register(module)?;
    calibrate::register(module)?;
    step::register(module)?;
    plan::register(module)?;
    planner::register(module)?;
    view::register(module)?;
    calls::register(module)?;
    spmd::register(module)?;
    graph::register(module)?;
    local_region::register(module)?;
    solver::register(module)?;
    program::register(module)?;
    parallelize::register(module)?;
    report::register(module)?;
    schedule::register(module)?;
    kernels::register(module)?;
    ranks::register(module)?;
    checkpoint::register(module)?;
    checkpoint_reports::register(module)?;
    checkpoint_writer::register(module)?;
    transfer::register(module)?;
    whole_file::register(module)?;
    command_line::register(module)?;
    // The package declares its exports itself.
    module.delattr("__all__")
}
