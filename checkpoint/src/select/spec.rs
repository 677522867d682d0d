//! Placements of tensors, by name pattern.
//!
//! ```toml
//! "*.attention.*.weight" = "R,S(0)"
//! "embeddings.*"         = "S(0),R"
//! "*"                    = "R,R"
//! ```
//!
//! A pattern is a glob, or a regular expression between slashes: `'/\.(q|k|v)\.weight$/'`, which may match
//! anywhere in a name. The first pattern that matches a name wins; a pattern that never wins is an error,
//! because it is either misspelled or shadowed by an earlier one.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::bytes::read::read_text;
use crate::error::Error;
use crate::select::pattern::Pattern;

/// The rules of a file, in its order.
///
/// ```
/// use reshard_checkpoint::PlacementSpec;
///
/// let spec: PlacementSpec = "\"*.weight\" = \"R,S(0)\"\n\"*\" = \"R,R\"".parse()?;
/// assert_eq!(spec.placements("mlp.weight"), Some("R,S(0)"));
/// assert_eq!(spec.placements("mlp.bias"), Some("R,R"));
/// assert_eq!(spec.to_string().parse::<PlacementSpec>()?, spec);
/// # Ok::<(), reshard_checkpoint::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementSpec {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    pattern: Pattern,
    placements: String,
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.pattern.text() == other.pattern.text() && self.placements == other.placements
    }
}

impl Eq for Rule {}

impl Rule {
    fn new(pattern: &str, placements: &str) -> Result<Self, Error> {
        let pattern = Pattern::new(pattern).map_err(|why| Error::malformed("spec", why))?;
        Ok(Self { pattern, placements: placements.to_owned() })
    }
}

impl fmt::Display for PlacementSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rule in &self.rules {
            let mut line = toml::Table::new();
            line.insert(rule.pattern.text().to_owned(), toml::Value::String(rule.placements.clone()));
            write!(f, "{line}")?;
        }
        Ok(())
    }
}

impl PlacementSpec {
    /// Returns a spec of patterns with their placements, in this order.
    ///
    /// ```
    /// use reshard_checkpoint::PlacementSpec;
    /// let spec = PlacementSpec::new([("*.bias", "R,R"), ("*", "S(0),R")])?;
    /// assert_eq!(spec.placements("mlp.weight"), Some("S(0),R"));
    /// # Ok::<(), reshard_checkpoint::Error>(())
    /// ```
    pub fn new<'a>(rules: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, Error> {
        let rules = rules.into_iter().map(|(pattern, placements)| Rule::new(pattern, placements));
        Ok(Self { rules: rules.collect::<Result<_, _>>()? })
    }

    /// Reads the rules of a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = read_text(path).map_err(|error| {
            Error::unreadable_as("spec", format!("the spec {} cannot be read: {error}", path.display()))
        })?;
        text.parse::<Self>().map_err(|error| error.about(format!("the spec {}", path.display())))
    }

    /// Returns the placements of the first pattern that matches.
    pub fn placements(&self, name: &str) -> Option<&str> {
        self.winner(name).map(|rule| &self.rules[rule].placements[..])
    }

    /// Checks that every pattern decides about at least one of these names.
    pub(crate) fn all_used<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<(), Error> {
        let mut used = vec![false; self.rules.len()];
        for rule in names.filter_map(|name| self.winner(name)) {
            used[rule] = true;
            if used.iter().all(|used| *used) {
                return Ok(());
            }
        }
        let unused: Vec<&str> = self
            .rules
            .iter()
            .zip(used)
            .filter(|(_, used)| !used)
            .map(|(rule, _)| rule.pattern.text())
            .collect();
        if unused.is_empty() {
            return Ok(());
        }
        let message = format!(
            "the patterns `{}` apply to no tensor; they are misspelled, or earlier patterns match first",
            unused.join("`, `")
        );
        Err(Error::refused("unused_pattern", message))
    }

    /// Returns the first rule that matches.
    fn winner(&self, name: &str) -> Option<usize> {
        self.rules.iter().position(|rule| rule.pattern.matches(name))
    }
}

impl FromStr for PlacementSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            let reason = error.message().lines().next().unwrap_or_default().to_owned();
            Error::malformed("spec", format!("line {line} is not TOML: {reason}"))
        })?;
        let mut rules = Vec::new();
        for (pattern, value) in table {
            let toml::Value::String(placements) = value else {
                let message = format!(
                    "the pattern `{pattern}` needs placements as a string, not as {}",
                    value.type_str()
                );
                return Err(Error::malformed("spec", message));
            };
            rules.push(Rule::new(&pattern, &placements)?);
        }
        Ok(Self { rules })
    }
}

#[cfg(test)]
mod tests {
    use super::PlacementSpec;

    fn parsed(text: &str) -> PlacementSpec {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_match_wins_and_order_is_the_files() {
        let spec = parsed("\"z.*\" = \"S(0)\"\n\"*\" = \"R\"\n");
        assert_eq!(spec.placements("z.w"), Some("S(0)"));
        assert_eq!(spec.placements("a.w"), Some("R"));
        spec.all_used(["z.w", "a.w"].into_iter()).unwrap();
        let hidden = parsed("\"*\" = \"R\"\n\"z.*\" = \"S(0)\"\n");
        assert_eq!(hidden.placements("z.w"), Some("R"));
        assert!(hidden.all_used(["z.w", "a.w"].into_iter()).unwrap_err().to_string().contains("z.*"));
    }

    #[test]
    fn what_is_no_spec_is_refused_in_one_sentence() {
        for text in ["\"a\" = 3", "a b c", "\"[\" = \"R\"", "[a]\nb = \"R\""] {
            let error = text.parse::<PlacementSpec>().expect_err(text).to_string();
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
