//! Builds the report: the pass of each statement, the rows of redistributions, and the sums.

use std::borrow::Cow;
use std::collections::BTreeMap;

use reshard_planner::Plan;
use rustc_hash::FxHashMap;

use crate::backward_work::{BackwardWorks, Local, shard};
use crate::graph::{ValueId, gradient_name, gradient_of};
use crate::in_kernels::Computing;
use crate::program::{Program, Statement, moved_name, stem};
use crate::report::peak::{Lives, ValueClass, Walk};
use crate::report::{
    CommCost, CommScope, Pass, PerPass, RedistributionReport, Report, StepReport, ValueReport,
};
use crate::{ComputeRates, Meshes};

/// Facts on a program that precede the sums.
pub(super) struct Known<'a> {
    pub(super) program: &'a Program,
    /// The pass of each statement.
    pub(super) passes: Vec<Pass>,
    /// The index of the statement that produces each value.
    pub(super) made: Vec<usize>,
    /// The value below `no_grad` that is the gradient of each value.
    pub(super) gradients: Vec<Option<ValueId>>,
    /// The updated version of each value: `w'` for `w`.
    pub(super) updates: Vec<Option<ValueId>>,
    /// The mesh combinations of ranks, as bit masks with one bit per mesh.
    pub(super) classes: Vec<u64>,
    /// The mesh number of each value.
    on: Vec<usize>,
}

impl<'a> Known<'a> {
    fn of(program: &'a Program) -> Known<'a> {
        let items = program.statements();
        let (marked, made) = (program.forward().len(), program.makers());
        let (mut gradients, mut updates) = (vec![None; made.len()], vec![None; made.len()]);
        let mut needed = vec![false; made.len()];
        for (v, value) in program.values().iter().enumerate() {
            let of = |d: &ValueId| program.get(*d);
            updates[v] = program
                .value(&format!("{}'", value.name))
                .filter(|d| (of(d).shape(), of(d).dtype) == (value.shape(), value.dtype));
            if made[v] > marked {
                continue;
            }
            let below = program.value(&gradient_name(&value.name)).filter(|d| made[d.0] > marked);
            gradients[v] = below.filter(|d| Some(&of(d).ty.value) == value.ty.gradient.as_ref());
            if let Some(d) = gradients[v] {
                needed[d.0] = true;
            }
        }
        let mut passes = vec![Pass::Forward; items.len()];
        for (n, item) in items.iter().enumerate().skip(marked).rev() {
            let (takes, makes) = (item.inputs(), item.outputs());
            passes[n] = Pass::Update;
            if makes.iter().any(|v| needed[v.0]) {
                passes[n] = Pass::Backward;
                for v in takes {
                    needed[v.0] = true;
                }
            }
        }
        let on =
            program.values().iter().map(|v| program.meshes.number(v.ty.value.mesh()).unwrap_or(0)).collect();
        Known { program, passes, made, gradients, updates, classes: program.meshes.classes(), on }
    }

    /// Returns the facts, and the class of each value; an updated value has the class of the original.
    pub(super) fn with_classes(program: &'a Program) -> (Known<'a>, Vec<ValueClass>) {
        let mut known = Known::of(program);
        let mut classes: Vec<ValueClass> =
            (0..program.values.len()).map(|v| known.class(ValueId(v))).collect();
        for v in 0..classes.len() {
            if let (ValueClass::Parameter | ValueClass::State, Some(u)) = (classes[v], known.updates[v]) {
                classes[u.0] = classes[v];
            }
        }
        // Only a parameter or state input has an update: not `w'`, even if `w''` updates it.
        for (v, update) in known.updates.iter_mut().enumerate() {
            let is_input = matches!(program.statements()[known.made[v]], Statement::Input(_));
            if !is_input || !matches!(classes[v], ValueClass::Parameter | ValueClass::State) {
                *update = None;
            }
        }
        (known, classes)
    }

    /// Returns `true` if ranks in these meshes hold a part of a value.
    pub(super) fn holds(&self, class: u64, v: usize) -> bool {
        class >> self.on[v] & 1 == 1
    }

    /// Returns `true` if the program states some gradient.
    pub(super) fn is_differentiated(&self) -> bool {
        self.gradients.iter().any(Option::is_some)
    }

    pub(super) fn class(&self, v: ValueId) -> ValueClass {
        let is = &self.program.get(v).ty;
        if let Statement::Input(_) = self.program.statements()[self.made[v.0]] {
            return if self.gradients[v.0].is_some() {
                ValueClass::Parameter
            } else if self.updates[v.0].is_none() {
                ValueClass::Input
            } else if is.gradient.is_some() {
                ValueClass::Parameter
            } else {
                ValueClass::State
            };
        }
        match self.passes[self.made[v.0]] {
            Pass::Forward => ValueClass::Activation,
            Pass::Backward | Pass::Update => ValueClass::Gradient,
        }
    }
}

/// Returns the class of each value of a program.
pub(crate) fn classes(program: &Program) -> Vec<ValueClass> {
    Known::with_classes(program).1
}

impl Program {
    /// Returns the lifetimes of its values on a rank.
    pub(crate) fn lives(&self, rank: usize) -> Lives {
        Walk::of(self).lives(self.meshes.class(rank))
    }

