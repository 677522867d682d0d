//! The excerpts of texts in errors: all of a short line, of a long one the part around a position.

use std::fmt;

/// The line of a text at a position, as errors show it.
///
/// This is up to `WHOLE` characters, of a longer line `MARGIN` on either side of the position, with `…` for the
/// omitted parts.
///
/// ```
/// use reshard_layout::Excerpt;
///
/// assert_eq!(Excerpt::around("(4,2:(1,4)", 4).caret(), "(4,2:(1,4)\n    ^");
/// let long = Excerpt::around(&"(1,2),".repeat(1000), 3000);
/// assert!(long.to_string().starts_with("…(1,2),") && long.caret().len() < 300);
/// ```
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Excerpt {
    line: String,
    column: usize,
}

impl Excerpt {
    /// Maximum length of a line, in characters, that is shown in full.
    pub const WHOLE: usize = 160;

    /// Number of characters of a longer line on either side of the position.
    const MARGIN: usize = 60;

    /// Returns the line around byte `at` of a text, or around its end.
    pub fn around(text: &str, at: usize) -> Self {
        let mut at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let before = text[..at].rsplit('\n').next().unwrap_or_default();
        let after = text[at..].split('\n').next().unwrap_or_default();
        let short = |text: &str, most: usize| text.chars().nth(most).is_none();
        let whole =
            short(before, Self::WHOLE) && short(after, Self::WHOLE - before.chars().count().min(Self::WHOLE));
        let kept = if whole { Self::WHOLE } else { Self::MARGIN };
        let mut line: Vec<char> = before.chars().rev().take(kept).collect();
        if !short(before, kept) {
            line.push('…');
        }
        line.reverse();
        let column = line.len();
        line.extend(after.chars().take(kept));
        if !short(after, kept) {
            line.push('…');
        }
        // A control character would shift the caret.
        let line = line.into_iter().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Self { line, column }
    }

    /// Returns the beginning of a text, for errors without a position.
    pub fn of(text: &str) -> Self {
        Self::around(text, 0)
    }

    /// Returns the excerpt with a caret under the position.
    pub fn caret(&self) -> String {
        format!("{}\n{}^", self.line, " ".repeat(self.column))
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}
