//! The content of drawings matches the values, on all small cases.

use std::time::Duration;

use reshard_draw::{
    Bar, Cell, Grid, Lanes, Limits, Paint, Part, Scene, cost, local_notation, measured, memory, sharding,
};
use reshard_draw::{chrome_trace, mesh, plan_steps, timeline};
use reshard_kernels::DType;
use reshard_planner::Planner;
use reshard_program::schedule::{CompileOptions, ExchangeStart, Instruction, RunRecord, Schedule, Timeline};
use reshard_program::{ComputeRates, Program};
use reshard_sharding::{Mesh, Sharding};

fn grids(parts: &[Part]) -> Vec<&Grid> {
    let mut all = Vec::new();
    for part in parts {
        match part {
            Part::Grid(grid) => all.push(grid),
            Part::Group(group) => all.extend(grids(&group.parts)),
            Part::Line(_) | Part::Flow(_) | Part::Lanes(_) => {}
        }
    }
    all
}

fn lanes(scene: &Scene) -> &Lanes {
    let lanes =
        scene.parts.iter().find_map(|part| if let Part::Lanes(lanes) = part { Some(lanes) } else { None });
    lanes.expect("it has lanes")
}

/// All shardings of some shapes on some meshes, uneven and partial ones too.
fn shardings() -> Vec<Sharding> {
    let mut all = Vec::new();
    for (mesh, axes) in [("x=2", 1), ("x=3", 1), ("x=2,y=2", 2), ("x=2,y=3@[5,4,3,2,1,0]", 2)] {
        let mesh: Mesh = mesh.parse().expect("a mesh");
        for shape in [&[4][..], &[5], &[4, 3], &[2, 3, 4], &[1, 2, 3, 2]] {
            let mut words = vec!["R".to_owned(), "P".to_owned()];
            words.extend((0..shape.len()).map(|dim| format!("S({dim})")));
            words.push("Z(0)".to_owned());
            let lists: Vec<String> = if axes == 1 {
                words.clone()
            } else {
                words.iter().flat_map(|a| words.iter().map(move |b| format!("{a},{b}"))).collect()
            };
            all.extend(lists.iter().filter_map(|text| Sharding::parse(&mesh, shape, text).ok()));
        }
    }
    assert!(all.len() > 300, "{}", all.len());
    all
}

/// The number of the element of a cell, by the labels of its row and column.
///
/// Dims alternate x, y, x, y from the last.
fn element(shape: &[usize], grid: &Grid, row: usize, column: usize) -> usize {
    let places =
        |label: &str| -> Vec<usize> { label.split(',').filter_map(|word| word.parse().ok()).collect() };
    let (mut ys, mut xs) = (places(&grid.rows[row].label), places(&grid.columns[column].label));
    let mut index = vec![0; shape.len()];
    for dim in (0..shape.len()).rev() {
        let is_x = (shape.len() - dim) % 2 == 1;
        index[dim] = if is_x { xs.pop() } else { ys.pop() }.expect("a coordinate of every dim");
    }
    index.iter().zip(shape).fold(0, |n, (i, len)| n * len + i)
}

/// Property: the cell of an element names the ranks that hold it, for all small shardings.
#[test]
fn cells_tell_who_holds_an_element() {
    for one in shardings() {
        let scene = sharding(&one, Limits::USUAL);
        let [grid] = grids(&scene.parts)[..] else { panic!("one grid") };
        let held: Vec<(usize, Vec<usize>)> =
            one.mesh().ranks().map(|rank| (rank, one.global_indices(rank).expect("small"))).collect();
        let mut seen = 0;
        for row in 0..grid.rows.len() {
            for column in 0..grid.columns.len() {
                let element = element(one.shape(), grid, row, column);
                let mut ranks: Vec<usize> =
                    held.iter().filter(|(_, list)| list.contains(&element)).map(|(rank, _)| *rank).collect();
                ranks.sort_unstable();
                let cell: &Cell = &grid.cells[row][column];
                assert_eq!(cell.ranks, ranks, "element {element} of {one} {:?}", one.shape());
                assert_eq!(cell.paint, Paint::Hues(ranks.into_iter().take(8).collect()));
                assert_eq!(
                    cell.text.contains('+'),
                    one.is_partial() && cell.ranks.len() > 1,
                    "{}: {one}",
                    cell.text
                );
                seen += 1;
            }
        }
        assert_eq!(seen, one.numel());
    }
}

