//! The most bytes at hand at a time.
//!
//! Items run in order and write their results beside their operands. A value is there
//!
//! ```text
//! an input      from the start to the end; one that is updated (w by w') until it is no longer taken
//! any other     from the item that makes it to the last that takes it; to the end if nothing takes what that item makes
//! ```
//!
//! and the result of a view, or of a move that does nothing to the buffers, is its operand. While a move is carried out, its
//! staging is there too: what its plan holds beyond source and target. Communication buffers of an engine are not counted.

use crate::graph::ValueId;
use crate::passes::again::{Again, Forward, Line};
use crate::program::{Program, Statement};
use crate::report::build::{Known, local_bytes};

/// What a value is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValueClass {
    /// An input whose gradient is asked, or that has one and is updated (`w` by `w'`).
    Parameter,
    /// An input without a gradient that is updated, such as a momentum.
    State,
    /// Any other input.
    Input,
    /// What the forward pass makes, copies of parameters too.
    Activation,
    /// What backward and update make, but for what takes the place of a parameter or of state.
    Gradient,
}

impl ValueClass {
    /// All, in order.
    pub const ALL: [ValueClass; 5] = [
        ValueClass::Parameter,
        ValueClass::State,
        ValueClass::Input,
        ValueClass::Activation,
        ValueClass::Gradient,
    ];

    /// Its name.
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

/// The moment in which most bytes are at hand on the worst rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peak {
    /// All of them.
    pub bytes: u64,
    /// What is made at that moment; empty of a program without items.
    pub at: String,
    /// Those of values, by class in the order of [`Class::ALL`].
    pub by_class: [u64; 5],
    /// Those that a move holds beyond source and target.
    pub staging: u64,
}

impl Peak {
    /// The bytes of a class.
    pub fn of(&self, class: ValueClass) -> u64 {
        self.by_class[class as usize]
    }
}

/// Where a value is there until the end.
pub(crate) const END: usize = usize::MAX;

/// The items of a program as they are done, each on its own values or on copies of them.
pub(crate) struct Walk<'a> {
    pub(super) known: Known<'a>,
    pub(super) classes: Vec<ValueClass>,
    /// The bytes of each value of the program.
    bytes: Vec<u64>,
    steps: Vec<Step>,
    /// How many values there are, copies too: that of `v` has the number `v` and that of all values of the program.
    values: usize,
}

/// An item, and the numbers of what it takes and makes here.
struct Step {
    item: usize,
    takes: Vec<usize>,
    makes: Vec<usize>,
}

impl<'a> Walk<'a> {
    /// Over the items of a program in order.
    pub(crate) fn of(program: &'a Program) -> Walk<'a> {
        let (known, classes) = Known::with_classes(program);
        let numbers = |values: &[ValueId]| values.iter().map(|v| v.0).collect();
        let steps = program.statements().iter().enumerate();
        let steps =
            steps.map(|(item, of)| Step { item, takes: numbers(of.inputs()), makes: numbers(of.outputs()) });
        let (steps, values) = (steps.collect(), program.values().len());
        let bytes = program.values().iter().map(local_bytes).collect();
        Walk { known, classes, bytes, steps, values }
    }

    /// Over these lines of the same program in place of what it was over.
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

    /// The value of the program that this is, or of which it is a copy.
    fn original(&self, v: usize) -> usize {
        v % self.known.program.values().len()
    }

    fn holds(&self, ranks: u64, v: usize) -> bool {
        self.known.holds(ranks, self.original(v))
    }

    fn bytes(&self, v: usize) -> u64 {
        self.bytes[self.original(v)]
    }

    /// What the copy of a value is for, below `no_grad`, says nobody: it is of backward.
    fn class(&self, v: usize) -> usize {
        self.classes.get(v).copied().unwrap_or(ValueClass::Gradient) as usize
    }

    /// The most bytes at hand at a time, of all ranks.
    pub(crate) fn peak(&self) -> Peak {
        let peaks = self.known.classes.iter().map(|&ranks| self.peak_of(ranks));
        // Of equal ones the first.
        peaks.reduce(|most, other| if other.bytes > most.bytes { other } else { most }).unwrap_or_default()
    }

    /// What is at hand in each step, of those ranks of which most bytes are at hand at a time.
    pub(crate) fn moments(&self) -> Vec<Peak> {
        let each = self.known.classes.iter().map(|&ranks| self.moments_of(ranks));
        let most = |moments: &[Peak]| moments.iter().map(|moment| moment.bytes).max();
        // Of equal ones the first.
        each.reduce(|a, b| if most(&b) > most(&a) { b } else { a }).unwrap_or_default()
    }

    /// When values are there, for the ranks that are in these meshes.
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
                // A copy that nobody makes is never there, and has no end.
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
        // What lies elsewhere is no value to begin the next step with.
        let values = program.values();
        let lies_there = |w: usize, u: usize| values[w].ty.value == values[u].ty.value;
        let next = updates.iter().enumerate();
        let next = next.map(|(w, update)| update.map(|u| u.0).filter(|&u| lies_there(w, u))).collect();
        Lives { root, until, next }
    }

    /// The moment in which most bytes are at hand on the ranks that are in these meshes.
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

    /// What is at hand in each step on the ranks that are in these meshes.
    fn moments_of(&self, ranks: u64) -> Vec<Peak> {
        let mut moments = Vec::new();
        self.follow_bytes(ranks, |now, bytes, staging, step| {
            if let Some(step) = step {
                moments.push(Peak { bytes, at: self.made_at(step), staging, ..now.clone() });
            }
        });
        moments
    }

    /// The first value that a step makes; empty if it makes none.
    fn made_at(&self, step: &Step) -> String {
        let name = |&v: &usize| self.known.program.values()[self.original(v)].name.clone();
        step.makes.first().map_or(String::new(), name)
    }

    /// Follows the bytes of the ranks that are in these meshes: at the start, where there is no step yet, and in each step the values at hand, all
    /// bytes, and those of staging among them.
    fn follow_bytes(&self, ranks: u64, mut tell: impl FnMut(&Peak, u64, u64, Option<&Step>)) {
        let holds = |v: usize| self.holds(ranks, v);
        let items = self.known.program.statements();
        let Lives { root, until, .. } = self.lives(ranks);
        let mut frees: Vec<Vec<usize>> = vec![Vec::new(); self.steps.len()];
        for (v, &end) in until.iter().enumerate() {
            if root[v] == v && holds(v) && end < self.steps.len() {
                frees[end].push(v);
            }
        }
        let mut now = Peak::default();
        let hold = |now: &mut Peak, v: usize| {
            let bytes = self.bytes(v);
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
                for &v in step.makes.iter().filter(|&&v| root[v] == v && holds(v)) {
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
                        // At most what travels and, in the values' own type, what it brings: the program of its parts says it exactly.
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
                let bytes = self.bytes(v);
                now.by_class[self.class(v)] = now.by_class[self.class(v)].saturating_sub(bytes);
                now.bytes = now.bytes.saturating_sub(bytes);
            }
        }
    }
}

/// When the values of a program are there, on ranks that are in the same meshes; see the top of this file.
#[derive(Debug)]
pub(crate) struct Lives {
    /// Of each value, the one whose buffer it has.
    pub(crate) root: Vec<usize>,
    /// Of each value that has a buffer, the last item for which it is there; [`END`] where that is the end.
    pub(crate) until: Vec<usize>,
    /// Of each value, the one that is it in the next step.
    pub(crate) next: Vec<Option<usize>>,
}
