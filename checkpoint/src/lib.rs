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
//! one: every output consists of contiguous ranges of the inputs, written block by block, with
//! checksums. No communication is needed.
//!
//! [`Checkpoint::open`] reads headers; [`Checkpoint::read`] and [`Checkpoint::shard`] read parts of tensors
//! and no byte more; [`Checkpoint::verify`] and [`diff`] compare. A [`ReshardJob`] has the options of the command
//! line, and [`ReshardJob::run`] executes it, or [`ReshardJob::run_on`] on an opened checkpoint; an [`Observer`] reports its progress. Features select the engines:
//! `mpi`, `cuda`, `nccl`; threads are always available.
//!
//! ```
//! use reshard_checkpoint::{Checkpoint, PlacementSpec, ReshardJob, diff};
//! use reshard_sharding::Sharding;
//!
//! let block = Checkpoint::open(None)?; // the embedded one; Some(path) opens a file
//! let spec = PlacementSpec::new([("*.weight", "R,S(0)"), ("*", "R,R")])?; // the first pattern that matches wins
//! let folder = tempfile::tempdir()?;
//! let out = folder.path().join("out");
//! let job = ReshardJob { mesh: Some("dp=2,tp=4".into()), out: Some(out.clone()), ..ReshardJob::default() };
//! job.run_on(&block, Some(&spec), &mut ())?; // eight rank files and sharding.json
//! let sharded = Checkpoint::open(Some(&out))?;
//! let eighths = Sharding::parse(&"x=8".parse()?, &[2003, 256], "S(0)")?;
//! let rows = sharded.shard("embedding.weight", &eighths, 7)?; // what rank 7 of another mesh needs
//! assert_eq!((rows.len(), sharded.bytes_read()), (246 * 256 * 4, 246 * 256 * 4)); // no other byte was read
//! assert!(diff(&block, &sharded, &mut ())?.equal && sharded.verify(&mut ())?.problems.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bytes;
mod check;
mod engine;
mod error;
mod formats;
mod job;
mod model;
mod open;
mod parallel;
mod reading;
mod rooms;
mod select;
mod shown;
mod spread;
mod stream;
#[cfg(test)]
mod tests;
mod write;

pub use bytes::read::{MOST_BYTES, read, read_text};
pub use check::diff::{DiffReport, TensorDiff, diff};
pub use check::integrity::VerifyReport;
pub use check::problem::Problem;
pub use check::remains::{DegradedCheckpoint, LostRegion};
pub use error::{Error, ErrorClass, ErrorKind};
#[doc(hidden)]
pub use formats::manifest::manifest_again;
pub use job::carried::{NotCarried, Others};
pub use job::observer::Observer;
pub use job::report::{JobReport, TensorReport};
pub use job::{Engine, OutputFormat, Replicas, ReshardJob};
pub use model::checkpoint::{Checkpoint, Tensor};
pub use model::objects::{Key, Object};
pub use open::source::SourceSpec;
pub use reading::loading::{ReadModel, ShardLoad};
pub use reshard_mapping::Mapping;
pub use select::spec::PlacementSpec;
pub use write::staging::remove_staging;
pub use write::writer::{CheckpointWriter, RankWriter};
