//! Binding: a rule on the shapes of one call.
//!
//! Every factor gets its size and every dim of every operand its factors, and the rule's strategies become
//! rows over *dims*, on which the search works:
//!
//! ```text
//! mk,kn->mn   on [64,32],[32,16]      m = 64, k = 32, n = 16       S(m0),R -> S(m0)   R,S(n1) -> S(n1)   ..
//! ...,...->...  on [8,16],[16]        a factor for each dim of the ellipsis; [1] where 16 is wanted is broadcast
//! ```
//!
//! The dim `(ij)` is the mixed-radix number of its factors. A shard of the major one is a plain shard of the
//! dim; a shard of a minor one is strided: it skips the local remainder of the factors before it,
//!
//! ```text
//! split factor of j in (ij)  =  |i| / (what earlier axes took of i)  *  (the split factor of the kind)
//! ```
//!
//! so that a factor with another one after it has to be split evenly: into `k n` equal parts by a kind with
//! split factor `k` over `n` ranks. And a kind with `k > 1` splits a factor that follows others into blocks
//! of blocks. These start where those others do only if `k` divides it: `(ij)` with `|j| = 3` and
//! `SS(0,2|i|)` does not.

use core::fmt;

use smallvec::SmallVec;

use crate::Error;
use crate::rules::aliasing::OutputAliasing;
use crate::rules::factor::{Dim, Slicing};
use crate::rules::op::Brackets;
use crate::rules::row::{Bound, BoundFactor, DimFactors, Entry, OperandDims, Row};
use crate::rules::rule::{Equation, Rule};
use crate::rules::sizes::Sizes;
use crate::rules::strategy::{OperandPlacement, Strategy};
use reshard_sharding::Exponent;

/// A rule and the input shapes to which it is bound.
pub(super) struct Binding<'a> {
    pub(super) name: &'a str,
    pub(super) rule: &'a Rule,
    pub(super) inputs: &'a [&'a [usize]],
}

