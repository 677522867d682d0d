//! What a rank did, counted while it did it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use reshard_collectives::TrafficLog;

/// Something that a rank did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Did {
    /// It ran an op on what it held; views do nothing.
    Call {
        /// What was called.
        call: String,
        /// The shapes of its operands.
        takes: Vec<Vec<usize>>,
        /// The shapes of its results.
        makes: Vec<Vec<usize>>,
        /// A number of the bits of each result.
        made: Vec<u64>,
    },
    /// It received something from others.
    Received {
        /// What was made of it; of moves that are one exchange all of them, `dv, dw`.
        value: String,
        /// Bytes by step of the plan and sender.
        bytes: BTreeMap<(usize, usize), u64>,
    },
}

impl Did {
    /// What a rank received in a move, if anything.
    pub(crate) fn received(value: &str, trace: &TrafficLog, rank: usize) -> Option<Did> {
        let hops = trace.hops().filter(|(hop, _)| hop.receiver == rank);
        let bytes: BTreeMap<(usize, usize), u64> =
            hops.map(|(hop, bytes)| ((hop.step, hop.sender), bytes)).collect();
        (!bytes.is_empty()).then(|| Did::Received { value: value.to_owned(), bytes })
    }
}

/// A number of these bits, almost surely another for others.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
