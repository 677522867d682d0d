//! Lists in texts, with brackets that contain separators.

/// Splits a text at the separators outside of brackets, and trims the parts.
pub fn outside_brackets(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut depth = 0usize;
    let parts = text.split(move |c| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == separator && depth == 0
    });
    parts.map(str::trim)
}
