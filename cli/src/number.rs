//! A number in a request: a JSON number, or a text as in an argument.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a whole number, or one as text")]
enum Said {
    Number(u64),
    Text(String),
}

/// Reads the number as the text of an argument.
pub(crate) fn as_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Said>::deserialize(deserializer)?.map(|said| match said {
        Said::Number(number) => number.to_string(),
        Said::Text(text) => text,
    }))
}

/// Reads the number.
pub(crate) fn as_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let number = |text: String| {
        text.parse()
            .map_err(|_| D::Error::custom(format!("{text:?} is not a whole number from 0 to {}", u64::MAX)))
    };
    as_text(deserializer)?.map(number).transpose()
}

/// Parses the decimal number of an option.
pub(crate) fn decimal(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "expected a number, such as 2.5".to_owned())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct Asked {
        #[serde(default, deserialize_with = "super::as_number")]
        number: Option<u64>,
        #[serde(default, deserialize_with = "super::as_text")]
        text: Option<String>,
    }

    #[test]
    fn a_number_is_one_or_is_text() {
        for line in [r#"{"number":7,"text":7}"#, r#"{"number":"7","text":"7"}"#] {
            let asked: Asked = serde_json::from_str(line).unwrap();
            assert_eq!((asked.number, asked.text.as_deref()), (Some(7), Some("7")), "{line}");
        }
        let asked: Asked = serde_json::from_str(r#"{"text":"none"}"#).unwrap();
        assert_eq!((asked.number, asked.text.as_deref()), (None, Some("none")));
        for line in [r#"{"number":"none"}"#, r#"{"number":-1}"#, r#"{"number":1.5}"#, r#"{"text":[]}"#] {
            let refused = serde_json::from_str::<Asked>(line).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|said| said.contains("whole number")), "{line}");
        }
    }
}
