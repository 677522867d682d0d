//! The digit form of a sharding: which mesh digit owns which digit of each dim's index.
//!
//! In the even case the index of every dim is a mixed-radix number. Its *word* lists the digits, most significant
//! first; each is owned by a sub-axis of the mesh or is local:
//!
//! ```text
//! dp=2, tp=4, dim of 1024:    S(0),S(0)   ->  [dp 2][tp 4][local 128]
//!                             SS(0,4),S(0) -> [tp 4][dp 2][local 128]
//!                             SS(0,4),R   ->  [local 4][dp 2][local 128]
//! ```
//!
//! A placement reads the word's local digits from the left, which is the local index that the earlier axes left:
//! `StridedShard(d, k)` over `n` ranks skips digits of product `k`, gives the next ones of product `n` to its axis, and
//! leaves the rest. Where a product ends inside a digit, the digit splits if it divides; where it does not divide, the
//! sharding has no digits (its regions are not a layout).
//!
//! **Canonical.** Neighbouring digits of one owner merge (local with local, consecutive sub-axes of an axis), and digits
//! of radix 1 vanish. Then equal words mean the same ownership.

use smallvec::SmallVec;

use crate::SubAxis;

/// Who holds a digit of a dim's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Every rank holds all values of this digit.
    Local,
    /// The rank holds one value: its digit of the mesh axis `axis` below the sub-axes of product `pre`.
    Axis {
        /// Which axis of the mesh.
        axis: usize,
        /// The product of the sizes of the more significant sub-axes.
        pre: usize,
    },
}

/// One mixed-radix digit of a dim's index and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digit {
    /// The dim.
    pub dim: usize,
    /// Who holds it.
    pub owner: Owner,
    /// The number of its values.
    pub radix: usize,
}

impl Digit {
    /// The sub-axis that owns this digit, if one does.
    pub fn sub_axis(&self) -> Option<SubAxis> {
        match self.owner {
            Owner::Local => None,
            Owner::Axis { axis, pre } => Some(SubAxis { axis, pre, size: self.radix }),
        }
    }

    /// The digit as two, of which the major one has `major` values; requires that it divides.
    pub(crate) fn split(self, major: usize) -> (Digit, Digit) {
        let owner = match self.owner {
            Owner::Local => Owner::Local,
            Owner::Axis { axis, pre } => Owner::Axis { axis, pre: pre * major },
        };
        (Digit { radix: major, ..self }, Digit { radix: self.radix / major, owner, ..self })
    }

    /// This digit and the next less significant one as one digit, if they have one owner.
    fn joined(self, minor: Digit) -> Option<Digit> {
        let together = self.dim == minor.dim
            && match (self.owner, minor.owner) {
                (Owner::Local, Owner::Local) => true,
                (Owner::Axis { axis, pre }, Owner::Axis { axis: b, pre: q }) => {
                    axis == b && pre * self.radix == q
                }
                (Owner::Local, Owner::Axis { .. }) | (Owner::Axis { .. }, Owner::Local) => false,
            };
        together.then_some(Digit { radix: self.radix * minor.radix, ..self })
    }
}

/// The digits of all dims: by dim, most significant first.
pub type Digits = SmallVec<[Digit; 8]>;

/// The canonical form of a list of digits (see the [module](self)).
pub(crate) fn canonical(digits: impl IntoIterator<Item = Digit>) -> Digits {
    let mut out = Digits::new();
    for d in digits {
        if d.radix == 1 {
            continue;
        }
        match out.last().and_then(|last| last.joined(d)) {
            Some(joined) => *out.last_mut().expect("just seen") = joined,
            None => out.push(d),
        }
    }
    out
}

/// The word of one dim while placements are applied to it.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    digits: SmallVec<[Digit; 6]>,
}

impl Word {
    /// The word of a dim that nobody has cut; requires `len >= 1`.
    pub(crate) fn uncut(dim: usize, len: usize) -> Word {
        Word { digits: SmallVec::from_slice(&[Digit { dim, owner: Owner::Local, radix: len }]) }
    }

    /// The word of a dim with these digits; none at all is a dim of one index.
    pub(crate) fn from_digits(digits: impl Iterator<Item = Digit>, dim: usize) -> Word {
        let digits: SmallVec<[Digit; 6]> = digits.collect();
        if digits.is_empty() { Word::uncut(dim, 1) } else { Word { digits } }
    }

    /// The local length: the product of the local digits.
    pub(crate) fn local_len(&self) -> usize {
        self.digits.iter().filter(|d| d.owner == Owner::Local).map(|d| d.radix).product()
    }

    /// Skips local digits of product `skip` and gives the next ones, of product `sub.size`, to `sub`.
    ///
    /// False, and the word is spoilt, if a product ends inside a digit that it does not divide.
    pub(crate) fn give(&mut self, skip: usize, sub: SubAxis) -> bool {
        let (mut skip, mut left, mut pre) = (skip, sub.size, sub.pre);
        let mut i = 0;
        while left > 1 {
            let Some(&d) = self.digits.get(i) else { return false };
            if d.owner != Owner::Local {
                i += 1;
                continue;
            }
            if skip > 1 {
                match split(d.radix, skip) {
                    Some((taken, rest)) => {
                        skip /= taken;
                        self.digits[i].radix = taken;
                        if rest > 1 {
                            self.digits.insert(i + 1, Digit { radix: rest, ..d });
                        }
                    }
                    None => return false,
                }
            } else {
                match split(d.radix, left) {
                    Some((taken, rest)) => {
                        self.digits[i] =
                            Digit { owner: Owner::Axis { axis: sub.axis, pre }, radix: taken, ..d };
                        pre *= taken;
                        left /= taken;
                        if rest > 1 {
                            self.digits.insert(i + 1, Digit { radix: rest, ..d });
                        }
                    }
                    None => return false,
                }
            }
            i += 1;
        }
        true
    }

    pub(crate) fn digits(&self) -> &[Digit] {
        &self.digits
    }
}

/// How much of a wanted product a digit gives, and what is left of the digit: either divides the other, or none.
fn split(radix: usize, wanted: usize) -> Option<(usize, usize)> {
    if wanted.is_multiple_of(radix) {
        Some((radix, 1))
    } else if radix.is_multiple_of(wanted) {
        Some((wanted, radix / wanted))
    } else {
        None
    }
}
