//! One forward, one backward (1F1B): runs microbatches through pipeline stages with few in flight.
//!
//! ```text
//! microbatch   forward: values computed from an input that is not a parameter, and operands combined with them,
//!              up to the loss; backward: values that depend on that microbatch and no other
//! stage        meshes that have ranks in common, in forward order
//! in flight    microbatches of a stage that have begun and not ended, including backward
//! ```
//!
//! Stages run in parallel, each op for a time proportional to its operations, and each stage takes
//!
//! ```text
//! backward before forward; of either, the microbatch that began first
//! forward of a new microbatch only if fewer are in flight than there are stages from this one on, in the order of
//!     backward in the program: contributions to a gradient are then added one at a time, in order
//! ```
//!
//! So of `p` stages, stage `s` holds the activations of `p - s` microbatches instead of all, and it waits no
//! longer than if all forwards come first (GPipe, the order of a program with one loss). On one stage, each
//! microbatch runs backward before the next begins. Redistributions follow their sources. Values shared by
//! all microbatches, such as those computed from parameters alone, come right before their first use. So do
//! backward values that depend on no gradient. The order is the same for all ranks; each rank omits the
//! statements in which it has no part.
//!
//! The order is that of PipeDream (Harlap et al., 2018); the name is that of Megatron-LM (Narayanan et al.,
//! 2021).

use std::collections::{BTreeSet, HashMap};

use crate::program::{Program, Statement};
use crate::report::{ValueClass, classes};
use crate::schedule::Order;

/// Returns the order of execution of a program's statements; each comes after its producers.
pub(super) fn sequence(program: &Program, order: Order) -> Vec<usize> {
    match order {
        Order::Program => (0..program.statements().len()).collect(),
        Order::OneForwardOneBackward => Pipeline::of(program).run(),
    }
}

/// The scheduling state of a statement.
struct Task {
    /// The stage of an op; `None` for a statement that takes no time.
    stage: Option<usize>,
    microbatch: Option<usize>,
    is_backward: bool,
    /// `true` for a statement independent of microbatches, or in backward and independent of gradients.
    on_demand: bool,
    duration: f64,
    /// The producers of its inputs, without duplicates.
    after: Vec<usize>,
    /// The statements to wait for: its producers, with on-demand producers replaced by those they wait for.
    waits_for: Vec<usize>,
    /// The number of these that are not done.
    missing: usize,
    ready_at: f64,
}

struct Stage {
    free_at: f64,
    /// The maximum number of microbatches in flight.
    most: usize,
    /// The microbatches in flight, in order of their begin, with the number of ops left in each.
    flying: Vec<(usize, usize)>,
    /// Ops whose operands are available.
    ready: BTreeSet<usize>,
}

struct Pipeline {
    tasks: Vec<Task>,
    /// The statements that wait for each statement.
    before: Vec<Vec<usize>>,
    stages: Vec<Stage>,
    /// The number of ops of each microbatch on each stage.
    ops: HashMap<(usize, usize), usize>,
    /// The first backward statement of each microbatch.
    ///
    /// It orders backward, so that gradients are accumulated in the order of the program.
    turn: HashMap<usize, usize>,
    done: Vec<bool>,
    sequence: Vec<usize>,
}

