//! Random numbers that no mesh changes: an element is a function of a key and its index in the whole tensor.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use reshard_kernels::DType;
use reshard_kernels::random::{Draw, Generator, Key, definition, fill};
use reshard_sharding::Sharding;

use crate::arguments::ShapeArgument;
use crate::arrays;
use crate::dtype::DTypeArgument;
use crate::failure::{Answer, refused};
use crate::numbers::{number, number_if_any};
use crate::sequences::list_of;
use crate::sharding::PySharding;
use crate::texts::{text, words};
use crate::value::Reduced;

/// What random numbers are drawn by: `Key(0)` of a seed, or `Key("threefry2x32:00000000,0000002a")`.
///
/// A key is never used up: `split` and `fold_in` give others, of a step, of an op, of a layer.
#[pyclass(frozen, eq, hash, name = "Key", module = "reshard")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PyKey(Key);

/// What is drawn of, and of which part of it.
struct Part {
    draw: Draw,
    dtype: DType,
    shape: Vec<usize>,
    held: Option<(Sharding, usize)>,
}

impl Part {
    fn new(
        draw: Draw,
        dtype: DType,
        shape: Option<ShapeArgument>,
        sharding: Option<&PySharding>,
        rank: Option<usize>,
    ) -> Answer<Part> {
        let (shape, held) = match (shape.map(|shape| shape.0), sharding, rank) {
            (Some(shape), None, None) => (shape, None),
            (shape, Some(sharding), Some(rank)) => {
                let sharding = &sharding.0;
                if shape.as_ref().is_some_and(|shape| shape != sharding.shape()) {
                    let reason = format!(
                        "the shape {:?} is not that of the sharding, {:?}",
                        shape.unwrap_or_default(),
                        sharding.shape()
                    );
                    return Err(refused("usage", reason));
                }
                if sharding.is_partial() {
                    let reason = format!(
                        "ranks of `{sharding}` hold terms, and random numbers are of tensors: say R in place of P, or scatter them"
                    );
                    return Err(refused("partial", reason));
                }
                (sharding.shape().to_vec(), Some((sharding.clone(), rank)))
            }
            (_, Some(_), None) => {
                return Err(refused("usage", "a sharding needs a rank, whose elements are drawn: say rank="));
            }
            (_, None, Some(_)) => {
                return Err(refused(
                    "usage",
                    "a rank needs a sharding, which says what it holds: say sharding=",
                ));
            }
            (None, None, None) => {
                return Err(refused("usage", "a draw needs a shape, or a sharding and a rank"));
            }
        };
        Ok(Part { draw, dtype, shape, held })
    }
}

impl PyKey {
    fn drawn<'py>(&self, py: Python<'py>, part: &Part) -> Answer<Bound<'py, PyAny>> {
        let Part { draw, dtype, shape, held } = part;
        draw.check(*dtype)?;
        let (key, draw, dtype) = (&self.0, *draw, *dtype);
        let whole = [reshard_kernels::random::IndexRun {
            start: 0,
            len: shape.iter().map(|&n| n as u64).try_fold(1u64, u64::checked_mul).unwrap_or(u64::MAX),
            stride: 1,
        }];
        match held {
            None => {
                arrays::bytes_of(dtype, shape)?;
                arrays::made(py, dtype, shape, |bytes| Ok(fill(key, draw, dtype, bytes, shape, whole)?))
            }
            Some((sharding, rank)) => {
                let local = sharding.local_shape(*rank)?.to_vec();
                let region = sharding.region(*rank)?;
                arrays::made(py, dtype, &local, |bytes| {
                    Ok(fill(key, draw, dtype, bytes, shape, region.runs(shape)?)?)
                })
            }
        }
    }
}

