//! Timelines: times are the least that satisfy their definition.
//!
//! The critical path explains the whole, and sequential computing on one device takes the time of the report.

use std::collections::BTreeMap;
use std::iter::once;
use std::time::Duration;

use reshard_program::schedule::{
    Activity, CompileOptions, ExchangeStart, Instruction, RankTimeline, RunRecord, Schedule, Timeline,
    Transfer, TransferStep,
};
use reshard_program::{ComputeRates, ImplicitRedistribution, Program, ShardingSolver};

/// Programs on ranks with equal work, on ranks with different work, and on ranks of which some are idle.
const PROGRAMS: [&str; 5] = [
    "mesh dp=2,tp=2
x: f32[8,64] S(0),I
w: f32[64,128] I,S(1)
v: f32[128,64] I,S(0)
h = mm(x, w)
a = relu(h)
y: S(0),I = mm(a, v)
loss = sum(y)
gradient loss wrt w, v
w' = sgd(w, dw)
v' = sgd(v, dv)",
    "mesh dp=3
x: f32[5,4096] S(0)
w: f32[4096,64] S(0)
h = mm(x, w)
y = exp(h)
z: R = y
loss = sum(y)
gradient loss wrt w",
    "mesh pp=2,tp=2
mesh first: tp=2
mesh second: tp=2@2
x: f32[8,512] I on first
w: f32[512,512] S(1) on first
v: f32[512,512] S(1) on second
h = mm(x, w)
g: I on second = h
y = mm(g, v)
l = sum(y)
gradient l wrt w, v",
    "mesh a=2,b=3
x: f32[12,7] S(0),P
y: S(1),S(0) = x
z: R,R = y
u: S(0),S(0) = z",
    "mesh x=4
q: f32[2,16,4,8] S(1)
k: f32[2,16,4,8] S(1)
qs: S(2) = q
ks: S(2) = k
s = mul(qs, ks)
o: S(1) = s",
];

fn programs() -> impl Iterator<Item = Program> {
    PROGRAMS.iter().map(|text| ShardingSolver::new().solve(&text.parse().unwrap()).unwrap())
}

fn schedules(program: &Program, hoist_bytes: u64) -> Vec<Schedule> {
    let options = CompileOptions { in_flight_bytes: hoist_bytes, ..CompileOptions::default() };
    program.mesh().ranks().map(|rank| program.compile(rank, &options).unwrap()).collect()
}

/// Returns the least times that satisfy every rule: raises a time from 0 until it breaks no rule.
fn by_definition(
    schedules: &[Schedule],
    cost_of: &dyn Fn(usize, usize) -> f64,
) -> BTreeMap<String, (f64, f64)> {
    let key = |value: &str, step: usize, members: &[usize]| format!("{value} step {step} of {members:?}");
    // A local copy of a rank belongs to that rank only.
    let members = |transfer: &Transfer, step: &TransferStep, rank: usize| {
        if transfer.communicates() { step.members.clone() } else { vec![rank] }
    };
    let mut begins: BTreeMap<String, f64> = BTreeMap::new();
    let mut costs: BTreeMap<String, f64> = BTreeMap::new();
    let mut calls: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for schedule in schedules {
        for transfer in schedule.exchanges() {
            for step in &transfer.steps {
                let cost = costs
                    .entry(key(&transfer.name(), step.step, &members(transfer, step, schedule.rank())))
                    .or_default();
                *cost = cost.max(step.cost_us);
            }
        }
    }
    loop {
        let before = begins.clone();
        for schedule in schedules {
            let (mut now, mut lane) = (0.0f64, 0.0f64);
            for (at, instr) in schedule.instructions().iter().enumerate() {
                match instr {
                    Instruction::Call { .. } => {
                        let begin = now;
                        now += cost_of(schedule.rank(), at);
                        calls.insert(format!("call {at} of {}", schedule.rank()), (begin, now));
                    }
                    Instruction::Post { exchange } => {
                        let transfer = &schedule.exchanges()[*exchange as usize];
                        let mut own = now;
                        for step in &transfer.steps {
                            let key =
                                key(&transfer.name(), step.step, &members(transfer, step, schedule.rank()));
                            let begin = begins.entry(key.clone()).or_default();
                            let free = if transfer.communicates() { &mut lane } else { &mut own };
                            *begin = begin.max(now).max(*free);
                            *free = *begin + costs[&key];
                        }
                    }
                    Instruction::Wait { exchange } => {
                        let transfer = &schedule.exchanges()[*exchange as usize];
                        if let Some(step) = transfer.steps.last() {
                            let key =
                                key(&transfer.name(), step.step, &members(transfer, step, schedule.rank()));
                            now = now.max(begins[&key] + costs[&key]);
                        }
                    }
                }
            }
        }
        if begins == before {
            break;
        }
    }
    let steps = begins.into_iter().map(|(key, begin)| (key.clone(), (begin, begin + costs[&key])));
    calls.into_iter().chain(steps).collect()
}

