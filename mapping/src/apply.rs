//! Applies the lines of a mapping: matches names, and splits values along the left sides.

use std::collections::HashSet;

use safetensors::Dtype;

use crate::error::{Error, ErrorKind, shown};
use crate::evaluate::Evaluation;
use crate::expr::{Cat, Expr};
use crate::mapped::{Check, LocalParts, MadeTensor, Mapped, SourceTensor};
use crate::mapping::{Mapping, Rest};
use crate::name::Bound;
use crate::rule::{DropLine, Line, Rule};
use crate::sources::Sources;
use crate::value::{Value, check_pieces};

/// A tensor that a rule made, before the `[cast]` table applies.
struct Made {
    name: String,
    value: Value,
    local_parts: Option<LocalParts>,
}

struct Run<'a> {
    evaluation: Evaluation<'a>,
    made: Vec<Made>,
    names: HashSet<String>,
    /// For each source: `true` if a `drop` matches it.
    dropped: Vec<bool>,
}

/// Returns the tensors that a mapping computes from these sources.
pub(crate) fn apply(mapping: &Mapping, list: &[SourceTensor<'_>]) -> Result<Mapped, Error> {
    let sources = Sources::new(list)?;
    let mut run = Run {
        evaluation: Evaluation::new(&sources, mapping.numbers_map()),
        made: Vec::new(),
        names: HashSet::new(),
        dropped: vec![false; list.len()],
    };
    for line in mapping.lines() {
        run.evaluation.rule = line.to_string();
        let done = match line {
            Line::Rule(rule) => run.rule(rule),
            Line::Drop(drop) => run.drop(drop),
        };
        done.map_err(|error| error.in_rule(&run.evaluation.rule))?;
    }
    let mut kept = Vec::new();
    let rest: Vec<usize> = (0..list.len()).filter(|index| !run.evaluation.used[*index]).collect();
    for index in rest {
        let source = &list[index];
        match mapping.rest() {
            Rest::Keep => run.put(source.name.to_owned(), sources.value(index), None)?,
            Rest::Error => {
                let name = shown(source.name);
                let message = format!(
                    "no rule names the tensor `{name}`; add a rule, `drop {name}`, or rest = \"keep\""
                );
                return Err(Error::new(ErrorKind::Unnamed, message));
            }
        }
        kept.push(source.name.to_owned());
    }
    let dropped = list.iter().zip(&run.dropped).filter(|(_, dropped)| **dropped);
    Ok(Mapped {
        dropped: dropped.map(|(source, _)| source.name.to_owned()).collect(),
        kept,
        tensors: run.made.into_iter().map(|made| finished(made, mapping, &run.evaluation)).collect(),
        checks: run.evaluation.checks,
    })
}

/// Applies the `[cast]` table, and sorts the nests of a tensor.
fn finished(made: Made, mapping: &Mapping, evaluation: &Evaluation<'_>) -> MadeTensor {
    let Made { name, value, local_parts } = made;
    let value = match mapping.cast_of(&name) {
        Some(to) if crate::dtype::name(value.dtype).is_some() => evaluation.cast(value, to),
        Some(_) | None => value,
    };
    let Value { shape, dtype, pieces } = value.sorted();
    let mut stored: Vec<Dtype> = Vec::new();
    for source in pieces.iter().filter_map(|piece| piece.source) {
        let dtype = evaluation.sources.list[source].dtype;
        if !stored.contains(&dtype) {
            stored.push(dtype);
        }
    }
    MadeTensor { name, shape, dtype, stored, pieces, local_parts }
}

impl Run<'_> {
    fn rule(&mut self, rule: &Rule) -> Result<(), Error> {
        let Some(first) = rule.right.first_name() else { return Ok(()) };
        let pattern = first.pattern(self.evaluation.numbers, &Bound::default())?;
        let (mut seen, mut all) = (HashSet::new(), Vec::new());
        for source in self.evaluation.sources.list {
            if let Some(bound) = pattern.matches(source.name)? {
                // Names that differ in `#` alone are one stack.
                let bound = Bound { index: None, ..bound };
                if seen.insert(bound.clone()) {
                    all.push(bound);
                }
            }
        }
        if all.is_empty() {
            let message =
                format!("`{}` matches no tensor; check the names of the sources", shown(first.text()));
            return Err(Error::new(ErrorKind::NoMatch, message));
        }
        for bound in all {
            self.rule_for(rule, &bound).map_err(|error| {
                // Without a variable the rule itself has the name.
                match first.filled(self.evaluation.numbers, &bound) {
                    Ok(name) if name != first.text() => error.about(&name),
                    Ok(_) | Err(_) => error,
                }
            })?;
        }
        Ok(())
    }

    /// Makes the tensors of a rule for these texts.
    fn rule_for(&mut self, rule: &Rule, bound: &Bound) -> Result<(), Error> {
        // Only a concatenation that is all of a tensor has parts with separate placements.
        if let (Expr::Name(name), Expr::Cat(cat)) = (&rule.left, &rule.right)
            && cat.local
        {
            let dim = self.evaluation.number(cat.dim.as_ref(), 0)?;
            let parts = self.evaluation.parts(cat, bound)?;
            let extents = parts.iter().map(|part| part.extent(dim)).collect::<Result<_, _>>()?;
            let value = self.evaluation.joined(cat, parts)?;
            let name = name.filled(self.evaluation.numbers, bound)?;
            return self.put(name, value, Some(LocalParts { dim, extents }));
        }
        let value = self.evaluation.value(&rule.right, bound)?;
        self.assign(&rule.left, value, bound)
    }

    fn put(&mut self, name: String, value: Value, local_parts: Option<LocalParts>) -> Result<(), Error> {
        self.evaluation.count(value.pieces.len())?;
        if !self.names.insert(name.clone()) {
            let message =
                format!("`{0}` is made twice; rename one, or add `drop {0}` if it is a source", shown(&name));
            return Err(Error::new(ErrorKind::Duplicate, message));
        }
        self.made.push(Made { name, value, local_parts });
        Ok(())
    }

    /// Splits a tensor into the tensors of a left side.
    fn assign(&mut self, left: &Expr, value: Value, bound: &Bound) -> Result<(), Error> {
        match left {
            Expr::Name(name) => self.put(name.filled(self.evaluation.numbers, bound)?, value, None),
            Expr::Cat(cat) => {
                for (part, value) in cat.parts.iter().zip(self.split(cat, &value)?) {
                    self.assign(&part.expr, value, bound)?;
                }
                Ok(())
            }
            Expr::Stack { inner, dim } => {
                let dim = self.evaluation.number(dim.as_ref(), 0)?;
                let extent = value.extent(dim)?;
                check_pieces(extent)?;
                self.unstack(inner, dim, &value, 0, extent, bound)
            }
            Expr::Rearrange { inner, axes } => {
                let value = self.evaluation.rearranged(value, &axes.reversed())?;
                self.assign(inner, value, bound)
            }
            // `Rule::new` rejects these on the left side.
            Expr::Slice { .. } | Expr::Pad { .. } | Expr::Cast { .. } => Err(Error::new(
                ErrorKind::NotInvertible,
                "a side that is made does not define all of a tensor",
            )),
        }
    }

    /// Assigns the indices of a dim, the first of which is `start`.
    ///
    /// Halving keeps the cost at a logarithm per nest; selecting each index from all nests is quadratic.
    fn unstack(
        &mut self,
        inner: &Expr,
        dim: usize,
        value: &Value,
        start: usize,
        extent: usize,
        bound: &Bound,
    ) -> Result<(), Error> {
        self.evaluation.count(value.pieces.len())?;
        match extent {
            0 => Ok(()),
            1 => {
                let bound = Bound { index: Some(start), ..bound.clone() };
                self.assign(inner, value.clone().without_dim(dim), &bound)
            }
            _ => {
                let half = extent / 2;
                self.unstack(inner, dim, &value.sliced(dim, 0, half)?, start, half, bound)?;
                let rest = value.sliced(dim, half, extent)?;
                self.unstack(inner, dim, &rest, start + half, extent - half, bound)
            }
        }
    }

    /// Splits a tensor into the parts of a concatenation.
    fn split(&mut self, cat: &Cat, value: &Value) -> Result<Vec<Value>, Error> {
        let dim = self.evaluation.number(cat.dim.as_ref(), 0)?;
        let blocks = self.evaluation.number(cat.blocks.as_ref(), 1)?;
        let shares = self.evaluation.shares(cat)?;
        let extent = value.extent(dim)?;
        let total = shares.iter().try_fold(0_usize, |sum, shares| sum.checked_add(*shares));
        let unit =
            total.and_then(|total| total.checked_mul(blocks)).filter(|n| *n > 0 && extent.is_multiple_of(*n));
        let Some(unit) = unit.map(|n| extent / n) else {
            let times = if blocks == 1 { String::new() } else { format!(", times {blocks} blocks,") };
            let message = format!(
                "the extent {extent} of dim {dim} does not split by the shares {shares:?}; their sum{times} must divide it"
            );
            return Err(Error::new(ErrorKind::Indivisible, message));
        };
        let blocked = value.split_dim(dim, blocks, extent / blocks)?;
        let (mut parts, mut start) = (Vec::new(), 0);
        for shares in shares {
            let stop = start + shares * unit;
            parts.push(blocked.sliced(dim + 1, start, stop)?.merged_dims(dim)?);
            self.evaluation.count(blocked.pieces.len())?;
            start = stop;
        }
        Ok(parts)
    }

    fn drop(&mut self, drop: &DropLine) -> Result<(), Error> {
        let sources = self.evaluation.sources;
        let same = drop.same.as_ref().map(|same| sources.find(same)).transpose()?;
        let mut found = false;
        for (index, source) in
            sources.list.iter().enumerate().filter(|(_, source)| drop.glob.matches(source.name))
        {
            found = true;
            self.dropped[index] = true;
            self.evaluation.used[index] = true;
            let Some(same) = same.filter(|same| *same != index) else { continue };
            let other = &sources.list[same];
            if (source.shape, source.dtype) != (other.shape, other.dtype) {
                let message = format!(
                    "`{}` is {} {:?} and `{}` is {} {:?}; only equal tensors are dropped",
                    shown(source.name),
                    source.dtype,
                    source.shape,
                    shown(other.name),
                    other.dtype,
                    other.shape
                );
                return Err(Error::new(ErrorKind::Differ, message));
            }
            self.evaluation.checks.push(Check {
                rule: self.evaluation.rule.clone(),
                subject: format!("{} and {}", source.name, other.name),
                shape: source.shape.to_vec(),
                dtype: source.dtype,
                left: sources.value(index).pieces,
                right: sources.value(same).pieces,
            });
        }
        if found {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NoMatch, "the pattern matches no tensor; check the names of the sources"))
    }
}
