//! Lower bounds of the cost of an input, for every continuation of a path.
//!
//! Let some slots have their rows. For an input with source `s` and target `t`, of `N` elements on `W` ranks:
//!
//! * no data need be sent while every slot keeps the source's class, slices a replica, or makes partial
//!   values: that may be free;
//! * otherwise at least one step communicates: `launch + latency`, and the worst rank receives at least the
//!   average.
//!
//! **Without partial values** that is the average of `|t_r| - |t_r & s_r|`. Every element is in `t` of
//! `W / prod n` ranks, over the slots that shard `t`. Of these a part is in `s` too: `1/n` of them for a slot
//! along which `s` is sharded and `t` replicated, whatever the other slots do; at most `1/n` for one slot
//! that shards another dim, as the digits of an even source are uniform. Hence
//!
//! ```text
//! elements >= N / prod_{slots that shard t} n  *  (1 - prod_{S -> R} 1/n * min_{S(d) -> S(e)} 1/n)
//! ```
//!
//! **With partial values**, let `q` be the product of the slots whose partial values are reduced, `p` of
//! those whose partial values stay, `m` of those that replicate `t`. Take one element. Of `q p` partial
//! values at most `p` are left, and every removed one needs a rank that receives one. Each of the `m`
//! replicas but one then needs a copy: `(q - 1) p + m - 1` receipts for each element. And of the `p` ranks
//! that hold its partial values in the end one must have received something, because jointly they held only
//! `p` of `q p` partial values:
//!
//! ```text
//! elements >= max( N ((q - 1) p + m - 1) / W,   N / (prod_{slots that shard t} n * p) )
//! ```
//!
//! Open slots are counted with the row that minimizes this bound: they shard `t` or keep partial values where
//! some row does. Their partial values stay, since `(q - 1) p n <= (q n - 1) p`.
//!
//! A bound never exceeds the cost of a plan, so the first complete path that is taken from the queue is a
//! cheapest one.

use crate::propagate::constraint::OutputConstraint;
use crate::propagate::problem::{Alike, Letter, Problem};
use crate::propagate::slots::Class;
use crate::rules::Entry;
use reshard_planner::MinTraffic;

/// The known properties of an input's target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Some slot cannot do without communication.
    must_move: bool,
    /// The product of the slots along which the target is sharded or partial.
    parts: f64,
    /// Upper bound of the target fraction that a rank holds on average: over gathered, then re-split slots.
    gathered: f64,
    moved: f64,
    /// The products of the slots that reduce partial values, that keep them, and that replicate the target.
    reduced: f64,
    kept: f64,
    replicas: f64,
    /// The target is not the source.
    pub(super) changed: bool,
}

impl Known {
    pub(super) const NOTHING: Known = Known {
        must_move: false,
        parts: 1.0,
        gathered: 1.0,
        moved: 1.0,
        reduced: 1.0,
        kept: 1.0,
        replicas: 1.0,
        changed: false,
    };

    /// Returns the properties with one more slot of `n` ranks.
    ///
    /// `fixed` is the dim of a fixed placement; `spreads` is `true` if shards of the source are equal parts.
    pub(super) fn with(
        self,
        at: &Class,
        letter: Letter,
        n: usize,
        fixed: Option<usize>,
        spreads: bool,
    ) -> Known {
        let mut known = self;
        let n = n as f64;
        let (dim, terms) = match letter.entry {
            Entry::Shard { dim, .. } => (Some(usize::from(dim)), false),
            Entry::Fixed(_) => (fixed, false),
            Entry::Replicate => (None, false),
            Entry::Partial(_) => (None, true),
        };
        if dim.is_some() || terms {
            known.parts *= n;
        } else {
            known.replicas *= n;
        }
        match at {
            // Nothing is known of the source along this slot.
            Class::Mixed => {}
            Class::Replicate => known.changed |= dim.is_some() || terms,
            Class::Partial(held) => {
                let kept = match letter.entry {
                    Entry::Partial(op) => op.mixes_with(*held),
                    Entry::Replicate | Entry::Shard { .. } | Entry::Fixed(_) => false,
                };
                known.must_move |= !kept;
                known.changed |= !kept;
                if terms {
                    known.kept *= n;
                } else {
                    known.reduced *= n;
                }
            }
            Class::Shard { dim: d, .. } => {
                if dim != Some(*d) {
                    known.changed = true;
                    // A short dim may be on one rank only, and then another dim may be "sharded" there as
                    // well.
                    known.must_move |= !terms && (spreads || dim.is_none());
                    match letter.entry {
                        Entry::Replicate => known.gathered /= n,
                        // The ranks that hold an element have it in their partial values.
                        Entry::Partial(_) => {}
                        Entry::Shard { .. } | Entry::Fixed(_) => known.moved = known.moved.min(1.0 / n),
                    }
                }
            }
        }
        known
    }
}

