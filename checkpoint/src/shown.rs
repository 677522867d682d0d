//! Texts of others in a message: a quote stays a quote, and only what would steer a terminal or end the line is an escape.

/// A text that can be put into a message.
pub(crate) trait Shown {
    /// The text on one line: control characters, and those that turn the direction of writing, as their escapes.
    fn shown(&self) -> String;
}

impl Shown for str {
    fn shown(&self) -> String {
        let steers = |c: char| {
            c.is_control()
                || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        let mut safe = String::with_capacity(self.len());
        for c in self.chars() {
            if steers(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
        }
        safe
    }
}
