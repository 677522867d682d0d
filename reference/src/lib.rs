//! The ops of the table on host tensors: a short and slow reference implementation.
//!
//! ```text
//! run        table, call, whole tensors                  ->  whole tensors
//! run_local  table, call, shards and their regions       ->  the shards that a rank computes
//! ```
//!
//! An op is computed in `f64` and its results are rounded once to the type of the tensors, `f32` or `f64`;
//! indices and truth values are numbers of that type. Omitted arguments have the defaults that the
//! [table](reshard_ops::rules::OpTable) declares. On a shard an op computes its part of the result on the
//! whole, and its arguments refer to the whole. Ops that depend on an element's position, such as causal
//! attention, a random number or the index of a class, read the
//! [region](reshard_ops::rules::ShardRegion) of the shard.
//!
//! A rule is an op too, if it is an einsum; a composite runs its body. Names are those of the standard table.
//!
//! ```
//! use ndarray::array;
//! use reshard_ops::rules::OpTable;
//! let table = OpTable::standard();
//! let x = array![[1.0, 2.0], [3.0, 4.0]].into_dyn();
//! let y = reshard_reference::run(&table, &"sum(dims=[1])".parse()?, &[x.clone()])?;
//! assert_eq!(y, [array![3.0, 7.0].into_dyn()]);
//! let y = reshard_reference::run(&table, &"mk,kn->mn".parse()?, &[x.clone(), x])?;
//! assert_eq!(y, [array![[7.0, 10.0], [15.0, 22.0]].into_dyn()]);
//! # Ok::<(), reshard_reference::Error>(())
//! ```
#![forbid(unsafe_code)]
#![expect(clippy::float_cmp, reason = "indices, truth values and classes are numbers")]

mod arrays;
mod ask;
mod certificate;
mod done;
mod error;
mod narrow;
mod ops;
mod program;
mod real;
mod run;
mod schedule;
mod timed;
mod together;
mod training;

pub use certificate::certify;
pub use done::Did;
pub use error::Error;
pub use ops::{names, runs};
pub use program::{Number, Ranks, Values, on_one_device, on_ranks};
pub use real::Real;
pub use reshard_ops::ErrorKind;
pub use run::{Local, run, run_local};
pub use schedule::{Host, on_schedules};
pub use timed::{Timed, timed};
pub use together::on_this_rank;
pub use training::Training;
