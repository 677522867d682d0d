//! Compositions as operands of each other: concatenated with, after, and as tiles of layouts and
//! compositions.
//!
//! Let `f = S o k o B` and `g` be compositions; a layout is one with nothing applied and `k = 0`.
//!
//! | operation | is | exists where |
//! |---|---|---|
//! | from its first value on | `f(i) = f(0) + R(i)` | `R` is a layout |
//! | `A o f` | `A(f(0)) + R'(i)`, or `S' o A(k) o (A o B from k on)` | the above, or `S` goes through `A` |
//! | `f o g` | `S o k o (B o g)` | the last function of `B o g` is nothing, or forms one swizzle with `S` |
//! | `(f, g)` | `S o (k_f + k_g) o (B_f, B_g)` | that is `f(i) + g(j)` at every `(i, j)` |
//! | `f*` | `B*` | `(f, B*)` exists |
//! | `g / f` | `g o (f, f*)` | both exist |
//! | `g (x) f` | `(g, g* o f)` | both exist |
//!
//! Every index is checked to decide whether `(f, g)` exists: a swizzle of a sum is the sum of the swizzled
//! parts only where no bits of one part affect those of the other.

use super::composed::{ComposedLayout, Outer};
use super::divide;
use super::exact::{ENUMERATION_BUDGET, recognise};
use super::product::room_for_copies;
use crate::properties::Answer;
use crate::{Defect, Error, Layout, Obstacle, Operation, Quantity, Swizzle};

fn sum(left: i64, right: i64) -> Result<i64, Error> {
    left.checked_add(right).ok_or(Error::Overflow { quantity: Quantity::Value, left, right })
}

/// The arrangement of the tile and the rest of a composition that was divided or multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Form {
    /// `(tile, rest)`; for a tile that is one layout this is the zipped form too.
    Logical,
    /// `(tile, rest, rest, ...)`.
    Tiled,
    /// `(tile, tile, ..., rest, rest, ...)`.
    Flat,
}

impl From<Layout> for ComposedLayout {
    fn from(layout: Layout) -> Self {
        Self::from_offset(0, layout)
    }
}

impl ComposedLayout {
    /// Returns `true` if no function is applied last.
    ///
    /// It is then a layout that may begin at another value than 0.
    #[doc(hidden)]
    pub fn is_from_offset(&self) -> bool {
        match self.outer() {
            Outer::Swizzle(swizzle) => swizzle.bits() == 0,
            Outer::Layout(_) => false,
        }
    }

    /// Returns `true` if no function is applied last and the offset is 0, so that it equals its inner layout.
    #[doc(hidden)]
    pub fn is_layout(&self) -> bool {
        self.is_from_offset() && self.offset() == 0
    }

    /// Returns `f(0)` and the layout `R` with `f(i) = f(0) + R(i)`.
    ///
    /// The shape of `R` refines that of the inner layout.
    ///
    /// ```
    /// use reshard_layout::algebra::ComposedLayout;
    ///
    /// let f: ComposedLayout = "Sw<2,0,3> o 8 o (2,4):(16,32)".parse()?;
    /// let (start, r) = f.from_first_value()?;
    /// assert_eq!((start, r.to_string()), (9, "(2,4):(18,32)".to_owned()));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `not_representable`, `out_of_domain` where it is partial, `undecided`.
    #[doc(hidden)]
    pub fn from_first_value(&self) -> Result<(i64, Layout), Error> {
        self.check_total()?;
        match self.outer() {
            Outer::Layout(outer) => outer.compose_from(self.offset(), self.inner()),
            Outer::Swizzle(_) if self.is_from_offset() => Ok((self.offset(), self.inner().clone())),
            Outer::Swizzle(swizzle) => {
                // Every value is an index of the swizzle.
                let at = |value| swizzle.at(self.offset() + value).unwrap_or(i64::MAX);
                let start = at(0);
                recognise(self.inner(), |value| at(value) - start)
                    .map(|layout| (start, layout))
                    .map_err(|refusal| refusal.into_error((*swizzle).into(), self.inner()))
            }
        }
    }

    /// Returns the values at all indices.
    ///
    /// # Errors
    ///
    /// `out_of_domain` where it is partial, `undecided` beyond 2^18 indices.
    pub fn values(&self) -> Result<Vec<i64>, Error> {
        self.check_budget(self.size())?;
        (0..self.size()).map(|index| self.at(index)).collect()
    }

    pub(super) fn check_budget(&self, size: i64) -> Result<(), Error> {
        if size > ENUMERATION_BUDGET {
            let operands = Box::new((self.outer().clone(), self.inner().clone()));
            return Err(Error::Undecided { operands, budget: ENUMERATION_BUDGET });
        }
        Ok(())
    }

