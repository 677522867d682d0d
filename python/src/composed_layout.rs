//! Compositions that are not layouts, and swizzles.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use reshard_layout::Swizzle;
use reshard_layout::algebra::{ComposedLayout, Outer};
use reshard_layout::expression::{Function, Value};

use crate::arguments::to_python;
use crate::failure::{Answer, refused};
use crate::layout::{PyLayout, SHOWN_CELLS};
use crate::numbers::number;
use crate::operations::operations;
use crate::value::by_notation;
use crate::values;

/// The function i -> outer(offset + inner(i)), such as `ComposedLayout("Sw<3,4,3> o 0 o (8,8):(8,1)")`.
#[pyclass(frozen, eq, hash, name = "ComposedLayout", module = "reshard")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyComposed(pub(crate) ComposedLayout);

operations! {
    PyComposed {
        /// A composition from its notation, or from the outer function, an offset and the inner layout.
        #[new]
        #[pyo3(signature = (outer, offset=0, inner=None))]
        fn new(outer: &Bound<'_, PyAny>, #[pyo3(from_py_with = number)] offset: i64, inner: Option<&PyLayout>) -> Answer<PyComposed> {
            let Some(inner) = inner else {
                return Ok(PyComposed(outer.extract::<String>()?.parse::<ComposedLayout>()?));
            };
            let given = values::value(outer)?;
            let outer = given.to_outer().ok_or_else(|| {
                refused("parse", format!("expected a layout or a swizzle as the outer function, found {given}"))
            })?;
            Ok(PyComposed(ComposedLayout::partial(outer, offset, inner.0.clone())))
        }

        fn __len__(&self) -> PyResult<usize> {
            Ok(usize::try_from(self.0.size())?)
        }

        fn __matmul__(&self, py: Python<'_>, other: Bound<'_, PyAny>) -> Answer<Py<PyAny>> {
            self.compose(py, other)
        }

        /// The outer function, applied last: a layout or a swizzle.
        #[getter]
        fn outer(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
            match self.0.outer() {
                Outer::Layout(layout) => PyLayout(layout.clone()).into_py_any(py),
                Outer::Swizzle(swizzle) => PySwizzle(*swizzle).into_py_any(py),
            }
        }

        /// The offset added between both.
        #[getter]
        fn offset(&self) -> i64 {
            self.0.offset()
        }

        /// The inner layout, applied first.
        #[getter]
        fn inner(&self) -> PyLayout {
            PyLayout(self.0.inner().clone())
        }

        /// `True` if it has a value at every index.
        #[getter]
        fn is_total(&self) -> bool {
            self.0.is_total()
        }

        /// The number of indices.
        #[getter]
        fn size(&self) -> i64 {
            self.0.size()
        }

        /// The extents, nested.
        #[getter]
        fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            to_python(py, &self.0.inner().shape())
        }

        /// The length of the interval of values.
        #[getter]
        fn cosize(&self, py: Python<'_>) -> Answer<i64> {
            Ok(py.detach(|| self.0.cosize())?)
        }

        /// The value at an index.
        fn at(&self, #[pyo3(from_py_with = number)] index: i64) -> Answer<i64> {
            Ok(self.0.at(index)?)
        }

        /// All values, of a composition that is small enough to list.
        fn values(&self, py: Python<'_>) -> Answer<Vec<i64>> {
            Ok(py.detach(|| self.0.values())?)
        }

        /// The equal layout, or `NotRepresentable` with the proof that there is none.
        fn to_layout(&self, py: Python<'_>) -> Answer<PyLayout> {
            Ok(PyLayout(py.detach(|| self.0.to_layout())?))
        }

        /// The first value, and the layout of the differences from it.
        #[allow(clippy::wrong_self_convention, reason = "the name in Rust")]
        fn from_first_value(&self, py: Python<'_>) -> Answer<(i64, PyLayout)> {
            let (first, layout) = py.detach(|| self.0.from_first_value())?;
            Ok((first, PyLayout(layout)))
        }

        /// The sum of this function and a number.
        fn plus(&self, #[pyo3(from_py_with = number)] number: i64) -> Answer<PyComposed> {
            Ok(PyComposed(self.0.plus(number)?))
        }

        /// The picture as SVG.
        fn svg(&self, py: Python<'_>) -> Answer<String> {
            Ok(py.detach(|| reshard_draw::composed(&self.0).map(|scene| scene.svg()))?)
        }

        fn _repr_svg_(&self, py: Python<'_>) -> Option<String> {
            (self.0.size() <= SHOWN_CELLS).then(|| self.svg(py).ok()).flatten()
        }
    }
    coalesce(; profile) = Coalesce "Returns the same function, with its inner layout coalesced."
    filter() = Filter "Removes modes of stride 0 and extent 1."
    filter_zeros() = FilterZeros "Sets the extent to 1 where the stride is 0."
    flatten() = Flatten "Returns all leaves as modes."
    reversed() = Reversed "Reverses the order of the modes."
    compose(other) = Composition "R(i) = self(other(i)); other may be a tiler."
    compose_extended(other) = CompositionExtended "The same, with the last leaf of the inner layout unbounded."
    complement(; bound) = Complement "Returns the layout that fills the gaps of self up to the bound."
    right_inverse() = RightInverse "self(R(i)) = i."
    left_inverse() = LeftInverse "R(self(i)) = i."
    logical_divide(tiler) = LogicalDivide "(tile, rest), by mode for a tiler."
    zipped_divide(tiler) = ZippedDivide "((tiles), (rests))."
    tiled_divide(tiler) = TiledDivide "((tiles), rest, ...)."
    flat_divide(tiler) = FlatDivide "(tile, ..., rest, ...)."
    logical_divide_extended(tiler) = LogicalDivideExtended "(tile, rest), with the last leaf of self unbounded."
    zipped_divide_extended(tiler) = ZippedDivideExtended "((tiles), (rests)), with the last leaf of self unbounded."
    tiled_divide_extended(tiler) = TiledDivideExtended "((tiles), rest, ...), with the last leaf of self unbounded."
    flat_divide_extended(tiler) = FlatDivideExtended "(tile, ..., rest, ...), with the last leaf of self unbounded."
    logical_product(tiler) = LogicalProduct "(self, copies of self after the tiler), by mode for a tiler."
    zipped_product(tiler) = ZippedProduct "((self), (copies))."
    tiled_product(tiler) = TiledProduct "((self), copies, ...)."
    flat_product(tiler) = FlatProduct "(self, ..., copies, ...)."
    local_tile(tiler, pattern) = LocalTile "Returns the tiles that the pattern leaves open (None), and their offset."
    local_partition(threads, thread) = LocalPartition "Returns the part of self that a thread has, and its offset."
    thread_partition(tile, threads) = ThreadPartition "self as ((thread, value), rests), by a (thread, value) layout of a tile."
    max_common_layout(other) = MaxCommonLayout "self(R(i)) = i = other(R(i))."
    max_common_vector(other) = MaxCommonVector "Returns the number of elements that one copy can transfer."
    slice(pattern) = Slice "Returns the modes that the pattern leaves open (None)."
    slice_and_offset(pattern) = SliceAndOffset "Returns the function of the open modes, and the value of the fixed ones."
    take(begin, end) = Take "Modes [begin, end)."
    append(mode; rank) = Append "Appends a mode, repeatedly up to the given rank."
    prepend(mode; rank) = Prepend "Prepends a mode, repeatedly up to the given rank."
    replace(k, mode) = Replace "Replaces mode k."
    group(begin, end) = Group "Groups modes [begin, end) into one mode."
    split(shape) = Split "Splits self into modes of these sizes."
    mode(k) = Mode "Returns mode k."
    upcast(width) = Upcast "Reinterprets the elements as `width` times wider."
    downcast(width) = Downcast "Reinterprets the elements as `width` times narrower."
    bank_ways(element, access) = BankWays "Returns the bank conflicts of accesses at self(i): the largest number of words in one of 32 banks."
    is_equivalent(other) = SameFunction "Returns `True` if self(i) = other(i) for all i, on the same domain."
    is_injective() = Injective "Returns True if different indices have different values; None if that is not known."
    is_surjective_onto(bound) = Surjective "Returns True if the values are exactly [0, bound)."
    is_disjoint(other) = Disjoint "Returns True if 0 is the only value of both; None if that is not known."
    is_compatible(other) = Compatible "Returns True if the shape of other refines that of self."
    is_congruent(other) = Congruent "Returns True if both have the same nesting."
}

