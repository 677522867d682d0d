//! The plan of a greedy planner: one mesh axis at a time, each by the collective between its two placements.
//!
//! What frameworks do by default, to set a plan beside. Placements apply from the outermost axis in, so an axis can only
//! change while nothing further in shards the same dim by another rule:
//!
//! ```text
//! from the innermost axis out:  where the target shards a dim that the axes further out do not shard alike yet:
//!                               replicate this axis; otherwise go to the target's placement at once
//! from the outermost axis in:   go to the target's placement
//!
//! S -> R all-gather    P -> R all-reduce     R -> S slice                 -> P  zero-fill
//! S -> S all-to-all    P -> S reduce-scatter
//! ```
//!
//! Shardings that placements cannot hold are replicated axis by axis and sliced.

use reshard_layout::At;
use smallvec::SmallVec;

use crate::redistribute::closed_form::{Candidate, Move};
use crate::redistribute::plan::Plan;
use crate::redistribute::planner::{Planner, Work};
use crate::redistribute::step::{Step, StepOp};
use crate::redistribute::system::{Place, State};
use crate::{Error, Placement, Sharding};

impl Planner {
    /// The plan that a greedy planner makes axis by axis, costed on the same network; `None` between two meshes, where
    /// there are no axes to go by. It keeps to no limit of memory or groups.
    ///
    /// ```
    /// use reshard_sharding::{Mesh, Sharding, redistribute::Planner};
    /// let mesh: Mesh = "x=2,y=2".parse()?;
    /// let from = Sharding::parse(&mesh, &[64, 64], "S(0),S(1)")?;
    /// let to = Sharding::parse(&mesh, &[64, 64], "S(1),S(0)")?;
    /// let greedy = Planner::new().greedy(&from, &to, 4)?.unwrap();
    /// let ours = Planner::new().plan(&from, &to, 4)?;
    /// assert_eq!(greedy.communicating_steps(), 2);
    /// assert!(ours.received_bytes() < greedy.received_bytes());
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    pub fn greedy(&self, from: &Sharding, to: &Sharding, item_bytes: usize) -> Result<Option<Plan>, Error> {
        Planner::check(from, to, item_bytes)?;
        if from.mesh() != to.mesh() {
            return Ok(None);
        }
        let work = Work::new(self, from, to, item_bytes as u64);
        let mut steps = Vec::new();
        if from != to && from.numel() > 0 {
            for pair in stages(from, to)?.windows(2) {
                steps.extend(work.hop(&pair[0], &pair[1])?);
            }
        }
        work.finish(steps, work.ends().as_ref(), None).map(Some)
    }
}

impl Work<'_> {
    /// The step or two between shardings that differ in one axis.
    fn hop(&self, before: &Sharding, after: &Sharding) -> Result<Vec<Step>, Error> {
        if before == after {
            return Ok(Vec::new());
        }
        let free = Planner { max_peak_bytes: None, groups: None, ..self.planner.clone() };
        let hop = Work::new(&free, before, after, self.item);
        if let Some(ends) = hop.ends() {
            if let Some(moves) = moves(&ends.from, &ends.to) {
                return hop.digit_steps(&Candidate { system: ends.system, moves });
            }
        } else {
            // The last candidate reduces straight onto the target, the first onto everybody.
            let mut all = hop.overlap_candidates()?;
            return Ok(all.pop().unwrap_or_default());
        }
        free.plan(before, after, self.item as usize).map(|p| p.steps)
    }
}

/// One collective, or a reduction and its embedding as another op; `None` where digits do different things.
fn moves(s: &State, t: &State) -> Option<SmallVec<[Move; 4]>> {
    let mut ops: SmallVec<[StepOp; 4]> = SmallVec::new();
    let mut reduced = s.clone();
    for (d, (&a, &b)) in s.iter().zip(t).enumerate().filter(|(_, (a, b))| a != b) {
        let op = match (a, b) {
            (Place::Replicated, Place::At(_)) => StepOp::Slice,
            (Place::At(_), Place::At(_)) => StepOp::Exchange,
            (Place::At(_), Place::Replicated) => StepOp::AllGather,
            (Place::Partial(_), Place::At(_)) => StepOp::ReduceScatter,
            (Place::Partial(_), Place::Replicated) => StepOp::AllReduce,
            (Place::Partial(_), Place::Partial(_)) => {
                reduced[d] = Place::Replicated;
                StepOp::ZeroFill
            }
            (Place::At(_) | Place::Replicated, Place::Partial(_)) => StepOp::ZeroFill,
            (Place::Replicated, Place::Replicated) => continue,
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

/// The shardings that a greedy planner goes through, source and target included.
fn stages(from: &Sharding, to: &Sharding) -> Result<Vec<Sharding>, Error> {
    // Placements may not hold an end, or ragged ones what lies between.
    placed(from, to).or_else(|_| through_replicas(from, to))
}

fn placed(from: &Sharding, to: &Sharding) -> Result<Vec<Sharding>, Error> {
    let (mut now, target) = (from.placements()?, to.placements()?);
    let dim_of = |p: &Placement| match p {
        Placement::Shard(dim) | Placement::StridedShard { dim, .. } | Placement::Ragged { dim, .. } => {
            Some(*dim)
        }
        Placement::Replicate | Placement::Partial(_) => None,
    };
    let mut stages = vec![from.clone()];
    let go = |now: &[Placement], stages: &mut Vec<Sharding>| -> Result<(), Error> {
        stages.push(Sharding::new(from.mesh(), from.shape(), now)?);
        Ok(())
    };
    for axis in (0..now.len()).rev() {
        let shards = |list: &[Placement], dim| -> SmallVec<[usize; 4]> {
            (0..axis).filter(|&a| dim_of(&list[a]) == Some(dim)).collect()
        };
        let blocked = match &target[axis] {
            Placement::Shard(dim) | Placement::StridedShard { dim, .. } | Placement::Ragged { dim, .. } => {
                shards(&now, *dim) != shards(&target, *dim)
            }
            // Terms of two ops do not meet: what is owed goes first.
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
    // Where placements spell one sharding in two ways, the last one is the target itself.
    if stages.last() != Some(to) {
        stages.push(to.clone());
    }
    Ok(stages)
}

/// Everything is replicated axis by axis, then sliced.
fn through_replicas(from: &Sharding, to: &Sharding) -> Result<Vec<Sharding>, Error> {
    let mut stages = vec![from.clone()];
    let Some(modes) = from.modes() else { return Ok(vec![from.clone(), to.clone()]) };
    for axis in (0..from.mesh().axes().len()).rev() {
        let goes = |at: At| at.axis().is_some_and(|a| a as usize >= axis);
        let kept = modes.iter().map(|m| m.map(|at| if goes(at) { At::local(1) } else { at }));
        let partial = from.partial().iter().copied().filter(|p| p.sub.axis < axis);
        let next = from.with_modes(kept).with_partial(partial)?;
        if stages.last() != Some(&next) {
            stages.push(next);
        }
    }
    stages.push(to.clone());
    Ok(stages)
}
