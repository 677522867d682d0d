//! Parameters as a text: `dims: dims = all, keepdim: flag = false`.

use core::fmt;
use std::str::FromStr;

use super::{DefaultValue, DimOf, Parameter, ParameterKind, Parameters, real};
use crate::Error;
use crate::rules::call::{Argument, value, whole, word};
use reshard_sharding::internal::Cursor;

impl fmt::Display for ParameterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |dims: &DimOf| match dims {
            DimOf::Input => "",
            DimOf::New => "new ",
            DimOf::Complex => "complex ",
        };
        let (name, least) = match self {
            ParameterKind::Dim(dims) => return write!(f, "{}dim", of(dims)),
            ParameterKind::Dims(dims) => return write!(f, "{}dims", of(dims)),
            ParameterKind::Word(words) => return f.write_str(&words.join("|")),
            ParameterKind::Count => ("number of dims", None),
            ParameterKind::Flag => ("flag", None),
            ParameterKind::Any => ("any", None),
            ParameterKind::Number { least } => ("number", *least),
            ParameterKind::Real { least } => ("real", *least),
            ParameterKind::Numbers { least } => ("numbers", *least),
            ParameterKind::Spatial { least } => ("spatial", *least),
        };
        f.write_str(name)?;
        least.map_or(Ok(()), |least| write!(f, " >= {least}"))
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.kind)?;
        self.default_text().map_or(Ok(()), |default| write!(f, " = {default}"))
    }
}

impl Parameter {
    /// Returns the default as it is written: `-1`, `all`, `none`; `None` if the argument is required.
    #[doc(hidden)]
    pub fn default_text(&self) -> Option<String> {
        match &self.default {
            DefaultValue::Required => None,
            DefaultValue::Absent => Some("none".to_owned()),
            DefaultValue::All => Some("all".to_owned()),
            DefaultValue::Value(value) => Some(value.to_string()),
            DefaultValue::Same(other) => Some(other.clone()),
        }
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, p) in self.iter().enumerate() {
            write!(f, "{}{p}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl FromStr for Parameter {
    type Err = Error;
    fn from_str(s: &str) -> Result<Parameter, Error> {
        let mut r = Cursor::new("parameter", s);
        let parameter = read(&mut r)?;
        r.finish()?;
        Ok(parameter)
    }
}

impl FromStr for Parameters {
    type Err = Error;
    fn from_str(s: &str) -> Result<Parameters, Error> {
        let mut r = Cursor::new("parameters", s);
        let mut list = Vec::new();
        while !r.is_done() {
            if !list.is_empty() {
                r.expect(",")?;
            }
            list.push(read(&mut r)?);
        }
        Parameters::new(list)
    }
}

fn read(r: &mut Cursor<'_>) -> Result<Parameter, Error> {
    let name = word(r);
    if name.is_empty() {
        return Err(r.error("the name of a parameter").into());
    }
    r.expect(":")?;
    let kind = read_kind(r)?;
    let default = if r.eat("=") { read_default(r, &kind)? } else { DefaultValue::Required };
    Parameter::new(name, kind, default)
}

fn read_kind(r: &mut Cursor<'_>) -> Result<ParameterKind, Error> {
    const KINDS: &str = "dim, dims, new dim, complex dims, number, real, numbers, spatial, number of dims, flag, any or a list \
                         of words like mean|sum";
    let at = r.here();
    let first = word(r);
    if r.rest().starts_with('|') {
        let mut words = vec![first.to_owned()];
        while r.eat("|") {
            words.push(word(r).to_owned());
        }
        return Ok(ParameterKind::Word(words));
    }
    let (of, name) = match first {
        "new" => (DimOf::New, word(r)),
        "complex" => (DimOf::Complex, word(r)),
        name => (DimOf::Input, name),
    };
    let kind = match name {
        "dim" => ParameterKind::Dim(of),
        "dims" => ParameterKind::Dims(of),
        _ if of != DimOf::Input => return Err(r.error_at(at, KINDS).into()),
        "flag" => ParameterKind::Flag,
        "any" => ParameterKind::Any,
        "number" if r.eat("of") => {
            r.expect("dims")?;
            ParameterKind::Count
        }
        "number" => ParameterKind::Number { least: read_least(r)? },
        "real" => ParameterKind::Real { least: read_least(r)? },
        "numbers" => ParameterKind::Numbers { least: read_least(r)? },
        "spatial" => ParameterKind::Spatial { least: read_least(r)? },
        _ => return Err(r.error_at(at, KINDS).into()),
    };
    Ok(kind)
}

fn read_least(r: &mut Cursor<'_>) -> Result<Option<i64>, Error> {
    if r.eat(">=") { whole(r).map(Some) } else { Ok(None) }
}

fn read_default(r: &mut Cursor<'_>, kind: &ParameterKind) -> Result<DefaultValue, Error> {
    if let ParameterKind::Word(words) = kind {
        let said = word(r);
        let none = said == "none" && !words.iter().any(|w| w == said);
        return Ok(if none {
            DefaultValue::Absent
        } else {
            DefaultValue::Value(Argument::Word(said.to_owned()))
        });
    }
    Ok(match value(r)? {
        Argument::Word(said) if said == "none" => DefaultValue::Absent,
        Argument::Word(said) if said == "all" => DefaultValue::All,
        said @ Argument::Word(_) if real(&said).is_some() => DefaultValue::Value(said),
        Argument::Word(said) => DefaultValue::Same(said),
        value @ (Argument::Number(_) | Argument::Flag(_) | Argument::Numbers(_)) => {
            DefaultValue::Value(value)
        }
    })
}
