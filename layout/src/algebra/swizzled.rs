//! The operations of the algebra on a composition `f = S o k o B` that is not a layout.
//!
//! | operation | is | because |
//! |---|---|---|
//! | coalesce, group, divide, product, tile, compose, pick, ... | `S o k o op(B)` | `(S o B) o C = S o (B o C)`, and so of parts |
//! | slice | `S o (k + value of the fixed) o R` | `B(c) = value + R(open)` |
//! | downcast by `n` | `S_n o n k o downcast(B)` | `S_n(n x + j) = n S(x) + j` for `j < n` |
//! | upcast by `n` | `S^n o k/n o upcast(B)` | the same, backwards |
//! | local tile, local partition | `S o (k + start) o part(B)` | they are slices of divisions |
//! | right, left inverse | `inverse(B) o S^-1 = S' o inverse(B)` | bits go through a layout that permutes bits |
//!
//! A swizzle goes **through** a layout `A` if some swizzle `S'` has `A(S(x)) = S'(A(x))` on the domain of
//! `A`. Where extents and strides of `A` are powers of two and no two bits of an index go to the same bit,
//! `A` is linear over the bits, as `S` is, so this is to be checked for single bits: `S'` adds to the bit
//! `A(e)` the image under `A` of the bits that `S` adds to `e`.

use super::composed::{ComposedLayout, Outer};
use super::slice::SlicePattern;
use crate::modes::{Mode, Modes, coalesced};
use crate::{Defect, Error, Layout, Operation, Quantity, Swizzle};

impl Swizzle {
    /// Returns the swizzle `S'` with `A(S(x)) = S'(A(x))` for all `x` of the domain of `A`, if bits show it.
    ///
    /// Requires for an answer: all extents and strides of the coalesced `A` are powers of two, no bit of a
    /// value has two bits of an index, and this swizzle maps the domain of `A` to itself.
    ///
    /// ```
    /// use reshard_layout::{Layout, Swizzle};
    ///
    /// let (swizzle, transposed): (Swizzle, Layout) = ("Sw<2,0,-3>".parse()?, "(8,8):(8,1)".parse()?);
    /// let through = swizzle.through(&transposed).unwrap();
    /// assert_eq!(through.to_string(), "Sw<2,0,3>");
    /// for x in 0..64 {
    ///     assert_eq!(transposed.at(swizzle.at(x)?)?, through.at(transposed.at(x)?)?);
    /// }
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn through(self, layout: &Layout) -> Option<Self> {
        let mut storage = Modes::new();
        let modes = coalesced(layout.flat(), &mut storage);
        let power = |number: i64| number > 0 && number.count_ones() == 1;
        let mut seen = 0_i64;
        for mode in modes {
            // The bits of the coordinate, shifted to where the stride puts them.
            let bits = mode.stride.checked_mul(mode.extent - 1)?;
            if !(power(mode.extent) && power(mode.stride)) || seen & bits != 0 {
                return None;
            }
            seen |= bits;
        }
        let mut acts = Vec::new();
        for bit in (0..62).map(|bit| 1_i64 << bit).take_while(|bit| *bit < layout.size()) {
            let added = self.at(bit).ok()? ^ bit;
            acts.push((layout.at(bit).ok()?, layout.at(added).ok()?));
        }
        acts.sort_unstable();
        Self::of_bits(acts)
    }

    /// Returns the inverse, if it is a swizzle: itself, where no bit that is read is written.
    ///
    /// ```
    /// use reshard_layout::Swizzle;
    ///
    /// let swizzle: Swizzle = "Sw<2,0,3>".parse()?;
    /// assert_eq!(swizzle.inverse(), Some(swizzle));
    /// assert_eq!(Swizzle::new(2, 0, 1)?.inverse(), None);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    pub fn inverse(self) -> Option<Self> {
        (self.bits() <= self.shift().unsigned_abs()).then_some(self)
    }

    /// Converts the swizzle of words of `2^by` elements to one of elements, or back where `by` is negative.
    fn widened(self, by: i64) -> Option<Self> {
        let base = i64::from(self.base()) + by;
        if self.bits() == 0 {
            return Some(self);
        }
        Self::new(self.bits(), u8::try_from(base).ok()?, self.shift()).ok()
    }
}

