//! Measuring with the threads engine: the ranks are threads of this process.

use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use reshard_calibrate::{SampleOptions, Sampled};
use reshard_collectives::Communicator;
use reshard_collectives::threads::{ThreadCommunicator, World};

use super::measure::measure;
use crate::error::CliError;

/// Takes all samples on as many threads as the options have ranks.
pub(super) fn run(options: &SampleOptions, shows_progress: bool) -> Result<Sampled, CliError> {
    let ranks = options.world;
    let all: Vec<usize> = (0..ranks).collect();
    let times: Vec<AtomicU64> = all.iter().map(|_| AtomicU64::new(0)).collect();
    let greatest = |comm: &mut ThreadCommunicator, us: f64| {
        times[comm.rank()].store(us.to_bits(), Ordering::Relaxed);
        comm.barrier(&all)?;
        let most = times.iter().map(|time| f64::from_bits(time.load(Ordering::Relaxed))).fold(0.0, f64::max);
        // The next times are written after all ranks have read these.
        comm.barrier(&all)?;
        Ok(most)
    };
    let bar = bar(shows_progress);
    let results = World::new(ranks)?.run(|comm| {
        let is_first = comm.rank() == 0;
        let on_progress = |done: f64| {
            if is_first {
                bar.set_position((done * 1000.0) as u64);
            }
        };
        measure(comm, options, greatest, on_progress)
    });
    bar.finish_and_clear();
    // All ranks have the same samples; of several errors the first is the cause of the others.
    let results: Vec<Sampled> = results.into_iter().collect::<Result<_, CliError>>()?;
    results.into_iter().next().ok_or_else(|| CliError::failed("internal", "no rank has measured"))
}

/// Returns a bar over the points, hidden unless it is shown.
pub(super) fn bar(is_shown: bool) -> ProgressBar {
    if !is_shown {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{percent:>3} % {wide_bar} {elapsed}");
    ProgressBar::new(1000).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