#[test]
fn times_are_the_least_that_keep_every_rule() {
    let rates = [ComputeRates::uniform(), ComputeRates::h100()].into_iter().cycle();
    let hoisted = programs().flat_map(|program| [(program.clone(), 0), (program, 1 << 20)]);
    for ((program, hoist_bytes), rates) in hoisted.zip(rates) {
        let schedules = schedules(&program, hoist_bytes);
        let timeline = Timeline::of(&schedules, &rates).unwrap();
        let mut found = BTreeMap::new();
        let mut costs = BTreeMap::new();
        for span in &timeline.spans {
            let name = match &span.activity {
                Activity::Call { rank, instr } => {
                    costs.insert((*rank, *instr), span.end_us - span.begin_us);
                    format!("call {instr} of {rank}")
                }
                Activity::Step { value, step, members } => format!("{value} step {step} of {members:?}"),
                Activity::Exchange { .. } => panic!("the model has steps"),
            };
            assert!(found.insert(name, (span.begin_us, span.end_us)).is_none());
        }
        let wanted = by_definition(&schedules, &|rank, instr| costs[&(rank, instr)]);
        assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{program}");
        for (name, (begin, end)) in &wanted {
            let (b, e) = found[name];
            assert!(
                (b - begin).abs() < 1e-9 && (e - end).abs() < 1e-9,
                "{name} {b} {e} {begin} {end}\n{program}"
            );
        }
    }
}

#[test]
fn the_critical_path_is_the_whole() {
    for program in programs() {
        let timeline = Timeline::of(&schedules(&program, 0), &ComputeRates::uniform()).unwrap();
        let path = timeline.critical_path();
        assert_eq!(path.first().map(|span| span.begin_us), Some(0.0), "{program}");
        assert!(path.windows(2).all(|two| two[0].end_us.to_bits() == two[1].begin_us.to_bits()), "{program}");
        assert_eq!(path.last().map(|span| span.end_us), Some(timeline.total_us()), "{program}");
        for lane in &timeline.lanes {
            let busy = timeline.computing_us(lane) + timeline.waiting_us(lane);
            assert!(busy <= timeline.total_us() + 1e-9, "{program}");
            // Nothing is posted before it is waited for, so nothing is overlapped.
            assert!(timeline.hidden_us(lane).abs() < 1e-9, "{program}");
        }
    }
}

#[test]
fn where_all_ranks_do_the_same_the_whole_is_what_the_report_adds_up() {
    let program = programs().next().unwrap();
    let report = program.report(&ComputeRates::uniform());
    let (c, t) = (report.compute_us, report.traffic);
    let sum = c.forward + c.backward + c.update + t.forward.cost_us + t.backward.cost_us + t.update.cost_us;
    let timeline = Timeline::of(&schedules(&program, 0), &ComputeRates::uniform()).unwrap();
    assert!((timeline.total_us() - sum).abs() < 1e-9, "{} {sum}", timeline.total_us());
}