/// An exclusive or of index bits, such as `Swizzle("Sw<3,4,3>")` or `Swizzle(3, 4, 3)`.
#[pyclass(frozen, eq, hash, name = "Swizzle", module = "reshard")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PySwizzle(pub(crate) Swizzle);

by_notation! { PySwizzle {
    #[new]
    #[pyo3(signature = (bits, base=0, shift=0))]
    fn new(bits: &Bound<'_, PyAny>, #[pyo3(from_py_with = number)] base: u8, #[pyo3(from_py_with = number)] shift: i8) -> Answer<PySwizzle> {
        if let Ok(text) = bits.extract::<String>() {
            return Ok(PySwizzle(text.parse()?));
        }
        Ok(PySwizzle(Swizzle::new(number(bits)?, base, shift)?))
    }

    /// The number of bits that change.
    #[getter]
    fn bits(&self) -> u8 {
        self.0.bits()
    }

    /// The lowest bit that changes.
    #[getter]
    fn base(&self) -> u8 {
        self.0.base()
    }

    /// The distance from the bits that change to the bits that they are combined with.
    #[getter]
    fn shift(&self) -> i8 {
        self.0.shift()
    }

    /// `True` if different indices have different values.
    #[getter]
    fn is_bijective(&self) -> bool {
        self.0.is_bijective()
    }

    /// The value at an index.
    fn __call__(&self, #[pyo3(from_py_with = number)] index: i64) -> Answer<i64> {
        Ok(self.0.at(index)?)
    }

    /// The swizzle that undoes this one, if one does.
    fn inverse(&self) -> Option<PySwizzle> {
        self.0.inverse().map(PySwizzle)
    }

    /// The swizzle that applies `first` and then this one, if there is one.
    fn after(&self, first: &PySwizzle) -> Option<PySwizzle> {
        self.0.after(first.0).map(PySwizzle)
    }

    /// R(i) = self(other(i)): a layout where it is one, else a composition.
    fn compose(&self, py: Python<'_>, other: Bound<'_, PyAny>) -> Answer<Py<PyAny>> {
        let function = Function::Composition;
        values::call(py, function, &values::arguments(function, vec![Value::Swizzle(self.0)], &[other])?)
    }

    fn __matmul__(&self, py: Python<'_>, other: Bound<'_, PyAny>) -> Answer<Py<PyAny>> {
        self.compose(py, other)
    }
} }

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyComposed>()?;
    module.add_class::<PySwizzle>()
}
