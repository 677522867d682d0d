//! Canonical forms: of the cuts of a dim, as digits where they divide, and of partial axes.

use smallvec::SmallVec;

use super::{AxisCut, Cuts, PartialAxis};
use crate::cut::Cut;
use crate::digits::{Digit, Digits, Word, canonical};
use crate::{Error, Mesh};

/// Every length that some rank keeps of a dim after these cuts of it.
pub(super) fn lens_after<'a>(len: usize, cuts: impl Iterator<Item = &'a AxisCut>) -> SmallVec<[usize; 8]> {
    let mut lens: SmallVec<[usize; 8]> = SmallVec::from_slice(&[len]);
    for x in cuts {
        lens = lens.iter().flat_map(|&len| x.cut.lens(len)).collect();
        lens.sort_unstable();
        lens.dedup();
    }
    lens
}

/// The digits that cuts make, if every one of them divides.
pub(super) fn digits_of(shape: &[usize], cuts: &[AxisCut]) -> Option<Digits> {
    let mut all = Digits::new();
    for (dim, &len) in shape.iter().enumerate() {
        all.extend(cut_word(dim, len, cuts)?.digits().iter().copied());
    }
    Some(canonical(all))
}

/// The canonical word that the cuts of one dim among these make, if every one of them divides.
pub(crate) fn word_of(dim: usize, len: usize, cuts: &[AxisCut]) -> Option<Digits> {
    Some(canonical(cut_word(dim, len, cuts)?.digits().iter().copied()))
}

/// The word of a dim after its cuts among these, if every one of them divides.
fn cut_word(dim: usize, len: usize, cuts: &[AxisCut]) -> Option<Word> {
    if len == 0 {
        return None;
    }
    let mut word = Word::uncut(dim, len);
    for x in cuts.iter().filter(|x| x.dim == dim) {
        let local = word.local_len();
        if !word.give(x.cut.even_pieces(local)?, x.sub) {
            return None;
        }
    }
    Some(word)
}

/// The cuts that the digits of a word are, most significant first.
pub(crate) fn cuts_of(word: &[Digit]) -> Cuts {
    let mut skipped = 1;
    let mut cuts = Cuts::new();
    for d in word {
        match d.sub_axis() {
            Some(sub) => cuts.push(AxisCut { dim: d.dim, sub, cut: Cut::chunks(skipped, sub.size) }),
            None => skipped *= d.radix,
        }
    }
    cuts
}

/// The cuts of one dim, normalised.
pub(super) fn normal_cuts(shape: &[usize], cuts: &[AxisCut]) -> Cuts {
    let dim = cuts[0].dim;
    let len = shape[dim];
    if let Some(word) = word_of(dim, len, cuts) {
        return cuts_of(&word);
    }
    let mut cuts: Cuts = cuts.iter().cloned().collect();
    if len > 0 {
        cuts[0].cut = cuts[0].cut.without_empty_pieces(len);
    }
    let mut i = 0;
    while i + 1 < cuts.len() {
        let joined = cuts[i].sub.joined(cuts[i + 1].sub);
        let lens = || lens_after(len, cuts[..i].iter());
        match joined.filter(|_| lens().iter().all(|&len| cuts[i].cut.goes_on(&cuts[i + 1].cut, len))) {
            Some(sub) => {
                let cut = Cut::chunks(cuts[i].cut.pieces(), sub.size);
                cuts[i] = AxisCut { dim, sub, cut };
                cuts.remove(i + 1);
            }
            None => i += 1,
        }
    }
    cuts
}

/// Partial axes in mesh order, consecutive ones joined, those of one rank gone; fails if their ops do not mix.
pub(super) fn canonical_partial(
    mesh: &Mesh,
    mut partial: SmallVec<[PartialAxis; 2]>,
) -> Result<SmallVec<[PartialAxis; 2]>, Error> {
    partial.retain(|p| p.sub.size > 1);
    partial.sort_by_key(|p| p.sub);
    if let Some(w) = partial.windows(2).find(|w| !w[0].op.mixes_with(w[1].op)) {
        return Err(Error::Placement {
            reason: format!(
                "one tensor cannot be P({}) on {} and P({}) on {}: only sum and avg mix",
                w[0].op,
                mesh.axes()[w[0].sub.axis].name(),
                w[1].op,
                mesh.axes()[w[1].sub.axis].name()
            ),
        });
    }
    let mut out: SmallVec<[PartialAxis; 2]> = SmallVec::new();
    for p in partial {
        match out.last_mut().and_then(|last| {
            let joined = last.sub.joined(p.sub).filter(|_| last.op == p.op)?;
            Some((last, joined))
        }) {
            Some((last, joined)) => last.sub = joined,
            None => out.push(p),
        }
    }
    Ok(out)
}
