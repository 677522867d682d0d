//! JSON texts of values, as the library writes and reads them.

use serde_json::error::Category;

use crate::failure::{Answer, refused};

/// The text of a value.
pub(crate) fn write<T: serde::Serialize + ?Sized>(value: &T) -> Answer<String> {
    serde_json::to_string(value).map_err(|error| refused("json", error.to_string()))
}

/// The value of a text.
pub(crate) fn read<T: serde::de::DeserializeOwned>(text: &str) -> Answer<T> {
    serde_json::from_str(text).map_err(|error| match error.classify() {
        Category::Io | Category::Syntax | Category::Eof => {
            refused("parse", format!("not valid JSON: {error}"))
        }
        Category::Data => refused("parse", error.to_string()),
    })
}
