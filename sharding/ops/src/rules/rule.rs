//! The rule of an op: what it means to run it on parts, as data.

use core::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::Error;
use crate::rules::factor::{Dim, Factor, FactorKind};
use crate::rules::passing::PartialRule;
use crate::rules::strategy::{OperandPlacement, Strategy};
use crate::rules::written::OutputAliasing;
use reshard_sharding::{Exponent, ReduceOp};

/// An equation over factors, or an explicit list of strategies.
///
/// It also says where an op that runs on a shard has to know its **region**, that is, which part of the whole the shard is,
/// because it would compute something else if the shard were the whole: `region` after a factor, after the ellipsis, or
/// after a strategy of a list.
///
/// ```
/// use reshard_ops::rules::Rule;
/// let mm: Rule = "mk,kn->mn".parse()?;
/// let rows: Vec<String> = mm.strategies().iter().map(ToString::to_string).collect();
/// assert_eq!(rows, [
///     "S(m),R -> S(m)",
///     "R,S(n) -> S(n)",
///     "S(k),S(k) -> P",
///     "R,R -> R",
///     "P,R -> P",
///     "R,P -> P",
///     "P(avg),R -> P(avg)",
///     "R,P(avg) -> P(avg)",
/// ]);
/// let softmax: Rule = "ij->ij {j: replicate}".parse()?;
/// assert_eq!(softmax.strategies().len(), 2);
/// let ported: Rule = "?0,R->?0; R,?1->?1".parse()?;
/// assert_eq!(ported.to_string(), "?0,R -> ?0; R,?1 -> ?1");
/// let embedding: Rule = "vd,i->id {v: region}".parse()?;
/// assert!(embedding.needs_region(&"S(v),R -> P".parse()?));
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule(pub(super) Arc<Form>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    Equation(Equation),
    List(Vec<Listed>),
}

/// A strategy of a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Listed {
    pub(super) strategy: Strategy,
    /// Whether the op has to know its region for it.
    pub(super) region: bool,
}

/// Factors tied to dims.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Equation {
    /// The factors, in the order in which they first appear: outputs' first, then the others.
    pub factors: Vec<Factor>,
    /// The dims of each input.
    pub inputs: Vec<Vec<Dim>>,
    /// The dims of each output.
    pub outputs: Vec<Vec<Dim>>,
    /// Whether an op that runs on a shard of a dim of the ellipsis has to know which part of the whole that is.
    pub rest_region: bool,
    /// How terms pass.
    pub partial_rules: Vec<PartialRule>,
    /// Where outputs go.
    pub aliasing: OutputAliasing,
}

impl Rule {
    /// The rule that is exactly these strategies; all replicated is always one more.
    ///
    /// For none of them the op has to know its region; a text says otherwise by `?0 -> ?0 region`.
    ///
    /// Fails unless all have the same number of operands, and none speaks of factors.
    pub fn from_strategies(list: Vec<Strategy>) -> Result<Rule, Error> {
        Rule::listed(list.into_iter().map(|strategy| Listed { strategy, region: false }).collect())
    }

    pub(super) fn listed(list: Vec<Listed>) -> Result<Rule, Error> {
        let bad = |reason: String| Err(Error::Rule { reason });
        let Some(Listed { strategy: first, .. }) = list.first() else {
            return bad("a rule needs at least one strategy".to_owned());
        };
        let counts = (first.inputs.len(), first.outputs.len());
        for Listed { strategy: row, .. } in &list {
            if (row.inputs.len(), row.outputs.len()) != counts {
                return bad(format!("{row} has not as many operands as {first}"));
            }
            if row
                .inputs
                .iter()
                .chain(&row.outputs)
                .any(|p| matches!(p, OperandPlacement::Factor(_) | OperandPlacement::Rest))
            {
                return bad(format!(
                    "{row} names a factor, but a list of strategies has none: write its dim, like S(m0) or ?0"
                ));
            }
        }
        Ok(Rule(Arc::new(Form::List(list))))
    }

    /// The equation, unless it is a list.
    pub fn equation(&self) -> Option<&Equation> {
        match &*self.0 {
            Form::Equation(e) => Some(e),
            Form::List(_) => None,
        }
    }

    /// The number of inputs and of outputs.
    pub fn operands(&self) -> (usize, usize) {
        match &*self.0 {
            Form::Equation(e) => (e.inputs.len(), e.outputs.len()),
            Form::List(rows) => (rows[0].strategy.inputs.len(), rows[0].strategy.outputs.len()),
        }
    }

    /// Whether an op that runs on the shards of one of its [`strategies`](Rule::strategies) has to know its region: which part
    /// of the whole tensors it is given.
    ///
    /// Of an equation, that is so where an operand is a shard of a factor that needs it.
    ///
    /// ```
    /// use reshard_ops::rules::Rule;
    /// let tril: Rule = "...ij->...ij {i: region, j: region}".parse()?;
    /// let needing: Vec<String> =
    ///     tril.strategies().iter().filter(|s| tril.needs_region(s)).map(ToString::to_string).collect();
    /// assert_eq!(needing, ["S(i) -> S(i)", "S(j) -> S(j)"]);
    /// let dropout: Rule = "...->... {...: region}".parse()?;
    /// assert!(dropout.needs_region(&"S(...) -> S(...)".parse()?));
    /// let arange: Rule = "-> ?0 region; -> R".parse()?;
    /// assert!(arange.needs_region(&"-> ?0".parse()?));
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    pub fn needs_region(&self, strategy: &Strategy) -> bool {
        match &*self.0 {
            Form::Equation(e) => strategy.inputs.iter().chain(&strategy.outputs).any(|part| match part {
                OperandPlacement::Factor(name) => e.factors.iter().any(|f| f.name == *name && f.region),
                OperandPlacement::Rest => e.rest_region,
                OperandPlacement::Replicate
                | OperandPlacement::Partial(_)
                | OperandPlacement::Dim { .. }
                | OperandPlacement::Fixed(_) => false,
            }),
            Form::List(rows) => rows.iter().any(|row| row.region && row.strategy == *strategy),
        }
    }

