//! Foreign texts in messages: only characters that control a terminal or end the line are escaped.

/// A text that can be inserted into a message.
pub(crate) trait Shown {
    /// Returns the text on one line, with control characters and bidirectional controls escaped.
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
