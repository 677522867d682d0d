//! Name patterns: a glob, or a regular expression between slashes.

use crate::shown::Shown;
use std::mem;
use std::str::Chars;

use regex_lite::{Regex, escape};

/// A pattern such as `*.weight`, `layers.{0,1}.*` or `/layers\.\d+\.(q|k|v)/` (matches anywhere).
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    text: String,
    /// `None` for a glob of text and `*` alone, as most are, which needs no expression.
    regex: Option<Regex>,
}

impl Pattern {
    /// Parses a pattern; the error is the reason why it is invalid.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let between = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
        let regex = if let Some(expression) = between {
            Some(regex(expression)?)
        } else if text.contains(['?', '[', '{', '}', '\\']) || text.contains("**") {
            let whole = of_glob(text).and_then(|glob| Regex::new(&glob).map_err(|error| error.to_string()));
            Some(whole.map_err(|why| format!("`{}` is not a valid glob: {why}", text.shown()))?)
        } else {
            None
        };
        Ok(Self { text: text.to_owned(), regex })
    }

    /// Returns the text of the pattern.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        match &self.regex {
            Some(regex) => regex.is_match(name),
            None => stars(&self.text, name).is_some(),
        }
    }
}

/// Compiles a regular expression; the error is one line with the reason.
pub(crate) fn regex(expression: &str) -> Result<Regex, String> {
    Regex::new(expression)
        .map_err(|error| format!("`{}` is not a valid regular expression: {error}", expression.shown()))
}

/// Returns the text that each `*` of a pattern matches in a name, each as short as possible, left to right.
fn stars<'a>(pattern: &str, name: &'a str) -> Option<Vec<&'a str>> {
    let mut pieces = pattern.split('*');
    let mut name = name.strip_prefix(pieces.next()?)?;
    let Some(last) = pieces.next_back() else { return name.is_empty().then(Vec::new) };
    name = name.strip_suffix(last)?;
    let mut texts = Vec::new();
    for piece in pieces {
        let (text, rest) = name.split_once(piece)?;
        texts.push(text);
        name = rest;
    }
    texts.push(name);
    Some(texts)
}

/// Translates a glob to a regular expression; the error is the reason why it is invalid.
///
/// `?` is a character, `*` any text, including slashes; `[a-z]` and `[!a-z]` are one of some characters and
/// one of all others. `{a,b}` is one of some globs, of which empty ones are ignored, and `\` quotes the next
/// character. `**/` at the start or after a slash matches nothing, or any text and a slash: `**/a` is `a` and
/// names that end with `/a`, and `a/**/b` is also `a/b`.
fn of_glob(glob: &str) -> Result<String, String> {
    let mut rest = glob.chars();
    // For each open `{`: the text before it and its globs so far. `now` is the text after them.
    let (mut open, mut now) = (Vec::<Vec<String>>::new(), String::new());
    let mut behind_slash = true;
    while let Some(c) = rest.next() {
        let is_behind = mem::take(&mut behind_slash);
        match c {
            '*' if is_behind && rest.as_str().starts_with("*/") => {
                rest.nth(1);
                now.push_str("(?:.*/)?");
                behind_slash = true;
            }
            '*' => now.push_str(".*"),
            '?' => now.push('.'),
            '[' => now.push_str(&class(&mut rest)?),
            '{' => {
                open.push(vec![mem::take(&mut now)]);
                behind_slash = true;
            }
            ',' if let Some(globs) = open.last_mut() => {
                globs.push(mem::take(&mut now));
                behind_slash = true;
            }
            '}' => {
                let unopened = "unopened alternate group; missing '{' (maybe escape '}' with '[}]'?)";
                let mut globs = open.pop().ok_or(unopened)?;
                globs.push(mem::take(&mut now));
                now = globs.remove(0);
                globs.retain(|glob| !glob.is_empty());
                if !globs.is_empty() {
                    now.extend(["(?:", &globs.join("|"), ")"]);
                }
            }
            c => {
                let c = if c == '\\' { rest.next().ok_or("dangling '\\'")? } else { c };
                now.push_str(&escape(c.encode_utf8(&mut [0; 4])));
                behind_slash = c == '/';
            }
        }
    }
    if open.is_empty() {
        Ok(format!("(?s)^{now}$"))
    } else {
        Err("unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)".to_owned())
    }
}

