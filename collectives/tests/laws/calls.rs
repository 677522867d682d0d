//! Properties of a plan as a framework's calls: they have the result of `CompiledPlan` on threads, and cannot
//! deadlock.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use reshard_collectives::calls::{CollectiveCall, FrameworkGroups, RankCall, RankCalls, View, interpret};
use reshard_collectives::threads::World;
use reshard_kernels::DType;
use reshard_planner::{Objective, Plan, Planner, Step, StepOp};
use reshard_sharding::{Mesh, ReduceOp, Sharding};
use reshard_test_support::{Random, Sweep, every, random_mesh, random_shape, random_sharding};

/// Returns other data on every rank, also on replicas: whole numbers for exact sums, none below 0, for norms.
pub(crate) fn sources(plan: &Plan) -> Vec<Vec<u8>> {
    let shard = |rank: usize| {
        let number = |i: usize| 1 + rank as i64 * 10_007 + i as i64 * 3;
        let numbers = (0..plan.from().local_numel(rank)).map(number);
        numbers
            .flat_map(|n| if is_float(plan) { (n as f64).to_ne_bytes() } else { n.to_ne_bytes() })
            .collect()
    };
    plan.from().mesh().ranks().map(shard).collect()
}

fn is_float(plan: &Plan) -> bool {
    plan.dtype() == DType::F64
}

/// Averages and norms use floats, the others integers, whose arithmetic is independent of the order.
pub(crate) fn dtype_of(from: &Sharding, to: &Sharding) -> DType {
    let of_floats = |op: ReduceOp| op.divides() || op.is_of_magnitudes();
    let floats = from.partial().iter().chain(to.partial()).any(|axis| of_floats(axis.op));
    if floats { DType::F64 } else { DType::I64 }
}

/// Returns the groups of exactly the ranks that communicate in some step, each in an arbitrary order.
pub(crate) fn exact(plan: &Plan, random: &mut Random) -> Vec<Vec<usize>> {
    let mut groups = BTreeSet::new();
    for (step, phase) in plan.ranks().into_iter().flat_map(|rank| plan.phases(rank).unwrap()) {
        if plan.steps()[step].op().communicates() {
            groups.insert(phase.members);
        }
    }
    let shuffled = |mut group: Vec<usize>| {
        let turn = random.below(group.len());
        group.rotate_left(turn);
        if random.below(2) == 0 {
            group.reverse();
        }
        group
    };
    groups.into_iter().map(shuffled).collect()
}

/// Returns groups of some ranks, and of ranks next to the plan's.
fn drawn(plan: &Plan, random: &mut Random) -> Vec<Vec<usize>> {
    let mut ranks = plan.ranks();
    ranks.push(ranks[ranks.len() - 1] + 1);
    let group = |random: &mut Random| {
        let most = 1 + random.below(3);
        let group: Vec<usize> = ranks.iter().copied().filter(|_| random.below(4) < most).collect();
        if group.is_empty() { vec![ranks[0]] } else { group }
    };
    (0..random.below(8)).map(|_| group(random)).collect()
}

pub(crate) fn offers(groups: &[Vec<usize>]) -> FrameworkGroups {
    FrameworkGroups::new(groups.iter().enumerate().map(|(i, group)| (format!("g{i}"), group.clone())))
        .unwrap()
}

/// Counts of the calls of each kind, over all ranks.
#[derive(Default, Debug)]
struct Seen {
    plans: usize,
    kinds: BTreeMap<&'static str, usize>,
    terms: usize,
    attended: usize,
    /// Steps of ranks that are built from digits.
    by_digits: usize,
}

pub(crate) fn kind(call: &CollectiveCall) -> &'static str {
    match call {
        CollectiveCall::Local => "local",
        CollectiveCall::AllGather { .. } => "all_gather",
        CollectiveCall::ReduceScatter { .. } => "reduce_scatter",
        CollectiveCall::AllReduce { .. } => "all_reduce",
        CollectiveCall::AllToAll { .. } => "all_to_all",
        CollectiveCall::Messages { .. } => "messages",
    }
}