    /// Returns the concatenation of the parts, `(f, g)(i, j) = f(i) + g(j)`, as one composition.
    ///
    /// ```
    /// use reshard_layout::{Layout, algebra::ComposedLayout};
    ///
    /// let parts: [ComposedLayout; 2] = ["Sw<2,0,3> o 64 o (4,4):(8,1)".parse()?, "2:32".parse::<Layout>()?.into()];
    /// assert_eq!(ComposedLayout::concat(&parts)?.to_string(), "Sw<2,0,3> o 64 o ((4,4),2):((8,1),32)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `not_representable` where no single function is applied last to all of them, `undecided` where that
    /// takes more than 2^18 evaluations, `out_of_domain` where one is
    /// partial, those of [`Layout::concat`].
    pub fn concat(parts: &[Self]) -> Result<Self, Error> {
        let inner: Vec<Layout> = parts.iter().map(|part| part.inner().clone()).collect();
        let offset = parts.iter().try_fold(0, |offset, part| sum(offset, part.offset()))?;
        let outer = parts.iter().find(|part| !part.is_from_offset()).map(|part| part.outer().clone());
        let Some(outer) = outer else {
            return Ok(Self::from_offset(offset, Layout::concat(&inner)?));
        };
        let whole = Self::partial(outer, offset, Layout::concat(&inner)?);
        for part in parts {
            part.check_total()?;
        }
        whole.check_budget(whole.size())?;
        for index in 0..whole.size() {
            let mut rest = index;
            let of_parts = parts.iter().try_fold(0, |value, part| {
                let at = rest % part.size();
                rest /= part.size();
                sum(value, part.at(at)?)
            })?;
            if whole.at(index) != Ok(of_parts) {
                let operands = Box::new((whole.outer().clone(), whole.inner().clone()));
                return Err(Error::NotRepresentable { operands, obstacle: Obstacle::Parts { index } });
            }
        }
        Ok(whole)
    }

    /// Returns the layout `A` after this composition.
    ///
    /// It applies `A` from its first value on or through `A`.
    ///
    /// ```
    /// use reshard_layout::{Layout, algebra::ComposedLayout};
    ///
    /// let (a, f): (Layout, ComposedLayout) = ("(8,8):(8,1)".parse()?, "Sw<2,0,3> o 9 o (4,2):(8,2)".parse()?);
    /// let after = f.after(&a)?;
    /// assert_eq!(after.to_string(), "Sw<2,0,-3> o 9 o (4,2):(1,16)");
    /// assert!((0..8).all(|i| f.at(i).and_then(|j| a.at(j)) == after.at(i)));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `inadmissible` if it is neither; those of `Layout::compose_from`.
    pub fn after(&self, layout: &Layout) -> Result<Self, Error> {
        let through = match self.outer() {
            Outer::Layout(_) => None,
            Outer::Swizzle(swizzle) => swizzle.through(layout).filter(|_| !self.is_from_offset()),
        };
        match (through, self.from_first_value()) {
            (_, Ok((start, inner))) => {
                let (start, inner) = layout.compose_from(start, &inner)?;
                Ok(Self::from_offset(start, inner))
            }
            (Some(through), Err(_)) => {
                let (offset, inner) = layout.compose_from(self.offset(), self.inner())?;
                Ok(Self::partial(through.into(), offset, inner))
            }
            (None, Err(Error::NotRepresentable { .. } | Error::Undecided { .. })) => match self.outer() {
                // A lazy composition stays lazy.
                Outer::Layout(outer) => {
                    Self::new(layout.compose(outer)?.into(), self.offset(), self.inner().clone())
                }
                Outer::Swizzle(_) => Err(entangled(layout)),
            },
            (None, Err(error)) => Err(error),
        }
    }

    /// Returns a swizzle after this composition.
    ///
    /// # Errors
    ///
    /// `inadmissible` where it and the last function here are not one swizzle, nor this a layout from its
    /// first value on.
    #[doc(hidden)]
    pub fn after_swizzle(&self, swizzle: Swizzle) -> Result<Self, Error> {
        let both = match self.outer() {
            Outer::Swizzle(first) => swizzle.after(*first),
            Outer::Layout(_) => None,
        };
        match (both, self.from_first_value()) {
            (Some(both), _) => Ok(Self::partial(both.into(), self.offset(), self.inner().clone())),
            (None, Ok((start, inner))) => Self::new(swizzle.into(), start, inner),
            (None, Err(_)) => Err(two_swizzles(self.inner())),
        }
    }

