//! Evaluating an expression that has been read.
//!
//! Only [`Expression::value`] recurses, as deep as the expression, and its frames are small: the operations
//! run when all arguments have their values.

use super::{Expression, Function, Node, Term, Value};
use crate::algebra::{ComposedLayout, Outer, SlicePattern, ThreadValueLayout, Tiler};
use crate::error::ParseError;
use crate::{Error, ErrorCode, IntTuple, Layout, NamedLayout, Swizzle};

impl Function {
    /// Returns the value of the call with these arguments, without a text to read.
    ///
    /// ```
    /// use reshard_layout::expression::{Function, Value};
    ///
    /// let layout = |text: &str| Ok::<_, reshard_layout::Error>(Value::Layout(text.parse()?));
    /// let arguments = [layout("(6,2):(8,2)")?, layout("(4,3):(3,1)")?];
    /// assert_eq!(Function::Composition.call(&arguments)?, layout("((2,2),3):((24,2),8)")?);
    /// let error = Function::Size.call(&[Value::Integer(3)]).unwrap_err();
    /// assert_eq!(error.to_string(), "expected a layout, found an integer at byte 5");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`evaluate`](super::evaluate) for the same call as text; positions are those in that
    /// text.
    #[doc(hidden)]
    pub fn call(self, arguments: &[Value]) -> Result<Value, Error> {
        let (mut text, mut placed) = (format!("{self}("), Vec::with_capacity(arguments.len()));
        for (at, argument) in arguments.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            placed.push((text.len(), argument.clone()));
            text.push_str(&argument.to_string());
        }
        text.push(')');
        Operation { text: &text, place: 0 }.call(self, &placed)
    }
}

impl Value {
    /// Returns the tiler of these parts, as expressions write it.
    ///
    /// An integer is short for that extent and stride 1.
    ///
    /// ```
    /// use reshard_layout::expression::{Value, evaluate};
    ///
    /// let tiler = Value::tiler(&[Value::Integer(4), evaluate("2:3")?])?;
    /// assert_eq!(tiler, evaluate("<4,2:3>")?);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `parse` for a value that is not a part of a tiler, and `bad_extent`.
    #[doc(hidden)]
    pub fn tiler(parts: &[Value]) -> Result<Value, Error> {
        let placed: Vec<Placed> = parts.iter().map(|part| (0, part.clone())).collect();
        let text: Vec<String> = parts.iter().map(Value::to_string).collect();
        Operation { text: &format!("<{}>", text.join(",")), place: 0 }.tiler_of(&placed)
    }

    /// Returns the value at a coordinate, of a layout of any kind or a swizzle.
    ///
    /// ```
    /// use reshard_layout::expression::{Value, evaluate};
    ///
    /// assert_eq!(evaluate("(6,2):(8,2)")?.apply(&"(1,1)".parse()?)?, Value::Integer(10));
    /// assert_eq!(evaluate("(4,2):(1@tp,8)")?.apply(&7.into())?.to_string(), "8+3@tp");
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `parse` if it is not a function, and the errors of the function for the coordinate.
    #[doc(hidden)]
    pub fn apply(&self, coordinate: &IntTuple) -> Result<Value, Error> {
        let argument = Value::from(coordinate.clone());
        Operation { text: &format!("{self}({argument})"), place: 0 }.apply(self, &[(0, argument)])
    }
}

/// A value and the position of its expression.
pub(super) type Placed = (usize, Value);

impl Expression {
    /// Returns the value.
    ///
    /// # Errors
    ///
    /// `parse` with the position if an argument has the wrong type, or the errors of the operations.
    pub fn evaluate(&self) -> Result<Value, Error> {
        self.value(&self.root)
    }

    fn value(&self, node: &Node) -> Result<Value, Error> {
        match &node.term {
            Term::Value(value) => Ok(value.as_ref().clone()),
            Term::Tiler(nodes) => {
                Operation { text: &self.text, place: node.place }.tiler_of(&self.values(nodes)?)
            }
            Term::Call(function, nodes) => {
                Operation { text: &self.text, place: node.place }.call(*function, &self.values(nodes)?)
            }
            Term::Apply(function, nodes) => {
                let value = self.value(function)?;
                Operation { text: &self.text, place: node.place }.apply(&value, &self.values(nodes)?)
            }
        }
    }

