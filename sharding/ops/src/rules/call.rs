//! Calls: an op and its arguments, as a text.
//!
//! ```text
//! call   =  name [ "(" key "=" value "," .. ")" ]   |   a rule, which is its own op   |   each call
//! each   =  "each[" size "," .. ":" digits of an operand "," .. "]"       the call on each slice of its operands: see Each
//! value  =  whole number  |  number  |  "true"  |  "false"  |  word  |  "[" whole number "," .. "]"
//! ```

use core::fmt;
use std::str::FromStr;

use crate::Error;
use crate::rules::rule::Rule;
use crate::rules::strategy::write_list;
use crate::rules::vmapped::Vmapped;
use reshard_sharding::internal::Cursor;

/// An argument of a call, on which a rule, a shape or a result may depend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Argument {
    /// A whole number; dims may be negative, counted from the end.
    Number(i64),
    /// Yes or no.
    Flag(bool),
    /// Whole numbers.
    Numbers(Vec<i64>),
    /// One of a few words, like `sum`, or a number that is not whole, like `2.5` or `-inf`.
    Word(String),
}

impl Argument {
    /// Returns the numbers of a list, or a number alone; empty for anything else.
    pub(super) fn as_list(&self) -> &[i64] {
        match self {
            Argument::Number(n) => core::slice::from_ref(n),
            Argument::Numbers(list) => list,
            Argument::Flag(_) | Argument::Word(_) => &[],
        }
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Argument::Number(n) => n.fmt(f),
            Argument::Flag(b) => b.fmt(f),
            Argument::Word(w) => f.write_str(w),
            Argument::Numbers(list) => {
                f.write_str("[")?;
                write_list(f, list)?;
                f.write_str("]")
            }
        }
    }
}

/// The callee: an op of a table with its arguments, or a rule itself.
///
/// ```
/// use reshard_ops::rules::OpCall;
/// let call: OpCall = "sum( dims=[0,-1], keepdim=true )".parse()?;
/// assert_eq!(call.to_string(), "sum(dims=[0,-1],keepdim=true)");
/// assert_eq!("mk, kn -> mn".parse::<OpCall>()?.to_string(), "mk,kn->mn");
/// assert_eq!(OpCall::new("mm").to_string(), "mm");
/// assert!("cat(dim)".parse::<OpCall>().is_err());
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OpCall {
    /// An op of a table.
    Named {
        /// Its name.
        name: String,
        /// Its arguments in the order in which they were given; no key twice.
        arguments: Vec<(String, Argument)>,
    },
    /// An op that is defined by its rule alone.
    Rule(Rule),
    /// A call on each slice of its operands.
    Each(Vmapped),
}

impl OpCall {
    /// A call without arguments.
    pub fn new(name: &str) -> OpCall {
        OpCall::Named { name: name.to_owned(), arguments: Vec::new() }
    }

    /// Adds an argument to the call, or replaces its value.
    ///
    /// ```
    /// use reshard_ops::rules::{OpCall, Argument};
    /// assert_eq!(OpCall::new("softmax").with("dim", Argument::Number(1)).to_string(), "softmax(dim=1)");
    /// ```
    #[must_use]
    pub fn with(mut self, key: &str, value: Argument) -> OpCall {
        match &mut self {
            OpCall::Named { arguments, .. } => match arguments.iter_mut().find(|(k, _)| k == key) {
                Some((_, old)) => *old = value,
                None => arguments.push((key.to_owned(), value)),
            },
            OpCall::Rule(_) => {}
            OpCall::Each(each) => each.set(key, value),
        }
        self
    }

    /// Returns the name of the op, also of a call on slices; `None` for a rule.
    pub fn name(&self) -> Option<&str> {
        match self {
            OpCall::Named { name, .. } => Some(name),
            OpCall::Rule(_) => None,
            OpCall::Each(each) => each.call().name(),
        }
    }

    /// Returns the text of the callee and those of the arguments: `mm` and none, `sum` and `dims=[0]`.
    ///
    /// ```
    /// use reshard_ops::rules::OpCall;
    /// let call: OpCall = "each[4:1] sum(dims=[0])".parse()?;
    /// assert_eq!(call.parts(), ("each[4:1] sum".to_owned(), vec!["dims=[0]".to_owned()]));
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn parts(&self) -> (String, Vec<String>) {
        match self {
            OpCall::Rule(rule) => (rule.to_string(), Vec::new()),
            OpCall::Named { name, arguments } => {
                (name.clone(), arguments.iter().map(|(key, value)| format!("{key}={value}")).collect())
            }
            OpCall::Each(each) => {
                let (callee, arguments) = each.call().parts();
                (format!("{}{callee}", each.head()), arguments)
            }
        }
    }

