//! Schedules: the program of one rank, as a list without types.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use reshard_ops::rules::OpTable;
use reshard_program::schedule::{
    Activity, CompileOptions, Event, Instruction, Schedule, Timeline, TraceOperand,
};
use reshard_program::{ComputeRates, Program, Statement};

use crate::dtype::PyDType;
use crate::failure::Answer;
use crate::kernels::PyLocalCall;
use crate::plan::PyPlan;
use crate::rates::PyRates;
use crate::sequences::listed;

/// Options of compilation, as Python passes them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScheduleOptions<'a> {
    pub(crate) liveness: bool,
    pub(crate) in_flight_bytes: u64,
    pub(crate) bucket_bytes: u64,
    pub(crate) order: &'a str,
}

impl ScheduleOptions<'_> {
    pub(crate) fn read(self) -> Answer<CompileOptions> {
        let ScheduleOptions { liveness, in_flight_bytes, bucket_bytes, order } = self;
        Ok(CompileOptions { liveness, in_flight_bytes, bucket_bytes, order: order.parse()? })
    }
}

/// The program of one rank: kernels to call, and exchanges to post and to wait for, on offsets of one arena.
#[pyclass(frozen, name = "Schedule", module = "reshard")]
pub(crate) struct PySchedule {
    pub(crate) schedule: Schedule,
    pub(crate) table: Arc<OpTable>,
    /// The program that was compiled.
    ///
    /// Redistributions in another communication dtype are conversions and a redistribution.
    pub(crate) program: Arc<Program>,
}

/// An instruction: it calls a kernel, or begins or ends an exchange, on values by their names.
#[pyclass(frozen, get_all, name = "Instruction", module = "reshard")]
pub(crate) struct PyInstr {
    /// `call`, `post` or `wait`.
    kind: &'static str,
    /// The call; None for an exchange.
    call: Option<PyLocalCall>,
    /// The operands of a call, or the values that are redistributed.
    inputs: Vec<String>,
    /// The results of a call or of redistributions.
    outputs: Vec<String>,
    /// The plans of the redistributions, one each; empty for a call.
    plans: Vec<PyPlan>,
}

#[pymethods]
impl PyInstr {
    fn __repr__(&self) -> String {
        let (inputs, outputs) = (self.inputs.join(", "), self.outputs.join(", "));
        match &self.call {
            Some(call) => format!("<{outputs} = {}({inputs})>", call.__str__()),
            None => format!("<{} {outputs} = {inputs}>", self.kind),
        }
    }
}

/// A buffer of a rank: a value, and its offset in the arena.
#[pyclass(frozen, get_all, name = "LocalBuffer", module = "reshard")]
pub(crate) struct PyLocalValue {
    /// The name of the value in the program.
    name: String,
    /// The type of its elements.
    dtype: PyDType,
    /// The shape of the shard.
    shape: Vec<usize>,
    /// The first byte in the arena.
    offset: usize,
    /// The number of bytes.
    bytes: usize,
    /// `True` if it is an input.
    is_input: bool,
    /// `True` if it is live at the end.
    is_live_out: bool,
}

#[pymethods]
impl PyLocalValue {
    fn __repr__(&self) -> String {
        format!("<{} {}{:?} at {}>", self.name, self.dtype.0, self.shape, self.offset)
    }
}

/// An event on a rank: `kind` is `call`, or that of an exchange, such as `all_gather`.
#[pyclass(frozen, get_all, name = "Event", module = "reshard")]
pub(crate) struct PyEvent {
    /// `call`, or the kind of operation of an exchange.
    kind: String,
    /// The call as text; None for an exchange.
    call: Option<String>,
    /// The operands: names, element types and local shapes; names alone for an exchange.
    inputs: Vec<(String, Option<PyDType>, Vec<usize>)>,
    /// The results, in the same form.
    outputs: Vec<(String, Option<PyDType>, Vec<usize>)>,
    /// The axes or meshes of an exchange; None for a call.
    over: Option<String>,
    /// The ranks that take part in an exchange; empty for a call.
    members: Vec<usize>,
    /// The bytes that this rank receives.
    received_bytes: u64,
}