    /// Returns the live memory during each statement, in order.
    ///
    /// It is that of the ranks of [`Report::peak`]: the first mesh combination with the highest peak.
    ///
    /// ```
    /// use reshard_program::{Program, ComputeRates};
    /// let program: Program = "mesh x=2\nx: f32[8] S(0)\ny = relu(x)\nz = neg(y)".parse()?;
    /// let bytes: Vec<u64> = program.memory_timeline().iter().map(|moment| moment.bytes).collect();
    /// assert_eq!(bytes, [16, 32, 48]); // the input is live to the end, and y until z is computed
    /// assert_eq!(program.report(&ComputeRates::uniform()).peak, program.memory_timeline()[2]);
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn memory_timeline(&self) -> Vec<super::Peak> {
        Walk::of(self).moments()
    }

    /// Returns the report on communication, computing and memory at these compute rates.
    pub fn report(&self, rates: &ComputeRates) -> Report {
        let walk = Walk::of(self);
        let Walk { known, classes, .. } = &walk;
        let values =
            (self.values.iter().zip(classes).zip(&known.made)).map(|((value, &class), &n)| ValueReport {
                name: value.name.clone(),
                dtype: value.dtype,
                ty: value.ty.clone(),
                text: value.type_text(&self.meshes),
                value_text: value.value_text(&self.meshes),
                class,
                pass: known.passes[n],
            });
        // Computing and memory of communication dtypes are those of the lowered program.
        let wired = match self.lower_comm_dtypes() {
            Ok(Cow::Owned(wired)) => Some(wired),
            Ok(Cow::Borrowed(_)) | Err(_) => None,
        };
        let carried = wired.as_ref().map(Walk::of);
        let carried = carried.as_ref().unwrap_or(&walk);
        let (operations, compute_us) = carried.known.computing(rates);
        let mut report = Report {
            meshes: self.meshes.clone(),
            values: values.collect(),
            redistributions: known.moves(),
            traffic: PerPass::default(),
            by_axes: BTreeMap::new(),
            operations,
            compute_us,
            peak: carried.peak(),
            has_explicit_backward: known.is_differentiated(),
            optimality_gap_us: self.optimality_gap_us(),
            notes: self.notes(),
        };
        let Report { redistributions: moves, traffic, by_axes, .. } = &mut report;
        for row in moves {
            for pass in Pass::ALL {
                traffic.of_mut(pass).add(row.traffic.of(pass).unwrap_or_default());
            }
            for step in &row.steps {
                by_axes.entry(step.over.clone()).or_default().of_mut(step.pass).add(step.traffic);
            }
        }
        report
    }
}

impl Known<'_> {
    /// Returns, by pass, the operations of the worst rank and the compute time of the slowest rank.
    fn computing(&self, rates: &ComputeRates) -> (PerPass<f64>, PerPass<f64>) {
        let (mut operations, mut time) = (PerPass::<f64>::default(), PerPass::<f64>::default());
        let computing = Computing::of(self.program, rates);
        let mut works = BackwardWorks::default();
        for &class in &self.classes {
            let (n, us) = self.computing_of(class, &computing, &mut works);
            for pass in Pass::ALL {
                *operations.of_mut(pass) = operations.of(pass).max(*n.of(pass));
                *time.of_mut(pass) = time.of(pass).max(*us.of(pass));
            }
        }
        (operations, time)
    }

    /// Returns the same for the ranks in these meshes.
    fn computing_of(
        &self,
        class: u64,
        computing: &Computing<'_>,
        works: &mut BackwardWorks,
    ) -> (PerPass<f64>, PerPass<f64>) {
        let (mut operations, mut time) = (PerPass::<f64>::default(), PerPass::<f64>::default());
        for (n, (item, &pass)) in self.program.statements().iter().zip(&self.passes).enumerate() {
            let Statement::Op { call, op, inputs, outputs, operations: own, .. } = item else { continue };
            if !outputs.iter().any(|v| self.holds(class, v.0)) {
                continue;
            }
            *operations.of_mut(pass) += own;
            *time.of_mut(pass) += computing.us(n);
            let has = |v: &ValueId| self.program.get(*v).ty.gradient.is_some();
            if !self.is_differentiated() && outputs.iter().any(has) {
                let values = inputs.iter().chain(outputs).map(|v| self.program.get(*v));
                let wanted: Vec<bool> = inputs.iter().map(has).collect();
                let dtypes = values.clone().map(|value| value.dtype).collect();
                let Some(back) = works.of(&self.program.table, (call, op), dtypes, &wanted) else { continue };
                let shards: Vec<Local> = values.map(|value| shard(&value.ty.value)).collect();
                let (takes, makes) = shards.split_at(inputs.len());
                let work = back.local(takes, makes, computing.rates());
                operations.backward += work.operations;
                time.backward += work.us;
            }
        }
        (operations, time)
    }

