//! The plan of a greedy planner: one mesh axis at a time, each by the collective between its two placements.
//!
//! This is what frameworks do by default, and a baseline to compare a plan with. Placements apply from the
//! outermost axis inwards. So an axis can change only while no axis further in shards the same dim by another
//! rule:
//!
//! ```text
//! from the innermost axis out:  where the target shards a dim that the axes further out shard differently still:
//!                               replicate this axis; otherwise go to the target's placement at once
//! from the outermost axis in:   go to the target's placement
//!
//! S -> R all-gather    P -> R all-reduce     R -> S slice                 -> P  zero-fill
//! S -> S all-to-all    P -> S reduce-scatter
//! ```
//!
//! Shardings that placements cannot express are replicated axis by axis and then sliced.

use reshard_layout::AxisStride;
use smallvec::SmallVec;

use crate::Error;
use crate::candidates::Leg;
use crate::candidates::regions::{self, Legs};
use crate::op::StepOp;
use crate::problem::{Question, refuse_avg_of_shards};
use crate::states::closed_form::{Move, Route};
use crate::states::system::{Place, Stands, State};
use crate::step::Step;
use reshard_sharding::{Placement, Sharding};

/// Returns the path of a greedy planner on one mesh.
pub(crate) fn way(q: &Question<'_>) -> Result<Legs, Error> {
    let mut legs = Legs::new();
    if !q.is_trivial() {
        for pair in stages(q.from, q.to)?.windows(2) {
            legs.extend(hop(q, &pair[0], &pair[1])?);
        }
    }
    Ok(legs)
}

/// Returns the one or two steps between shardings that differ in one axis.
fn hop(q: &Question<'_>, before: &Sharding, after: &Sharding) -> Result<Legs, Error> {
    if before == after {
        return Ok(Legs::new());
    }
    if let Some(steps) = steps_of_digits(q, before, after)? {
        return Ok(steps.into_iter().map(|step| Leg::Step(Box::new(step))).collect());
    }
    let free = q.options.free();
    let hop = q.part(&free, before, after);
    if hop.ends().is_some() {
        return Ok(vec![Leg::Plan { to: after.clone() }]);
    }
    // The last path reduces straight onto the target; the first reduces onto all ranks.
    Ok(regions::ways(&hop)?.all.pop().unwrap_or_default())
}

/// Returns the digit step between two shardings; `None` if it takes none or several.
pub(crate) fn step_of_digits(
    q: &Question<'_>,
    before: &Sharding,
    after: &Sharding,
) -> Result<Option<Step>, Error> {
    refuse_avg_of_shards(before, after)?;
    let steps = steps_of_digits(q, before, after)?.unwrap_or_default();
    let is_one = steps.len() == 1;
    Ok(steps.into_iter().next().filter(|_| is_one))
}

/// Returns the digit steps between two shardings; `None` unless digits nest and do one thing.
fn steps_of_digits(
    q: &Question<'_>,
    before: &Sharding,
    after: &Sharding,
) -> Result<Option<Vec<Step>>, Error> {
    // The steps of digits do not depend on limits, so the options stay as they are.
    let hop = q.part(q.options, before, after);
    let Some(ends) = hop.ends() else { return Ok(None) };
    let Some(moves) = moves(&ends.from, &ends.to) else { return Ok(None) };
    hop.steps(&Route { system: ends.system, moves }).map(Some)
}

