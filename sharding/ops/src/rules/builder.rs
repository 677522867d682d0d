//! Rules from parts: the single constructor of equations, used by families and by the notation.
//!
//! Its inputs are operands as lists of dims, which name their factors by letter, and properties of factors
//! and of partial values. The result has its factors in order (outputs' first), a role for each, and the
//! partial values that pass. Invalid equations are rejected with the reason, so that every existing rule can
//! be printed and round-trips.

use std::sync::Arc;

use crate::Error;
use crate::rules::aliasing::OutputAliasing;
use crate::rules::factor::{Dim, Factor, FactorKind, Slicing};
use crate::rules::partial_rule::{Operands, PartialRule};
use crate::rules::rule::{Equation, Form, Rule};
use crate::rules::strategy::{OperandPlacement, Strategy};
use reshard_sharding::{Placement, ReduceOp};

/// An equation under construction.
///
/// By default, a factor that some output lacks is summed. An equation of sums only is multilinear, as einsum
/// is. One that reduces its only input by another op passes the partial values of that op. Any other passes
/// none.
///
/// ```
/// use reshard_ops::rules::{Dim, Operands, PartialRule, FactorKind, RuleBuilder};
/// use reshard_sharding::ReduceOp;
/// let mm = RuleBuilder::new().input(['m', 'k']).input(['k', 'n']).output(['m', 'n']).build()?;
/// assert_eq!(mm, "mk,kn->mn".parse()?);
/// let mean = RuleBuilder::new()
///     .input([Dim::Rest, 'j'.into()])
///     .output([Dim::Rest])
///     .role('j', FactorKind::Reduction(ReduceOp::Avg))
///     .passing(PartialRule::Linear(Operands::All))
///     .build()?;
/// assert_eq!(mean.to_string(), "...j->... {j: avg, linear}");
/// let wrong = RuleBuilder::new().input(['i']).output(['i']).role('j', FactorKind::NeedReplication).build().unwrap_err();
/// assert_eq!(wrong.to_string(), "\"i->i\": j is not a factor of an operand");
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RuleBuilder {
    inputs: Vec<Vec<Dim>>,
    outputs: Vec<Vec<Dim>>,
    said: Vec<(char, Said)>,
    /// `true` if the dims of the ellipsis are declared to need their region.
    rest_region: bool,
    passings: Option<Vec<PartialRule>>,
    written: OutputAliasing,
}

/// A declared property of a factor.
#[derive(Clone, Copy, Debug)]
enum Said {
    Role(FactorKind),
    Even,
    Region,
    Size(usize),
}

impl RuleBuilder {
    /// An equation without operands.
    pub fn new() -> RuleBuilder {
        RuleBuilder::default()
    }

    /// Adds one input with these dims.
    #[must_use]
    pub fn input(mut self, dims: impl IntoIterator<Item = impl Into<Dim>>) -> RuleBuilder {
        self.inputs.push(listed(dims));
        self
    }

    /// Adds `count` inputs, all with these dims.
    #[must_use]
    #[doc(hidden)]
    pub fn inputs(mut self, count: usize, dims: impl IntoIterator<Item = impl Into<Dim>>) -> RuleBuilder {
        self.inputs.extend(std::iter::repeat_n(listed(dims), count));
        self
    }

    /// Adds one output with these dims.
    #[must_use]
    pub fn output(mut self, dims: impl IntoIterator<Item = impl Into<Dim>>) -> RuleBuilder {
        self.outputs.push(listed(dims));
        self
    }

    /// Adds `count` outputs, all with these dims.
    #[must_use]
    pub(crate) fn outputs(
        mut self,
        count: usize,
        dims: impl IntoIterator<Item = impl Into<Dim>>,
    ) -> RuleBuilder {
        self.outputs.extend(std::iter::repeat_n(listed(dims), count));
        self
    }

    /// Sets the role of a factor. An average is even, too.
    #[must_use]
    pub fn role(mut self, factor: char, role: FactorKind) -> RuleBuilder {
        self.said.push((factor, Said::Role(role)));
        self
    }

    /// Sets the role of several factors.
    #[must_use]
    pub(crate) fn roles(self, factors: impl IntoIterator<Item = char>, role: FactorKind) -> RuleBuilder {
        factors.into_iter().fold(self, |rule, factor| rule.role(factor, role))
    }

    /// Requires that a factor is split evenly.
    #[must_use]
    pub fn even(mut self, factor: char) -> RuleBuilder {
        self.said.push((factor, Said::Even));
        self
    }