impl Seen {
    /// Checks all properties of one plan, with several lists of framework groups.
    fn check(&mut self, plan: &Plan, random: &mut Random) {
        let sources = sources(plan);
        let ranks = plan.ranks();
        let mut world = World::new(ranks[ranks.len() - 1] + 1).unwrap();
        let (want, _) = world.redistribute(plan, &sources).unwrap();
        let of_plan = exact(plan, random);
        let mut some: Vec<Vec<usize>> = of_plan.iter().filter(|_| random.below(2) == 0).cloned().collect();
        some.extend(drawn(plan, random));
        let mut ascending = of_plan.clone();
        for group in &mut ascending {
            group.sort_unstable();
        }
        for groups in [Vec::new(), of_plan.clone(), ascending, vec![ranks.clone()], drawn(plan, random), some]
        {
            let what = format!("{groups:?}\n{plan}");
            let offers = offers(&groups);
            let calls = |rank: &usize| RankCalls::new(plan, *rank, plan.dtype(), &offers).unwrap();
            let all: Vec<RankCalls> = ranks.iter().map(calls).collect();
            for (rank, calls) in ranks.iter().zip(&all) {
                let listed = RankCalls::listed(plan, *rank, plan.dtype(), &offers).unwrap();
                assert_eq!(*calls, listed, "rank {rank} of {what}");
            }
            let mut before = ranks.iter().map(|rank| {
                let place = plan.from().mesh().ranks().position(|other| other == *rank);
                place.map_or(Vec::new(), |place| sources[place].clone())
            });
            let after = interpret(&all, &before.by_ref().collect::<Vec<_>>())
                .unwrap_or_else(|e| panic!("{e}: {what}"));
            for (rank, want) in plan.to().mesh().ranks().zip(&want) {
                let place = ranks.binary_search(&rank).unwrap();
                assert!(after[place] == *want, "rank {rank} of {what}\n{}", all[place]);
            }
            for calls in &all {
                views_are_of_their_buffers(plan, calls);
                reductions_are_on_exactly_their_members(plan, calls);
                self.count(calls);
            }
            members_call_in_one_order(&all, &what);
            if groups == of_plan {
                only_the_plans_own_calls(plan, &all);
            }
        }
        let told =
            |step: &Step| ranks.iter().filter(|rank| step.digit_phase(**rank).unwrap().is_some()).count();
        self.by_digits += plan.steps().iter().map(told).sum::<usize>();
        self.plans += 1;
    }

    fn count(&mut self, calls: &RankCalls) {
        for call in calls.iter() {
            *self.kinds.entry(kind(&call.call)).or_default() += 1;
            self.terms += usize::from(call.combine.is_some());
            self.attended += usize::from(call.is_idle() && call.call.group().is_some());
        }
    }
}

/// Every element is in its buffer, each written element is written once, and buffers pass from call to call.
fn views_are_of_their_buffers(plan: &Plan, calls: &RankCalls) {
    let holds = plan.from().mesh().contains(calls.rank());
    let mut len = if holds { plan.from().local_numel(calls.rank()) } else { 0 };
    for call in calls.iter() {
        assert_eq!(call.source_len, len, "{plan}\n{calls}");
        len = call.target_len;
        assert!(call.pack.iter().all(|view| view.end() <= call.source_len), "{plan}\n{calls}");
        assert!(call.unpack.iter().all(|view| view.end() <= call.target_len), "{plan}\n{calls}");
        let (packed, received) = match &call.call {
            CollectiveCall::AllToAll { sends, receives, .. } => (sends.iter().sum(), receives.iter().sum()),
            CollectiveCall::Messages { sends, receives } => {
                (sends.iter().map(|m| m.1).sum(), receives.iter().map(|m| m.1).sum())
            }
            CollectiveCall::Local
            | CollectiveCall::AllGather { .. }
            | CollectiveCall::ReduceScatter { .. }
            | CollectiveCall::AllReduce { .. } => (call.packed_len(), call.received_len()),
        };
        assert_eq!((packed, received), (call.packed_len(), call.received_len()), "{plan}\n{calls}");
        let written = |views: &[View]| {
            let mut written = vec![0; call.target_len];
            views.iter().flat_map(View::elements).for_each(|element| written[element] += 1);
            written
        };
        let once = |times: &usize| if call.fill.is_some() { *times <= 1 } else { *times == 1 };
        if let Some(combine) = &call.combine {
            let mut bounds = vec![0, received];
            for term in &combine.terms {
                let times = written(&call.unpack[term.views.clone()]);
                assert!(times.iter().all(once), "{plan}\n{calls}");
                bounds.extend([term.start, term.start + times.iter().sum::<usize>()]);
            }
            // Partial values cover all received elements, each beginning where one ends.
            bounds.sort_unstable();
            assert!(bounds.chunks(2).all(|pair| pair[0] == pair[1]), "{plan}\n{calls}");
        } else if !call.is_idle() {
            let all: usize = call.unpack.iter().map(View::len).sum();
            assert_eq!(all, received, "{plan}\n{calls}");
            assert!(written(&call.unpack).iter().all(once), "{plan}\n{calls}");
        }
    }
}

