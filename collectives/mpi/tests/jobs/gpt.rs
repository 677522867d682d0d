//! The GPT of `reshard-reference`'s example by the same schedules, on processes: in every step the loss of one device.

#[allow(unreachable_pub, reason = "the module of an example")]
#[path = "../../../../reference/examples/gpt/model.rs"]
mod model;
#[allow(unreachable_pub, reason = "the module of an example")]
#[path = "../../../../reference/examples/gpt/training.rs"]
mod training;

use model::{Gpt, Kept};
use reshard_collectives::Communicator;
use reshard_mpi::Comm;

/// Four ranks, of which the first compares.
pub(crate) fn run(comm: &mut Comm) {
    let gpt = Gpt { batch: 4, sequence: 8, width: 16, heads: 4, vocabulary: 32, layers: 2 };
    let losses = [Kept::Everywhere, Kept::Updated, Kept::Sharded]
        .map(|kept| training::on_a_rank(&gpt, kept, comm).unwrap());
    if comm.rank() > 0 {
        return;
    }
    let alone = training::on_one_device(&gpt).unwrap();
    for losses in losses {
        assert_eq!(losses.len(), alone.len());
        for (loss, alone) in losses.iter().zip(&alone) {
            assert!((loss - alone).abs() < training::ALLOWED * alone.abs(), "{loss} and {alone}");
        }
    }
}
