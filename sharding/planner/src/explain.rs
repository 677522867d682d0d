//! Plans as text: per step the picture of what moves and one line of why, at the end cost, bound and ratio.
//!
//! ```text
//! S(0),R on dp=4,tp=8 -> R,R
//!   1. slice over tp (8:1): 0 B, 0.0 us
//!        dim 0: [dp 4][local 256] -> [dp 4][tp 8][local 32]
//!        slice tp first: 8x less to gather over dp
//! ```
//!
//! Pictures are words of digits where the sharding is a layout, and placements where it is not. Groups are named by
//! their layout, and by their ranks where the mesh is small. Why a step is there follows from its op and its neighbours:
//! what a slice saves is the size of its axes, what a reduce-scatter leaves to a gather is one part in the size of its
//! group.

use core::fmt;
use core::fmt::Write as _;

use crate::Error;
use crate::choose;
use crate::choose::considered::{CandidateCost, CandidateReport, Watch};
use crate::objective::Objective;
use crate::op::StepOp;
use crate::plan::Plan;
use crate::planner::Planner;
use crate::question::Question;
use crate::step::{Action, Moves, Step};
use reshard_kernels::DType;
use reshard_sharding::Sharding;
use reshard_sharding::internal::members_along;

/// The most ranks that are listed one by one.
const LISTED: usize = 16;

/// A plan beside the one that a greedy planner makes axis by axis.
///
/// ```
/// use reshard_kernels::DType;
/// use reshard_sharding::{Mesh, Sharding};
/// use reshard_planner::Planner;
/// let mesh: Mesh = "x=2,y=2".parse()?;
/// let from = Sharding::parse(&mesh, &[64, 64], "P,P")?;
/// let to = Sharding::parse(&mesh, &[64, 64], "R,R")?;
/// let text = Planner::new().explain(&from, &to, DType::F32)?.to_string();
/// assert!(text.contains("all_reduce over x,y (4:1)"));
/// assert!(text.contains("axis by axis, a greedy planner:"));
/// # Ok::<(), reshard_planner::Error>(())
/// ```
/// use reshard_kernels::DType;
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The plan.
    pub plan: Plan,
    /// The greedy planner's, between shardings on one mesh.
    pub greedy: Option<Plan>,
    /// Every candidate that was looked at, in order; none where there is nothing to do.
    pub candidates: Vec<CandidateReport>,
    /// Which of them is the plan: the first of the least.
    pub chosen: Option<usize>,
}

impl Planner {
    /// The plan, and the one that a greedy planner makes, to be printed side by side.
    pub fn explain(&self, from: &Sharding, to: &Sharding, dtype: DType) -> Result<Explanation, Error> {
        let q = Question::checked(self.options(), from, to, dtype)?;
        let mut watch = Watch::default();
        let plan = choose::plan(&q, u64::MAX, Some(&mut watch))?;
        let Watch { considered, best: chosen } = watch;
        Ok(Explanation { plan, greedy: self.axis_by_axis(from, to, dtype)?, candidates: considered, chosen })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.plan)?;
        self.write_choice(f)?;
        let Some(greedy) = &self.greedy else {
            return write!(f, "\naxis by axis, a greedy planner: none between two meshes");
        };
        write!(f, "\naxis by axis, a greedy planner:\n{greedy}\n  the plan above takes ")?;
        write_ratio(f, self.plan.cost_us(), greedy.cost_us())?;
        f.write_str(" of its time and ")?;
        write_ratio(f, self.plan.received_bytes() as f64, greedy.received_bytes() as f64)?;
        f.write_str(" of its bytes")
    }
}

impl Explanation {
    /// The candidates, and why the plan is the one that it is.
    fn write_choice(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (objective, then) = match self.plan.options().objective() {
            Objective::Time => ("time", "then bytes, then steps"),
            Objective::Bytes => ("bytes", "then time, then steps"),
            Objective::Peak => ("peak", "then time, then bytes"),
        };
        if self.candidates.is_empty() {
            return Ok(());
        }
        write!(f, "\nlooked at, for the least {objective}, {then}, then the first:")?;
        for (i, one) in self.candidates.iter().enumerate() {
            write!(f, "\n  {} {}. {one}", if self.chosen == Some(i) { '*' } else { ' ' }, i + 1)?;
        }
        let Some(chosen) = self.chosen else { return Ok(()) };
        let key = |i: &usize| self.candidates[*i].way().map_or(f64::INFINITY, |way| self.first(way));
        let others = (0..self.candidates.len())
            .filter(|i| *i != chosen && self.candidates[*i].way().is_some_and(|way| way.admitted));
        let next = others.min_by(|a, b| key(a).total_cmp(&key(b)));
        let Some(next) = next else { return write!(f, "\n  {} is the only one", chosen + 1) };
        write!(f, "\n  {} wins", chosen + 1)?;
        match (key(&chosen), key(&next)) {
            (a, b) if a < b && a > 0.0 => {
                write!(f, ": the next, {}, takes x{:.2} of its {objective}", next + 1, b / a)
            }
            (a, b) if a < b => write!(f, ": it takes nothing, the next, {}, does", next + 1),
            _ => write!(f, " over {} of the same {objective}: {then}, then the first", next + 1),
        }
    }

