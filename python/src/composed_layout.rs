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
        /// A composition from its notation, or from what is applied last, an offset, and what is applied first.
        #[new]
        #[pyo3(signature = (outer, offset=0, inner=None))]
        fn new(outer: &Bound<'_, PyAny>, #[pyo3(from_py_with = number)] offset: i64, inner: Option<&PyLayout>) -> Answer<PyComposed> {
            let Some(inner) = inner else {
                return Ok(PyComposed(outer.extract::<String>()?.parse::<ComposedLayout>()?));
            };
            let given = values::value(outer)?;
            let outer = given.to_outer().ok_or_else(|| {
                refused("parse", format!("expected a layout or a swizzle to apply last, found {given}"))
            })?;
            Ok(PyComposed(ComposedLayout::partial(outer, offset, inner.0.clone())))
        }

        fn __len__(&self) -> PyResult<usize> {
            Ok(usize::try_from(self.0.size())?)
        }

        fn __matmul__(&self, py: Python<'_>, other: Bound<'_, PyAny>) -> Answer<Py<PyAny>> {
            self.compose(py, other)
        }

        /// What is applied last: a layout or a swizzle.
        #[getter]
        fn outer(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
            match self.0.outer() {
                Outer::Layout(layout) => PyLayout(layout.clone()).into_py_any(py),
                Outer::Swizzle(swizzle) => PySwizzle(*swizzle).into_py_any(py),
            }
        }

        /// What is added between.
        #[getter]
        fn offset(&self) -> i64 {
            self.0.offset()
        }

        /// What is applied first.
        #[getter]
        fn inner(&self) -> PyLayout {
            PyLayout(self.0.inner().clone())
        }

        /// Whether it has a value at every index.
        #[getter]
        fn is_total(&self) -> bool {
            self.0.is_total()
        }

        /// How many indices it has.
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

        /// The layout that it is, or `NotRepresentable` with the proof that it is none.
        fn to_layout(&self, py: Python<'_>) -> Answer<PyLayout> {
            Ok(PyLayout(py.detach(|| self.0.to_layout())?))
        }

        /// The first value, and the layout of the differences from it.
        #[allow(clippy::wrong_self_convention, reason = "the name that it has in Rust")]
        fn from_first_value(&self, py: Python<'_>) -> Answer<(i64, PyLayout)> {
            let (first, layout) = py.detach(|| self.0.from_first_value())?;
            Ok((first, PyLayout(layout)))
        }

        /// This function and a number.
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
    coalesce(; profile) = Coalesce "The same function, its inner layout coalesced."
    filter() = Filter "Without modes of stride 0 and extent 1."
    filter_zeros() = FilterZeros "With extent 1 where the stride is 0."
    flatten() = Flatten "All leaves as modes."
    reversed() = Reversed "The modes from right to left."
    compose(other) = Composition "R(i) = self(other(i)); other may be a tiler."
    compose_extended(other) = CompositionExtended "The same, with the last leaf of the inner layout unbounded."
    complement(; bound) = Complement "What fills the gaps of self up to the bound."
    right_inverse() = RightInverse "self(R(i)) = i."
    left_inverse() = LeftInverse "R(self(i)) = i."
    logical_divide(tiler) = LogicalDivide "(tile, rest), by mode for a tiler."
    zipped_divide(tiler) = ZippedDivide "((tiles), (rests))."
    tiled_divide(tiler) = TiledDivide "((tiles), rest, ...)."
    flat_divide(tiler) = FlatDivide "(tile, ..., rest, ...)."
    logical_divide_extended(tiler) = LogicalDivideExtended "(tile, rest) with the last leaf of what is divided unbounded."
    zipped_divide_extended(tiler) = ZippedDivideExtended "((tiles), (rests)) of that."
    tiled_divide_extended(tiler) = TiledDivideExtended "((tiles), rest, ...) of that."
    flat_divide_extended(tiler) = FlatDivideExtended "(tile, ..., rest, ...) of that."
    logical_product(tiler) = LogicalProduct "(self, copies of self after the tiler), by mode for a tiler."
    zipped_product(tiler) = ZippedProduct "((self), (copies))."
    tiled_product(tiler) = TiledProduct "((self), copies, ...)."
    flat_product(tiler) = FlatProduct "(self, ..., copies, ...)."
    local_tile(tiler, pattern) = LocalTile "The tiles that the pattern leaves open (None), from where they begin on."
    local_partition(threads, thread) = LocalPartition "What a thread has of self, from where it begins on."
    thread_partition(tile, threads) = ThreadPartition "self as ((thread, value), rests), by a (thread, value) layout of a tile."
    max_common_layout(other) = MaxCommonLayout "self(R(i)) = i = other(R(i))."
    max_common_vector(other) = MaxCommonVector "How many elements can move at once."
    slice(pattern) = Slice "The modes that the pattern leaves open (None)."
    slice_and_offset(pattern) = SliceAndOffset "The function of the open modes, with the value of the fixed ones."
    take(begin, end) = Take "Modes [begin, end)."
    append(mode; rank) = Append "The modes and another, or as many of it as make so many modes."
    prepend(mode; rank) = Prepend "Another mode and the modes, or as many of it as make so many modes."
    replace(k, mode) = Replace "Another mode in place of mode k."
    group(begin, end) = Group "Modes [begin, end) as one mode."
    split(shape) = Split "self cut into modes of these sizes."
    mode(k) = Mode "Mode k."
    upcast(width) = Upcast "Elements so many times as wide."
    downcast(width) = Downcast "Elements so many times as narrow."
    bank_ways(element, access) = BankWays "Accesses at self(i) of elements of so many bytes: the most words of one of 32 banks."
    same_function(other) = SameFunction "Whether self(i) = other(i) for all i, on the same domain."
    is_injective() = Injective "Whether different indices have different values; None where that is not known."
    is_surjective_onto(bound) = Surjective "Whether the values are exactly [0, bound)."
    is_disjoint(other) = Disjoint "Whether 0 is the only value of both; None where that is not known."
    is_compatible(other) = Compatible "Whether the shape of other refines that of self."
    is_congruent(other) = Congruent "Whether both are nested alike."
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

    /// How many bits change.
    #[getter]
    fn bits(&self) -> u8 {
        self.0.bits()
    }

    /// The lowest bit that changes.
    #[getter]
    fn base(&self) -> u8 {
        self.0.base()
    }

    /// How far the bits that they are combined with are from them.
    #[getter]
    fn shift(&self) -> i8 {
        self.0.shift()
    }

    /// Whether different indices have different values.
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

    /// This one after another one, if both together are one.
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
