//! Checkpoints resharded for real: every tensor of a checkpoint, of safetensors, PyTorch or NumPy, goes from its sharding to another, every
//! byte of every rank is verified, and the result is written whole or not at all.
//!
//! ```text
//! input --open--> tensors with their shards     wish --decide--> one move per tensor (refusals end here)
//!
//! per batch:    shards --assemble--> whole tensor ----------------.
//!               shards --exchange (plan, engine)--> new shards --verify--> staged in every rank's file, or gathered
//!
//! all verified: files synced, committed by renaming; report
//! ```
//!
//! That is the way through an engine, which tries plans on real data. From files to files there is a shorter one, which [`reshard`]
//! takes: every output is made of stretches of the inputs, slab by slab, with checksums, and nobody has to talk.
//!
//! [`Checkpoint::open`] reads headers; [`Checkpoint::read`] and [`Checkpoint::shard`] read parts of tensors and no byte more;
//! [`Checkpoint::verify`] and [`diff`] compare. A [`Job`] says what the command line does and [`Job::run`] does it; an [`Observer`]
//! sees how far it is. Engines are chosen by features: `mpi`, `cuda`, `nccl`; threads are always there.
//!
//! ```
//! use reshard_checkpoint::{Checkpoint, Options, Spec, diff, reshard};
//! use reshard_sharding::Sharding;
//!
//! let block = Checkpoint::open(None)?; // a small one made by code; of your own, Some(path)
//! let spec = Spec::new([("*.weight", "R,S(0)"), ("*", "R,R")])?; // the first pattern that matches wins
//! let folder = tempfile::tempdir()?;
//! let out = folder.path().join("out");
//! reshard(&block, &"dp=2,tp=4".parse()?, &spec, &out, Options::default())?; // eight rank files and sharding.json
//! let sharded = Checkpoint::open(Some(&out))?;
//! let eighths = Sharding::parse(&"x=8".parse()?, &[2003, 256], "S(0)")?;
//! let rows = sharded.shard("embedding.weight", &eighths, 7)?; // what rank 7 of another mesh needs
//! assert_eq!((rows.len(), sharded.bytes_read()), (246 * 256 * 4, 246 * 256 * 4)); // and no byte more was read
//! assert!(diff(&block, &sharded, &mut ())?.equal && sharded.verify(&mut ())?.problems.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod archives;
mod by_content;
mod bytes;
mod carried;
mod cast;
mod checkpoint;
mod checksum;
mod copies;
mod dcp;
mod decision;
mod declared;
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
mod inflated;
mod integrity;
mod job;
mod loading;
mod manifest;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(any(test, feature = "nccl"))]
mod nccl;
mod numpy;
mod objects;
mod objects_compared;
mod observer;
mod offline;
mod one_process;
mod outputs;
mod parallel;
mod pattern;
mod peek;
mod pickle;
mod pipeline;
mod place;
mod placed;
#[cfg(any(test, feature = "mpi", feature = "nccl"))]
mod processes;
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
mod runs;
mod shard_files;
mod shown;
mod slab;
mod slab_read;
mod spec;
mod spread;
mod staging;
mod strided;
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
pub use error::{Error, ErrorKind};
pub use fusion::Fusion;
pub use integrity::{Problem, VerifyReport};
pub use job::{Engine, OutputFormat, ReshardJob};
pub use loading::{ReadModel, ShardLoad};
#[doc(hidden)]
pub use manifest::manifest_again;
pub use objects::{Key, Object};
pub use observer::Observer;
pub use read::{MOST_BYTES, read, read_text};
pub use remains::{DegradedCheckpoint, LostRegion};
pub use report::{JobReport, TensorReport};
pub use resharding::{Options, reshard};
pub use spec::PlacementSpec;
pub use staging::remove_staging;
pub use writer::{CheckpointWriter, RankWriter};