/// Returns one collective, or a reduction and its embedding as another op.
///
/// It is `None` where digits do different things.
fn moves(s: &State, t: &State) -> Option<SmallVec<[Move; 4]>> {
    let mut ops: SmallVec<[StepOp; 4]> = SmallVec::new();
    let mut reduced = s.clone();
    for (d, (&a, &b)) in s.iter().zip(t).enumerate().filter(|(_, (a, b))| a != b) {
        let op = match (a.stands(), b.stands()) {
            (Stands::Replicated, Stands::At(_)) => StepOp::Slice,
            (Stands::At(_), Stands::At(_)) => StepOp::Exchange,
            (Stands::At(_), Stands::Replicated) => StepOp::AllGather,
            (Stands::Partial(_), Stands::At(_)) => StepOp::ReduceScatter,
            (Stands::Partial(_), Stands::Replicated) => StepOp::AllReduce,
            (Stands::Partial(_), Stands::Partial(_)) => {
                reduced[d] = Place::REPLICATED;
                StepOp::ZeroFill
            }
            (Stands::At(_) | Stands::Replicated, Stands::Partial(_)) => StepOp::ZeroFill,
            (Stands::Replicated, Stands::Replicated) => continue,
        };
        if !ops.contains(&op) {
            ops.push(op);
        }
    }
    let op = match ops.as_slice() {
        [] => return Some(SmallVec::new()),
        [one] => *one,
        many => {
            let moves =
                |op: &StepOp| *op == StepOp::Slice || *op == StepOp::Exchange || *op == StepOp::AllGather;
            if !many.iter().all(moves) {
                return None;
            }
            StepOp::Exchange
        }
    };
    let mut out = SmallVec::new();
    if reduced != *s {
        out.push(Move { op: StepOp::AllReduce, before: s.clone(), after: reduced.clone() });
    }
    out.push(Move { op, before: reduced, after: t.clone() });
    Some(out)
}

/// Returns the shardings that a greedy planner goes through, source and target included.
pub(crate) fn stages(from: &Sharding, to: &Sharding) -> Result<Vec<Sharding>, Error> {
    // Placements may be unable to express an end, and ragged ones an intermediate sharding.
    placed(from, to).or_else(|_| through_replicas(from, to))
}

fn placed(from: &Sharding, to: &Sharding) -> Result<Vec<Sharding>, Error> {
    let (mut now, target) = (from.placements()?, to.placements()?);
    let mut stages = vec![from.clone()];
    let go = |now: &[Placement], stages: &mut Vec<Sharding>| -> Result<(), Error> {
        stages.push(Sharding::new(from.mesh(), from.shape(), now)?);
        Ok(())
    };
    for axis in (0..now.len()).rev() {
        let shards = |list: &[Placement], dim| -> SmallVec<[usize; 4]> {
            (0..axis).filter(|&a| list[a].dim() == Some(dim)).collect()
        };
        let blocked = match &target[axis] {
            Placement::Shard(dim)
            | Placement::StridedShard { dim, .. }
            | Placement::Ragged { dim, .. }
            | Placement::Custom { dim, .. } => shards(&now, *dim) != shards(&target, *dim),
            // Partial values of two ops cannot coexist, so the existing ones are reduced first.
            Placement::Partial(_) => {
                now.iter().any(|p| *p != target[axis] && matches!(p, Placement::Partial(_)))
            }
            Placement::Replicate => false,
        };
        let wanted = if blocked { Placement::Replicate } else { target[axis].clone() };
        if now[axis] != wanted {
            now.0[axis] = wanted;
            go(&now, &mut stages)?;
        }
    }
    for axis in 0..now.len() {
        if now[axis] != target[axis] {
            now.0[axis] = target[axis].clone();
            go(&now, &mut stages)?;
        }
    }
    // Placements may write one sharding in two forms; the last stage has to be the target itself.
    if stages.last() != Some(to) {
        stages.push(to.clone());
    }
    Ok(stages)
}

/// Returns the stages that replicate axis by axis from the innermost, and then slice.
fn through_replicas(from: &Sharding, to: &Sharding) -> Result<Vec<Sharding>, Error> {
    let mut stages = vec![from.clone()];
    let Some(modes) = from.modes() else { return Ok(vec![from.clone(), to.clone()]) };
    for axis in (0..from.mesh().axes().len()).rev() {
        let goes = |at: AxisStride| at.axis().is_some_and(|a| a as usize >= axis);
        let kept = modes.iter().map(|m| m.map(|at| if goes(at) { AxisStride::local(1) } else { at }));
        let partial = from.partial().iter().copied().filter(|p| p.sub.axis < axis);
        let next = from.with_modes(kept).with_partial(partial)?;
        if stages.last() != Some(&next) {
            stages.push(next);
        }
    }
    stages.push(to.clone());
    Ok(stages)
}
