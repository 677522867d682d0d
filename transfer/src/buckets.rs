//! Buckets of target tensors: equal on all ranks, and each small enough for one exchange.

use std::collections::{BTreeMap, HashMap};

use crate::part::{Entry, RankPart};
use crate::transfer::Transfer;

/// The boxes of the messages to or from each peer.
pub(crate) type Messages<'a> = BTreeMap<usize, Vec<&'a Entry>>;

/// The bucket of each target tensor.
pub(crate) struct Buckets {
    of_target: HashMap<String, usize>,
    /// Number of buckets, at least 1.
    pub(crate) count: usize,
}

impl Buckets {
    /// Divides the targets of a plan so that no rank sends or receives more than `most` bytes of a bucket.
    ///
    /// A larger tensor has its own bucket. A tensor counts with its bytes on the rank that has the most of it, so all
    /// ranks make the same buckets without communication.
    pub(crate) fn new(plan: &Transfer, most: u64) -> Self {
        let mut sizes: HashMap<String, u64> = HashMap::new();
        for rank in plan.ranks() {
            let part = plan.part(*rank);
            for entries in [&part.sends, &part.receives] {
                let mut bytes = vec![0_u64; part.targets.len()];
                for entry in entries.iter().filter(|entry| part.peer(entry).is_some()) {
                    bytes[entry.target] += part.bytes(entry);
                }
                for (target, bytes) in part.targets.iter().zip(bytes).filter(|(_, bytes)| *bytes > 0) {
                    let size = sizes.entry(target.name.clone()).or_default();
                    *size = bytes.max(*size);
                }
            }
        }
        let mut order: Vec<(usize, &str)> =
            plan.orders()[1].iter().copied().zip(plan.targets.iter().map(|one| &*one.name)).collect();
        order.sort_unstable();
        // Without any message there is one bucket, so that the ranks compare their plans and agree.
        let mut buckets = Self { of_target: HashMap::new(), count: 1 };
        let mut filled = 0;
        for (_, name) in order {
            let Some(size) = sizes.get(name) else { continue };
            if filled == 0 || size.saturating_add(filled) > most {
                buckets.count += usize::from(filled > 0);
                filled = 0;
            }
            filled += size;
            buckets.of_target.insert(name.to_owned(), buckets.count - 1);
        }
        buckets
    }

    /// Returns the bucket of a box; `None` for one that is not sent.
    pub(crate) fn of(&self, part: &RankPart, entry: &Entry) -> Option<usize> {
        self.of_target.get(&part.targets[entry.target].name).copied()
    }

    /// Returns the messages of each bucket by peer, each with its boxes in the order of the part.
    pub(crate) fn messages<'a>(&self, part: &RankPart, entries: &'a [Entry]) -> Vec<Messages<'a>> {
        let mut all = vec![Messages::new(); self.count];
        for entry in entries {
            if let (Some(peer), Some(bucket)) = (part.peer(entry), self.of(part, entry)) {
                all[bucket].entry(peer).or_default().push(entry);
            }
        }
        all
    }
}