impl ComposedLayout {
    /// Returns the composition with the result of an operation on its inner layout.
    ///
    /// ```
    /// use reshard_layout::{Layout, Swizzle, algebra::ComposedLayout};
    ///
    /// let tile: ComposedLayout = "Sw<3,4,3> o 0 o (6,8):(8,1)".parse()?;
    /// let tiles = tile.map_inner(|inner| inner.logical_divide(&"<3:1, 4:1>".parse()?))?;
    /// assert_eq!(tiles.to_string(), "Sw<3,4,3> o 0 o ((3,2),(4,2)):((8,24),(1,4))");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the operation.
    #[doc(hidden)]
    pub fn map_inner(&self, operation: impl FnOnce(&Layout) -> Result<Layout, Error>) -> Result<Self, Error> {
        Ok(Self::partial(self.outer().clone(), self.offset(), operation(self.inner())?))
    }

    /// Returns the composition from the coordinates that a pattern fixes, over those that it leaves open.
    ///
    /// ```
    /// use reshard_layout::algebra::ComposedLayout;
    ///
    /// let tile: ComposedLayout = "Sw<2,0,3> o 0 o (8,8):(8,1)".parse()?;
    /// assert_eq!(tile.slice(&"(3,_)".parse()?)?.to_string(), "Sw<2,0,3> o 24 o (8,):(1,)");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Layout::slice`], `overflow`.
    pub fn slice(&self, pattern: &SlicePattern) -> Result<Self, Error> {
        self.part(self.inner().slice(pattern)?)
    }

    /// Returns the composition with a part of its inner layout, from a value of that on.
    pub(super) fn part(&self, (part, value): (Layout, i64)) -> Result<Self, Error> {
        let overflow = Error::Overflow { quantity: Quantity::Value, left: self.offset(), right: value };
        let offset = self.offset().checked_add(value).ok_or(overflow)?;
        Ok(Self::partial(self.outer().clone(), offset, part))
    }

    fn broken_word(&self, width: i64) -> Error {
        let (operation, defect) = (Operation::Recast, Defect::SwizzledWord { width });
        Error::Inadmissible { operation, operand: Box::new(self.inner().clone()), defect }
    }

    /// Returns the same memory as elements `1/width` as wide.
    ///
    /// ```
    /// use reshard_layout::algebra::ComposedLayout;
    ///
    /// let words: ComposedLayout = "Sw<3,3,4> o 0 o (8,4):(1,8)".parse()?;
    /// assert_eq!(words.downcast(4)?.to_string(), "Sw<3,5,4> o 0 o (32,4):(1,32)");
    /// assert_eq!(words.downcast(4)?.upcast(4)?, words);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Layout::downcast`]; `inadmissible` if the width is not a power of two and the bits are swizzled.
    pub fn downcast(&self, width: i64) -> Result<Self, Error> {
        let inner = self.inner().downcast(width)?;
        let overflow = Error::Overflow { quantity: Quantity::Value, left: self.offset(), right: width };
        let offset = self.offset().checked_mul(width).ok_or(overflow)?;
        let outer = match self.outer() {
            Outer::Swizzle(swizzle) => {
                let by = (width.count_ones() == 1).then(|| i64::from(width.trailing_zeros()));
                let swizzle = by.and_then(|by| swizzle.widened(by));
                Outer::Swizzle(swizzle.ok_or_else(|| self.broken_word(width))?)
            }
            // A(x) at n x + j is n A(x) + j.
            Outer::Layout(layout) => {
                let words = layout.map(|stride| stride.saturating_mul(width))?;
                Outer::Layout(Layout::concat(&[Layout::scalar(width, 1)?, words])?.coalesce())
            }
        };
        Ok(Self::partial(outer, offset, inner))
    }