    /// Every strategy of one mesh axis: the factors in order, the ellipsis, all replicated, then the terms that pass.
    pub fn strategies(&self) -> Vec<Strategy> {
        match &*self.0 {
            Form::Equation(e) => e.strategies(),
            Form::List(rows) => {
                let mut out: Vec<Strategy> = rows.iter().map(|row| row.strategy.clone()).collect();
                let all = Strategy::replicated(out[0].inputs.len(), out[0].outputs.len());
                if !out.contains(&all) {
                    out.push(all);
                }
                out
            }
        }
    }
}

impl Rule {
    /// The strategies, of those that pass terms of every norm, for norms of these exponents.
    pub(super) fn rows_of_norms(&self, exponents: &[Exponent]) -> Vec<Strategy> {
        self.equation().map_or_else(Vec::new, |e| e.rows_of_norms(exponents))
    }
}

impl Equation {
    /// Whether some operand has an ellipsis.
    pub(super) fn has_rest(&self) -> bool {
        self.inputs.iter().chain(&self.outputs).flatten().any(|d| *d == Dim::Rest)
    }

    /// Whether one operand carries a factor twice, as in a diagonal: then no axis can shard both dims.
    pub(super) fn is_diagonal(&self, factor: char) -> bool {
        let twice =
            |dims: &Vec<Dim>| dims.iter().flat_map(Dim::factors).filter(|&&name| name == factor).count() > 1;
        self.inputs.iter().chain(&self.outputs).any(twice)
    }

    /// Whether an operand carries a factor.
    pub(super) fn carries(dims: &[Dim], factor: char) -> bool {
        dims.iter().any(|d| d.factors().contains(&factor))
    }

    /// The ops of reductions of its own.
    pub(super) fn reductions(&self) -> impl Iterator<Item = ReduceOp> + '_ {
        self.factors.iter().filter_map(|f| match f.role {
            FactorKind::Reduction(op) => Some(op.combining()),
            FactorKind::PassThrough | FactorKind::NeedReplication => None,
        })
    }

    /// The one expansion: all other lists of strategies, of calls and of rows, are this one with dims put in.
    fn strategies(&self) -> Vec<Strategy> {
        match self.aliasing {
            OutputAliasing::New => self.rows(),
            OutputAliasing::InPlace(_) | OutputAliasing::Out => self.written_rows(self.of_new().rows()),
        }
    }

    /// Those of the op that makes new tensors.
    fn rows(&self) -> Vec<Strategy> {
        let mut out = Vec::new();
        let mut push =
            |part: OperandPlacement, carries: &dyn Fn(&[Dim]) -> bool, lacking: OperandPlacement| {
                let of = |dims: &[Dim], lacking: &OperandPlacement| {
                    if carries(dims) { part.clone() } else { lacking.clone() }
                };
                out.push(Strategy {
                    inputs: self.inputs.iter().map(|d| of(d, &OperandPlacement::Replicate)).collect(),
                    outputs: self.outputs.iter().map(|d| of(d, &lacking)).collect(),
                });
            };
        for factor in &self.factors {
            let lacking = match factor.role {
                FactorKind::PassThrough => OperandPlacement::Replicate,
                FactorKind::Reduction(op) => OperandPlacement::Partial(op),
                FactorKind::NeedReplication => continue,
            };
            if !self.is_diagonal(factor.name) {
                push(
                    OperandPlacement::Factor(factor.name),
                    &|dims| Equation::carries(dims, factor.name),
                    lacking,
                );
            }
        }
        if self.has_rest() {
            push(OperandPlacement::Rest, &|dims| dims.contains(&Dim::Rest), OperandPlacement::Replicate);
        }
        out.push(Strategy::replicated(self.inputs.len(), self.outputs.len()));
        out.extend(self.partial_rows());
        out
    }

    /// The strategies in which terms pass.
    fn partial_rows(&self) -> Vec<Strategy> {
        let mut out: Vec<Strategy> = Vec::new();
        for passing in &self.partial_rules {
            let is_row = matches!(passing, PartialRule::Row(_));
            for row in passing.rows(self.inputs.len(), self.outputs.len()) {
                if !out.contains(&row) && (is_row || self.agrees(&row)) {
                    out.push(row);
                }
            }
        }
        out
    }

    /// The strategies in which terms of norms of these exponents pass because those of every norm do.
    fn rows_of_norms(&self, exponents: &[Exponent]) -> Vec<Strategy> {
        let of = |p: &PartialRule| p.rows_of_norms(self.inputs.len(), self.outputs.len(), exponents);
        self.partial_rules.iter().flat_map(of).filter(|row| self.agrees(row)).collect()
    }

    /// Whether all terms are of the equation's own reductions, if it has any.
    fn agrees(&self, row: &Strategy) -> bool {
        row.inputs.iter().chain(&row.outputs).all(|p| match p {
            OperandPlacement::Partial(op) => self.reductions().all(|own| own == op.combining()),
            OperandPlacement::Replicate
            | OperandPlacement::Factor(_)
            | OperandPlacement::Rest
            | OperandPlacement::Dim { .. }
            | OperandPlacement::Fixed(_) => true,
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        super::notation::write(self, f)
    }
}

impl FromStr for Rule {
    type Err = Error;
    fn from_str(s: &str) -> Result<Rule, Error> {
        super::notation::read(s)
    }
}
