//! The types of arguments, and the checks of values against them.

use super::DefaultValue;
use crate::rules::call::Argument;

/// The tensor whose dims an argument names; negative dims are counted from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DimOf {
    /// The dims of the first input.
    Input,
    /// The dims of a tensor with one dim more than the first input: the index of a new dim.
    New,
    /// The dims of the first input without its last, which holds the parts of complex numbers.
    Complex,
}

impl DimOf {
    /// Returns the number of dims that can be named, for a first input of `rank` dims.
    pub(crate) fn count(self, rank: usize) -> usize {
        match self {
            DimOf::Input => rank,
            DimOf::New => rank + 1,
            DimOf::Complex => rank.saturating_sub(1),
        }
    }
}

/// The type of an argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ParameterKind {
    /// A dim.
    Dim(DimOf),
    /// A list of dims, each once; a number alone is a list of it.
    Dims(DimOf),
    /// The number of the first input's last dims: from 1 to all of them.
    Count,
    /// A whole number, of at least this if one is named.
    Number {
        /// The lower bound.
        least: Option<i64>,
    },
    /// A finite number, whole or not, of at least this if one is named.
    Real {
        /// The lower bound.
        least: Option<i64>,
    },
    /// A list of whole numbers; a number alone is a list of it.
    Numbers {
        /// The lower bound of each.
        least: Option<i64>,
    },
    /// A whole number for each spatial dim, or one for all of them.
    Spatial {
        /// The lower bound of each.
        least: Option<i64>,
    },
    /// True or false.
    Flag,
    /// One of these words, of which some may look like numbers.
    Word(Vec<String>),
    /// Any value.
    Any,
}

/// Returns `true` if a text is one identifier of a call.
pub(super) fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
}

/// Returns the number of a value: an integer, or one in canonical notation, like `0.5`.
pub(in crate::rules) fn real(value: &Argument) -> Option<f64> {
    match value {
        Argument::Number(n) => Some(*n as f64),
        Argument::Word(word) => word.parse().ok().filter(|n: &f64| n.is_finite() && n.to_string() == *word),
        Argument::Flag(_) | Argument::Numbers(_) => None,
    }
}

fn of_at_least(least: Option<i64>) -> String {
    least.map_or_else(String::new, |least| format!(" of at least {least}"))
}

impl ParameterKind {
    /// Describes an argument of this type: "a whole number of at least 1".
    pub(crate) fn meaning(&self) -> String {
        match self {
            ParameterKind::Dim(DimOf::Input) => "a whole number, the dim".to_owned(),
            ParameterKind::Dim(DimOf::New) => "a whole number, the position of the new dim".to_owned(),
            ParameterKind::Dim(DimOf::Complex) => {
                "a whole number, a dim before that of the complex parts".to_owned()
            }
            ParameterKind::Dims(DimOf::Input) => "a list of dims, whole numbers".to_owned(),
            ParameterKind::Dims(DimOf::New) => "a list of positions of new dims, whole numbers".to_owned(),
            ParameterKind::Dims(DimOf::Complex) => {
                "a list of dims before that of the complex parts, whole numbers".to_owned()
            }
            ParameterKind::Count => "a whole number of at least 1, the number of last dims".to_owned(),
            ParameterKind::Number { least } => format!("a whole number{}", of_at_least(*least)),
            ParameterKind::Real { least } => format!("a number{}, whole or not", of_at_least(*least)),
            ParameterKind::Numbers { least } => format!("a list of whole numbers{}", of_at_least(*least)),
            ParameterKind::Spatial { least } => {
                format!("a whole number{} or a list of one for each spatial dim", of_at_least(*least))
            }
            ParameterKind::Flag => "true or false".to_owned(),
            ParameterKind::Word(words) => words.join(" or "),
            ParameterKind::Any => "any value".to_owned(),
        }
    }

