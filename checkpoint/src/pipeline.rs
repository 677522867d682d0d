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
//! slices it is compared with from the regions of the target sharding; the plan has no say in either.
//!
//! Small tensors go in batches, large ones alone. Memory holds one batch (`held`: its whole, and its shards where they are not stretches of it), the new shards that are on
//! their way to be verified and written (`in_turn`: as many as there are processors), and the whole again where it is gathered.
//!
//! A process does this for the ranks that it holds. Up to the first exchange, and from the last one on, every stage is passed
//! by all processes or by none, so that a refusal is told once, by the first that has it. In between others count on this
//! process, and if it fails it fails alone. Input and output are files that all processes see; the first stages and commits,
//! and only after all have verified, written and synced their parts.

use reshard_layout::internal::counted;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::carried::{Others, Target};
use super::decision::{self, Move};
use super::error::Error;
use super::exchange::{Exchange, agrees};
use super::held::Held;
use super::job::ReshardJob;
use super::observer::{self, Observer};
use super::outputs::{self, Outputs};
use super::report::{JobReport, TensorReport};
use super::reserved;
use super::rooms::Rooms;
use super::shard_files;
use super::spec::PlacementSpec;
use super::together::{Stop, together};
use super::verify;
use super::wish::Wish;

/// Sees every rank's new shard of every tensor after the exchange and before verification. Only tests do anything here: they
/// spoil a byte to show that it is noticed.
pub(crate) type AfterExchange<'a> = &'a (dyn Fn(&str, usize, &mut Vec<u8>) + Sync);

/// Does this process's part of the job. Nothing is written before everything that can be refused has been.
pub(crate) fn carry_out<X: Exchange>(
    job: &ReshardJob,
    exchange: &mut X,
    observer: &mut dyn Observer,
    after_exchange: AfterExchange<'_>,
) -> Result<JobReport, Stop> {
    let start = Instant::now();
    let (checkpoint, lost) = together(exchange, job.open())?;
    let spec = together(exchange, job.spec.as_deref().map(PlacementSpec::read).transpose())?;
    let wish = together(exchange, Wish::of(job, &checkpoint.origin, spec.as_ref()))?;
    let mut moves = together(exchange, decision::decide(&checkpoint, &wish))?;
    shard_files::in_file_order(&mut moves);
    let target = Target::of(job.out.as_deref(), job.format, job.gather.as_deref());
    let objects = wish.objects(&checkpoint);
    let others = Others::of(objects, wish.texts(&checkpoint), target);
    together(exchange, others.check(objects, job.strict))?;
    // The first process writes what there is one of.
    let allowed = if exchange.process() == 0 { outputs::check(job, &checkpoint.folders) } else { Ok(()) };
    let allowed = allowed.and_then(|()| reserved::check(&checkpoint, &moves, objects, target));
    together(exchange, allowed)?;
    let prepared = exchange.prepare(&moves, job.gather.is_some());
    together(exchange, prepared)?;
    let mut outputs = Outputs::begin(job, exchange, &wish, &moves, &checkpoint)?;
    // One process shows how far all are.
    let mut nobody = ();
    let observer = if exchange.process() == 0 { observer } else { &mut nobody };
    observer.on_start(moves.iter().map(|tensor| tensor.tensor.byte_len()).sum());
    let rooms = Rooms::default();
    let mut received = Vec::with_capacity(moves.len());
    for batch in exchange.batches(&moves) {
        received.extend(reshard(batch, exchange, &mut outputs, &rooms, observer, after_exchange)?);
    }
    observer.on_finish();
    let everywhere = exchange.share(&received)?;
    let worst = |at: usize| everywhere.iter().map(|process| process[at]).max().unwrap_or(0);
    let reports = moves.iter().enumerate().map(|(at, tensor)| report(tensor, exchange, worst(at))).collect();
    let reports = together(exchange, reports)?;
    let written = outputs.finish(exchange)?;
    let ignored = checkpoint.ignored.clone();
    Ok(JobReport { lost, ignored, others, ..JobReport::new(reports, true, written, start.elapsed()) })
}

/// Moves a batch; every new shard of this process's ranks is verified and written. Returns what the worst of them received.
fn reshard<X: Exchange>(
    batch: &[Move<'_>],
    exchange: &mut X,
    outputs: &mut Outputs,
    rooms: &Rooms,
    observer: &mut dyn Observer,
    after_exchange: AfterExchange<'_>,
) -> Result<Vec<u64>, Error> {
    let about = |at: usize| move |error: Error| error.about_tensor(&batch[at].tensor.name);
    let mut held = Vec::with_capacity(batch.len());
    for (at, tensor) in batch.iter().enumerate() {
        observer.on_tensor(&tensor.tensor.name);
        held.push(Held::read(tensor, |rank| exchange.holds(rank), rooms).map_err(about(at))?);
    }
    let came: Vec<AtomicUsize> = batch.iter().map(|_| AtomicUsize::new(0)).collect();
    let arrived = |at: usize, rank: usize, shard: &mut Vec<u8>| {
        let tensor = &batch[at];
        after_exchange(&tensor.tensor.name, rank, shard);
        verify::verify_rank(&tensor.unit_to, tensor.units.bytes, rank, shard, held[at].whole())
            .and_then(|()| outputs.write(rank, shard))
            .map_err(about(at))?;
        came[at].fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let moved = exchange.exchange(batch, &held, rooms, outputs.gathers(), &arrived)?;
    for (at, (tensor, came)) in batch.iter().zip(came).enumerate() {
        let ranks = tensor.unit_to.mesh().ranks().filter(|rank| exchange.holds(*rank)).count();
        let came = came.into_inner();
        if came != ranks {
            let message = format!(
                "{came} came for the {ranks} of the mesh",
                came = counted(came, "shard", "shards"),
                ranks = counted(ranks, "rank", "ranks")
            );
            return Err(about(at)(Error::failed("verification", message)));
        }
    }
    let mut received = Vec::with_capacity(batch.len());
    for (at, (moved, held)) in moved.into_iter().zip(&held).enumerate() {
        if let Some(gathered) = moved.gathered {
            outputs.write_gathered(&gathered, held.whole()).map_err(about(at))?;
        }
        observer::moved(observer, batch[at].tensor.byte_len()).map_err(about(at))?;
        received.push(moved.received);
    }
    Ok(received)
}

/// What happened to a tensor, if its plan kept its promise.
fn report(tensor: &Move<'_>, exchange: &impl Exchange, received_bytes: u64) -> Result<TensorReport, Error> {
    let about = |error: Error| error.about_tensor(&tensor.tensor.name);
    let plan = exchange.plan(tensor).map_err(about)?;
    agrees(received_bytes, plan).map_err(about)?;
    Ok(TensorReport::new(tensor, plan, received_bytes))
}