/// A bucket costs as much as one redistribution of all its bytes.
///
/// A single redistribution is a bucket by itself. For shards that some ranks do not hold: a redistribution
/// costs what its plan gives, and ranks outside a step do not delay it.
#[test]
fn every_move_has_a_timeline() {
    let types = ["R,R", "S(0),R", "R,S(0)", "R,S(1)", "S(0),S(1)", "S(0),S(0)", "P,R", "R,P", "S(1),P"];
    let mut count = 0;
    for mesh in ["a=2,b=2", "a=4,b=3"] {
        for rows in [1, 2, 5] {
            for from in types {
                for to in types {
                    let text = format!("mesh {mesh}\nx: f32[{rows},2] {from}\ny: {to} = x");
                    let Ok(program) = text.parse::<Program>() else { continue };
                    let lists = schedules(&program, 0);
                    let timeline = Timeline::of(&lists, &ComputeRates::uniform());
                    let timeline = timeline.unwrap_or_else(|e| panic!("{text}: {e}"));
                    let cost = program.report(&ComputeRates::uniform()).traffic.forward.cost_us;
                    assert!(timeline.total_us() <= cost + 1e-9, "{text}: {} of {cost}", timeline.total_us());
                    let records = records(&lists, &timeline, ExchangeStart::AtPost);
                    assert!(Timeline::measured(&lists, &records).is_ok(), "{text}");
                    count += 1;
                }
            }
        }
    }
    assert!(count > 300, "{count}");
}

#[test]
fn a_bucket_pays_its_latency_once() {
    // Reduces `count` gradients of `rows` rows, with one bucket for all of them.
    let total = |count: usize, rows: usize, bucket_bytes: u64| {
        let values = (0..count).map(|n| format!("x{n}: f32[{rows},64] P|-"));
        let moved = (0..count).map(|n| format!("y{n}: R|- = x{n}"));
        let lines: Vec<String> = once("mesh dp=4".to_owned()).chain(values).chain(moved).collect();
        let program = lines.join("\n").parse().unwrap();
        let program = ShardingSolver::new()
            .implicit_redistribution(ImplicitRedistribution::Deny)
            .solve(&program)
            .unwrap();
        let options = CompileOptions { bucket_bytes, ..CompileOptions::default() };
        let schedules: Vec<Schedule> =
            program.mesh().ranks().map(|rank| program.compile(rank, &options).unwrap()).collect();
        let exchanges = schedules[0].exchanges().len();
        (Timeline::of(&schedules, &ComputeRates::uniform()).unwrap().total_us(), exchanges)
    };
    let (alone, one) = total(1, 64, 0);
    assert_eq!((total(1, 64, u64::MAX), one), ((alone, 1), 1));
    for count in [2, 5, 16] {
        let ((bucket, one), (each, many)) = (total(count, 64, u64::MAX), total(count, 64, 0));
        assert_eq!((one, many), (1, count));
        let (large, _) = total(1, 64 * count, 0);
        assert!((bucket - large).abs() < 1e-9, "{count}: {bucket} and not {large} us");
        assert!((each - alone * count as f64).abs() < 1e-9, "{count}: {each} us");
        assert!(bucket < each && bucket > alone, "{count}: {bucket} of {each} us");
    }
}

#[test]
fn lists_that_do_not_belong_together_are_refused() {
    let all: Vec<Vec<Schedule>> = programs().map(|program| schedules(&program, 0)).collect();
    let of = |list: &[Schedule]| Timeline::of(list, &ComputeRates::uniform()).unwrap_err().to_string();
    assert!(of(&all[0][..3]).contains("whose schedule is missing"));
    assert!(of(&[all[0][0].clone(), all[0][0].clone()]).contains("two schedules are of rank 0"));
    let mixed = [all[0][..3].to_vec(), vec![all[4][3].clone()]].concat();
    assert!(of(&mixed).contains("pass the schedules of one program"), "{}", of(&mixed));
}

