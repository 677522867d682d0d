//! The properties of a cost model, as a check for any implementation.

use reshard_kernels::DType;
use std::sync::Arc;

use crate::Error;
use crate::model::load::{LevelTraffic, Span, StepTraffic, Traffic};
use crate::model::{CostModel, MinTraffic};
use crate::objective::Objective;
use crate::op::StepOp;
use crate::planner::Planner;
use reshard_sharding::{GroupPattern, Mesh, Sharding};

/// Maximum number of pairs of shardings for which plans are made.
const PAIRS: usize = 100;

/// Checks that a model satisfies the properties of [`CostModel`] for groups, loads and plans on a mesh.
///
/// The error is the first property that it violates, with the numbers. The check covers groups of every one
/// and two axes, loads over many sizes with each number raised in turn, and plans between placements of a 2-D
/// tensor.
///
/// ```
/// use std::sync::Arc;
/// use reshard_sharding::Mesh;
/// use reshard_planner::{Topology, check_cost_model};
/// check_cost_model(Arc::new(Topology::h100()), &"dp=2,tp=8".parse::<Mesh>()?)?;
/// # Ok::<(), reshard_planner::Error>(())
/// ```
#[allow(clippy::needless_pass_by_value, reason = "as a planner takes it")]
pub fn check_cost_model(model: Arc<dyn CostModel>, mesh: &Mesh) -> Result<(), Error> {
    let planner = Planner::new().cost_model(Arc::clone(&model))?;
    says_one_thing(&*model)?;
    costs_are_monotone(&*model, mesh)?;
    bounds_are_monotone(&*model)?;
    plans_keep_the_bounds(&*model, &planner, mesh)
}

fn broken<T>(reason: String) -> Result<T, Error> {
    Err(Error::Topology { reason })
}

/// Checks that the text is one line and the same each time.
fn says_one_thing(model: &dyn CostModel) -> Result<(), Error> {
    let (text, again) = (model.cache_key(), model.cache_key());
    if text.is_empty() || text.contains('\n') || text != again {
        return broken(format!(
            "the cache key of a cost model must be one line, equal on each call, not {text:?} and {again:?}"
        ));
    }
    Ok(())
}

/// Returns the groups of one axis, and of two.
fn groups(mesh: &Mesh) -> Result<Vec<GroupPattern>, Error> {
    let names: Vec<&str> = mesh.axes().iter().map(|a| a.name().as_str()).collect();
    let mut groups = Vec::new();
    for (i, a) in names.iter().enumerate() {
        groups.push(mesh.group_of_axes(&[a])?);
        for b in &names[i + 1..] {
            groups.push(mesh.group_of_axes(&[a, b])?);
        }
    }
    groups.retain(|g| g.size() > 1);
    Ok(groups)
}

/// Checks that a cost is a number from 0, that more bytes reduce neither it nor the floor of exchanges, and
/// that more peers do not reduce the floor.
fn costs_are_monotone(model: &dyn CostModel, mesh: &Mesh) -> Result<(), Error> {
    let levels = model.levels().len();
    for group in groups(mesh)? {
        let others = group.size() - 1;
        // Peers at as many levels as there are others, up to as many as fit at each.
        let talking = levels.min(others);
        let communicating = |op: &StepOp| op.communicates() && *op != StepOp::AllToAll;
        for op in StepOp::ALL.into_iter().filter(communicating) {
            for bytes in [0u64, 1, 1 << 10, 1 << 20, 1 << 40] {
                for peers in [1, 2, 4, others / talking].into_iter().filter(|peers| peers * talking <= others)
                {
                    Load { model, group: &group, op, bytes, peers, talking }.check()?;
                }
            }
        }
    }
    Ok(())
}

/// A load with the same bytes and peers at each of its inner levels.
struct Load<'a> {
    model: &'a dyn CostModel,
    group: &'a GroupPattern,
    op: StepOp,
    bytes: u64,
    peers: usize,
    /// Number of levels with peers.
    talking: usize,
}

/// The traffic of a load, and the bytes that are received and held.
type Numbers = (Traffic, [u64; 2]);

