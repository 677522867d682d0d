//! Renaming by a regular expression, as in `sed`: `s/EXPRESSION/NEW/`.

use std::str::FromStr;

use regex_lite::Regex;
use reshard_layout::internal::counted;

use crate::error::Error;
use crate::select::pattern::regex;
use crate::shown::Shown;

/// A rule such as `s/^model\.(.*)/decoder.$1/`, which replaces the first match in a name.
///
/// `s/a/b/g` replaces every match. Any other character may be used in place of the slashes, and `\1` in place
/// of `$1`.
#[derive(Clone, Debug)]
pub(crate) struct Rename {
    text: String,
    expression: Regex,
    new: String,
    everywhere: bool,
}

impl Rename {
    /// Returns the text from which it was parsed.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the new name, if it differs.
    pub(crate) fn of(&self, name: &str) -> Option<String> {
        let limit = usize::from(!self.everywhere);
        let new = self.expression.replacen(name, limit, &self.new);
        (*new != *name).then(|| new.into_owned())
    }
}

impl FromStr for Rename {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |why: &str| {
            let said = text.shown();
            Error::malformed("rename", format!("`{said}` is not of the form s/EXPRESSION/NEW/: {why}"))
        };
        let rest = text.strip_prefix('s').ok_or_else(|| bad("it does not begin with s"))?;
        let slash = rest.chars().next().filter(|c| !c.is_alphanumeric() && *c != '\\' && !c.is_whitespace());
        let slash = slash.ok_or_else(|| bad("a slash must follow the s"))?;
        let mut parts: Vec<String> = vec![String::new()];
        let mut chars = rest.chars().skip(1);
        while let Some(c) = chars.next() {
            let Some(part) = parts.last_mut() else { break };
            if c == slash {
                parts.push(String::new());
            } else if c == '\\' {
                match chars.next() {
                    // An escaped delimiter is part of the text.
                    Some(next) if next == slash => part.push(slash),
                    Some(next) => part.extend(['\\', next]),
                    None => part.push('\\'),
                }
            } else {
                part.push(c);
            }
        }
        let [expression, new, flags] = &parts[..] else {
            return Err(bad(&format!("it has {} of the three {slash}", parts.len())));
        };
        let everywhere = match &flags[..] {
            "" => false,
            "g" => true,
            other => return Err(bad(&format!("unknown flag `{}`; the only flag is g", other.shown()))),
        };
        let expression = regex(expression).map_err(|why| bad(&why))?;
        let new = replacement(new);
        let groups = regex(r"\$\{(\d+)\}").map_err(|why| bad(&why))?;
        for number in groups.captures_iter(&new).filter_map(|found| found[1].parse::<usize>().ok()) {
            if number >= expression.captures_len() {
                let there = expression.captures_len() - 1;
                return Err(bad(&format!(
                    "${number} is not among the {there} of the expression",
                    there = counted(there, "group", "groups")
                )));
            }
        }
        Ok(Self { text: text.to_owned(), expression, new, everywhere })
    }
}

/// Converts a replacement to the syntax of the regex library: `${1}` for `$1` and `\1`.
///
/// The braces keep text that follows a number from being parsed as part of the name.
fn replacement(text: &str) -> String {
    let mut new = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek().copied()) {
            ('$' | '\\', Some(digit)) if digit.is_ascii_digit() => {
                let mut number = String::new();
                while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                    number.push(digit);
                }
                new.extend(["${", &number, "}"]);
            }
            ('\\', Some(next)) => {
                chars.next();
                new.push_str(if next == '$' { "$$" } else { "" });
                if next != '$' {
                    new.push(next);
                }
            }
            (c, _) => new.push(c),
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::Rename;

    #[test]
    fn the_first_place_or_every_place_gets_the_new_text() {
        let cases = [
            ("s/a/b/", "banana", Some("bbnana")),
            ("s/a/b/g", "banana", Some("bbnbnb")),
            ("s/x/y/", "banana", None),
            (r"s/^model\.(\d+)\.(.*)/layers.$1.$2/", "model.3.w", Some("layers.3.w")),
            (r"s/(\d+)/\1_0/", "l.7.w", Some("l.7_0.w")),
            (r"s/(\d+)/$1_0/", "l.7.w", Some("l.7_0.w")),
            ("s#/#.#g", "a/b/c", Some("a.b.c")),
            (r"s/\//./g", "a/b", Some("a.b")),
            (r"s/(?P<n>\d+)/<${n}>/", "l.7", Some("l.<7>")),
            (r"s/a/\$1/", "a", Some("$1")),
            ("s/^m.//", "m.w", Some("w")),
        ];
        for (text, name, expected) in cases {
            let rename: Rename = text.parse().unwrap();
            assert_eq!(rename.of(name).as_deref(), expected, "{text} {name}");
        }
    }

    #[test]
    fn what_is_no_renaming_is_refused_in_one_sentence() {
        for text in [
            "", "s", "a/b/c/", "s/a", "s/a/b", "s/a/b/c/", "s/a/b/x", "s/(/b/", r"s/a/$1/", "saabaca",
            "s/[/b/",
        ] {
            let said = text.parse::<Rename>().expect_err(text).to_string();
            assert!(!said.contains('\n') && said.contains("s/EXPRESSION/NEW/"), "{said}");
        }
    }
}
