//! The job: one sequence of stages, for any exchange.
//!
//! ```text
//! input --open--> tensors with their shards     job --decide--> one redistribution per tensor, or an error
//!
//! per batch:    shards --assemble--> whole tensor ----------------.
//!               shards --exchange (plan, engine)--> new shards --verify--> appended to the files of their ranks
//!                                                               '--gather--> the whole, compared and appended
//!
//! all verified: files synced, committed by renaming; report
//! ```
//!
//! New shards are verified against slices of the whole tensor. The whole comes from the input and the regions
//! of the source sharding, the slices from the regions of the target sharding; neither depends on the plan.
//!
//! Small tensors are processed in batches, large ones alone. Memory holds one batch (`held`: its whole, and
//! those shards that are not contiguous ranges of it), the new shards until they are verified and written
//! (`in_turn`: as many as there are processors), and a second copy of the whole if it is gathered.
//!
//! A process does this for the ranks that it holds. Up to the first exchange, and from the last one on, every
//! stage is passed by all processes or by none. So an error is reported once, by the first process that has
//! it. In between the others depend on this process, and if it fails it fails alone. Input and output are
//! files that all processes see. The first process stages and commits, and only after all have verified,
//! written and synced their parts.

use reshard_layout::internal::counted;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::check::verify;
use crate::engine::exchange::{Exchange, agrees};
use crate::engine::held::Held;
use crate::engine::together::{Stop, together};
use crate::error::Error;
use crate::job::ReshardJob;
use crate::job::carried::{Others, Target};
use crate::job::decision::{self, Move};
use crate::job::input::Input;
use crate::job::observer::{self, Observer};
use crate::job::report::{JobReport, TensorReport};
use crate::job::wish::Wish;
use crate::rooms::Rooms;
use crate::select::mapped::Unmade;
use crate::write::outputs::{self, Outputs};
use crate::write::reserved;
use crate::write::shard_files;

/// A hook that is called with every new shard after the exchange and before verification.
///
/// Only tests use it: they change a byte to show that it is detected.
pub(crate) type AfterExchange<'a> = &'a (dyn Fn(&str, usize, &mut Vec<u8>) + Sync);

/// Runs this process's part of the job; everything invalid is rejected before anything is written.
pub(crate) fn carry_out<X: Exchange>(
    job: &ReshardJob,
    exchange: &mut X,
    observer: &mut dyn Observer,
    after_exchange: AfterExchange<'_>,
) -> Result<JobReport, Stop> {
    let start = Instant::now();
    let Input { checkpoint, lost, unmade, spec } = together(exchange, job.open())?;
    let wish = together(exchange, Wish::of(job, &checkpoint.origin, spec.as_ref()))?;
    let decided = decision::decide(&checkpoint, &wish)
        .and_then(|moves| decision::without_parts(&moves).map(|()| moves));
    let mut moves = together(exchange, decided)?;
    shard_files::in_file_order(&mut moves);
    let target = Target::of(job.out.as_deref(), job.format, job.gather.as_deref());
    let objects = &checkpoint.objects[..];
    let others = Others::of(objects, checkpoint.free_texts.as_ref(), target);
    together(exchange, others.check(objects, job.strict))?;
    // The first process writes the files that exist once per job.
    let allowed = if exchange.process() == 0 { outputs::check(job, &checkpoint.folders) } else { Ok(()) };
    let allowed = allowed.and_then(|()| reserved::check(&checkpoint, &moves, objects, target));
    together(exchange, allowed)?;
    let prepared = exchange.prepare(&moves, job.gather.is_some());
    together(exchange, prepared)?;
    let mut outputs = Outputs::begin(job, exchange, &wish, &moves, &checkpoint)?;
    // One process reports the progress of all.
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
    let written = outputs.finish(exchange, &wish.mesh, &moves, &checkpoint)?;
    let ignored = checkpoint.ignored.clone();
    let Unmade { dropped, kept } = unmade;
    Ok(JobReport {
        lost,
        ignored,
        dropped,
        kept,
        others,
        ..JobReport::new(reports, true, written, start.elapsed())
    })
}

/// Reshards a batch: verifies and writes every new shard of this process's ranks.
///
/// Returns the bytes that the worst of them received.
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
                "{came} arrived for the {ranks} of the mesh",
                came = counted(came, "shard", "shards"),
                ranks = counted(ranks, "rank", "ranks")
            );
            return Err(about(at)(Error::verification(message)));
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

/// Returns the report of a tensor, if it received the number of bytes that its plan predicts.
fn report(tensor: &Move<'_>, exchange: &impl Exchange, received_bytes: u64) -> Result<TensorReport, Error> {
    let about = |error: Error| error.about_tensor(&tensor.tensor.name);
    let plan = exchange.plan(tensor).map_err(about)?;
    agrees(received_bytes, plan).map_err(about)?;
    Ok(TensorReport::new(tensor, plan, received_bytes))
}
