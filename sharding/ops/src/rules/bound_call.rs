//! The request to a family, a call and the shapes of its inputs, and the helpers for its answer.

use core::fmt;
use std::borrow::Cow;

use crate::Error;
use crate::rules::call::{Argument, OpCall};
use crate::rules::factor::Dim;
use crate::rules::op::{Brackets, Op};
use crate::rules::parameter::{DefaultValue, Parameter, ParameterKind, Parameters, real};
use crate::rules::rule::Rule;

/// A call of a family of ops on inputs of these shapes.
///
/// The arguments are checked against the family's declaration before it sees them. The methods return the
/// values, with defaults for arguments that are not given. [`BoundCall::op`] answers with a rule.
///
/// ```
/// use reshard_ops::rules::{FactorKind, RuleBuilder, OpTable};
/// let mut table = OpTable::empty();
/// table.add_family("centred", "dim: dim = -1".parse()?, |r| {
///     let (dim, letters) = (r.dim("dim")?, r.letters(r.input(0)?.len())?);
///     let rule = RuleBuilder::new().input(letters.iter().copied()).output(letters.iter().copied());
///     r.op(&rule.role(letters[dim], FactorKind::NeedReplication).build()?)
/// });
/// let op = table.op(&"centred".parse()?, &[&[4, 6]])?;
/// assert_eq!(op.strategies()[0].to_string(), "S(a0) -> S(a0)");
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Debug)]
pub struct BoundCall<'a> {
    /// The call.
    pub call: &'a OpCall,
    /// The shapes of the inputs.
    pub inputs: &'a [&'a [usize]],
    pub(super) parameters: &'a Parameters,
}

