//! The extension module `reshard._reshard`: a class for each value of the library, and nothing that plans, prices or decides.
//!
//! ```text
//! Python object --argument types--> Rust value --the library--> Rust value --class--> Python object
//!                                        |
//!                                        '--refused--> Failure --> a ReshardError with its kind
//! ```
//!
//! Classes are frozen. `==` and `hash` are Rust's, `str` is the notation, `repr` evaluates to an equal value, and copies and
//! pickles go through the notation. What may take longer than 50 us runs detached from the interpreter.
#![cfg(feature = "extension")]
#![allow(
    clippy::needless_pass_by_value,
    clippy::trivially_copy_pass_by_ref,
    clippy::unused_self,
    reason = "methods that Python calls take a reference to their object, and values that were made for the call"
)]

mod arguments;
mod arrays;
mod call;
mod checkpoint;
mod command_line;
mod dtype;
mod elaborator;
mod failure;
mod graph;
mod kernels;
mod layout;
mod mesh;
mod network;
mod op;
mod program;
mod propagate;
mod random;
mod ranks;
mod region;
mod report;
mod run;
mod schedule;
mod sharding;
mod shards;
mod table;
mod value;
mod verify;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
fn _reshard(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    failure::register(module)?;
    dtype::register(module)?;
    layout::register(module)?;
    mesh::register(module)?;
    sharding::register(module)?;
    network::register(module)?;
    table::register(module)?;
    op::register(module)?;
    propagate::register(module)?;
    verify::register(module)?;
    random::register(module)?;
    graph::register(module)?;
    region::register(module)?;
    elaborator::register(module)?;
    program::register(module)?;
    report::register(module)?;
    schedule::register(module)?;
    kernels::register(module)?;
    ranks::register(module)?;
    checkpoint::register(module)?;
    command_line::register(module)
}
