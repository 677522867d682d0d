//! Makes user text safe to show: no control characters, and none that changes the direction of writing.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar as _;

/// Returns `true` if a character has an effect other than being visible.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}')
}

/// Returns the text with a mark in place of each character that would do something.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().any(acts) {
        Cow::Owned(text.chars().map(|c| if acts(c) { '\u{fffd}' } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns the number of terminal columns of a text.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| if acts(c) { 1 } else { c.width().unwrap_or(0) }).sum()
}

#[cfg(test)]
mod tests {
    use super::{clean, width};

    #[test]
    fn nothing_acts() {
        assert_eq!(clean("a\u{1b}[31m\nb\u{202e}c"), "a\u{fffd}[31m\u{fffd}b\u{fffd}c");
        assert_eq!(clean("dp=2, \u{5f20}\u{91cf}"), "dp=2, \u{5f20}\u{91cf}");
        assert_eq!((width("\u{5f20}\u{91cf}"), width("ab\u{301}")), (4, 2));
    }
}