    /// Returns a row for each redistribution, except those that are the backward of another.
    fn moves(&self) -> Vec<RedistributionReport> {
        let written = self.is_differentiated();
        let meshes = &self.program.meshes;
        let mut takers: Vec<Option<usize>> = vec![None; self.made.len()];
        for (n, item) in self.program.statements().iter().enumerate() {
            for v in item.inputs() {
                takers[v.0] = takers[v.0].or(Some(n));
            }
        }
        let mut rows: Vec<RedistributionReport> = Vec::new();
        let mut waiting = Waiting::default();
        for (item, &pass) in self.program.statements().iter().zip(&self.passes) {
            let Statement::Redistribute { from, to, forward, backward, .. } = item else { continue };
            let (source, made) = (self.program.get(*from), self.program.get(*to));
            let (traffic, steps) = carried_out(meshes, forward, pass);
            let mirror = (pass == Pass::Backward).then(|| mirrored(&mut waiting, &made.name, forward));
            if let Some(row) = mirror.flatten() {
                rows[row].traffic.backward = Some(traffic);
                rows[row].steps.extend(steps);
                continue;
            }
            let (value, at) = self.place(&source.name, &made.name, takers[to.0]);
            let mut row = RedistributionReport {
                value: value.to_owned(),
                consumer: at.to_owned(),
                result: made.name.clone(),
                from: source.ty.clone(),
                to: made.ty.clone(),
                texts: [source, made].map(|v| match pass {
                    Pass::Forward => v.type_text(meshes),
                    Pass::Backward | Pass::Update => v.value_text(meshes),
                }),
                traffic: PerPass::default(),
                steps,
            };
            *row.traffic.of_mut(pass) = Some(traffic);
            if let Some(plan) = backward {
                if plan.steps().is_empty() {
                    // The plan is empty, so the program has no statement for it.
                    row.traffic.backward = Some(CommCost::default());
                } else if written {
                    waiting.entry(&source.name).or_default().push((rows.len(), plan));
                } else {
                    let (traffic, steps) = carried_out(meshes, plan, Pass::Backward);
                    row.traffic.backward = Some(traffic);
                    row.steps.extend(steps);
                }
            }
            rows.push(row);
        }
        rows
    }

    /// Returns the name of a redistributed value in the text, and the name of its consumer.
    ///
    /// For `x.1: .. = x` the consumer is the first op that takes it. For `y: .. = y.1` and `y: .. = x`, which
    /// the text states, it is the result.
    fn place<'b>(&'b self, from: &'b str, made: &'b str, taker: Option<usize>) -> (&'b str, &'b str) {
        let value = moved_name(from, made);
        if value == made || stem(made) != value {
            return (value, made);
        }
        let by = taker.and_then(|n| self.program.statements()[n].outputs().first());
        (value, by.map_or(made, |&v| self.program.get(v).name.as_str()))
    }
}

/// Rows and backward plans of redistributions whose backward is still to be found, by the name of the source.
type Waiting<'a> = FxHashMap<&'a str, Vec<(usize, &'a Plan)>>;

/// Returns the row of the redistribution of `v` whose backward produces `dv` or `dv.7` by this plan.
fn mirrored(waiting: &mut Waiting<'_>, made: &str, plan: &Plan) -> Option<usize> {
    [made, stem(made)].into_iter().find_map(|name| {
        let rows = waiting.get_mut(gradient_of(name)?)?;
        let same = |(_, p): &(usize, &Plan)| (p.from(), p.to()) == (plan.from(), plan.to());
        let at = rows.iter().position(same)?;
        Some(rows.remove(at).0)
    })
}

/// Returns the bytes of the largest shard of a value.
pub(crate) fn local_bytes(value: &crate::Value) -> u64 {
    (value.ty.value.max_local_numel() as u64).saturating_mul(value.dtype.bits() as u64).div_ceil(8)
}

/// Returns the communication of a plan in a pass, and its communicating steps.
fn carried_out(meshes: &Meshes, plan: &Plan, pass: Pass) -> (CommCost, Vec<StepReport>) {
    let steps: Vec<StepReport> = (plan.steps().iter())
        .filter(|step| step.op().communicates())
        .map(|step| StepReport {
            pass,
            op: step.op(),
            over: CommScope::of(meshes, step),
            group: step.group.to_string(),
            traffic: CommCost { steps: 1, received_bytes: step.received_bytes, cost_us: step.cost_us },
        })
        .collect();
    let (received_bytes, cost_us) = (plan.received_bytes(), plan.cost_us());
    (CommCost { steps: steps.len(), received_bytes, cost_us }, steps)
}