#[pymethods]
impl PyEvent {
    fn __repr__(&self) -> String {
        let names = |all: &[(String, Option<PyDType>, Vec<usize>)]| {
            all.iter().map(|(name, _, _)| name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let (inputs, outputs) = (names(&self.inputs), names(&self.outputs));
        match (&self.call, &self.over) {
            (Some(call), _) => format!("<{outputs} = {call}({inputs})>"),
            (None, over) => {
                let over = over.as_deref().unwrap_or_default();
                format!("<{} over {over}: {inputs} -> {outputs}, {} bytes>", self.kind, self.received_bytes)
            }
        }
    }
}

impl PyEvent {
    fn of(event: Event) -> PyEvent {
        let operand = |o: TraceOperand| (o.name, Some(PyDType(o.dtype)), o.shape);
        match event {
            Event::Call { call, takes, makes } => PyEvent {
                kind: "call".to_owned(),
                call: Some(call.to_string()),
                inputs: takes.into_iter().map(operand).collect(),
                outputs: makes.into_iter().map(operand).collect(),
                over: None,
                members: Vec::new(),
                received_bytes: 0,
            },
            Event::Exchange { op, over, members, values, received_bytes } => {
                let name = |name: String| (name, None, Vec::new());
                let (takes, makes): (Vec<String>, Vec<String>) = values.into_iter().unzip();
                PyEvent {
                    kind: op.to_string(),
                    call: None,
                    inputs: takes.into_iter().map(name).collect(),
                    outputs: makes.into_iter().map(name).collect(),
                    over: Some(over.to_string()),
                    members,
                    received_bytes,
                }
            }
        }
    }

    pub(crate) fn all(py: Python<'_>, events: Vec<Event>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, events.into_iter().map(PyEvent::of).collect::<Vec<_>>())
    }
}

#[pymethods]
impl PySchedule {
    fn __repr__(&self) -> String {
        let (rank, instrs) = (self.schedule.rank(), self.schedule.instructions().len());
        format!("<Schedule of rank {rank}: {instrs} instructions, {} bytes>", self.schedule.arena_bytes())
    }

    fn __str__(&self) -> String {
        self.schedule.to_string()
    }

    /// The rank that this is for.
    #[getter]
    fn rank(&self) -> usize {
        self.schedule.rank()
    }

    /// The instructions in order, one text each.
    #[getter]
    fn instructions(&self) -> Vec<String> {
        self.schedule.to_string().lines().skip(1).map(str::to_owned).collect()
    }

    /// The instructions as values, for a caller that executes them itself.
    #[getter]
    fn steps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let plan_to = |name: &String| {
            let is_to = |item: &&Statement| matches!(item, Statement::Redistribute { to, .. } if self.program.get(*to).name == *name);
            match self.program.statements().iter().find(is_to) {
                Some(Statement::Redistribute { forward, .. }) => Some(PyPlan::new(Arc::clone(forward))),
                Some(Statement::Input(_) | Statement::Op { .. } | Statement::NoGrad) | None => None,
            }
        };
        let exchange = |kind, n: u32| {
            let moves = self.schedule.exchanges()[n as usize].moves.iter().map(|moved| moved.values.clone());
            let (inputs, outputs): (Vec<String>, Vec<String>) = moves.unzip();
            let plans = outputs.iter().filter_map(plan_to).collect();
            PyInstr { kind, call: None, inputs, outputs, plans }
        };
        let step = |instr: &Instruction| match instr {
            Instruction::Call { kernel, args } => {
                let call = &self.schedule.calls()[*kernel as usize];
                let names = &self.schedule.arg_names()[args.start as usize..args.end as usize];
                let (inputs, outputs) = names.split_at(call.inputs.len());
                let call = Some(PyLocalCall::of(call, &self.table));
                PyInstr {
                    kind: "call",
                    call,
                    inputs: inputs.to_vec(),
                    outputs: outputs.to_vec(),
                    plans: Vec::new(),
                }
            }
            Instruction::Post { exchange: n } => exchange("post", *n),
            Instruction::Wait { exchange: n } => exchange("wait", *n),
        };
        PyTuple::new(py, self.schedule.instructions().iter().map(step).collect::<Vec<_>>())
    }

    /// The plans of all redistributions of the program, the same on all ranks and in the same order.
    ///
    /// Plans in which this rank takes no part are included.
    #[getter]
    fn plans(&self) -> Vec<PyPlan> {
        let plan = |item: &Statement| match item {
            Statement::Redistribute { forward, .. } => Some(PyPlan::new(Arc::clone(forward))),
            Statement::Input(_) | Statement::Op { .. } | Statement::NoGrad => None,
        };
        self.program.statements().iter().filter_map(plan).collect()
    }

    /// The bytes of the arena, which is the peak of this rank.
    #[getter]
    fn arena_bytes(&self) -> usize {
        self.schedule.arena_bytes()
    }

    /// The number of operations of all calls.
    #[getter]
    fn operations(&self) -> f64 {
        self.schedule.operations()
    }

    /// The distinct calls.
    #[getter]
    fn calls<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let call = |call: &reshard_program::schedule::LocalCall| PyLocalCall::of(call, &self.table);
        PyTuple::new(py, self.schedule.calls().iter().map(call).collect::<Vec<_>>())
    }