impl Pipeline {
    fn of(program: &Program) -> Pipeline {
        let items = program.statements();
        let microbatches = microbatches(program);
        let (stage_of, count) = stages(program);
        let (marked, maker) = (program.forward().len(), program.makers());
        let mut tasks: Vec<Task> = Vec::with_capacity(items.len());
        let mut before = vec![Vec::new(); items.len()];
        let mut ops: HashMap<(usize, usize), usize> = HashMap::new();
        let mut is_gradient: Vec<bool> = Vec::with_capacity(items.len());
        let (mut order_of_stages, mut turn) = (Vec::new(), HashMap::new());
        for (n, item) in items.iter().enumerate() {
            let mut after: Vec<usize> = item.inputs().iter().map(|v| maker[v.index()]).collect();
            after.sort_unstable();
            after.dedup();
            let microbatch = microbatches[n];
            let is_input = |&n: &usize| matches!(items[n], Statement::Input(_));
            let of_none = microbatch.is_none() && after.iter().all(|at| is_input(at) || tasks[*at].on_demand);
            is_gradient.push(n > marked && (after.is_empty() || after.iter().any(|at| is_gradient[*at])));
            let on_demand = of_none || n > marked && !is_gradient[n];
            let (stage, duration) = match item {
                Statement::Op { is_view: false, outputs, operations, .. } => {
                    (outputs.first().map(|v| stage_of[v.index()]), operations + 1.0)
                }
                Statement::Op { .. }
                | Statement::Input(_)
                | Statement::Redistribute { .. }
                | Statement::NoGrad => (None, 0.0),
            };
            if let Some((stage, microbatch)) = stage.zip(microbatch).filter(|_| !on_demand) {
                *ops.entry((microbatch, stage)).or_default() += 1;
                if !order_of_stages.contains(&stage) {
                    order_of_stages.push(stage);
                }
            }
            if let Some(microbatch) = microbatch.filter(|_| n > marked) {
                turn.entry(microbatch).or_insert(n);
            }
            let mut waits_for: Vec<usize> = Vec::with_capacity(after.len());
            for &at in &after {
                if tasks[at].on_demand {
                    waits_for.extend(&tasks[at].waits_for);
                } else {
                    waits_for.push(at);
                }
            }
            waits_for.sort_unstable();
            waits_for.dedup();
            for &at in waits_for.iter().filter(|_| !on_demand) {
                before[at].push(n);
            }
            let (is_backward, missing) = (n > marked, waits_for.len());
            tasks.push(Task {
                stage,
                microbatch,
                is_backward,
                on_demand,
                duration,
                after,
                waits_for,
                missing,
                ready_at: 0.0,
            });
        }
        let most = |stage| {
            order_of_stages.iter().position(|&s| s == stage).map_or(1, |at| order_of_stages.len() - at)
        };
        let stages = (0..count).map(|stage| Stage {
            free_at: 0.0,
            most: most(stage),
            flying: Vec::new(),
            ready: BTreeSet::new(),
        });
        let done = vec![false; items.len()];
        Pipeline {
            tasks,
            before,
            stages: stages.collect(),
            ops,
            turn,
            done,
            sequence: Vec::with_capacity(items.len()),
        }
    }

    fn run(mut self) -> Vec<usize> {
        let is_ready = |task: &Task| task.missing == 0 && !task.on_demand;
        let ready: Vec<usize> = (0..self.tasks.len()).filter(|&n| is_ready(&self.tasks[n])).collect();
        for n in ready {
            self.is_ready(n);
        }
        while let Some((stage, n, begin)) = self.next() {
            self.begin(stage, n);
            self.finish(n, begin + self.tasks[n].duration);
        }
        // Add the statements that no other statement needs.
        for n in 0..self.tasks.len() {
            self.demand(n);
        }
        self.sequence
    }

    /// Finishes a statement that takes no time; queues any other on its stage.
    fn is_ready(&mut self, n: usize) {
        match self.tasks[n].stage {
            Some(stage) => {
                self.stages[stage].ready.insert(n);
            }
            None => self.finish(n, self.tasks[n].ready_at),
        }
    }

    /// Returns the next op, its stage and its begin: the earliest over all stages.
    ///
    /// If no stage may begin an op, it is the first ready one.
    fn next(&self) -> Option<(usize, usize, f64)> {
        let mut best: Option<(usize, usize, f64)> = None;
        for (s, stage) in self.stages.iter().enumerate() {
            if let Some((n, begin)) = self.best_of(stage)
                && best.is_none_or(|(_, _, known)| begin < known)
            {
                best = Some((s, n, begin));
            }
        }
        best.or_else(|| {
            let first = |(s, stage): (usize, &Stage)| stage.ready.first().map(|&n| (n, s));
            let (n, s) = self.stages.iter().enumerate().filter_map(first).min()?;
            Some((s, n, self.stages[s].free_at.max(self.tasks[n].ready_at)))
        })
    }

    fn best_of(&self, stage: &Stage) -> Option<(usize, f64)> {
        let place = |n: usize| {
            let microbatch = self.tasks[n].microbatch;
            microbatch.map_or(Some(0), |m| stage.flying.iter().position(|(known, _)| *known == m))
        };
        let may_begin = |n: usize| place(n).is_some() || stage.flying.len() < stage.most;
        let allowed = || stage.ready.iter().copied().filter(|&n| may_begin(n));
        let begin = allowed().map(|n| self.tasks[n].ready_at.max(stage.free_at)).reduce(f64::min)?;
        let there = allowed().filter(|&n| self.tasks[n].ready_at <= begin);
        let turn = |n: usize| self.tasks[n].microbatch.and_then(|m| self.turn.get(&m)).copied();
        let key = |&n: &usize| (!self.tasks[n].is_backward, place(n).unwrap_or(usize::MAX), turn(n), n);
        there.min_by_key(key).map(|n| (n, begin))
    }

    /// Begins an op on its stage.
    fn begin(&mut self, s: usize, n: usize) {
        let stage = &mut self.stages[s];
        stage.ready.remove(&n);
        let Some(microbatch) = self.tasks[n].microbatch else { return };
        let at = stage.flying.iter().position(|(known, _)| *known == microbatch).unwrap_or_else(|| {
            stage.flying.push((microbatch, self.ops.get(&(microbatch, s)).copied().unwrap_or(0)));
            stage.flying.len() - 1
        });
        stage.flying[at].1 = stage.flying[at].1.saturating_sub(1);
        if stage.flying[at].1 == 0 {
            stage.flying.remove(at);
        }
    }

