//! Limits on the size of pictures; parts beyond them are left out, with a note.

/// Limits on how much of a value is drawn. A part that is left out has a mark in the picture and a note.
///
/// ```
/// use reshard_draw::Limits;
/// use reshard_sharding::Mesh;
/// let mesh: Mesh = "x=64".parse()?;
/// let small = reshard_draw::mesh(&mesh, Limits { side: 8, ..Limits::USUAL });
/// assert!(!small.notes.is_empty());
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Cells along a side of a grid.
    pub side: usize,
    /// Ranks that are drawn individually.
    pub ranks: usize,
    /// Rows of a table, and lines of bars.
    pub rows: usize,
    /// Bars in all.
    pub bars: usize,
}

impl Limits {
    /// The limits of a usual page.
    #[doc(hidden)]
    pub const USUAL: Self = Self { side: 24, ranks: 32, rows: 200, bars: 4000 };

    /// Returns about half of each limit, at least one.
    #[doc(hidden)]
    #[must_use]
    pub fn smaller(self) -> Self {
        let half = |n: usize| (n / 2).max(1);
        Self { side: half(self.side), ranks: half(self.ranks), rows: half(self.rows), bars: half(self.bars) }
    }

    /// Returns `true` if no smaller limits exist.
    pub(crate) fn are_least(self) -> bool {
        self == self.smaller()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::USUAL
    }
}

/// One of a list that is drawn, or those that are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The one of this number.
    At(usize),
    /// The number of elements left out, from this index on.
    LeftOut { from: usize, count: usize },
}

/// Returns the first and the last of a list of `n`, at most `most` of them.
pub(crate) fn shown(n: usize, most: usize) -> Vec<Shown> {
    let most = most.max(1);
    if n <= most {
        return (0..n).map(Shown::At).collect();
    }
    let (head, tail) = (most.div_ceil(2), most / 2);
    let first = (0..head).map(Shown::At);
    let between = Shown::LeftOut { from: head, count: n - most };
    first.chain([between]).chain((n - tail..n).map(Shown::At)).collect()
}

/// Returns the start of a text that may be long.
pub(crate) fn short(text: &str, most: usize) -> String {
    let mut characters = text.chars();
    let start: String = characters.by_ref().take(most).collect();
    if characters.next().is_some() { format!("{start}..") } else { start }
}

/// Returns the start of the printed value, for titles.
pub(crate) fn titled(value: &impl core::fmt::Display) -> String {
    short(&value.to_string(), 400)
}

/// Formats a count with its noun: `3 rows`, `1 row`.
pub(crate) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::{Shown, shown};

    /// Property: the shown and left-out elements are all elements, in order, within the limit.
    #[test]
    fn what_is_shown_and_what_is_left_out_are_all() {
        for n in 0..40 {
            for most in 1..12 {
                let mut next = 0;
                let mut drawn = 0;
                for one in shown(n, most) {
                    match one {
                        Shown::At(at) => {
                            assert_eq!(at, next);
                            next += 1;
                            drawn += 1;
                        }
                        Shown::LeftOut { from, count } => {
                            assert!(from == next && count > 0);
                            next += count;
                        }
                    }
                }
                assert_eq!((next, drawn), (n, n.min(most)));
            }
        }
    }
}
