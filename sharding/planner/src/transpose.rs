//! Transposed plans: a plan between the cotangent shardings, in reverse.
//!
//! A plan from `C` to `D` is a linear map `f` of the data on all ranks, and preserves the global tensor. Its
//! transpose `f*` takes the steps in reverse. The messages of each step are transposed, and values that
//! arrive at one element are added. It is a plan from `D*` to `C*`: for `x` of `C` and `y` of `D*`
//!
//! ```text
//! assemble(f* y) . assemble(x)  =  sum over ranks of (f* y)_r . x_r  =  sum over ranks of y_r . (f x)_r  =  assemble(y) . assemble(x)
//! ```
//!
//! if the replicas of `C*` agree. These are the partial values of `C`, so all of them must take the same
//! paths. They do in every step but one that takes near replicas, whose positions may differ from one partial
//! value to another.
//!
//! ```text
//! slice           zero_fill, into the part                    zero_fill       slice; of replicas, zero_fill
//! all_gather      reduce_scatter                              reduce_scatter  all_gather
//! all_reduce      all_reduce                                  all_to_all      all_to_all
//! exchange        exchange that adds partial values
//! ```
//!
//! On a network of levels every step keeps its cost: gathering and scattering the same blocks cost the same, and
//! an exchange costs what its worst rank bears in either direction. It is counted by its messages, which is exact
//! also where digits do not nest with the domains of the network. Measured curves price the collective that runs.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Error;
use crate::assemble::assemble_unbounded;
use crate::fused_cost::cost_of_transposed;
use crate::message::Message;
use crate::model::exchange::Messages;
use crate::plan::Plan;
use crate::problem::Question;
use crate::shared_exchange::SharedOut;
use crate::step::{Action, Moves, Step, Transposed};
use crate::transfers::transposed::messages;
use reshard_sharding::Sharding;
use reshard_sharding::internal::ranks_of_both;

/// Maximum number of messages of a step that are transposed individually.
const MESSAGES: usize = 1 << 22;

impl Plan {
    /// Returns the plan between the [cotangent shardings](Sharding::cotangent) of both ends, in reverse.
    ///
    /// It takes the steps in reverse, with their messages transposed. Values that arrive at one element are
    /// added.
    ///
    /// ```text
    /// sum over ranks of  y_r . (f x)_r  ==  sum over ranks of  (f* y)_r . x_r        for every x of from and y of to*
    /// ```
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_sharding::{Mesh, Sharding};
    /// use reshard_planner::{Planner, StepOp};
    /// let mesh: Mesh = "x=4".parse()?;
    /// let of = |text: &str| Sharding::parse(&mesh, &[8, 8], text);
    /// let gather = Planner::new().plan(&of("S(0)")?, &of("R")?, DType::F32)?;
    /// let back = gather.transposed()?;
    /// assert_eq!((back.from(), back.to()), (&of("P")?, &of("S(0)")?));
    /// assert_eq!(back.steps()[0].op(), StepOp::ReduceScatter);
    /// assert_eq!(back.received_bytes(), gather.received_bytes());
    /// # Ok::<(), reshard_planner::Error>(())
    /// ```
    ///
    /// Ensures the costs, bytes and bounds of the transposed steps, under the same options. Limits of memory
    /// and groups are satisfied where the plan satisfies them. Fails with `no_gradient` for partial values of
    /// any op but sum. Fails with `unsupported` for a deterministic plan, for steps of more than 2^22
    /// messages, and for one that takes partial values from near replicas.
    pub fn transposed(&self) -> Result<Plan, Error> {
        let (from, to) = (self.to.cotangent()?, self.from.cotangent()?);
        let q = Question::checked(&self.options, &from, &to, self.dtype)?;
        let steps = transposed_steps(&q, &self.steps)?;
        let plan = assemble_unbounded(&q, steps, None)?;
        let mut plan = Plan { effort: self.effort, ..plan };
        plan.bound(&q, q.ends().as_ref())?;
        Ok(plan)
    }
}

/// Returns the transposed steps, in reverse order, between the cotangent shardings of both ends.
pub(crate) fn transposed_steps(q: &Question<'_>, steps: &[Step]) -> Result<Vec<Step>, Error> {
    if q.options.is_deterministic() {
        let reason = format!(
            "a deterministic plan cannot be transposed to lead from {} to {}: its gathers would become sums in \
             another order; plan without `deterministic`, or plan the opposite direction",
            q.from, q.to
        );
        return Err(Error::Unsupported { reason });
    }
    let [from, to] = q.shared();
    let mut before = Arc::clone(from);
    let mut turned = Vec::with_capacity(steps.len());
    for (i, step) in steps.iter().enumerate().rev() {
        let after = if i == 0 { Arc::clone(to) } else { Arc::new(step.before.cotangent()?) };
        turned.push(transposed_step(q, step, [before, Arc::clone(&after)])?);
        before = after;
    }
    Ok(turned)
}

