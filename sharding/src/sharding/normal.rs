//! Canonical forms: of the splits of a dim that has no layout, and of partial axes.

use smallvec::SmallVec;

use super::{AxisCut, Cuts, PartialAxis};
use crate::layout::encode::{cuts_of, dim_of_cuts};
use crate::partition::DimCut;
use crate::{Error, Mesh};

/// Returns every length that some rank keeps of a dim after these splits of it.
pub(super) fn lens_after<'a>(len: usize, cuts: impl Iterator<Item = &'a AxisCut>) -> SmallVec<[usize; 8]> {
    let mut lens: SmallVec<[usize; 8]> = SmallVec::from_slice(&[len]);
    for x in cuts {
        lens = lens.iter().flat_map(|&len| x.cut.lens(len)).collect();
        lens.sort_unstable();
        lens.dedup();
    }
    lens
}

/// Returns a split that follows `earlier` ones; evaluates a custom partition for the lengths that they leave.
pub fn cut_after(shape: &[usize], earlier: &[AxisCut], dim: usize, cut: DimCut) -> Result<DimCut, Error> {
    if cut.other().is_none() {
        return Ok(cut);
    }
    let Some(&len) = shape.get(dim) else { return Ok(cut) };
    cut.of_lens(&lens_after(len, earlier.iter().filter(|c| c.dim == dim)))
}

/// Returns splits in the order in which they apply, evaluated.
///
/// Each is evaluated for the lengths that the earlier ones leave.
pub(crate) fn made(shape: &[usize], cuts: Cuts) -> Result<Cuts, Error> {
    let mut out = Cuts::new();
    for c in cuts {
        let cut = cut_after(shape, &out, c.dim, c.cut)?;
        out.push(AxisCut { cut, ..c });
    }
    Ok(out)
}

/// Returns the splits of one dim, normalised.
pub(super) fn normal_cuts(mesh: &Mesh, shape: &[usize], cuts: &[AxisCut]) -> Cuts {
    let dim = cuts[0].dim;
    let len = shape[dim];
    if let Some(modes) = dim_of_cuts(mesh, dim, len, cuts) {
        return cuts_of(mesh, dim, &modes);
    }
    let mut cuts: Cuts = cuts.iter().cloned().collect();
    if len > 0 {
        cuts[0].cut = cuts[0].cut.without_empty_pieces(len);
    }
    let mut i = 0;
    while i + 1 < cuts.len() {
        let both = mesh.sub_axes_of([&cuts[i], &cuts[i + 1]].into_iter().map(|c| mesh.known_mode(c.sub)));
        let goes_on = |len: &usize| cuts[i].cut.goes_on(&cuts[i + 1].cut, *len);
        match both[..] {
            [sub] if lens_after(len, cuts[..i].iter()).iter().all(goes_on) => {
                let cut = DimCut::chunks(cuts[i].cut.pieces(), sub.size);
                cuts[i] = AxisCut { dim, sub, cut };
                cuts.remove(i + 1);
            }
            _ => i += 1,
        }
    }
    cuts
}

/// Returns partial axes in mesh order, consecutive ones joined, without those of one rank.
///
/// Fails if their ops do not mix.
pub fn canonical_partial(
    mesh: &Mesh,
    mut partial: SmallVec<[PartialAxis; 2]>,
) -> Result<SmallVec<[PartialAxis; 2]>, Error> {
    partial.retain(|p| p.sub.size > 1);
    if partial.len() < 2 {
        return Ok(partial);
    }
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
    let mut out = SmallVec::new();
    for of_op in partial.chunk_by(|a, b| a.op == b.op) {
        let subs = mesh.sub_axes_of(of_op.iter().map(|p| mesh.known_mode(p.sub)));
        out.extend(subs.into_iter().map(|sub| PartialAxis { sub, op: of_op[0].op }));
    }
    Ok(out)
}
