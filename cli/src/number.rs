//! A number in a request: as one, or as text, as arguments are.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a whole number, or one as text")]
enum Said {
    Number(u64),
    Text(String),
}

/// As the text that it would be as an argument.
pub(crate) fn as_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Said>::deserialize(deserializer)?.map(|said| match said {
        Said::Number(number) => number.to_string(),
        Said::Text(text) => text,
    }))
}

/// The number.
pub(crate) fn as_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let number = |text: String| {
        text.parse()
            .map_err(|_| D::Error::custom(format!("{text:?} is no whole number from 0 to {}", u64::MAX)))
    };
    as_text(deserializer)?.map(number).transpose()
}