    /// Returns the reason why a value is not of this type, as text after a name: "is 0, and should be ..".
    pub(super) fn refuses(&self, value: &Argument) -> Option<String> {
        let fits = match (self, value) {
            (ParameterKind::Any, _)
            | (ParameterKind::Dim(_), Argument::Number(_))
            | (ParameterKind::Dims(_), Argument::Number(_) | Argument::Numbers(_))
            | (ParameterKind::Flag, Argument::Flag(_)) => true,
            (ParameterKind::Count, Argument::Number(n)) => *n >= 1,
            (ParameterKind::Number { least }, Argument::Number(n)) => least.is_none_or(|least| *n >= least),
            (ParameterKind::Real { least }, _) => {
                real(value).is_some_and(|n| least.is_none_or(|least| n >= least as f64))
            }
            (
                ParameterKind::Numbers { least } | ParameterKind::Spatial { least },
                Argument::Number(_) | Argument::Numbers(_),
            ) => value.as_list().iter().all(|&n| least.is_none_or(|least| n >= least)),
            (ParameterKind::Word(words), _) => words.contains(&value.to_string()),
            (
                ParameterKind::Dim(_)
                | ParameterKind::Dims(_)
                | ParameterKind::Count
                | ParameterKind::Number { .. }
                | ParameterKind::Numbers { .. }
                | ParameterKind::Spatial { .. }
                | ParameterKind::Flag,
                Argument::Number(_) | Argument::Flag(_) | Argument::Numbers(_) | Argument::Word(_),
            ) => false,
        };
        (!fits).then(|| format!("is {value}, and should be {}", self.meaning()))
    }

    /// Returns the reason why a list of words that a parameter may be is invalid.
    pub(super) fn refuses_words(&self) -> Option<String> {
        let ParameterKind::Word(words) = self else { return None };
        if words.len() < 2 {
            return Some("a list of words must have two or more".to_owned());
        }
        let twice = words.iter().enumerate().find(|(i, w)| words[..*i].contains(w));
        let bad = words.iter().find(|w| !is_word(w));
        bad.map(|w| format!("{w:?} is not an identifier"))
            .or_else(|| twice.map(|(_, w)| format!("{w} is in its list twice")))
    }

    /// Returns the reason why this is not a valid default of this type.
    pub(super) fn refuses_default(&self, default: &DefaultValue) -> Option<String> {
        let as_word = matches!(self, ParameterKind::Word(_));
        match default {
            DefaultValue::Required => None,
            DefaultValue::Value(Argument::Word(word)) if *self == ParameterKind::Any => {
                Some(format!("the default {word} would be the name of a parameter"))
            }
            DefaultValue::Value(value) if as_word && !matches!(value, Argument::Word(_)) => {
                Some(format!("the default {value} must be an identifier"))
            }
            DefaultValue::Value(value) => self.refuses(value).map(|reason| format!("the default {reason}")),
            DefaultValue::All if matches!(self, ParameterKind::Dim(_) | ParameterKind::Dims(_)) => None,
            DefaultValue::All => Some("the default is all, and it names no dims".to_owned()),
            DefaultValue::Absent => self
                .refuses(&Argument::Word("none".to_owned()))
                .is_none()
                .then(|| "the default is none, which is one of its values".to_owned())
                .filter(|_| as_word),
            DefaultValue::Same(other) => {
                let numbers = matches!(
                    self,
                    ParameterKind::Number { .. }
                        | ParameterKind::Real { .. }
                        | ParameterKind::Numbers { .. }
                        | ParameterKind::Spatial { .. }
                );
                (!numbers).then(|| format!("the default is {other}, and should be {}", self.meaning()))
            }
        }
    }

    /// A value of this type, for messages that show how it is given.
    pub(super) fn example(&self) -> Argument {
        let two = |least: &Option<i64>| least.unwrap_or(2).max(2);
        match self {
            ParameterKind::Dim(_) => Argument::Number(0),
            ParameterKind::Dims(_) => Argument::Numbers(vec![0]),
            ParameterKind::Count => Argument::Number(1),
            ParameterKind::Number { least }
            | ParameterKind::Real { least }
            | ParameterKind::Spatial { least } => Argument::Number(two(least)),
            ParameterKind::Numbers { least } => Argument::Numbers(vec![two(least); 2]),
            ParameterKind::Flag | ParameterKind::Any => Argument::Flag(true),
            ParameterKind::Word(words) => Argument::Word(words.first().cloned().unwrap_or_default()),
        }
    }
}
