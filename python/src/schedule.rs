//! Schedules: what one rank of a program does, as a list without types.

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

/// How a program is compiled, as Python says it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScheduleOptions<'a> {
    pub(crate) liveness: bool,
    pub(crate) hoist_bytes: u64,
    pub(crate) bucket_bytes: u64,
    pub(crate) order: &'a str,
}

impl ScheduleOptions<'_> {
    pub(crate) fn read(self) -> Answer<CompileOptions> {
        let ScheduleOptions { liveness, hoist_bytes, bucket_bytes, order } = self;
        Ok(CompileOptions { liveness, in_flight_bytes: hoist_bytes, bucket_bytes, order: order.parse()? })
    }
}

/// What one rank of a program does: kernels to call and exchanges to post and to wait for, on offsets of one arena.
#[pyclass(frozen, name = "Schedule", module = "reshard")]
pub(crate) struct PySchedule {
    pub(crate) schedule: Schedule,
    pub(crate) table: Arc<OpTable>,
    /// What it was compiled of, with what travels in another type as ops and a move.
    pub(crate) program: Arc<Program>,
}

/// One thing that a rank does: it calls something, or begins or ends an exchange, on values by their names.
#[pyclass(frozen, get_all, name = "Instr", module = "reshard")]
pub(crate) struct PyInstr {
    /// `call`, `post` or `wait`.
    kind: &'static str,
    /// What is called; None of an exchange.
    call: Option<PyLocalCall>,
    /// What a call takes, or what is moved.
    takes: Vec<String>,
    /// What it makes, or what that becomes.
    makes: Vec<String>,
    /// The plans of what is moved, one each; none of a call.
    plans: Vec<PyPlan>,
}

#[pymethods]
impl PyInstr {
    fn __repr__(&self) -> String {
        let (takes, makes) = (self.takes.join(", "), self.makes.join(", "));
        match &self.call {
            Some(call) => format!("<{makes} = {}({takes})>", call.__str__()),
            None => format!("<{} {makes} = {takes}>", self.kind),
        }
    }
}

/// A value on the rank of a schedule: where it is in the arena.
#[pyclass(frozen, get_all, name = "LocalValue", module = "reshard")]
pub(crate) struct PyLocalValue {
    /// What the program calls it.
    name: String,
    /// The type of its elements.
    dtype: PyDType,
    /// The shape of what the rank holds.
    shape: Vec<usize>,
    /// The first byte in the arena.
    offset: usize,
    /// How many bytes.
    bytes: usize,
    /// Whether it is given.
    is_input: bool,
    /// Whether it is still there at the end.
    lasts: bool,
}

#[pymethods]
impl PyLocalValue {
    fn __repr__(&self) -> String {
        format!("<{} {}{:?} at {}>", self.name, self.dtype.0, self.shape, self.offset)
    }
}

/// Something that a rank does: `kind` is `call`, or that of an exchange, such as `all_gather`.
#[pyclass(frozen, get_all, name = "Event", module = "reshard")]
pub(crate) struct PyEvent {
    /// `call`, or what kind of operation an exchange is.
    kind: String,
    /// What is called; None of an exchange.
    call: Option<String>,
    /// What is taken: names, element types and local shapes; of an exchange only names.
    takes: Vec<(String, Option<PyDType>, Vec<usize>)>,
    /// What is made, likewise.
    makes: Vec<(String, Option<PyDType>, Vec<usize>)>,
    /// Over what an exchange runs, and its members; None and nobody of a call.
    over: Option<String>,
    /// The ranks that take part in an exchange.
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
        let (takes, makes) = (names(&self.takes), names(&self.makes));
        match (&self.call, &self.over) {
            (Some(call), _) => format!("<{makes} = {call}({takes})>"),
            (None, over) => {
                let over = over.as_deref().unwrap_or_default();
                format!("<{} over {over}: {takes} -> {makes}, {} bytes>", self.kind, self.received_bytes)
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
                takes: takes.into_iter().map(operand).collect(),
                makes: makes.into_iter().map(operand).collect(),
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
                    takes: takes.into_iter().map(name).collect(),
                    makes: makes.into_iter().map(name).collect(),
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

    /// What it does, in order: a line for each instruction.
    #[getter]
    fn instrs(&self) -> Vec<String> {
        self.schedule.to_string().lines().skip(1).map(str::to_owned).collect()
    }

    /// The same as values, for what carries it out by itself.
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
            let (takes, makes): (Vec<String>, Vec<String>) = moves.unzip();
            let plans = makes.iter().filter_map(plan_to).collect();
            PyInstr { kind, call: None, takes, makes, plans }
        };
        let step = |instr: &Instruction| match instr {
            Instruction::Call { kernel, args } => {
                let call = &self.schedule.calls()[*kernel as usize];
                let names = &self.schedule.arg_names()[args.start as usize..args.end as usize];
                let (takes, makes) = names.split_at(call.inputs.len());
                let call = Some(PyLocalCall::of(call, &self.table));
                PyInstr {
                    kind: "call",
                    call,
                    takes: takes.to_vec(),
                    makes: makes.to_vec(),
                    plans: Vec::new(),
                }
            }
            Instruction::Post { exchange: n } => exchange("post", *n),
            Instruction::Wait { exchange: n } => exchange("wait", *n),
        };
        PyTuple::new(py, self.schedule.instructions().iter().map(step).collect::<Vec<_>>())
    }

