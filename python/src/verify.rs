//! The verifier: checks the rule of an op that is a Python function.

use std::cell::RefCell;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use reshard_kernels::DType;
use reshard_ops::rules::{Op, Strategy};
use reshard_verify::{Data, LocalView, Tensor, Verifier};

use crate::arrays;
use crate::buffers;
use crate::failure::{Answer, refused};
use crate::numbers::number;
use crate::op::PyOp;
use crate::sequences::{items, listed, listed_twice};
use crate::texts::text;

/// Parses the kind of numbers of an input.
fn data(word: &str) -> Answer<Data> {
    let number = |name: &str| word.strip_prefix(name)?.strip_prefix(' ')?.parse::<usize>().ok();
    Ok(match word {
        "integers" => Data::Integers,
        "distinct" => Data::Distinct,
        "real" => Data::Real,
        "positive" => Data::Positive,
        _ => match (number("index"), number("mask")) {
            (Some(below), _) if below > 0 => Data::Index { below },
            (_, Some(ones)) if ones <= 100 => Data::Mask { ones },
            _ => {
                let reason = format!(
                    "unknown data {word:?}; expected one of: integers, distinct, real, positive, index N, mask PERCENT"
                );
                return Err(refused("usage", reason));
            }
        },
    })
}

/// An op to run: a function of f64 arrays, and properties: `Verifier("relu", lambda x: np.maximum(x, 0))`.
///
/// `data` is the kind of numbers of each input: `integers`, `distinct`, `real`, `positive`, `index N` or
/// `mask PERCENT`. With `places=True` the function gets two more arguments: for each input, and for each
/// output, the global indices along every dim of the rank's shard.
#[pyclass(frozen, name = "Verifier", module = "reshard")]
#[allow(clippy::struct_excessive_bools, reason = "each is a separate property of the op")]
pub(crate) struct PyVerifier {
    name: String,
    kernel: Py<PyAny>,
    data: Vec<String>,
    tolerance: f64,
    near_replicas: bool,
    constant: bool,
    idle_inputs: bool,
    places: bool,
    budget: usize,
    sets: usize,
    seed: u64,
}

/// The extent of a verification, and correct strategies that follow from no declared one.
#[pyclass(frozen, get_all, name = "Verdict", module = "reshard")]
pub(crate) struct PyVerdict {
    /// The number of runs of declared strategies that were compared.
    checks: usize,
    /// Correct strategies that follow from no declared one.
    missing: Vec<String>,
    /// The number of combinations of inputs that were searched, and that of all.
    searched: (usize, usize),
}

#[pymethods]
impl PyVerdict {
    fn __repr__(&self) -> String {
        format!("<Verdict: {} checks, {} missing>", self.checks, self.missing.len())
    }
}

impl PyVerifier {
    /// Calls the function on the shards of one rank.
    fn run(&self, py: Python<'_>, local: &LocalView<'_>) -> Answer<Vec<Tensor>> {
        let array =
            |tensor: &&Tensor| arrays::of(py, DType::F64, &tensor.shape, bytemuck::cast_slice(&tensor.data));
        let mut arguments = local.inputs.iter().map(array).collect::<Answer<Vec<_>>>()?;
        if self.places {
            for places in [&local.input_regions, &local.output_regions] {
                let mut all = Vec::with_capacity(places.len());
                for place in places {
                    let dims = (0..place.whole.len()).map(|dim| place.indices(dim));
                    all.push(dims.collect::<Result<Vec<_>, _>>()?);
                }
                arguments.push(PyTuple::new(py, all)?.into_any());
            }
        }
        let made = self.kernel.bind(py).call1(PyTuple::new(py, arguments)?)?;
        let made = match made.cast::<PyTuple>() {
            Ok(several) => several.iter().collect(),
            Err(_) => vec![made],
        };
        let read = |array: &Bound<'_, PyAny>| -> Answer<Tensor> {
            let array = match arrays::numpy(py) {
                Some(numpy) => numpy.call_method1("asarray", (buffers::numbers(array, "a result")?, "f8"))?,
                None => array.clone(),
            };
            let shape: Vec<usize> = listed(&array.getattr("shape")?)?;
            let bytes = arrays::read(&array, DType::F64, &shape, "a result")?;
            Ok(Tensor::new(&shape, bytes.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect()))
        };
        made.iter().map(read).collect()
    }

    /// Calls the library with a verifier of this function.
    fn ask<T>(&self, py: Python<'_>, ask: impl FnOnce(&Verifier<'_>) -> Answer<T>) -> Answer<T> {
        // An error that is not an `Exception`, such as a Ctrl-C, is not a result of the op: skip later runs,
        // and raise it.
        let ended: RefCell<Option<PyErr>> = RefCell::default();
        let run = |local: &LocalView<'_>| {
            if ended.borrow().is_some() {
                return Err("not run".to_owned());
            }
            self.run(py, local).map_err(|failure| {
                let error = PyErr::from(failure);
                let said = error.value(py).to_string();
                if !error.is_instance_of::<PyException>(py) {
                    *ended.borrow_mut() = Some(error);
                }
                said
            })
        };
        let data = self.data.iter().map(|word| data(word)).collect::<Answer<Vec<_>>>()?;
        let mut verifier = Verifier::new(&self.name, run)
            .data(&data)
            .tolerance(self.tolerance)
            .budget(self.budget)
            .sets(self.sets)
            .seed(self.seed);
        if self.near_replicas {
            verifier = verifier.near_replicas();
        }
        if self.constant {
            verifier = verifier.constant();
        }
        if self.idle_inputs {
            verifier = verifier.idle_inputs();
        }
        if self.places {
            verifier = verifier.wants_outputs();
        }
        let answer = ask(&verifier);
        match ended.take() {
            Some(error) => Err(error.into()),
            None => answer,
        }
    }
}

