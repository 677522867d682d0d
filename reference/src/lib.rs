//! The ops of the table on host tensors: short and slow, to compare with.
//!
//! ```text
//! run        table, call, whole tensors                  ->  whole tensors
//! run_local  table, call, shards and where they lie      ->  the shards that a rank makes
//! ```
//!
//! An op is computed in `f64` and its results are rounded once to the type of the tensors, `f32` or `f64`; indices and truth
//! values are numbers of that type. What a call does not say is what the [table](reshard_ops::rules::Table) declares as its
//! default. On a shard an op computes its part of what it would compute on the whole: its arguments speak of the whole, and
//! what depends on where an element lies, such as causal attention, a random number or the index of a class, reads the
//! [region](reshard_ops::rules::verify::LocalRegion) of the shard.
//!
//! A rule is an op too, if it is an einsum; a composite runs its body. Names mean what they mean in the standard table.
//!
//! ```
//! use ndarray::array;
//! use reshard_ops::rules::Table;
//! let table = Table::standard();
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

pub use done::Did;
pub use error::Error;
pub use ops::{names, runs};
pub use program::{Number, Ranks, Values, on_one_device, on_ranks};
pub use real::Real;
pub use run::{Local, run, run_local};
pub use schedule::{Host, on_schedules};
pub use timed::{Timed, timed};
pub use together::on_this_rank;
pub use training::Training;
