//! The shardings of each operand on a whole path, and the error if no sharding expresses them.
//!
//! Slot by slot, an operand's letter adds a dim split or partial values. A factor that follows others in its
//! dim is split after the local remainder of those. A factor that must be split evenly is divisible by the
//! product of all its splits.

use smallvec::SmallVec;

use crate::Error;
use crate::propagate::problem::Problem;
use crate::propagate::slots::ShardKind;
use crate::rules::Entry;
use reshard_sharding::internal::{AxisCut, Cuts, check_sizes, cut_after};
use reshard_sharding::{PartialAxis, Placement, Sharding};

/// The partial axes of an operand.
pub(super) type Terms = SmallVec<[PartialAxis; 2]>;

impl Problem<'_> {
    /// Returns `true` if a path splits evenly the factors that require it.
    pub(super) fn is_even(&self, path: &[u16]) -> bool {
        let bound = self.bound.get();
        if bound.factors.iter().all(|f| !f.even) {
            return true;
        }
        let mut left: SmallVec<[usize; 8]> = bound.factors.iter().map(|f| f.size).collect();
        for (slot, &row) in path.iter().enumerate() {
            let entries = &bound.rows[usize::from(self.rows[slot][usize::from(row)].row)].entries;
            let factor = entries.iter().find_map(|e| match e {
                Entry::Shard { factor, .. } => *factor,
                Entry::Replicate | Entry::Partial(_) | Entry::Fixed(_) => None,
            });
            if let Some(f) = factor.map(usize::from).filter(|&f| bound.factors[f].even) {
                let n = self.slots[slot].size;
                let kind = &self.kinds[slot][usize::from(self.rows[slot][usize::from(row)].kind)];
                // Blocks of blocks are equal parts if each block has equally many.
                let parts = kind.split_factor().and_then(|k| k.checked_mul(n));
                if parts.is_none_or(|parts| !left[f].is_multiple_of(parts)) {
                    return false;
                }
                left[f] /= n;
            }
        }
        true
    }

    /// Returns the sharding of an operand (inputs before outputs) on a whole path; fails if there is none.
    pub(super) fn target(&self, path: &[u16], operand: usize, shape: &[usize]) -> Result<Sharding, Error> {
        let (cuts, partial) = self.spelled(path, operand, shape)?;
        self.made(shape, cuts, partial)
    }

    /// Returns the sharding of these dim splits and partial axes; fails if it has no notation.
    pub(super) fn made(&self, shape: &[usize], cuts: Cuts, partial: Terms) -> Result<Sharding, Error> {
        let made = Sharding::from_cuts(&self.mesh, shape, cuts, partial)?;
        if made.has_notation() {
            Ok(made)
        } else {
            Err(Error::Unsupported { reason: "no notation can express that sharding".to_owned() })
        }
    }

    /// Returns the dim splits and partial axes of an operand on a whole path.
    pub(super) fn spelled(
        &self,
        path: &[u16],
        operand: usize,
        shape: &[usize],
    ) -> Result<(Cuts, Terms), Error> {
        let bound = self.bound.get();
        let mut cuts = Cuts::new();
        let mut partial = Terms::new();
        for (slot, &row) in path.iter().enumerate() {
            let sub = self.slots[slot];
            let letter = self.letter(slot, row, operand);
            match letter.entry {
                Entry::Replicate => {}
                Entry::Partial(op) => partial.push(PartialAxis { sub, op }),
                Entry::Shard { dim, factor } => {
                    let kind = &self.kinds[slot][usize::from(letter.kind)];
                    let skip = self.skipped(path, slot, operand, usize::from(dim), factor);
                    let splits = skip == 1 || self.splits(path, slot, operand, factor, kind);
                    let cut = kind.cut(sub.size, skip).filter(|_| splits).ok_or_else(|| {
                        Error::Unsupported { reason: format!("{kind} of a part of dim {dim}") }
                    })?;
                    // Like ragged sizes, a custom partition is valid only for the lengths that an input has.
                    if cut.other().is_some() && cut_after(shape, &cuts, dim.into(), cut.clone())? != cut {
                        let reason = format!("{kind} of dim {dim} of other lengths");
                        return Err(Error::Unsupported { reason });
                    }
                    cuts.push(AxisCut { dim: dim.into(), sub, cut });
                }
                Entry::Fixed(i) => {
                    let placement = &bound.fixed[usize::from(i)];
                    if let Placement::Ragged { sizes, .. } = placement {
                        let axis = &self.mesh.axes()[sub.axis];
                        check_sizes(sizes, placement, axis)?;
                    }
                    if let Some((dim, cut)) = placement.cut(sub.size) {
                        cuts.push(AxisCut { dim, sub, cut });
                    }
                }
            }
        }
        Ok((cuts, partial))
    }

    /// Returns the product, at a slot, of the local remainders of the factors before this one in a dim.
    fn skipped(&self, path: &[u16], slot: usize, operand: usize, dim: usize, factor: Option<u16>) -> usize {
        let bound = self.bound.get();
        let Some(factor) = factor else { return 1 };
        let Some(Some(list)) = bound.dims.get(operand).and_then(|dims| dims.get(dim)) else { return 1 };
        let before = list.iter().take_while(|&&f| f != factor);
        let left = |f: u16| bound.factors[usize::from(f)].size / self.taken(path, slot, operand, f);
        before.map(|&f| left(f)).product()
    }

    /// Returns the number of parts into which the earlier slots split a factor.
    fn taken(&self, path: &[u16], slot: usize, operand: usize, f: u16) -> usize {
        let cuts = |s: &usize| match self.letter(*s, path[*s], operand).entry {
            Entry::Shard { factor, .. } => factor == Some(f),
            Entry::Replicate | Entry::Partial(_) | Entry::Fixed(_) => false,
        };
        (0..slot).filter(cuts).map(|s| self.slots[s].size).product()
    }

    /// Returns `true` if the blocks of a kind after other factors start where those do.
    ///
    /// That holds if its split factor divides the remainder of this factor on every rank.
    fn splits(
        &self,
        path: &[u16],
        slot: usize,
        operand: usize,
        factor: Option<u16>,
        kind: &ShardKind,
    ) -> bool {
        match (kind.split_factor(), factor) {
            (Some(1), _) => true,
            (Some(k), Some(f)) => {
                let (size, taken) =
                    (self.bound.get().factors[usize::from(f)].size, self.taken(path, slot, operand, f));
                taken.checked_mul(k).is_some_and(|parts| size.is_multiple_of(parts))
            }
            (Some(_), None) | (None, _) => false,
        }
    }

    /// Returns the outputs of a path; `first` is the first input, which determines the output of a view.
    pub(super) fn outputs(&self, path: &[u16], first: Option<&Sharding>) -> Result<Vec<Sharding>, Error> {
        if let (true, Some(first)) = (self.op.is_view(), first) {
            let out = first.try_view(&self.op.outputs()[0]);
            return out.map(|o| vec![o]).ok_or_else(|| {
                let reason = "not free".to_owned();
                Error::Sharding(reshard_sharding::Error::View { reason })
            });
        }
        let inputs = self.alike.len();
        let shapes = self.op.outputs().iter().enumerate();
        shapes.map(|(o, shape)| self.target(path, inputs + o, shape)).collect()
    }
}
