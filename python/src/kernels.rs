//! Ops as Python computes them: the calls of a rank, and the array functions that execute them.

use std::sync::Arc;

use ndarray::{ArrayD, IxDyn};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use reshard_kernels::DType;
use reshard_ops::rules::{Op, OpCall, OpTable, ShardRegion};
use reshard_program::Graph;
use reshard_program::schedule::{ArenaSlice, Kernels, LocalCall};
use reshard_reference::{Local, Number, run_local};
use reshard_sharding::Mesh;

use crate::arrays;
use crate::buffers;
use crate::call::{arguments, call};
use crate::dtype::{DTypeArgument, PyDType};
use crate::failure::{Answer, Failure, refused};
use crate::numbers::number;
use crate::sequences::{check_list, items, list_of, listed, listed_twice};
use crate::table::{PyTable, table_or_standard};
use crate::texts::text;

/// An operand of a call on one rank: its elements, and their region in the global tensor.
#[pyclass(frozen, name = "LocalTensor", module = "reshard")]
#[derive(Clone, Debug)]
pub(crate) struct PyLocalTensor {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// Its region in the global tensor; `None` if it is not known.
    region: Option<ShardRegion>,
}

#[pymethods]
impl PyLocalTensor {
    fn __repr__(&self) -> String {
        let shape: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        format!("<{}[{}]>", self.dtype, shape.join(","))
    }

    /// The type of the elements.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.dtype)
    }

    /// The shape of the shard.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The shape of the global tensor.
    #[getter]
    fn whole<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.region.as_ref().map_or(&self.shape, |region| &region.whole))
    }

    /// The global indices along a dim that are held, in local order.
    fn indices(&self, #[pyo3(from_py_with = number)] dim: usize) -> Answer<Vec<usize>> {
        let count = self.shape.get(dim).copied().unwrap_or_default();
        check_list(count)?;
        match &self.region {
            Some(region) => Ok(region.indices(dim)?),
            None => list_of(count, || 0..count),
        }
    }

    /// The type of elements as NumPy has it; None where it has none.
    #[getter]
    fn numpy_dtype<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        buffers::numpy_dtype(py, self.dtype)
    }
}

/// A call of an op on one rank, or on global tensors.
///
/// Its arguments refer to the global tensors: `view(shape=[4,6,8])` is the same call on every rank, and its
/// results have the shapes of `makes`.
#[pyclass(frozen, name = "LocalCall", module = "reshard")]
#[derive(Clone, Debug)]
pub(crate) struct PyLocalCall {
    call: OpCall,
    pub(crate) inputs: Vec<PyLocalTensor>,
    pub(crate) outputs: Vec<PyLocalTensor>,
    needs_region: bool,
    is_elementwise: bool,
    operations: f64,
    table: Arc<OpTable>,
}

impl PyLocalCall {
    /// Converts the call of a rank.
    pub(crate) fn of(call: &LocalCall, table: &Arc<OpTable>) -> PyLocalCall {
        let local = |tensor: &reshard_program::schedule::LocalTensor| PyLocalTensor {
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            region: tensor.region().ok(),
        };
        PyLocalCall {
            call: call.call.clone(),
            inputs: call.inputs.iter().map(local).collect(),
            outputs: call.outputs.iter().map(local).collect(),
            needs_region: call.needs_region,
            is_elementwise: call.is_elementwise,
            operations: call.operations,
            table: Arc::clone(table),
        }
    }

    /// Makes a call of global tensors, of these element types.
    pub(crate) fn whole(
        call: &OpCall,
        op: &Op,
        dtypes: (&[DType], &[DType]),
        table: &Arc<OpTable>,
    ) -> PyLocalCall {
        let tensors = |shapes: &[Vec<usize>], dtypes: &[DType]| {
            let tensor = |(shape, dtype): (&Vec<usize>, &DType)| PyLocalTensor {
                dtype: *dtype,
                shape: shape.clone(),
                region: Some(ShardRegion::whole(shape)),
            };
            shapes.iter().zip(dtypes).map(tensor).collect()
        };
        PyLocalCall {
            call: call.clone(),
            inputs: tensors(op.inputs(), dtypes.0),
            outputs: tensors(op.outputs(), dtypes.1),
            needs_region: false,
            is_elementwise: op.is_elementwise(),
            operations: op.operations(),
            table: Arc::clone(table),
        }
    }