    /// Declares that an op on a shard of one of these has to know its region.
    ///
    /// They are factors, or the dims of the ellipsis.
    ///
    /// ```
    /// use reshard_ops::rules::{Dim, RuleBuilder};
    /// let dims = [Dim::Rest, 'i'.into(), 'j'.into()];
    /// let tril = RuleBuilder::new().input(dims.clone()).output(dims).regions(['i', 'j']).build()?;
    /// assert_eq!(tril.to_string(), "...ij->...ij {i: region, j: region}");
    /// let dropout = RuleBuilder::new().input([Dim::Rest]).output([Dim::Rest]).regions([Dim::Rest]).build()?;
    /// assert_eq!(dropout.to_string(), "...->... {...: region}");
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    #[must_use]
    pub fn regions(mut self, of: impl IntoIterator<Item = impl Into<Dim>>) -> RuleBuilder {
        for dim in listed(of) {
            self.rest_region |= dim == Dim::Rest;
            self.said.extend(dim.factors().iter().map(|&name| (name, Said::Region)));
        }
        self
    }

    /// Sets the number of iterations of a factor.
    #[must_use]
    pub fn size(mut self, factor: char, size: usize) -> RuleBuilder {
        self.said.push((factor, Said::Size(size)));
        self
    }

    /// Adds one passing of partial values.
    #[must_use]
    pub fn passing(mut self, passing: PartialRule) -> RuleBuilder {
        self.passings.get_or_insert_default().push(passing);
        self
    }

    /// Adds several passings; with an empty list, no partial values pass.
    #[must_use]
    #[doc(hidden)]
    pub fn passings(mut self, list: impl IntoIterator<Item = PartialRule>) -> RuleBuilder {
        self.passings.get_or_insert_default().extend(list);
        self
    }

    /// Sets the destination of outputs; new tensors by default.
    #[must_use]
    pub fn aliasing(mut self, written: OutputAliasing) -> RuleBuilder {
        self.written = written;
        self
    }

    /// Builds the rule.
    ///
    /// Fails for an equation that no op can have, and for one whose text would not round-trip.
    pub fn build(self) -> Result<Rule, Error> {
        self.finish(None)
    }

    /// Builds the rule of a text.
    pub(super) fn build_from(self, text: &str) -> Result<Rule, Error> {
        self.finish(Some(text))
    }

    /// Returns `true` if an operand has this factor.
    pub(super) fn names(&self, factor: char) -> bool {
        self.inputs.iter().chain(&self.outputs).any(|dims| Equation::carries(dims, factor))
    }

    fn finish(self, text: Option<&str>) -> Result<Rule, Error> {
        let unknown = self.said.iter().map(|&(name, _)| name).find(|&name| !self.names(name));
        let (said, passings) = (self.said, self.passings);
        let mut e = Equation::of(self.inputs, self.outputs, self.written);
        for (name, what) in said {
            let Some(factor) = e.factors.iter_mut().find(|f| f.name == name) else { continue };
            match what {
                Said::Role(role) => factor.role = role,
                Said::Even => factor.slicing = Slicing::Even,
                Said::Region => factor.region = true,
                Said::Size(size) => factor.size = Some(size),
            }
            if factor.role == FactorKind::Reduction(ReduceOp::Avg) {
                factor.slicing = Slicing::Even;
            }
        }
        e.rest_region = self.rest_region;
        e.partial_rules = passings.unwrap_or_else(|| e.default_passings());
        let reason =
            unknown.map(|name| format!("{name} is not a factor of an operand")).or_else(|| refusal(&e));
        made(e, text, reason)
    }
}

/// Returns dims as a list.
///
/// It is a loop because it is compiled for every kind of list: a chain that collects is five times as much
/// code.
fn listed(dims: impl IntoIterator<Item = impl Into<Dim>>) -> Vec<Dim> {
    let mut list = Vec::new();
    for dim in dims {
        list.push(dim.into());
    }
    list
}

/// Returns the rule of an equation, if it is valid.
pub(super) fn checked(e: Equation) -> Result<Rule, Error> {
    let reason = refusal(&e);
    made(e, None, reason)
}

fn made(e: Equation, text: Option<&str>, reason: Option<String>) -> Result<Rule, Error> {
    let rule = Rule(Arc::new(Form::Equation(e)));
    match (reason, text) {
        (None, _) => Ok(rule),
        (Some(reason), Some(text)) => Err(Error::Rule { reason: format!("{text:?}: {reason}") }),
        (Some(reason), None) => Err(Error::Rule { reason: format!("\"{rule}\": {reason}") }),
    }
}

impl Equation {
    /// Returns the equation of these operands with default properties; the passings are still open.
    fn of(inputs: Vec<Vec<Dim>>, outputs: Vec<Vec<Dim>>, written: OutputAliasing) -> Equation {
        let mut names: Vec<char> = Vec::new();
        for &name in outputs.iter().chain(&inputs).flatten().flat_map(Dim::factors) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let mut e = Equation {
            factors: Vec::new(),
            inputs,
            outputs,
            rest_region: false,
            partial_rules: Vec::new(),
            aliasing: written,
        };
        e.factors = names
            .into_iter()
            .map(|name| Factor {
                name,
                role: e.default_role(name),
                slicing: Slicing::Any,
                region: false,
                size: None,
            })
            .collect();
        e
    }

    /// The role of a factor that none was declared for.
    pub(super) fn default_role(&self, factor: char) -> FactorKind {
        if self.outputs.iter().all(|dims| Equation::carries(dims, factor)) {
            FactorKind::PassThrough
        } else {
            FactorKind::Reduction(ReduceOp::Sum)
        }
    }