fn reductions_are_on_exactly_their_members(plan: &Plan, calls: &RankCalls) {
    for call in calls.iter().filter(|call| call.call.reduces()) {
        let mut members = call.call.group().unwrap().members().to_vec();
        members.sort_unstable();
        let phases = plan.steps()[call.step].phases(calls.rank()).unwrap();
        assert_eq!(members, phases[0].members, "{plan}\n{calls}");
        assert!(phases[0].reduce.is_some(), "{plan}\n{calls}");
    }
}

/// The i-th call on a group is of one step and one kind on all its members, with counts that agree.
fn members_call_in_one_order(all: &[RankCalls], what: &str) {
    let mut by_group: BTreeMap<&str, BTreeMap<usize, Vec<&RankCall>>> = BTreeMap::new();
    for calls in all {
        for call in calls.iter() {
            let Some(group) = call.call.group() else { continue };
            by_group.entry(group.name()).or_default().entry(calls.rank()).or_default().push(call);
        }
    }
    for members in by_group.values() {
        let first = members.values().next().unwrap();
        let group = first[0].call.group().unwrap();
        assert_eq!(members.len(), group.members().len(), "not all members of {group} call: {what}");
        let listed =
            |calls: &[&RankCall]| -> Vec<_> { calls.iter().map(|c| (c.step, kind(&c.call))).collect() };
        assert!(members.values().all(|calls| listed(calls) == listed(first)), "calls on {group}: {what}");
        for (from, sender) in group.members().iter().enumerate() {
            for (to, receiver) in group.members().iter().enumerate() {
                for (sent, received) in members[sender].iter().zip(&members[receiver]) {
                    let ends = (&sent.call, &received.call);
                    if let (
                        CollectiveCall::AllToAll { sends, .. },
                        CollectiveCall::AllToAll { receives, .. },
                    ) = ends
                    {
                        assert_eq!(sends[to], receives[from], "{sender} to {receiver}: {what}");
                    }
                }
            }
        }
    }
}

/// With all groups of exactly its members, a step is the plan's own collective.
///
/// If ranks differ, it is an all-to-all with counts.
fn only_the_plans_own_calls(plan: &Plan, all: &[RankCalls]) {
    for calls in all {
        let mut steps = vec![0; plan.steps().len()];
        for call in calls.iter() {
            let step = &plan.steps()[call.step];
            steps[call.step] += 1;
            let even = step.before.layout().is_some() && step.after.layout().is_some();
            let is_norm = step.before.partial().iter().any(|axis| axis.op.is_of_magnitudes());
            let kinds: &[&str] = match step.op() {
                StepOp::Slice | StepOp::ZeroFill => &["local"],
                // A transposed step may also add or fill, and is then not a collective of frameworks.
                StepOp::AllGather if even && !step.is_transposed() => &["all_gather"],
                StepOp::ReduceScatter if even && !is_norm && !step.is_transposed() => &["reduce_scatter"],
                StepOp::AllReduce if !step.is_transposed() && (even || step.exchanges() == 2) && !is_norm => {
                    &["all_reduce"]
                }
                StepOp::ReduceScatter => &["reduce_scatter", "all_to_all"],
                StepOp::AllGather => &["all_gather", "all_to_all"],
                StepOp::AllReduce => &["all_reduce", "all_to_all"],
                StepOp::AllToAll | StepOp::Exchange => &["all_to_all"],
            };
            assert!(kinds.contains(&kind(&call.call)), "{plan}\n{calls}");
            assert!(!call.is_idle() || call.source_len == 0 || kinds == ["local"], "{plan}\n{calls}");
        }
        let most = |step: usize| {
            if kind_of_step(plan, calls, step) == "all_reduce" { 1 } else { plan.steps()[step].exchanges() }
        };
        assert!(steps.iter().enumerate().all(|(step, n)| *n <= most(step)), "{plan}\n{calls}");
    }
}

