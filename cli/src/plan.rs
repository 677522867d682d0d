//! `reshard plan`: the cheapest steps from one sharding to another.

use std::cmp::Ordering;
use std::fmt::Write as _;

use clap::Args;
use reshard_draw::{Limits, Page, Scene, Section};
use reshard_planner::{CandidateReport, Explanation, LowerBoundCut, Plan, Step};
use reshard_sharding::{GroupPattern, Mesh, Sharding, ShardingType};
use serde::{Deserialize, Serialize};

use super::arguments::Format;
use super::arguments::MeshArg;
use super::arguments::ShapeArg;
use super::console::Console;
use super::error::CliError;
use super::network::{self, BudgetArg, ObjectiveArg, TopologyArg};
use super::pictures::PictureArgs;
use super::{batch, element, report, required};

/// Arguments of `reshard plan`.
#[derive(Debug, Args)]
#[command(mut_arg("mesh", |arg| arg.help("Mesh of the source, like dp=2,tp=4")))]
#[command(mut_arg("draw", |arg| arg.conflicts_with("batch")), mut_arg("svg", |arg| arg.conflicts_with("batch")))]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    request: Request,
    /// Answer one JSON request per line of stdin, like
    /// {"mesh":"dp=2,tp=4","shape":[64,32],"from":"S(0),R","to":"R,R"}
    #[arg(long, conflicts_with = "Request")]
    batch: bool,
    #[command(flatten)]
    pub(crate) pictures: PictureArgs,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// One request, from flags or from a line.
#[derive(Debug, Args, Deserialize)]
#[group(args = ["mesh", "shape", "dtype", "from", "to", "topology", "objective", "max_peak_bytes", "to_mesh", "groups", "search_budget", "explain", "types"])]
#[serde(deny_unknown_fields)]
struct Request {
    #[command(flatten)]
    mesh: MeshArg,
    #[command(flatten)]
    shape: ShapeArg,
    /// Dtype of the elements [default: f32]
    #[arg(long)]
    dtype: Option<String>,
    /// Sharding of the source, one placement per mesh axis, like S(0),R
    #[arg(long)]
    from: Option<String>,
    /// Sharding of the target
    #[arg(long)]
    to: Option<String>,
    #[command(flatten)]
    topology: TopologyArg,
    #[command(flatten)]
    objective: ObjectiveArg,
    /// Reject plans in which a rank holds more than N bytes at any time [default: no limit]
    #[arg(long, value_name = "N", value_parser = crate::whole::whole::<u64>, allow_negative_numbers = true)]
    #[serde(default, deserialize_with = "crate::number::as_number")]
    max_peak_bytes: Option<u64>,
    /// Mesh of the target [default: the mesh of the source]
    #[arg(long)]
    to_mesh: Option<String>,
    /// Use only these groups, separated by `;`: `axes` (each axis alone), axes like `dp,tp`, or ranks like
    /// `4:1` or `{{0,1,3},{2,4,5}}`
    #[arg(long)]
    groups: Option<String>,
    #[command(flatten)]
    #[serde(default)]
    search_budget: BudgetArg,
    /// List the candidate plans and compare the chosen plan with the axis-by-axis one
    #[arg(long)]
    #[serde(default)]
    explain: bool,
    /// Read both sides as sharding types, like S(0),I or R|S(0),P, and plan the backward redistribution too
    #[arg(long)]
    #[serde(default)]
    types: bool,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Answer {
    steps: Vec<StepAnswer>,
    received_bytes: u64,
    cost_us: f64,
    lower_bound_us: f64,
    /// The ranks that take the longest, between two meshes.
    #[serde(skip_serializing_if = "Option::is_none")]
    lower_bound_cut: Option<CutAnswer>,
    lower_bound_bytes: Option<u64>,
    peak_bytes: u64,
    max_shard_bytes: u64,
    groups: Vec<String>,
    /// `true` if the search budget ran out: the plan is then the best found.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    exhausted: bool,
    /// The savings of one more group, with `--groups` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    savings: Option<Vec<Saving>>,
    /// The plan of the axis-by-axis planner, with `--explain` only; null between two meshes.
    #[serde(skip_serializing_if = "Option::is_none")]
    greedy: Option<Beside>,
    /// The candidates in order, with `--explain` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    considered: Option<Vec<Candidate>>,
    /// The index of the chosen candidate, with `--explain` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<usize>,
    /// The plan of the gradients, from the target's to the source's, with `--types` only.
    ///
    /// Null without gradients.
    #[serde(skip_serializing_if = "Option::is_none")]
    backward: Option<Backward>,
}

/// The certificate of a bound: the bytes that some ranks must receive or send, and their rate.
#[derive(Debug, Serialize)]
struct CutAnswer {
    cut: String,
    level: usize,
    bytes: u64,
    gbytes_per_s: f64,
    us: f64,
}

impl CutAnswer {
    fn of(cut: &LowerBoundCut) -> Self {
        let LowerBoundCut { cut, level, bytes, gbytes_per_s, us } = *cut;
        Self { cut: cut.to_string(), level, bytes, gbytes_per_s, us }
    }
}

/// The plan of the gradients, if there are any.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Backward {
    Plan(Box<Answer>),
    Nothing,
}