    /// The exchanges of this rank: the result of each, and the bytes that this rank receives.
    #[getter]
    fn exchanges(&self) -> Vec<(String, u64)> {
        let bytes =
            |of: &reshard_program::schedule::Transfer| of.steps.iter().map(|s| s.received_bytes).sum();
        self.schedule.exchanges().iter().map(|of| (of.name(), bytes(of))).collect()
    }

    /// The buffers of this rank, in the order of the program.
    #[getter]
    fn buffers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let local = |local: &reshard_program::schedule::LocalBuffer| PyLocalValue {
            name: local.name.clone(),
            dtype: PyDType(local.tensor.dtype),
            shape: local.tensor.shape.clone(),
            offset: local.slice.offset,
            bytes: local.slice.bytes,
            is_input: local.is_input,
            is_live_out: local.is_live_out,
        };
        PyTuple::new(py, self.schedule.buffers().iter().map(local).collect::<Vec<_>>())
    }

    /// Copies to do before the next step: source offset, bytes and target offset.
    #[getter]
    fn loop_carried_copies(&self) -> Vec<(usize, usize, usize)> {
        self.schedule
            .loop_carried_copies()
            .iter()
            .map(|(from, to)| (from.offset, from.bytes, to.offset))
            .collect()
    }

    /// The events of the rank: calls, and exchanges where they are waited for.
    fn trace<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyEvent::all(py, self.schedule.trace())
    }
}

/// The modelled times of all ranks, without running anything: `Timeline(schedules, ComputeRates.h100())`.
#[pyclass(frozen, name = "Timeline", module = "reshard")]
pub(crate) struct PyTimeline(Timeline);

/// An activity of a timeline: name, ranks, begin and end.
fn span(span: &reshard_program::schedule::Span) -> (String, Vec<usize>, f64, f64) {
    let (what, ranks) = match &span.activity {
        Activity::Call { rank, instr } => (format!("call {instr}"), vec![*rank]),
        Activity::Step { value, step, members } => (format!("{value}, step {step}"), members.clone()),
        Activity::Exchange { value, members, .. } => (value.clone(), members.clone()),
    };
    (what, ranks, span.begin_us, span.end_us)
}

#[pymethods]
impl PyTimeline {
    #[new]
    #[pyo3(signature = (schedules, rates=None))]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = listed)] schedules: Vec<PyRef<'_, PySchedule>>,
        rates: Option<&PyRates>,
    ) -> Answer<PyTimeline> {
        let schedules: Vec<Schedule> = schedules.iter().map(|s| s.schedule.clone()).collect();
        let rates = rates.map_or_else(ComputeRates::uniform, |rates| rates.0);
        Ok(PyTimeline(py.detach(|| Timeline::of(&schedules, &rates))?))
    }

    fn __repr__(&self) -> String {
        format!("<Timeline of {} ranks, {:.1} us>", self.0.lanes.len(), self.0.total_us())
    }

    /// The modelled time of the whole, in microseconds.
    #[getter]
    fn total_us(&self) -> f64 {
        self.0.total_us()
    }

    /// All activities: name, ranks, begin and end, in microseconds.
    #[getter]
    fn spans(&self) -> Vec<(String, Vec<usize>, f64, f64)> {
        self.0.spans.iter().map(span).collect()
    }

    /// The critical path: the activities that determine the total time, from begin to end.
    #[getter]
    fn critical_path(&self) -> Vec<(String, Vec<usize>, f64, f64)> {
        self.0.critical_path().into_iter().map(span).collect()
    }

    /// For each schedule the microseconds of computing, of exchanges, of waiting, and of both at once.
    #[getter]
    fn lanes(&self) -> Vec<(f64, f64, f64, f64)> {
        let t = &self.0;
        let lane = |l| (t.computing_us(l), t.exchanging_us(l), t.waiting_us(l), t.hidden_us(l));
        t.lanes.iter().map(lane).collect()
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyLocalValue>()?;
    module.add_class::<PyEvent>()?;
    module.add_class::<PyInstr>()?;
    module.add_class::<PySchedule>()?;
    module.add_class::<PyTimeline>()
}
