//! Rows under test: the entry of each operand along an axis, filled with a kind of shard.

use reshard_ops::rules::Strategy;
use reshard_ops::rules::internal::{Bound, Entry, Row};
use reshard_sharding::{Placement, ReduceOp};

/// The kinds that fill placeholders: a plain shard, and one strided by 2.
pub(super) const KINDS: [usize; 2] = [1, 2];

/// Returns `true` if every `a` along an axis is also `b`.
///
/// Equal copies are also partial values of their average, maximum and minimum.
pub(super) fn is_also(a: Entry, b: Entry) -> bool {
    let idle = |op| matches!(op, ReduceOp::Avg | ReduceOp::Max | ReduceOp::Min);
    a == b || (a == Entry::Replicate && matches!(b, Entry::Partial(op) if idle(op)))
}

/// A row without factors, and its requirement on sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) entries: Vec<Entry>,
    /// `true` if it holds only where every rank holds equally much.
    pub(super) even: bool,
}

impl Candidate {
    /// Returns `true` if this one follows from `other` and so adds nothing.
    pub(super) fn follows_from(&self, other: &Candidate, inputs: usize) -> bool {
        let weaker = self
            .entries
            .iter()
            .zip(&other.entries)
            .enumerate()
            .all(|(o, (&a, &b))| if o < inputs { is_also(a, b) } else { is_also(b, a) });
        weaker && (self.even || !other.even)
    }

    /// Returns the printable strategy.
    pub(super) fn strategy(&self, inputs: usize) -> Strategy {
        Bound::default().strategy(&self.entries, inputs)
    }
}

/// Returns the placements of a row, filled with a kind; `None` if it does not apply.
///
/// That is the case if a required evenness is violated, or if no kind fills a shard.
pub(super) fn fill(bound: &Bound, row: &Row, kind: usize, n: usize) -> Option<Vec<Placement>> {
    let mut out = Vec::with_capacity(row.entries.len());
    for (o, entry) in row.entries.iter().enumerate() {
        out.push(match *entry {
            Entry::Replicate => Placement::Replicate,
            Entry::Partial(op) => Placement::Partial(op),
            Entry::Fixed(i) => {
                let fixed = bound.fixed[usize::from(i)].clone();
                if kind != 1 && fixed.dim().is_some() {
                    return None;
                }
                fixed
            }
            Entry::Shard { dim, factor } => {
                let mut split = kind;
                if let Some(x) = factor {
                    let f = &bound.factors[usize::from(x)];
                    if f.even && !f.size.is_multiple_of(kind * n) {
                        return None;
                    }
                    let before = bound.dims[o][usize::from(dim)].iter().flatten().take_while(|&&y| y != x);
                    let skipped: usize = before.map(|&y| bound.factors[usize::from(y)].size).product();
                    // Blocks of blocks: only equal ones start where the factors before this one do.
                    if skipped > 1 && !f.size.is_multiple_of(kind) {
                        return None;
                    }
                    split *= skipped;
                }
                shard(dim.into(), split)
            }
        });
    }
    Some(out)
}

/// A shard of a dim with a split factor.
pub(super) fn shard(dim: usize, split_factor: usize) -> Placement {
    if split_factor <= 1 { Placement::Shard(dim) } else { Placement::StridedShard { dim, split_factor } }
}

/// Returns `true` if a row shards a minor factor, so that its dims alone do not determine its placements.
pub(super) fn is_minor(bound: &Bound, row: &Row) -> bool {
    row.entries.iter().enumerate().any(|(o, e)| match *e {
        Entry::Shard { dim, factor: Some(x) } => {
            bound.dims[o][usize::from(dim)].as_ref().is_some_and(|l| l.first() != Some(&x))
        }
        Entry::Shard { .. } | Entry::Replicate | Entry::Partial(_) | Entry::Fixed(_) => false,
    })
}

/// Returns `true` if a row fixes the exact placement of an operand.
pub(super) fn is_fixed(row: &Row) -> bool {
    row.entries.iter().any(|e| matches!(e, Entry::Fixed(_)))
}

/// Returns `true` if a row shards a factor that has to be split evenly.
pub(super) fn is_even(bound: &Bound, row: &Row) -> bool {
    row.entries.iter().any(|e| match *e {
        Entry::Shard { factor: Some(x), .. } => bound.factors[usize::from(x)].even,
        Entry::Shard { .. } | Entry::Replicate | Entry::Partial(_) | Entry::Fixed(_) => false,
    })
}

/// A row without its factors.
pub(super) fn plain(row: &Row) -> Vec<Entry> {
    let strip = |e: &Entry| match *e {
        Entry::Shard { dim, .. } => Entry::Shard { dim, factor: None },
        other @ (Entry::Replicate | Entry::Partial(_) | Entry::Fixed(_)) => other,
    };
    row.entries.iter().map(strip).collect()
}

/// The placement of an entry of a candidate.
pub(super) fn placement(entry: Entry, kind: usize) -> Placement {
    match entry {
        Entry::Replicate | Entry::Fixed(_) => Placement::Replicate,
        Entry::Partial(op) => Placement::Partial(op),
        Entry::Shard { dim, .. } => shard(dim.into(), kind),
    }
}
