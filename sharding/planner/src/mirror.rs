//! Plans turned round: a plan between the duals, from end to end.
//!
//! A plan from `C` to `D` is a linear map `f` of what the ranks hold, and keeps the meaning. Its transpose `f*` takes the
//! steps in reverse, each with its messages turned round and what lands together added, and is a plan from `D*` to `C*`:
//! for `x` of `C` and `y` of `D*`
//!
//! ```text
//! meaning(f* y) . meaning(x)  =  sum over ranks of (f* y)_r . x_r  =  sum over ranks of y_r . (f x)_r  =  meaning(y) . meaning(x)
//! ```
//!
//! if the replicas of `C*` agree, which are the terms of `C`: if all terms of `C` go the same ways. They do in every step but
//! one that takes near replicas, whose places may differ from term to term.
//!
//! ```text
//! slice           zero_fill, into the part                    zero_fill       slice; of replicas, zero_fill
//! all_gather      reduce_scatter                              reduce_scatter  all_gather
//! all_reduce      all_reduce                                  all_to_all      all_to_all
//! exchange        exchange, in which terms are added
//! ```
//!
//! Collectives cost what they cost: gathering and scattering the same pieces is the same to the model. What an exchange
//! costs is counted anew, since who sends the most need not be who receives the most.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Error;
use crate::assemble::assemble_unbounded;
use crate::message::Message;
use crate::plan::Plan;
use crate::question::Question;
use crate::shared_out::{SharedOut, Taken};
use crate::step::{Action, Moves, Step, Transposed};
use crate::transfers::transposed::messages;
use reshard_sharding::Sharding;
use reshard_sharding::internal::ranks_of_both;

/// The most messages of a step that are turned round one by one.
const MESSAGES: usize = 1 << 22;

impl Plan {
    /// The plan between the [duals](Sharding::dual), from [`to`](Plan::to)'s to [`from`](Plan::from)'s: the steps in reverse,
    /// their messages turned round, what lands together added.
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
    /// Ensures the costs, bytes and bounds of what is then done, under the same options. Limits of memory and groups are kept
    /// where the plan keeps them. Fails with `no_gradient` for terms of anything but sums, and with `unsupported` for a
    /// deterministic plan, for steps of more than 2^22 messages, and for one that takes terms from near replicas.
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

/// The steps between the duals of both ends, from end to end.
pub(crate) fn transposed_steps(q: &Question<'_>, steps: &[Step]) -> Result<Vec<Step>, Error> {
    if q.options.is_deterministic() {
        let reason = format!(
            "a deterministic plan is not turned round to lead from {} to {}, as its gathers would become sums in another \
             order: plan without, or plan the way back",
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
        // Twice is the same again.
        Action::Transposed(turned) => return Ok(Step { before, after, ..turned.of.clone() }),
        // A reduce-scatter and an all-gather of the same pieces are that turned round as well.
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
                "the step from {} to {} takes each term from another near replica and cannot be turned round: plan on a \
                 network of one level",
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
            "the step from {} to {} has up to {most} messages, and at most {MESSAGES} are turned round: plan the way back",
            step.before, step.after
        ));
    }
    let (mut seen, mut taken) = (Seen::default(), Taken::default());
    for &rank in &ranks {
        for phase in &step.phases(rank)? {
            let [receives, sends] = messages(phase, rank, before.mesh());
            seen.add(q, [&receives, &sends], phase.source_len);
            for m in receives.iter().filter(|m| m.peer != rank) {
                taken.add(q, rank, m.peer, m.numel());
            }
        }
    }
    let collective = match &*step.action {
        Action::AllGather(_) | Action::ReduceScatter(..) => true,
        Action::Slice(_)
        | Action::ZeroFill(_)
        | Action::AllToAll(_)
        | Action::Exchange(_)
        | Action::OrderedReduce(..)
        | Action::AllReduce(_)
        | Action::Transposed(_) => false,
    };
    let cost = taken.cost(q, &step.group, step.peak_bytes);
    let mesh = before.mesh();
    let axes = if mesh == after.mesh() {
        step.axes.clone()
    } else {
        mesh.sub_axes_of(mesh.whole_axes().map(|axis| mesh.known_mode(axis)))
    };
    let fills = if seen.adds { seen.is_partly } else { seen.lacks };
    Ok(Step {
        axes,
        group: step.group.clone(),
        before,
        after,
        received_bytes: cost.received,
        sent_bytes: seen.sent,
        peak_bytes: step.peak_bytes,
        cost_us: if collective { step.cost_us } else { cost.us },
        action: Arc::new(Action::Transposed(Box::new(Transposed {
            of: step.clone(),
            adds: seen.adds,
            fills,
        }))),
    })
}

/// What all ranks of a step that is turned round receive.
#[derive(Default)]
struct Seen {
    /// Bytes of the rank that sends the most.
    sent: u64,
    /// Whether an element gets several terms.
    adds: bool,
    /// Whether an element gets none.
    lacks: bool,
    /// Whether a message brings a part of a target only, or a target gets none.
    is_partly: bool,
}

impl Seen {
    fn add(&mut self, q: &Question<'_>, [receives, sends]: [&[Message]; 2], target_len: usize) {
        let sent: usize = sends.iter().map(Message::numel).sum();
        self.sent = self.sent.max(sent as u64 * q.item);
        // Messages bring terms of all the same elements, or of none.
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
