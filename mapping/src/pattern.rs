//! Matches the names of tensors against a name with variables.

use std::collections::HashSet;

use crate::error::{Error, ErrorKind, shown};
use crate::name::{Bound, Part, Variable, unbound};

/// The most steps of matching one name.
const MOST_STEPS: usize = 1 << 18;

/// A name with variables, to match the names of tensors with.
///
/// `*` is any text without a line break, as short as possible; `{x}` is at least one character other than a dot,
/// a slash, as many as possible; `#` is digits. The first match in this order of preference is the result. A
/// variable that occurs again must be the same text again. Positions that failed are remembered, with the spans of
/// variables that occur again, so a match takes polynomial time; a bound on the steps limits hostile names.
#[derive(Clone, Debug)]
pub(crate) struct NamePattern {
    parts: Vec<Part>,
    /// For each part: the part where its variable occurs first, if that is an earlier one.
    first: Vec<Option<usize>>,
    /// For each part: `true` if its variable occurs again later.
    again: Vec<bool>,
}

type Span = (usize, usize);

struct Search<'a> {
    name: &'a str,
    spans: Vec<Option<Span>>,
    failed: HashSet<(usize, usize, Vec<Span>)>,
    steps: usize,
}

impl NamePattern {
    pub(crate) fn new(parts: Vec<Part>) -> Result<Self, Error> {
        let mut first = vec![None; parts.len()];
        let mut again = vec![false; parts.len()];
        for (k, part) in parts.iter().enumerate() {
            if let Part::Number(name) = part {
                return Err(unbound(name));
            }
            let earlier = parts[..k].iter().position(|one| one == part);
            if let (Some(earlier), Part::Variable(_) | Part::Index) = (earlier, part) {
                first[k] = Some(earlier);
                again[earlier] = true;
            }
        }
        Ok(Self { parts, first, again })
    }

    /// Returns the text that every matching name starts with.
    pub(crate) fn prefix(&self) -> &str {
        match self.parts.first() {
            Some(Part::Text(text)) => text,
            Some(Part::Variable(_) | Part::Index | Part::Number(_)) | None => "",
        }
    }

    /// Returns the texts of the variables in a name, if it matches.
    ///
    /// The number of a `#` is `None` if it does not fit the machine; no tensor has it.
    pub(crate) fn matches(&self, name: &str) -> Result<Option<Bound>, Error> {
        if !name.starts_with(self.prefix()) {
            return Ok(None);
        }
        if let Some(Part::Text(text)) = self.parts.last()
            && !name.ends_with(text.as_str())
        {
            return Ok(None);
        }
        let spans = vec![None; self.parts.len()];
        let mut search = Search { name, spans, failed: HashSet::new(), steps: 0 };
        if !self.from(0, 0, &mut search)? {
            return Ok(None);
        }
        let mut bound = Bound::default();
        for (part, span) in self.parts.iter().zip(&search.spans) {
            let Some((start, end)) = *span else { continue };
            let text = &name[start..end];
            match part {
                Part::Variable(variable) => {
                    bound.texts.insert(variable.clone(), text.to_owned());
                }
                Part::Index => bound.index = text.parse().ok(),
                Part::Text(_) | Part::Number(_) => {}
            }
        }
        Ok(Some(bound))
    }

    /// Returns `true` if the parts from `k` on match the name from `at` on; sets the spans of a match.
    fn from(&self, k: usize, at: usize, search: &mut Search<'_>) -> Result<bool, Error> {
        search.steps += 1;
        if search.steps > MOST_STEPS {
            let name = shown(search.name);
            let message =
                format!("matching `{name}` takes over {MOST_STEPS} steps; use fewer variables in a name");
            return Err(Error::new(ErrorKind::TooComplex, message));
        }
        let name = search.name;
        let Some(part) = self.parts.get(k) else { return Ok(at == name.len()) };
        let key = self.key(k, at, search);
        if search.failed.contains(&key) {
            return Ok(false);
        }
        let found = match (part, self.first[k].and_then(|first| search.spans[first])) {
            (Part::Text(text), _) => self.literal(k, at, text, search)?,
            (Part::Variable(_) | Part::Index | Part::Number(_), Some((start, end))) => {
                self.literal(k, at, &name[start..end], search)?
            }
            (Part::Variable(Variable::Star(_)), None) => self.shortest(k, at, search)?,
            (Part::Variable(Variable::Named(_)), None) => {
                self.longest(k, at, |c| c != '.' && c != '/', search)?
            }
            (Part::Index, None) => self.longest(k, at, |c| c.is_ascii_digit(), search)?,
            (Part::Number(_), None) => false,
        };
        if !found {
            search.failed.insert(key);
        }
        Ok(found)
    }