    /// Calls the Python function on arrays, and checks its results.
    pub(crate) fn run<'py>(
        &self,
        runner: &Bound<'py, PyAny>,
        inputs: Vec<Bound<'py, PyAny>>,
    ) -> Answer<Vec<Bound<'py, PyAny>>> {
        let made = runner.call1((self.clone(), PyTuple::new(runner.py(), inputs)?))?;
        let made = items(&made)?.collect::<PyResult<Vec<_>>>()?;
        if made.len() != self.outputs.len() {
            let reason = format!(
                "`{}` has {} results, but its kernel returned {}",
                self.call,
                self.outputs.len(),
                made.len()
            );
            return Err(refused("input", reason));
        }
        let check = |(array, of): (Bound<'py, PyAny>, &PyLocalTensor)| {
            let name = format!("a result of `{}`", self.call);
            Ok(arrays::checked(&array, of.dtype, &of.shape, &name)?.unwrap_or(array))
        };
        made.into_iter().zip(&self.outputs).map(check).collect()
    }

    /// Runs the reference on numbers of one type.
    fn referred<T: Number + bytemuck::Pod>(
        &self,
        arrays: &[Bound<'_, PyAny>],
        as_type: DType,
    ) -> Answer<Vec<Vec<u8>>> {
        let mut inputs = Vec::with_capacity(arrays.len());
        for (array, of) in arrays.iter().zip(&self.inputs) {
            let bytes = arrays::read(array, as_type, &of.shape, &format!("an input of `{}`", self.call))?;
            let numbers = bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>).collect();
            let array = ArrayD::from_shape_vec(IxDyn(&of.shape), numbers);
            inputs.push(array.map_err(|error| refused("input", error.to_string()))?);
        }
        let places = |list: &[PyLocalTensor]| -> Answer<Vec<ShardRegion>> {
            let place =
                |of: &PyLocalTensor| of.region.clone().unwrap_or_else(|| ShardRegion::whole(&of.shape));
            Ok(list.iter().map(place).collect())
        };
        let (takes, makes) = (places(&self.inputs)?, places(&self.outputs)?);
        let local = Local { inputs: &inputs, places: takes.iter().collect(), wanted: makes.iter().collect() };
        let is_composite = self.call.name().is_some_and(|name| self.table.composite(name).is_some());
        let made = if is_composite {
            reshard_reference::run(&self.table, &self.call, &inputs)?
        } else {
            run_local(&self.table, &self.call, &local)?
        };
        Ok(made
            .iter()
            .map(|a| bytemuck::cast_slice(&a.iter().copied().collect::<Vec<T>>()).to_vec())
            .collect())
    }
}

#[pymethods]
impl PyLocalCall {
    fn __repr__(&self) -> String {
        let list =
            |all: &[PyLocalTensor]| all.iter().map(PyLocalTensor::__repr__).collect::<Vec<_>>().join(", ");
        format!("<{} {} -> {}>", self.call, list(&self.inputs), list(&self.outputs))
    }

    pub(crate) fn __str__(&self) -> String {
        self.call.to_string()
    }

    /// The name of the op; None of a rule.
    #[getter]
    fn name(&self) -> Option<&str> {
        match &self.call {
            OpCall::Named { name, .. } => Some(name),
            // A call on each slice is none of the op alone.
            OpCall::Rule(_) | OpCall::Each(_) => None,
        }
    }

    /// The rule that is called, such as `"mk,kn->mn"`; None of an op of the table.
    #[getter]
    fn rule(&self) -> Option<String> {
        match &self.call {
            OpCall::Rule(rule) => Some(rule.to_string()),
            OpCall::Named { .. } | OpCall::Each(_) => None,
        }
    }

    /// The arguments that are given, by name.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        arguments(py, &self.call)
    }

    /// The operands.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inputs.clone())
    }

    /// The results.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.outputs.clone())
    }

    /// `True` if its result depends on the region of its tensors.
    #[getter]
    fn needs_region(&self) -> bool {
        self.needs_region
    }

    /// `True` if it works element by element.
    #[getter]
    fn is_elementwise(&self) -> bool {
        self.is_elementwise
    }

    /// The number of operations of the rank that does most.
    #[getter]
    fn operations(&self) -> f64 {
        self.operations
    }

    /// The dims that an argument names, counted from the start; all of them where that is its default.
    fn dims(&self, #[pyo3(from_py_with = text)] key: &str) -> Answer<Vec<usize>> {
        let shapes: Vec<&[usize]> = self.inputs.iter().map(|of| of.shape.as_slice()).collect();
        Ok(self.table.request(&self.call, &shapes)?.dims(key)?)
    }

    /// The value of a numeric argument, given or by default; None if the op has none.
    fn number(&self, #[pyo3(from_py_with = text)] key: &str) -> Answer<Option<f64>> {
        let shapes: Vec<&[usize]> = self.inputs.iter().map(|of| of.shape.as_slice()).collect();
        let request = self.table.request(&self.call, &shapes)?;
        Ok(if request.has(key)? { Some(request.real(key)?) } else { None })
    }

    /// The value of a flag argument, given or by default.
    fn flag(&self, #[pyo3(from_py_with = text)] key: &str) -> Answer<bool> {
        let shapes: Vec<&[usize]> = self.inputs.iter().map(|of| of.shape.as_slice()).collect();
        Ok(self.table.request(&self.call, &shapes)?.flag(key)?)
    }

    /// Computes the call by the reference, in f64 (f32 if all tensors are f32).
    ///
    /// Short and slow, for every standard op.
    #[pyo3(signature = (*arrays))]
    fn reference<'py>(&self, py: Python<'py>, arrays: Vec<Bound<'py, PyAny>>) -> Answer<Bound<'py, PyTuple>> {
        if arrays.len() != self.inputs.len() {
            let reason =
                format!("{} takes {} tensors, but {} are given", self.call, self.inputs.len(), arrays.len());
            return Err(refused("input", reason));
        }
        let single = self.inputs.iter().chain(&self.outputs).all(|of| of.dtype == DType::F32);
        let as_type = if single { DType::F32 } else { DType::F64 };
        let made = if single {
            self.referred::<f32>(&arrays, as_type)?
        } else {
            self.referred::<f64>(&arrays, as_type)?
        };
        let mut results = Vec::with_capacity(made.len());
        for (bytes, of) in made.iter().zip(&self.outputs) {
            let wide = arrays::of(py, as_type, &of.shape, bytes)?;
            let dtype = buffers::numpy_dtype(py, of.dtype);
            results.push(match dtype {
                Some(dtype) => wide.call_method1("astype", (dtype,))?,
                None => wide,
            });
        }
        Ok(PyTuple::new(py, results)?)
    }
}