fn kind_of_step(plan: &Plan, calls: &RankCalls, step: usize) -> &'static str {
    let of_step = calls.iter().find(|call| call.step == step && plan.steps()[step].op().communicates());
    of_step.map_or("local", |call| kind(&call.call))
}

pub(crate) fn planner(random: &mut Random) -> Planner {
    let objective = *random.pick(&Objective::ALL);
    Planner::new().objective(objective).deterministic(random.below(6) == 0)
}

fn check_all(
    seen: &mut Seen,
    random: &mut Random,
    mesh: &str,
    shapes: &[&[usize]],
    texts: &[&str],
    one_in: usize,
) {
    let mesh: Mesh = mesh.parse().unwrap();
    let lists = every(texts, mesh.axes().len());
    for shape in shapes {
        let parse = |list: &Vec<&str>| Sharding::parse(&mesh, shape, &list.join(",")).ok();
        let all: Vec<Sharding> = lists.iter().filter_map(parse).collect();
        for (n, (from, to)) in all.iter().flat_map(|from| all.iter().map(move |to| (from, to))).enumerate() {
            if !Sweep::asked().takes_one_in(5 * one_in, n) {
                continue;
            }
            let Ok(plan) = planner(random).plan(from, to, dtype_of(from, to)) else { continue };
            seen.check(&plan, random);
        }
    }
}

#[test]
fn the_page_begins_with_the_example_that_runs() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // A published package has no pages.
    let Ok(page) = fs::read_to_string(crate_root.join("../docs/calls.md")) else { return };
    let shown = page.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let library = fs::read_to_string(crate_root.join("src/calls/mod.rs")).unwrap();
    let comments = library.lines().map_while(|line| line.strip_prefix("//!"));
    let said: Vec<&str> = comments.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    assert!(said.join("\n").contains(shown), "the page shows\n{shown}");
    assert!(shown.lines().count() >= 10);
}

#[test]
fn calls_mean_what_is_compiled() {
    let (mut seen, mut random) = (Seen::default(), Random(11));
    let texts = ["R", "S(0)", "S(1)", "SS(0,2)", "P", "P(max)", "P(avg)", "P(norm2)"];
    check_all(&mut seen, &mut random, "x=3", &[&[12, 6], &[7, 5], &[], &[0, 3]], &texts, 1);
    check_all(&mut seen, &mut random, "x=2,y=2", &[&[8, 12], &[7, 5], &[0, 3]], &texts, 7);
    check_all(&mut seen, &mut random, "x=2:1,y=3:2@1", &[&[12, 6], &[5, 7]], &texts, 11);
    check_all(&mut seen, &mut random, "x=2,y=2,z=2", &[&[16, 8]], &["R", "S(0)", "S(1)", "P"], 61);
    check_all(
        &mut seen,
        &mut random,
        "x=4@[1,2,3,0]",
        &[&[12, 8], &[5, 3]],
        &["R", "S(0)", "S(1)", "P(min)", "Z(0)"],
        1,
    );
    println!("{seen:?}");
    assert_eq!(seen.kinds.len(), 6, "{seen:?}");
    let least = if Sweep::asked() == Sweep::All { 900 } else { 90 };
    assert!(seen.terms > least && seen.attended > least && seen.by_digits > least, "{seen:?}");
}

