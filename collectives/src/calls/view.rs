//! Elements of a flat buffer as loops: the strided view of frameworks.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use reshard_layout::{InlineVec, Layout, Mode};

use crate::Error;

/// Elements of a flat buffer: an offset and loops over a stride each, the outermost first.
///
/// ```text
/// 3+(2:8,4:1)     3, 4, 5, 6, 11, 12, 13, 14            for i in 0..2 { for j in 0..4 { 3 + 8 i + j } }
/// 3+()            3
/// ```
///
/// The loops are a coalesced [`Layout`], whose leftmost mode is the innermost loop. No loop has extent 1, and
/// none continues exactly where the loop inside of it ends. So two views of the same elements in the same
/// order are equal values. A stride of 0 repeats.
///
/// ```
/// use reshard_collectives::calls::View;
/// let view: View = "3+(2:8,4:1)".parse()?;
/// assert_eq!(view.elements().collect::<Vec<_>>(), [3, 4, 5, 6, 11, 12, 13, 14]);
/// assert_eq!(view, "3+(2:8,2:2,1:5,2:1)".parse()?);
/// assert_eq!((view.to_string(), view.len()), ("3+(2:8,4:1)".to_string(), 8));
/// # Ok::<(), reshard_collectives::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    offset: usize,
    loops: Layout,
}

/// A few views, usually one.
#[doc(hidden)]
pub type Views = InlineVec<View, 1>;

impl View {
    /// Creates the view from `offset` on with loops `(extent, stride)`, the outermost first.
    ///
    /// Errors: [`Error::Parse`] for an extent of 0, an element below 0, and numbers beyond 63 bits.
    #[doc(hidden)]
    pub fn new(offset: usize, loops: &[(usize, i64)]) -> Result<View, Error> {
        let modes =
            loops.iter().rev().map(|&(extent, stride)| Mode::new(extent.try_into().unwrap_or(0), stride));
        let modes: InlineVec<Mode, 8> = modes.collect();
        let view = i64::try_from(offset).ok().and_then(|offset| View::of(offset, &modes).ok());
        view.ok_or_else(|| {
            let text: Vec<String> =
                loops.iter().map(|(extent, stride)| format!("{extent}:{stride}")).collect();
            wrong(&format!("{offset}+({})", text.join(",")))
        })
    }

    /// Creates the view with these modes, the innermost first.
    pub(crate) fn of(offset: i64, modes: &[Mode]) -> Result<View, Error> {
        let overflow = || reshard_kernels::Error::Overflow { what: "an offset of a view" };
        let loops = Layout::coalesced(modes)?;
        let (least, most) = (offset.checked_add(loops.min_value()), offset.checked_add(loops.max_value()));
        let fits = least.is_some_and(|least| least >= 0) && most.is_some_and(|most| most < i64::MAX);
        let offset = usize::try_from(offset).ok().filter(|_| fits).ok_or_else(overflow)?;
        Ok(View { offset, loops })
    }

    /// Returns a view of `len` contiguous elements from `offset` on; no view if `len` is 0.
    pub(crate) fn run(offset: usize, len: usize) -> Result<Views, Error> {
        let overflow = |_| reshard_kernels::Error::Overflow { what: "the size of a view" };
        let (offset, len) = (i64::try_from(offset).map_err(overflow)?, i64::try_from(len).map_err(overflow)?);
        let view = (len > 0).then(|| View::of(offset, &[Mode::new(len, 1)])).transpose()?;
        Ok(view.into_iter().collect())
    }

    /// Returns the first element.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the loops, the outermost first; none for one element.
    pub fn loops(&self) -> impl DoubleEndedIterator<Item = Mode> + Clone + '_ {
        self.loops.flat().iter().rev().copied().filter(|mode| mode.extent > 1)
    }

    /// Returns the loops as a layout from the index of an element to its distance from the first.
    ///
    /// The leftmost mode is the innermost loop.
    #[doc(hidden)]
    pub fn layout(&self) -> &Layout {
        &self.loops
    }

    /// Returns the number of elements: at least 1; repeated elements count each time.
    #[allow(clippy::len_without_is_empty, reason = "views are never empty")]
    pub fn len(&self) -> usize {
        self.loops.size() as usize
    }

    /// Returns the elements in their order.
    pub fn elements(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        // No element is below 0.
        self.loops.values().map(|distance| (self.offset as i64 + distance) as usize)
    }

    /// Returns the greatest element plus one: the required length of the buffer.
    #[doc(hidden)]
    pub fn end(&self) -> usize {
        self.offset + self.loops.max_value() as usize + 1
    }

    /// Returns the elements as a range, if they are contiguous: then no packing is needed.
    ///
    /// ```
    /// use reshard_collectives::calls::View;
    /// assert_eq!("3+(8:1)".parse::<View>()?.range(), Some(3..11));
    /// assert_eq!("3+(2:8,4:1)".parse::<View>()?.range(), None);
    /// # Ok::<(), reshard_collectives::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn range(&self) -> Option<Range<usize>> {
        let mut loops = self.loops();
        let dense = match (loops.next(), loops.next()) {
            (None, _) => true,
            (Some(mode), None) => mode.stride == 1,
            (Some(_), Some(_)) => false,
        };
        dense.then(|| self.offset..self.offset + self.len())
    }
}

