//! The table of ops: names, rules, and custom ops.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use reshard_ops::rules::{OpDtypes, OpTable, Parameters, Rule};

use crate::call::call;
use crate::failure::Answer;
use crate::sequences::listed_twice;
use crate::texts::text;

/// Returns the standard ops, built once.
pub(crate) fn standard() -> Arc<OpTable> {
    static STANDARD: OnceLock<Arc<OpTable>> = OnceLock::new();
    Arc::clone(STANDARD.get_or_init(|| Arc::new(OpTable::standard())))
}

/// Ops by name: `Table()` has the standard ones, `Table.empty()` none.
///
/// Ops that are added affect only objects that are made of the table afterwards.
#[pyclass(frozen, name = "OpTable", module = "reshard")]
#[derive(Debug)]
pub(crate) struct PyTable(Mutex<Arc<OpTable>>);

impl PyTable {
    pub(crate) fn get_table(&self) -> Arc<OpTable> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut OpTable) -> T) -> T {
        change(Arc::make_mut(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// The table that is given, or the standard one.
pub(crate) fn table_or_standard(table: Option<&PyTable>) -> Arc<OpTable> {
    table.map_or_else(standard, PyTable::get_table)
}

#[pymethods]
impl PyTable {
    #[new]
    fn new() -> PyTable {
        PyTable(Mutex::new(standard()))
    }

    /// The standard ops.
    #[staticmethod]
    fn standard() -> PyTable {
        PyTable::new()
    }

    /// A table without ops.
    #[staticmethod]
    fn empty() -> PyTable {
        PyTable(Mutex::new(Arc::new(OpTable::empty())))
    }

    fn __repr__(&self) -> String {
        format!("<OpTable of {} ops>", self.__len__())
    }

    fn __len__(&self) -> usize {
        self.get_table().names().count()
    }

    fn __contains__(&self, #[pyo3(from_py_with = text)] name: &str) -> bool {
        self.get_table().parameters(name).is_some()
    }

    /// The names, in order.
    #[getter]
    fn names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let table = self.get_table();
        PyTuple::new(py, table.names().collect::<Vec<_>>())
    }

    /// The arguments that an op takes, by name, each with its type and default as text; None if there is no such op.
    fn parameters<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = text)] name: &str,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let table = self.get_table();
        let Some(parameters) = table.parameters(name) else { return Ok(None) };
        let all = PyDict::new(py);
        for parameter in parameters.iter() {
            let text = parameter.to_string();
            let declared = text.split_once(':').map_or(text.as_str(), |(_, kind)| kind.trim());
            all.set_item(parameter.name(), declared)?;
        }
        Ok(Some(all))
    }

    /// The element types of an op's operands and results, such as `"any, integer -> same(0)"`.
    ///
    /// None for an op that states none, whose results have the type of its first real operand, or else of its first one.
    fn dtypes(&self, #[pyo3(from_py_with = text)] name: &str) -> Option<String> {
        self.get_table().dtypes(name).map(ToString::to_string)
    }

    /// The rule of an op that has one for all shapes and arguments; None for others, whose rule an `Op` has.
    fn rule(&self, #[pyo3(from_py_with = text)] name: &str) -> Option<String> {
        self.get_table().rule(name).map(|rule| rule.to_string())
    }

    /// The body of an op that is composed of others; None for other ops.
    fn composite(&self, #[pyo3(from_py_with = text)] name: &str) -> Option<String> {
        self.get_table().composite(name).map(ToString::to_string)
    }

    /// Adds an op by its rule, such as `"bsh,bsh->bsh {multilinear}"`, and its parameters, such as `"width: real >= 0 = 1.5"`.
    ///
    /// `dtypes` are the element types of its operands and results, such as `"float, like(0) -> bool"`.
    #[pyo3(signature = (name, rule, parameters="", dtypes=""))]
    fn add(
        &self,
        #[pyo3(from_py_with = text)] name: &str,
        #[pyo3(from_py_with = text)] rule: &str,
        #[pyo3(from_py_with = text)] parameters: &str,
        #[pyo3(from_py_with = text)] dtypes: &str,
    ) -> Answer<()> {
        let rule: Rule = rule.parse()?;
        let dtypes: Option<OpDtypes> = if dtypes.is_empty() { None } else { Some(dtypes.parse()?) };
        let parameters: Parameters =
            if parameters.is_empty() { Parameters::default() } else { parameters.parse()? };
        Ok(self.change(|table| {
            table.add_with(name, parameters, rule);
            dtypes.map_or(Ok(()), |dtypes| table.set_dtypes(name, dtypes))
        })?)
    }

    /// Adds an op that is composed of others, such as `"x, up, down -> y: h = mm(x, up).
    ///
    /// A = gelu(h); y = mm(a, down)"`.
    fn add_composite(
        &self,
        #[pyo3(from_py_with = text)] name: &str,
        #[pyo3(from_py_with = text)] body: &str,
    ) -> Answer<()> {
        let body = body.parse()?;
        Ok(self.change(|table| table.add_composite(name, body))?)
    }

    /// `True` if an op has an explicit gradient formula.
    ///
    /// Einsums, composites and ops that only rearrange elements need none.
    fn has_gradient(&self, #[pyo3(from_py_with = text)] name: &str) -> bool {
        self.get_table().has_gradient(name)
    }

    /// The formula of the gradient of a call on inputs of these shapes, a line for each call of an op.
    #[pyo3(signature = (op, shapes, **arguments))]
    fn gradient(
        &self,
        #[pyo3(from_py_with = text)] op: &str,
        #[pyo3(from_py_with = listed_twice)] shapes: Vec<Vec<usize>>,
        arguments: Option<&Bound<'_, PyDict>>,
    ) -> Answer<Vec<String>> {
        let call = call(op, arguments)?;
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        Ok(self.get_table().gradient(&call, &shapes)?.lines())
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTable>()
}