impl Problem<'_> {
    /// Returns the least remaining cost of an input, in picoseconds, with `slots` slots known.
    pub(super) fn least(&self, input: &Alike<'_>, known: &Known, slots: usize) -> u64 {
        let numel = input.source.numel() as f64;
        if !known.must_move || numel == 0.0 {
            return 0;
        }
        let target = numel / (known.parts * input.shrink[slots]);
        let elements = if !input.has_terms {
            let moved = if input.source.layout().is_some() { known.moved } else { 1.0 };
            target * (1.0 - known.gathered * moved)
        } else if known.reduced > 1.0 && !input.is_mixed {
            let receipts =
                (known.reduced - 1.0) * known.kept * input.open_terms[slots] + known.replicas - 1.0;
            target.max(numel * receipts / self.mesh.size() as f64)
        } else {
            0.0
        };
        picoseconds_below(
            self.planner
                .options()
                .least_us(&[MinTraffic::bytes((elements * (input.dtype.bits() / 8) as f64).max(1.0))]),
        )
    }

    /// Returns the least remaining cost of an output's constraint; 0 if no slot needs communication.
    pub(super) fn least_of_constraint(&self, output: usize, path: &[u16]) -> u64 {
        if self.constraints.get(output) == Some(&OutputConstraint::Reduced) {
            return self.least_to_reduce(output, path);
        }
        let Some(Some(constrained)) = self.constrained.get(output) else { return 0 };
        if !matches!(self.constraints[output], OutputConstraint::Exactly(_)) || self.op.is_view() {
            return 0;
        }
        let operand = self.alike.len() + output;
        let must_move = path.iter().enumerate().any(|(slot, &row)| {
            match (self.letter(slot, row, operand).entry, &constrained[slot]) {
                (Entry::Shard { .. }, Class::Replicate)
                | (Entry::Partial(_), Class::Replicate | Class::Shard { .. }) => true,
                (Entry::Partial(op), Class::Partial(held)) => !op.mixes_with(*held),
                (Entry::Replicate | Entry::Fixed(_), _)
                | (_, Class::Mixed)
                | (Entry::Shard { .. }, Class::Partial(_) | Class::Shard { .. }) => false,
            }
        });
        let empty = self.op.outputs()[output].contains(&0);
        if must_move && !empty {
            picoseconds_below(self.planner.options().least_us(&[MinTraffic::bytes(1.0)]))
        } else {
            0
        }
    }

    /// Returns the least cost of reducing a partial output to replicas.
    fn least_to_reduce(&self, output: usize, path: &[u16]) -> u64 {
        let operand = self.alike.len() + output;
        let (mut reduced, mut replicas) = (1.0, 1.0);
        for (slot, &row) in path.iter().enumerate() {
            let n = self.slots[slot].size as f64;
            match self.letter(slot, row, operand).entry {
                Entry::Partial(_) => {
                    reduced *= n;
                    replicas *= n;
                }
                Entry::Replicate => replicas *= n,
                Entry::Shard { .. } | Entry::Fixed(_) => {}
            }
        }
        let numel: usize = self.op.outputs()[output].iter().product();
        if reduced < 2.0 || numel == 0 || self.op.is_view() {
            return 0;
        }
        let receipts = (reduced - 1.0) + replicas - 1.0;
        let bytes = numel as f64 * receipts / self.mesh.size() as f64 * (self.output_dtype.bits() / 8) as f64;
        picoseconds_below(self.planner.options().least_us(&[MinTraffic::bytes(bytes.max(1.0))]))
    }
}

/// A time in picoseconds, not above what the rounded steps of any plan add up to.
pub(super) fn picoseconds_below(us: f64) -> u64 {
    ((us * 1e6).floor() as u64).saturating_sub(8)
}
