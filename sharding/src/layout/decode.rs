//! Decoding: the placements of a sharding, where it has any.
//!
//! A placement splits the part of a dim that the earlier axes left. So with those axes sliced away, the dim
//! coalesces to a list in which the axis is one whole mode, and the slower modes above it are its chunks:
//!
//! ```text
//! a is SS(d, k)    exactly if   dim d without the axes before a, coalesced, has a mode n:1@a,  k the product above it
//! ```
//!
//! An axis of which only a part occurs, or which is in several modes, has no placement.

use reshard_layout::InlineVec;
use reshard_layout::{AxisStride, Mode, Modes};

use super::encode::dim_of_cuts;
use crate::sharding::Form;
use crate::{Error, Placement, Placements, Sharding};

impl Sharding {
    /// Returns the placements that mean this sharding, or why none do.
    pub fn placements(&self) -> Result<Placements, Error> {
        let mesh = self.mesh();
        let mut out = Placements(InlineVec::from_elem(Placement::Replicate, mesh.axes().len()));
        for p in self.partial() {
            if !mesh.is_whole(p.sub) {
                return Err(no_placements("only a part of an axis is partial"));
            }
            out.0[p.sub.axis] = Placement::Partial(p.op);
        }
        match self.form() {
            Form::Layout(layout) => {
                for (dim, modes) in layout.flat_modes().enumerate() {
                    self.read_off(self.shape().len().saturating_sub(dim + 1), modes, &mut out)?;
                }
            }
            Form::Cuts(cuts) => {
                for of_dim in cuts.chunk_by(|a, b| a.dim == b.dim) {
                    let dim = of_dim[0].dim;
                    if let Some(modes) = dim_of_cuts(mesh, dim, self.shape()[dim], of_dim) {
                        self.read_off(dim, &modes, &mut out)?;
                        continue;
                    }
                    if of_dim.iter().any(|x| !mesh.is_whole(x.sub)) {
                        return Err(split_axis());
                    }
                    if of_dim.windows(2).any(|w| w[0].sub > w[1].sub) {
                        return Err(no_placements(
                            "the axes of an uneven dim apply in another order than the mesh's",
                        ));
                    }
                    for x in of_dim {
                        out.0[x.sub.axis] = Placement::of_cut(dim, &x.cut);
                    }
                }
            }
        }
        Ok(out)
    }

    /// Writes the placements of the axes that some mode of a dim goes along.
    fn read_off(&self, dim: usize, modes: &[Mode<AxisStride>], out: &mut Placements) -> Result<(), Error> {
        for (at, mode) in modes.iter().enumerate() {
            let Some(axis) = mode.stride.axis() else { continue };
            let size = self.mesh().axes()[axis as usize].size() as i64;
            let is_whole = |m: &Mode<AxisStride>| m.stride == AxisStride::along(1, axis) && m.extent == size;
            // The modes that this axis sees: none of the axes before it.
            let is_seen = |m: &&Mode<AxisStride>| m.stride.axis().is_none_or(|a| a >= axis);
            let product = |above: &[Mode<AxisStride>]| {
                above.iter().filter(is_seen).map(|m| m.extent as usize).product()
            };
            let pieces = if is_whole(mode) {
                product(&modes[at + 1..])
            } else {
                let mut seen = Modes::new();
                for &m in modes.iter().filter(is_seen) {
                    seen.push_coalesced(0, m);
                }
                let at = seen.iter().position(is_whole).ok_or_else(split_axis)?;
                product(&seen[at + 1..])
            };
            out.0[axis as usize] = Placement::of_chunks(dim, pieces);
        }
        Ok(())
    }

    /// Returns `true` if only whole axes shard and are partial.
    #[doc(hidden)]
    pub fn whole_axes(&self) -> bool {
        let mesh = self.mesh();
        self.partial().iter().map(|p| p.sub).chain(self.cutting()).all(|s| mesh.is_whole(s))
    }

    /// Returns `true` if a text denotes this sharding.
    ///
    /// There is none for sub-axes with uneven splits that only placements hold.
    #[doc(hidden)]
    pub fn has_notation(&self) -> bool {
        self.layout().is_some() || self.whole_axes() || self.to_dims_notation().is_ok()
    }
}

fn split_axis() -> Error {
    no_placements("an axis is split into sub-axes")
}

fn no_placements(reason: &str) -> Error {
    Error::NotRepresentable { notation: "placements", reason: reason.to_owned() }
}
