//! Plans as text: per step a picture of the change and one line with the reason, at the end cost, bound and
//! ratio.
//!
//! ```text
//! S(0),R on dp=4,tp=8 -> R,R
//!   1. slice over tp (8:1): 0 B, 0.0 us
//!        dim 0: [dp 4][local 256] -> [dp 4][tp 8][local 32]
//!        slice tp first: 8x less to gather over dp
//! ```
//!
//! Pictures are lists of digits where the sharding is a layout, and placements where it is not. Groups are
//! written as their layout, and as their ranks where the mesh is small. The reason for a step follows from
//! its op and its neighbours. A slice saves a factor of the size of its axes. A reduce-scatter leaves a
//! gather one part in the size of its group.

use core::fmt;
use core::fmt::Write as _;

use crate::Error;
use crate::choose;
use crate::choose::considered::{CandidateCost, CandidateReport, Watch};
use crate::objective::Objective;
use crate::op::StepOp;
use crate::plan::Plan;
use crate::planner::Planner;
use crate::problem::Question;
use crate::step::{Action, Moves, Step};
use reshard_kernels::DType;
use reshard_sharding::Sharding;
use reshard_sharding::internal::members_along;

/// Maximum number of ranks that are listed individually.
const LISTED: usize = 16;

/// A plan next to the one that a greedy planner makes axis by axis.
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
/// assert!(text.contains("axis by axis, for comparison:"));
/// # Ok::<(), reshard_planner::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The plan of this planner.
    pub plan: Plan,
    /// The greedy planner's plan; `None` between two meshes, and where ranks of a step do not form a group.
    pub greedy: Option<Plan>,
    /// All candidates that were considered, in order; empty if source and target are equal.
    pub candidates: Vec<CandidateReport>,
    /// Index of the plan among them: the first of the least.
    pub chosen: Option<usize>,
}

impl Planner {
    /// Returns the plan and that of a greedy planner, to be printed side by side.
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
            let one_mesh = self.plan.from().mesh() == self.plan.to().mesh();
            let why =
                if one_mesh { ": the ranks of a step do not form a group" } else { " between two meshes" };
            return write!(f, "\naxis by axis, for comparison: no plan{why}");
        };
        write!(f, "\naxis by axis, for comparison:\n{greedy}\n  the plan above takes ")?;
        write_ratio(f, self.plan.cost_us(), greedy.cost_us())?;
        f.write_str(" of its time and ")?;
        write_ratio(f, self.plan.received_bytes() as f64, greedy.received_bytes() as f64)?;
        f.write_str(" of its bytes")
    }
}

impl Explanation {
    /// Writes the candidates, and the reason why the plan won.
    fn write_choice(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (objective, then) = match self.plan.options().objective() {
            Objective::Time => ("time", "then bytes, then steps"),
            Objective::Bytes => ("bytes", "then time, then steps"),
            Objective::Peak => ("peak", "then time, then bytes"),
        };
        if self.candidates.is_empty() {
            return Ok(());
        }
        let origin = self.plan.options().model.origin();
        write!(f, "\ncandidates, by {objective}, {then}; times by {origin}:")?;
        for (i, one) in self.candidates.iter().enumerate() {
            write!(f, "\n  {} {}. {one}", if self.chosen == Some(i) { '*' } else { ' ' }, i + 1)?;
        }
        let Some(chosen) = self.chosen else { return Ok(()) };
        let key = |i: &usize| self.candidates[*i].way().map_or(f64::INFINITY, |way| self.first(way));
        let others = (0..self.candidates.len())
            .filter(|i| *i != chosen && self.candidates[*i].way().is_some_and(|way| way.admitted));
        let next = others.min_by(|a, b| key(a).total_cmp(&key(b)));
        let Some(next) = next else { return write!(f, "\n  {} is the only candidate", chosen + 1) };
        write!(f, "\n  {} wins", chosen + 1)?;
        match (key(&chosen), key(&next)) {
            (a, b) if a < b && a > 0.0 => {
                write!(f, ": the next, {}, takes x{:.2} of its {objective}", next + 1, b / a)
            }
            (a, b) if a < b => write!(f, ": it takes no {objective}, and the next, {}, does", next + 1),
            _ => write!(f, " over {} of the same {objective}: {then}, then in this order", next + 1),
        }
    }