/// Returns the function `(call, arrays) -> arrays` that executes calls: by NumPy, or by these functions.
pub(crate) fn runner<'py>(
    py: Python<'py>,
    kernels: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("reshard._kernels")?.getattr("runner")?.call1((kernels,))
}

/// Kernels of one rank, each a function of Python.
pub(crate) struct PythonKernels<'a> {
    pub(crate) table: &'a Arc<OpTable>,
    pub(crate) runner: &'a Py<PyAny>,
    /// The arena as an array of bytes.
    pub(crate) memory: &'a Py<PyAny>,
    pub(crate) calls: Vec<PyLocalCall>,
}

impl Kernels for PythonKernels<'_> {
    type Buffer = [u8];
    type Error = Failure;

    fn prepare(&mut self, call: &LocalCall) -> Result<u32, Failure> {
        self.calls.push(PyLocalCall::of(call, self.table));
        Ok(self.calls.len() as u32 - 1)
    }

    fn run(&mut self, kernel: u32, args: &[ArenaSlice], arena: &mut [u8]) -> Result<(), Failure> {
        let Some(call) = self.calls.get(kernel as usize) else {
            return Err(refused("input", format!("there is no kernel {kernel}")));
        };
        let (takes, makes) = args.split_at(call.inputs.len());
        Python::attach(|py| {
            // Python accesses these bytes by an address that it holds, so the pointer's provenance must be
            // exposed.
            arena.as_mut_ptr().expose_provenance();
            let memory = self.memory.bind(py);
            let given = |(at, of): (&ArenaSlice, &PyLocalTensor)| {
                arrays::seen(memory, of.dtype, &of.shape, at.range(), &arena[at.range()])
            };
            let given = takes.iter().zip(&call.inputs).map(given).collect::<Answer<Vec<_>>>()?;
            let made = call.run(self.runner.bind(py), given)?;
            for ((array, of), at) in made.iter().zip(&call.outputs).zip(makes) {
                arrays::read_into(array, of.dtype, &of.shape, "a result", &mut arena[at.range()])?;
            }
            Ok(())
        })
    }
}

/// Makes a call on global tensors of these shapes and dtypes.
///
/// Its results have the dtypes that a program gives them.
#[pyfunction]
#[pyo3(signature = (op, shapes, dtypes, table=None, **arguments))]
fn local_call(
    #[pyo3(from_py_with = text)] op: &str,
    #[pyo3(from_py_with = listed_twice)] shapes: Vec<Vec<usize>>,
    #[pyo3(from_py_with = listed)] dtypes: Vec<DTypeArgument>,
    table: Option<&PyTable>,
    arguments: Option<&Bound<'_, PyDict>>,
) -> Answer<PyLocalCall> {
    let (call, table) = (call(op, arguments)?, table_or_standard(table));
    let mut graph = Graph::with_table(&Mesh::new([("x", 1)])?, Arc::clone(&table));
    let dtypes: Vec<DType> = dtypes.iter().map(|dtype| dtype.0).collect();
    let inputs = shapes.iter().zip(&dtypes).enumerate();
    let inputs = inputs.map(|(n, (shape, dtype))| graph.input(&format!("x{n}"), *dtype, shape, "R"));
    let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
    let made = graph.apply(&call, &inputs, &[])?;
    let made: Vec<DType> = made.iter().map(|v| graph.dtype(*v)).collect();
    let slices: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    Ok(PyLocalCall::whole(&call, &table.op(&call, &slices)?, (&dtypes, &made), &table))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyLocalTensor>()?;
    module.add_class::<PyLocalCall>()?;
    module.add_function(wrap_pyfunction!(local_call, module)?)
}
