//! Functions of layouts with axes and of layouts of pairs: those that do not need an order of the strides.

use std::ops::Range;

use super::evaluate::{Operation, Placed};
use super::{Function, Value};
use crate::algebra::Tiler;
use crate::stride::Stride;
use crate::{AxisStride, Error, IntTuple, Layout, NamedLayout};

/// A layout with axes, or of pairs.
pub(super) enum Operand {
    Steps(NamedLayout),
    Pairs(NamedLayout<(AxisStride, AxisStride)>),
}

/// A composition or a division.
type Divide = fn(&Layout, &Tiler) -> Result<Layout, Error>;

/// A function from a layout to a layout, for any kind of strides.
enum Change {
    Coalesce,
    CoalesceBy(IntTuple),
    Flatten,
    Reverse,
    Group(Range<usize>),
    Mode(usize),
    Split(IntTuple),
}

impl Change {
    fn of<S: Stride>(&self, layout: &Layout<S>) -> Result<Layout<S>, Error> {
        match self {
            Self::Coalesce => Ok(layout.coalesce()),
            Self::CoalesceBy(profile) => layout.coalesce_by(profile),
            Self::Flatten => Ok(layout.flatten()),
            Self::Reverse => Ok(layout.mirror()),
            Self::Group(modes) => layout.group(modes.clone()),
            Self::Mode(mode) => layout.mode(*mode),
            Self::Split(sizes) => layout.split(sizes.leaves()),
        }
    }
}

impl Operand {
    /// Returns the layout with axes or of pairs that a value is, if it is one.
    pub(super) fn of(value: &Value) -> Option<Self> {
        let steps = value.as_named().map(|named| Self::Steps(named.clone()));
        steps.or_else(|| value.as_pairs().map(|pairs| Self::Pairs(pairs.clone())))
    }

    fn change(&self, change: &Change) -> Result<Value, Error> {
        match self {
            Self::Steps(named) => named.try_map(|layout| change.of(layout)).map(Value::from),
            Self::Pairs(pairs) => pairs.try_map(|layout| change.of(layout)).map(Value::from),
        }
    }

    /// Applies an operation that is linear in the strides.
    fn linear(&self, operation: impl Fn(&Layout) -> Result<Layout, Error>) -> Result<Value, Error> {
        match self {
            Self::Steps(named) => named.linear(operation).map(Value::from),
            Self::Pairs(pairs) => pairs.linear(operation).map(Value::from),
        }
    }

    fn stride(&self) -> Result<Value, Error> {
        match self {
            Self::Steps(named) => named.stride(),
            Self::Pairs(pairs) => pairs.stride(),
        }
        .map(Value::from)
    }

    fn shape(&self) -> IntTuple {
        match self {
            Self::Steps(named) => named.layout().shape(),
            Self::Pairs(pairs) => pairs.layout().shape(),
        }
    }
}