    /// Finishes a statement, and the statements that take no time and waited for it only.
    fn finish(&mut self, n: usize, at: f64) {
        let mut list = vec![(n, at)];
        while let Some((n, at)) = list.pop() {
            self.demand(n);
            if let Some(stage) = self.tasks[n].stage {
                self.stages[stage].free_at = at;
            }
            // The list is a stack: the last element is popped first.
            for &next in self.before[n].iter().rev() {
                let task = &mut self.tasks[next];
                task.missing = task.missing.saturating_sub(1);
                task.ready_at = task.ready_at.max(at);
                if task.missing == 0 {
                    match task.stage {
                        Some(stage) => {
                            self.stages[stage].ready.insert(next);
                        }
                        None => list.push((next, at)),
                    }
                }
            }
        }
    }

    /// Appends a statement to the order, after its producers.
    fn demand(&mut self, n: usize) {
        let mut list = vec![n];
        while let Some(&n) = list.last() {
            let missing = self.tasks[n].after.iter().copied().filter(|&at| !self.done[at]);
            let missing: Vec<usize> = missing.collect();
            if missing.is_empty() || self.done[n] {
                list.pop();
                if !self.done[n] {
                    self.done[n] = true;
                    self.sequence.push(n);
                }
            } else {
                list.extend(missing);
            }
        }
    }
}

/// Returns the microbatch of each statement; `None` for shared statements.
fn microbatches(program: &Program) -> Vec<Option<usize>> {
    let (items, classes) = (program.statements(), classes(program));
    let is_tensor = |v: usize| program.values()[v].shape().iter().any(|&n| n > 1);
    // Union-find: values of one microbatch in forward have a common root.
    let mut leads: Vec<usize> = (0..classes.len()).collect();
    let mut of: Vec<bool> =
        (0..classes.len()).map(|v| classes[v] == ValueClass::Input && is_tensor(v)).collect();
    let marked = program.forward().len();
    for item in program.forward() {
        let mut taken = item.inputs().iter().map(|v| v.index()).filter(|&v| of[v] && is_tensor(v));
        let Some(first) = taken.next() else { continue };
        let taken: Vec<usize> = taken.chain(item.outputs().iter().map(|v| v.index())).collect();
        for v in taken {
            of[v] = true;
            let (a, b) = (end(&mut leads, first), end(&mut leads, v));
            leads[a.max(b)] = a.min(b);
        }
    }
    let mut microbatch: Vec<Option<usize>> =
        (0..classes.len()).map(|v| of[v].then(|| end(&mut leads, v))).collect();
    let mut list = Vec::with_capacity(items.len());
    for (n, item) in items.iter().enumerate() {
        let is = if n < marked {
            item.outputs().first().and_then(|v| microbatch[v.index()])
        } else {
            let mut all = item.inputs().iter().filter_map(|v| microbatch[v.index()]);
            all.next().filter(|one| all.all(|other| other == *one))
        };
        for v in item.outputs() {
            microbatch[v.index()] = is;
        }
        list.push(is);
    }
    list
}

/// Returns the root of a value; compresses the path.
fn end(leads: &mut [usize], mut v: usize) -> usize {
    while leads[v] != v {
        leads[v] = leads[leads[v]];
        v = leads[v];
    }
    v
}

/// Returns the stage of each value, and the number of stages: meshes with common ranks are one stage.
fn stages(program: &Program) -> (Vec<usize>, usize) {
    let meshes = program.meshes();
    let number = |v: &crate::Value| meshes.number(v.ty.value.mesh()).unwrap_or(0);
    let on: Vec<usize> = program.values().iter().map(number).collect();
    // Only meshes that hold a value count; every rank is in the first mesh.
    let used: u64 = on.iter().fold(0, |bits, &mesh| bits | 1 << mesh);
    let mut leads: Vec<usize> = (0..u64::BITS as usize).collect();
    for class in meshes.classes() {
        let mut shared = (0..leads.len()).filter(|&mesh| class & used & 1 << mesh != 0);
        let Some(first) = shared.next() else { continue };
        for mesh in shared.collect::<Vec<_>>() {
            let (a, b) = (end(&mut leads, first), end(&mut leads, mesh));
            leads[a.max(b)] = a.min(b);
        }
    }
    let mut numbers: Vec<usize> = Vec::new();
    let stage_of = on.iter().map(|&mesh| {
        let lead = end(&mut leads, mesh);
        numbers.iter().position(|known| *known == lead).unwrap_or_else(|| {
            numbers.push(lead);
            numbers.len() - 1
        })
    });
    let stage_of = stage_of.collect();
    (stage_of, numbers.len())
}
