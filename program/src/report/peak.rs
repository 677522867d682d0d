//! Peak memory: the maximum number of live bytes.
//!
//! Statements run in order and write their results to separate buffers. The lifetime of a value is
//!
//! ```text
//! an input      from the start to the end; an updated one (w by w') to its last use
//! any other     from its statement to its last use; to the end if no output of that statement is used
//! ```
//!
//! and the result of a view, or of a redistribution without any copy, shares the buffer of its operand. While
//! a redistribution runs, its staging is live too: the buffers of its plan other than source and target.
//! Communication buffers of an engine are not counted. Values [inside a kernel](crate::Value::inner) have no bytes.

use core::fmt;

use rustc_hash::FxHashMap;

use crate::graph::ValueId;
use crate::program::{Program, Statement};
use crate::report::build::{Known, local_bytes};
use crate::transforms::rematerialize::{Again, Forward, Line};

/// The purpose of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValueClass {
    /// An input whose gradient is requested, or that has a gradient and is updated (`w` by `w'`).
    Parameter,
    /// An input without a gradient that is updated, such as a momentum.
    State,
    /// Any other input.
    Input,
    /// A value computed in forward, including copies of parameters.
    Activation,
    /// A value computed in backward or update, except an updated parameter or state.
    Gradient,
}

impl ValueClass {
    /// All classes, in order.
    #[doc(hidden)]
    pub const ALL: [ValueClass; 5] = [
        ValueClass::Parameter,
        ValueClass::State,
        ValueClass::Input,
        ValueClass::Activation,
        ValueClass::Gradient,
    ];

    /// Returns its name.
    #[doc(hidden)]
    pub fn as_str(self) -> &'static str {
        match self {
            ValueClass::Parameter => "parameter",
            ValueClass::State => "state",
            ValueClass::Input => "input",
            ValueClass::Activation => "activation",
            ValueClass::Gradient => "gradient",
        }
    }
}

impl fmt::Display for ValueClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The point of a program with the most live bytes on the worst rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peak {
    /// All live bytes.
    pub bytes: u64,
    /// The value computed at that point; empty for a program without statements.
    pub at: String,
    /// The live bytes of values, by class in the order of [`ValueClass::ALL`].
    pub by_class: [u64; 5],
    /// The live bytes of a redistribution other than source and target.
    pub staging: u64,
}

impl Peak {
    /// Returns the live bytes of a class.
    #[doc(hidden)]
    pub fn of(&self, class: ValueClass) -> u64 {
        self.by_class[class as usize]
    }
}

/// End of a lifetime that lasts until the end of the program.
pub(crate) const END: usize = usize::MAX;

/// The statements of a program in order of execution, each on its own values or on copies of them.
pub(crate) struct Walk<'a> {
    pub(super) known: Known<'a>,
    pub(super) classes: Vec<ValueClass>,
    /// The bytes of each value.
    bytes: Vec<u64>,
    /// The kernel of each statement of the program.
    kernels: Vec<Option<usize>>,
    steps: Vec<Step>,
    /// The number of values including copies.
    ///
    /// The copy of `v` has the number `v` plus the number of program values.
    values: usize,
}

/// A statement, with the numbers of its inputs and outputs, which may be copies.
struct Step {
    item: usize,
    takes: Vec<usize>,
    makes: Vec<usize>,
}

