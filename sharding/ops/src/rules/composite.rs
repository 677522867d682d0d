//! Composites: ops whose body is a list of calls of other ops.
//!
//! ```text
//! body       =  [name "," ..] "->" name "," .. ":" statement ";" statement ..
//! statement  =  name "," .. "=" callee "(" operand "," .. ["," key "=" value ..] ")"
//! callee     =  the name of an op  |  a rule, like mk,kn->mn
//! ```
//!
//! A name is made once, by an input or by a statement, before it is used. An unused result may be called `_`,
//! more than once.

use core::fmt;
use std::str::FromStr;

use reshard_sharding::internal::outside_brackets;

use crate::Error;
use crate::rules::call::OpCall;

/// The body of a composite: its inputs, its outputs, and the calls between them.
///
/// ```
/// use reshard_ops::rules::{OpCall, Composite, OpTable};
/// let gate: Composite = "x, g -> y: s = silu(g); y = mul(x, s)".parse()?;
/// assert_eq!(gate.to_string(), "x,g -> y: s = silu(g); y = mul(x,s)");
/// let mut table = OpTable::standard();
/// table.add_composite("gate", gate)?;
/// let op = table.op(&OpCall::new("gate"), &[&[8, 6], &[8, 6]])?;
/// assert_eq!(op.rule().map(ToString::to_string).as_deref(), Some("ab,ab->ab {(P,R -> P), (P(avg),R -> P(avg))}"));
/// let unknown = "x -> y: y = relu(z)".parse::<Composite>().unwrap_err();
/// assert_eq!(unknown.to_string(), "composite \"x -> y: y = relu(z)\": z is used before it is defined");
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Composite {
    /// The names of all values, inputs first, then in the order in which they are made.
    names: Vec<String>,
    inputs: usize,
    pub(super) outputs: Vec<usize>,
    pub(super) statements: Vec<Statement>,
}

/// One call in a body, on values by their number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Statement {
    pub(crate) call: OpCall,
    pub(crate) operands: Vec<usize>,
    pub(crate) results: Vec<usize>,
}

impl Composite {
    /// Returns a body of these values, of which the first are inputs; its text round-trips.
    pub(crate) fn of(
        names: Vec<String>,
        inputs: usize,
        outputs: Vec<usize>,
        statements: Vec<Statement>,
    ) -> Composite {
        Composite { names, inputs, outputs, statements }
    }

    /// Its statements as texts.
    pub(crate) fn statements(&self) -> Vec<String> {
        self.statements.iter().map(|s| self.statement(s)).collect()
    }

    fn statement(&self, s: &Statement) -> String {
        let (made, taken) = (self.listed(&s.results), self.listed(&s.operands));
        let (callee, arguments) = s.call.parts();
        let inside: Vec<String> =
            Some(taken).into_iter().filter(|t| !t.is_empty()).chain(arguments).collect();
        format!("{made} = {callee}({})", inside.join(","))
    }

    /// Returns a body that makes the same values by other calls.
    pub(super) fn with(&self, statements: Vec<Statement>) -> Composite {
        Composite { statements, ..self.clone() }
    }

    /// The names of some values.
    fn listed(&self, values: &[usize]) -> String {
        values.iter().map(|&v| self.name(v)).collect::<Vec<_>>().join(",")
    }

    /// The names of its inputs.
    pub fn inputs(&self) -> &[String] {
        &self.names[..self.inputs]
    }

    /// The names of its outputs.
    pub fn outputs(&self) -> impl Iterator<Item = &str> {
        self.outputs.iter().map(|&v| self.names[v].as_str())
    }

    /// Returns the calls with the indices of their operands and results: inputs come first, then results.
    ///
    /// ```
    /// use reshard_ops::rules::Composite;
    /// let body: Composite = "x, w -> y: h = mm(x, w); y = relu(h)".parse()?;
    /// let calls: Vec<String> = body.calls().map(|(call, takes, makes)| format!("{call} {takes:?} {makes:?}")).collect();
    /// assert_eq!(calls, ["mm [0, 1] [2]", "relu [2] [3]"]);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    pub fn calls(&self) -> impl Iterator<Item = (&OpCall, &[usize], &[usize])> {
        self.statements.iter().map(|s| (&s.call, s.operands.as_slice(), s.results.as_slice()))
    }

    /// The indices of its outputs among the values.
    #[doc(hidden)]
    pub fn output_values(&self) -> &[usize] {
        &self.outputs
    }

    /// The number of values.
    pub(crate) fn values(&self) -> usize {
        self.names.len()
    }

    pub(super) fn name(&self, value: usize) -> &str {
        &self.names[value]
    }
}

