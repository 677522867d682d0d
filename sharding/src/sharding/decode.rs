//! Decoding: which placements mean a sharding, and whether any do.
//!
//! A placement says what its axis skips of the local index that earlier axes left, so an axis decodes to the product of
//! the digits before its own that are local or go to later axes.

use smallvec::SmallVec;

use super::{Form, Sharding, word_of};
use crate::cut::Cut;
use crate::digits::{Digit, Owner};
use crate::{Error, Placement, Placements, SubAxis};

impl Sharding {
    /// The placements that mean this sharding, or why none do.
    pub fn placements(&self) -> Result<Placements, Error> {
        let mut out = Placements(SmallVec::from_elem(Placement::Replicate, self.mesh.axes().len()));
        for p in &self.partial {
            if p.sub != self.mesh.whole(p.sub.axis) {
                return Err(no_placements("only a part of an axis is partial"));
            }
            out.0[p.sub.axis] = Placement::Partial(p.op);
        }
        match &self.form {
            Form::Cuts(cuts) => {
                for of_dim in cuts.chunk_by(|a, b| a.dim == b.dim) {
                    let dim = of_dim[0].dim;
                    if let Some(word) = word_of(dim, self.shape[dim], of_dim) {
                        self.decode(&word, &mut out)?;
                        continue;
                    }
                    if of_dim.iter().any(|x| x.sub != self.mesh.whole(x.sub.axis)) {
                        return Err(no_placements("an axis is split into sub-axes"));
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
            Form::Digits(digits) => self.decode(digits, &mut out)?,
        }
        Ok(out)
    }

    /// Writes the placements of the axes that own some of these digits.
    fn decode(&self, digits: &[Digit], out: &mut Placements) -> Result<(), Error> {
        for axis in 0..self.mesh.axes().len() {
            if let Some((dim, k)) = self.decode_axis(digits, axis)? {
                out.0[axis] = Placement::of_cut(dim, &Cut::chunks(k, 1));
            }
        }
        Ok(())
    }

    /// Whether only whole axes cut and owe.
    pub(crate) fn whole_axes(&self) -> bool {
        let whole = |s: &SubAxis| *s == self.mesh.whole(s.axis);
        self.partial.iter().all(|p| whole(&p.sub))
            && match &self.form {
                Form::Digits(digits) => digits.iter().filter_map(Digit::sub_axis).all(|s| whole(&s)),
                Form::Cuts(cuts) => cuts.iter().all(|c| whole(&c.sub)),
            }
    }

    /// Whether there is a text that means this sharding: not where sub-axes meet uneven cuts that only placements hold.
    pub(crate) fn has_notation(&self) -> bool {
        self.digits().is_some() || self.whole_axes() || self.by_tensor().is_ok()
    }

    /// The dim and split factor of an axis: what it skips of the local index that earlier axes left.
    fn decode_axis(&self, digits: &[Digit], axis: usize) -> Result<Option<(usize, usize)>, Error> {
        let owns = |d: &Digit| matches!(d.owner, Owner::Axis { axis: a, .. } if a == axis);
        let Some(first) = digits.iter().position(owns) else { return Ok(None) };
        let dim = digits[first].dim;
        // What this axis saw: the digits of the dim that are local or go to later axes.
        let sees = |d: &&Digit| match d.owner {
            Owner::Local => true,
            Owner::Axis { axis: a, .. } => a >= axis,
        };
        let seen: SmallVec<[&Digit; 8]> = digits.iter().filter(|d| d.dim == dim).filter(sees).collect();
        let start = seen.iter().position(|d| owns(d)).expect("the first one is among them");
        let k = seen[..start].iter().map(|d| d.radix).product();
        let mut pre = 1;
        for d in seen[start..].iter().take_while(|d| owns(d)) {
            if d.owner != (Owner::Axis { axis, pre }) {
                break;
            }
            pre *= d.radix;
        }
        if pre == self.mesh.axes()[axis].size() {
            return Ok(Some((dim, k)));
        }
        Err(no_placements("an axis is split into sub-axes"))
    }
}

fn no_placements(reason: &str) -> Error {
    Error::NotExpressible { notation: "placements", reason: reason.to_owned() }
}
