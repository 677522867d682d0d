//! Assembles plans from known steps: their peak memory, the bytes that one rank receives over all steps, and
//! the lower bounds of every plan.

use std::sync::Arc;

use reshard_layout::{AxisStride, Mode};

use crate::Error;
use crate::budget::Effort;
use crate::model::MinTraffic;
use crate::objective::Objective;
use crate::plan::Plan;
use crate::problem::COUNTED;
use crate::problem::Question;
use crate::regions::intersection::Intersection;
use crate::regions::need::{Needed, needs};
use crate::regions::tally::{Tally, local_numels};
use crate::states::ends::Ends;
use crate::states::system::{codes, is_local};
use crate::step::{Action, Moves, Step};
use reshard_sharding::internal::{chunk, digit, ranks_of_both};

/// Returns the plan of these steps, with its bounds.
///
/// The bytes that one rank receives over all steps are counted rank by rank, unless the caller knows them.
pub(crate) fn assemble(
    q: &Question<'_>,
    steps: Vec<Step>,
    ends: Option<&Ends>,
    received: Option<u64>,
) -> Result<Plan, Error> {
    let mut plan = assemble_unbounded(q, steps, received)?;
    plan.bound(q, ends)?;
    Ok(plan)
}

/// Assembles the plan of these steps without its bounds.
pub(crate) fn assemble_unbounded(
    q: &Question<'_>,
    steps: Vec<Step>,
    received: Option<u64>,
) -> Result<Plan, Error> {
    let [from, to] = q.shared().clone();
    let mut shards = from.max_local_numel().max(to.max_local_numel());
    let mut peak = shards as u64 * q.item;
    for s in &steps {
        peak = peak.max(s.peak_bytes);
        shards = shards.max(s.after.max_local_numel());
    }
    let mut plan = Plan {
        from,
        to,
        options: q.options.clone(),
        dtype: q.dtype,
        received_bytes: received.unwrap_or_else(|| steps.iter().map(|s| s.received_bytes).sum()),
        steps,
        lower_bound_bytes: None,
        lower_bound_us: 0.0,
        lower_bound_cut: None,
        effort: Effort::default(),
        peak_bytes: peak,
        max_shard_bytes: shards as u64 * q.item,
    };
    let ranks = plan.from.mesh().size().max(plan.to.mesh().size());
    let alike = |s: &Step| q.on_one_mesh() && is_same_for_all(s);
    let differ = || plan.steps.iter().filter(|s| !alike(s)).count() > 1;
    if received.is_none() && ranks <= COUNTED && differ() {
        plan.received_bytes = received_by_rank(q, &plan.steps)?.into_iter().max().unwrap_or(0);
    }
    Ok(plan)
}

impl Question<'_> {
    /// Returns the traffic that every plan needs over each level, in all alternatives.
    ///
    /// It is empty if all digits are local.
    fn needs(&self, ends: Option<&Ends>) -> Result<Needed, Error> {
        match ends {
            Some(ends) if ends.from.iter().zip(&ends.to).all(|(&a, &b)| is_local([a, b])) => {
                Ok(Needed::default())
            }
            Some(ends) => {
                let (s, t) = (codes(&ends.from, &ends.from), codes(&ends.to, &ends.from));
                Ok(Needed::one(self.needs_between(&ends.bounding, [&s, &t]), self.item))
            }
            None => needs(&self.network, self.from, self.to, self.item),
        }
    }

    /// Returns the bytes that the worst rank receives at least, rounded up to whole elements.
    fn least_bytes_of(&self, needs: &Needed) -> u64 {
        (needs.received - 1e-6).max(0.0).ceil() as u64 * self.item
    }

    /// Returns a lower bound of the bytes that the worst rank receives, for partial targets too.
    pub(crate) fn least_bytes(&self) -> Result<u64, Error> {
        Ok(self.least_bytes_of(&self.needs(self.ends().as_ref())?))
    }

    /// Returns the lower bound in bytes, and that of the time of any plan in microseconds.
    pub(crate) fn least_bytes_and_us(&self) -> Result<(u64, f64), Error> {
        let needs = self.needs(self.ends().as_ref())?;
        Ok((self.least_bytes_of(&needs), self.bound_of_needs(&needs)))
    }

    /// Returns the least time of a plan that communicates, given its needs from beyond each level.
    pub(crate) fn time_needed(&self, needs: &[MinTraffic]) -> f64 {
        let bound = self.network.model.least_us(needs);
        if bound > 0.0 { bound } else { self.network.model.least_us(&MinTraffic::STEP) }
    }

    /// Returns the time bound of the worst of these needs, 0 if they are empty.
    pub(crate) fn bound_of_needs(&self, needs: &Needed) -> f64 {
        let ways = needs.ways.iter().filter(|needs| needs.iter().any(|n| n.bytes > 0.0));
        ways.map(|needs| self.time_needed(needs)).fold(0.0, f64::max)
    }
}

