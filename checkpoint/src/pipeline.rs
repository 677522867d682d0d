//! The job: one sequence, whoever exchanges.
//!
//! ```text
//! input --open--> tensors with their shards     job --decide--> one move per tensor (refusals end here)
//!
//! per batch:    shards --assemble--> whole tensor ----------------.
//!               shards --exchange (plan, engine)--> new shards --verify--> appended to the files of their ranks
//!                                                               '--gather--> the whole, compared and appended
//!
//! all verified: files synced, committed by renaming; report
//! ```
//!
//! The whole tensor that the new shards are judged by comes from the input and the regions of the source sharding, the
//! slices it is compared with from the regions of the target sharding; the plan has no say in either. Small tensors that
//! move go in batches. Memory holds one batch, or one large tensor: its whole, and its new shards.
//!
//! A process does this for the ranks that it holds. Up to the first exchange, and from the last one on, every stage is passed
//! by all processes or by none, so that a refusal is told once, by the first that has it. In between others count on this
//! process, and if it fails it fails alone. Input and output are files that all processes see; the first stages and commits,
//! and only after all have verified, written and synced their parts.

use std::borrow::Cow;
use std::time::Instant;

use super::checkpoint::{Checkpoint, Data};
use super::decision::{self, Move};
use super::error::Error;
use super::exchange::{Exchange, agrees};
use super::job::Job;
use super::mapped::Bytes;
use super::observer::Observer;
use super::outputs::{self, Outputs};
use super::report::{Report, TensorReport};
use super::shard_files;
use super::spec::Spec;
use super::together::{Stop, together};
use super::verify;
use super::wish::Wish;

/// Sees every tensor's new shards after the exchange and before verification. Only tests do anything here: they spoil
/// a byte to show that it is noticed.
pub(crate) type AfterExchange<'a> = &'a mut dyn FnMut(&str, &mut [Vec<u8>]);

/// Does this process's part of the job. Nothing is written before everything that can be refused has been.
pub(crate) fn carry_out<X: Exchange>(
    job: &Job,
    exchange: &mut X,
    observer: &mut dyn Observer,
    after_exchange: AfterExchange<'_>,
) -> Result<Report, Stop> {
    let start = Instant::now();
    let checkpoint = together(exchange, Checkpoint::open(job.input.as_deref()))?;
    let spec = together(exchange, job.spec.as_deref().map(Spec::read).transpose())?;
    let wish = together(exchange, Wish::of(job, &checkpoint.origin, spec.as_ref()))?;
    let mut moves = together(exchange, decision::decide(&checkpoint, &wish))?;
    moves.sort_by(|a, b| {
        shard_files::file_order((&a.tensor.name, a.tensor.dtype), (&b.tensor.name, b.tensor.dtype))
    });
    // The first process writes what there is one of.
    let allowed = if exchange.process() == 0 { outputs::check(job) } else { Ok(()) };
    together(exchange, allowed)?;
    let prepared = exchange.prepare(&moves, job.gather.is_some());
    together(exchange, prepared)?;
    let mut outputs = Outputs::begin(job, exchange, &wish.mesh, &moves, &checkpoint)?;
    // One process shows how far all are.
    let mut nobody = ();
    let observer = if exchange.process() == 0 { observer } else { &mut nobody };
    let bytes = |moves: &[Move<'_>]| moves.iter().map(|tensor| tensor.tensor.byte_len()).sum();
    observer.begins(bytes(&moves));
    let mut received = Vec::with_capacity(moves.len());
    for batch in exchange.batches(&moves) {
        observer.reaches(&batch[0].tensor.name);
        received.extend(reshard(batch, exchange, &mut outputs, after_exchange)?);
        observer.moved(bytes(batch));
    }
    observer.ends();
    let everywhere = exchange.share(&received)?;
    let worst = |at: usize| everywhere.iter().map(|process| process[at]).max().unwrap_or(0);
    let reports = moves.iter().enumerate().map(|(at, tensor)| report(tensor, exchange, worst(at))).collect();
    let reports = together(exchange, reports)?;
    let written = outputs.finish(exchange)?;
    Ok(Report::new(reports, written, start.elapsed()))
}

/// A batch of tensors: exchange, verify, hand to the outputs. Returns what the worst of this process's ranks received.
fn reshard<X: Exchange>(
    batch: &[Move<'_>],
    exchange: &mut X,
    outputs: &mut Outputs,
    after_exchange: AfterExchange<'_>,
) -> Result<Vec<u64>, Error> {
    let mut before = Vec::with_capacity(batch.len());
    for tensor in batch {
        let parts = whole_and_shards(tensor, |rank| exchange.holds(rank));
        before.push(parts.map_err(|error| error.about_tensor(&tensor.tensor.name))?);
    }
    let sources: Vec<Vec<&[u8]>> =
        before.iter().map(|(_, shards)| shards.iter().map(|shard| &**shard).collect()).collect();
    let results = exchange.exchange(batch, &sources).map_err(|error| match batch {
        [tensor] => error.about_tensor(&tensor.tensor.name),
        _ => error,
    })?;
    let mut received = Vec::with_capacity(batch.len());
    for ((tensor, (whole, _)), (mut shards, bytes)) in batch.iter().zip(&before).zip(results) {
        after_exchange(&tensor.tensor.name, &mut shards);
        let mesh = tensor.unit_to.mesh();
        let ranks: Vec<usize> = mesh.ranks().filter(|rank| exchange.holds(*rank)).collect();
        verify::verify(&tensor.unit_to, tensor.units.bytes, &ranks, &shards, whole)
            .and_then(|()| outputs.write(tensor, &shards, whole, exchange))
            .map_err(|error| error.about_tensor(&tensor.tensor.name))?;
        received.push(bytes);
    }
    Ok(received)
}

/// The whole tensor, and what the ranks of its source hold that this process holds.
type Before<'a> = (Cow<'a, [u8]>, Vec<Cow<'a, [u8]>>);

fn whole_and_shards<'a>(tensor: &'a Move<'_>, holds: impl Fn(usize) -> bool) -> Result<Before<'a>, Error> {
    let (from, item_bytes) = (&tensor.unit_from, tensor.units.bytes);
    let ranks = from.mesh().ranks();
    match &tensor.tensor.data {
        Data::Whole(whole) => {
            let whole = whole.as_slice();
            let cut = |rank| verify::cut_rank(from, item_bytes, rank, whole);
            let shards = ranks.filter(|rank| holds(*rank)).map(cut).collect::<Result<_, _>>()?;
            Ok((Cow::Borrowed(whole), shards))
        }
        Data::Shards { shards, .. } => {
            let all: Vec<&[u8]> = shards.iter().map(Bytes::as_slice).collect();
            let whole = verify::assemble(from, item_bytes, &all)?;
            let held = ranks.zip(all).filter(|(rank, _)| holds(*rank));
            Ok((whole, held.map(|(_, shard)| Cow::Borrowed(shard)).collect()))
        }
    }
}

/// What happened to a tensor, if its plan kept its promise.
fn report(tensor: &Move<'_>, exchange: &impl Exchange, received_bytes: u64) -> Result<TensorReport, Error> {
    let about = |error: Error| error.about_tensor(&tensor.tensor.name);
    let plan = exchange.plan(tensor).map_err(about)?;
    agrees(received_bytes, plan).map_err(about)?;
    Ok(TensorReport::new(tensor, plan, received_bytes))
}
