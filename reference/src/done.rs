//! The events of a rank, recorded while it runs.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use reshard_collectives::TrafficLog;

/// An event of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Did {
    /// It ran an op on its shards; views do nothing.
    Call {
        /// The call.
        call: String,
        /// The shapes of its operands.
        takes: Vec<Vec<usize>>,
        /// The shapes of its results.
        makes: Vec<Vec<usize>>,
        /// A hash of each result.
        made: Vec<u64>,
    },
    /// It received data from other ranks.
    Received {
        /// The value that was made; for redistributions fused into one exchange all of them, `dv, dw`.
        value: String,
        /// Bytes by step of the plan and sender.
        bytes: BTreeMap<(usize, usize), u64>,
    },
}

impl Did {
    /// Returns the event of a rank in a redistribution; `None` if it received nothing.
    pub(crate) fn received(value: &str, trace: &TrafficLog, rank: usize) -> Option<Did> {
        let hops = trace.hops().filter(|(hop, _)| hop.receiver == rank);
        let bytes: BTreeMap<(usize, usize), u64> =
            hops.map(|(hop, bytes)| ((hop.step, hop.sender), bytes)).collect();
        (!bytes.is_empty()).then(|| Did::Received { value: value.to_owned(), bytes })
    }
}

/// Returns a hash of these bytes.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