    /// The passings of partial values if none were declared.
    pub(super) fn default_passings(&self) -> Vec<PartialRule> {
        let inputs = self.reads();
        let replicates = self.factors.iter().any(|f| f.role == FactorKind::NeedReplication)
            || self.inputs.iter().chain(&self.outputs).flatten().any(|d| *d == Dim::Whole);
        let mut ops: Vec<ReduceOp> = self.reductions().collect();
        ops.dedup();
        if replicates || inputs == 0 {
            return Vec::new();
        }
        match ops.as_slice() {
            [] | [ReduceOp::Sum] => vec![PartialRule::Multilinear(Operands::All)],
            [op] if inputs == 1 => {
                let row = Strategy {
                    inputs: vec![OperandPlacement::Partial(*op)],
                    outputs: vec![OperandPlacement::Partial(*op); self.outputs.len()],
                };
                vec![PartialRule::Row(row)]
            }
            _ => Vec::new(),
        }
    }
}

/// Returns the reason why no op can have an equation, or no text could express it.
fn refusal(e: &Equation) -> Option<String> {
    let operands = || e.inputs.iter().chain(&e.outputs);
    if e.outputs.is_empty() {
        return Some("it has no output".to_owned());
    }
    if operands().any(|dims| dims.iter().filter(|d| **d == Dim::Rest).count() > 1) {
        return Some("an operand has more than one ellipsis".to_owned());
    }
    if e.rest_region && !e.has_rest() {
        return Some("no operand has an ellipsis whose dims could need their region".to_owned());
    }
    let has_rest = |dims: &Vec<Dim>| dims.contains(&Dim::Rest);
    if e.inputs.iter().any(has_rest) && !e.outputs.iter().all(has_rest) {
        return Some(
            "an output lacks the ellipsis, whose dims pass through; give letters to dims that are reduced"
                .to_owned(),
        );
    }
    for f in &e.factors {
        let name = f.name;
        if !name.is_ascii_alphabetic() || matches!(name, 'P' | 'R' | 'S') {
            return Some(format!(
                "a factor must be a letter other than P, R and S, which are placements, not {name}"
            ));
        }
        if f.size.is_some_and(|n| i64::try_from(n).is_err()) {
            return Some(format!("the size of {name} does not fit in 63 bits"));
        }
        let lacking = e.outputs.iter().any(|dims| !Equation::carries(dims, name));
        match f.role {
            FactorKind::PassThrough if lacking => {
                return Some(format!(
                    "an output lacks {name}, so {name} cannot pass through; give its reduction, such as {{{name}: \
                     sum}}"
                ));
            }
            FactorKind::Reduction(op) if !lacking => {
                return Some(format!("{name} cannot be reduced by {op}: every output has it"));
            }
            FactorKind::PassThrough | FactorKind::Reduction(_) | FactorKind::NeedReplication => {}
        }
    }
    e.refuses_written().or_else(|| e.partial_rules.iter().find_map(|p| refusal_of_passing(e, p)))
}

fn refusal_of_passing(e: &Equation, p: &PartialRule) -> Option<String> {
    let inputs = e.reads();
    if let Some(list) = p.listed() {
        if let Some(i) = list.iter().find(|&&i| i >= inputs) {
            return Some(format!("{p} names input {i}, but there are {inputs}, counted from 0"));
        }
        return list.is_empty().then(|| "a list of inputs is empty".to_owned());
    }
    let PartialRule::Row(row) = p else { return None };
    if (row.inputs.len(), row.outputs.len()) != (inputs, e.outputs.len()) {
        return Some(format!("({row}) must have as many operands as the equation"));
    }
    let operands = e.inputs[..inputs].iter().chain(&e.outputs);
    row.inputs.iter().chain(&row.outputs).zip(operands).find_map(|(part, dims)| match part {
        OperandPlacement::Replicate | OperandPlacement::Partial(_) => None,
        // A dim that has letters is named by them.
        OperandPlacement::Fixed(Placement::Shard(dim)) if matches!(dims.get(*dim), Some(Dim::Factors(_))) => {
            Some(not_in_braces(part, row))
        }
        OperandPlacement::Rest | OperandPlacement::Dim { .. } => Some(not_in_braces(part, row)),
        OperandPlacement::Fixed(placement) => placement
            .dim()
            .is_some_and(|dim| dim >= dims.len() && !dims.contains(&Dim::Rest))
            .then(|| format!("{part} in ({row}): the operand has {} dims", dims.len())),
        OperandPlacement::Factor(name) => (!Equation::carries(dims, *name) || e.is_diagonal(*name))
            .then(|| format!("{part} in ({row}): the operand has no {name} to shard")),
    })
}

fn not_in_braces(part: &OperandPlacement, row: &Strategy) -> String {
    format!(
        "{part} in ({row}): a strategy in braces can have only R, P, S(letter) and fixed placements, such as SS(0,2), \
         or S(0) of a dim *"
    )
}
