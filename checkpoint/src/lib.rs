//! Checkpoint resharding: each tensor of a safetensors, PyTorch or NumPy checkpoint gets another sharding.
//!
//! Every byte of every rank is verified, and the result is written completely or not at all.
//!
//! ```text
//! input --open--> tensors with their shards     job --decide--> one redistribution per tensor, or an error
//!
//! per batch:    shards --assemble--> whole tensor ----------------.
//!               shards --exchange (plan, engine)--> new shards --verify--> staged in every rank's file, or gathered
//!
//! all verified: files synced, committed by renaming; report
//! ```
//!
//! This is the path through an engine, which tests plans on real data. From files to files there is a shorter
//! one, [`reshard`]: every output consists of contiguous ranges of the inputs, written block by block, with
//! checksums. No communication is needed.
//!
//! [`Checkpoint::open`] reads headers; [`Checkpoint::read`] and [`Checkpoint::shard`] read parts of tensors
//! and no byte more; [`Checkpoint::verify`] and [`diff`] compare. A [`ReshardJob`] has the options of the command
//! line, and [`ReshardJob::run`] executes it; an [`Observer`] reports its progress. Features select the engines:
//! `mpi`, `cuda`, `nccl`; threads are always available.
//!
//! ```
//! use reshard_checkpoint::{Checkpoint, ReshardOptions, PlacementSpec, diff, reshard};
//! use reshard_sharding::Sharding;
//!
//! let block = Checkpoint::open(None)?; // the embedded one; Some(path) opens a file
//! let spec = PlacementSpec::new([("*.weight", "R,S(0)"), ("*", "R,R")])?; // the first pattern that matches wins
//! let folder = tempfile::tempdir()?;
//! let out = folder.path().join("out");
//! reshard(&block, &"dp=2,tp=4".parse()?, &spec, &out, ReshardOptions::default())?; // eight rank files and sharding.json
//! let sharded = Checkpoint::open(Some(&out))?;
//! let eighths = Sharding::parse(&"x=8".parse()?, &[2003, 256], "S(0)")?;
//! let rows = sharded.shard("embedding.weight", &eighths, 7)?; // what rank 7 of another mesh needs
//! assert_eq!((rows.len(), sharded.bytes_read()), (246 * 256 * 4, 246 * 256 * 4)); // no other byte was read
//! assert!(diff(&block, &sharded, &mut ())?.equal && sharded.verify(&mut ())?.problems.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod archives;
mod bytes;
mod carried;
mod cast;
mod checkpoint;
mod checksum;
mod copies;
mod dcp;
mod decision;
mod derived;
#[cfg(any(test, feature = "cuda"))]
mod device;
mod diff;
mod embedded;
mod error;
mod exchange;
mod fusion;
mod header;
mod held;
mod in_turn;
mod index;
mod indexed;
mod integrity;
mod job;
mod job_input;
mod loading;
mod manifest;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(any(test, feature = "nccl"))]
mod nccl;
mod numpy;
mod objects;
mod observer;
mod offline;
mod one_process;
mod open;
mod outputs;
mod parallel;
mod pattern;
mod peek;
mod pickle;
mod pieces;
mod pipeline;
mod place;
mod placed;
mod problem;
#[cfg(any(test, feature = "mpi", feature = "nccl"))]
mod processes;
mod rank_files;
mod read;
mod reading;
mod remains;
#[cfg(feature = "remote")]
mod remote;
mod rename;
mod replaced;
mod report;
mod reserved;
mod resharding;
mod rooms;
mod run;
mod runs;
mod shard_files;
mod shown;
mod slab;
mod slab_read;
mod spec;
mod spread;
mod staging;
mod together;
mod torch_save;
mod unique;
mod units;
mod verify;
mod wish;
mod writer;
mod zip;

#[cfg(test)]
mod stand_in;
#[cfg(test)]
mod tests;

pub use carried::{NotCarried, Others};
pub use checkpoint::{Checkpoint, Tensor};
pub use diff::{DiffReport, TensorDiff, diff};
pub use error::{Error, ErrorClass, ErrorKind};
pub use fusion::Fusion;
pub use integrity::VerifyReport;
pub use job::{Engine, OutputFormat, ReshardJob};
pub use loading::{ReadModel, ShardLoad};
#[doc(hidden)]
pub use manifest::manifest_again;
pub use objects::{Key, Object};
pub use observer::Observer;
pub use problem::Problem;
pub use read::{MOST_BYTES, read, read_text};
pub use remains::{DegradedCheckpoint, LostRegion};
pub use report::{JobReport, TensorReport};
pub use resharding::{ReshardOptions, reshard};
pub use spec::PlacementSpec;
pub use staging::remove_staging;
pub use writer::{CheckpointWriter, RankWriter};
