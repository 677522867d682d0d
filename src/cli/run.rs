//! `reshard run`: reshards a checkpoint for real, verifies every byte, and writes the result.
//!
//! ```text
//! input --open--> tensors with their shards     --to, --spec --decide--> one move per tensor (refusals end here)
//!
//! per batch:    shards --assemble--> whole tensor ----------------.
//!               shards --exchange (plan, engine)--> new shards --verify--> appended to every rank's file, or gathered
//!
//! all verified: files synced, renamed into place; report
//! ```
//!
//! The whole tensor that the new shards are judged by comes from the input and the regions of the source sharding, the
//! slices it is compared with from the regions of the target sharding; the plan has no say in either. Small tensors that
//! move go in batches. Memory holds one batch, or one large tensor: its whole, and its new shards.

mod checkpoint;
mod decision;
#[cfg(any(test, feature = "cuda"))]
mod device;
mod embedded;
mod exchange;
mod header;
mod index;
mod manifest;
mod mapped;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(any(test, feature = "nccl"))]
mod nccl;
mod outputs;
mod parallel;
#[cfg(any(test, feature = "mpi", feature = "nccl"))]
mod processes;
mod progress;
mod report;
mod runs;
mod shard_files;
mod spec;
mod staging;
mod units;
mod verify;

#[cfg(test)]
mod stand_in;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use reshard_sharding::Mesh;

use super::error::CliError;
use super::output;
use checkpoint::{Checkpoint, Data, Origin};
use decision::{Move, Wish};
use exchange::Exchange;
use outputs::Outputs;
use report::{Report, TensorReport};
use spec::Spec;

/// Arguments of `reshard run`.
#[derive(Debug, Default, Args)]
pub(crate) struct RunArgs {
    /// A .safetensors file, a folder with model.safetensors.index.json, or the output of an earlier run
    /// [default: a small transformer block made by code]
    input: Option<PathBuf>,
    /// The mesh to shard over, like dp=2,tp=4
    #[arg(long)]
    mesh: Option<String>,
    /// The sharding to start from, where the input is whole [default: replicated]
    #[arg(long)]
    from: Option<String>,
    /// The sharding to reach, like `S(0),R`; tensors that lack its dims are replicated [default with --gather: replicated]
    #[arg(long)]
    to: Option<String>,
    /// Reshard only this tensor
    #[arg(long)]
    tensor: Option<String>,
    /// A TOML file of name patterns and their placements; the first match wins over --to
    #[arg(long)]
    spec: Option<PathBuf>,
    /// Write one file per rank and sharding.json into this directory
    #[arg(long)]
    out: Option<PathBuf>,
    /// Write the whole tensors into this file
    #[arg(long)]
    gather: Option<PathBuf>,
    /// What carries out the plan
    #[arg(long, value_enum, default_value_t)]
    engine: Engine,
    /// How many seconds a rank waits for another that does not come [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    time_out: Option<Duration>,
    /// Replace an output that is there already
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// What carries out a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Engine {
    /// Ranks are threads of this process
    #[default]
    Threads,
    /// Ranks are processes of an MPI job
    Mpi,
    /// Ranks share one CUDA device
    Cuda,
    /// Ranks are processes with a CUDA device each
    Nccl,
}

/// Sees every tensor's new shards after the exchange and before verification. Only tests do anything here: they spoil
/// a byte to show that it is noticed.
type AfterExchange<'a> = &'a mut dyn FnMut(&str, &mut [Vec<u8>]);

/// Runs, and prints the report.
pub(crate) fn run(args: &RunArgs) -> Result<(), CliError> {
    args.engine.check()?;
    #[cfg(feature = "mpi")]
    if args.engine == Engine::Mpi {
        return mpi::run(args);
    }
    #[cfg(feature = "nccl")]
    if args.engine == Engine::Nccl {
        return nccl::run(args);
    }
    let (report, written) = carry_out(args, &mut |_, _| {})?;
    if args.json { output::print_json(&report) } else { output::print(&report.table(&written)) }
}

/// Does the whole job. Nothing is written before everything that can be refused has been.
fn carry_out(args: &RunArgs, after_exchange: AfterExchange<'_>) -> Result<(Report, Vec<String>), CliError> {
    let start = Instant::now();
    let checkpoint = Checkpoint::open(args.input.as_deref())?;
    let spec = args.spec.as_deref().map(Spec::read).transpose()?;
    let wish = wish(args, &checkpoint.origin, spec.as_ref())?;
    let mut moves = decision::decide(&checkpoint, &wish)?;
    moves.sort_by(|a, b| {
        shard_files::file_order((&a.tensor.name, a.tensor.dtype), (&b.tensor.name, b.tensor.dtype))
    });
    let mut exchange = Exchange::prepare(&moves, args.time_out, args.engine)?;
    let mut outputs = Outputs::begin(
        args.out.as_deref(),
        args.gather.as_deref(),
        args.force,
        &wish.mesh,
        &moves,
        &checkpoint,
    )?;
    let bar = progress::bar(moves.iter().map(|tensor| tensor.tensor.byte_len()).sum());
    let mut tensors = Vec::with_capacity(moves.len());
    for batch in exchange.batches(&moves) {
        bar.set_message(batch[0].tensor.name.clone());
        let reports = reshard(batch, &mut exchange, &mut outputs, after_exchange)?;
        bar.inc(reports.iter().map(|report| report.bytes).sum());
        tensors.extend(reports);
    }
    let written = outputs.finish()?;
    bar.finish_and_clear();
    Ok((Report::new(tensors, start.elapsed()), written))
}

