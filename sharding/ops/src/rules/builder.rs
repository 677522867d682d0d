//! Rules from parts: the one way in which an equation is made, by families and by the notation alike.
//!
//! What goes in are operands as lists of dims, which name their factors by letter, and what is said of factors and of
//! terms. What comes out has its factors in order (outputs' first), a role for each, and a way for terms to pass; or it is
//! refused with the reason, so that every rule that there is can be printed and read back.

use std::sync::Arc;

use crate::Error;
use crate::rules::factor::{Dim, Factor, FactorKind, Slicing};
use crate::rules::passing::{Operands, PartialRule};
use crate::rules::rule::{Equation, Form, Rule};
use crate::rules::strategy::{OperandPlacement, Strategy};
use crate::rules::written::OutputAliasing;
use reshard_sharding::{Placement, ReduceOp};

/// An equation in the making.
///
/// Without a word on them: a factor that some output lacks is summed; an equation of sums only is multilinear, as einsum
/// is; one that reduces its only input by another op lets the terms of that op pass; any other lets none pass.
///
/// ```
/// use reshard_ops::rules::{Dim, Operands, Passing, Role, RuleBuilder};
/// use reshard_sharding::ReduceOp;
/// let mm = RuleBuilder::new().input(['m', 'k']).input(['k', 'n']).output(['m', 'n']).build()?;
/// assert_eq!(mm, "mk,kn->mn".parse()?);
/// let mean = RuleBuilder::new()
///     .input([Dim::Rest, 'j'.into()])
///     .output([Dim::Rest])
///     .role('j', Role::Reduce(ReduceOp::Avg))
///     .passing(Passing::Linear(Operands::All))
///     .build()?;
/// assert_eq!(mean.to_string(), "...j->... {j: avg, linear}");
/// let wrong = RuleBuilder::new().input(['i']).output(['i']).role('j', Role::Replicate).build().unwrap_err();
/// assert_eq!(wrong.to_string(), "\"i->i\": j is no factor of an operand");
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RuleBuilder {
    inputs: Vec<Vec<Dim>>,
    outputs: Vec<Vec<Dim>>,
    said: Vec<(char, Said)>,
    /// Whether something was said of the ellipsis: that its dims need their region.
    rest_region: bool,
    passings: Option<Vec<PartialRule>>,
    written: OutputAliasing,
}