    /// What the objective looks at first.
    fn first(&self, way: &CandidateCost) -> f64 {
        match self.plan.options().objective() {
            Objective::Time => way.cost_us,
            Objective::Bytes => way.received_bytes as f64,
            Objective::Peak => way.peak_bytes as f64,
        }
    }
}

fn write_ratio(f: &mut fmt::Formatter<'_>, a: f64, b: f64) -> fmt::Result {
    if b > 0.0 { write!(f, "x{:.2}", a / b) } else { f.write_str("all") }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {} -> {}", self.from, self.from.mesh(), self.to)?;
        if self.from.mesh() != self.to.mesh() {
            write!(f, " on {}", self.to.mesh())?;
        }
        writeln!(f, ", {:?} of {} B", self.from.shape(), self.item_bytes())?;
        for (i, s) in self.steps.iter().enumerate() {
            write!(f, "  {}. {} over {} ({})", i + 1, s.op(), s.axis_names().join(","), s.group)?;
            writeln!(f, ": {} B, {:.1} us", s.received_bytes, s.cost_us)?;
            write_picture(f, s)?;
            write_groups(f, s)?;
            writeln!(f, "       {}", why(self, i))?;
        }
        if self.steps.is_empty() {
            writeln!(f, "  nothing moves: every rank holds its target")?;
        }
        write!(f, "  received {} B", self.received_bytes)?;
        match self.lower_bound_bytes {
            None => f.write_str(" (no simple bound)")?,
            Some(0) => f.write_str(" (bound 0 B)")?,
            Some(b) => write!(f, " (bound {b} B, x{:.3})", self.received_bytes as f64 / b as f64)?,
        }
        write!(f, ", cost {:.1} us", self.cost_us())?;
        if self.lower_bound_us > 0.0 {
            write!(
                f,
                " (bound {:.1} us, x{:.3})",
                self.lower_bound_us,
                self.cost_us() / self.lower_bound_us
            )?;
        }
        write!(f, ", peak {} B", self.peak_bytes)?;
        if self.is_budget_exhausted() {
            let budget = self.options().budget();
            write!(f, "\n  the budget of {budget} ran out: the best of what was looked at")?;
            if self.lower_bound_us > 0.0 {
                let most = self.cost_us() / self.lower_bound_us;
                write!(f, ", and nothing takes less than 1/{most:.3} of its time")?;
            }
        }
        Ok(())
    }
}

/// The modes of one dim, slowest first: `[dp 2][local 64]`.
fn modes(s: &Sharding, dim: usize) -> Option<String> {
    let mut text = String::new();
    for &m in s.dim_modes(dim)?.iter().rev() {
        text.push('[');
        match s.mesh().sub_axis(m) {
            None => text.push_str("local"),
            Some(sub) => sub.write(&mut text, s.mesh().axes()).ok()?,
        }
        write!(text, " {}]", m.extent).ok()?;
    }
    Some(text)
}

/// What is partial: `sum over x,y`.
fn partial(s: &Sharding) -> String {
    let terms: Vec<String> = s
        .partial()
        .iter()
        .map(|p| {
            let mut text = format!("{} over ", p.op);
            // Writing to a string does not fail.
            let _ = p.sub.write(&mut text, s.mesh().axes());
            text
        })
        .collect();
    if terms.is_empty() { "nothing".to_owned() } else { terms.join(", ") }
}