/// The methods of a key: these, and one for each draw with its numbers. Their defaults stand in brackets, so that they reach the text
/// signature as they are written; PyO3 writes no negative ones, and a draw with one says its text.
macro_rules! key_with_draws {
    ({ $($base:tt)* } $($(#[$doc:meta])* $name:ident($($number:ident: $type:ty = [$($default:tt)+]),*) of $dtype:expr $(, as $text:literal)? => $draw:expr;)*) => {
        #[pymethods]
        impl PyKey {
            $($base)*
            $(
                $(#[$doc])*
                #[pyo3(signature = (shape=None, dtype=None, *, $($number=$($default)+,)* sharding=None, rank=None) $(, text_signature = $text)?)]
                #[allow(clippy::too_many_arguments, reason = "numbers of the draw, and of which part it is")]
                fn $name<'py>(
                    &self,
                    py: Python<'py>,
                    shape: Option<ShapeArgument>,
                    dtype: Option<DTypeArgument>,
                    $(#[pyo3(from_py_with = number)] $number: $type,)*
                    sharding: Option<&PySharding>,
                    #[pyo3(from_py_with = number_if_any)] rank: Option<usize>,
                ) -> Answer<Bound<'py, PyAny>> {
                    let dtype = dtype.map_or($dtype, |dtype| dtype.0);
                    self.drawn(py, &Part::new($draw, dtype, shape, sharding, rank)?)
                }
            )*
        }
    };
}

key_with_draws! {
    {
    #[new]
    #[pyo3(signature = (seed, generator="threefry"))]
    fn new(seed: &Bound<'_, PyAny>, #[pyo3(from_py_with = text)] generator: &str) -> Answer<PyKey> {
        if let Ok(text) = seed.cast::<PyString>() {
            return Ok(PyKey(words(text)?.parse()?));
        }
        if !seed.is_instance_of::<PyInt>() {
            return Err(PyTypeError::new_err("a key is of a seed, a whole number, or of its text").into());
        }
        let generator: Generator = generator.parse()?;
        Ok(PyKey(Key::with(generator, number(seed)?)))
    }

    fn __repr__(&self) -> String {
        format!("Key('{}')", self.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (String,)> {
        (py.get_type::<PyKey>(), (self.0.to_string(),))
    }

    /// Whose key it is: `threefry2x32` or `philox4x32-10`.
    #[getter]
    fn generator(&self) -> &'static str {
        self.0.generator().name()
    }

    /// So many keys, each different from the others: `fold_in(0)`, `fold_in(1)`, ..
    #[pyo3(signature = (n=2))]
    fn split(&self, #[pyo3(from_py_with = number)] n: u64) -> Answer<Vec<PyKey>> {
        list_of(n.try_into().unwrap_or(usize::MAX), || self.0.split(n).map(PyKey))
    }

    /// The key of a part of what this key is for, such as a step or an op: different numbers give different keys.
    fn fold_in(&self, #[pyo3(from_py_with = number)] data: u64) -> PyKey {
        PyKey(self.0.fold_in(data))
    }

    /// A draw by its text, such as `"normal(0,0.02)"`: of a whole tensor, or of what a rank of a sharding holds of it.
    #[pyo3(signature = (draw, shape=None, dtype=None, *, sharding=None, rank=None))]
    fn draw<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = text)] draw: &str,
        shape: Option<ShapeArgument>,
        dtype: Option<DTypeArgument>,
        sharding: Option<&PySharding>,
        #[pyo3(from_py_with = number_if_any)] rank: Option<usize>,
    ) -> Answer<Bound<'py, PyAny>> {
        let dtype = dtype.map_or(DType::F32, |dtype| dtype.0);
        self.drawn(py, &Part::new(draw.parse()?, dtype, shape, sharding, rank)?)
    }

    /// One element of a draw, by its row-major index in the whole tensor; as an array without dims.
    #[pyo3(signature = (draw, index, dtype=None))]
    fn element<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = text)] draw: &str,
        #[pyo3(from_py_with = number)] index: u64,
        dtype: Option<DTypeArgument>,
    ) -> Answer<Bound<'py, PyAny>> {
        let dtype = dtype.map_or(DType::F32, |dtype| dtype.0);
        let bytes = definition::element(&self.0, draw.parse()?, dtype, index)?;
        arrays::of(py, dtype, &[], &bytes)
    }
    }
    /// Random bits, of unsigned integers.
    bits() of DType::U32 => Draw::Bits;
    /// Evenly from `low` on, up to and without `high` but for rounding.
    uniform(low: f64 = [0.0], high: f64 = [1.0]) of DType::F32 => Draw::Uniform { low, high };
    /// The normal distribution.
    normal(mean: f64 = [0.0], std: f64 = [1.0]) of DType::F32 => Draw::Normal { mean, std };
    /// The standard normal distribution between `low` and `high`.
    truncated_normal(low: f64 = [-2.0], high: f64 = [2.0]) of DType::F32,
        as "($self, shape=None, dtype=None, *, low=-2.0, high=2.0, sharding=None, rank=None)" => Draw::TruncatedNormal { low, high };
    /// 1 with probability `p`, else 0.
    bernoulli(p: f64 = [0.5]) of DType::Bool => Draw::Bernoulli { p };
    /// Integers from `low` on and below `high`.
    randint(low: i64 = [0], high: i64 = [2]) of DType::I32 => Draw::RandInt { low: low.into(), high: high.into() };
    /// The exponential distribution of rate 1.
    exponential() of DType::F32 => Draw::Exponential;
    /// The standard Gumbel distribution.
    gumbel() of DType::F32 => Draw::Gumbel;
}

/// The draws with their standard numbers, as texts.
#[pyfunction]
fn draws() -> Vec<String> {
    Draw::STANDARD.iter().map(ToString::to_string).collect()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyKey>()?;
    module.add_function(wrap_pyfunction!(draws, module)?)
}