/// What is said of a factor.
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

    /// One input more, with these dims.
    #[must_use]
    pub fn input(mut self, dims: impl IntoIterator<Item = impl Into<Dim>>) -> RuleBuilder {
        self.inputs.push(listed(dims));
        self
    }

    /// So many inputs more, all with these dims.
    #[must_use]
    pub fn inputs(mut self, count: usize, dims: impl IntoIterator<Item = impl Into<Dim>>) -> RuleBuilder {
        self.inputs.extend(std::iter::repeat_n(listed(dims), count));
        self
    }

    /// One output more, with these dims.
    #[must_use]
    pub fn output(mut self, dims: impl IntoIterator<Item = impl Into<Dim>>) -> RuleBuilder {
        self.outputs.push(listed(dims));
        self
    }

    /// So many outputs more, all with these dims.
    #[must_use]
    pub fn outputs(mut self, count: usize, dims: impl IntoIterator<Item = impl Into<Dim>>) -> RuleBuilder {
        self.outputs.extend(std::iter::repeat_n(listed(dims), count));
        self
    }

    /// What sharding a factor does. An average is even, too.
    #[must_use]
    pub fn role(mut self, factor: char, role: FactorKind) -> RuleBuilder {
        self.said.push((factor, Said::Role(role)));
        self
    }

    /// The same of several factors.
    #[must_use]
    pub fn roles(self, factors: impl IntoIterator<Item = char>, role: FactorKind) -> RuleBuilder {
        factors.into_iter().fold(self, |rule, factor| rule.role(factor, role))
    }

    /// A factor has to be cut evenly.
    #[must_use]
    pub fn even(mut self, factor: char) -> RuleBuilder {
        self.said.push((factor, Said::Even));
        self
    }

    /// An op that runs on a shard of one of these has to know which part of the whole that is: of a factor, or of a dim of the
    /// ellipsis.
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

    /// How many iterations a factor has.
    #[must_use]
    pub fn size(mut self, factor: char, size: usize) -> RuleBuilder {
        self.said.push((factor, Said::Size(size)));
        self
    }

    /// One way more in which terms pass.
    #[must_use]
    pub fn passing(mut self, passing: PartialRule) -> RuleBuilder {
        self.passings.get_or_insert_default().push(passing);
        self
    }

    /// Several ways more; of an empty list, no terms pass.
    #[must_use]
    pub fn passings(mut self, list: impl IntoIterator<Item = PartialRule>) -> RuleBuilder {
        self.passings.get_or_insert_default().extend(list);
        self
    }

    /// Where outputs go: into new tensors where nothing is said.
    #[must_use]
    pub fn written(mut self, written: OutputAliasing) -> RuleBuilder {
        self.written = written;
        self
    }

    /// The rule.
    ///
    /// Fails for what no op can mean, and for what could not be read back.
    pub fn build(self) -> Result<Rule, Error> {
        self.finish(None)
    }

    /// The rule that a text says.
    pub(super) fn build_from(self, text: &str) -> Result<Rule, Error> {
        self.finish(Some(text))
    }

    /// Whether an operand has this factor.
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
        let reason = unknown.map(|name| format!("{name} is no factor of an operand")).or_else(|| refusal(&e));
        made(e, text, reason)
    }
}

/// Dims as a list. A loop, since it is compiled for every kind of list: a chain that collects is five times as much code.
fn listed(dims: impl IntoIterator<Item = impl Into<Dim>>) -> Vec<Dim> {
    let mut list = Vec::new();
    for dim in dims {
        list.push(dim.into());
    }
    list
}

/// The rule of an equation, if an op can mean it.
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
    /// The equation of these operands of which nothing else is said; how terms pass is still open.
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

    /// The role of a factor that nothing was said about.
    pub(super) fn default_role(&self, factor: char) -> FactorKind {
        if self.outputs.iter().all(|dims| Equation::carries(dims, factor)) {
            FactorKind::PassThrough
        } else {
            FactorKind::Reduction(ReduceOp::Sum)
        }
    }

    /// How terms pass if nothing was said.
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

/// Why no op can mean an equation, or no text could say it.
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
            "an output lacks the ellipsis, whose dims pass: give letters to dims that are reduced".to_owned(),
        );
    }
    for f in &e.factors {
        let name = f.name;
        if !name.is_ascii_alphabetic() || matches!(name, 'P' | 'R' | 'S') {
            return Some(format!(
                "a factor is a letter other than P, R and S, which are placements, not {name}"
            ));
        }
        if f.size.is_some_and(|n| i64::try_from(n).is_err()) {
            return Some(format!("the size of {name} does not fit in 63 bits"));
        }
        let lacking = e.outputs.iter().any(|dims| !Equation::carries(dims, name));
        match f.role {
            FactorKind::PassThrough if lacking => {
                return Some(format!(
                    "an output lacks {name}, so that {name} cannot pass: say how it is reduced, like {{{name}: sum}}"
                ));
            }
            FactorKind::Reduction(op) if !lacking => {
                return Some(format!("{name} cannot be reduced by {op}: every output carries it"));
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
        return list.is_empty().then(|| "a list of inputs names none".to_owned());
    }
    let PartialRule::Row(row) = p else { return None };
    if (row.inputs.len(), row.outputs.len()) != (inputs, e.outputs.len()) {
        return Some(format!("({row}) has not as many operands as the equation"));
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
        "{part} in ({row}): a strategy in braces has only R, P, S(letter) and what is fixed, like SS(0,2), or S(0) of a dim *"
    )
}
