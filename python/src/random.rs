//! Random numbers independent of the mesh: an element is a function of a key and its index in the global
//! tensor.

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

/// A key of random numbers: `Key(0)` of a seed, or `Key("threefry2x32:00000000,0000002a")`.
///
/// A key is never used up: `split` and `fold_in` derive others, for a step, an op or a layer.
#[pyclass(frozen, eq, hash, name = "Key", module = "reshard")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PyKey(Key);

/// A draw, and the part of the tensor that is drawn.
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
                        "the shape {:?} differs from that of the sharding, {:?}",
                        shape.unwrap_or_default(),
                        sharding.shape()
                    );
                    return Err(refused("usage", reason));
                }
                if sharding.is_partial() {
                    let reason = format!(
                        "random numbers need a sharding without partial values, not `{sharding}`; use `R` or `S(d)` in place of `P`"
                    );
                    return Err(refused("partial", reason));
                }
                (sharding.shape().to_vec(), Some((sharding.clone(), rank)))
            }
            (_, Some(_), None) => {
                return Err(refused("usage", "`sharding` needs `rank`, the rank whose elements are drawn"));
            }
            (_, None, Some(_)) => {
                return Err(refused("usage", "`rank` needs `sharding`, which determines its elements"));
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

/// The methods of a key: these, and one for each draw with its parameters.
///
/// Defaults are written in brackets, so that they appear in the text signature as they are; PyO3 writes no
/// negative defaults, so a draw with one gives its signature as a text.
macro_rules! key_with_draws {
    ({ $($base:tt)* } $($(#[$doc:meta])* $name:ident($($number:ident: $type:ty = [$($default:tt)+]),*) of $dtype:expr $(, as $text:literal)? => $draw:expr;)*) => {
        #[pymethods]
        impl PyKey {
            $($base)*
            $(
                $(#[$doc])*
                #[pyo3(signature = (shape=None, dtype=None, *, $($number=$($default)+,)* sharding=None, rank=None) $(, text_signature = $text)?)]
                #[allow(clippy::too_many_arguments, reason = "the numbers of the draw, and the shard")]
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
            return Err(PyTypeError::new_err("expected a seed, which is an int, or the text of a key").into());
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

    /// The generator of the key: `threefry2x32` or `philox4x32-10`.
    #[getter]
    fn generator(&self) -> &'static str {
        self.0.generator().name()
    }

    /// Derives `n` distinct keys: `fold_in(0)`, `fold_in(1)`, ..
    #[pyo3(signature = (n=2))]
    fn split(&self, #[pyo3(from_py_with = number)] n: u64) -> Answer<Vec<PyKey>> {
        list_of(n.try_into().unwrap_or(usize::MAX), || self.0.split(n).map(PyKey))
    }

    /// Derives the key of a step, an op or another part: different numbers give different keys.
    fn fold_in(&self, #[pyo3(from_py_with = number)] data: u64) -> PyKey {
        PyKey(self.0.fold_in(data))
    }

    /// Draws by text, such as `"normal(0,0.02)"`: a global tensor, or the shard of a rank of a sharding.
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

    /// One element of a draw, by its row-major index in the global tensor; as an array without dims.
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
    /// Uniform from `low` to `high`, which is excluded but for rounding.
    uniform(low: f64 = [0.0], high: f64 = [1.0]) of DType::F32 => Draw::Uniform { low, high };
    /// The normal distribution.
    normal(mean: f64 = [0.0], std: f64 = [1.0]) of DType::F32 => Draw::Normal { mean, std };
    /// The standard normal distribution between `low` and `high`.
    truncated_normal(low: f64 = [-2.0], high: f64 = [2.0]) of DType::F32,
        as "($self, shape=None, dtype=None, *, low=-2.0, high=2.0, sharding=None, rank=None)" => Draw::TruncatedNormal { low, high };
    /// 1 with probability `p`, else 0.
    bernoulli(p: f64 = [0.5]) of DType::Bool => Draw::Bernoulli { p };
    /// Integers from `low`, below `high`.
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
