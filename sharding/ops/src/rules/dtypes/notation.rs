//! Element types as a text: `any, integer -> same(0)`.

use core::fmt;
use std::str::FromStr;

use reshard_kernels::DType;
use reshard_sharding::internal::outside_brackets;

use super::{OpDtypes, OperandDtype, ResultDtype};
use crate::Error;

/// The forms of a result, for errors.
const RESULTS: &str = "same(0), first, promoted, promoted(1,2), floating, counted(0), with(value), argument(dtype), \
                       default(f32), or a dtype such as bool or i64";

impl fmt::Display for OperandDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperandDtype::Any => f.write_str("any"),
            OperandDtype::Bool => f.write_str("bool"),
            OperandDtype::Integer => f.write_str("integer"),
            OperandDtype::Integral => f.write_str("integer or bool"),
            OperandDtype::Float => f.write_str("float"),
            OperandDtype::Like(n) => write!(f, "like({n})"),
        }
    }
}

impl fmt::Display for ResultDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, name: &str, of: &[usize]| {
            f.write_str(name)?;
            if of.is_empty() { Ok(()) } else { write!(f, "({})", separated(of, ",")) }
        };
        match self {
            ResultDtype::SameAs(n) => write!(f, "same({n})"),
            ResultDtype::First => f.write_str("first"),
            ResultDtype::Promoted(of) => list(f, "promoted", of),
            ResultDtype::Floating(of) => list(f, "floating", of),
            ResultDtype::Counted(n) => write!(f, "counted({n})"),
            ResultDtype::With(keys) => write!(f, "with({})", keys.join(",")),
            ResultDtype::Argument(key) => write!(f, "argument({key})"),
            ResultDtype::Default(dtype) => write!(f, "default({dtype})"),
            ResultDtype::Fixed(dtype) => dtype.fmt(f),
        }
    }
}

impl fmt::Display for OpDtypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.operands.is_empty() { "" } else { " " };
        let (operands, results) = (separated(&self.operands, ", "), separated(&self.results, ", "));
        write!(f, "{operands}{space}-> {results}")
    }
}

fn separated<T: fmt::Display>(list: &[T], by: &str) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(by)
}

impl FromStr for OperandDtype {
    type Err = Error;

    fn from_str(text: &str) -> Result<OperandDtype, Error> {
        Ok(match text.trim() {
            "any" => OperandDtype::Any,
            "bool" => OperandDtype::Bool,
            "integer" => OperandDtype::Integer,
            "integer or bool" => OperandDtype::Integral,
            "float" => OperandDtype::Float,
            other => {
                let Some(("like", n)) = called(other) else {
                    let known = "any, bool, integer, integer or bool, float, like(0)";
                    return Err(malformed(format!(
                        "unknown element types `{other}` of an operand; expected one of: {known}"
                    )));
                };
                OperandDtype::Like(operand(other, n)?)
            }
        })
    }
}

impl FromStr for ResultDtype {
    type Err = Error;

    fn from_str(text: &str) -> Result<ResultDtype, Error> {
        let text = text.trim();
        let keys = |inside: &str| inside.split(',').map(|key| key.trim().to_owned()).collect();
        let operands =
            |inside: &str| inside.split(',').map(|n| operand(text, n)).collect::<Result<Vec<_>, _>>();
        Ok(match (called(text), text) {
            (None, "first") => ResultDtype::First,
            (None, "promoted") => ResultDtype::Promoted(Vec::new()),
            (None, "floating") => ResultDtype::Floating(Vec::new()),
            (None, name) => ResultDtype::Fixed(dtype(name)?),
            (Some(("same", n)), _) => ResultDtype::SameAs(operand(text, n)?),
            (Some(("promoted", list)), _) => ResultDtype::Promoted(operands(list)?),
            (Some(("floating", list)), _) => ResultDtype::Floating(operands(list)?),
            (Some(("counted", n)), _) => ResultDtype::Counted(operand(text, n)?),
            (Some(("with", inside)), _) => ResultDtype::With(keys(inside)),
            (Some(("argument", key)), _) => ResultDtype::Argument(key.trim().to_owned()),
            (Some(("default", name)), _) => ResultDtype::Default(dtype(name)?),
            (Some(_), _) => return Err(unknown(text)),
        })
    }
}

impl FromStr for OpDtypes {
    type Err = Error;

    fn from_str(text: &str) -> Result<OpDtypes, Error> {
        let Some((operands, results)) = text.split_once("->") else {
            return Err(malformed(format!(
                "`{text}` has no `->`; write the element types of operands and results, as in any, integer -> same(0)"
            )));
        };
        let operands = listed(operands).map(str::parse).collect::<Result<_, _>>()?;
        let results: Vec<ResultDtype> = listed(results).map(str::parse).collect::<Result<_, _>>()?;
        if results.is_empty() {
            return Err(malformed(format!("`{text}` has no result; give one of: {RESULTS}")));
        }
        Ok(OpDtypes { operands, results })
    }
}

fn listed(text: &str) -> impl Iterator<Item = &str> {
    outside_brackets(text, ',').filter(|part| !part.is_empty())
}

/// `same(0)` as `same` and `0`.
fn called(text: &str) -> Option<(&str, &str)> {
    text.strip_suffix(')')?.split_once('(')
}

fn operand(text: &str, n: &str) -> Result<usize, Error> {
    let unfit =
        || malformed(format!("`{text}` names operand `{}`; give its number, counted from 0", n.trim()));
    n.trim().parse().map_err(|_| unfit())
}

fn dtype(name: &str) -> Result<DType, Error> {
    name.trim().parse().map_err(|_| unknown(name))
}

fn unknown(text: &str) -> Error {
    malformed(format!("unknown element type `{text}` of a result; expected one of: {RESULTS}"))
}

fn malformed(reason: String) -> Error {
    Error::Rule { reason }
}

#[cfg(test)]
mod tests {
    use super::OpDtypes;

    #[test]
    fn texts_are_printed_as_they_are_parsed() {
        for text in [
            "any -> first",
            "any, integer or bool, like(0), float, bool -> same(2), i64",
            "-> default(f32)",
            "any -> promoted, promoted(1,2), floating, floating(0), counted(0), with(min,max), argument(dtype)",
        ] {
            assert_eq!(text.parse::<OpDtypes>().unwrap().to_string(), text);
        }
        let error = |text: &str| text.parse::<OpDtypes>().unwrap_err().to_string();
        assert!(error("any").contains("has no `->`"));
        assert!(
            error("real -> bool")
                .starts_with("unknown element types `real` of an operand; expected one of: any,")
        );
        assert!(error("any -> same(x)").contains("names operand `x`"));
        assert!(error("any -> like(0)").contains("unknown element type `like(0)` of a result"));
        assert!(error("any ->").contains("has no result"));
    }
}