impl Binding<'_> {
    pub(super) fn error(&self, reason: impl fmt::Display) -> Error {
        let shapes: Vec<String> = self.inputs.iter().take(8).map(|s| Brackets(s).to_string()).collect();
        let more = if self.inputs.len() > 8 { " and more" } else { "" };
        let on =
            if shapes.is_empty() { String::new() } else { format!(" on {}{more}", shapes.join(" and ")) };
        let rule = if self.inputs.len() > 8 { "..".to_owned() } else { self.rule.to_string() };
        Error::Rule { reason: format!("{}({rule}){on}: {reason}", self.name) }
    }

    /// Returns the rows of the rule on these shapes, and the output shapes, which follow from an equation.
    pub(super) fn bound(&self, outputs: Option<&[&[usize]]>) -> Result<(Bound, Vec<Vec<usize>>), Error> {
        let (mut bound, outputs) = match self.rule.equation() {
            Some(e) => self.written(e, outputs)?,
            None => match outputs {
                Some(outputs) => (Bound::default(), outputs.iter().map(|s| s.to_vec()).collect()),
                None => {
                    return Err(self
                        .error("a list of strategies does not determine shapes; give the outputs' shapes"));
                }
            },
        };
        for strategy in self.rule.strategies() {
            self.expand(&strategy, &outputs, &mut bound)?;
        }
        Ok((bound, outputs))
    }

    /// Returns these rows, and those in which partial norms of these exponents pass.
    pub(super) fn with_norms(
        &self,
        bound: &Bound,
        outputs: &[Vec<usize>],
        exponents: &[Exponent],
    ) -> Result<Bound, Error> {
        let mut bound = bound.clone();
        for strategy in self.rule.rows_of_norms(exponents) {
            let row = self.row(&strategy, outputs, None, &mut bound)?;
            if !bound.rows.contains(&row) {
                bound.rows.push(row);
            }
        }
        Ok(bound)
    }

    /// The rows of a strategy: one, or one for each dim of the ellipsis.
    fn expand(&self, strategy: &Strategy, outputs: &[Vec<usize>], bound: &mut Bound) -> Result<(), Error> {
        let parts = || strategy.inputs.iter().chain(&strategy.outputs);
        if !parts().any(|p| *p == OperandPlacement::Rest) {
            let row = self.row(strategy, outputs, None, bound)?;
            bound.rows.push(row);
            return Ok(());
        }
        for x in 0..bound.factors.len() {
            if bound.factors[x].name.is_some() {
                continue;
            }
            let row = self.row(strategy, outputs, Some(x), bound)?;
            bound.rows.push(row);
        }
        Ok(())
    }

    /// Returns one row, with this factor in place of the ellipsis.
    fn row(
        &self,
        strategy: &Strategy,
        outputs: &[Vec<usize>],
        rest: Option<usize>,
        bound: &mut Bound,
    ) -> Result<Row, Error> {
        let mut entries = Vec::with_capacity(strategy.inputs.len() + strategy.outputs.len());
        let shapes = self.inputs.iter().copied().chain(outputs.iter().map(Vec::as_slice));
        let parts = strategy.inputs.iter().chain(&strategy.outputs);
        for (o, (part, shape)) in parts.zip(shapes).enumerate() {
            let fits = |dim: usize| {
                if dim < shape.len() && u16::try_from(dim).is_ok() {
                    return Ok(());
                }
                Err(self.error(format!("{strategy} shards dim {dim} of {}", Brackets(shape))))
            };
            entries.push(match part {
                OperandPlacement::Replicate => Entry::Replicate,
                OperandPlacement::Partial(op) => Entry::Partial(*op),
                OperandPlacement::Factor(name) => {
                    let x = bound.factors.iter().position(|f| f.name == Some(*name));
                    bound.shard(o, x)
                }
                OperandPlacement::Rest => bound.shard(o, rest),
                OperandPlacement::Dim { dim, .. } => {
                    fits(*dim)?;
                    Entry::Shard { dim: *dim as u16, factor: None }
                }
                OperandPlacement::Fixed(p) => {
                    p.dim().map_or(Ok(()), fits)?;
                    bound.fixed.push(p.clone());
                    Entry::Fixed(bound.fixed.len() as u16 - 1)
                }
            });
        }
        Ok(Row { entries, region: self.rule.needs_region(strategy) })
    }

    /// Binds the equation of an op that may write into existing tensors of the outputs' shapes.
    fn written(&self, e: &Equation, outputs: Option<&[&[usize]]>) -> Result<(Bound, Vec<Vec<usize>>), Error> {
        if e.aliasing == OutputAliasing::New {
            return self.equation(e, outputs);
        }
        let reads = e.reads();
        let read = Binding { inputs: &self.inputs[..reads], ..*self };
        let (mut bound, shapes) = read.equation(&e.of_new(), outputs)?;
        let dims = bound.dims[reads..].to_vec();
        bound.dims.splice(reads..reads, dims.into_iter().take(e.inputs.len() - reads));
        bound.written = e.aliasing.pairs(e.inputs.len(), e.outputs.len());
        for &(i, o) in &bound.written {
            let (has, makes) = (self.inputs[usize::from(i)], &shapes[usize::from(o)]);
            if has != makes.as_slice() {
                let (has, makes) = (Brackets(has), Brackets(makes));
                return Err(self.error(format!(
                    "input {i} is written in place and has shape {has}, but the result has {makes}; give it that \
                     shape, or use the op that returns a new tensor"
                )));
            }
        }
        Ok((bound, shapes))
    }

    fn equation(
        &self,
        e: &Equation,
        outputs: Option<&[&[usize]]>,
    ) -> Result<(Bound, Vec<Vec<usize>>), Error> {
        let fixed_dims = |dims: &[Dim]| dims.iter().filter(|d| **d != Dim::Rest).count();
        let known: Vec<(&[Dim], &[usize], String)> = (e.inputs.iter().zip(self.inputs).enumerate())
            .map(|(i, (d, s))| (d.as_slice(), *s, format!("input {i}")))
            .chain(
                (e.outputs.iter().zip(outputs.unwrap_or_default()).enumerate())
                    .map(|(i, (d, s))| (d.as_slice(), *s, format!("output {i}"))),
            )
            .collect();
        let mut rest = 0;
        for (dims, shape, what) in &known {
            let n = fixed_dims(dims);
            if shape.len() < n || (shape.len() > n && !dims.contains(&Dim::Rest)) {
                return Err(self.error(format!("{what} has {} dims, but the rule has {n}", shape.len())));
            }
            rest = rest.max(shape.len() - n);
        }
        let letters = e.factors.len();
        let mut sizes = Sizes {
            call: self,
            equation: e,
            letters,
            known: e.factors.iter().map(|f| f.size.map(|n| (n, "the rule".to_owned()))).collect(),
        };
        sizes.known.resize(letters + rest, None);
        let place = |name: &char| e.factors.iter().position(|f| f.name == *name).map(|x| x as u16);
        // The dims of the ellipsis are aligned at the right.
        let expand = |dims: &[Dim], rest_here: usize| -> OperandDims {
            let mut out = SmallVec::new();
            for d in dims {
                match d {
                    Dim::Factors(list) => out.push(Some(list.iter().filter_map(place).collect())),
                    Dim::Whole => out.push(None),
                    Dim::Rest => out.extend(
                        (rest - rest_here..rest).map(|i| Some(SmallVec::from_slice(&[(letters + i) as u16]))),
                    ),
                }
            }
            out
        };
        let mut dims: Vec<OperandDims> = Vec::with_capacity(e.inputs.len() + e.outputs.len());
        for (d, shape, _) in &known {
            dims.push(expand(d, shape.len() - fixed_dims(d)));
        }
        if outputs.is_none() {
            dims.extend(e.outputs.iter().map(|d| expand(d, rest)));
        }
        sizes.solve(&known, &dims)?;
        let missing = |x: usize| {
            self.error(format!("the size of {} is unknown; give the outputs' shapes", sizes.name(x)))
        };
        let mut all = SmallVec::<[usize; 8]>::new();
        for x in 0..letters + rest {
            all.push(match &sizes.known[x] {
                Some((n, _)) => *n,
                None if x >= letters => 1,
                None => return Err(missing(x)),
            });
        }
        // A dim of size 1 whose factor is larger is broadcast.
        for ((_, shape, _), dims) in known.iter().zip(&mut dims) {
            for (dim, &n) in dims.iter_mut().zip(*shape) {
                if let Some(list) = dim
                    && let [x] = list[..]
                    && usize::from(x) >= letters
                    && n == 1
                    && all[usize::from(x)] != 1
                {
                    list.clear();
                }
            }
        }
        let shapes = match outputs {
            Some(shapes) => shapes.iter().map(|s| s.to_vec()).collect(),
            None => dims[e.inputs.len()..]
                .iter()
                .map(|dims| self.shape_of(dims, &all))
                .collect::<Result<Vec<Vec<usize>>, Error>>()?,
        };
        Ok((Self::factors(e, &all, dims), shapes))
    }

    fn shape_of(&self, dims: &[DimFactors], sizes: &[usize]) -> Result<Vec<usize>, Error> {
        let len = |d: &DimFactors| match d {
            None => Err(self.error("the size of a dim * is unknown; give the outputs' shapes")),
            Some(list) => list
                .iter()
                .try_fold(1usize, |p, &x| p.checked_mul(sizes[usize::from(x)]))
                .ok_or_else(|| Error::overflow(format!("a dim of the output of {}", self.name))),
        };
        let shape: Vec<usize> = dims.iter().map(len).collect::<Result<_, _>>()?;
        reshard_sharding::internal::numel(&shape)?;
        Ok(shape)
    }

    /// The factors and dims of a call, still without rows.
    fn factors(e: &Equation, sizes: &[usize], dims: Vec<OperandDims>) -> Bound {
        let factor = |(x, &size): (usize, &usize)| {
            let is_major = |d: &DimFactors| {
                d.as_ref().is_some_and(|l| l.iter().rev().skip(1).any(|&y| usize::from(y) == x))
            };
            let even = e.factors.get(x).is_some_and(|f| f.slicing == Slicing::Even)
                || dims.iter().flatten().any(is_major);
            BoundFactor { name: e.factors.get(x).map(|f| f.name), size, even }
        };
        let factors = sizes.iter().enumerate().map(factor).collect();
        Bound { factors, dims, ..Bound::default() }
    }
}

impl Bound {
    /// A shard of the dim of an operand that has this factor; replicated where none has it.
    fn shard(&self, operand: usize, factor: Option<usize>) -> Entry {
        let carries =
            |d: &DimFactors| d.as_ref().is_some_and(|l| l.iter().any(|&y| Some(usize::from(y)) == factor));
        match (factor, self.dims[operand].iter().position(carries)) {
            (Some(x), Some(dim)) => Entry::Shard { dim: dim as u16, factor: Some(x as u16) },
            (None, _) | (_, None) => Entry::Replicate,
        }
    }
}
