//! Functions of layouts with axes and of layouts of pairs: those that need neither an order of the strides nor a sum.

use std::ops::Range;

use super::evaluate::{Operation, Placed};
use super::{Function, Value};
use crate::stride::Stride;
use crate::{At, Error, IntTuple, Layout, Named};

/// A layout with axes, or of pairs.
pub(super) enum Operand {
    Steps(Named),
    Pairs(Named<(At, At)>),
}

/// What makes a layout of a layout, whatever its strides are.
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
    /// The layout with axes or of pairs that a value is, if it is one.
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
    /// The error that a layout of integers, or something else, was expected.
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
                "expected {what} with integer strides, found the pairs {pairs}: take one side, before zip"
            );
            return Err(self.refused(value.0, message));
        }
        if let Some(composed) = value.1.as_composed() {
            let message = format!(
                "expected {what}, found the composition {composed}, which has no strides of its own: take {}, which is \
                 applied first",
                composed.inner()
            );
            return Err(self.refused(value.0, message));
        }
        self.expected(what, value)
    }

    /// An operand of any kind; one of integers steps in the local buffer.
    fn operand(&self, value: &Placed) -> Result<Operand, Error> {
        match (value.1.as_layout(), Operand::of(&value.1)) {
            (_, Some(operand)) => Ok(operand),
            (Some(layout), None) => Ok(Operand::Steps(layout.into())),
            (None, None) => self.expected_layout("a layout", value),
        }
    }

    /// Several operands of one kind: all of steps, or all of pairs.
    fn alike<T>(
        &self,
        values: &[Placed],
        steps: impl FnOnce(Vec<Named>) -> Result<T, Error>,
        pairs: impl FnOnce(Vec<Named<(At, At)>>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (mut all_steps, mut all_pairs) = (Vec::new(), Vec::new());
        for value in values {
            match self.operand(value)? {
                Operand::Steps(named) => all_steps.push(named),
                Operand::Pairs(named) => all_pairs.push(named),
            }
            if let (Some(single), Some(_)) = (all_steps.first(), all_pairs.first()) {
                let message = format!(
                    "expected layouts of one kind, and {single} is not one of pairs as the others are: zip it with \
                     another side first"
                );
                return Err(self.refused(value.0, message));
            }
        }
        if all_pairs.is_empty() { steps(all_steps) } else { pairs(all_pairs) }
    }

    /// One side of a zip.
    fn side(&self, value: &Placed) -> Result<Named, Error> {
        match self.operand(value)? {
            Operand::Steps(named) => Ok(named),
            Operand::Pairs(pairs) => {
                let message = format!("zip takes two sides, and {pairs} already has two: zip single layouts");
                Err(self.refused(value.0, message))
            }
        }
    }

    /// The answer where an argument is a layout with axes or of pairs and the function takes it.
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
                |steps| Named::concat(&steps).map(Value::from),
                |pairs| Named::concat(&pairs).map(Value::from),
            ),
            (F::Zip, [a, b]) => self.side(a).and_then(|a| a.zip(&self.side(b)?)).map(Value::from),
            (F::SameFunction, [_, _]) => self.alike(
                arguments,
                |steps| Ok(Value::Bool(steps[0].same_function(&steps[1]))),
                |pairs| Ok(Value::Bool(pairs[0].same_function(&pairs[1]))),
            ),
            (F::Shape, [a]) => self.operand(a).map(|a| a.shape().into()),
            (F::Stride, [a]) => self.operand(a).and_then(|a| a.stride()),
            (F::Size, [a]) => self.operand(a).map(|a| Value::Integer(size(&a))),
            (F::Rank, [a]) => self.operand(a).map(|a| Value::Integer(a.shape().rank() as i64)),
            (F::Depth, [a]) => self.operand(a).map(|a| Value::Integer(a.shape().depth() as i64)),
            (F::Compatible, [a, b]) => shapes(a, b).map(|(a, b)| Value::Bool(a.is_compatible(&b))),
            (F::Congruent, [a, b]) => shapes(a, b).map(|(a, b)| Value::Bool(a.is_congruent(&b))),
            // What needs integers says so.
            (_, _) => return None,
        })
    }
}
