//! Parameters: the arguments that a family of ops takes, each declared once with its type and its default.
//!
//! A family is declared with a text, and everything else reads that declaration: the arguments of calls are
//! checked against it before the family is called ([`Parameters::check`]), a [`BoundCall`](super::BoundCall)
//! gives the family values of the declared type, `reshard rule` and `docs/reference/ops.md` print it.
//!
//! ```text
//! parameters =  parameter "," ..
//! parameter  =  name ":" kind [ "=" default ]                 without a default it has to be given
//! kind       =  [ "new" | "complex" ] ( "dim" | "dims" )      -1 is the last one
//!            |  "number of dims"  |  ( "number" | "real" | "numbers" | "spatial" ) [ ">=" least ]
//!            |  "flag"  |  word "|" word ..  |  "any"
//! default    =  a value  |  "all"  |  "none"  |  the name of an earlier parameter
//! ```

mod kind;
mod notation;

pub(super) use kind::real;
pub use kind::{DimOf, ParameterKind};

use core::ops::Deref;

use crate::Error;
use crate::rules::call::{Argument, OpCall};

/// The value of an argument that is not given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DefaultValue {
    /// No default: it has to be given.
    Required,
    /// The op works without it.
    Absent,
    /// All dims.
    All,
    /// This value.
    Value(Argument),
    /// The value of another parameter, declared before it.
    Same(String),
}

/// An argument that a family of ops takes: its name, its type and its default.
///
/// ```
/// use reshard_ops::rules::{DefaultValue, Parameter, ParameterKind};
/// let k: Parameter = "k: number >= 0".parse()?;
/// assert_eq!((k.name(), k.kind()), ("k", &ParameterKind::Number { least: Some(0) }));
/// assert_eq!(k.default_value(), &DefaultValue::Required);
/// assert_eq!("reduction: mean|sum = mean".parse::<Parameter>()?.to_string(), "reduction: mean|sum = mean");
/// let wrong = "keepdim: flag = 2".parse::<Parameter>().unwrap_err();
/// assert_eq!(wrong.to_string(), "the parameter keepdim: the default is 2, and should be true or false");
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parameter {
    name: String,
    kind: ParameterKind,
    default: DefaultValue,
}

impl Parameter {
    /// Returns a parameter.
    ///
    /// Fails for a name that a call cannot express, and for a default that is not of the kind.
    #[doc(hidden)]
    pub fn new(name: &str, kind: ParameterKind, default: DefaultValue) -> Result<Parameter, Error> {
        let reason = if !kind::is_word(name) || !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            Some("a name must be letters, digits and `_`, and begin with a letter".to_owned())
        } else if ["all", "none", "true", "false"].contains(&name) {
            Some("that is a value, not a name".to_owned())
        } else {
            kind.refuses_words().or_else(|| kind.refuses_default(&default))
        };
        match reason {
            None => Ok(Parameter { name: name.to_owned(), kind, default }),
            Some(reason) => Err(Error::Rule { reason: format!("the parameter {name}: {reason}") }),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    pub fn kind(&self) -> &ParameterKind {
        &self.kind
    }

    /// The value if the argument is not given.
    pub fn default_value(&self) -> &DefaultValue {
        &self.default
    }
}

/// The arguments that a family of ops takes, in their order.
///
/// ```
/// use reshard_ops::rules::{Parameters, OpTable};
/// let topk: Parameters = "k: number >= 0, dim: dim = -1, largest: flag = true".parse()?;
/// assert_eq!(OpTable::standard().parameters("topk"), Some(&topk));
/// assert!(topk.check(&"topk(k=2)".parse()?).is_ok());
/// let refused = |call: &str| topk.check(&call.parse().unwrap()).unwrap_err().to_string();
/// assert_eq!(refused("topk"), "topk: needs k, a whole number of at least 0: write topk(k=2)");
/// assert_eq!(refused("topk(k=true)"), "topk(k=true): k is true, and should be a whole number of at least 0");
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Parameters(Vec<Parameter>);

impl Deref for Parameters {
    type Target = [Parameter];
    fn deref(&self) -> &[Parameter] {
        &self.0
    }
}

impl Parameters {
    /// The parameters of an op without arguments.
    pub(super) const NONE: &'static Parameters = &Parameters(Vec::new());

    /// Returns these parameters.
    ///
    /// Fails for a repeated name, and for a default that names a parameter that is not an earlier one.
    #[doc(hidden)]
    pub fn new(list: impl IntoIterator<Item = Parameter>) -> Result<Parameters, Error> {
        let mut known: Vec<Parameter> = Vec::new();
        for p in list {
            let reason = match &p.default {
                _ if known.iter().any(|k| k.name == p.name) => "it is declared twice".to_owned(),
                DefaultValue::Same(other) if !known.iter().any(|k| k.name == *other && k.kind == p.kind) => {
                    format!("no parameter {other} of its kind precedes it")
                }
                DefaultValue::Required
                | DefaultValue::Absent
                | DefaultValue::All
                | DefaultValue::Value(_)
                | DefaultValue::Same(_) => {
                    known.push(p);
                    continue;
                }
            };
            return Err(Error::Rule { reason: format!("the parameter {}: {reason}", p.name) });
        }
        Ok(Parameters(known))
    }

    /// The parameter of this name.
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.0.iter().find(|p| p.name == name)
    }

    /// Checks a call's arguments: no unknown ones, values of their types, and all required ones.
    ///
    /// The range of dims depends on a tensor; it is checked when the op is made for its shapes.
    pub fn check(&self, call: &OpCall) -> Result<(), Error> {
        let error = |reason: String| Err(Error::Rule { reason: format!("{call}: {reason}") });
        let OpCall::Named { name, arguments } = call else { return Ok(()) };
        for (key, value) in arguments {
            let Some(p) = self.get(key) else {
                let takes = if self.is_empty() { "no arguments".to_owned() } else { self.to_string() };
                return error(format!("{name} has no argument {key}; it takes {takes}"));
            };
            if let Some(reason) = p.kind.refuses(value) {
                return error(format!("{key} {reason}"));
            }
        }
        let lacking =
            |p: &&Parameter| p.default == DefaultValue::Required && call.argument(&p.name).is_none();
        match self.iter().find(lacking) {
            None => Ok(()),
            Some(p) => {
                let given = call.clone().with(&p.name, p.kind.example());
                error(format!("needs {}, {}: write {given}", p.name, p.kind.meaning()))
            }
        }
    }
}