/// Property: a line separates two rows or columns if and only if other ranks hold them.
#[test]
fn lines_cut_where_holders_change() {
    for one in shardings() {
        let scene = sharding(&one, Limits::USUAL);
        let [grid] = grids(&scene.parts)[..] else { panic!("one grid") };
        let ranks = |row: usize, column: usize| &grid.cells[row][column].ranks;
        for row in 1..grid.rows.len() {
            let differ = (0..grid.columns.len()).any(|column| ranks(row, column) != ranks(row - 1, column));
            // At a step of an outer dim, an inner one restarts: such a line belongs to the outer dim.
            if grid.rows[row].gap == 0 {
                assert_eq!(grid.rows[row].cut.is_some(), differ, "row {row} of {one}");
            }
        }
        for column in 1..grid.columns.len() {
            let differ = (0..grid.rows.len()).any(|row| ranks(row, column) != ranks(row, column - 1));
            if grid.columns[column].gap == 0 {
                assert_eq!(grid.columns[column].cut.is_some(), differ, "column {column} of {one}");
            }
        }
    }
}

/// Property: whatever the limits, the parts that are not drawn are reported as left out.
#[test]
fn nothing_is_left_out_silently() {
    let mesh_of: Mesh = "a=3,b=40,c=50".parse().expect("a mesh");
    for side in 1..12 {
        let limits = Limits { side, ranks: side, ..Limits::USUAL };
        let scene = mesh(&mesh_of, limits);
        let ranks: usize = grids(&scene.parts)
            .iter()
            .flat_map(|grid| grid.cells.iter().flatten())
            .filter(|cell| !cell.ranks.is_empty())
            .count();
        assert!(ranks < mesh_of.size() && scene.notes.iter().any(|note| note.contains("left out")), "{side}");
        let one = Sharding::parse(&mesh_of, &[300, 1000, 7], "S(0),S(1),R").expect("a sharding");
        let scene = sharding(&one, limits);
        let [grid] = grids(&scene.parts)[..] else { panic!("one grid") };
        let marks = grid.rows.iter().chain(&grid.columns).filter(|head| head.left_out > 0).count();
        assert!(
            marks > 0 && scene.notes.iter().any(|note| note.contains("left out")),
            "{side}: {:?}",
            scene.notes
        );
    }
}

/// Property: after a run, the letters of each rank are those of the parts of its region.
///
/// They are whole where no axis is partial.
#[test]
fn letters_are_the_parts_that_are_held() {
    let mesh_of: Mesh = "x=2,y=2".parse().expect("a mesh");
    let words = ["R", "P", "S(0)", "S(1)"];
    let all: Vec<Sharding> = words
        .iter()
        .flat_map(|a| words.iter().map(move |b| format!("{a},{b}")))
        .map(|text| Sharding::parse(&mesh_of, &[4, 4], &text).expect("a sharding"))
        .collect();
    let mut partial = 0;
    for from in &all {
        for to in &all {
            let Ok(plan) = Planner::new().plan(from, to, DType::F32) else { continue };
            let scene = local_notation(&plan, None);
            let table = grids(&scene.parts)[0];
            // Parts are the ranges between the borders of both, in order.
            let cuts = |dim: usize| {
                let of = |one: &Sharding| {
                    (0..4).map(|rank| one.region(rank).expect("a region").dims[dim].len()).max()
                };
                let halves =
                    |one: &Sharding| (0..4).any(|rank| one.local_shape(rank).expect("a shape")[dim] < 4);
                assert!(of(from).is_some());
                let quarters =
                    |one: &Sharding| (0..4).any(|rank| one.local_shape(rank).expect("a shape")[dim] == 1);
                if quarters(from) || quarters(to) {
                    4
                } else if halves(from) || halves(to) {
                    2
                } else {
                    1
                }
            };
            let (rows, columns) = (cuts(0), cuts(1));
            for (at, row) in table.cells.iter().enumerate() {
                for (one, cell) in [(from, &row[1]), (to, &row[3])] {
                    let mut letters: Vec<char> = Vec::new();
                    for element in one.global_indices(at).expect("small") {
                        let part = (element / 4 * rows / 4) * columns + element % 4 * columns / 4;
                        let letter = char::from(b'A' + part as u8);
                        if !letters.contains(&letter) {
                            letters.push(letter);
                        }
                    }
                    // A partial value may be zero, so letters of partial tensors may be missing.
                    if one.is_partial() {
                        partial += 1;
                        let owed = |word: &str| {
                            word == "0+"
                                || word
                                    .strip_suffix('+')
                                    .is_some_and(|l| letters.iter().any(|x| x.to_string() == l))
                        };
                        assert!(
                            cell.text[1..cell.text.len() - 1].split(',').all(owed),
                            "{} of {one}",
                            cell.text
                        );
                    } else {
                        let list: Vec<String> = letters.iter().map(char::to_string).collect();
                        assert_eq!(cell.text, format!("[{}]", list.join(",")), "rank {at}: {from} -> {to}");
                    }
                }
            }
        }
    }
    assert!(partial > 100, "{partial}");
}

