//! Evaluating an expression that has been read.

use super::{Expression, Function, Node, Term, Value};
use crate::algebra::{Composed, Outer, Pattern, Tiler};
use crate::error::ParseError;
use crate::{Error, ErrorKind, IntTuple, Layout};

impl Expression {
    /// The value.
    ///
    /// # Errors
    ///
    /// `parse` with the place if an argument is not what the function takes, or what the operations refuse.
    pub fn evaluate(&self) -> Result<Value, Error> {
        self.value(&self.root)
    }

    fn wrong(&self, node: &Node, message: String) -> Error {
        Error::Parse(Box::new(ParseError::new(ErrorKind::Parse, &self.text, node.place, message)))
    }

    /// Recursion is as deep as the expression, which is bounded when it is read.
    fn value(&self, node: &Node) -> Result<Value, Error> {
        match &node.term {
            Term::Tuple(tuple) => Ok(match tuple.as_scalar() {
                Some(integer) => Value::Integer(integer),
                None => Value::Tuple(tuple.clone()),
            }),
            Term::Layout(layout) => Ok(Value::Layout(layout.clone())),
            Term::Swizzle(swizzle) => Ok(Value::Swizzle(*swizzle)),
            Term::Pattern(_) => {
                Err(self.wrong(node, "a pattern is only an argument of slice and dice".to_owned()))
            }
            Term::Tiler(nodes) => {
                let tilers: Result<Vec<_>, _> = nodes.iter().map(|node| self.tiler(node)).collect();
                Ok(Value::Tiler(Tiler::Modes(tilers?)))
            }
            Term::Call(function, nodes) => self.call(node, *function, nodes),
            Term::Apply(function, nodes) => self.apply(function, nodes),
        }
    }

    fn apply(&self, function: &Node, nodes: &[Node]) -> Result<Value, Error> {
        let value = self.value(function)?;
        if let (Value::Layout(layout), true) = (&value, nodes.len() != 1) {
            let coordinates: Result<Vec<_>, _> = nodes.iter().map(|node| self.tuple(node)).collect();
            return layout.offset_at(&IntTuple::tuple(&coordinates?)?).map(Value::Integer);
        }
        let [node] = nodes else {
            return Err(self.wrong(function, format!("{} takes one index", value.noun())));
        };
        match &value {
            Value::Layout(layout) => layout.offset_at(&self.tuple(node)?),
            Value::Composed(composed) => composed.at(self.integer(node)?),
            Value::Swizzle(swizzle) => swizzle.at(self.integer(node)?),
            Value::Integer(_) | Value::Bool(_) | Value::Answer(_) | Value::Tuple(_) | Value::Tiler(_) => {
                Err(self.wrong(function, format!("{} cannot be applied to an index", value.noun())))
            }
        }
        .map(Value::Integer)
    }

    fn expected<T>(&self, node: &Node, what: &str, value: &Value) -> Result<T, Error> {
        Err(self.wrong(node, format!("expected {what}, found {}", value.noun())))
    }

    fn layout(&self, node: &Node) -> Result<Layout, Error> {
        let value = self.value(node)?;
        let Value::Layout(layout) = value else { return self.expected(node, "a layout", &value) };
        Ok(layout)
    }

    fn integer(&self, node: &Node) -> Result<i64, Error> {
        let value = self.value(node)?;
        let Value::Integer(integer) = value else { return self.expected(node, "an integer", &value) };
        Ok(integer)
    }

    fn index(&self, node: &Node) -> Result<usize, Error> {
        let integer = self.integer(node)?;
        usize::try_from(integer)
            .map_err(|_| self.wrong(node, format!("expected the number of a mode, found {integer}")))
    }

    fn tuple(&self, node: &Node) -> Result<IntTuple, Error> {
        match self.value(node)? {
            Value::Integer(integer) => Ok(IntTuple::scalar(integer)),
            Value::Tuple(tuple) => Ok(tuple),
            value @ (Value::Bool(_)
            | Value::Answer(_)
            | Value::Layout(_)
            | Value::Composed(_)
            | Value::Swizzle(_)
            | Value::Tiler(_)) => self.expected(node, "a tuple", &value),
        }
    }

    /// A tuple without tuples in it.
    fn flat(&self, node: &Node) -> Result<IntTuple, Error> {
        let tuple = self.tuple(node)?;
        if tuple.depth() > 1 {
            return Err(self.wrong(node, format!("expected a tuple of integers, found {tuple}")));
        }
        Ok(tuple)
    }

    fn profile(&self, node: &Node) -> Result<IntTuple, Error> {
        let tuple = self.tuple(node)?;
        if tuple.leaves().iter().any(|leaf| *leaf != 1) {
            return Err(self.wrong(node, format!("a profile is a nested tuple of 1s, and {tuple} is not")));
        }
        Ok(tuple)
    }

