//! Functions of compositions that are not layouts: those of the inner layout, where that is right.
//!
//! What acts on indices acts on what is applied to them first, `(S o B) o C = S o (B o C)`. What asks for strides, for the
//! set of values or for a complement would answer a question about another function, and is refused.

use super::evaluate::{Operation, Placed};
use super::{Function, Value};
use crate::algebra::{Composed, Outer};
use crate::{Error, IntTuple, Layout};

impl Operation<'_> {
    /// The answer where an argument is a composition and the function takes it.
    pub(super) fn call_with_composition(
        &self,
        function: Function,
        arguments: &[Placed],
    ) -> Option<Result<Value, Error>> {
        use Function as F;
        match (function, arguments) {
            (F::Composition, [outer, (_, Value::Composed(inner))]) => {
                Some(self.after_composition(outer, inner))
            }
            (_, [(_, Value::Composed(first)), rest @ ..]) => self.of_composition(function, first, rest),
            (_, _) => None,
        }
    }

    /// What is applied after a composition.
    fn after_composition(&self, outer: &Placed, inner: &Composed) -> Result<Value, Error> {
        match (&outer.1, inner.outer()) {
            (Value::Layout(layout), _) => inner.after(layout).map(Value::from),
            (Value::Swizzle(swizzle), Outer::Swizzle(first)) => {
                let both = self.after(outer, *swizzle, *first)?;
                Ok(Composed::partial(both.into(), inner.offset(), inner.inner().clone()).into())
            }
            (Value::Swizzle(swizzle), Outer::Layout(_)) => {
                Ok(Composed::new((*swizzle).into(), 0, inner.to_layout()?)?.into())
            }
            (
                Value::Integer(_)
                | Value::Bool(_)
                | Value::Answer(_)
                | Value::Tuple(_)
                | Value::Named(_)
                | Value::Pairs(_)
                | Value::Points(_)
                | Value::Composed(_)
                | Value::Tiler(_)
                | Value::Pattern(_),
                _,
            ) => self.expected_layout("a layout or a swizzle", outer),
        }
    }

    /// A function of a composition, or why it is none.
    fn of_composition(
        &self,
        function: Function,
        f: &Composed,
        rest: &[Placed],
    ) -> Option<Result<Value, Error>> {
        use Function as F;
        let inner =
            |operation: &dyn Fn(&Layout) -> Result<Layout, Error>| f.map_inner(operation).map(Value::from);
        let layout = |value| self.layout(value);
        Some(match (function, rest) {
            (F::Coalesce, []) => inner(&|b| Ok(b.coalesce())),
            (F::Coalesce, [profile]) => inner(&|b| b.coalesce_by(&self.profile(profile)?)),
            (F::Filter, []) => inner(&|b| Ok(b.filter())),
            (F::FilterZeros, []) => inner(&|b| Ok(b.filter_zeros())),
            (F::Flatten, []) => inner(&|b| Ok(b.flatten())),
            (F::Reversed, []) => inner(&|b| Ok(b.reversed())),
            (F::Composition, [t]) => inner(&|b| b.compose_by(&self.tiler(t)?)),
            (F::CompositionExtended, [c]) => inner(&|b| b.compose_extended(layout(c)?)),
            (F::LogicalDivide, [t]) => inner(&|b| b.logical_divide(&self.tiler(t)?)),
            (F::ZippedDivide, [t]) => inner(&|b| b.zipped_divide(&self.tiler(t)?)),
            (F::TiledDivide, [t]) => inner(&|b| b.tiled_divide(&self.tiler(t)?)),
            (F::FlatDivide, [t]) => inner(&|b| b.flat_divide(&self.tiler(t)?)),
            (F::LogicalProduct, [t]) => inner(&|b| b.logical_product(&self.tiler(t)?)),
            (F::ZippedProduct, [t]) => inner(&|b| b.zipped_product(&self.tiler(t)?)),
            (F::TiledProduct, [t]) => inner(&|b| b.tiled_product(&self.tiler(t)?)),
            (F::FlatProduct, [t]) => inner(&|b| b.flat_product(&self.tiler(t)?)),
            (F::BlockedProduct, [c]) => inner(&|b| b.blocked_product(layout(c)?)),
            (F::RakedProduct, [c]) => inner(&|b| b.raked_product(layout(c)?)),
            (F::TileToShape, [shape]) => inner(&|b| b.tile_to_shape(self.extents(shape)?.leaves())),
            (F::TileToShape, [shape, order]) => {
                inner(&|b| b.tile_to_shape_ordered(self.extents(shape)?.leaves(), self.flat(order)?.leaves()))
            }
            (F::Mode, [k]) => inner(&|b| b.mode(self.index(k)?)),
            (F::Group, [begin, end]) => inner(&|b| b.group(self.index(begin)?..self.index(end)?)),
            (F::Take, [begin, end]) => inner(&|b| b.take(self.index(begin)?..self.index(end)?)),
            (F::Select, [_, ..]) => inner(&|b| b.select(&self.indices(rest)?)),
            (F::Append, [mode]) => inner(&|b| b.append(layout(mode)?)),
            (F::Append, [mode, rank]) => inner(&|b| b.append_to(self.index(rank)?, layout(mode)?)),
            (F::Prepend, [mode]) => inner(&|b| b.prepend(layout(mode)?)),
            (F::Prepend, [mode, rank]) => inner(&|b| b.prepend_to(self.index(rank)?, layout(mode)?)),
            (F::Replace, [k, mode]) => inner(&|b| b.replace(self.index(k)?, layout(mode)?)),
            (F::Split, [shape]) => inner(&|b| b.split(self.flat(shape)?.leaves())),
            (F::Dice, [pattern]) => inner(&|b| b.dice(self.pattern(pattern)?)),
            (F::Slice | F::SliceAndOffset, [pattern]) => {
                self.pattern(pattern).and_then(|pattern| f.slice(pattern)).map(Value::from)
            }
            (F::Upcast, [width]) => self.integer(width).and_then(|width| f.upcast(width)).map(Value::from),
            (F::Downcast, [width]) => {
                self.integer(width).and_then(|width| f.downcast(width)).map(Value::from)
            }
            (F::RightInverse, []) => f.right_inverse().map(Value::from),
            (F::LeftInverse, []) => f.left_inverse().map(Value::from),
            (F::MakeLayoutLike, []) => f.inner().make_like().map(Value::Layout),
            (F::Shape, []) => Ok(f.inner().shape().into()),
            (F::Size, []) => Ok(Value::Integer(f.size())),
            (F::Cosize, []) => f.cosize().map(Value::Integer),
            (F::Rank, []) => Ok(Value::Integer(f.inner().rank() as i64)),
            (F::Depth, []) => Ok(Value::Integer(f.inner().depth() as i64)),
            (F::Stride | F::Complement | F::Nullspace | F::Tiles | F::Orthogonal, _) => {
                let message = format!(
                    "{function} is decided by strides, and {f} has none of its own: take {}, which is applied first",
                    f.inner()
                );
                Err(self.wrong(self.place(), message))
            }
            // What takes shapes takes this one, and what does not says so.
            (_, _) => return None,
        })
    }

    /// The shape of a value that has one.
    pub(super) fn shape_of(&self, value: &Placed) -> Result<IntTuple, Error> {
        match &value.1 {
            Value::Composed(composed) => Ok(composed.inner().shape()),
            Value::Tuple(shape) => Ok(shape.clone()),
            Value::Integer(extent) => Ok(IntTuple::scalar(*extent)),
            Value::Layout(layout) => Ok(layout.shape()),
            Value::Named(named) => Ok(named.layout().shape()),
            Value::Pairs(pairs) => Ok(pairs.layout().shape()),
            Value::Bool(_)
            | Value::Answer(_)
            | Value::Points(_)
            | Value::Swizzle(_)
            | Value::Tiler(_)
            | Value::Pattern(_) => self.expected("a layout or a shape", value),
        }
    }
}