/// Property: the drawn costs are the plan's, and the transferred bytes equal the prediction.
#[test]
fn bars_are_the_costs_of_steps() {
    let mesh_of: Mesh = "x=2,y=2".parse().expect("a mesh");
    for (from, to) in [("P,P", "R,R"), ("S(0),S(1)", "S(1),S(0)"), ("P,S(0)", "S(0),R")] {
        let of = |text: &str| Sharding::parse(&mesh_of, &[8, 8], text).expect("a sharding");
        let explained = Planner::new().explain(&of(from), &of(to), DType::F32).expect("a plan");
        let plan = &explained.plan;
        let scene = cost(plan, explained.greedy.as_ref());
        let bars: &[Bar] = &lanes(&scene).lanes[0].bars;
        let sum: f64 = bars.iter().map(|bar| bar.to - bar.from).sum();
        assert!((sum - plan.cost_us()).abs() < 1e-9);
        assert_eq!(plan_steps(plan, Limits::USUAL).len(), plan.steps().len());
        let scene = measured(plan);
        let most =
            lanes(&scene).lanes.iter().flat_map(|lane| &lane.bars).fold(0.0f64, |most, bar| most.max(bar.to));
        assert!(
            most <= plan.received_bytes() as f64 && (most > 0.0) == (plan.received_bytes() > 0),
            "{from} {to}"
        );
    }
}

const STEP: &str = "
mesh tp=2
x: f32[8,16] I
up: f32[16,32] S(1)
down: f32[32,16] S(0)
xr: R = x
h = mm(xr, up)
a = relu(h)
o = mm(a, down)
y: I = o
loss = sum(y)
gradient loss wrt up, down
";

/// Property: the peak of the live bytes over time is the report's, and the drawn memory ends there.
#[test]
fn the_greatest_moment_is_the_peak() {
    let graph: reshard_program::Graph = STEP.parse().expect("a program");
    let program: Program = reshard_program::ShardingSolver::new().solve(&graph).expect("it is right");
    let moments = program.memory_timeline();
    let peak = program.report(&ComputeRates::uniform()).peak;
    assert_eq!(moments.iter().map(|moment| moment.bytes).max(), Some(peak.bytes));
    assert_eq!(moments.iter().find(|moment| moment.bytes == peak.bytes), Some(&peak));
    assert!(moments.iter().all(|m| m.by_class.iter().sum::<u64>() + m.staging == m.bytes));
    for rows in [1, 2, 5, 200] {
        let scene = memory(&moments, Limits { rows, ..Limits::USUAL });
        let lanes = lanes(&scene);
        let most = lanes.lanes.iter().flat_map(|lane| &lane.bars).fold(0.0f64, |most, bar| most.max(bar.to));
        assert!(most.total_cmp(&(peak.bytes as f64)).is_eq() && lanes.lanes.len() <= rows.max(1));
    }
}