#[test]
fn calls_of_random_plans_mean_what_is_compiled() {
    let (mut seen, mut random) = (Seen::default(), Random(Sweep::asked().seed() + 2026));
    let count = Sweep::asked().count(120, 20_000);
    for _ in 0..count {
        let mesh = random_mesh(&mut random);
        let shape = random_shape(&mut random);
        let (from, to) =
            (random_sharding(&mut random, &mesh, &shape), random_sharding(&mut random, &mesh, &shape));
        let Ok(plan) = planner(&mut random).plan(&from, &to, dtype_of(&from, &to)) else { continue };
        seen.check(&plan, &mut random);
        if let Ok(back) = plan.transposed() {
            seen.check(&back, &mut random);
        }
    }
    println!("{seen:?}");
    assert!(seen.plans as u64 > count * 5 / 6 && seen.kinds.len() == 6, "{seen:?}");
}

#[test]
fn calls_between_meshes_mean_what_is_compiled() {
    let (mut seen, mut random, mut cases) = (Seen::default(), Random(5), Sweep::asked().picking(8));
    let meshes = ["dp=2,tp=4", "tp=8", "cp=3,tp=2", "dp=2,tp=2@4", "dp=2:1,tp=2:2", "x=5@1"];
    let texts =
        |axes: usize| if axes == 1 { &["S(0)", "R", "P"][..] } else { &["S(0),S(1)", "R,S(0)", "P,S(1)"] };
    for shape in [&[16, 24][..], &[7, 5], &[0, 5]] {
        for (from, to) in every(&meshes, 2).into_iter().map(|pair| (pair[0], pair[1])) {
            let (from, to): (Mesh, Mesh) = (from.parse().unwrap(), to.parse().unwrap());
            for (before, after) in texts(from.axes().len())
                .iter()
                .flat_map(|a| texts(to.axes().len()).iter().map(move |b| (a, b)))
            {
                let source = Sharding::parse(&from, shape, before).unwrap();
                let target = Sharding::parse(&to, shape, after).unwrap();
                let picked = cases.picks_next();
                if let (true, Ok(plan)) = (picked, planner(&mut random).plan(&source, &target, DType::I64)) {
                    seen.check(&plan, &mut random);
                }
            }
        }
    }
    println!("{seen:?}");
    let part = if Sweep::asked() == Sweep::All { 1 } else { 10 };
    assert!(seen.plans > 400 / part && seen.attended > 100 / part, "{seen:?}");
}

#[test]
fn calls_that_do_not_belong_together_are_refused() {
    let mesh: Mesh = "x=2".parse().unwrap();
    let calls = |shape: &[usize], rank: usize, dtype: DType, groups: &FrameworkGroups| {
        let sharded = |text: &str| Sharding::parse(&mesh, shape, text).unwrap();
        let plan = Planner::new().plan(&sharded("S(0)"), &sharded("R"), dtype).unwrap();
        RankCalls::new(&plan, rank, dtype, groups).unwrap()
    };
    let (none, all) = (FrameworkGroups::none(), FrameworkGroups::new([("x", vec![0, 1])]).unwrap());
    for groups in [&none, &all] {
        let [a, b] = [0, 1].map(|rank| calls(&[4], rank, DType::U8, groups));
        let other = calls(&[8], 1, DType::U8, groups);
        let wide = calls(&[4], 1, DType::F32, groups);
        assert!(interpret(&[a.clone(), b.clone()], &[vec![1, 2], vec![3, 4]]).is_ok());
        for (ranks, sources, kind) in [
            (vec![a.clone()], vec![], "buffer"),
            (vec![a.clone(), b.clone()], vec![vec![1, 2], vec![3]], "buffer"),
            (vec![a.clone(), a.clone()], vec![vec![1, 2], vec![3, 4]], "phase"),
            (vec![a.clone()], vec![vec![1, 2]], "phase"),
            (vec![a.clone(), other], vec![vec![1, 2], vec![3; 4]], "phase"),
            (vec![a, wide], vec![vec![1, 2], vec![3; 8]], "dtype"),
        ] {
            assert_eq!(interpret(&ranks, &sources).map_err(|e| e.code()), Err(kind), "{ranks:?}");
        }
    }
}