    /// The argument of this key.
    pub fn argument(&self, key: &str) -> Option<&Argument> {
        match self {
            OpCall::Named { arguments, .. } => arguments.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            OpCall::Rule(_) => None,
            OpCall::Each(each) => each.call().argument(key),
        }
    }
}

impl OpCall {
    /// Returns the same call with these numbers folded into its key for random numbers.
    ///
    /// A call without a key is unchanged.
    ///
    /// ```
    /// use reshard_ops::rules::OpCall;
    /// let call: OpCall = "dropout(p=0.1,key=[3])".parse()?;
    /// assert_eq!(call.folded(&[1, 0]).to_string(), "dropout(p=0.1,key=[3,1,0])");
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    #[must_use]
    #[doc(hidden)]
    pub fn folded(&self, more: &[usize]) -> OpCall {
        let Some(key) = self.argument("key") else { return self.clone() };
        let more = more.iter().map(|&n| n as i64);
        self.clone().with("key", Argument::Numbers(key.as_list().iter().copied().chain(more).collect()))
    }
}

impl fmt::Display for OpCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpCall::Rule(rule) => rule.fmt(f),
            OpCall::Each(each) => each.fmt(f),
            OpCall::Named { name, arguments } => {
                f.write_str(name)?;
                for (i, (key, value)) in arguments.iter().enumerate() {
                    write!(f, "{}{key}={value}", if i == 0 { "(" } else { "," })?;
                }
                f.write_str(if arguments.is_empty() { "" } else { ")" })
            }
        }
    }
}

impl FromStr for OpCall {
    type Err = Error;
    fn from_str(s: &str) -> Result<OpCall, Error> {
        if let Some(rest) = s.trim_start().strip_prefix("each[") {
            return Vmapped::read(s, rest).map(OpCall::Each);
        }
        if s.contains("->") {
            return s.parse().map(OpCall::Rule);
        }
        let mut r = Cursor::new("call", s);
        let name = word(&mut r);
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(r
                .error_at(0, "the name of an op, like softmax(dim=1), or a rule, like mk,kn->mn")
                .into());
        }
        let mut arguments: Vec<(String, Argument)> = Vec::new();
        if r.eat("(") && !r.eat(")") {
            loop {
                let at = r.here();
                let key = word(&mut r);
                if key.is_empty() || arguments.iter().any(|(k, _)| k == key) {
                    return Err(r.error_at(at, "the name of an argument, each once").into());
                }
                r.expect("=")?;
                arguments.push((key.to_owned(), value(&mut r)?));
                if !r.eat(",") {
                    break;
                }
            }
            r.expect(")")?;
        }
        r.finish()?;
        Ok(OpCall::Named { name: name.to_owned(), arguments })
    }
}

/// The longest run of characters of a name.
pub(super) fn word<'a>(r: &mut Cursor<'a>) -> &'a str {
    r.take_while(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
}

/// An argument's value.
pub(super) fn value(r: &mut Cursor<'_>) -> Result<Argument, Error> {
    if r.eat("[") {
        let mut list = Vec::new();
        while !r.eat("]") {
            if !list.is_empty() {
                r.expect(",")?;
            }
            list.push(whole(r)?);
        }
        return Ok(Argument::Numbers(list));
    }
    if r.rest().starts_with(|c: char| c.is_ascii_digit() || c == '-') {
        let mut ahead = r.clone();
        let text = ahead.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'));
        if let (Err(_), Ok(n)) = (text.parse::<i64>(), text.parse::<f64>()) {
            // Numbers have one canonical text: 1e-5 is 0.00001, and 2.0 is 2. Whole numbers are not rounded.
            let kept = n.to_string();
            if (n.is_finite() && text.contains(['.', 'e', 'E'])) || kept == text {
                *r = ahead;
                return Ok(kept.parse().map_or(Argument::Word(kept), Argument::Number));
            }
        }
        return whole(r).map(Argument::Number);
    }
    let at = r.here();
    Ok(match word(r) {
        "" => {
            return Err(r
                .error_at(at, "a number, true, false, an identifier or a list such as [0,2]")
                .into());
        }
        "true" => Argument::Flag(true),
        "false" => Argument::Flag(false),
        other => Argument::Word(other.to_owned()),
    })
}

/// A whole number, which may be negative.
pub(super) fn whole(r: &mut Cursor<'_>) -> Result<i64, Error> {
    let negative = r.eat("-");
    let n = r.number("a whole number")? as i64;
    Ok(if negative { -n } else { n })
}