/// Parses the characters of a class, after its `[`: single ones and ranges; a leading `]` or `-` is literal.
fn class(rest: &mut Chars<'_>) -> Result<String, String> {
    let unclosed = "unclosed character class; missing ']'";
    let mut next = rest.next();
    let negated = matches!(next, Some('!' | '^'));
    if negated {
        next = rest.next();
    }
    let mut ranges: Vec<(char, char)> = Vec::new();
    let mut in_range = false;
    loop {
        let c = next.ok_or(unclosed)?;
        match ranges.last_mut() {
            Some(_) if c == ']' => break,
            Some(_) if c == '-' && !in_range => in_range = true,
            Some((low, high)) if in_range => {
                if c < *low {
                    return Err(format!("invalid range; '{low}' > '{c}'"));
                }
                *high = c;
                in_range = false;
            }
            _ => ranges.push((c, c)),
        }
        next = rest.next();
    }
    if in_range {
        ranges.push(('-', '-'));
    }
    let said = ranges.iter().map(|&(low, high)| {
        let [low, high] = [low, high].map(|c| escape(c.encode_utf8(&mut [0; 4])));
        format!("{low}-{high}")
    });
    Ok(format!("[{}{}]", if negated { "^" } else { "" }, said.collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::{Pattern, stars};

    /// Returns all texts of at most `len` of some characters.
    fn texts(of: &[char], len: usize) -> Vec<String> {
        let mut all = vec![String::new()];
        let mut longer = 0;
        for _ in 0..len {
            let from = longer;
            longer = all.len();
            for at in from..longer {
                all.extend(of.iter().map(|c| format!("{}{c}", all[at])).collect::<Vec<_>>());
            }
        }
        all
    }

    /// Expands the braces of a glob, with `<` and `>` around each choice; `None` if the glob is invalid.
    fn without_braces(glob: &str) -> Option<Vec<String>> {
        // The last `{` contains no other.
        let Some(open) = glob.rfind('{') else { return (!glob.contains('}')).then(|| vec![glob.to_owned()]) };
        let close = open + glob[open..].find('}')?;
        let (before, after) = (&glob[..open], &glob[close + 1..]);
        let mut inside: Vec<&str> = glob[open + 1..close].split(',').collect();
        inside.retain(|one| one.contains(|c| c != '<' && c != '>'));
        if inside.is_empty() {
            inside.push("");
        }
        let all = inside.iter().map(|one| without_braces(&format!("{before}<{one}>{after}")));
        Some(all.collect::<Option<Vec<_>>>()?.concat())
    }

    /// Returns `true` if the rest of a glob without braces matches a name.
    fn means(glob: &str, at: usize, name: &str) -> bool {
        let behind_slash = at == 0 || glob[..at].ends_with(['/', '<']);
        let any = |step: usize, end: &str| {
            (0..=name.len()).any(|len| name[..len].ends_with(end) && means(glob, at + step, &name[len..]))
        };
        match glob[at..].chars().next() {
            Some('*') if behind_slash && glob[at..].starts_with("**/") => {
                means(glob, at + 3, name) || any(3, "/")
            }
            Some('*') => any(1, ""),
            Some('?') => !name.is_empty() && means(glob, at + 1, &name[1..]),
            Some('<' | '>') => means(glob, at + 1, name),
            Some(c) => name.starts_with(c) && means(glob, at + 1, &name[1..]),
            None => name.is_empty(),
        }
    }

    #[test]
    fn globs_match_what_they_mean() {
        let names = texts(&['a', '/'], 4);
        for glob in texts(&['a', '/', '*', '{', ',', '}'], 6).into_iter().chain(texts(&['a', '?', '*'], 5)) {
            if glob.len() > 1 && glob.starts_with('/') && glob.ends_with('/') {
                continue;
            }
            let (pattern, meaning) = (Pattern::new(&glob), without_braces(&glob));
            assert_eq!(pattern.is_ok(), meaning.is_some(), "{glob}");
            let (Ok(pattern), Some(globs)) = (pattern, meaning) else { continue };
            for name in &names {
                let expected = globs.iter().any(|glob| means(glob, 0, name));
                assert_eq!(pattern.matches(name), expected, "{glob} {name}");
            }
        }
    }

    #[test]
    fn a_star_stands_for_as_little_as_can_be() {
        for pattern in texts(&['a', 'b', '*'], 5) {
            for name in texts(&['a', 'b'], 5) {
                let found = stars(&pattern, &name);
                assert_eq!(found.is_some(), means(&pattern, 0, &name), "{pattern} {name}");
                let Some(found) = found else { continue };
                let expression = format!("^{}$", pattern.replace('*', "(.*?)"));
                let expected = super::regex(&expression).unwrap();
                let expected = expected.captures(&name).unwrap();
                let expected: Vec<&str> =
                    expected.iter().skip(1).flatten().map(|text| text.as_str()).collect();
                assert_eq!(found, expected, "{pattern} {name}");
            }
        }
    }

    #[test]
    fn classes_escapes_and_whole_characters() {
        let cases = [
            ("[ab]", "a b", "c - ab"),
            ("[!ab]", "c é \n", "a b cc"),
            ("[^a]", "b ^", "a"),
            ("[]a]", "] a", "b"),
            ("[!]]", "a", "]"),
            ("[a-c]x", "ax bx cx", "dx -x x"),
            ("[a-]", "a -", "b"),
            ("[-a]", "a -", "b"),
            ("[+--]", "+ , -", "."),
            ("[\\^&&~[]", "\\ ^ & ~ [", "a"),
            ("[α-ω]?", "βé", "b β βab"),
            (r"\*a\?\{\[\\\b", r"*a?{[\b", r"xa?{[\b"),
            ("a.b|c(d)+$", "a.b|c(d)+$", "axb a.b"),
            ("*é?", "é! aéü", "é éüü"),
        ];
        for (glob, these, others) in cases {
            let pattern = Pattern::new(glob).unwrap();
            assert!(these.split(' ').all(|name| pattern.matches(name)), "{glob} {these}");
            assert!(!others.split(' ').any(|name| pattern.matches(name)), "{glob} {others}");
        }
        assert!(Pattern::new("[!a]*?").unwrap().matches("\n\n"));
    }

    #[test]
    fn what_is_no_pattern_is_refused_in_one_sentence() {
        let deep = format!("{}a{}", "{".repeat(100_000), "}".repeat(100_000));
        let cases = [
            ("[a", "is not a valid glob: unclosed character class; missing ']'"),
            ("[]", "is not a valid glob: unclosed character class; missing ']'"),
            ("[!", "is not a valid glob: unclosed character class; missing ']'"),
            ("[b-a]", "is not a valid glob: invalid range; 'b' > 'a'"),
            (
                "{a",
                "is not a valid glob: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)",
            ),
            (
                "a}",
                "is not a valid glob: unopened alternate group; missing '{' (maybe escape '}' with '[}]'?)",
            ),
            ("a\\", "is not a valid glob: dangling '\\'"),
            (&deep, "is not a valid glob: pattern has too much nesting"),
            ("/(/", "is not a valid regular expression: found open group without closing ')'"),
            ("/[/", "is not a valid regular expression: found unclosed character class"),
        ];
        for (text, why) in cases {
            let said = Pattern::new(text).expect_err(text);
            assert!(said.ends_with(why) && !said.contains('\n'), "{said}");
        }
    }
}
