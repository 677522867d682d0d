//! The rule of an op: its strategies on shards, as data.

use core::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::Error;
use crate::rules::aliasing::OutputAliasing;
use crate::rules::factor::{Dim, Factor, FactorKind};
use crate::rules::partial_rule::PartialRule;
use crate::rules::strategy::{OperandPlacement, Strategy};
use reshard_sharding::{Exponent, ReduceOp};

/// An equation over factors, or an explicit list of strategies.
///
/// It also marks where an op that runs on a shard has to know its **region**, that is, which part of the
/// whole the shard is, because it would compute something else if the shard were the whole: `region` after a
/// factor, after the ellipsis, or after a strategy of a list.
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
    /// `true` if the op has to know its region for it.
    pub(super) region: bool,
}

/// Factors tied to dims.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub struct Equation {
    /// The factors, in the order in which they first appear: outputs' first, then the others.
    pub factors: Vec<Factor>,
    /// The dims of each input.
    pub inputs: Vec<Vec<Dim>>,
    /// The dims of each output.
    pub outputs: Vec<Vec<Dim>>,
    /// `true` if an op that runs on a shard of a dim of the ellipsis has to know its region.
    pub rest_region: bool,
    /// The partial values that pass.
    pub partial_rules: Vec<PartialRule>,
    /// The destination of outputs.
    pub aliasing: OutputAliasing,
}

impl Rule {
    /// Returns the rule with exactly these strategies; all replicated is always one more.
    ///
    /// The op has to know its region for none of them; in a text, `?0 -> ?0 region` declares a region.
    ///
    /// Fails unless all have the same number of operands, and if one refers to factors.
    #[doc(hidden)]
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
                return bad(format!("{row} must have as many operands as {first}"));
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
    #[doc(hidden)]
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

    /// Returns `true` if one of the [`strategies`](Rule::strategies) requires that the op knows its region.
    ///
    /// The region is the part of the whole tensors that it is given. For an equation that holds if an operand
    /// is a shard of a factor that needs it.
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

    /// Returns every strategy of one mesh axis.
    ///
    /// The order is: the factors, the ellipsis, all replicated, then the partial values that pass.
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
    /// Returns the strategies for norms of these exponents, of those that pass partial values of every norm.
    pub(super) fn rows_of_norms(&self, exponents: &[Exponent]) -> Vec<Strategy> {
        self.equation().map_or_else(Vec::new, |e| e.rows_of_norms(exponents))
    }
}

impl Equation {
    /// Returns `true` if some operand has an ellipsis.
    pub(super) fn has_rest(&self) -> bool {
        self.inputs.iter().chain(&self.outputs).flatten().any(|d| *d == Dim::Rest)
    }

    /// Returns `true` if one operand has a factor twice, as in a diagonal: then no axis can shard both dims.
    pub(super) fn is_diagonal(&self, factor: char) -> bool {
        let twice =
            |dims: &Vec<Dim>| dims.iter().flat_map(Dim::factors).filter(|&&name| name == factor).count() > 1;
        self.inputs.iter().chain(&self.outputs).any(twice)
    }

    /// Returns `true` if an operand has a factor.
    pub(super) fn carries(dims: &[Dim], factor: char) -> bool {
        dims.iter().any(|d| d.factors().contains(&factor))
    }

    /// The ops of the equation's own reductions.
    pub(super) fn reductions(&self) -> impl Iterator<Item = ReduceOp> + '_ {
        self.factors.iter().filter_map(|f| match f.role {
            FactorKind::Reduction(op) => Some(op.combining()),
            FactorKind::PassThrough | FactorKind::NeedReplication => None,
        })
    }

    /// Returns the strategies of an equation; all other lists derive from these by substituting dims.
    fn strategies(&self) -> Vec<Strategy> {
        match self.aliasing {
            OutputAliasing::New => self.rows(),
            OutputAliasing::InPlace(_) | OutputAliasing::Out => self.written_rows(self.of_new().rows()),
        }
    }

    /// The strategies of the variant that makes new tensors.
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

    /// Returns the strategies in which partial values pass.
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

    /// Returns the strategies of these exponents, of those that pass the partial values of every norm.
    fn rows_of_norms(&self, exponents: &[Exponent]) -> Vec<Strategy> {
        let of = |p: &PartialRule| p.rows_of_norms(self.inputs.len(), self.outputs.len(), exponents);
        self.partial_rules.iter().flat_map(of).filter(|row| self.agrees(row)).collect()
    }

    /// Returns `true` if all partial values are of the equation's own reductions, if it has any.
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