/// A candidate of the search; without costs if it was not better than the best found.
#[derive(Debug, Serialize)]
struct Candidate {
    origin: String,
    #[serde(flatten)]
    way: Option<Costs>,
}

/// The steps and the cost of a candidate.
#[derive(Debug, Serialize)]
struct Costs {
    steps: String,
    cost_us: f64,
    received_bytes: u64,
    peak_bytes: u64,
    admitted: bool,
}

impl Candidate {
    fn of(considered: &CandidateReport) -> Self {
        let way = considered.way().map(|way| Costs {
            steps: way.steps.clone(),
            cost_us: way.cost_us,
            received_bytes: way.received_bytes,
            peak_bytes: way.peak_bytes,
            admitted: way.admitted,
        });
        Self { origin: considered.origin.to_string(), way }
    }
}

/// The axis-by-axis plan to compare with; `Nothing` between two meshes.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Beside {
    Plan(Greedy),
    Nothing,
}

/// The axis-by-axis plan, in short.
#[derive(Debug, Serialize)]
struct Greedy {
    cost_us: f64,
    received_bytes: u64,
    steps: Vec<&'static str>,
}

/// A group that does not exist, and the time that it would save.
#[derive(Debug, Serialize)]
struct Saving {
    group: String,
    saved_us: f64,
}

/// One step; bytes are those of its worst rank.
#[derive(Debug, Serialize)]
pub(super) struct StepAnswer {
    op: &'static str,
    axes: Vec<String>,
    group: String,
    received_bytes: u64,
    sent_bytes: u64,
    cost_us: f64,
    from: String,
    to: String,
}

/// Answers the flags, or every line of stdin.
pub(crate) fn run(args: &PlanArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    if args.batch {
        return batch::run(console, |request| plan(request, false).map(|answered| Answer::of(&answered)));
    }
    let answered = plan(&args.request, args.pictures.are_asked())?;
    if !args.pictures.show(|| Ok(answered.scene()), args.format.json, console)? {
        return Ok(());
    }
    if args.format.json {
        return console.print_json(&Answer::of(&answered));
    }
    let mut text = answered.forward.text();
    match &answered.gradients {
        Gradients::NotAsked => {}
        Gradients::Missing => text.push_str("backward: none, one of the types has no gradient\n"),
        Gradients::Planned(backward) => {
            text.push_str("backward, of the gradients:\n");
            text.push_str(&backward.text());
        }
    }
    console.print(&text)
}

/// Makes the page of a plan.
pub(crate) fn page(args: &PlanArgs) -> Result<Page, CliError> {
    report::of_one(args.batch)?;
    let answered = plan(&args.request, true)?;
    let Planned { plan, greedy, .. } = &answered.forward;
    let backward = answered.backward();
    let drawn = |sharding: &Sharding| reshard_draw::sharding(sharding, Limits::USUAL);
    let mut page = Page::new(format!("Plan: {} on {} to {}", plan.from(), plan.from().mesh(), plan.to()));
    page.words = plan.to_string().lines().last().map(|line| line.trim().to_owned()).into_iter().collect();
    page = page
        .with(Section::new("Before and after", vec![drawn(plan.from()), drawn(plan.to())]))
        .with(Section::new("Cost", vec![reshard_draw::cost(plan, greedy.as_ref())]))
        .with(Section::of_steps("Steps", reshard_draw::plan_steps(plan, Limits::USUAL)));
    if let Some(backward) = backward {
        page = page.with(Section::of_steps(
            "Steps of the backward redistribution",
            reshard_draw::plan_steps(backward, Limits::USUAL),
        ));
    }
    let ran = vec![reshard_draw::local_notation(plan, backward), reshard_draw::measured(plan)];
    page = page.with(Section::new("Execution on threads", ran));
    let after = reshard_draw::held(plan.to(), Limits::USUAL);
    page.held = reshard_draw::held(plan.from(), Limits::USUAL);
    for (rank, words) in &mut page.held {
        let then =
            after.iter().find(|(other, _)| other == rank).map_or("nothing", |(_, words)| words.as_str());
        *words = format!("before {words}; after {then}");
    }
    Ok(page)
}