impl Operation<'_> {
    /// Returns the error that a layout of integers, or another type, was expected.
    pub(super) fn expected_layout<T>(&self, what: &str, value: &Placed) -> Result<T, Error> {
        if let Some(named) = value.1.as_named() {
            let along: Vec<&str> = named.names().collect();
            let message = format!(
                "expected {what} with integer strides, found {named}, which steps along {}: give every axis an \
                 integer stride, or take a mode without one",
                along.join(", ")
            );
            return Err(self.refused(value.0, message));
        }
        if let Some(pairs) = value.1.as_pairs() {
            let message = format!(
                "expected {what} with integer strides, found the pairs {pairs}; use one side, before `zip`"
            );
            return Err(self.refused(value.0, message));
        }
        if let Some(composed) = value.1.as_composed() {
            let message = format!(
                "expected {what}, found the composition {composed}, which has no strides; use {}, which is applied \
                 first",
                composed.inner()
            );
            return Err(self.refused(value.0, message));
        }
        self.expected(what, value)
    }

    /// Returns an operand of any kind; one of integers steps in the local buffer.
    fn operand(&self, value: &Placed) -> Result<Operand, Error> {
        match (value.1.as_layout(), Operand::of(&value.1)) {
            (_, Some(operand)) => Ok(operand),
            (Some(layout), None) => Ok(Operand::Steps(layout.into())),
            (None, None) => self.expected_layout("a layout", value),
        }
    }

    /// Reads several operands of one kind: all of steps, or all of pairs.
    fn alike<T>(
        &self,
        values: &[Placed],
        steps: impl FnOnce(Vec<NamedLayout>) -> Result<T, Error>,
        pairs: impl FnOnce(Vec<NamedLayout<(AxisStride, AxisStride)>>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (mut all_steps, mut all_pairs) = (Vec::new(), Vec::new());
        for value in values {
            match self.operand(value)? {
                Operand::Steps(named) => all_steps.push(named),
                Operand::Pairs(named) => all_pairs.push(named),
            }
            if let (Some(single), Some(_)) = (all_steps.first(), all_pairs.first()) {
                let message = format!(
                    "expected layouts of pairs, as the others are, found {single}; zip it with another side first"
                );
                return Err(self.refused(value.0, message));
            }
        }
        if all_pairs.is_empty() { steps(all_steps) } else { pairs(all_pairs) }
    }

    /// Returns one side of a zip.
    fn side(&self, value: &Placed) -> Result<NamedLayout, Error> {
        match self.operand(value)? {
            Operand::Steps(named) => Ok(named),
            Operand::Pairs(pairs) => {
                let message = format!(
                    "`zip` takes two layouts, and {pairs} is already a pair of layouts; zip single \
                    layouts"
                );
                Err(self.refused(value.0, message))
            }
        }
    }

    /// Returns the result of a function that is linear in the strides of its first argument.
    fn linear(&self, function: Function, arguments: &[Placed]) -> Option<Result<Value, Error>> {
        use Function as F;
        Operand::of(&arguments.first()?.1)?;
        let by = |a, tiler: Result<Tiler, Error>, divide: Divide| {
            let (a, tiler) = (self.operand(a)?, tiler?);
            a.linear(|a| divide(a, &tiler))
        };
        // A second argument that is a layout too: both are modes of one layout, whose axes have one table.
        let both = |a, mode, join: &dyn Fn(&Layout, &Layout) -> Result<Layout, Error>| {
            let values: [Placed; 2] = [Placed::clone(a), Placed::clone(mode)];
            let join = |both: &Layout| join(&both.mode(0)?, &both.mode(1)?);
            self.alike(
                &values,
                |steps| NamedLayout::concat(&steps)?.linear(join).map(Value::from),
                |pairs| NamedLayout::concat(&pairs)?.linear(join).map(Value::from),
            )
        };
        let plain =
            |a, operation: &dyn Fn(&Layout) -> Result<Layout, Error>| self.operand(a)?.linear(operation);
        Some(match (function, arguments) {
            (F::Composition, [a, b]) => by(a, self.tiler(b), Layout::compose_by),
            (F::CompositionExtended, [a, b]) => {
                self.layout(b).and_then(|b| plain(a, &|a| a.compose_extended(b)))
            }
            (F::LogicalDivide, [a, t]) => by(a, self.tiler(t), Layout::logical_divide),
            (F::ZippedDivide, [a, t]) => by(a, self.tiler(t), Layout::zipped_divide),
            (F::TiledDivide, [a, t]) => by(a, self.tiler(t), Layout::tiled_divide),
            (F::FlatDivide, [a, t]) => by(a, self.tiler(t), Layout::flat_divide),
            (F::LogicalDivideExtended, [a, t]) => by(a, self.tiler(t), Layout::logical_divide_extended),
            (F::ZippedDivideExtended, [a, t]) => by(a, self.tiler(t), Layout::zipped_divide_extended),
            (F::TiledDivideExtended, [a, t]) => by(a, self.tiler(t), Layout::tiled_divide_extended),
            (F::FlatDivideExtended, [a, t]) => by(a, self.tiler(t), Layout::flat_divide_extended),
            (F::Filter, [a]) => plain(a, &|a| Ok(a.filter())),
            (F::FilterZeros, [a]) => plain(a, &|a| Ok(a.filter_zeros())),
            (F::Dice, [a, pattern]) => self.pattern(pattern).and_then(|p| plain(a, &|a| a.dice(p))),
            (F::Slice, [a, pattern]) => {
                self.pattern(pattern).and_then(|p| plain(a, &|a| a.slice(p).map(|(open, _)| open)))
            }
            (F::Select, [a, modes @ ..]) if !modes.is_empty() => {
                self.indices(modes).and_then(|modes| plain(a, &|a| a.select(&modes)))
            }
            (F::Take, [a, begin, end]) => self
                .index(begin)
                .and_then(|begin| Ok(begin..self.index(end)?))
                .and_then(|modes| plain(a, &|a| a.take(modes.clone()))),
            (F::Append, [a, mode]) => both(a, mode, &|a, mode| a.append(mode)),
            (F::Append, [a, mode, rank]) => {
                self.index(rank).and_then(|rank| both(a, mode, &|a, mode| a.append_to(rank, mode)))
            }
            (F::Prepend, [a, mode]) => both(a, mode, &|a, mode| a.prepend(mode)),
            (F::Prepend, [a, mode, rank]) => {
                self.index(rank).and_then(|rank| both(a, mode, &|a, mode| a.prepend_to(rank, mode)))
            }
            (F::Replace, [a, k, mode]) => {
                self.index(k).and_then(|k| both(a, mode, &|a, mode| a.replace(k, mode)))
            }
            (_, _) => return None,
        })
    }

    /// Returns the answer where an argument is a layout with axes or of pairs and the function takes it.
    pub(super) fn call_with_axes(
        &self,
        function: Function,
        arguments: &[Placed],
    ) -> Option<Result<Value, Error>> {
        use Function as F;
        let mut kinds = arguments.iter().map(|(_, value)| value);
        if !kinds.any(|value| matches!(value, Value::Named(_) | Value::Pairs(_))) {
            return None;
        }
        let change = |value, change: Result<Change, Error>| self.operand(value)?.change(&change?);
        let shapes = |a, b| Ok((self.operand(a)?.shape(), self.operand(b)?.shape()));
        let size = |a: &Operand| match a {
            Operand::Steps(named) => named.layout().size(),
            Operand::Pairs(pairs) => pairs.layout().size(),
        };
        if let Some(answer) = self.linear(function, arguments) {
            return Some(answer);
        }
        Some(match (function, arguments) {
            (F::Coalesce, [a]) => change(a, Ok(Change::Coalesce)),
            (F::Coalesce, [a, profile]) => change(a, self.profile(profile).map(Change::CoalesceBy)),
            (F::Flatten, [a]) => change(a, Ok(Change::Flatten)),
            (F::Reversed, [a]) => change(a, Ok(Change::Reverse)),
            (F::Mode, [a, k]) => change(a, self.index(k).map(Change::Mode)),
            (F::Split, [a, shape]) => change(a, self.flat(shape).map(Change::Split)),
            (F::Group, [a, begin, end]) => {
                change(a, self.index(begin).and_then(|begin| Ok(Change::Group(begin..self.index(end)?))))
            }
            (F::Concat, [_, ..]) => self.alike(
                arguments,
                |steps| NamedLayout::concat(&steps).map(Value::from),
                |pairs| NamedLayout::concat(&pairs).map(Value::from),
            ),
            (F::Zip, [a, b]) => self.side(a).and_then(|a| a.zip(&self.side(b)?)).map(Value::from),
            (F::SameFunction, [_, _]) => self.alike(
                arguments,
                |steps| Ok(Value::Bool(steps[0].is_equivalent(&steps[1]))),
                |pairs| Ok(Value::Bool(pairs[0].is_equivalent(&pairs[1]))),
            ),
            (F::Shape, [a]) => self.operand(a).map(|a| a.shape().into()),
            (F::Stride, [a]) => self.operand(a).and_then(|a| a.stride()),
            (F::Size, [a]) => self.operand(a).map(|a| Value::Integer(size(&a))),
            (F::Rank, [a]) => self.operand(a).map(|a| Value::Integer(a.shape().rank() as i64)),
            (F::Depth, [a]) => self.operand(a).map(|a| Value::Integer(a.shape().depth() as i64)),
            (F::Compatible, [a, b]) => shapes(a, b).map(|(a, b)| Value::Bool(a.is_compatible(&b))),
            (F::Congruent, [a, b]) => shapes(a, b).map(|(a, b)| Value::Bool(a.is_congruent(&b))),
            // Functions that need integers report that themselves.
            (_, _) => return None,
        })
    }
}