    /// Returns the same memory as elements `width` times as wide, each made of `width` neighbours.
    ///
    /// # Errors
    ///
    /// As [`Layout::upcast`]; `inadmissible` if an element would not begin at a multiple of `width`, or if
    /// the swizzle changes bits below `width`.
    pub fn upcast(&self, width: i64) -> Result<Self, Error> {
        let inner = self.inner().upcast(width)?;
        let broken = || self.broken_word(width);
        if self.offset() % width != 0 {
            return Err(broken());
        }
        let outer = match self.outer() {
            Outer::Swizzle(swizzle) => {
                let by = (width.count_ones() == 1).then(|| -i64::from(width.trailing_zeros()));
                Outer::Swizzle(by.and_then(|by| swizzle.widened(by)).ok_or_else(broken)?)
            }
            Outer::Layout(layout) => {
                let flat = layout.coalesce();
                let first = flat.flat().first().copied().unwrap_or(Mode::new(1, 0));
                if width > 1 && (first.stride != 1 || first.extent % width != 0) {
                    return Err(broken());
                }
                Outer::Layout(if width == 1 { layout.clone() } else { flat.upcast(width)? })
            }
        };
        Ok(Self::partial(outer, self.offset() / width, inner))
    }

    /// Returns `inverse(B) o S^-1`, as a swizzle of the inverse.
    fn inverted(
        &self,
        operation: Operation,
        inverse: &impl Fn(&Layout) -> Result<Layout, Error>,
    ) -> Result<Self, Error> {
        match self.outer() {
            Outer::Layout(_) => {
                let inverse = inverse(&self.to_layout()?)?;
                Ok(Self::partial(Swizzle::IDENTITY.into(), 0, inverse))
            }
            Outer::Swizzle(swizzle) => {
                let inner = inverse(self.inner())?;
                let back = if self.offset() == 0 { swizzle.inverse() } else { None };
                let through =
                    back.and_then(|back| back.through(&inner)).ok_or_else(|| Error::Inadmissible {
                        operation,
                        operand: Box::new(self.inner().clone()),
                        defect: Defect::Entangled,
                    })?;
                Ok(Self::partial(through.into(), 0, inner))
            }
        }
    }

    /// Returns a composition `R` with `f(R(i)) = i` for all `i < size(R)`.
    ///
    /// ```
    /// use reshard_layout::algebra::ComposedLayout;
    ///
    /// let f: ComposedLayout = "Sw<1,0,2> o 0 o (4,4):(4,1)".parse()?;
    /// let r = f.right_inverse()?;
    /// assert_eq!(r.to_string(), "Sw<1,0,-2> o 0 o (4,4):(4,1)");
    /// assert!((0..16).all(|i| r.at(i).and_then(|j| f.at(j)) == Ok(i)));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `inadmissible` if the swizzle does not go through the inverse of the layout.
    pub fn right_inverse(&self) -> Result<Self, Error> {
        self.inverted(Operation::RightInverse, &Layout::right_inverse)
    }

    /// Returns a composition `R` with `R(f(i)) = i` for all `i`.
    ///
    /// # Errors
    ///
    /// As [`right_inverse`](Self::right_inverse) and [`Layout::left_inverse`].
    pub fn left_inverse(&self) -> Result<Self, Error> {
        self.inverted(Operation::LeftInverse, &Layout::left_inverse)
    }

    /// Returns the length of the interval of values, by enumeration.
    ///
    /// # Errors
    ///
    /// `out_of_domain` where it is partial, `undecided` beyond 2^18 indices.
    pub fn cosize(&self) -> Result<i64, Error> {
        self.check_budget(self.size())?;
        let (mut least, mut greatest) = (i64::MAX, i64::MIN);
        for index in 0..self.size() {
            let value = self.at(index)?;
            (least, greatest) = (least.min(value), greatest.max(value));
        }
        let span = greatest.checked_sub(least).and_then(|distance| distance.checked_add(1));
        span.ok_or(Error::Overflow { quantity: Quantity::Span, left: least, right: greatest })
    }
}
