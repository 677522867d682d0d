//! The pipeline and experts of `reshard-reference`'s example by the same schedules, on processes.
//!
//! In every step the loss equals that of one device.

#[allow(unreachable_pub, reason = "the module of an example")]
#[path = "../../../../reference/examples/parallel/steps.rs"]
mod steps;

use reshard_mpi::Comm;
use steps::Step;

/// Runs four ranks, each of which compares its result.
pub(crate) fn run(comm: &mut Comm) {
    for step in Step::ALL {
        let losses = steps::on_a_rank(step, comm).unwrap();
        let alone = steps::on_one_device(step).unwrap();
        assert!(losses.is_empty() || losses.len() == alone.len());
        for (loss, alone) in losses.iter().zip(&alone) {
            assert!((loss - alone).abs() < steps::ALLOWED * alone.abs(), "{step:?}: {loss} and {alone}");
        }
    }
}
