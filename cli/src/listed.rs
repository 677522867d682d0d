//! One value for each operand: a text with `;` between them, `64,32;32,16`, or in a request also a list.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

/// Values as they were given.
///
/// A text has one value more than it has `;`, so an empty one is a value too: the shape of a scalar, or an
/// output without a constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listed<T> {
    Text(String),
    Each(Vec<T>),
}

impl<T> From<String> for Listed<T> {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl<T: Clone + From<String>> Listed<T> {
    /// The values, one for each operand.
    pub(crate) fn each(&self) -> Vec<T> {
        match self {
            Self::Each(list) => list.clone(),
            Self::Text(text) => text.split(';').map(|part| T::from(part.trim().to_owned())).collect(),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Listed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = Listed<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list with one value for each operand, or a text with `;` between them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Listed<T>, E> {
                Ok(Listed::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Listed<T>, A::Error> {
                let mut each = Vec::new();
                while let Some(one) = list.next_element()? {
                    each.push(one);
                }
                Ok(Listed::Each(each))
            }
        }
        deserializer.deserialize_any(Either(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::Listed;
    use crate::shape::Shape;

    #[test]
    fn texts_and_lists_say_the_same() {
        let dims = |text: &str| -> Vec<Vec<usize>> {
            let shapes: Listed<Shape> = serde_json::from_str(text).unwrap();
            shapes.each().iter().map(|shape| shape.dims().unwrap()).collect()
        };
        for text in
            [r#""64,32; 32,16""#, r#"["64,32","[32,16]"]"#, "[[64,32],[32,16]]", r#"[[64,32],"32,16"]"#]
        {
            assert_eq!(dims(text), [[64, 32], [32, 16]], "{text}");
        }
        assert_eq!(dims(r#""8;""#), [vec![8], vec![]]);
        assert_eq!(dims("[[]]"), [Vec::<usize>::new()]);
        assert_eq!(dims("[]"), Vec::<Vec<usize>>::new());
        assert!(serde_json::from_str::<Listed<Shape>>("8").is_err());
    }
}
