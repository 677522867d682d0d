//! A tensor shape as it is written: `64,32`, `[64,32]`, and `[]` or nothing for a tensor of no dims.

use std::fmt;

use reshard_layout::Excerpt;
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use super::error::CliError;

/// A shape as it was given: a text on the command line, a text or a list in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Text(String),
    Dims(Vec<usize>),
}

impl From<String> for Shape {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Shape {
    /// The sizes of the dims.
    pub(crate) fn dims(&self) -> Result<Vec<usize>, CliError> {
        match self {
            Self::Dims(dims) => Ok(dims.clone()),
            Self::Text(text) => parse(text),
        }
    }
}

fn parse(text: &str) -> Result<Vec<usize>, CliError> {
    let trimmed = text.trim();
    let mut at = text.len() - text.trim_start().len();
    let inner = match trimmed.strip_prefix('[') {
        None => trimmed,
        Some(rest) => {
            at += 1;
            rest.strip_suffix(']').ok_or_else(|| {
                CliError::parse(
                    text,
                    text.len(),
                    format!(
                        "cannot read the shape `{}`: its bracket is not closed",
                        Excerpt::around(text, text.len())
                    ),
                )
            })?
        }
    };
    if inner.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut dims = Vec::new();
    for part in inner.split(',') {
        let size = part.trim();
        let dim = size.parse().map_err(|_| {
            let place = at + part.len() - part.trim_start().len();
            let (shown, size) = (Excerpt::around(text, place), Excerpt::of(size));
            CliError::parse(text, place, format!("cannot read the shape `{shown}`: `{size}` is not a size"))
        })?;
        dims.push(dim);
        at += part.len() + 1;
    }
    Ok(dims)
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a shape, [64,32] or \"64,32\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Shape, E> {
                Ok(Shape::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
                let mut dims = Vec::new();
                while let Some(dim) = list.next_element()? {
                    dims.push(dim);
                }
                Ok(Shape::Dims(dims))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_spellings_of_a_shape() {
        for (text, dims) in [
            ("64,32", vec![64, 32]),
            ("[64, 32]", vec![64, 32]),
            (" [ ] ", vec![]),
            ("", vec![]),
            ("0,5", vec![0, 5]),
        ] {
            assert_eq!(parse(text).unwrap(), dims, "{text}");
        }
    }

    #[test]
    fn a_caret_stands_under_what_is_no_size() {
        for (text, caret) in [("64,x,3", 3), ("[64, -2]", 5), ("[64", 3), ("64,", 3), ("1 2", 0)] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.place().unwrap(), format!("{text}\n{}^", " ".repeat(caret)));
        }
    }
}
