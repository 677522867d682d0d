//! The implicit redistributions that a request rejects: `--explicit`, and `"explicit"` of a batch.
//!
//! A batch accepts the values of `--explicit`, and `true` for `"none"`, which is the flag without a value.

use std::fmt;

use clap::ValueEnum;
use reshard_program::ImplicitRedistribution;
use serde::de::{self, Deserializer, Visitor};

/// The implicit redistributions that the solver may insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Explicit {
    /// Allow redistributions without communication, forward and backward
    LocalOnly,
    /// Allow no implicit redistribution
    None,
}

impl Explicit {
    pub(crate) fn moves(explicit: Option<Explicit>) -> ImplicitRedistribution {
        match explicit {
            None => ImplicitRedistribution::Allow,
            Some(Explicit::LocalOnly) => ImplicitRedistribution::LocalOnly,
            Some(Explicit::None) => ImplicitRedistribution::Deny,
        }
    }
}

/// Reads the value of a request for a whole program.
pub(crate) fn of_a_program<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Explicit>, D::Error> {
    from.deserialize_any(Given {
        known: &[Explicit::LocalOnly, Explicit::None],
        expected: "\"none\" or true to allow no implicit redistribution, \"local-only\" to allow those without communication, or false",
    })
}

/// Reads the value of a request for one op, which has no redistributions without communication to allow.
pub(crate) fn of_an_op<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    let given = from.deserialize_any(Given {
        known: &[Explicit::None],
        expected: "\"none\" or true to allow no implicit redistribution, or false",
    })?;
    Ok(given.is_some())
}

/// The values that a request accepts, and their description.
struct Given {
    known: &'static [Explicit],
    expected: &'static str,
}

impl Visitor<'_> for Given {
    type Value = Option<Explicit>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_bool<E: de::Error>(self, is: bool) -> Result<Self::Value, E> {
        Ok(is.then_some(Explicit::None))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        match Explicit::from_str(text, false).ok().filter(|explicit| self.known.contains(explicit)) {
            None => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
            explicit => Ok(explicit),
        }
    }
}