fn wrong(input: &str) -> Error {
    let message = "expected an offset and loops over strides, such as 3+(2:8,4:1)".to_string();
    Error::Parse { input: input.to_string(), message }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+(", self.offset)?;
        for (i, mode) in self.loops().enumerate() {
            write!(f, "{}{mode}", if i > 0 { "," } else { "" })?;
        }
        f.write_str(")")
    }
}

impl FromStr for View {
    type Err = Error;

    fn from_str(text: &str) -> Result<View, Error> {
        let read = || {
            let (offset, loops) = text.trim().split_once('+')?;
            let loops = loops.strip_prefix('(')?.strip_suffix(')')?;
            let one = |text: &str| {
                let (extent, stride) = text.split_once(':')?;
                Some((extent.parse().ok()?, stride.parse().ok()?))
            };
            let loops: Option<Vec<(usize, i64)>> = loops.split_terminator(',').map(one).collect();
            View::new(offset.parse().ok()?, &loops?).ok()
        };
        read().ok_or_else(|| wrong(text))
    }
}

#[cfg(test)]
mod tests {
    use reshard_test_support::{TestResult, properties};

    use super::*;

    /// The definition: one loop inside of the other.
    fn by_loops(offset: i64, loops: &[(usize, i64)]) -> Vec<i64> {
        let Some((&(extent, stride), inner)) = loops.split_first() else { return vec![offset] };
        (0..extent as i64).flat_map(|i| by_loops(offset + i * stride, inner)).collect()
    }

    properties! {
        /// The elements are those of the loops; equal lists of elements are equal views; the text reads as it prints.
        fn a_view_is_its_loops(offset: u8, loops: Vec<(u8, i8)>) -> TestResult {
            let loops = loops.iter().take(4).map(|(extent, stride)| (usize::from(extent % 4) + 1, i64::from(*stride)));
            let loops: Vec<(usize, i64)> = loops.collect();
            let elements = by_loops(i64::from(offset), &loops);
            let Ok(view) = View::new(usize::from(offset), &loops) else {
                return TestResult::from_bool(elements.iter().any(|element| *element < 0));
            };
            let same: Vec<i64> = view.elements().map(|element| element as i64).collect();
            let greatest = elements.iter().max().copied();
            TestResult::from_bool(
                same == elements
                    && (view.len(), Some(view.end() as i64 - 1)) == (elements.len(), greatest)
                    && view.to_string().parse() == Ok(view.clone())
                    && view.range().is_none_or(|range| range.eq(view.elements())),
            )
        }

        fn equal_elements_are_equal_views(a: Vec<(u8, i8)>, b: Vec<(u8, i8)>) -> TestResult {
            let view = |loops: &[(u8, i8)]| {
                let loops: Vec<(usize, i64)> =
                    loops.iter().take(3).map(|(e, s)| (usize::from(e % 3) + 1, i64::from(s.rem_euclid(4)))).collect();
                View::new(7, &loops).unwrap()
            };
            let (a, b) = (view(&a), view(&b));
            TestResult::from_bool((a == b) == a.elements().eq(b.elements()))
        }
    }

    #[test]
    fn what_is_no_view_says_how_one_is_written() {
        for text in [
            "",
            "3",
            "3+",
            "3+(",
            "-1+()",
            "3+(0:1)",
            "3+(5:-1)",
            "3+(2:1 )",
            "3+(2,1)",
            "1+(2:9223372036854775807)",
        ] {
            let message = format!(
                "cannot parse {text:?}: expected an offset and loops over strides, such as 3+(2:8,4:1)"
            );
            assert_eq!(text.parse::<View>().unwrap_err().to_string(), message);
        }
        let error = View::new(0, &[(3, -1)]).unwrap_err().to_string();
        assert!(error.starts_with("cannot parse \"0+(3:-1)\""), "{error}");
    }

    #[test]
    fn views_are_coalesced() {
        let print = |offset, loops: &[(usize, i64)]| View::new(offset, loops).unwrap().to_string();
        assert_eq!(print(0, &[(2, 4), (4, 1)]), "0+(8:1)");
        assert_eq!(print(5, &[(1, 9)]), "5+()");
        assert_eq!(print(5, &[(3, 0), (2, 2), (2, 1)]), "5+(3:0,4:1)");
        assert_eq!(print(3, &[(4, -1)]), "3+(4:-1)");
    }
}