    /// The plans of all moves of the program, also of those in which this rank has no part: the same on all ranks, in one order.
    #[getter]
    fn plans(&self) -> Vec<PyPlan> {
        let plan = |item: &Statement| match item {
            Statement::Redistribute { forward, .. } => Some(PyPlan::new(Arc::clone(forward))),
            Statement::Input(_) | Statement::Op { .. } | Statement::NoGrad => None,
        };
        self.program.statements().iter().filter_map(plan).collect()
    }

    /// The bytes of the arena: the most that this rank has at a time.
    #[getter]
    fn arena_bytes(&self) -> usize {
        self.schedule.arena_bytes()
    }

    /// The operations of all its calls.
    #[getter]
    fn operations(&self) -> f64 {
        self.schedule.operations()
    }

    /// All calls that it makes, each once.
    #[getter]
    fn calls<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let call = |call: &reshard_program::schedule::LocalCall| PyLocalCall::of(call, &self.table);
        PyTuple::new(py, self.schedule.calls().iter().map(call).collect::<Vec<_>>())
    }

    /// The exchanges that it has a part in: what each makes, and the bytes that this rank receives.
    #[getter]
    fn exchanges(&self) -> Vec<(String, u64)> {
        let bytes =
            |of: &reshard_program::schedule::Transfer| of.steps.iter().map(|s| s.received_bytes).sum();
        self.schedule.exchanges().iter().map(|of| (of.name(), bytes(of))).collect()
    }

    /// The values that the rank holds, in the order of the program.
    #[getter]
    fn locals<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let local = |local: &reshard_program::schedule::LocalBuffer| PyLocalValue {
            name: local.name.clone(),
            dtype: PyDType(local.tensor.dtype),
            shape: local.tensor.shape.clone(),
            offset: local.slice.offset,
            bytes: local.slice.bytes,
            is_input: local.is_input,
            lasts: local.is_live_out,
        };
        PyTuple::new(py, self.schedule.buffers().iter().map(local).collect::<Vec<_>>())
    }

    /// What is to be copied before the next step: offset and bytes, and the offset to which.
    #[getter]
    fn carried(&self) -> Vec<(usize, usize, usize)> {
        self.schedule
            .loop_carried_copies()
            .iter()
            .map(|(from, to)| (from.offset, from.bytes, to.offset))
            .collect()
    }

    /// What the rank does: calls, and exchanges where they are waited for.
    fn trace<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyEvent::all(py, self.schedule.trace())
    }
}

/// When ranks do what, by the cost model and rates of computing, without running anything: `Timeline(schedules, Rates.h100())`.
#[pyclass(frozen, name = "Timeline", module = "reshard")]
pub(crate) struct PyTimeline(Timeline);

/// Something that takes time: what, on which ranks, from when and until when.
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

    /// How long all of it takes, in microseconds.
    #[getter]
    fn total_us(&self) -> f64 {
        self.0.total_us()
    }

    /// Everything that takes time: what, on which ranks, from when and until when.
    #[getter]
    fn spans(&self) -> Vec<(String, Vec<usize>, f64, f64)> {
        self.0.spans.iter().map(span).collect()
    }

    /// What the whole waits for, from the beginning to the end.
    #[getter]
    fn critical_path(&self) -> Vec<(String, Vec<usize>, f64, f64)> {
        self.0.critical_path().into_iter().map(span).collect()
    }

    /// Of each schedule how long it computes, exchanges, waits, and exchanges while it computes, in microseconds.
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