impl Load<'_> {
    fn step<'t>(&'t self, (traffic, received_and_held): &'t Numbers) -> StepTraffic<'t> {
        StepTraffic::counted(self.op, traffic, *received_and_held, Span::Group(self.group))
    }

    /// Returns the cost, or an error if it is not a number from 0.
    fn cost(&self, numbers: &Numbers) -> Result<f64, Error> {
        let load = self.step(numbers);
        let us = self.model.cost_us(&load);
        if us.is_finite() && us >= 0.0 && us.to_bits() == self.model.cost_us(&load).to_bits() {
            return Ok(us);
        }
        let text = self.model.cache_key();
        broken(format!("{text} returns {us} us for {load:?}: a cost must be finite and at least 0"))
    }

    fn floor(&self, numbers: &Numbers) -> f64 {
        self.model.exchange_floor_us(&self.step(numbers))
    }

    /// Raises each number in turn, and compares.
    fn check(&self) -> Result<(), Error> {
        let Load { bytes, peers, talking, .. } = *self;
        let at = LevelTraffic { bytes: bytes as f64, peers };
        let mut traffic = Traffic::from_elem(LevelTraffic::default(), self.model.levels().len());
        traffic[..talking].fill(at);
        let grown = |l: usize, to: LevelTraffic| {
            let mut grown = traffic.clone();
            grown[l] = to;
            (grown, [bytes; 2])
        };
        let more = bytes + 1 + bytes / 2;
        let mut larger = vec![(traffic.clone(), [more, bytes]), (traffic.clone(), [bytes, more])];
        larger.extend((0..talking).map(|l| grown(l, LevelTraffic { bytes: at.bytes * 1.5 + 1.0, ..at })));
        let numbers = (traffic.clone(), [bytes; 2]);
        let before = self.cost(&numbers)?;
        for larger in &larger {
            let after = self.cost(larger)?;
            if after < before {
                return self.less("the cost", [before, after], larger);
            }
        }
        if self.op != StepOp::Exchange {
            return Ok(());
        }
        let floor = self.floor(&numbers);
        if !(0.0..=before).contains(&floor) {
            return broken(format!(
                "{}: {:?} takes {before} us, less than its exchange_floor_us of {floor} us",
                self.model.cache_key(),
                self.step(&numbers)
            ));
        }
        let has_others = peers * talking < self.group.size() - 1;
        larger.extend(
            (0..talking).filter(|_| has_others).map(|l| grown(l, LevelTraffic { peers: peers + 1, ..at })),
        );
        for larger in &larger {
            let after = self.floor(larger);
            if after < floor {
                return self.less("the exchange_floor_us", [floor, after], larger);
            }
        }
        Ok(())
    }

    fn less(&self, what: &str, [before, after]: [f64; 2], larger: &Numbers) -> Result<(), Error> {
        let Load { group, op, bytes, peers, .. } = self;
        broken(format!(
            "{}: {what} of {op} over {group} is {before} us with {bytes} bytes from {peers} peers at each level, and \
             less, {after} us, with more: {:?}",
            self.model.cache_key(),
            self.step(larger)
        ))
    }
}

/// Checks that no need takes no time, and that a larger need takes no less time.
fn bounds_are_monotone(model: &dyn CostModel) -> Result<(), Error> {
    let levels = model.levels().len();
    let text = model.cache_key();
    let nothing = vec![MinTraffic { bytes: 0.0, domains: 1, domain_size: 1 }; levels];
    let none = model.lower_bound_us(&nothing);
    if none != 0.0 || model.lower_bound_us(&[]) != 0.0 {
        return broken(format!("{text}: without traffic the least time is 0, not {none} us"));
    }
    for l in 0..levels {
        let (mut least, mut last) = (0.0, 0.0);
        for bytes in [0.0, 1.0, 1e2, 1e3, 1e4, 1e5, 1e6, 1e8, 1e12] {
            for domains in [2, 8] {
                let mut need = nothing.clone();
                need[..=l].fill(MinTraffic { domains, ..MinTraffic::bytes(bytes) });
                let us = model.lower_bound_us(&need);
                // Sums in another order differ in the last digits.
                let ordered = us.is_finite() && us >= least * (1.0 - 1e-12);
                if !ordered {
                    return broken(format!(
                        "{text}: {bytes} bytes of {domains} domains beyond level {l} take {us} us at least, and fewer, {last} bytes, \
                         {least} us"
                    ));
                }
                if domains == 2 {
                    (least, last) = (us, bytes);
                }
            }
        }
    }
    Ok(())
}

/// Checks that no plan takes less than its bounds, and no step less than the least step.
fn plans_keep_the_bounds(model: &dyn CostModel, planner: &Planner, mesh: &Mesh) -> Result<(), Error> {
    let mut texts = vec![String::new()];
    for _ in mesh.axes() {
        let with =
            |text: &String, p: &str| if text.is_empty() { p.to_owned() } else { format!("{text},{p}") };
        texts =
            texts.iter().flat_map(|t| ["R", "S(0)", "S(1)", "P"].map(|p| with(t, p))).take(1 << 10).collect();
    }
    let side = mesh.size().saturating_mul(8).min(1 << 20);
    let shardings: Vec<Sharding> =
        texts.iter().map(|text| Sharding::parse(mesh, &[side, side], text)).collect::<Result<_, _>>()?;
    let all = shardings.len() * shardings.len();
    let least = model.lower_bound_us(&MinTraffic::STEP);
    for pair in (0..all).step_by(all.div_ceil(PAIRS) | 1) {
        let (from, to) = (&shardings[pair / shardings.len()], &shardings[pair % shardings.len()]);
        for objective in Objective::ALL {
            let planner = planner.clone().objective(objective);
            let plan = planner.plan(from, to, DType::F32)?;
            let bound = planner.lower_bound_us(from, to, DType::F32)?.max(plan.lower_bound_us());
            // Sums in another order differ in the last digits.
            if plan.cost_us() < bound * (1.0 - 1e-9) {
                return broken(format!(
                    "{}: a plan takes {} us, less than its lower_bound_us of {bound} us: {plan}",
                    model.cache_key(),
                    plan.cost_us()
                ));
            }
            for step in plan.steps().iter().filter(|s| s.op().communicates()) {
                if step.cost_us < least * (1.0 - 1e-9) {
                    return broken(format!(
                        "{}: a step takes {} us, less than the lower_bound_us of {least} us of every step: {step}",
                        model.cache_key(),
                        step.cost_us
                    ));
                }
            }
        }
    }
    Ok(())
}