impl fmt::Display for Composite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inputs = self.inputs().join(",");
        let space = if inputs.is_empty() { "" } else { " " };
        write!(f, "{inputs}{space}-> {}:", self.listed(&self.outputs))?;
        for (i, s) in self.statements.iter().enumerate() {
            write!(f, "{} {}", if i == 0 { "" } else { ";" }, self.statement(s))?;
        }
        Ok(())
    }
}

impl FromStr for Composite {
    type Err = Error;

    fn from_str(text: &str) -> Result<Composite, Error> {
        read(text).map_err(|reason| Error::Rule { reason: format!("composite {text:?}: {reason}") })
    }
}

/// The reason why a text is invalid.
type Refusal = String;

fn read(text: &str) -> Result<Composite, Refusal> {
    let form = "the form is inputs -> outputs: name = op(operands, key=value); ..";
    let (head, body) = text.split_once(':').ok_or(form)?;
    let (inputs, outputs) = head.split_once("->").ok_or(form)?;
    let mut names: Vec<String> = Vec::new();
    for name in listed(inputs) {
        make(&mut names, name)?;
    }
    let count = names.len();
    let mut statements = Vec::new();
    for statement in body.split(';').filter(|s| !s.trim().is_empty()) {
        statements.push(read_statement(statement, &mut names)?);
    }
    let outputs = listed(outputs).map(|name| used(&names, name)).collect::<Result<Vec<_>, _>>()?;
    if outputs.is_empty() {
        return Err("it has no output".to_owned());
    }
    if let Some(output) = outputs.iter().find(|&&v| v < count) {
        return Err(format!("{} is an input and an output; copy it, such as y = copy(x)", names[*output]));
    }
    if let Some(idle) = (0..count).find(|v| !statements.iter().any(|s: &Statement| s.operands.contains(v))) {
        return Err(format!("nothing uses {}", names[idle]));
    }
    Ok(Composite { names, inputs: count, outputs, statements })
}

fn read_statement(text: &str, names: &mut Vec<String>) -> Result<Statement, Refusal> {
    let text = text.trim();
    let form = || format!("{text:?} is not a statement such as y = op(x, key=value)");
    let (made, callee) = text.split_once('=').ok_or_else(form)?;
    let callee = callee.trim().strip_suffix(')').ok_or_else(form)?;
    // The last closing parentheses; arguments may have brackets, but no parentheses.
    let (callee, inside) = callee.rsplit_once('(').ok_or_else(form)?;
    let (mut operands, mut arguments) = (Vec::new(), Vec::new());
    for item in outside_brackets(inside, ',') {
        match item {
            "" => {}
            item if item.contains('=') => arguments.push(item.to_owned()),
            item if !arguments.is_empty() => {
                return Err(format!("{item} comes after the arguments of {text:?}"));
            }
            item => operands.push(used(names, item)?),
        }
    }
    let called = match arguments.as_slice() {
        [] => callee.trim().to_owned(),
        list => format!("{}({})", callee.trim(), list.join(",")),
    };
    let call: OpCall = called.parse().map_err(|e: Error| e.to_string())?;
    let results = listed(made).map(|name| make(names, name)).collect::<Result<Vec<_>, _>>()?;
    if results.is_empty() {
        return Err(form());
    }
    Ok(Statement { call, operands, results })
}

fn listed(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|s| !s.is_empty())
}

/// Returns the index of a new value.
fn make(names: &mut Vec<String>, name: &str) -> Result<usize, Refusal> {
    let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.' || c == '\'');
    if !letters || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!(
            "invalid value name {name:?}; use letters, digits, `_`, `.` and `'`, and do not begin with \
             a digit"
        ));
    }
    if name != "_" && names.iter().any(|n| n == name) {
        return Err(format!("{name} is defined twice"));
    }
    names.push(name.to_owned());
    Ok(names.len() - 1)
}

/// Returns the index of an existing value.
fn used(names: &[String], name: &str) -> Result<usize, Refusal> {
    let known = names.iter().position(|n| n == name).filter(|_| name != "_");
    known.ok_or_else(|| format!("{name} is used before it is defined"))
}
