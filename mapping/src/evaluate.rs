//! Computes the right side of a rule as loop nests.

use std::collections::BTreeSet;

use safetensors::Dtype;

use crate::axes::{Axes, extent_of};
use crate::dtype;
use crate::error::{Error, ErrorKind, shown};
use crate::expr::{Cat, Expr, Range};
use crate::mapped::Check;
use crate::name::Bound;
use crate::number::{Number, Numbers};
use crate::sources::Sources;
use crate::value::{Value, check_pieces};

/// The largest number of loop nests that all rules compute.
const MOST_WORK: usize = 1 << 24;

/// The state of a mapping that is applied.
pub(crate) struct Evaluation<'a> {
    pub(crate) sources: &'a Sources<'a>,
    pub(crate) numbers: &'a Numbers,
    /// For each source: `true` if a rule reads it or a `drop` matches it.
    pub(crate) used: Vec<bool>,
    pub(crate) checks: Vec<Check>,
    /// The text of the current rule.
    pub(crate) rule: String,
    work: usize,
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(sources: &'a Sources<'a>, numbers: &'a Numbers) -> Self {
        let used = vec![false; sources.list.len()];
        Self { sources, numbers, used, checks: Vec::new(), rule: String::new(), work: 0 }
    }

    /// Counts loop nests, so that hostile rules end soon.
    pub(crate) fn count(&mut self, pieces: usize) -> Result<(), Error> {
        self.work = self.work.saturating_add(pieces.max(1));
        if self.work <= MOST_WORK {
            return Ok(());
        }
        let message =
            format!("the mapping results in more than {MOST_WORK} loop nests; use several mappings");
        Err(Error::new(ErrorKind::TooComplex, message))
    }

    /// Returns the value of a number, or its default.
    pub(crate) fn number(&self, number: Option<&Number>, default: usize) -> Result<usize, Error> {
        number.map_or(Ok(default), |number| number.value(self.numbers))
    }

    /// Returns the tensor that an expression denotes.
    pub(crate) fn value(&mut self, expr: &Expr, bound: &Bound) -> Result<Value, Error> {
        let value = match expr {
            Expr::Name(name) => {
                let index = self.sources.find(&name.filled(self.numbers, bound)?)?;
                self.used[index] = true;
                self.sources.value(index)
            }
            Expr::Cat(cat) => {
                let parts = self.parts(cat, bound)?;
                self.joined(cat, parts)?
            }
            Expr::Stack { inner, dim } => self.stacked(inner, self.number(dim.as_ref(), 0)?, bound)?,
            Expr::Slice { inner, ranges } => {
                let value = self.value(inner, bound)?;
                ranges.iter().try_fold(value, |value, group| self.sliced(&value, group))?
            }
            Expr::Pad { inner, size, dim } => {
                let value = self.value(inner, bound)?;
                value.padded(self.number(dim.as_ref(), 0)?, self.number(Some(size), 0)?)?
            }
            Expr::Rearrange { inner, axes } => {
                let value = self.value(inner, bound)?;
                self.rearranged(value, axes)?
            }
            Expr::Cast { inner, to } => {
                let value = self.value(inner, bound)?;
                if dtype::name(value.dtype).is_none() {
                    let message = format!(
                        "`{}` is {}, and cast(..) converts between f16, bf16, f32 and f64; \
                         [cast] leaves other types as they are",
                        shown(&inner.to_string()),
                        value.dtype
                    );
                    return Err(Error::new(ErrorKind::NotFloat, message));
                }
                self.cast(value, *to)
            }
        };
        self.count(value.pieces.len())?;
        Ok(value)
    }

    /// Returns the parts of a concatenation.
    pub(crate) fn parts(&mut self, cat: &Cat, bound: &Bound) -> Result<Vec<Value>, Error> {
        cat.parts.iter().map(|part| self.value(&part.expr, bound)).collect()
    }

    /// Concatenates parts: the first block of each, then the second block of each, and so on.
    pub(crate) fn joined(&self, cat: &Cat, parts: Vec<Value>) -> Result<Value, Error> {
        let dim = self.number(cat.dim.as_ref(), 0)?;
        let blocks = self.number(cat.blocks.as_ref(), 1)?;
        let extents: Vec<usize> = parts.iter().map(|part| part.extent(dim)).collect::<Result<_, _>>()?;
        if cat.parts.iter().any(|part| part.shares.is_some()) {
            let shares = self.shares(cat)?;
            // Extents and shares are below 2^64: their products are exact in 128 bits.
            let product = |a: usize, b: usize| a as u128 * b as u128;
            let first = (extents[0], shares[0]);
            if extents.iter().zip(&shares).any(|(n, s)| product(*n, first.1) != product(first.0, *s)) {
                let message = format!(
                    "the parts have {extents:?} indices on dim {dim}, not in the ratio of the shares {shares:?}"
                );
                return Err(Error::new(ErrorKind::Indivisible, message));
            }
        }
        if blocks == 1 {
            return Value::concatenated(parts, dim);
        }
        if let Some(extent) = extents.iter().find(|extent| blocks == 0 || !extent.is_multiple_of(blocks)) {
            let message = format!(
                "the extent {extent} of dim {dim} does not split into {blocks} equal blocks; use a divisor of it"
            );
            return Err(Error::new(ErrorKind::Indivisible, message));
        }
        let parts = parts.iter().zip(&extents).map(|(part, n)| part.split_dim(dim, blocks, n / blocks));
        Value::concatenated(parts.collect::<Result<_, _>>()?, dim + 1)?.merged_dims(dim)
    }

    /// Returns the shares of the parts, by default one each.
    pub(crate) fn shares(&self, cat: &Cat) -> Result<Vec<usize>, Error> {
        let shares = cat.parts.iter().map(|part| match self.number(part.shares.as_ref(), 1)? {
            0 => Err(Error::new(ErrorKind::Indivisible, "a part has 0 shares; give it at least one")),
            shares => Ok(shares),
        });
        shares.collect()
    }

    /// Stacks the tensors of all numbers of `#`.
    fn stacked(&mut self, inner: &Expr, dim: usize, bound: &Bound) -> Result<Value, Error> {
        let Some(first) = inner.first_name() else {
            return Err(Error::new(ErrorKind::Syntax, "a stack without a name"));
        };
        let pattern = first.pattern(self.numbers, bound)?;
        let mut found = BTreeSet::new();
        for name in self.sources.with_prefix(pattern.prefix()) {
            if let Some(matched) = pattern.matches(name)? {
                // A number that is over the range of integers is a gap as well.
                found.insert(matched.index.unwrap_or(usize::MAX));
            }
        }
        let is_dense = found.last().is_some_and(|last| *last == found.len() - 1);
        if !is_dense {
            let gap = (0..=found.len()).find(|index| !found.contains(index)).unwrap_or(0);
            let message = format!(
                "`{}` is stacked over {} numbers, and {gap} is missing; the numbers are 0, 1, .. without a gap",
                shown(first.text()),
                found.len()
            );
            return Err(Error::new(ErrorKind::Gap, message));
        }
        check_pieces(found.len())?;
        let mut parts = Vec::with_capacity(found.len());
        for index in found {
            let value = self.value(inner, &Bound { index: Some(index), ..bound.clone() })?;
            if dim > value.shape.len() {
                let message = format!("`on {dim}` is over the dims of a stack of shapes {:?}", value.shape);
                return Err(Error::new(ErrorKind::Shape, message));
            }
            parts.push(value.repeated(dim, 1)?);
        }
        Value::concatenated(parts, dim)
    }

    fn sliced(&self, value: &Value, ranges: &[Option<Range>]) -> Result<Value, Error> {
        let mut value = value.clone();
        for (dim, range) in ranges.iter().enumerate() {
            let Some(range) = range else { continue };
            let Some(extent) = value.shape.get(dim).copied() else {
                let message =
                    format!("a slice has {} ranges, and the shape is {:?}", ranges.len(), value.shape);
                return Err(Error::new(ErrorKind::Shape, message));
            };
            let (start, stop) = (range.start.value(self.numbers)?, self.number(range.stop.as_ref(), extent)?);
            if start > stop || stop > extent {
                let message = format!(
                    "the range {start}:{stop} is not within dim {dim} of {:?}; use numbers up to {extent}",
                    value.shape
                );
                return Err(Error::new(ErrorKind::Shape, message));
            }
            value = value.sliced(dim, start, stop)?;
        }
        Ok(value)
    }

    /// Splits the dims into axes, permutes them and merges them to the dims of the right side.
    pub(crate) fn rearranged(&mut self, mut value: Value, axes: &Axes) -> Result<Value, Error> {
        let extents = axes.extents(&value.shape, self.numbers)?;
        let extent = |axis: &str| extent_of(axis, &extents).unwrap_or(1);
        let mut order: Vec<&str> = Vec::new();
        for group in &axes.left {
            let dim = order.len();
            if group.is_empty() {
                value = value.without_dim(dim);
            }
            for (k, axis) in group.iter().enumerate() {
                if k + 1 < group.len() {
                    // Next to an extent of 0 the others may be any: their product is only known to fit in parts.
                    let inner =
                        group[k + 1..].iter().try_fold(1_usize, |n, axis| n.checked_mul(extent(axis)));
                    value = value.split_dim(dim + k, extent(axis), inner.unwrap_or(usize::MAX))?;
                }
                order.push(axis);
            }
            self.count(value.pieces.len())?;
        }
        let is_on_right = |axis: &str| axes.right.iter().flatten().any(|one| one == axis);
        while let Some(dim) = order.iter().position(|axis| !is_on_right(axis)) {
            value = self.without_copies(&value, dim, order.remove(dim), axes)?;
        }
        let right: Vec<&str> = axes.right.iter().flatten().map(String::as_str).collect();
        for axis in &right {
            if !order.contains(axis) {
                order.insert(0, axis);
                value = value.repeated(0, extent(axis))?;
            }
        }
        let permutation = right.iter().filter_map(|axis| order.iter().position(|one| one == axis));
        value = value.permuted(&permutation.collect::<Vec<_>>());
        for (dim, group) in axes.right.iter().enumerate() {
            if group.is_empty() {
                value = value.repeated(dim, 1)?;
            }
            for _ in 1..group.len() {
                value = value.merged_dims(dim)?;
            }
        }
        Ok(value)
    }

    /// Returns the first of the copies along a dim, and adds the check that the others equal it.
    fn without_copies(&mut self, value: &Value, dim: usize, axis: &str, axes: &Axes) -> Result<Value, Error> {
        let copies = value.shape[dim];
        if copies == 0 {
            let message = format!("rearrange {axes}: there is no copy along {axis}, whose extent is 0");
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let first = value.selected(dim, 0)?;
        if copies > 1 {
            let others = value.sliced(dim, 1, copies)?;
            let expected = first.clone().repeated(dim, copies - 1)?;
            let (left, right) = (others.sorted(), expected.sorted());
            self.count(left.pieces.len() + right.pieces.len())?;
            if left.pieces != right.pieces {
                self.checks.push(Check {
                    rule: self.rule.clone(),
                    subject: format!("the copies along `{axis}`"),
                    shape: left.shape,
                    dtype: left.dtype,
                    left: left.pieces,
                    right: right.pieces,
                });
            }
        }
        Ok(first)
    }

    /// Converts the elements of a tensor of a floating-point type.
    pub(crate) fn cast(&self, mut value: Value, to: Dtype) -> Value {
        for piece in &mut value.pieces {
            if let Some(source) = piece.source {
                dtype::push_cast(&mut piece.casts, self.sources.list[source].dtype, to);
            }
        }
        value.dtype = to;
        value
    }
}