/// The groups that would save time, and the microseconds saved.
type Savings = Vec<(GroupPattern, f64)>;

/// The plan of the values and that of the gradients.
struct Answered {
    forward: Planned,
    gradients: Gradients,
}

/// The state of the plan of gradients.
enum Gradients {
    /// Shardings were given.
    NotAsked,
    /// One of the types has none.
    Missing,
    Planned(Box<Planned>),
}

/// A plan with optional savings of one more group, explanation, and axis-by-axis plan to draw.
struct Planned {
    plan: Plan,
    savings: Option<Savings>,
    explanation: Option<Explanation>,
    greedy: Option<Plan>,
}

impl Answered {
    /// The plan of the gradients.
    fn backward(&self) -> Option<&Plan> {
        match &self.gradients {
            Gradients::Planned(backward) => Some(&backward.plan),
            Gradients::NotAsked | Gradients::Missing => None,
        }
    }

    /// Draws the plans, and the shards of ranks before and after them.
    fn scene(&self) -> Scene {
        let Planned { plan, greedy, .. } = &self.forward;
        let mut scene = reshard_draw::plan(plan, greedy.as_ref(), Limits::USUAL);
        let backward = self.backward();
        let beside = backward.map(|backward| {
            let mut scene = reshard_draw::plan(backward, None, Limits::USUAL);
            scene.title = format!("backward: {}", scene.title);
            scene
        });
        let ran = reshard_draw::local_notation(plan, backward);
        let more = Scene::joined("", beside.into_iter().chain([ran]).collect());
        scene.parts.extend(more.parts);
        scene.about.extend([" ", &more.about]);
        more.notes.into_iter().fold(scene, Scene::noted)
    }
}

impl Planned {
    fn text(&self) -> String {
        let Planned { plan, savings, explanation, .. } = self;
        let mut text = explanation
            .as_ref()
            .map_or_else(|| format!("{plan}\n"), |explanation| format!("{explanation}\n"));
        for (group, saved_us) in savings.iter().flatten() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  one more group, {group}, would save {saved_us:.1} us");
        }
        text
    }
}

/// Brings both shardings to the shape with fewer dims.
///
/// A ragged shard of several dims is a sharding of the tensor with these dims as one.
fn of_one_shape(from: Sharding, to: Sharding) -> Result<(Sharding, Sharding), CliError> {
    Ok(match from.shape().len().cmp(&to.shape().len()) {
        Ordering::Equal => (from, to),
        Ordering::Greater => (from.view(to.shape())?, to),
        Ordering::Less => {
            let viewed = to.view(from.shape())?;
            (from, viewed)
        }
    })
}

fn plan(request: &Request, is_drawn: bool) -> Result<Answered, CliError> {
    let mesh = request.mesh.or_inlined([request.from.as_deref(), request.to.as_deref()])?;
    let to_mesh = request.to_mesh.as_deref().map_or_else(|| Ok(mesh.clone()), str::parse)?;
    let shape = request.shape.required()?;
    let (from, to) = (required("from", request.from.as_deref())?, required("to", request.to.as_deref())?);
    let dtype = element::dtype(request.dtype.as_deref())?;
    let mut planner = network::planner(&request.topology, &request.objective)?;
    if let Some(budget) = request.search_budget.given()? {
        planner = planner.budget(budget);
    }
    if let Some(bytes) = request.max_peak_bytes {
        planner = planner.max_peak_bytes(bytes);
    }
    if let Some(text) = &request.groups {
        planner = planner.with_groups(groups(text, &[&mesh, &to_mesh])?);
    }
    let planned = |from: Sharding, to: Sharding| -> Result<Planned, CliError> {
        let (from, to) = of_one_shape(from, to)?;
        let plan = planner.plan(&from, &to, dtype)?;
        let savings = match request.groups {
            Some(_) => Some(planner.group_savings(&plan)?),
            None => None,
        };
        let explained =
            if request.explain || is_drawn { Some(planner.explain(&from, &to, dtype)?) } else { None };
        let greedy = explained.as_ref().filter(|_| is_drawn).and_then(|explained| explained.greedy.clone());
        Ok(Planned { plan, savings, explanation: explained.filter(|_| request.explain), greedy })
    };
    if !request.types {
        let (from, to) = (Sharding::parse(&mesh, &shape, from)?, Sharding::parse(&to_mesh, &shape, to)?);
        return Ok(Answered { forward: planned(from, to)?, gradients: Gradients::NotAsked });
    }
    let (from, to) = (ShardingType::parse(&mesh, &shape, from)?, ShardingType::parse(&to_mesh, &shape, to)?);
    let forward = planned(from.value, to.value)?;
    let gradients = match (to.gradient, from.gradient) {
        (Some(after), Some(before)) => Gradients::Planned(Box::new(planned(after, before)?)),
        (None, _) | (_, None) => Gradients::Missing,
    };
    Ok(Answered { forward, gradients })
}

