//! Layouts of integers.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use reshard_layout::algebra::ThreadValueLayout;
use reshard_layout::{Banks, Layout};

use crate::arguments::{Ints, to_python};
use crate::failure::Answer;
use crate::json;
use crate::numbers::number;
use crate::operations::operations;
use crate::sequences::listed;
use crate::texts::{text, words};
use crate::values::known;

/// A function from indices to integers, `shape:stride`, such as `Layout("(4,2):(1,4)")`, `Layout((4, 2), (1, 4))` or, compact
/// with the leftmost fastest, `Layout((4, 2))`.
#[pyclass(frozen, eq, hash, name = "Layout", module = "reshard")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyLayout(pub(crate) Layout);

operations! {
    PyLayout {
        #[new]
        #[pyo3(signature = (shape, stride=None))]
        fn new(shape: &Bound<'_, PyAny>, stride: Option<Ints>) -> Answer<PyLayout> {
            match (stride, shape.cast::<PyString>()) {
                (None, Ok(text)) => Ok(PyLayout(words(text)?.parse::<Layout>()?)),
                (Some(stride), _) => Ok(PyLayout(Layout::new(shape.extract::<Ints>()?.0, stride.0)?)),
                (None, Err(_)) => Ok(PyLayout(Layout::column_major_of(&shape.extract::<Ints>()?.0)?)),
            }
        }

        /// The compact layout of a shape, leftmost fastest.
        #[staticmethod]
        fn column_major(shape: Ints) -> Answer<PyLayout> {
            Ok(PyLayout(Layout::column_major_of(&shape.0)?))
        }

        /// The compact layout of the reversed shape, so that the index runs over memory: `row_major((2, 4))` is `(4,2):(1,4)`.
        #[staticmethod]
        fn row_major(shape: Ints) -> Answer<PyLayout> {
            Ok(PyLayout(Layout::row_major_of(&shape.0)?))
        }

        /// The compact layout of a shape, the least of the order fastest.
        #[staticmethod]
        fn make_ordered(shape: Ints, order: Ints) -> Answer<PyLayout> {
            Ok(PyLayout(Layout::make_ordered(&shape.0, &order.0)?))
        }

        /// A layout of one mode.
        #[staticmethod]
        fn scalar(#[pyo3(from_py_with = number)] extent: i64, #[pyo3(from_py_with = number)] stride: i64) -> Answer<PyLayout> {
            Ok(PyLayout(Layout::scalar(extent, stride)?))
        }

        /// A layout of modes `(extent, stride)`.
        #[staticmethod]
        fn from_modes(#[pyo3(from_py_with = listed)] modes: Vec<(i64, i64)>) -> Answer<PyLayout> {
            Ok(PyLayout(Layout::from_modes(&modes)?))
        }

        /// The layout of one index, which is 0.
        #[staticmethod]
        fn unit() -> PyLayout {
            PyLayout(Layout::unit())
        }

        /// The indices of a domain for `count` workers, or the largest number of workers that divides.
        #[staticmethod]
        fn domain_distribute(shape: Ints, #[pyo3(from_py_with = number)] count: i64) -> Answer<PyLayout> {
            Ok(PyLayout(Layout::domain_distribute(&shape.0, count)?))
        }

        /// (thread, value) to the index in a tile: threads on a grid, each with a block of values.
        #[staticmethod]
        fn thread_values(threads: &PyLayout, values: &PyLayout) -> Answer<PyLayout> {
            Ok(PyLayout(ThreadValueLayout::of_grid(&threads.0, &values.0)?.layout().clone()))
        }

        /// The thread of every element of a tile, plus the number of threads for each value before, of this (thread, value) layout.
        fn thread_owners(&self, tile: Ints) -> Answer<PyLayout> {
            Ok(PyLayout(ThreadValueLayout::new(&tile.0, &self.0)?.owners()?))
        }

        /// Tiles of this (thread, value) layout, repeated over a grid of thread groups.
        fn on_grid(&self, tile: Ints, groups: &PyLayout) -> Answer<PyLayout> {
            Ok(PyLayout(ThreadValueLayout::new(&tile.0, &self.0)?.on_grid(&groups.0)?.layout().clone()))
        }

        fn __len__(&self) -> PyResult<usize> {
            Ok(usize::try_from(self.0.size())?)
        }

        /// The values in order of the index, one at a time.
        fn __iter__(&self) -> LayoutValues {
            LayoutValues { layout: self.0.clone(), next: 0.into() }
        }

        fn __matmul__(&self, py: Python<'_>, other: Bound<'_, PyAny>) -> Answer<Py<PyAny>> {
            self.compose(py, other)
        }

        /// The extents, nested.
        #[getter]
        fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            to_python(py, &self.0.shape())
        }

        /// The strides, nested like the shape.
        #[getter]
        fn stride<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            to_python(py, &self.0.stride())
        }

        /// The number of modes.
        #[getter]
        fn rank(&self) -> usize {
            self.0.rank()
        }

        /// The nesting depth of modes.
        #[getter]
        fn depth(&self) -> usize {
            self.0.depth()
        }

        /// The number of indices.
        #[getter]
        fn size(&self) -> i64 {
            self.0.size()
        }

        /// The length of the interval of values.
        #[getter]
        fn cosize(&self) -> i64 {
            self.0.cosize()
        }

        /// The least value.
        #[getter]
        fn min_value(&self) -> i64 {
            self.0.min_value()
        }

        /// The greatest value.
        #[getter]
        fn max_value(&self) -> i64 {
            self.0.max_value()
        }

        /// `True` if it is a single mode that is not a tuple.
        #[getter]
        fn is_scalar(&self) -> bool {
            self.0.is_scalar()
        }

        /// The modes.
        fn modes(&self) -> Vec<PyLayout> {
            self.0.modes().map(PyLayout).collect()
        }

        /// The leaves as pairs of an extent and a stride.
        fn leaves(&self) -> Vec<(i64, i64)> {
            self.0.leaves().collect()
        }

        /// The value at an index.
        fn at(&self, #[pyo3(from_py_with = number)] index: i64) -> Answer<i64> {
            Ok(self.0.at(index)?)
        }

        /// The value at an index, where the last leaf has no upper limit.
        fn at_extended(&self, #[pyo3(from_py_with = number)] index: i64) -> Answer<i64> {
            Ok(self.0.at_extended(index)?)
        }

        /// The coordinate of an index, nested like the shape.
        fn coordinates<'py>(&self, py: Python<'py>, #[pyo3(from_py_with = number)] index: i64) -> Answer<Bound<'py, PyAny>> {
            Ok(to_python(py, &self.0.coordinates(index)?)?)
        }

        /// The digits of a number in the system of this layout, nested like the shape.
        fn digits<'py>(&self, py: Python<'py>, #[pyo3(from_py_with = number)] number: i64) -> Answer<Bound<'py, PyAny>> {
            Ok(to_python(py, &self.0.digits(number)?)?)
        }

        /// `True` if the values are exactly [0, bound).
        fn is_surjective_onto(&self, py: Python<'_>, #[pyo3(from_py_with = number)] bound: i64) -> bool {
            py.detach(|| self.0.is_surjective_onto(bound))
        }

        /// `True` if different indices have different values; None if that is not known.
        fn is_injective(&self, py: Python<'_>) -> Option<bool> {
            known(py.detach(|| self.0.is_injective()))
        }

        /// A(k + B(i)) as A(k) and a layout.
        fn compose_from(&self, py: Python<'_>, #[pyo3(from_py_with = number)] offset: i64, inner: &PyLayout) -> Answer<(i64, PyLayout)> {
            let (start, modes) = py.detach(|| self.0.compose_from(offset, &inner.0))?;
            Ok((start, PyLayout(modes)))
        }

        /// The swizzle of rows of elements of `element` bytes that has no conflicts in 32 banks, or None.
        #[staticmethod]
        fn bank_swizzle(#[pyo3(from_py_with = number)] row: i64, #[pyo3(from_py_with = number)] element: i64, #[pyo3(from_py_with = number)] access: i64) -> Option<crate::composed_layout::PySwizzle> {
            Banks::SHARED.swizzle(row, element, access).map(crate::composed_layout::PySwizzle)
        }

        /// The picture as text: mode 0 runs down, mode 1 to the right.
        fn draw(&self, py: Python<'_>) -> Answer<String> {
            Ok(py.detach(|| reshard_draw::layout(&self.0).map(|scene| scene.text(false)))?)
        }

        /// The picture as SVG.
        fn svg(&self, py: Python<'_>) -> Answer<String> {
            Ok(py.detach(|| reshard_draw::layout(&self.0).map(|scene| scene.svg()))?)
        }

        fn _repr_svg_(&self, py: Python<'_>) -> Option<String> {
            (self.0.size() <= SHOWN_CELLS).then(|| self.svg(py).ok()).flatten()
        }

        /// The layout as JSON text.
        fn to_json(&self) -> Answer<String> {
            json::write(&self.0)
        }

        /// Reads the text of `to_json`.
        #[staticmethod]
        fn from_json(#[pyo3(from_py_with = text)] text: &str) -> Answer<PyLayout> {
            Ok(PyLayout(json::read(text)?))
        }
    }
    coalesce(; profile) = Coalesce "Returns the shortest layout of the same function, or that by profile."
    filter() = Filter "Removes modes of stride 0 and extent 1."
    filter_zeros() = FilterZeros "Sets the extent to 1 where the stride is 0."
    compose(other) = Composition "R(i) = self(other(i)); other may be a tiler."
    compose_extended(other) = CompositionExtended "R(i) = self(other(i)), with the last leaf of self unbounded."
    composed(offset, inner) = Composed "The function i -> self(offset + inner(i)), not simplified."
    complement(; bound) = Complement "Returns the layout that fills the gaps of self up to the bound, by default its cosize."
    tiles(bound) = Tiles "Returns True if self and its complement cover [0, bound) exactly."
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
    blocked_product(pattern) = BlockedProduct "Blocks of self side by side."
    raked_product(pattern) = RakedProduct "Copies of self interleaved."
    local_tile(tiler, pattern) = LocalTile "Returns the tiles that the pattern leaves open (None), and their offset."
    thread_partition(tile, threads) = ThreadPartition "self as ((thread, value), rests), by a (thread, value) layout of a tile."
    local_partition(threads, thread) = LocalPartition "Returns the part of self that a thread has, and its offset."
    tile_to_shape(shape; order) = TileToShape "A shape covered with copies of self."
    max_common_layout(other) = MaxCommonLayout "self(R(i)) = i = other(R(i))."
    max_common_vector(other) = MaxCommonVector "Returns the number of elements that one copy can transfer."
    slice(pattern) = Slice "Returns the modes that the pattern leaves open (None)."
    dice(pattern) = Dice "Returns the modes that the pattern fixes."
    slice_and_offset(pattern) = SliceAndOffset "Returns the function of the open modes, and the value of the fixed ones."
    take(begin, end) = Take "Modes [begin, end)."
    append(mode; rank) = Append "Appends a mode, repeatedly up to the given rank."
    prepend(mode; rank) = Prepend "Prepends a mode, repeatedly up to the given rank."
    replace(k, mode) = Replace "Replaces mode k."
    group(begin, end) = Group "Groups modes [begin, end) into one mode."
    split(shape) = Split "Splits self into modes of these sizes, each coalesced."
    zip(other) = Zip "Returns the layout of pairs (self(i), other(i))."
    flatten() = Flatten "Returns all leaves as modes."
    reversed() = Reversed "Reverses the order of the modes."
    upcast(width) = Upcast "Reinterprets the elements as `width` times wider."
    downcast(width) = Downcast "Reinterprets the elements as `width` times narrower."
    nullspace() = Nullspace "Returns the layout of the indices that modes of stride 0 map to 0."
    bank_ways(element, access) = BankWays "Returns the bank conflicts of accesses at self(i): the largest number of words in one of 32 banks."
    make_like() = MakeLayoutLike "Returns the compact layout with the mode order of self."
    mode(k) = Mode "Returns mode k."
    is_equivalent(other) = SameFunction "Returns `True` if self(i) = other(i) for all i, on the same domain."
    is_compact() = Compact "Returns True if self is a permutation of [0, size)."
    is_disjoint(other) = Disjoint "Returns True if 0 is the only value of both; None if that is not known."
    is_orthogonal() = Orthogonal "Returns True if the modes are radix-separable."
    is_compatible(other) = Compatible "Returns True if the shape of other refines that of self."
    is_weakly_compatible(other) = WeaklyCompatible "Returns True if the extents of self divide those of other there."
    is_softly_compatible(other) = SoftlyCompatible "Returns True if the extents of other divide those of self."
    is_congruent(other) = Congruent "Returns True if both have the same nesting."
    is_weakly_congruent(other) = WeaklyCongruent "Returns True if other is nested like self, or deeper."
}

/// The most cells that a notebook draws unasked.
pub(crate) const SHOWN_CELLS: i64 = 1024;

/// The values of a layout in order of the index.
#[pyclass(frozen, module = "reshard")]
struct LayoutValues {
    layout: Layout,
    next: std::sync::atomic::AtomicI64,
}

#[pymethods]
impl LayoutValues {
    fn __iter__(this: Py<LayoutValues>) -> Py<LayoutValues> {
        this
    }

    fn __next__(&self) -> Answer<Option<i64>> {
        let index = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok((index < self.layout.size()).then(|| self.layout.at(index)).transpose()?)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyLayout>()
}