fn transposed_step(
    q: &Question<'_>,
    step: &Step,
    [before, after]: [Arc<Sharding>; 2],
) -> Result<Step, Error> {
    let unsupported = |reason: String| Err(Error::Unsupported { reason });
    match &*step.action {
        // Transposing twice restores the step.
        Action::Transposed(turned) => return Ok(Step { before, after, ..turned.of.clone() }),
        // A reduce-scatter and an all-gather of the same blocks, transposed, are the same pair again.
        Action::AllReduce(_) => return Ok(Step { before, after, ..step.clone() }),
        Action::Exchange(Moves::Regions(regions)) if regions.spread.is_some() => {
            let of = SharedOut::new(
                q,
                (**regions).clone(),
                (step.axes.clone(), step.group.clone()),
                step.peak_bytes,
            )?;
            return Ok(of.turned_round([before, after]));
        }
        Action::Slice(Moves::Regions(regions))
        | Action::ZeroFill(Moves::Regions(regions))
        | Action::AllGather(Moves::Regions(regions))
        | Action::AllToAll(Moves::Regions(regions))
        | Action::Exchange(Moves::Regions(regions))
            if regions.picks_replicas() && step.before.is_partial() =>
        {
            return unsupported(format!(
                "the step from {} to {} takes partial values from several nearby replicas and cannot be transposed; \
                 plan on a network of one level",
                step.before, step.after
            ));
        }
        Action::Slice(_)
        | Action::ZeroFill(_)
        | Action::AllGather(_)
        | Action::AllToAll(_)
        | Action::Exchange(_)
        | Action::ReduceScatter(..)
        | Action::OrderedReduce(..) => {}
    }
    let ranks = ranks_of_both(before.mesh(), after.mesh());
    let most = ranks.len().saturating_mul(step.group.size());
    if most > MESSAGES {
        return unsupported(format!(
            "the step from {} to {} has up to {most} messages, and at most {MESSAGES} can be transposed; plan the \
             opposite direction",
            step.before, step.after
        ));
    }
    let mut seen = Seen::default();
    let mut counted = Messages::new(q.network.model, [&before, &after]);
    for &rank in &ranks {
        for phase in &step.phases(rank)? {
            let [receives, _] = messages(phase, rank, before.mesh());
            seen.add(&receives, phase.source_len);
            for m in &receives {
                counted.add([m.peer, rank], m.numel());
            }
        }
    }
    let (counted, sent_bytes) = counted.cost(q.item, &step.group, step.peak_bytes);
    let mesh = before.mesh();
    let axes = if mesh == after.mesh() {
        step.axes.clone()
    } else {
        mesh.sub_axes_of(mesh.whole_axes().map(|axis| mesh.known_mode(axis)))
    };
    if let Action::Exchange(Moves::Regions(regions)) = &*step.action
        && regions.lines()?.is_some()
    {
        // Replicas of the target may each take other rows of an element's region, also from one owner.
        seen.adds |= !step.after.replicated_axes().is_empty();
        seen.is_partly = true;
    }
    let fills = if seen.adds { seen.is_partly } else { seen.lacks };
    Ok(Step {
        axes,
        group: step.group.clone(),
        before,
        after,
        received_bytes: counted.received,
        sent_bytes,
        peak_bytes: step.peak_bytes,
        cost_us: cost_of_transposed(q.network.model, step, q.item)?.unwrap_or(counted).us,
        action: Arc::new(Action::Transposed(Box::new(Transposed {
            of: step.clone(),
            adds: seen.adds,
            fills,
        }))),
    })
}

/// The totals of all ranks of a transposed step.
#[derive(Default)]
struct Seen {
    /// `true` if an element receives several partial values.
    adds: bool,
    /// `true` if an element receives none.
    lacks: bool,
    /// `true` if a message covers only a part of a target, or a target receives none.
    is_partly: bool,
}

impl Seen {
    fn add(&mut self, receives: &[Message], target_len: usize) {
        // Two messages bring partial values of exactly the same elements, or of disjoint ones.
        let first = |m: &Message| m.blocks.first().map(|b| b.target_offset);
        let mut places: SmallVec<[(Option<usize>, usize); 8]> =
            receives.iter().map(|m| (first(m), m.numel())).collect();
        self.is_partly |= places.iter().any(|p| p.1 != target_len) || (places.is_empty() && target_len > 0);
        let all = places.len();
        places.sort_unstable();
        places.dedup();
        self.adds |= places.len() < all;
        self.lacks |= places.iter().map(|p| p.1).sum::<usize>() < target_len;
    }
}