/// Property: bars of a timeline are its spans, the strong ones those of the critical path.
///
/// Chrome's format agrees.
#[test]
fn a_timeline_is_its_spans() {
    let graph: reshard_program::Graph = STEP.parse().expect("a program");
    let program: Program = reshard_program::ShardingSolver::new().solve(&graph).expect("it is right");
    let schedules: Vec<_> =
        (0..2).map(|rank| program.compile(rank, &CompileOptions::default()).expect("a schedule")).collect();
    let times = Timeline::of(&schedules, &ComputeRates::uniform()).expect("of one program");
    let scene = timeline(&times, &schedules, Limits::USUAL);
    let drawn = lanes(&scene);
    let strong: f64 = times.critical_path().iter().map(|span| span.end_us - span.begin_us).sum();
    assert!((strong - times.total_us()).abs() < 1e-6);
    let calls: usize = times.lanes.iter().map(|lane| lane.calls.len() + lane.waits.len()).sum();
    let bars: usize = drawn.lanes.iter().step_by(2).map(|lane| lane.bars.len()).sum();
    assert_eq!(bars, calls);
    let is_strong = drawn.lanes.iter().flat_map(|lane| &lane.bars).filter(|bar| bar.is_strong).count();
    assert!(is_strong >= times.critical_path().len());
    let trace: serde_json::Value = serde_json::from_str(&chrome_trace(&times, &schedules)).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let spans: usize =
        times.lanes.iter().map(|lane| lane.calls.len() + lane.steps.len() + lane.waits.len()).sum();
    assert_eq!(events.iter().filter(|event| event["ph"] == "X").count(), spans);
    let ends = events.iter().filter_map(|event| Some(event["ts"].as_f64()? + event["dur"].as_f64()?));
    assert!((ends.fold(0.0f64, f64::max) - times.total_us()).abs() < 1e-9);
}

/// Property: if there are more spans than bars, each span is in a bar of its lane.
///
/// That bar goes from the start of its first span to the end of its last.
///
/// As text, a lane has columns of each kind in proportion to its share of the whole.
#[test]
fn a_large_timeline_is_drawn_whole() {
    let layers: Vec<String> = (0..300).map(|n| format!("h{} = relu(h{n})\ny{n}: R = h{n}", n + 1)).collect();
    let text = format!("mesh tp=4\nh0: f32[4096,4096] S(0)\n{}\n", layers.join("\n"));
    let program: Program = text.parse().expect("it is typed");
    let of_rank = |rank| {
        program.compile(rank, &CompileOptions { in_flight_bytes: 1 << 40, ..CompileOptions::default() })
    };
    let schedules: Vec<_> = (0..4).map(|rank| of_rank(rank).expect("a schedule")).collect();
    let times = Timeline::of(&schedules, &ComputeRates::uniform()).expect("of one program");
    let limits = Limits { bars: 240, ..Limits::USUAL };
    let scene = timeline(&times, &schedules, limits);
    let drawn = lanes(&scene);
    assert!(drawn.lanes.iter().map(|lane| lane.bars.len()).sum::<usize>() <= limits.bars);
    for (lane, two) in times.lanes.iter().zip(drawn.lanes.chunks(2)) {
        for (numbers, bars) in [(&lane.calls, &two[0].bars), (&lane.steps, &two[1].bars)] {
            let spans = || numbers.iter().map(|&n| &times.spans[n]);
            let (first, last) = (spans().next().expect("a span"), spans().next_back().expect("a span"));
            assert!(bars.first().is_some_and(|bar| bar.from.to_bits() == first.begin_us.to_bits()));
            assert!(bars.iter().any(|bar| bar.to.to_bits() == last.end_us.to_bits()));
            assert!(
                spans().all(|span| bars.iter().any(|bar| bar.from <= span.begin_us && span.end_us <= bar.to))
            );
        }
    }
    let text = scene.text(false);
    assert!(text.contains("drawn as one with a neighbour"), "{text}");
    let share =
        |line: &str, letter: char| line.chars().filter(|c| c.eq_ignore_ascii_case(&letter)).count() as f64;
    let body = |rank: usize, what: &str| {
        let line = text.lines().find(|line| line.contains(&format!("rank {rank} {what}"))).expect("a line");
        line.split('|').nth(1).expect("a body").to_owned()
    };
    for (rank, lane) in times.lanes.iter().enumerate() {
        let exchanging = times.exchanging_us(lane) / times.total_us() * 60.0;
        let drawn = share(&body(rank, "exchanges"), 'x');
        assert!((drawn - exchanging).abs() <= 4.0, "{drawn} columns of {exchanging}:\n{text}");
        let waiting = times.waiting_us(lane) / times.total_us() * 60.0;
        let drawn = share(&body(rank, "calls    "), 'w');
        assert!((drawn - waiting).abs() <= 4.0, "{drawn} columns of {waiting}:\n{text}");
    }
}