    /// Returns the function `i -> number + f(i)`.
    ///
    /// # Errors
    ///
    /// Those of [`from_first_value`](Self::from_first_value), unless the number is 0 or nothing is applied
    /// last; `overflow`.
    #[doc(hidden)]
    pub fn plus(&self, number: i64) -> Result<Self, Error> {
        if number == 0 {
            return Ok(self.clone());
        }
        let (start, layout) = self.from_first_value()?;
        Ok(Self::from_offset(sum(start, number)?, layout))
    }

    /// This composition after another one, `i -> f(g(i))`.
    ///
    /// # Errors
    ///
    /// `inadmissible` where two functions would have to be applied last, those of [`after`](Self::after).
    pub fn compose(&self, first: &Self) -> Result<Self, Error> {
        let inner = first.after(self.inner())?;
        if inner.is_from_offset() {
            let offset = sum(self.offset(), inner.offset())?;
            return Ok(Self::partial(self.outer().clone(), offset, inner.inner().clone()));
        }
        match self.outer() {
            Outer::Swizzle(swizzle) if self.offset() == 0 => inner.after_swizzle(*swizzle),
            Outer::Layout(layout) if self.offset() == 0 => inner.after(layout),
            Outer::Swizzle(_) | Outer::Layout(_) => Err(two_swizzles(self.inner())),
        }
    }

    /// Returns the complement of this composition up to `bound`.
    ///
    /// That is the complement of the inner layout, if both can be concatenated.
    ///
    /// ```
    /// use reshard_layout::algebra::ComposedLayout;
    ///
    /// let tile: ComposedLayout = "Sw<2,0,3> o 0 o (4,4):(8,1)".parse()?;
    /// assert_eq!(tile.complement(64)?.to_string(), "(2,2):(4,32)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Layout::complement`] and [`concat`](Self::concat).
    pub fn complement(&self, bound: i64) -> Result<Layout, Error> {
        let rest = self.inner().complement(bound)?;
        Self::concat(&[self.clone(), rest.clone().into()])?;
        Ok(rest)
    }

    /// This composition after another one, where the last leaf of a layout has no end.
    ///
    /// # Errors
    ///
    /// As [`compose`](Self::compose), `out_of_domain` only for negative values; as [`values`](Self::values).
    #[doc(hidden)]
    pub fn compose_extended(&self, first: &Self) -> Result<Self, Error> {
        let reach = first.values()?.into_iter().max().unwrap_or(0);
        let (outer, offset, inner) = (self.outer().clone(), self.offset(), self.inner().extended_to(reach)?);
        Self::partial(outer, offset, inner).compose(first)
    }

    /// `(tile, rest)` of this composition, or of a layout, divided by a composition.
    ///
    /// ```
    /// use reshard_layout::algebra::{ComposedLayout, Form};
    ///
    /// let (a, tile): (ComposedLayout, ComposedLayout) = ("Sw<0,0,0> o 0 o 32:1".parse()?, "Sw<2,0,2> o 0 o (4,4):(1,4)".parse()?);
    /// assert_eq!(a.divide(&tile, Form::Logical)?.to_string(), "Sw<2,0,2> o 0 o ((4,4),2):((1,4),16)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`complement`](Self::complement) and [`compose`](Self::compose).
    pub fn divide(&self, tile: &Self, form: Form) -> Result<Self, Error> {
        self.compose(&self.tile_and_rest(tile)?)?.in_form(form)
    }

    /// Returns the same, where the last leaf of a layout has no end.
    ///
    /// # Errors
    ///
    /// As [`complement`](Self::complement) and [`compose_extended`](Self::compose_extended).
    #[doc(hidden)]
    pub fn divide_extended(&self, tile: &Self, form: Form) -> Result<Self, Error> {
        self.compose_extended(&self.tile_and_rest(tile)?)?.in_form(form)
    }

    /// Returns `(t, t*)`, the tile and its starts.
    fn tile_and_rest(&self, tile: &Self) -> Result<Self, Error> {
        Self::concat(&[tile.clone(), tile.complement(self.size())?.into()])
    }

    /// `(this, copies)` of this composition, or of a layout, repeated after the pattern that another one is.
    ///
    /// # Errors
    ///
    /// As [`complement`](Self::complement) and [`concat`](Self::concat).
    pub fn product(&self, pattern: &Self, form: Form) -> Result<Self, Error> {
        let room = room_for_copies(self.inner(), pattern.cosize()?)?;
        Self::concat(&[self.clone(), pattern.after(&room)?])?.in_form(form)
    }