/// Reads one op or several.
fn ops(ops: &Bound<'_, PyAny>) -> Answer<Vec<Op>> {
    if let Ok(op) = ops.cast::<PyOp>() {
        return Ok(vec![op.get().op.clone()]);
    }
    let all = items(ops)?.map(|op| Ok(op?.cast::<PyOp>().map_err(PyErr::from)?.get().op.clone()));
    Ok(all.collect::<PyResult<_>>()?)
}

#[pymethods]
impl PyVerifier {
    #[new]
    #[pyo3(signature = (name, kernel, *, data=vec![], tolerance=0.0, near_replicas=false, constant=false, idle_inputs=false, places=false, budget=4096, sets=6, seed=1))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "keywords of Python")]
    fn new(
        #[pyo3(from_py_with = text)] name: String,
        kernel: Py<PyAny>,
        #[pyo3(from_py_with = listed)] data: Vec<String>,
        #[pyo3(from_py_with = number)] tolerance: f64,
        near_replicas: bool,
        constant: bool,
        idle_inputs: bool,
        places: bool,
        #[pyo3(from_py_with = number)] budget: usize,
        #[pyo3(from_py_with = number)] sets: usize,
        #[pyo3(from_py_with = number)] seed: u64,
    ) -> Answer<PyVerifier> {
        data.iter().try_for_each(|word| self::data(word).map(|_| ()))?;
        let most = Verifier::MOST_SETS;
        if !(1..=most).contains(&sets) {
            return Err(refused("usage", format!("`sets` must be 1 to {most}, not {sets}")));
        }
        Ok(PyVerifier {
            name,
            kernel,
            data,
            tolerance,
            near_replicas,
            constant,
            idle_inputs,
            places,
            budget,
            sets,
            seed,
        })
    }

    fn __repr__(&self) -> String {
        format!("<Verifier of {}>", self.name)
    }

    /// Checks every declared strategy of these calls of one op, and searches for others.
    ///
    /// The error for the first strategy that is wrong names ranks, shapes and the first element that differs.
    fn verify(&self, py: Python<'_>, ops: &Bound<'_, PyAny>) -> Answer<PyVerdict> {
        let ops = self::ops(ops)?;
        let verdict = self.ask(py, |verifier| Ok(verifier.verify(&ops)?))?;
        Ok(PyVerdict {
            checks: verdict.checks,
            missing: verdict.missing.iter().map(ToString::to_string).collect(),
            searched: verdict.searched,
        })
    }

    /// The strategies of these calls that fail on some input.
    fn failing(&self, py: Python<'_>, ops: &Bound<'_, PyAny>) -> Answer<Vec<String>> {
        let ops = self::ops(ops)?;
        let failing = self.ask(py, |verifier| Ok(verifier.failing(&ops)?))?;
        Ok(failing.iter().map(Strategy::to_string).collect())
    }

    /// Every strategy that holds on calls with these shapes of inputs and outputs, and follows from no other.
    #[allow(clippy::type_complexity, reason = "shapes of inputs and outputs of each call")]
    fn discover(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = listed)] calls: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
    ) -> Answer<Vec<String>> {
        let calls = (calls.iter())
            .map(|(i, o)| Ok((listed_twice(i)?, listed_twice(o)?)))
            .collect::<PyResult<Vec<(Vec<Vec<usize>>, Vec<Vec<usize>>)>>>()?;
        let borrowed: Vec<(Vec<&[usize]>, Vec<&[usize]>)> = (calls.iter())
            .map(|(i, o)| (i.iter().map(Vec::as_slice).collect(), o.iter().map(Vec::as_slice).collect()))
            .collect();
        let calls: Vec<(&[&[usize]], &[&[usize]])> =
            borrowed.iter().map(|(i, o)| (i.as_slice(), o.as_slice())).collect();
        let found = self.ask(py, |verifier| Ok(verifier.discover(&calls)?))?;
        Ok(found.found.iter().map(ToString::to_string).collect())
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyVerdict>()?;
    module.add_class::<PyVerifier>()
}