    fn tiler(&self, node: &Node) -> Result<Tiler, Error> {
        match self.value(node)? {
            Value::Layout(layout) => Ok(Tiler::Layout(layout)),
            Value::Tiler(tiler) => Ok(tiler),
            Value::Integer(extent) => Layout::scalar(extent, 1).map(Tiler::Layout),
            value @ (Value::Bool(_)
            | Value::Answer(_)
            | Value::Tuple(_)
            | Value::Composed(_)
            | Value::Swizzle(_)) => self.expected(node, "a layout or a tiler", &value),
        }
    }

    fn outer(&self, node: &Node) -> Result<Outer, Error> {
        match self.value(node)? {
            Value::Layout(layout) => Ok(Outer::Layout(layout)),
            Value::Swizzle(swizzle) => Ok(Outer::Swizzle(swizzle)),
            value @ (Value::Integer(_)
            | Value::Bool(_)
            | Value::Answer(_)
            | Value::Tuple(_)
            | Value::Composed(_)
            | Value::Tiler(_)) => self.expected(node, "a layout or a swizzle", &value),
        }
    }

    fn pattern(&self, node: &Node) -> Result<Pattern, Error> {
        match &node.term {
            Term::Pattern(pattern) => Ok(pattern.clone()),
            Term::Tuple(_)
            | Term::Layout(_)
            | Term::Swizzle(_)
            | Term::Tiler(_)
            | Term::Call(..)
            | Term::Apply(..) => Err(self.wrong(node, "expected a pattern like (_,2)".to_owned())),
        }
    }

    fn composition(&self, outer: &Node, inner: &Node) -> Result<Value, Error> {
        match self.outer(outer)? {
            Outer::Layout(layout) => layout.compose_by(&self.tiler(inner)?).map(Value::Layout),
            Outer::Swizzle(swizzle) => match self.value(inner)? {
                Value::Layout(layout) => match swizzle.compose(&layout) {
                    Ok(layout) => Ok(Value::Layout(layout)),
                    // A swizzled layout is rarely a layout, and is used as it is.
                    Err(Error::NotRepresentable { .. } | Error::Undecided { .. }) => {
                        Composed::new(swizzle.into(), 0, layout)
                            .map(|composed| Value::Composed(Box::new(composed)))
                    }
                    Err(error) => Err(error),
                },
                Value::Swizzle(first) => match swizzle.after(first) {
                    Some(swizzle) => Ok(Value::Swizzle(swizzle)),
                    None => Err(self.wrong(outer, format!("{swizzle} after {first} is not a swizzle"))),
                },
                value @ (Value::Integer(_)
                | Value::Bool(_)
                | Value::Answer(_)
                | Value::Tuple(_)
                | Value::Composed(_)
                | Value::Tiler(_)) => self.expected(inner, "a layout or a swizzle", &value),
            },
        }
    }