    /// Returns the first number that the objective compares.
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
        writeln!(f, ", {:?} of {} B", self.from.shape(), self.element_bytes())?;
        for (i, s) in self.steps.iter().enumerate() {
            write!(f, "  {}. {} over {} ({})", i + 1, s.op(), s.axis_names().join(","), s.group)?;
            write!(f, ": {} B", s.received_bytes)?;
            if s.sent_bytes > s.received_bytes {
                write!(f, " (one rank sends {} B)", s.sent_bytes)?;
            }
            writeln!(f, ", {:.1} us", s.cost_us)?;
            write_picture(f, s)?;
            write_groups(f, s)?;
            writeln!(f, "       {}", why(self, i))?;
        }
        if self.steps.is_empty() {
            writeln!(f, "  no communication: every rank holds its target")?;
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
        if let Some(cut) = &self.lower_bound_cut {
            write!(f, "\n  the bound: {cut}")?;
        }
        if self.is_budget_exhausted() {
            let budget = self.options().budget();
            write!(f, "\n  the search budget of {budget} is exhausted: this is the best plan found")?;
            if self.lower_bound_us > 0.0 {
                let most = self.cost_us() / self.lower_bound_us;
                write!(f, ", and no plan takes less than 1/{most:.3} of its time")?;
            }
        }
        Ok(())
    }
}

/// Returns the modes of one dim, slowest first: `[dp 2][local 64]`.
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

/// Returns the partial axes as text: `sum over x,y`.
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

/// Writes the change of a step.
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

/// Writes the groups of a step as ranks, on small meshes.
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

/// Returns the reason for a step, in one line.
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
            None => "one replica holds the value, the others the identity".to_owned(),
            Some(n) => {
                format!(
                    "one replica holds the value first: nothing of {axes} to {} over {}",
                    verb(n.op()),
                    n.axis_names().join(",")
                )
            }
        },
        StepOp::ReduceScatter => {
            let joined = if joint { format!("{axes} in one reduction: ") } else { String::new() };
            match next {
                Some(n) if n.op() == StepOp::AllGather => {
                    format!("{joined}each rank reduces one part in {size}, the gather shares the results")
                }
                Some(_) | None => format!("{joined}each rank reduces only the part it keeps"),
            }
        }
        StepOp::AllReduce if joint => {
            format!("{axes} in one reduction: all replicas get the same bits")
        }
        StepOp::AllReduce => "one reduction: all replicas get the same bits".to_owned(),
        StepOp::AllGather if joint => format!("{axes} fused: one step over the joint group"),
        StepOp::AllGather => format!("every rank lacks {} of {size} parts", size - 1),
        StepOp::AllToAll => {
            format!("every rank keeps one part in {size} and exchanges the rest: the shard size is unchanged")
        }
        StepOp::Exchange => match &*s.action {
            Action::OrderedReduce(..) => {
                "every owner receives all partial values and combines them in rank order: the same bits by any plan"
                    .to_owned()
            }
            Action::Exchange(Moves::Regions(_)) => {
                "each overlap of source and target is sent directly to its target rank".to_owned()
            }
            Action::Transposed(turned) if turned.adds => {
                "each overlap of source and target is sent directly to its target rank, which adds partial values"
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
                    "sent directly to the target ranks: one step instead of an exchange and a gather".to_owned()
                } else {
                    "only the digits that change are exchanged: the shard size is unchanged".to_owned()
                }
            }
        },
    }
}

/// Returns the verb for the effect of a communicating step on the bytes before it.
fn verb(op: StepOp) -> &'static str {
    match op {
        StepOp::AllGather => "gather",
        StepOp::ReduceScatter | StepOp::AllReduce => "reduce",
        StepOp::AllToAll | StepOp::Exchange => "exchange",
        StepOp::Slice | StepOp::ZeroFill => "keep",
    }
}