/// A batch of tensors: exchange, verify, hand to the outputs.
fn reshard(
    batch: &[Move<'_>],
    exchange: &mut Exchange,
    outputs: &mut Outputs,
    after_exchange: AfterExchange<'_>,
) -> Result<Vec<TensorReport>, CliError> {
    let mut sources = Vec::with_capacity(batch.len());
    for tensor in batch {
        sources.push(shards_of(tensor).map_err(|error| error.about_tensor(&tensor.tensor.name))?);
    }
    let sources: Vec<Vec<&[u8]>> =
        sources.iter().map(|shards| shards.iter().map(|shard| &**shard).collect()).collect();
    let mut wholes = Vec::with_capacity(batch.len());
    for (tensor, sources) in batch.iter().zip(&sources) {
        let whole = match &tensor.tensor.data {
            Data::Whole(whole) => Ok(Cow::Borrowed(whole.as_slice())),
            Data::Shards { .. } => verify::assemble(&tensor.unit_from, tensor.units.bytes, sources),
        };
        wholes.push(whole.map_err(|error| error.about_tensor(&tensor.tensor.name))?);
    }
    let results = exchange.carry_out_together(batch, &sources).map_err(|error| match batch {
        [tensor] => error.about_tensor(&tensor.tensor.name),
        _ => error,
    })?;
    let mut reports = Vec::with_capacity(batch.len());
    for ((tensor, whole), (mut shards, moved)) in batch.iter().zip(&wholes).zip(results) {
        after_exchange(&tensor.tensor.name, &mut shards);
        verify::verify(&tensor.unit_to, tensor.units.bytes, &shards, whole)
            .and_then(|()| outputs.write(tensor, &shards))
            .map_err(|error| error.about_tensor(&tensor.tensor.name))?;
        reports.push(TensorReport::new(tensor, &moved));
    }
    Ok(reports)
}

/// What each rank of a tensor's source holds.
fn shards_of<'a>(tensor: &'a Move<'_>) -> Result<Vec<Cow<'a, [u8]>>, CliError> {
    match &tensor.tensor.data {
        Data::Whole(whole) => verify::cut(&tensor.unit_from, tensor.units.bytes, whole.as_slice()),
        Data::Shards { shards, .. } => {
            Ok(shards.iter().map(|shard| Cow::Borrowed(shard.as_slice())).collect())
        }
    }
}

/// What the arguments ask for, with the defaults that depend on the input.
fn wish<'a>(args: &'a RunArgs, origin: &Origin, spec: Option<&'a Spec>) -> Result<Wish<'a>, CliError> {
    let usage = |message: &str| CliError::refused("usage", message);
    let mesh = match (&args.mesh, origin) {
        (Some(text), _) => text.parse()?,
        (None, Origin::Sharded(mesh)) => mesh.clone(),
        (None, Origin::Embedded) => Mesh::new([("dp", 2), ("tp", 4)])?,
        (None, Origin::Files) => return Err(usage("say over which mesh: --mesh dp=2,tp=4")),
    };
    let from = match (&args.from, origin) {
        (Some(text), _) => Some(text.clone()),
        (None, Origin::Embedded) => Some(fsdp_over_tp(&mesh)),
        (None, Origin::Files | Origin::Sharded(_)) => None,
    };
    let to = match (&args.to, origin) {
        (Some(text), _) => Some(text.clone()),
        (None, _) if spec.is_some() => None,
        (None, _) if args.gather.is_some() => Some(per_axis(&mesh, |_| "R".to_owned())),
        (None, Origin::Embedded) => {
            let last = mesh.axes().len().saturating_sub(1);
            Some(per_axis(&mesh, |axis| format!("S({})", usize::from(axis == last))))
        }
        (None, Origin::Files | Origin::Sharded(_)) => {
            return Err(usage("say how to shard: --to 'S(0),R', one per axis"));
        }
    };
    Ok(Wish { mesh, from, to, spec, tensor: args.tensor.as_deref() })
}

/// Fully sharded data parallelism over tensor parallelism, all on dim 0: the first axis cuts what the others left, so
/// its digit is the innermost.
fn fsdp_over_tp(mesh: &Mesh) -> String {
    let inner: usize = mesh.axes().iter().skip(1).map(reshard_sharding::Axis::size).product();
    per_axis(mesh, |axis| if axis == 0 && inner > 1 { format!("SS(0,{inner})") } else { "S(0)".to_owned() })
}

fn per_axis(mesh: &Mesh, placement: impl Fn(usize) -> String) -> String {
    (0..mesh.axes().len()).map(placement).collect::<Vec<_>>().join(",")
}

/// A positive number of seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|time| !time.is_zero())
        .ok_or_else(|| format!("`{text}` is not a positive number of seconds"))
}

impl Engine {
    fn check(self) -> Result<(), CliError> {
        let feature = match self {
            Self::Threads => return Ok(()),
            Self::Mpi if cfg!(feature = "mpi") => return Ok(()),
            Self::Mpi => "mpi",
            Self::Cuda if cfg!(feature = "cuda") => return Ok(()),
            Self::Cuda => "cuda",
            Self::Nccl if cfg!(feature = "nccl") => return Ok(()),
            Self::Nccl => "nccl",
        };
        let message = format!(
            "the engine {feature} needs a build with the feature `{feature}`; --engine threads is always there"
        );
        Err(CliError::refused("no_such_engine", message))
    }
}