    fn call(&self, node: &Node, function: Function, arguments: &[Node]) -> Result<Value, Error> {
        use Function as F;
        let layout = |node: &Node| self.layout(node);
        match (function, arguments) {
            (F::Coalesce, [a]) => Ok(Value::Layout(layout(a)?.coalesce())),
            (F::Coalesce, [a, profile]) => layout(a)?.coalesce_by(&self.profile(profile)?).map(Value::Layout),
            (F::Filter, [a]) => Ok(Value::Layout(layout(a)?.filter())),
            (F::Composition, [a, b]) => self.composition(a, b),
            (F::CompositionExtended, [a, b]) => layout(a)?.compose_extended(&layout(b)?).map(Value::Layout),
            (F::Composed, [a, offset, b]) => Composed::new(self.outer(a)?, self.integer(offset)?, layout(b)?)
                .map(|composed| Value::Composed(Box::new(composed))),
            (F::Complement, [a]) => {
                let a = layout(a)?;
                a.complement(a.cosize()).map(Value::Layout)
            }
            (F::Complement, [a, bound]) => layout(a)?.complement(self.integer(bound)?).map(Value::Layout),
            (F::Tiles, [a, bound]) => layout(a)?.tiles(self.integer(bound)?).map(Value::Bool),
            (F::RightInverse, [a]) => layout(a)?.right_inverse().map(Value::Layout),
            (F::LeftInverse, [a]) => layout(a)?.left_inverse().map(Value::Layout),
            (F::LogicalDivide, [a, t]) => layout(a)?.logical_divide(&self.tiler(t)?).map(Value::Layout),
            (F::ZippedDivide, [a, t]) => layout(a)?.zipped_divide(&self.tiler(t)?).map(Value::Layout),
            (F::TiledDivide, [a, t]) => layout(a)?.tiled_divide(&self.tiler(t)?).map(Value::Layout),
            (F::FlatDivide, [a, t]) => layout(a)?.flat_divide(&self.tiler(t)?).map(Value::Layout),
            (F::LogicalProduct, [a, t]) => layout(a)?.logical_product(&self.tiler(t)?).map(Value::Layout),
            (F::ZippedProduct, [a, t]) => layout(a)?.zipped_product(&self.tiler(t)?).map(Value::Layout),
            (F::TiledProduct, [a, t]) => layout(a)?.tiled_product(&self.tiler(t)?).map(Value::Layout),
            (F::FlatProduct, [a, t]) => layout(a)?.flat_product(&self.tiler(t)?).map(Value::Layout),
            (F::BlockedProduct, [a, b]) => layout(a)?.blocked_product(&layout(b)?).map(Value::Layout),
            (F::RakedProduct, [a, b]) => layout(a)?.raked_product(&layout(b)?).map(Value::Layout),
            (F::TileToShape, [a, shape]) => {
                layout(a)?.tile_to_shape(self.flat(shape)?.leaves()).map(Value::Layout)
            }
            (F::TileToShape, [a, shape, order]) => layout(a)?
                .tile_to_shape_ordered(self.flat(shape)?.leaves(), self.flat(order)?.leaves())
                .map(Value::Layout),
            (F::MaxCommonLayout, [a, b]) => layout(a)?.max_common_layout(&layout(b)?).map(Value::Layout),
            (F::MaxCommonVector, [a, b]) => layout(a)?.max_common_vector(&layout(b)?).map(Value::Integer),
            (F::Slice, [a, pattern]) => {
                layout(a)?.slice(&self.pattern(pattern)?).map(|(layout, _)| Value::Layout(layout))
            }
            (F::Dice, [a, pattern]) => layout(a)?.dice(&self.pattern(pattern)?).map(Value::Layout),
            (F::Group, [a, begin, end]) => {
                layout(a)?.group(self.index(begin)?..self.index(end)?).map(Value::Layout)
            }
            (F::Flatten, [a]) => Ok(Value::Layout(layout(a)?.flatten())),
            (F::Reversed, [a]) => Ok(Value::Layout(layout(a)?.reversed())),
            (F::Upcast, [a, width]) => layout(a)?.upcast(self.integer(width)?).map(Value::Layout),
            (F::Downcast, [a, width]) => layout(a)?.downcast(self.integer(width)?).map(Value::Layout),
            (F::Nullspace, [a]) => Ok(Value::Layout(layout(a)?.nullspace())),
            (F::Concat, [_, ..]) => {
                let modes: Result<Vec<_>, _> = arguments.iter().map(layout).collect();
                Layout::concat(&modes?).map(Value::Layout)
            }
            (F::ColumnMajor, [shape]) => Layout::column_major(self.flat(shape)?.leaves()).map(Value::Layout),
            (F::RowMajor, [shape]) => Layout::row_major(self.flat(shape)?.leaves()).map(Value::Layout),
            (F::Mode, [a, k]) => layout(a)?.mode(self.index(k)?).map(Value::Layout),
            (F::Shape, [a]) => Ok(tuple_value(layout(a)?.shape())),
            (F::Stride, [a]) => Ok(tuple_value(layout(a)?.stride())),
            (F::Size, [a]) => match self.value(a)? {
                Value::Layout(layout) => Ok(Value::Integer(layout.size())),
                Value::Composed(composed) => Ok(Value::Integer(composed.size())),
                value @ (Value::Integer(_)
                | Value::Bool(_)
                | Value::Answer(_)
                | Value::Tuple(_)
                | Value::Swizzle(_)
                | Value::Tiler(_)) => self.expected(a, "a layout", &value),
            },
            (F::Cosize, [a]) => Ok(Value::Integer(layout(a)?.cosize())),
            (F::Rank, [a]) => Ok(Value::Integer(layout(a)?.rank() as i64)),
            (F::Depth, [a]) => Ok(Value::Integer(layout(a)?.depth() as i64)),
            (F::SameFunction, [a, b]) => Ok(Value::Bool(layout(a)?.same_function(&layout(b)?))),
            (F::Injective, [a]) => Ok(Value::Answer(layout(a)?.is_injective())),
            (F::Surjective, [a, bound]) => {
                Ok(Value::Bool(layout(a)?.is_surjective_onto(self.integer(bound)?)))
            }
            (F::Compact, [a]) => Ok(Value::Bool(layout(a)?.is_compact())),
            (F::Disjoint, [a, b]) => Ok(Value::Answer(layout(a)?.is_disjoint(&layout(b)?))),
            (F::Orthogonal, [a]) => Ok(Value::Bool(layout(a)?.is_orthogonal())),
            (F::Compatible, [a, b]) => Ok(Value::Bool(layout(a)?.is_compatible(&layout(b)?))),
            (F::Congruent, [a, b]) => Ok(Value::Bool(layout(a)?.is_congruent(&layout(b)?))),
            (function, arguments) => {
                let (parameters, given) = (function.parameters(), arguments.len());
                Err(self
                    .wrong(node, format!("{function} takes ({parameters}), and is given {given} arguments")))
            }
        }
    }
}

fn tuple_value(tuple: IntTuple) -> Value {
    match tuple.as_scalar() {
        Some(integer) => Value::Integer(integer),
        None => Value::Tuple(tuple),
    }
}
