//! Right and left inverses.
//!
//! Both sort the leaves by stride. Let `p` be the product of the extents to the left of a leaf, the index
//! step that advances its coordinate by one.
//!
//! ```text
//! right inverse   A(R(i)) = i      of the leaf whose stride is the size so far:      s : p
//! left inverse    R(A(i)) = i      between a leaf (d':p') and the next, (d:p):        d / d' : p'
//! ```

use smallvec::SmallVec;

use crate::modes::Mode;
use crate::order::div_rem;
use crate::{Defect, Error, Layout, Operation};

/// A leaf and the index step that advances its coordinate.
#[derive(Clone, Copy)]
struct Placed {
    extent: i64,
    stride: i64,
    step: i64,
}

type PlacedLeaves = SmallVec<[Placed; 8]>;

/// Fills `leaves` with those of extent > 1 and a positive stride, sorted by stride, then extent.
#[inline]
fn place_leaves(layout: &Layout, leaves: &mut PlacedLeaves) {
    let mut step = 1;
    for &Mode { extent, stride } in layout.flat() {
        if extent > 1 && stride > 0 {
            leaves.push(Placed { extent, stride, step });
            let mut at = leaves.len() - 1;
            while at > 0 && (stride, extent) < (leaves[at - 1].stride, leaves[at - 1].extent) {
                leaves.swap(at - 1, at);
                at -= 1;
            }
        }
        step *= extent;
    }
}

impl Layout {
    /// Returns a layout `R` with `A(R(i)) = i` for all `i < size(R)`: where to find each value.
    ///
    /// Taken leaf by leaf in the order of (stride, extent), each leaf whose stride is the size so far; so the
    /// longest there is if `A` is injective and has no negative stride. (`(2,2):(-2,3)` has the longer one
    /// `2:3`, because its value 1 is 3 - 2.) Never fails, in the worst case it is `1:0`. Ensures: coalesced.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(4,2,3):(2,1,8)".parse()?;
    /// let r = a.right_inverse()?;
    /// assert_eq!(r.to_string(), "(2,4,3):(4,1,8)");
    /// assert!((0..r.size()).all(|i| r.at(i).and_then(|j| a.at(j)) == Ok(i)));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// None today; a `Result` like the rest of the algebra.
    pub fn right_inverse(&self) -> Result<Self, Error> {
        let mut layout = Self::blank();
        let leaves = layout.modes_mut();
        let mut placed = PlacedLeaves::new();
        place_leaves(self, &mut placed);
        let mut size = 1;
        for &Placed { extent, stride, step } in &placed {
            if stride == size {
                leaves.push_coalesced(0, Mode { extent, stride: step });
                // A divisor of the size of this layout, which fits.
                size *= extent;
            } else if stride > size {
                break;
            }
        }
        layout.nest_coalesced();
        layout.seal();
        Ok(layout)
    }

    /// Returns a layout `R` with `R(A(i)) = i` for all `i`: which index has this value.
    ///
    /// Where `A` has modes of stride 0 it is the quasi-inverse, `A(R(A(i))) = A(i)`. Requires: strides are
    /// not negative, and each, sorted, is a multiple of the one below it and at least its span; so that the
    /// values of `A` are written in a mixed radix of which every digit is a coordinate. (This is sufficient
    /// and not necessary: `(4,4):(3,4)` has the left inverse `(3,4,2):(3,1,12)`.) Ensures: coalesced, and its
    /// domain contains the values of `A`.
    ///
    /// ```
    /// use reshard_layout::Layout;
    ///
    /// let a: Layout = "(3,4):(4,12)".parse()?;
    /// let r = a.left_inverse()?;
    /// assert_eq!(r.to_string(), "(4,12):(0,1)");
    /// assert!((0..a.size()).all(|i| a.at(i).and_then(|j| r.at(j)) == Ok(i)));
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `inadmissible`, `overflow`.
    pub fn left_inverse(&self) -> Result<Self, Error> {
        let operation = Operation::LeftInverse;
        let inadmissible =
            |defect| Error::Inadmissible { operation, operand: Box::new(self.clone()), defect };
        if let Some(leaf) = self.flat().iter().find(|leaf| leaf.extent > 1 && leaf.stride < 0) {
            return Err(inadmissible(Defect::NegativeStride { extent: leaf.extent, stride: leaf.stride }));
        }
        let mut layout = Self::blank();
        let leaves = layout.modes_mut();
        // Of the leaf below: its stride, its end (None beyond 64 bits), and the value of one of its steps.
        let (mut below, mut span, mut value, mut last) = (1_i64, Some(1_i64), 0_i64, 1_i64);
        let mut placed = PlacedLeaves::new();
        place_leaves(self, &mut placed);
        for &Placed { extent, stride, step } in &placed {
            let Some(end) = span else {
                return Err(inadmissible(Defect::Overlap { stride, span: i64::MAX }));
            };
            if stride < end {
                return Err(inadmissible(Defect::Overlap { stride, span: end }));
            }
            let (room, rest) = div_rem(stride, below);
            if rest != 0 {
                return Err(inadmissible(Defect::Gap { stride, below }));
            }
            if room > 1 {
                leaves.push_coalesced(0, Mode { extent: room, stride: value });
            }
            (below, span, value, last) = (stride, stride.checked_mul(extent), step, extent);
        }
        if last > 1 {
            leaves.push_coalesced(0, Mode { extent: last, stride: value });
        }
        layout.nest_coalesced();
        layout.seal_checked()?;
        Ok(layout)
    }
}