/// Overlap chunks are chosen only where the timeline of all ranks gets shorter.
#[test]
fn pieces_are_made_where_they_take_less_time() {
    use reshard_planner::{Planner, Topology};
    let elaborator = || {
        ShardingSolver::new().planner(Planner::new().topology(Topology::h100())).rates(ComputeRates::h100())
    };
    let options = CompileOptions { in_flight_bytes: 1 << 32, ..CompileOptions::default() };
    let us = |program: &Program| {
        let schedules = program.mesh().ranks().map(|rank| program.compile(rank, &options).unwrap());
        Timeline::of(&schedules.collect::<Vec<_>>(), &ComputeRates::h100()).unwrap().total_us()
    };
    let layer = |rows: usize| {
        let text = format!(
            "mesh tp=4\nx: bf16[{rows},4096] S(0)|-\nw: bf16[4096,16384] S(1)|-\nv: bf16[16384,4096] S(0)|-\n\
             g: R|- = x\nh: S(1)|- = mm(g, w)\na = relu(h)\np = mm(a, v)\ny: S(0)|- = p\n"
        );
        elaborator().solve(&text.parse().unwrap()).unwrap()
    };
    let (large, small) = (layer(16384), layer(64));
    let chunked = large.overlap(&options, &elaborator()).unwrap();
    assert!(us(&chunked) < 0.95 * us(&large), "{} of {}", us(&chunked), us(&large));
    let g = large.value("g").unwrap();
    let tried = [2, 4, 8, 16, 32].map(|pieces| us(&large.overlap_value(g, pieces, &elaborator()).unwrap()));
    assert!(tried.iter().all(|other| us(&chunked) <= other * 1.02), "{tried:?}");
    assert_eq!(small.overlap(&options, &elaborator()).unwrap().to_string(), small.to_string());
}

#[test]
fn what_cannot_be_in_pieces_says_why() {
    let text = "mesh tp=2\nx: f32[6,4] S(0)|-\nw: f32[4,4] R|-\ng: R|- = x\nh = mm(g, w)\na = relu(g)\nf: R|- = w\n\
                u: R|- = x\ns = softmax(u, dim=0)\nk: R|- = x\nm = mm(k, w)\n";
    let program = ShardingSolver::new()
        .implicit_redistribution(ImplicitRedistribution::Deny)
        .solve(&text.parse().unwrap())
        .unwrap();
    let refused = |name: &str, pieces: usize| {
        let v = program.value(name).unwrap();
        program.overlap_value(v, pieces, &ShardingSolver::new()).unwrap_err().to_string()
    };
    assert!(refused("g", 3).contains("`g` has 2 consumers (h, a)"), "{}", refused("g", 3));
    assert!(
        refused("f", 2).contains("`f` is not the result of a communicating redistribution"),
        "{}",
        refused("f", 2)
    );
    assert!(
        refused("w", 2).contains("`w` is not the result of a communicating redistribution"),
        "{}",
        refused("w", 2)
    );
    assert!(refused("u", 3).contains("softmax(dim=0) has no dim of `u`"), "{}", refused("u", 3));
    // Of 6 rows a rank has 3.
    assert!(
        refused("k", 2).contains("mm has no dim of `k` that can be split into 2 chunks"),
        "{}",
        refused("k", 2)
    );
    assert!(program.overlap_value(program.value("k").unwrap(), 3, &ShardingSolver::new()).is_ok());
    assert!(refused("k", 1).contains("between 2 and 1024, not 1"), "{}", refused("k", 1));
}

/// Returns the records of a run in which everything takes the modelled time.
fn records(schedules: &[Schedule], timeline: &Timeline, begins: ExchangeStart) -> Vec<RunRecord> {
    let time = |us: f64| Duration::from_nanos((us * 1000.0).round() as u64);
    let record = |(schedule, lane): (&Schedule, &RankTimeline)| {
        let mut calls = lane.calls.iter().map(|&n| &timeline.spans[n]);
        let mut now = 0.0f64;
        let times = schedule.instructions().iter().map(|instr| {
            let begin = now;
            match instr {
                Instruction::Call { .. } => now = calls.next().unwrap().end_us,
                Instruction::Post { .. } => {}
                Instruction::Wait { exchange } => {
                    let name = schedule.exchanges()[*exchange as usize].name();
                    for span in lane.steps.iter().map(|&n| &timeline.spans[n]) {
                        if matches!(&span.activity, Activity::Step { value, .. } if *value == name) {
                            now = now.max(span.end_us);
                        }
                    }
                }
            }
            (time(begin), time(now))
        });
        RunRecord::new(schedule.rank(), begins, times.collect()).unwrap()
    };
    schedules.iter().zip(&timeline.lanes).map(record).collect()
}

