//! Measuring with the MPI engine: each process is a rank, and the first one writes and prints.

use std::path::Path;

use reshard_calibrate::{SampleOptions, Sampled};
use reshard_collectives::Communicator;
use reshard_mpi::Comm;

use super::measure::measure;
use super::{CalibrateArgs, conclude, threads};
use crate::console::Console;
use crate::error::{CliError, Exit};
use crate::run::EngineName;

/// Runs the part of this process.
pub(super) fn run(args: &CalibrateArgs, to: &Path, console: &mut Console<'_>) -> Result<(), CliError> {
    let mut comm = Comm::world()?;
    let is_first = comm.rank() == 0;
    let done = match sample(args, &mut comm, is_first && console.progress) {
        Ok((options, sampled)) if is_first => {
            conclude(args, EngineName::Mpi, &options, &sampled, to, console)
        }
        Ok((_, sampled)) if sampled.unsettled.is_empty() => Ok(()),
        Ok(_) => Err(CliError::told(1)),
        // The engine failed on this rank, and others may wait for it.
        Err(error) if error.exit() == Exit::Failed => {
            console.report(&error.about(format_args!("rank {}", comm.rank())), args.format.json);
            comm.abort()
        }
        // All ranks find the same error.
        Err(error) if is_first => Err(error),
        Err(error) => Err(CliError::told(error.status())),
    };
    // Report before any rank exits: the launcher may end the job once a process exits with a status other than 0.
    let told = done.map_err(|error| CliError::told(console.report(&error, args.format.json).0));
    let left = comm.finish();
    told.and(left.map_err(CliError::from))
}

/// Takes all samples, after the ranks have compared their options.
fn sample(
    args: &CalibrateArgs,
    comm: &mut Comm,
    shows_progress: bool,
) -> Result<(SampleOptions, Sampled), CliError> {
    let world = comm.size();
    let in_node = comm.shared_memory_ranks()?;
    let node_ranks = args.levels.or_else(|| node_ranks(&in_node));
    let options = args.samples(world, node_ranks);
    let all = comm.share(&[
        args.world.unwrap_or(world) as u64,
        options.node_ranks as u64,
        options.most_bytes,
        options.total_us.to_bits(),
    ])?;
    if let Some(other) = all.iter().position(|words| *words != all[0]) {
        let message = format!("ranks 0 and {other} have different options; give all processes the same");
        return Err(CliError::refused("usage", message));
    }
    if let Some(given) = args.world.filter(|&given| given != world) {
        let message = format!("the job has {world} ranks, but `--world` is {given}; start {given} processes");
        return Err(CliError::refused("world", message));
    }
    if node_ranks.is_none() {
        let message = format!(
            "nodes do not have as many consecutive ranks each: the ranks within nodes are {in_node:?}; start the job by nodes, as with `mpirun --map-by slot`, or give `--levels`"
        );
        return Err(CliError::refused("topology", message));
    }
    let bar = threads::bar(shows_progress);
    let greatest = |comm: &mut Comm, us: f64| {
        let all = comm.share(&[us.to_bits()])?;
        Ok(all.iter().flatten().map(|&bits| f64::from_bits(bits)).fold(0.0, f64::max))
    };
    let sampled = measure(comm, &options, greatest, |done| bar.set_position((done * 1000.0) as u64))?;
    bar.finish_and_clear();
    Ok((options, sampled))
}

/// Returns the ranks of a node, given each rank within its node; `None` if nodes are uneven or not consecutive.
///
/// If the ranks within nodes count up from 0 several times, each node is one such run of ranks: a rank with `n` before it
/// in its node can only be in the node that began last, since all earlier ones have more.
fn node_ranks(in_node: &[usize]) -> Option<usize> {
    let ranks = in_node.iter().skip(1).position(|&rank| rank == 0).map_or(in_node.len(), |at| at + 1);
    let is_even = in_node.len().is_multiple_of(ranks);
    (is_even && in_node.iter().enumerate().all(|(rank, &of)| of == rank % ranks)).then_some(ranks)
}

#[cfg(test)]
mod tests {
    use super::node_ranks;

    #[test]
    fn nodes_are_even_and_consecutive() {
        assert_eq!(node_ranks(&[0, 1, 2, 3]), Some(4));
        assert_eq!(node_ranks(&[0, 1, 0, 1, 0, 1]), Some(2));
        assert_eq!(node_ranks(&[0, 0, 0]), Some(1));
        // Uneven; and one rank of each node in turn.
        assert_eq!(node_ranks(&[0, 1, 0]), None);
        assert_eq!(node_ranks(&[0, 1, 2, 0, 1]), None);
        assert_eq!(node_ranks(&[0, 0, 1, 1]), None);
    }
}
