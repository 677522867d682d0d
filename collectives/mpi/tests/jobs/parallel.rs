//! The pipeline and the experts of `reshard-reference`'s example by the same schedules, on processes: in every step the loss of one device.

#[allow(unreachable_pub, reason = "the module of an example")]
#[path = "../../../../reference/examples/parallel/steps.rs"]
mod steps;

use reshard_mpi::Comm;
use steps::Step;

/// Four ranks, each of which compares what it has.
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