#[test]
fn a_run_that_takes_what_the_model_says_is_measured_so() {
    let near = |a: f64, b: f64| (a - b).abs() < 0.05;
    let mut exchanged = 0;
    for (n, program) in programs().enumerate() {
        for (hoist_bytes, begins) in
            [(0, ExchangeStart::AtPost), (0, ExchangeStart::AtWait), (1 << 20, ExchangeStart::AtPost)]
        {
            let schedules = schedules(&program, hoist_bytes);
            let model = Timeline::of(&schedules, &ComputeRates::uniform()).unwrap();
            let records = records(&schedules, &model, begins);
            let measured = Timeline::measured(&schedules, &records).unwrap();
            assert!(measured.is_measured && !model.is_measured);
            assert!(near(measured.total_us(), model.total_us()), "{program}");
            for (lane, of) in measured.lanes.iter().zip(&model.lanes) {
                let [ends, wanted] = [(&measured, lane), (&model, of)].map(|(timeline, lane)| {
                    lane.calls.iter().map(|&n| timeline.spans[n].end_us).collect::<Vec<_>>()
                });
                assert!(ends.len() == wanted.len() && ends.iter().zip(&wanted).all(|(a, b)| near(*a, *b)));
                assert!(near(measured.computing_us(lane), model.computing_us(of)), "{program}");
                assert!(near(measured.waiting_us(lane), model.waiting_us(of)), "{program}");
                if hoist_bytes == 0 {
                    assert!(near(measured.hidden_us(lane), 0.0), "{program}");
                }
                // For collectives of one step, in which each rank receives from all, a clock sees as much as
                // the model.
                if n == 0 && hoist_bytes == 0 {
                    assert!(near(measured.exchanging_us(lane), model.exchanging_us(of)), "{program}");
                    exchanged += lane.steps.len();
                }
            }
            let path = measured.critical_path();
            assert!(path.windows(2).all(|two| two[0].end_us <= two[1].begin_us), "{program}");
            assert!(path.last().is_none_or(|span| near(span.end_us, measured.total_us())), "{program}");
            // The model has no idle time, so the measured path has no gap either.
            let sum: f64 = path.iter().map(|span| span.end_us - span.begin_us).sum();
            assert!(hoist_bytes > 0 || n != 0 || near(sum, measured.total_us()), "{sum} {program}");
            for record in &records {
                assert_eq!(record.to_string().parse::<RunRecord>().unwrap(), *record);
            }
        }
    }
    assert!(exchanged > 8, "{exchanged}");
}

#[test]
fn records_that_cannot_be_are_refused() {
    let program = programs().next().unwrap();
    let schedules = schedules(&program, 0);
    let model = Timeline::of(&schedules, &ComputeRates::uniform()).unwrap();
    let good = records(&schedules, &model, ExchangeStart::AtWait);
    let refused = |list: &[RunRecord]| Timeline::measured(&schedules, list).unwrap_err().to_string();
    assert!(refused(&good[..3]).contains("4 schedules but 3 records"));
    let mut mixed = good.clone();
    mixed.swap(0, 1);
    assert!(refused(&mixed).contains("its record is of rank 1"), "{}", refused(&mixed));
    let times = good[1].times();
    mixed = good.clone();
    mixed[1] = RunRecord::new(1, ExchangeStart::AtWait, times[1..].to_vec()).unwrap();
    assert!(refused(&mixed).contains(&format!("and has {};", times.len() - 1)), "{}", refused(&mixed));
    // A clock with an origin one second after the others.
    let late = times.iter().map(|(a, b)| (*a + Duration::from_secs(1), *b + Duration::from_secs(1)));
    mixed[1] = RunRecord::new(1, ExchangeStart::AtWait, late.collect()).unwrap();
    assert!(refused(&mixed).contains("use one clock for all ranks"), "{}", refused(&mixed));
    let back = [(3, 4), (3, 5)].map(|(a, b)| (Duration::from_nanos(a), Duration::from_nanos(b)));
    let back = RunRecord::new(0, ExchangeStart::AtWait, back.to_vec()).unwrap_err().to_string();
    assert!(
        back.contains("instruction 1 of rank 0 took from 3ns to 5ns, but the one before it ended at 4ns"),
        "{back}"
    );
    for text in [
        "",
        "rank x, exchanges begin at wait",
        "rank 0, exchanges begin at once",
        "rank 0, exchanges begin at wait\n1",
    ] {
        assert!(text.parse::<RunRecord>().is_err(), "{text}");
    }
}