impl<'a> Walk<'a> {
    /// Returns a walk over the statements of a program in order.
    pub(crate) fn of(program: &'a Program) -> Walk<'a> {
        let (known, classes) = Known::with_classes(program);
        let numbers = |values: &[ValueId]| values.iter().map(|v| v.0).collect();
        let steps = program.statements().iter().enumerate();
        let steps =
            steps.map(|(item, of)| Step { item, takes: numbers(of.inputs()), makes: numbers(of.outputs()) });
        let (steps, values) = (steps.collect(), program.values().len());
        let bytes = program.values().iter().map(local_bytes).collect();
        Walk { known, classes, bytes, kernels: program.kernels(), steps, values }
    }

    /// Replaces the statements by these lines of the same program.
    pub(crate) fn follow(&mut self, forward: &Forward<'_>, lines: &[Line], again: &Again) {
        let program = self.known.program;
        let count = program.values().len();
        self.values = 2 * count;
        self.steps.clear();
        self.steps.extend(lines.iter().map(|&line| {
            let item = &program.statements()[line.item];
            let copied = |v: &ValueId| if forward.takes_copy(line, *v, again) { v.0 + count } else { v.0 };
            let made = |v: &ValueId| if line.is_copy { v.0 + count } else { v.0 };
            Step {
                item: line.item,
                takes: item.inputs().iter().map(copied).collect(),
                makes: item.outputs().iter().map(made).collect(),
            }
        }));
    }

    /// Returns the program value that `v` is, or is a copy of.
    fn original(&self, v: usize) -> usize {
        v % self.known.program.values().len()
    }

    fn holds(&self, ranks: u64, v: usize) -> bool {
        self.known.holds(ranks, self.original(v))
    }

    fn bytes(&self, v: usize) -> u64 {
        self.bytes[self.original(v)]
    }

    /// Returns the class of a value; a copy belongs to backward.
    fn class(&self, v: usize) -> usize {
        self.classes.get(v).copied().unwrap_or(ValueClass::Gradient) as usize
    }

    /// Returns the peak memory over all ranks.
    pub(crate) fn peak(&self) -> Peak {
        let peaks = self.known.classes.iter().map(|&ranks| self.peak_of(ranks));
        // Ties go to the first.
        peaks.reduce(|most, other| if other.bytes > most.bytes { other } else { most }).unwrap_or_default()
    }

    /// Returns the live memory in each step, for the ranks with the highest peak.
    pub(crate) fn moments(&self) -> Vec<Peak> {
        let each = self.known.classes.iter().map(|&ranks| self.moments_of(ranks));
        let most = |moments: &[Peak]| moments.iter().map(|moment| moment.bytes).max();
        // Ties go to the first.
        each.reduce(|a, b| if most(&b) > most(&a) { b } else { a }).unwrap_or_default()
    }

    /// Returns the lifetimes of values on the ranks in these meshes.
    pub(crate) fn lives(&self, ranks: u64) -> Lives {
        let (program, updates) = (self.known.program, &self.known.updates);
        let mut root: Vec<usize> = (0..self.values).collect();
        let mut last: Vec<Option<usize>> = vec![None; self.values];
        let mut made = vec![0; self.values];
        for (n, step) in self.steps.iter().enumerate() {
            for &v in &step.takes {
                last[v] = Some(n);
            }
            for &v in &step.makes {
                made[v] = n;
            }
            let is_view = program.statements()[step.item].viewed().is_some();
            let of = step.takes.first().zip(step.makes.first()).filter(|_| is_view);
            if let Some((&from, &to)) = of
                && self.holds(ranks, from)
                && self.holds(ranks, to)
            {
                root[to] = root[from];
            }
        }
        let mut until = vec![0; self.values];
        for (v, &of) in root.iter().enumerate() {
            let step = &self.steps[made[v]];
            let end = match (&program.statements()[step.item], last[v]) {
                // A copy that no statement computes is never live, and has no end.
                _ if !step.makes.contains(&v) => END,
                (Statement::Input(_), last) => updates[v].map_or(END, |u| made[u.0].max(last.unwrap_or(0))),
                (_, None) if step.makes.iter().any(|&v| last[v].is_some()) => made[v],
                (_, None) => END,
                (_, Some(last)) => last,
            };
            until[of] = until[of].max(end);
        }
        for update in updates.iter().flatten() {
            until[root[update.0]] = END;
        }
        // An update with another sharding cannot be the initial value of the next step.
        let values = program.values();
        let lies_there = |w: usize, u: usize| values[w].ty.value == values[u].ty.value;
        let next = updates.iter().enumerate();
        let next = next.map(|(w, update)| update.map(|u| u.0).filter(|&u| lies_there(w, u))).collect();
        Lives { root, until, next }
    }

    /// Returns the values that begin to be live in each step, and lets what kernels read live until their ends.
    ///
    /// All results of a kernel are live from its first statement, and all that it reads until its last.
    fn starts(&self, root: &[usize], until: &mut [usize]) -> Vec<Vec<usize>> {
        let kernel_of = |step: &Step| self.kernels[step.item];
        let mut ends: FxHashMap<usize, (usize, usize)> = FxHashMap::default();
        for (n, step) in self.steps.iter().enumerate() {
            if let Some(kernel) = kernel_of(step) {
                ends.entry(kernel).or_insert((n, n)).1 = n;
            }
        }
        let mut starts: Vec<Vec<usize>> = vec![Vec::new(); self.steps.len()];
        for (n, step) in self.steps.iter().enumerate() {
            let (first, last) = kernel_of(step).map_or((n, n), |kernel| ends[&kernel]);
            starts[first].extend(&step.makes);
            for &v in &step.takes {
                until[root[v]] = until[root[v]].max(last);
            }
        }
        starts
    }

    /// Returns the point with the most live bytes on the ranks in these meshes.
    fn peak_of(&self, ranks: u64) -> Peak {
        let mut most = Peak::default();
        self.follow_bytes(ranks, |now, bytes, staging, step| {
            if bytes > most.bytes || most.at.is_empty() {
                let at = step.map_or_else(String::new, |step| self.made_at(step));
                most = Peak { bytes, at, staging, ..now.clone() };
            }
        });
        most
    }

    /// Returns the live memory in each step on the ranks in these meshes.
    fn moments_of(&self, ranks: u64) -> Vec<Peak> {
        let mut moments = Vec::new();
        self.follow_bytes(ranks, |now, bytes, staging, step| {
            if let Some(step) = step {
                moments.push(Peak { bytes, at: self.made_at(step), staging, ..now.clone() });
            }
        });
        moments
    }

    /// Returns the name of the first output of a step; empty if it has none.
    fn made_at(&self, step: &Step) -> String {
        let name = |&v: &usize| self.known.program.values()[self.original(v)].name.clone();
        step.makes.first().map_or(String::new(), name)
    }

    /// Reports the live memory of the ranks in these meshes to `tell`, at the start and in each step.
    ///
    /// Arguments: live bytes by class, all live bytes, the staging among them, and the step (`None` at the
    /// start).
    fn follow_bytes(&self, ranks: u64, mut tell: impl FnMut(&Peak, u64, u64, Option<&Step>)) {
        let holds = |v: usize| self.holds(ranks, v);
        let items = self.known.program.statements();
        let Lives { root, mut until, .. } = self.lives(ranks);
        // The buffer of a value inside a kernel has bytes if a value outside is a view of it.
        let mut sizes = vec![0u64; self.values];
        for (v, &of) in root.iter().enumerate() {
            if !self.known.program.values()[self.original(v)].inner {
                sizes[of] = sizes[of].max(self.bytes(v));
            }
        }
        let starts = self.starts(&root, &mut until);
        let mut frees: Vec<Vec<usize>> = vec![Vec::new(); self.steps.len()];
        for (v, &end) in until.iter().enumerate() {
            if root[v] == v && holds(v) && end < self.steps.len() {
                frees[end].push(v);
            }
        }
        let mut now = Peak::default();
        let hold = |now: &mut Peak, v: usize| {
            let bytes = sizes[v];
            now.by_class[self.class(v)] = now.by_class[self.class(v)].saturating_add(bytes);
            now.bytes = now.bytes.saturating_add(bytes);
        };
        for v in items.iter().filter_map(|item| if let Statement::Input(v) = item { Some(v.0) } else { None })
        {
            if holds(v) {
                hold(&mut now, v);
            }
        }
        tell(&now, now.bytes, 0, None);
        for (n, step) in self.steps.iter().enumerate() {
            let item = &items[step.item];
            if !matches!(item, Statement::Input(_)) {
                for &v in starts[n].iter().filter(|&&v| root[v] == v && holds(v)) {
                    hold(&mut now, v);
                }
            }
            let staging = match (item, &step.takes[..], &step.makes[..]) {
                (Statement::Redistribute { forward, .. }, &[from], &[to])
                    if root[to] == to && (holds(from) || holds(to)) =>
                {
                    let here = [from, to].into_iter().filter(|&v| holds(v)).map(|v| self.bytes(v));
                    let staging = forward.peak_bytes();
                    match self.known.program.travels(item) {
                        None => staging.saturating_sub(here.fold(0, u64::saturating_add)),
                        // An upper bound: the sent data and the received data in the values' dtype. The
                        // lowered program is exact.
                        Some(via) => {
                            let bits = self.known.program.values()[self.original(to)].dtype.bits() as u64;
                            let wide = (bits / via.bits().max(1) as u64).saturating_add(1);
                            staging.saturating_mul(wide)
                        }
                    }
                }
                (
                    Statement::Input(_)
                    | Statement::Op { .. }
                    | Statement::Redistribute { .. }
                    | Statement::NoGrad,
                    _,
                    _,
                ) => 0,
            };
            let bytes = now.bytes.saturating_add(staging);
            tell(&now, bytes, staging, Some(step));
            for &v in &frees[n] {
                let bytes = sizes[v];
                now.by_class[self.class(v)] = now.by_class[self.class(v)].saturating_sub(bytes);
                now.bytes = now.bytes.saturating_sub(bytes);
            }
        }
    }
}

/// The lifetimes of a program's values, on ranks in the same meshes; see the module documentation.
#[derive(Debug)]
pub(crate) struct Lives {
    /// The value whose buffer each value uses.
    pub(crate) root: Vec<usize>,
    /// The last statement of each buffer's lifetime, by value; [`END`] for the end of the program.
    pub(crate) until: Vec<usize>,
    /// The value that replaces each value in the next step.
    pub(crate) next: Vec<Option<usize>>,
}