    fn in_form(&self, form: Form) -> Result<Self, Error> {
        self.map_inner(|both| {
            let (tile, rest) = (both.mode(0)?, both.mode(1)?);
            match form {
                Form::Logical => Ok(both.clone()),
                Form::Tiled => divide::tiled(tile, &rest),
                Form::Flat => divide::flat(&tile, &rest),
            }
        })
    }

    /// Returns the longest `R` with `f(R(i)) = f(0) + i` and `g(R(i)) = g(0) + i` that bits show.
    ///
    /// It is that of the inner layouts, as far as swizzles and offsets leave the bits unchanged.
    ///
    /// ```
    /// use reshard_layout::{Layout, algebra::ComposedLayout};
    ///
    /// let shared: ComposedLayout = "Sw<3,3,3> o 0 o (64,8):(1,64)".parse()?;
    /// let global: ComposedLayout = "(64,8):(1,128)".parse::<Layout>()?.into();
    /// assert_eq!(shared.max_common_layout(&global)?.to_string(), "8:1"); // a vector of eight elements
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `inadmissible` where the last function is a layout other than the identity, as
    /// [`Layout::max_common_layout`].
    pub fn max_common_layout(&self, other: &Self) -> Result<Layout, Error> {
        let most = self.whole_words()?.min(other.whole_words()?);
        self.inner().common_up_to(other.inner(), most)
    }

    /// Returns the number of neighbours that stay neighbours, aligned, after the last function.
    fn whole_words(&self) -> Result<i64, Error> {
        let Outer::Swizzle(swizzle) = self.outer() else {
            return Err(entangled(self.inner()));
        };
        if swizzle.bits() == 0 {
            return Ok(i64::MAX);
        }
        let aligned = self.offset().trailing_zeros().min(u32::from(swizzle.base()));
        Ok(1_i64 << aligned)
    }

    /// Returns whether different indices have different values; unknown beyond 2^18 indices.
    ///
    /// # Errors
    ///
    /// `out_of_domain` where it is partial.
    pub fn is_injective(&self) -> Result<Answer, Error> {
        self.check_total()?;
        match self.outer() {
            Outer::Swizzle(swizzle) if swizzle.is_bijective() => Ok(self.inner().is_injective()),
            Outer::Swizzle(_) | Outer::Layout(_) if self.size() > ENUMERATION_BUDGET => Ok(Answer::Unknown),
            Outer::Swizzle(_) | Outer::Layout(_) => {
                let mut values = self.values()?;
                values.sort_unstable();
                Ok(if values.windows(2).any(|pair| pair[0] == pair[1]) { Answer::No } else { Answer::Yes })
            }
        }
    }

    /// Returns `true` if the values are exactly `[0, bound)`.
    ///
    /// # Errors
    ///
    /// As [`values`](Self::values).
    pub fn is_surjective_onto(&self, bound: i64) -> Result<bool, Error> {
        let mut values = self.values()?;
        values.sort_unstable();
        values.dedup();
        Ok(values.iter().copied().eq(0..bound))
    }

    /// Returns whether 0 is the only value that both have; unknown beyond 2^18 indices.
    ///
    /// # Errors
    ///
    /// `out_of_domain` where one is partial.
    pub fn is_disjoint(&self, other: &Self) -> Result<Answer, Error> {
        if self.size().max(other.size()) > ENUMERATION_BUDGET {
            return Ok(Answer::Unknown);
        }
        let mut values = self.values()?;
        values.sort_unstable();
        let common = |value: &i64| *value != 0 && values.binary_search(value).is_ok();
        Ok(if other.values()?.iter().any(common) { Answer::No } else { Answer::Yes })
    }

    /// Returns `true` if both have the same values at the same indices.
    ///
    /// # Errors
    ///
    /// As [`values`](Self::values).
    pub fn is_equivalent(&self, other: &Self) -> Result<bool, Error> {
        Ok(self.size() == other.size() && (self == other || self.values()? == other.values()?))
    }
}

/// Returns the error that two swizzles would have to be applied, with a layout or an offset between them.
fn two_swizzles(between: &Layout) -> Error {
    Error::Inadmissible {
        operation: Operation::Compose,
        operand: Box::new(between.clone()),
        defect: Defect::TwoSwizzles,
    }
}

/// Returns the error that a swizzle and a layout cannot be exchanged.
pub(super) fn entangled(layout: &Layout) -> Error {
    Error::Inadmissible {
        operation: Operation::Compose,
        operand: Box::new(layout.clone()),
        defect: Defect::Entangled,
    }
}
