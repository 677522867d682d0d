//! The certificate of a plan: the proof of its parts, and the bytes of each rank next to the bounds.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

use crate::check::{Coverage, check};
use crate::error::Error;
use crate::senders::Sender;
use crate::transfer::Transfer;

/// The bytes of a rank, in the types in which elements are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RankBytes {
    /// The rank.
    pub rank: usize,
    /// Bytes that it receives from other ranks.
    pub received: u64,
    /// Bytes that it wants and does not hold: the lower bound of `received`.
    pub lacking: u64,
    /// Bytes that it sends to other ranks.
    pub sent: u64,
    /// Bytes that it sends if the owners of each region send equally much of it, rounded up.
    pub share: u64,
    /// Bytes that it copies from its own source buffers.
    pub copied: u64,
    /// Boxes that it receives or copies.
    pub descriptors: usize,
}

/// The proof of a plan, and the bytes of all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Certificate {
    #[serde(serialize_with = "hexadecimal")]
    hash: u64,
    coverage: Coverage,
    ranks: Vec<RankBytes>,
}

/// Writes a hash as the parts have it.
#[allow(clippy::trivially_copy_pass_by_ref)] // The signature is that of serde.
fn hexadecimal<S: Serializer>(hash: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{hash:016x}"))
}

impl Transfer {
    /// Proves the exported parts by [`check()`], and counts the bytes of each rank.
    ///
    /// Errors: those of [`check()`]. They are defects of the planner, whatever the input.
    pub fn certificate(&self) -> Result<Certificate, Error> {
        let coverage = check(self.ranks.iter().map(|rank| Ok(self.part(*rank))))?;
        Ok(Certificate { hash: self.hash, coverage, ranks: self.bytes() })
    }

    /// Returns the bytes of each rank of both sides, by rank, without a proof.
    pub fn bytes(&self) -> Vec<RankBytes> {
        // Classes are counted once for all their units; only requests to several owners are visited one at a time.
        let sets = &self.classes.ranks.lists;
        let of_rank = |rank: &usize| (*rank, RankBytes { rank: *rank, ..RankBytes::default() });
        let mut ranks: BTreeMap<usize, RankBytes> = self.ranks.iter().map(of_rank).collect();
        let mut at = |rank: usize, add: &mut dyn FnMut(&mut RankBytes)| {
            if let Some(bytes) = ranks.get_mut(&rank) {
                add(bytes);
            }
        };
        let mut units = vec![0_u64; self.classes.list.len()];
        self.units.iter().for_each(|unit| units[unit.class] += 1);
        // What each set of owners sends, to be shared equally.
        let mut requested = vec![0_u64; sets.len()];
        for (class, units) in self.classes.list.iter().zip(&units) {
            let is_copy = class.boxes.iter().any(|one| one.owners.is_some());
            for (wanters, elements) in class.wanted.iter().filter(|_| is_copy) {
                for rank in &sets[*wanters] {
                    at(*rank, &mut |bytes| bytes.lacking += elements * class.bytes * units);
                }
            }
            for one in &class.boxes {
                let Some(owners) = one.owners else { continue };
                let size = one.elements * class.bytes * units;
                for rank in &sets[one.wanters] {
                    if sets[owners].binary_search(rank).is_ok() {
                        at(*rank, &mut |bytes| {
                            bytes.lacking -= size;
                            bytes.copied += size;
                            bytes.descriptors += *units as usize;
                        });
                        continue;
                    }
                    requested[owners] += size;
                    if let [owner] = sets[owners][..] {
                        at(owner, &mut |bytes| bytes.sent += size);
                        at(*rank, &mut |bytes| {
                            bytes.received += size;
                            bytes.descriptors += *units as usize;
                        });
                    }
                }
            }
        }
        for unit in self.units.iter().filter(|unit| self.classes.list[unit.class].requests > 0) {
            let class = &self.classes.list[unit.class];
            for one in class.boxes.iter().filter(|one| one.requests > 0) {
                let Some(owners) = one.owners.map(|owners| &sets[owners]) else { continue };
                let longest = self.classes.longest(one);
                for (k, rank) in self.classes.remote(one).enumerate() {
                    let mut add = |owner: usize, elements: u64| {
                        at(owners[owner], &mut |bytes| bytes.sent += elements * class.bytes);
                        at(rank, &mut |bytes| {
                            bytes.received += elements * class.bytes;
                            bytes.descriptors += 1;
                        });
                    };
                    match self.senders.of(unit.first_request + one.requests_before + k) {
                        Sender::Owner(owner) => add(owner, one.elements),
                        Sender::Split(shares) => {
                            let row = one.elements / longest;
                            for share in shares {
                                add(share.owner, (share.stop - share.start) * row);
                            }
                        }
                    }
                }
            }
        }
        let mut shares: BTreeMap<usize, f64> = BTreeMap::new();
        for (set, requested) in sets.iter().zip(&requested) {
            for rank in set {
                *shares.entry(*rank).or_default() += *requested as f64 / set.len() as f64;
            }
        }
        for (rank, share) in shares {
            at(rank, &mut |bytes| bytes.share = share.ceil() as u64);
        }
        ranks.into_values().collect()
    }
}

impl Certificate {
    /// Returns the hash of the plan.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the counts of the proof.
    pub fn coverage(&self) -> Coverage {
        self.coverage
    }

    /// Returns the bytes of each rank of both sides, by rank.
    pub fn ranks(&self) -> &[RankBytes] {
        &self.ranks
    }
}

impl fmt::Display for Certificate {
    /// Writes a table, with one line for neighbouring ranks whose numbers are equal, and the proof.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "plan {:016x}, bytes by rank:", self.hash)?;
        let heads = ["ranks", "received", "lacking", "sent", "share", "copied", "descriptors"];
        let mut rows = vec![heads.map(str::to_owned)];
        let is_equal = |a: &RankBytes, b: &RankBytes| RankBytes { rank: b.rank, ..*a } == *b;
        for of in self.ranks.chunk_by(|a, b| a.rank + 1 == b.rank && is_equal(a, b)) {
            let (first, last) = (of[0], of[of.len() - 1].rank);
            let ranks = if first.rank == last { last.to_string() } else { format!("{}-{last}", first.rank) };
            let bytes = [first.received, first.lacking, first.sent, first.share, first.copied];
            let [a, b, c, d, e] = bytes.map(|n| n.to_string());
            rows.push([ranks, a, b, c, d, e, first.descriptors.to_string()]);
        }
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        for row in &rows {
            write!(f, "  {:<width$}", row[0], width = width(0))?;
            for (column, cell) in row.iter().enumerate().skip(1) {
                write!(f, "  {cell:>width$}", width = width(column))?;
            }
            writeln!(f)?;
        }
        writeln!(f, "{}", self.coverage)
    }
}