impl BoundCall<'_> {
    /// Returns a one-line error about this call.
    pub fn error(&self, reason: impl fmt::Display) -> Error {
        let shapes: Vec<String> = self.inputs.iter().take(8).map(|s| Brackets(s).to_string()).collect();
        let more = if self.inputs.len() > 8 { " and more" } else { "" };
        let on = if shapes.is_empty() { "nothing".to_owned() } else { shapes.join(" and ") };
        Error::Rule { reason: format!("{} on {on}{more}: {reason}", self.call) }
    }

    /// The number of inputs, if it is one of these.
    pub(crate) fn inputs_of(&self, allowed: core::ops::RangeInclusive<usize>) -> Result<usize, Error> {
        let n = self.inputs.len();
        if allowed.contains(&n) {
            return Ok(n);
        }
        let (a, b) = allowed.into_inner();
        Err(self.error(match (a, b) {
            (a, usize::MAX) => format!("takes {a} inputs or more, not {n}"),
            (a, b) if a == b => format!("takes {a} input{}, not {n}", if a == 1 { "" } else { "s" }),
            (a, b) => format!("takes {a} to {b} inputs, not {n}"),
        }))
    }

    /// Returns the value of an argument: that of the call, or else its default.
    ///
    /// `None` if the op does without it, or if it is all dims.
    fn value(&self, key: &str) -> Result<Option<Cow<'_, Argument>>, Error> {
        let p = self.declared(key)?;
        if let Some(value) = self.call.argument(key) {
            return Ok(Some(Cow::Borrowed(value)));
        }
        match p.default_value() {
            DefaultValue::Required => Err(self.error(format!("needs {key}"))),
            DefaultValue::Absent | DefaultValue::All => Ok(None),
            DefaultValue::Value(value) => Ok(Some(Cow::Borrowed(value))),
            // The other parameter is an earlier one, so this recursion ends.
            DefaultValue::Same(other) => self.value(other),
        }
    }

    fn declared(&self, key: &str) -> Result<&Parameter, Error> {
        let unknown = || self.error(format!("the family reads {key}, which it does not declare"));
        self.parameters.get(key).ok_or_else(unknown)
    }

    /// Returns the value of an argument, converted by `take`.
    fn read<T>(&self, key: &str, what: &str, take: impl FnOnce(&Argument) -> Option<T>) -> Result<T, Error> {
        let value = self.value(key)?;
        let unfit =
            || self.error(format!("the family reads {key} as {what}, and declares {}", self.parameters));
        value.as_deref().and_then(take).ok_or_else(unfit)
    }

    /// Returns `true` if an argument has a value, given or by default.
    pub fn has(&self, key: &str) -> Result<bool, Error> {
        self.value(key).map(|v| v.is_some())
    }

    /// A whole number.
    pub fn number(&self, key: &str) -> Result<i64, Error> {
        self.read(key, "a whole number", |value| match value {
            Argument::Number(n) => Some(*n),
            Argument::Flag(_) | Argument::Numbers(_) | Argument::Word(_) => None,
        })
    }

    /// A number, whole or not.
    ///
    /// ```
    /// use reshard_ops::rules::OpTable;
    /// let (table, call) = (OpTable::standard(), "leaky_relu(negative_slope=0.2)".parse()?);
    /// assert_eq!(table.request(&call, &[&[4]])?.real("negative_slope")?, 0.2);
    /// let call = "leaky_relu".parse()?;
    /// assert_eq!(table.request(&call, &[&[4]])?.real("negative_slope")?, 0.01);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    pub fn real(&self, key: &str) -> Result<f64, Error> {
        self.read(key, "a number", real)
    }

    /// A whole number that is declared not to be negative.
    pub fn size(&self, key: &str) -> Result<usize, Error> {
        self.read(key, "a size", |value| match value {
            Argument::Number(n) => usize::try_from(*n).ok(),
            Argument::Flag(_) | Argument::Numbers(_) | Argument::Word(_) => None,
        })
    }

    /// True or false.
    pub fn flag(&self, key: &str) -> Result<bool, Error> {
        self.read(key, "a flag", |value| match value {
            Argument::Flag(b) => Some(*b),
            Argument::Number(_) | Argument::Numbers(_) | Argument::Word(_) => None,
        })
    }

    /// Returns one of the declared words; for an argument of any value, its text.
    pub fn word(&self, key: &str) -> Result<String, Error> {
        self.read(key, "an identifier", |value| Some(value.to_string()))
    }

    /// A list of whole numbers; a number alone is a list of it.
    pub fn numbers(&self, key: &str) -> Result<Vec<i64>, Error> {
        self.read(key, "a list of numbers", |value| match value {
            Argument::Number(_) | Argument::Numbers(_) => Some(value.as_list().to_vec()),
            Argument::Flag(_) | Argument::Word(_) => None,
        })
    }

    /// A list of whole numbers that are declared not to be negative.
    pub fn sizes(&self, key: &str) -> Result<Vec<usize>, Error> {
        let size = |&n: &i64| usize::try_from(n).ok();
        self.read(key, "sizes", |value| match value {
            Argument::Number(_) | Argument::Numbers(_) => value.as_list().iter().map(size).collect(),
            Argument::Flag(_) | Argument::Word(_) => None,
        })
    }

    /// Returns a number for each of `n` spatial dims: a list of `n`, or one for all.
    pub fn spatial(&self, key: &str, n: usize) -> Result<Vec<usize>, Error> {
        let list = self.sizes(key)?;
        match list.len() {
            1 => Ok(vec![list[0]; n]),
            of if of == n => Ok(list),
            of => Err(self.error(format!("{key} has {of} numbers for {n} spatial dims"))),
        }
    }

    /// The dim that an argument names, counted from the start.
    pub fn dim(&self, key: &str) -> Result<usize, Error> {
        let dim = self.number(key)?;
        self.resolve(key, dim, self.dims_to_name(key)?)
    }

    /// The dims that an argument names, each once, counted from the start; all of them where that is the default.
    pub fn dims(&self, key: &str) -> Result<Vec<usize>, Error> {
        let dims = self.dims_to_name(key)?;
        if *self.declared(key)?.default_value() == DefaultValue::All && self.value(key)?.is_none() {
            return Ok((0..dims).collect());
        }
        let list = self.numbers(key)?;
        let mut out = Vec::with_capacity(list.len());
        for dim in list {
            let d = self.resolve(key, dim, dims)?;
            if out.contains(&d) {
                return Err(self.error(format!("{key} names dim {d} twice")));
            }
            out.push(d);
        }
        Ok(out)
    }

    /// Returns an argument that is a number of the first input's last dims.
    pub fn count(&self, key: &str) -> Result<usize, Error> {
        let (n, rank) = (self.size(key)?, self.input(0)?.len());
        if (1..=rank).contains(&n) {
            return Ok(n);
        }
        Err(self.error(format!("{key} is {n}, and the input has {rank} dims")))
    }

    /// Returns the number of dims from which an argument chooses.
    fn dims_to_name(&self, key: &str) -> Result<usize, Error> {
        let rank = self.input(0)?.len();
        match self.declared(key)?.kind() {
            ParameterKind::Dim(of) | ParameterKind::Dims(of) => Ok(of.count(rank)),
            ParameterKind::Count
            | ParameterKind::Number { .. }
            | ParameterKind::Real { .. }
            | ParameterKind::Numbers { .. }
            | ParameterKind::Spatial { .. }
            | ParameterKind::Flag
            | ParameterKind::Word(_)
            | ParameterKind::Any => {
                Err(self.error(format!("the family reads {key} as dims, and declares {}", self.parameters)))
            }
        }
    }

    /// A dim of `dims`, which may be counted from the end.
    fn resolve(&self, key: &str, dim: i64, dims: usize) -> Result<usize, Error> {
        let n = dims as i64;
        if (-n..n).contains(&dim) {
            return Ok((if dim < 0 { dim + n } else { dim }) as usize);
        }
        Err(self.error(format!("{key}={dim} is out of range for a tensor with {dims} dims")))
    }

    /// The shape of an input.
    pub fn input(&self, i: usize) -> Result<&[usize], Error> {
        self.inputs.get(i).copied().ok_or_else(|| self.error(format!("has no input {i}")))
    }

    /// The answer: an op with this rule, whose output shapes follow from it.
    pub fn op(&self, rule: &Rule) -> Result<Op, Error> {
        Op::new(&self.call.to_string(), rule, self.inputs)
    }

    /// The answer: an op with this rule and these output shapes.
    #[doc(hidden)]
    pub fn op_to(&self, rule: &Rule, outputs: &[&[usize]]) -> Result<Op, Error> {
        Op::with_outputs(&self.call.to_string(), rule, self.inputs, outputs)
    }

    /// Returns `n` dims of one letter each, except the dims of `whole`, which may not be sharded.
    #[doc(hidden)]
    pub fn dims_whole(&self, n: usize, whole: &[usize]) -> Result<Vec<Dim>, Error> {
        let letters = self.letters(n)?.into_iter().enumerate();
        Ok(letters.map(|(d, letter)| if whole.contains(&d) { Dim::Whole } else { letter.into() }).collect())
    }

    /// A letter for each of `n` dims.
    pub fn letters(&self, n: usize) -> Result<Vec<char>, Error> {
        // Not P, R or S, which are placements.
        let all = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOQTUVWXYZ";
        let letters: Vec<char> = all.chars().take(n).collect();
        if letters.len() == n {
            return Ok(letters);
        }
        Err(self.error(format!("has {n} dims, and a rule has {} letters", all.len())))
    }
}