    /// Returns the state that decides if the rest matches.
    fn key(&self, k: usize, at: usize, search: &Search<'_>) -> (usize, usize, Vec<Span>) {
        let spans = (0..k).filter(|j| self.again[*j]).filter_map(|j| search.spans[j]);
        (k, at, spans.collect())
    }

    fn literal(&self, k: usize, at: usize, text: &str, search: &mut Search<'_>) -> Result<bool, Error> {
        Ok(search.name[at..].starts_with(text) && self.from(k + 1, at + text.len(), search)?)
    }

    /// Tries the texts of a `*`, the shortest first.
    ///
    /// A `*` that fails at a position fails at all later ones of the line, as their ends are among those tried.
    fn shortest(&self, k: usize, at: usize, search: &mut Search<'_>) -> Result<bool, Error> {
        let name = search.name;
        let line = name[at..].find('\n').map_or(name.len(), |end| at + end);
        for end in name[at..line].char_indices().map(|(end, _)| at + end).chain([line]) {
            if end > at {
                let key = self.key(k, end, search);
                if !search.failed.insert(key) {
                    break;
                }
            }
            search.spans[k] = Some((at, end));
            if self.from(k + 1, end, search)? {
                return Ok(true);
            }
        }
        search.spans[k] = None;
        Ok(false)
    }

    /// Tries the nonempty texts of these characters, the longest first.
    fn longest(
        &self,
        k: usize,
        at: usize,
        fits: impl Fn(char) -> bool,
        search: &mut Search<'_>,
    ) -> Result<bool, Error> {
        let text = &search.name[at..];
        let length = text.find(|c| !fits(c)).unwrap_or(text.len());
        let text = &text[..length];
        let ends = text.char_indices().rev().map(|(start, c)| at + start + c.len_utf8());
        self.any_of(k, at, ends, search)
    }

    /// Tries these ends of the text of a variable.
    fn any_of(
        &self,
        k: usize,
        at: usize,
        ends: impl Iterator<Item = usize>,
        search: &mut Search<'_>,
    ) -> Result<bool, Error> {
        for end in ends {
            search.spans[k] = Some((at, end));
            if self.from(k + 1, end, search)? {
                return Ok(true);
            }
        }
        search.spans[k] = None;
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use crate::error::ErrorKind;
    use crate::name::{Bound, Name};
    use crate::number::Numbers;

    fn found(pattern: &str, name: &str) -> Option<String> {
        let numbers = Numbers::from([("h".to_owned(), 32)]);
        let pattern = Name::parse(pattern).unwrap().pattern(&numbers, &Bound::default()).unwrap();
        pattern.matches(name).unwrap().map(|bound| {
            let texts: Vec<String> = bound.texts.into_values().collect();
            bound.index.map_or(texts.join(","), |index| format!("{}#{index}", texts.join(",")))
        })
    }

    #[test]
    fn variables_match_what_they_denote() {
        let cases = [
            ("a.*.c", "a.b.c", Some("b")),
            ("a.*.c", "a.b.c.c", Some("b.c")),
            ("*.*", "a.b.c", Some("a,b.c")),
            ("*b*", "abcb", Some("a,cb")),
            ("{x}.w", "a.b.w", None),
            ("{x}{y}", "abc", Some("ab,c")),
            ("{x}.{x}", "ab.ab", Some("ab")),
            ("{x}.{x}", "ab.a", None),
            ("*{x}-{x}", "abc-bc", Some("a,bc")),
            ("e.#.w", "e.12.w", Some("#12")),
            ("e.#.w", "e.1a.w", None),
            ("e.#.#", "e.7.7", Some("#7")),
            ("e.#.#", "e.7.77", None),
            ("l$h.*", "l32.w", Some("w")),
            ("*", "a\nb", None),
            ("*é{x}", "aéü", Some("a,ü")),
            ("a{b-c}", "a{b-c}", Some("")),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(found(pattern, name).as_deref(), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn hostile_names_end_soon() {
        let name = "a".repeat(2000);
        assert_eq!(found(&format!("{}b*", "*a".repeat(30)), &format!("{name}c")), None);
        let many =
            Name::parse(&"{x}".repeat(2)).unwrap().pattern(&Numbers::new(), &Bound::default()).unwrap();
        assert!(many.matches(&name).unwrap().is_some());
        let worse = Name::parse("{a}{b}{c}{d}{a}{b}{c}{d}.").unwrap();
        let worse = worse.pattern(&Numbers::new(), &Bound::default()).unwrap();
        let error = worse.matches(&format!("{}-.", "a".repeat(1999))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooComplex);
        assert_eq!(Name::parse(&"*".repeat(200)).unwrap_err().kind(), ErrorKind::TooComplex);
        assert_eq!(Name::parse("{N}").unwrap_err().kind(), ErrorKind::Syntax);
        assert_eq!(Name::parse("{_0}").unwrap_err().kind(), ErrorKind::Syntax);
    }
}