    fn values(&self, nodes: &[Node]) -> Result<Vec<Placed>, Error> {
        nodes.iter().map(|node| Ok((node.place, self.value(node)?))).collect()
    }
}

/// An operation at a position of a text, for messages.
pub(super) struct Operation<'a> {
    text: &'a str,
    place: usize,
}

impl Operation<'_> {
    pub(super) fn place(&self) -> usize {
        self.place
    }

    pub(super) fn wrong(&self, place: usize, message: String) -> Error {
        Error::Parse(Box::new(ParseError::new(ErrorCode::Parse, self.text, place, message)))
    }

    pub(super) fn expected<T>(&self, what: &str, (place, value): &Placed) -> Result<T, Error> {
        Err(self.wrong(*place, format!("expected {what}, found {}", value.noun())))
    }

    /// Returns the error of a well-formed operation that has no answer.
    pub(super) fn refused(&self, place: usize, message: String) -> Error {
        Error::Parse(Box::new(ParseError::new(ErrorCode::Inadmissible, self.text, place, message)))
    }

    pub(super) fn layout<'v>(&self, value: &'v Placed) -> Result<&'v Layout, Error> {
        value.1.as_layout().map_or_else(|| self.expected_layout("a layout", value), Ok)
    }

    pub(super) fn integer(&self, value: &Placed) -> Result<i64, Error> {
        value.1.as_integer().map_or_else(|| self.expected("an integer", value), Ok)
    }

    pub(super) fn pattern<'v>(&self, value: &'v Placed) -> Result<&'v SlicePattern, Error> {
        value.1.as_pattern().map_or_else(|| self.expected("a pattern", value), Ok)
    }

    /// Returns a layout or a composition.
    pub(super) fn composed(&self, value: &Placed) -> Result<ComposedLayout, Error> {
        value.1.to_composed().map_or_else(|| self.expected_layout("a layout", value), Ok)
    }

    pub(super) fn index(&self, value: &Placed) -> Result<usize, Error> {
        let integer = self.integer(value)?;
        usize::try_from(integer)
            .map_err(|_| self.wrong(value.0, format!("expected the number of a mode, found {integer}")))
    }

    pub(super) fn indices(&self, values: &[Placed]) -> Result<Vec<usize>, Error> {
        values.iter().map(|value| self.index(value)).collect()
    }

    pub(super) fn tuple(&self, value: &Placed) -> Result<IntTuple, Error> {
        value.1.to_tuple().map_or_else(|| self.expected("a tuple", value), Ok)
    }

    /// Returns the products of the components of a shape.
    pub(super) fn extents(&self, value: &Placed) -> Result<IntTuple, Error> {
        self.tuple(value)?.product_each()
    }

    /// Returns a tuple without tuples in it.
    pub(super) fn flat(&self, value: &Placed) -> Result<IntTuple, Error> {
        let tuple = self.tuple(value)?;
        if tuple.depth() > 1 {
            return Err(self.wrong(value.0, format!("expected a tuple of integers, found {tuple}")));
        }
        Ok(tuple)
    }

    /// Returns a profile: a tuple whose nesting counts and whose numbers are ignored.
    pub(super) fn profile(&self, value: &Placed) -> Result<IntTuple, Error> {
        self.tuple(value)
    }

    pub(super) fn tiler(&self, value: &Placed) -> Result<Tiler, Error> {
        if let Value::Tiler(tiler) = &value.1 {
            return Ok(tiler.clone());
        }
        if let Some(composed) = value.1.as_composed() {
            // A composition that is a layout, such as a tile, is treated as a layout.
            if let Ok((0, layout)) = composed.from_first_value() {
                return Ok(Tiler::Layout(layout));
            }
            let message = format!(
                "a tile of a tiler, or of a layout by mode, must have strides, and {composed} has none; divide by \
                 {} mode by mode, and apply the rest last",
                composed.inner()
            );
            return Err(self.refused(value.0, message));
        }
        if let Some(layout) = value.1.as_layout() {
            return Ok(Tiler::Layout(layout.clone()));
        }
        match value.1.to_tuple() {
            Some(shape) => Tiler::of_shape(&shape),
            None => self.expected_layout("a layout or a tiler", value),
        }
    }

    fn tiler_of(&self, values: &[Placed]) -> Result<Value, Error> {
        let tilers: Result<Vec<_>, _> = values.iter().map(|value| self.tiler(value)).collect();
        Ok(Value::Tiler(Tiler::Modes(tilers?)))
    }

    fn outer(&self, value: &Placed) -> Result<Outer, Error> {
        value.1.to_outer().map_or_else(|| self.expected_layout("a layout or a swizzle", value), Ok)
    }

    fn apply(&self, function: &Value, values: &[Placed]) -> Result<Value, Error> {
        if let Some(swizzle) = function.as_swizzle() {
            let [index] = values else {
                return Err(self.wrong(self.place, format!("{} takes one index", function.noun())));
            };
            return swizzle.at(self.integer(index)?).map(Value::Integer);
        }
        let coordinate = match values {
            [index] => self.tuple(index)?,
            several => {
                let coordinates: Result<Vec<_>, _> = several.iter().map(|value| self.tuple(value)).collect();
                IntTuple::tuple(&coordinates?)?
            }
        };
        function.at(&coordinate).unwrap_or_else(|| {
            Err(self.wrong(self.place, format!("{} cannot be applied to an index", function.noun())))
        })
    }

    fn composition(&self, outer: &Placed, inner: &Placed) -> Result<Value, Error> {
        let swizzle = match self.outer(outer)? {
            Outer::Layout(layout) => return layout.compose_by(&self.tiler(inner)?).map(Value::Layout),
            Outer::Swizzle(swizzle) => swizzle,
        };
        match self.outer(inner)? {
            Outer::Layout(layout) => match swizzle.compose(&layout) {
                Ok(layout) => Ok(Value::Layout(layout)),
                // A swizzled layout is rarely a layout, and is used as it is.
                Err(Error::NotRepresentable { .. } | Error::Undecided { .. }) => {
                    ComposedLayout::new(swizzle.into(), 0, layout).map(Value::from)
                }
                Err(error) => Err(error),
            },
            Outer::Swizzle(first) => self.after(outer, swizzle, first).map(Value::Swizzle),
        }
    }

    /// Returns a swizzle after another one, if both are one.
    pub(super) fn after(&self, outer: &Placed, swizzle: Swizzle, first: Swizzle) -> Result<Swizzle, Error> {
        let message = || format!("{swizzle} after {first} is not a swizzle; apply them in two steps");
        swizzle.after(first).ok_or_else(|| self.refused(outer.0, message()))
    }

    fn call(&self, function: Function, arguments: &[Placed]) -> Result<Value, Error> {
        use Function as F;
        let plain: Vec<Placed>;
        let arguments = if arguments.iter().any(|(_, value)| value.is_plain_composition()) {
            plain = arguments.iter().map(|(place, value)| (*place, value.clone().plain())).collect();
            &plain
        } else {
            arguments
        };
        let special = self.call_with_axes(function, arguments);
        let special = special.or_else(|| self.call_with_composition(function, arguments));
        if let Some(answer) = special.or_else(|| self.call_with_tuples(function, arguments)) {
            return answer;
        }
        let layout = |value| self.layout(value);
        match (function, arguments) {
            (F::Coalesce, [a]) => Ok(Value::Layout(layout(a)?.coalesce())),
            (F::Coalesce, [a, profile]) => layout(a)?.coalesce_by(&self.profile(profile)?).map(Value::Layout),
            (F::Filter, [a]) => Ok(Value::Layout(layout(a)?.filter())),
            (F::Composition, [a, b]) => self.composition(a, b),
            (F::CompositionExtended, [a, b]) => layout(a)?.compose_extended(layout(b)?).map(Value::Layout),
            (F::Composed, [a, offset, b]) => {
                let (outer, offset) = (self.outer(a)?, self.integer(offset)?);
                Ok(ComposedLayout::partial(outer, offset, layout(b)?.clone()).into())
            }
            (F::CompositionAt, [a, offset, b]) => {
                let (start, modes) = layout(a)?.compose_from(self.integer(offset)?, layout(b)?)?;
                Ok(ComposedLayout::from_offset(start, modes).into())
            }
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
            (F::LogicalDivideExtended, [a, t]) => {
                layout(a)?.logical_divide_extended(&self.tiler(t)?).map(Value::Layout)
            }
            (F::ZippedDivideExtended, [a, t]) => {
                layout(a)?.zipped_divide_extended(&self.tiler(t)?).map(Value::Layout)
            }
            (F::TiledDivideExtended, [a, t]) => {
                layout(a)?.tiled_divide_extended(&self.tiler(t)?).map(Value::Layout)
            }
            (F::FlatDivideExtended, [a, t]) => {
                layout(a)?.flat_divide_extended(&self.tiler(t)?).map(Value::Layout)
            }
            (F::LogicalProduct, [a, t]) => layout(a)?.logical_product(&self.tiler(t)?).map(Value::Layout),
            (F::ZippedProduct, [a, t]) => layout(a)?.zipped_product(&self.tiler(t)?).map(Value::Layout),
            (F::TiledProduct, [a, t]) => layout(a)?.tiled_product(&self.tiler(t)?).map(Value::Layout),
            (F::FlatProduct, [a, t]) => layout(a)?.flat_product(&self.tiler(t)?).map(Value::Layout),
            (F::BlockedProduct, [a, b]) => layout(a)?.blocked_product(layout(b)?).map(Value::Layout),
            (F::RakedProduct, [a, b]) => layout(a)?.raked_product(layout(b)?).map(Value::Layout),
            (F::TileToShape, [a, shape]) => {
                layout(a)?.tile_to_shape(self.extents(shape)?.leaves()).map(Value::Layout)
            }
            (F::TileToShape, [a, shape, order]) => layout(a)?
                .tile_to_shape_ordered(self.extents(shape)?.leaves(), self.flat(order)?.leaves())
                .map(Value::Layout),
            (F::MaxCommonLayout, [a, b]) => layout(a)?.max_common_layout(layout(b)?).map(Value::Layout),
            (F::MaxCommonVector, [a, b]) => layout(a)?.max_common_vector(layout(b)?).map(Value::Integer),
            (F::Slice, [a, pattern]) => {
                layout(a)?.slice(self.pattern(pattern)?).map(|(layout, _)| Value::Layout(layout))
            }
            (F::SliceAndOffset, [a, pattern]) => {
                let (open, value) = layout(a)?.slice(self.pattern(pattern)?)?;
                Ok(ComposedLayout::from_offset(value, open).into())
            }
            (F::LocalTile, [a, tiler, coordinate]) => {
                let part = layout(a)?.local_tile(&self.tiler(tiler)?, self.pattern(coordinate)?)?;
                Ok(ComposedLayout::from_offset(part.1, part.0).into())
            }
            (F::ThreadValues, [threads, values]) => {
                let copy = ThreadValueLayout::of_grid(layout(threads)?, layout(values)?)?;
                Ok(Value::Layout(copy.layout().clone()))
            }
            (F::ThreadPartition, [a, tile, threads]) => {
                let tensor = layout(a)?;
                let threads = ThreadValueLayout::new(&self.extents(tile)?, layout(threads)?)?;
                threads.partition(tensor).map(Value::Layout)
            }
            (F::ThreadOwners, [tile, threads]) => {
                ThreadValueLayout::new(&self.extents(tile)?, layout(threads)?)?.owners().map(Value::Layout)
            }
            (F::LocalPartition, [a, threads, thread]) => {
                let part = layout(a)?.local_partition(layout(threads)?, self.integer(thread)?)?;
                Ok(ComposedLayout::from_offset(part.1, part.0).into())
            }
            (F::Dice, [a, pattern]) => layout(a)?.dice(self.pattern(pattern)?).map(Value::Layout),
            (F::Group, [a, begin, end]) => {
                layout(a)?.group(self.index(begin)?..self.index(end)?).map(Value::Layout)
            }
            (F::Split, [a, shape]) => layout(a)?.split(self.flat(shape)?.leaves()).map(Value::Layout),
            (F::Zip, [a, b]) => {
                NamedLayout::from(layout(a)?).zip(&NamedLayout::from(layout(b)?)).map(Value::from)
            }
            (F::Flatten, [a]) => Ok(Value::Layout(layout(a)?.flatten())),
            (F::Reversed, [a]) => Ok(Value::Layout(layout(a)?.reversed())),
            (F::Upcast, [a, width]) => layout(a)?.upcast(self.integer(width)?).map(Value::Layout),
            (F::Downcast, [a, width]) => layout(a)?.downcast(self.integer(width)?).map(Value::Layout),
            (F::Nullspace, [a]) => Ok(Value::Layout(layout(a)?.nullspace())),
            (F::Concat, [_, ..]) => {
                let modes: Result<Vec<_>, _> = arguments.iter().map(|value| layout(value).cloned()).collect();
                Layout::concat(&modes?).map(Value::Layout)
            }
            (F::FilterZeros, [a]) => Ok(Value::Layout(layout(a)?.filter_zeros())),
            (F::MakeLayoutLike, [a]) => layout(a)?.make_like().map(Value::Layout),
            (F::Select, [a, modes @ ..]) if !modes.is_empty() => {
                layout(a)?.select(&self.indices(modes)?).map(Value::Layout)
            }
            (F::Take, [a, begin, end]) => {
                layout(a)?.take(self.index(begin)?..self.index(end)?).map(Value::Layout)
            }
            (F::Append, [a, mode]) => layout(a)?.append(layout(mode)?).map(Value::Layout),
            (F::Append, [a, mode, rank]) => {
                layout(a)?.append_to(self.index(rank)?, layout(mode)?).map(Value::Layout)
            }
            (F::Prepend, [a, mode]) => layout(a)?.prepend(layout(mode)?).map(Value::Layout),
            (F::Prepend, [a, mode, rank]) => {
                layout(a)?.prepend_to(self.index(rank)?, layout(mode)?).map(Value::Layout)
            }
            (F::Replace, [a, k, mode]) => {
                layout(a)?.replace(self.index(k)?, layout(mode)?).map(Value::Layout)
            }
            (F::Mode, [a, k]) => layout(a)?.mode(self.index(k)?).map(Value::Layout),
            (F::Shape, [a]) => Ok(layout(a)?.shape().into()),
            (F::Stride, [a]) => Ok(layout(a)?.stride().into()),
            (F::Size, [a]) => Ok(Value::Integer(layout(a)?.size())),
            (F::Cosize, [a]) => Ok(Value::Integer(layout(a)?.cosize())),
            (F::Rank, [a]) => Ok(Value::Integer(layout(a)?.rank() as i64)),
            (F::Depth, [a]) => Ok(Value::Integer(layout(a)?.depth() as i64)),
            (F::SameFunction, [a, b]) => Ok(Value::Bool(layout(a)?.is_equivalent(layout(b)?))),
            (F::Injective, [a]) => Ok(Value::Answer(layout(a)?.is_injective())),
            (F::Surjective, [a, bound]) => {
                Ok(Value::Bool(layout(a)?.is_surjective_onto(self.integer(bound)?)))
            }
            (F::Compact, [a]) => Ok(Value::Bool(layout(a)?.is_compact())),
            (F::Disjoint, [a, b]) => Ok(Value::Answer(layout(a)?.is_disjoint(layout(b)?))),
            (F::Orthogonal, [a]) => Ok(Value::Bool(layout(a)?.is_orthogonal())),
            (function, arguments) => {
                let (parameters, given) = (function.parameters(), arguments.len());
                let message = format!("{function} takes ({parameters}), not {given} arguments");
                Err(self.wrong(self.place, message))
            }
        }
    }
}
