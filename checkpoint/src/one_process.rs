//! A job whose ranks are all in this process.
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

use std::borrow::Cow;
use std::time::Instant;

use super::checkpoint::{Checkpoint, Data};
use super::decision::{self, Move};
use super::exchange::Exchange;
use super::job::Job;
use super::observer::Observer;
use super::outputs::Outputs;
use super::report::{Report, TensorReport};
use super::shard_files;
use super::spec::Spec;
use super::verify;
use super::wish::Wish;
use crate::error::Error;

/// Sees every tensor's new shards after the exchange and before verification. Only tests do anything here: they spoil
/// a byte to show that it is noticed.
pub(crate) type AfterExchange<'a> = &'a mut dyn FnMut(&str, &mut [Vec<u8>]);

/// Does the whole job. Nothing is written before everything that can be refused has been.
pub(crate) fn carry_out(
    job: &Job,
    observer: &mut dyn Observer,
    after_exchange: AfterExchange<'_>,
) -> Result<Report, Error> {
    let start = Instant::now();
    let checkpoint = Checkpoint::open(job.input.as_deref())?;
    let spec = job.spec.as_deref().map(Spec::read).transpose()?;
    let wish = Wish::of(job, &checkpoint.origin, spec.as_ref())?;
    let mut moves = decision::decide(&checkpoint, &wish)?;
    moves.sort_by(|a, b| {
        shard_files::file_order((&a.tensor.name, a.tensor.dtype), (&b.tensor.name, b.tensor.dtype))
    });
    let mut exchange = Exchange::prepare(&moves, job.time_out, job.engine)?;
    let mut outputs = Outputs::begin(
        job.out.as_deref(),
        job.gather.as_deref(),
        job.force,
        &wish.mesh,
        &moves,
        &checkpoint,
    )?;
    observer.begins(moves.iter().map(|tensor| tensor.tensor.byte_len()).sum());
    let mut tensors = Vec::with_capacity(moves.len());
    for batch in exchange.batches(&moves) {
        observer.reaches(&batch[0].tensor.name);
        let reports = reshard(batch, &mut exchange, &mut outputs, after_exchange)?;
        observer.moved(reports.iter().map(|report| report.bytes).sum());
        tensors.extend(reports);
    }
    let written = outputs.finish()?;
    observer.ends();
    Ok(Report::new(tensors, written, start.elapsed()))
}

/// A batch of tensors: exchange, verify, hand to the outputs.
fn reshard(
    batch: &[Move<'_>],
    exchange: &mut Exchange,
    outputs: &mut Outputs,
    after_exchange: AfterExchange<'_>,
) -> Result<Vec<TensorReport>, Error> {
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
fn shards_of<'a>(tensor: &'a Move<'_>) -> Result<Vec<Cow<'a, [u8]>>, Error> {
    match &tensor.tensor.data {
        Data::Whole(whole) => verify::cut(&tensor.unit_from, tensor.units.bytes, whole.as_slice()),
        Data::Shards { shards, .. } => {
            Ok(shards.iter().map(|shard| Cow::Borrowed(shard.as_slice())).collect())
        }
    }
}