/// Property: bars of a run are its calls, exchanges and waits, each once.
///
/// The title names the source of the times.
#[test]
fn a_measured_timeline_is_drawn_whole() {
    let graph: reshard_program::Graph = STEP.parse().expect("a program");
    let program: Program = reshard_program::ShardingSolver::new().solve(&graph).expect("it is right");
    let schedules: Vec<_> =
        (0..2).map(|rank| program.compile(rank, &CompileOptions::default()).expect("a schedule")).collect();
    // Sequential records, a microsecond each, with half a microsecond between them.
    let record = |schedule: &Schedule| {
        let time = |n: usize| Duration::from_nanos(1500 * n as u64);
        let times = (0..schedule.instructions().len()).map(|n| (time(n), time(n) + Duration::from_micros(1)));
        RunRecord::new(schedule.rank(), ExchangeStart::AtWait, times.collect()).expect("in order")
    };
    let records: Vec<RunRecord> = schedules.iter().map(record).collect();
    let times = Timeline::measured(&schedules, &records).expect("of one program");
    let scene = timeline(&times, &schedules, Limits::USUAL);
    assert!(scene.title.ends_with("of a run, by the clock"), "{}", scene.title);
    let drawn = lanes(&scene);
    for ((schedule, record), two) in schedules.iter().zip(&records).zip(drawn.lanes.chunks(2)) {
        let mut bars: Vec<&Bar> = two[0].bars.iter().collect();
        bars.sort_by(|a, b| a.from.total_cmp(&b.from));
        let (mut bars, mut exchanges) = (bars.into_iter(), two[1].bars.iter());
        for (instr, (begin, end)) in schedule.instructions().iter().zip(record.times()) {
            let wanted = (begin.as_nanos() as f64 / 1000.0, end.as_nanos() as f64 / 1000.0);
            match instr {
                Instruction::Call { args, .. } => {
                    let bar = bars.next().expect("a bar of every call");
                    assert_eq!((bar.from, bar.to), wanted);
                    let made = &schedule.arg_names()[args.end as usize - 1];
                    assert!(bar.text.starts_with(&format!("{made} = ")), "{}", bar.text);
                }
                Instruction::Post { .. } => {}
                Instruction::Wait { exchange } => {
                    for bar in [bars.next().expect("a wait"), exchanges.next().expect("an exchange")] {
                        assert_eq!((bar.from, bar.to), wanted);
                    }
                    let name = schedule.exchanges()[*exchange as usize].name();
                    assert!(two[1].bars.iter().any(|bar| bar.text == name), "{name}");
                }
            }
        }
        assert!(bars.next().is_none() && exchanges.next().is_none() && !two[1].bars.is_empty());
    }
    assert!(drawn.lanes.iter().flat_map(|lane| &lane.bars).any(|bar| bar.is_strong));
    let trace: serde_json::Value = serde_json::from_str(&chrome_trace(&times, &schedules)).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let waits: usize = times.lanes.iter().map(|lane| lane.waits.len()).sum();
    assert_eq!(events.iter().filter(|event| event["ph"] == "X").count(), times.spans.len() + waits);
}
