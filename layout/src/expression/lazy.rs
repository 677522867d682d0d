//! Functions of compositions that are not layouts.
//!
//! Operations on indices act on the function that is applied first, `(S o B) o C = S o (B o C)`, so functions
//! of one composition are those of its inner layout, where that is right. For several operands the function
//! by coordinates decides, as in [`compositions`](crate::algebra::ComposedLayout::concat). A function that needs
//! strides would describe another function, and is rejected.

use super::evaluate::{Operation, Placed};
use super::{Function, Value};
use crate::algebra::{ComposedLayout, Form, ThreadValueLayout};
use crate::{Error, IntTuple, Layout};

impl Operation<'_> {
    /// Returns the answer where an argument is a composition and the function takes it.
    pub(super) fn call_with_composition(
        &self,
        function: Function,
        arguments: &[Placed],
    ) -> Option<Result<Value, Error>> {
        if !arguments.iter().any(is_composed) {
            return None;
        }
        self.of_compositions(function, arguments).or_else(|| match arguments {
            [(_, Value::Composed(first)), rest @ ..] => self.of_composition(function, first, rest),
            [..] => None,
        })
    }

    /// Returns a function of several layouts, of which one or more are compositions.
    fn of_compositions(&self, function: Function, arguments: &[Placed]) -> Option<Result<Value, Error>> {
        use Function as F;
        let composed = |value| self.composed(value);
        let divide = |a, tile, form| composed(a)?.divide(&composed(tile)?, form);
        let extended = |a, tile, form| composed(a)?.divide_extended(&composed(tile)?, form);
        let product = |a, pattern, form| composed(a)?.product(&composed(pattern)?, form);
        let answer = match (function, arguments) {
            (F::Composition, [outer, inner]) if is_composed(inner) => self.after_composition(outer, inner),
            (F::CompositionExtended, [a, b]) if is_composed(b) => {
                composed(a).and_then(|a| a.compose_extended(&composed(b)?))
            }
            (F::CompositionAt, [a, offset, b]) => {
                composed(b).and_then(|b| composed(a)?.compose(&b.plus(self.integer(offset)?)?))
            }
            (F::Composed, [outer, offset, (place, Value::Composed(inner))]) => self
                .integer(offset)
                .and_then(|offset| inner.plus(offset))
                .and_then(|inner| self.after_composition(outer, &(*place, inner.into()))),
            (F::LogicalDivide | F::ZippedDivide, [a, tile]) if is_composed(tile) => {
                divide(a, tile, Form::Logical)
            }
            (F::TiledDivide, [a, tile]) if is_composed(tile) => divide(a, tile, Form::Tiled),
            (F::FlatDivide, [a, tile]) if is_composed(tile) => divide(a, tile, Form::Flat),
            (F::LogicalDivideExtended | F::ZippedDivideExtended, [a, tile]) if is_composed(tile) => {
                extended(a, tile, Form::Logical)
            }
            (F::TiledDivideExtended, [a, tile]) if is_composed(tile) => extended(a, tile, Form::Tiled),
            (F::FlatDivideExtended, [a, tile]) if is_composed(tile) => extended(a, tile, Form::Flat),
            (F::LogicalProduct | F::ZippedProduct, [a, b]) if is_composed(b) => product(a, b, Form::Logical),
            (F::TiledProduct, [a, b]) if is_composed(b) => product(a, b, Form::Tiled),
            (F::FlatProduct, [a, b]) if is_composed(b) => product(a, b, Form::Flat),
            (F::Concat, parts) => parts
                .iter()
                .map(composed)
                .collect::<Result<Vec<_>, _>>()
                .and_then(|parts| ComposedLayout::concat(&parts)),
            (F::Append, [(_, Value::Layout(a)), mode]) => {
                composed(mode).and_then(|mode| beside(a.modes().map(ComposedLayout::from).chain([mode])))
            }
            (F::Prepend, [(_, Value::Layout(a)), mode]) => composed(mode)
                .and_then(|mode| beside(std::iter::once(mode).chain(a.modes().map(ComposedLayout::from)))),
            (F::Replace, [(_, Value::Layout(a)), k, mode]) => composed(mode).and_then(|mode| {
                let at = self.index(k)?;
                a.mode(at)?;
                let mut modes: Vec<ComposedLayout> = a.modes().map(ComposedLayout::from).collect();
                modes.splice(at..=at, [mode]);
                beside(modes)
            }),
            (F::MaxCommonLayout, [a, b]) => {
                composed(a).and_then(|a| a.max_common_layout(&composed(b)?)).map(ComposedLayout::from)
            }
            (F::MaxCommonVector, [a, b]) => {
                let common = composed(a).and_then(|a| a.max_common_layout(&composed(b)?));
                return Some(common.map(|layout| Value::Integer(layout.size())));
            }
            (F::SameFunction, [a, b]) => {
                return Some(composed(a).and_then(|a| a.is_equivalent(&composed(b)?)).map(Value::Bool));
            }
            (F::Disjoint, [a, b]) => {
                return Some(composed(a).and_then(|a| a.is_disjoint(&composed(b)?)).map(Value::Answer));
            }
            (_, _) => return None,
        };
        Some(answer.map(Value::of_composed))
    }

    /// Returns the composition of `outer` after `inner`.
    fn after_composition(&self, outer: &Placed, inner: &Placed) -> Result<ComposedLayout, Error> {
        let first = self.composed(inner)?;
        if let Some(swizzle) = outer.1.as_swizzle() {
            return first.after_swizzle(swizzle);
        }
        match outer.1.as_composed() {
            Some(last) => last.compose(&first),
            None => first.after(self.layout(outer)?),
        }
    }

    /// Evaluates a function of a composition, or reports why it is not defined.
    fn of_composition(
        &self,
        function: Function,
        f: &ComposedLayout,
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
            (F::LogicalDivideExtended, [t]) => inner(&|b| b.logical_divide_extended(&self.tiler(t)?)),
            (F::ZippedDivideExtended, [t]) => inner(&|b| b.zipped_divide_extended(&self.tiler(t)?)),
            (F::TiledDivideExtended, [t]) => inner(&|b| b.tiled_divide_extended(&self.tiler(t)?)),
            (F::FlatDivideExtended, [t]) => inner(&|b| b.flat_divide_extended(&self.tiler(t)?)),
            (F::LocalTile, [t, pattern]) => {
                self.tiler(t).and_then(|tiler| f.local_tile(&tiler, self.pattern(pattern)?)).map(Value::from)
            }
            (F::LocalPartition, [threads, thread]) => layout(threads)
                .and_then(|threads| f.local_partition(threads, self.integer(thread)?))
                .map(Value::from),
            (F::ThreadPartition, [tile, threads]) => self
                .extents(tile)
                .and_then(|tile| ThreadValueLayout::new(&tile, layout(threads)?))
                .and_then(|threads| f.map_inner(|b| threads.partition(b)))
                .map(Value::from),
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
            (F::Complement, []) => f.cosize().and_then(|bound| f.complement(bound)).map(Value::Layout),
            (F::Complement, [bound]) => {
                self.integer(bound).and_then(|bound| f.complement(bound)).map(Value::Layout)
            }
            (F::Nullspace, []) => Ok(Value::Layout(f.inner().nullspace())),
            (F::Injective, []) => f.is_injective().map(Value::Answer),
            (F::Surjective, [bound]) => {
                self.integer(bound).and_then(|bound| f.is_surjective_onto(bound)).map(Value::Bool)
            }
            (F::Compact, []) => f.is_surjective_onto(f.size()).map(Value::Bool),
            (F::Stride | F::Tiles | F::Orthogonal, _) => {
                let message = format!(
                    "{function} needs strides, and {f} has none; use {}, which is applied first",
                    f.inner()
                );
                Err(self.refused(self.place(), message))
            }
            // Functions of shapes take this shape, and other functions report the error.
            (_, _) => return None,
        })
    }

    /// Returns the shape of a value that has one.
    pub(super) fn shape_of(&self, value: &Placed) -> Result<IntTuple, Error> {
        let shape = value.1.shape().or_else(|| value.1.to_tuple());
        shape.map_or_else(|| self.expected("a layout or a shape", value), Ok)
    }
}

fn is_composed(value: &Placed) -> bool {
    value.1.as_composed().is_some()
}

fn beside(modes: impl IntoIterator<Item = ComposedLayout>) -> Result<ComposedLayout, Error> {
    ComposedLayout::concat(&modes.into_iter().collect::<Vec<_>>())
}
