//! Globs of `drop` and `[cast]`: `*`, `?`, `[a-z]` and `[!a-z]`, as in a shell; `*` matches dots and slashes too.

/// A part of a glob.
#[derive(Clone, Debug)]
enum Glyph {
    One(char),
    AnyOne,
    AnyText,
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl Glyph {
    /// Returns `true` if this matches one character.
    fn matches(&self, c: char) -> bool {
        match self {
            Self::One(one) => *one == c,
            Self::AnyOne => true,
            Self::AnyText => false,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
        }
    }
}

/// A compiled glob.
#[derive(Clone, Debug)]
pub(crate) struct Glob(Vec<Glyph>);

impl Glob {
    /// Compiles a glob; every text is one, as a `[` without `]` is literal.
    pub(crate) fn new(text: &str) -> Self {
        let text: Vec<char> = text.chars().collect();
        let (mut glyphs, mut at) = (Vec::new(), 0);
        // A search for `]` that fails once fails from there on, so that many `[` cost no quadratic time.
        let last_close = text.iter().rposition(|c| *c == ']');
        while at < text.len() {
            let c = text[at];
            at += 1;
            match c {
                '*' => glyphs.push(Glyph::AnyText),
                '?' => glyphs.push(Glyph::AnyOne),
                '[' if last_close.is_some_and(|close| close > at) => {
                    let negated = text[at] == '!';
                    let start = at + usize::from(negated);
                    // A `]` at the start is an element of the class.
                    match text[start + 1..].iter().position(|c| *c == ']') {
                        Some(length) => {
                            let end = start + 1 + length;
                            glyphs.push(Glyph::Class { negated, ranges: ranges(&text[start..end]) });
                            at = end + 1;
                        }
                        None => glyphs.push(Glyph::One(c)),
                    }
                }
                c => glyphs.push(Glyph::One(c)),
            }
        }
        Self(glyphs)
    }

    /// Returns `true` if the glob matches all of a name.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut glyph, mut at) = (0, 0);
        // Where the last `*` is and the end of the text it matches; only the last one ever needs to grow.
        let mut star: Option<(usize, usize)> = None;
        while at < name.len() {
            match self.0.get(glyph) {
                Some(Glyph::AnyText) => {
                    star = Some((glyph, at));
                    glyph += 1;
                }
                Some(one) if one.matches(name[at]) => (glyph, at) = (glyph + 1, at + 1),
                Some(_) | None => {
                    let Some((index, end)) = star else { return false };
                    star = Some((index, end + 1));
                    (glyph, at) = (index + 1, end + 1);
                }
            }
        }
        self.0[glyph..].iter().all(|glyph| matches!(glyph, Glyph::AnyText))
    }
}

/// Returns the ranges of a class; an empty range such as `b-a` matches nothing.
fn ranges(class: &[char]) -> Vec<(char, char)> {
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < class.len() {
        if at + 2 < class.len() && class[at + 1] == '-' {
            ranges.push((class[at], class[at + 2]));
            at += 3;
        } else {
            ranges.push((class[at], class[at]));
            at += 1;
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::Glob;

    #[test]
    fn globs_match_as_in_a_shell() {
        let cases = [
            ("*", " a a.b a/b", ""),
            ("a*b*c", "abc axbxc abbcc", "abcd ab xabc"),
            ("a?c", "abc a.c", "ac abbc"),
            ("l.[0-9].w", "l.3.w", "l.a.w l.10.w"),
            ("[!a]b", "bb", "ab b"),
            ("[]a]", "] a", "b"),
            ("[!]]", "a", "]"),
            ("[a-]", "a -", "b"),
            ("[b-a]", "", "a b -"),
            ("[a", "[a", "a"),
            ("[]", "[]", "]"),
            ("[!]", "[!]", "!"),
            ("{a,b}", "{a,b}", "a b"),
        ];
        for (glob, these, others) in cases {
            let compiled = Glob::new(glob);
            assert!(
                these.split(' ').all(|name| these.is_empty() || compiled.matches(name)),
                "{glob}: {these}"
            );
            assert!(!others.split(' ').any(|name| !others.is_empty() && compiled.matches(name)), "{glob}");
        }
        let slow = Glob::new(&"a*".repeat(3000));
        assert!(!slow.matches(&"a".repeat(2999)) && slow.matches(&"a".repeat(3001)));
        assert!(Glob::new(&"[".repeat(1 << 17)).matches(&"[".repeat(1 << 17)));
    }
}