/// The groups that exist: `axes` for each axis alone, the names of axes, layouts of ranks, or lists of them.
fn groups(text: &str, meshes: &[&Mesh]) -> Result<Vec<GroupPattern>, CliError> {
    let mut groups = Vec::new();
    for entry in text.split(';').map(str::trim) {
        if entry.is_empty() {
            let message = format!(
                "empty group in {text:?}; remove the extra `;`, or give a group such as `4:1`, `dp,tp` or `axes`"
            );
            return Err(CliError::refused("parse", message));
        }
        if entry == "axes" {
            for mesh in meshes {
                for axis in mesh.axes() {
                    groups.push(mesh.group_of_axes(&[axis.name().as_str()])?);
                }
            }
        } else if entry.contains(':') || entry.starts_with('{') {
            groups.push(entry.parse()?);
        } else {
            let names: Vec<&str> = entry.split(',').map(str::trim).collect();
            groups.push(meshes[0].group_of_axes(&names)?);
        }
    }
    Ok(groups)
}

impl Answer {
    fn of(Answered { forward, gradients }: &Answered) -> Self {
        let backward = match gradients {
            Gradients::NotAsked => None,
            Gradients::Missing => Some(Backward::Nothing),
            Gradients::Planned(planned) => Some(Backward::Plan(Box::new(Answer::of_plan(planned)))),
        };
        Self { backward, ..Answer::of_plan(forward) }
    }

    fn of_plan(Planned { plan, savings, explanation, .. }: &Planned) -> Self {
        Self {
            steps: plan.steps().iter().map(StepAnswer::of).collect(),
            received_bytes: plan.received_bytes(),
            cost_us: plan.cost_us(),
            lower_bound_us: plan.lower_bound_us(),
            lower_bound_cut: plan.lower_bound_cut().map(CutAnswer::of),
            lower_bound_bytes: plan.lower_bound_bytes(),
            peak_bytes: plan.peak_bytes(),
            max_shard_bytes: plan.max_shard_bytes(),
            groups: plan.groups().into_iter().map(ToString::to_string).collect(),
            exhausted: plan.is_budget_exhausted(),
            savings: savings.as_ref().map(|savings| {
                let saving = |(group, saved_us): &(GroupPattern, f64)| Saving {
                    group: group.to_string(),
                    saved_us: *saved_us,
                };
                savings.iter().map(saving).collect()
            }),
            greedy: explanation
                .as_ref()
                .map(|x| x.greedy.as_ref().map_or(Beside::Nothing, |plan| Beside::Plan(Greedy::of(plan)))),
            considered: explanation.as_ref().map(|x| x.candidates.iter().map(Candidate::of).collect()),
            chosen: explanation.as_ref().and_then(|x| x.chosen),
            backward: None,
        }
    }
}

impl Greedy {
    fn of(plan: &Plan) -> Self {
        Self {
            cost_us: plan.cost_us(),
            received_bytes: plan.received_bytes(),
            steps: plan.steps().iter().map(|step| step.op().as_str()).collect(),
        }
    }
}

impl StepAnswer {
    pub(super) fn of(step: &Step) -> Self {
        Self {
            op: step.op().as_str(),
            axes: step.axis_names(),
            group: step.group.to_string(),
            received_bytes: step.received_bytes,
            sent_bytes: step.sent_bytes,
            cost_us: step.cost_us,
            from: step.before.to_string(),
            to: step.after.to_string(),
        }
    }
}