impl Plan {
    /// Fills in the lower bounds: the time, and the bytes unless the target is partial.
    pub(crate) fn bound(&mut self, q: &Question<'_>, ends: Option<&Ends>) -> Result<(), Error> {
        (self.lower_bound_bytes, self.lower_bound_us) = (Some(0), 0.0);
        if q.is_trivial() {
            self.lower_bound_bytes = (!q.to.is_partial()).then_some(0);
            return Ok(());
        }
        let needs = q.needs(ends)?;
        self.lower_bound_cut = needs.cut;
        self.lower_bound_us = match ends {
            // Without digits it is unknown whether any communication is necessary.
            None => q.bound_of_needs(&needs),
            Some(_) if needs.ways.is_empty() => 0.0,
            Some(_) => needs.ways.iter().map(|needs| q.time_needed(needs)).fold(0.0, f64::max),
        };
        let bytes = q.least_bytes_of(&needs);
        self.lower_bound_bytes = (!q.to.is_partial()).then_some(bytes);
        // With time as the objective and no limits, a plan that communicates proves that none without
        // communication exists, unless the budget ran out.
        let free = q.options.objective == Objective::Time && !q.options.is_limited();
        let talks = self.communicating_steps() > 0 && !self.is_budget_exhausted();
        if self.lower_bound_us == 0.0 && q.to.is_partial() && free && talks {
            self.lower_bound_us = q.time_needed(&[]);
        }
        Ok(())
    }
}

/// Returns `true` if every rank receives the same number of bytes in a step.
fn is_same_for_all(s: &Step) -> bool {
    match &*s.action {
        Action::Slice(_)
        | Action::ZeroFill(_)
        | Action::AllGather(Moves::Modes { .. })
        | Action::AllToAll(Moves::Modes { .. })
        | Action::ReduceScatter(Moves::Modes { .. }, _)
        | Action::OrderedReduce(Moves::Modes { .. }, _) => true,
        Action::AllReduce(_) => {
            s.before.layout().is_some() && s.before.max_local_numel().is_multiple_of(s.group.size())
        }
        Action::Exchange(_)
        | Action::AllGather(Moves::Regions(_))
        | Action::AllToAll(Moves::Regions(_))
        | Action::ReduceScatter(Moves::Regions(_), _)
        | Action::OrderedReduce(Moves::Regions(_), _)
        | Action::Transposed(_) => false,
    }
}

/// Returns the bytes that each rank of both meshes receives in the given steps.
pub(crate) fn received_by_rank(q: &Question<'_>, steps: &[Step]) -> Result<Vec<u64>, Error> {
    let ranks = ranks_of_both(q.from.mesh(), q.to.mesh());
    let mut totals = vec![0u64; ranks.len()];
    for step in steps {
        let mut add = |rank: usize, numel: u64| {
            if let Ok(at) = ranks.binary_search(&rank) {
                totals[at] += numel;
            }
        };
        let mesh = step.before.mesh();
        if mesh == step.after.mesh() && is_same_for_all(step) {
            let numel = step.received_bytes / q.item;
            mesh.ranks().for_each(|rank| add(rank, numel));
            continue;
        }
        match &*step.action {
            // Tables know the counts if regions are only transferred, or reduced in place.
            Action::Slice(Moves::Regions(regions))
            | Action::ZeroFill(Moves::Regions(regions))
            | Action::AllGather(Moves::Regions(regions))
            | Action::AllToAll(Moves::Regions(regions))
            | Action::Exchange(Moves::Regions(regions)) => {
                if let Some(tally) = Tally::new(&Arc::new(Intersection::clone(regions)))? {
                    tally.each_rank(&mut |rank, seen| add(rank, seen.received() as u64));
                } else {
                    let (grids, meetings) = (regions.grids(), regions.meetings()?);
                    for &rank in &ranks {
                        let others = &mut |peer, n| add(rank, if peer == rank { 0 } else { n as u64 });
                        regions.pulls(&grids, rank, &meetings, others);
                    }
                }
            }
            Action::ReduceScatter(Moves::Regions(regions), reduction)
            | Action::OrderedReduce(Moves::Regions(regions), reduction) => {
                let others: u64 = reduction.modes.iter().map(|m| m.extent as u64).product::<u64>() - 1;
                for (i, numel) in local_numels(&regions.to)?.into_iter().enumerate() {
                    let rank = mesh.coordinate_at(i).and_then(|c| mesh.rank_at(&c));
                    if let Some(rank) = rank {
                        add(rank, others * numel);
                    }
                }
            }
            Action::AllReduce(reduction) => {
                let size = |m: &Mode<AxisStride>| m.extent as usize;
                let g: usize = reduction.modes.iter().map(size).product();
                for (i, numel) in local_numels(&step.before)?.into_iter().enumerate() {
                    let Some(c) = mesh.coordinate_at(i) else { continue };
                    let mine = reduction.modes.iter().fold(0, |i, &m| i * size(&m) + digit(&c, m) as usize);
                    let piece = chunk(numel as usize, g, mine).len as u64;
                    let received = (g as u64 - 1) * piece + numel - piece;
                    if let Some(rank) = mesh.rank_at(&c) {
                        add(rank, received);
                    }
                }
            }
            Action::Slice(Moves::Modes { .. })
            | Action::ZeroFill(Moves::Modes { .. })
            | Action::AllGather(Moves::Modes { .. })
            | Action::AllToAll(Moves::Modes { .. })
            | Action::Exchange(Moves::Modes { .. })
            | Action::ReduceScatter(Moves::Modes { .. }, _)
            | Action::OrderedReduce(Moves::Modes { .. }, _)
            | Action::Transposed(_) => {
                for &rank in &ranks {
                    for phase in step.phases(rank)? {
                        let others = phase.receives.iter().filter(|m| m.peer != rank);
                        add(rank, others.map(|m| m.numel() as u64).sum());
                    }
                }
            }
        }
    }
    for total in &mut totals {
        *total *= q.item;
    }
    Ok(totals)
}
