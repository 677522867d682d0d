//! How much is drawn: what is more is left out, and said to be.

/// How much of a value is drawn. What is left out has a mark in the picture and a note beside it.
///
/// ```
/// use reshard_draw::Limits;
/// assert!(Limits::USUAL.side > Limits::USUAL.smaller().side);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Cells along a side of a grid.
    pub side: usize,
    /// Ranks that are drawn one by one.
    pub ranks: usize,
    /// Rows of a table, and lines of bars.
    pub rows: usize,
    /// Bars in all.
    pub bars: usize,
}

impl Limits {
    /// What a page has room for.
    pub const USUAL: Self = Self { side: 24, ranks: 32, rows: 200, bars: 4000 };

    /// About half of each, at least one.
    #[must_use]
    pub fn smaller(self) -> Self {
        let half = |n: usize| (n / 2).max(1);
        Self { side: half(self.side), ranks: half(self.ranks), rows: half(self.rows), bars: half(self.bars) }
    }

    /// Whether there is nothing smaller.
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
    /// So many, from this number on.
    LeftOut { from: usize, count: usize },
}

/// The first and the last of a list of `n`, at most `most` of them.
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

/// The start of a text that may be long.
pub(crate) fn short(text: &str, most: usize) -> String {
    let mut characters = text.chars();
    let start: String = characters.by_ref().take(most).collect();
    if characters.next().is_some() { format!("{start}..") } else { start }
}

/// The start of what a value is printed as, for titles.
pub(crate) fn titled(value: &impl core::fmt::Display) -> String {
    short(&value.to_string(), 400)
}

/// `3 rows`, `1 row`.
pub(crate) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::{Shown, shown};

    /// Law: what is shown and what is said to be left out are all, in order, and no more is shown than may be.
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
