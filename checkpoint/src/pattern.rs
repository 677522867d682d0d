//! Patterns of names: a glob, or a regular expression between slashes.

use globset::{Glob, GlobMatcher};
use regex::Regex;

/// `*.weight`, `layers.{0,1}.*`, or `/layers\.\d+\.(q|k|v)/`, which may match anywhere in a name.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    text: String,
    matcher: Matcher,
}

#[derive(Clone, Debug)]
enum Matcher {
    Glob(Box<GlobMatcher>),
    Regex(Regex),
}

impl Pattern {
    /// The pattern of a text; or why it is none.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let between = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
        let matcher = if let Some(expression) = between {
            Matcher::Regex(regex(expression)?)
        } else {
            let glob = Glob::new(text)
                .map_err(|error| format!("`{}` is no glob: {}", text.escape_debug(), error.kind()))?;
            Matcher::Glob(Box::new(glob.compile_matcher()))
        };
        Ok(Self { text: text.to_owned(), matcher })
    }

    /// Its text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        match &self.matcher {
            Matcher::Glob(glob) => glob.is_match(name),
            Matcher::Regex(regex) => regex.is_match(name),
        }
    }
}

/// A regular expression; or why it is none, in one sentence.
pub(crate) fn regex(expression: &str) -> Result<Regex, String> {
    Regex::new(expression).map_err(|error| {
        // The last line says what is wrong; those before it draw where.
        let said = error.to_string();
        let why = said.lines().last().unwrap_or_default().trim().trim_start_matches("error: ").to_owned();
        format!("`{}` is no regular expression: {why}", expression.escape_debug())
    })
}