/// What changes in a step.
fn write_picture(f: &mut fmt::Formatter<'_>, s: &Step) -> fmt::Result {
    let both = |dim| Some((modes(&s.before, dim)?, modes(&s.after, dim)?));
    let pictured = s.before.layout().is_some() && s.after.layout().is_some();
    if !pictured || s.before.mesh() != s.after.mesh() {
        return writeln!(f, "       {} -> {}", s.before, s.after);
    }
    for dim in 0..s.before.shape().len() {
        if let Some((a, b)) = both(dim)
            && a != b
        {
            writeln!(f, "       dim {dim}: {a} -> {b}")?;
        }
    }
    if s.before.partial() != s.after.partial() {
        writeln!(f, "       partial: {} -> {}", partial(&s.before), partial(&s.after))?;
    }
    Ok(())
}

/// The groups of a step as ranks, on small meshes.
fn write_groups(f: &mut fmt::Formatter<'_>, s: &Step) -> fmt::Result {
    let mesh = s.before.mesh();
    if !s.op().communicates() || mesh.size() > LISTED || mesh != s.after.mesh() {
        return Ok(());
    }
    let axes = mesh.modes(&s.axes);
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for rank in mesh.ranks() {
        if let Ok(mut group) = members_along(mesh, &axes, rank) {
            group.sort_unstable();
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
    }
    let text: Vec<String> = groups
        .iter()
        .map(|g| format!("{{{}}}", g.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")))
        .collect();
    writeln!(f, "       ranks {}", text.join(" "))
}

/// Why a step is there, in one line.
fn why(plan: &Plan, at: usize) -> String {
    let s = &plan.steps[at];
    let names = s.axis_names();
    let axes = names.join(",");
    let size: usize = s.axes.iter().map(|a| a.size).product();
    let next = plan.steps[at + 1..].iter().find(|n| n.op().communicates());
    let joint = names.len() > 1;
    match s.op() {
        StepOp::Slice => match next {
            None => "every rank already holds its part".to_owned(),
            Some(n) => {
                let over: Vec<String> = n.axis_names().into_iter().filter(|a| !names.contains(a)).collect();
                let over = if over.is_empty() { n.axis_names() } else { over };
                format!("slice {axes} first: {size}x less to {} over {}", verb(n.op()), over.join(","))
            }
        },
        StepOp::ZeroFill => match next {
            None => "one copy stays as the term, the others hold the identity".to_owned(),
            Some(n) => {
                format!(
                    "one copy stays as the term at once: nothing of {axes} to {} over {}",
                    verb(n.op()),
                    n.axis_names().join(",")
                )
            }
        },
        StepOp::ReduceScatter => {
            let together = if joint { format!("{axes} together in one reduction: ") } else { String::new() };
            match next {
                Some(n) if n.op() == StepOp::AllGather => {
                    format!("{together}each rank reduces one part in {size}, the gather shares the results")
                }
                Some(_) | None => format!("{together}each rank reduces only the part it keeps"),
            }
        }
        StepOp::AllReduce if joint => {
            format!("{axes} together in one reduction: all replicas get the same bits")
        }
        StepOp::AllReduce => "one reduction: all replicas get the same bits".to_owned(),
        StepOp::AllGather if joint => format!("{axes} together: one step over the joint group"),
        StepOp::AllGather => format!("every rank lacks {} of {size} parts", size - 1),
        StepOp::AllToAll => {
            format!("every rank keeps one part in {size} and trades the rest: the shard stays as large")
        }
        StepOp::Exchange => match &*s.action {
            Action::OrderedReduce(..) => {
                "every owner gets all terms and combines them in rank order: the same bits by any plan"
                    .to_owned()
            }
            Action::Exchange(Moves::Regions(_)) => {
                "what source and target share goes straight to who wants it".to_owned()
            }
            Action::Transposed(turned) if turned.adds => {
                "what source and target share goes straight to who wants it, and terms of one element are added there"
                    .to_owned()
            }
            Action::Slice(_)
            | Action::ZeroFill(_)
            | Action::Transposed(_)
            | Action::AllGather(_)
            | Action::AllToAll(_)
            | Action::ReduceScatter(..)
            | Action::AllReduce(_)
            | Action::Exchange(Moves::Modes { .. }) => {
                if s.after.max_local_numel() > s.before.max_local_numel() {
                    "straight to who wants it: one step instead of an exchange and a gather".to_owned()
                } else {
                    "only the digits that change place move: the shard stays as large".to_owned()
                }
            }
        },
    }
}

/// What a communicating step does to the bytes before it.
fn verb(op: StepOp) -> &'static str {
    match op {
        StepOp::AllGather => "gather",
        StepOp::ReduceScatter | StepOp::AllReduce => "reduce",
        StepOp::AllToAll | StepOp::Exchange => "move",
        StepOp::Slice | StepOp::ZeroFill => "keep",
    }
}
