//! What a family is asked: a call and the shapes of its inputs; and how it answers.

use core::fmt;

use crate::Error;
use crate::rules::call::{Call, Value};
use crate::rules::factor::Dim;
use crate::rules::op::{Brackets, Op};
use crate::rules::rule::Rule;

/// A call of a family of ops on inputs of these shapes.
///
/// Its methods read arguments and check them; [`Request::op`] answers with a rule.
#[derive(Debug)]
pub struct Request<'a> {
    /// The call.
    pub call: &'a Call,
    /// The shapes of the inputs.
    pub inputs: &'a [&'a [usize]],
}

impl Request<'_> {
    /// An error about this call in one sentence.
    pub fn error(&self, reason: impl fmt::Display) -> Error {
        let shapes: Vec<String> = self.inputs.iter().take(8).map(|s| Brackets(s).to_string()).collect();
        let more = if self.inputs.len() > 8 { " and more" } else { "" };
        let on = if shapes.is_empty() { "nothing".to_owned() } else { shapes.join(" and ") };
        Error::Rule { reason: format!("{} on {on}{more}: {reason}", self.call) }
    }

    /// The number of inputs, if it is one of these.
    pub fn inputs_of(&self, allowed: core::ops::RangeInclusive<usize>) -> Result<usize, Error> {
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

    /// A whole number.
    pub fn number(&self, key: &str) -> Result<Option<i64>, Error> {
        match self.call.argument(key) {
            None => Ok(None),
            Some(Value::Number(n)) => Ok(Some(*n)),
            Some(v @ (Value::Flag(_) | Value::Numbers(_) | Value::Word(_))) => {
                Err(self.error(format!("{key} is {v}, and should be a whole number")))
            }
        }
    }

    /// A whole number of at least `least`, or else `default`.
    pub fn at_least(&self, key: &str, least: usize, default: usize) -> Result<usize, Error> {
        match self.number(key)? {
            None => Ok(default),
            Some(n) if n >= least as i64 => Ok(n as usize),
            Some(n) => Err(self.error(format!("{key} is {n}, and should be at least {least}"))),
        }
    }

    /// A whole number that has to be given.
    pub fn required(&self, key: &str, least: usize) -> Result<usize, Error> {
        if self.call.argument(key).is_none() {
            return Err(self.error(format!(
                "needs {key}: write {}",
                self.call.clone().with(key, Value::Number(least as i64))
            )));
        }
        self.at_least(key, least, least)
    }

    /// Yes or no.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool, Error> {
        match self.call.argument(key) {
            None => Ok(default),
            Some(Value::Flag(b)) => Ok(*b),
            Some(v @ (Value::Number(_) | Value::Numbers(_) | Value::Word(_))) => {
                Err(self.error(format!("{key} is {v}, and should be true or false")))
            }
        }
    }

    /// One of these words; the first is what holds where nothing is said.
    pub fn word<'w>(&self, key: &str, words: &[&'w str]) -> Result<&'w str, Error> {
        let Some(value) = self.call.argument(key) else { return Ok(words[0]) };
        let text = value.to_string();
        words
            .iter()
            .find(|w| **w == text)
            .copied()
            .ok_or_else(|| self.error(format!("{key} is {text}, and should be {}", words.join(" or "))))
    }

    /// A list of whole numbers; a number alone is a list of it.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<i64>>, Error> {
        match self.call.argument(key) {
            None => Ok(None),
            Some(Value::Number(n)) => Ok(Some(vec![*n])),
            Some(Value::Numbers(list)) => Ok(Some(list.clone())),
            Some(v @ (Value::Flag(_) | Value::Word(_))) => {
                Err(self.error(format!("{key} is {v}, and should be a list of whole numbers")))
            }
        }
    }

    /// Sizes: a list of numbers of at least `least`.
    pub fn sizes(&self, key: &str, least: usize) -> Result<Option<Vec<usize>>, Error> {
        let Some(list) = self.numbers(key)? else { return Ok(None) };
        let size = |&n: &i64| {
            if n >= least as i64 {
                return Ok(n as usize);
            }
            Err(self.error(format!("{key} has {n}, and should have numbers of at least {least}")))
        };
        list.iter().map(size).collect::<Result<_, _>>().map(Some)
    }

    /// For each of `n` spatial dims a number: a list of `n`, or one for all.
    pub fn spatial(&self, key: &str, n: usize, least: usize, default: usize) -> Result<Vec<usize>, Error> {
        match self.sizes(key, least)? {
            None => Ok(vec![default; n]),
            Some(list) if list.len() == 1 => Ok(vec![list[0]; n]),
            Some(list) if list.len() == n => Ok(list),
            Some(list) => Err(self.error(format!("{key} has {} numbers for {n} spatial dims", list.len()))),
        }
    }

    /// A dim of `dims`, which may be counted from the end.
    pub fn resolve(&self, key: &str, dim: i64, dims: usize) -> Result<usize, Error> {
        let n = dims as i64;
        if (-n..n).contains(&dim) {
            return Ok((if dim < 0 { dim + n } else { dim }) as usize);
        }
        Err(self.error(format!("{key}={dim} is no dim of a tensor with {dims} dims")))
    }

    /// The dim of this key among `dims`, or `default` of them.
    pub fn dim(&self, key: &str, dims: usize, default: i64) -> Result<usize, Error> {
        self.resolve(key, self.number(key)?.unwrap_or(default), dims)
    }

    /// The dims of this key, each once; all of them where nothing is said.
    pub fn dims(&self, key: &str, dims: usize) -> Result<Vec<usize>, Error> {
        let Some(list) = self.numbers(key)? else { return Ok((0..dims).collect()) };
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

    /// The shape of an input.
    pub fn input(&self, i: usize) -> Result<&[usize], Error> {
        self.inputs.get(i).copied().ok_or_else(|| self.error(format!("has no input {i}")))
    }

    /// The answer: an op with this rule, whose output shapes follow from it.
    pub fn op(&self, rule: &Rule) -> Result<Op, Error> {
        Op::new(&self.call.to_string(), rule, self.inputs)
    }

    /// The answer: an op with this rule and these output shapes.
    pub fn op_to(&self, rule: &Rule, outputs: &[&[usize]]) -> Result<Op, Error> {
        Op::with_outputs(&self.call.to_string(), rule, self.inputs, outputs)
    }

    /// A dim for each of `n`, of a letter each, but for those of which no rank may hold a part.
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
