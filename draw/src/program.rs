//! Programs: values with types, the statements that compute them, redistributions forward and backward;
//! memory and time.

use reshard_program::{CommCost, Pass, Peak, Program, RedistributionReport, Report, Statement, ValueClass};

use crate::holders::sizes;
use crate::limits::{Limits, Shown, counted, short, shown, titled};
use crate::scene::{Bar, Cell, Grid, Lane, Lanes, Paint, Part, Scene};

/// Returns the colour of a pass.
fn paint(pass: Pass) -> Paint {
    match pass {
        Pass::Forward => Paint::Blank,
        Pass::Backward => Paint::Light(4),
        Pass::Update => Paint::Light(6),
    }
}

/// Formats the steps of a redistribution in a pass: `-> all_gather tp 96 B`.
fn steps(moved: &RedistributionReport, pass: Pass, arrow: &str) -> String {
    let of = moved.steps.iter().filter(|step| step.pass == pass);
    let words: Vec<String> =
        of.map(|step| format!("{} {} {} B", step.op, step.over, step.traffic.received_bytes)).collect();
    if words.is_empty() { String::new() } else { format!("{arrow} {}", words.join(", ")) }
}

/// Draws a program: each value with its type, its statement, and its communication.
///
/// Forward communication has the arrow `->`, backward communication `<-`.
///
/// ```
/// use reshard_draw::{Limits, program};
/// use reshard_program::{ShardingSolver, Graph, ComputeRates};
/// let graph: Graph = "
///     mesh tp=4
///     x: f32[8,16] I
///     w: f32[16,64] S(1)
///     h = mm(x, w)
///     y: R = h
/// ".parse()?;
/// let elaborated = ShardingSolver::new().solve(&graph)?;
/// let text = program(&elaborated, &elaborated.report(&ComputeRates::uniform()), Limits::USUAL).text(false);
/// assert!(text.contains("-> all_gather tp 3072 B"), "{text}");
/// # Ok::<(), reshard_program::Error>(())
/// ```
pub fn program(program: &Program, report: &Report, limits: Limits) -> Scene {
    let name = |value: &reshard_program::ValueId| program.get(*value).name.clone();
    let heads = ["value", "type", "tensor", "on the first rank", "made by", "forward", "backward"];
    // A line that belongs to no value.
    let alone = |text: String| {
        let mut row = vec![Cell::default(); heads.len()];
        row[0] = Cell { paint: Paint::Muted, ..Cell::plain(text) };
        row
    };
    let mut rows = Vec::new();
    let list: Vec<(usize, &Statement)> = program.statements().iter().enumerate().collect();
    let mut left_out = 0;
    for one in shown(list.len(), limits.rows) {
        let item = match one {
            Shown::At(at) => list[at].1,
            Shown::LeftOut { count, .. } => {
                left_out = count;
                rows.push(alone(format!(".. {} ..", counted(count, "line"))));
                continue;
            }
        };
        let (how, moved) = match item {
            Statement::NoGrad => {
                rows.push(alone("no_grad".to_owned()));
                continue;
            }
            Statement::Input(_) => ("given".to_owned(), None),
            Statement::Op { call, inputs, .. } => {
                let takes: Vec<String> = inputs.iter().map(name).collect();
                let of = if takes.is_empty() { "" } else { " of " };
                (format!("{}{of}{}", short(&call.to_string(), 40), takes.join(", ")), None)
            }
            Statement::Redistribute { from, to, .. } => {
                let made = name(to);
                let moved = report.redistributions.iter().find(|row| row.result == made);
                (format!("redistribute {}", name(from)), moved)
            }
        };
        for made in item.outputs() {
            let value = &report.values[made.index()];
            let local = value.ty.value.local_shape(value.ty.value.mesh().min_rank());
            let local = local.map(|shape| sizes(&shape)).unwrap_or_default();
            let forward = moved.map_or_else(String::new, |row| {
                let pass = if value.pass == Pass::Update { Pass::Update } else { Pass::Forward };
                let own = steps(row, pass, "->");
                // Where gradients are explicit, the backward statements have steps of their pass.
                if own.is_empty() && value.pass == Pass::Backward {
                    steps(row, Pass::Backward, "->")
                } else {
                    own
                }
            });
            let backward = moved.filter(|_| value.pass == Pass::Forward);
            let backward = backward.map_or_else(String::new, |row| steps(row, Pass::Backward, "<-"));
            let mut row = vec![
                Cell { paint: paint(value.pass), ..Cell::plain(value.name.clone()) },
                Cell::plain(short(&value.text, 60)),
                Cell::plain(format!("{} {}", value.dtype, sizes(value.ty.value.shape()))),
                Cell::plain(local),
                Cell::plain(short(&how, 80)),
            ];
            row.extend([forward, backward].map(Cell::plain));
            rows.push(row);
        }
    }
    let moves = report.redistributions.iter().filter(|row| row.communicates()).count();
    let about = format!(
        "A program of {} on {} with {moves} communicating redistributions: {}.",
        counted(report.values.len(), "value"),
        titled(program.mesh()),
        Pass::ALL
            .map(|pass| format!("{} {} B in {}", pass.as_str(), report.traffic.of(pass).received_bytes, {
                counted(report.traffic.of(pass).steps, "step")
            }))
            .join(", ")
    );
    let scene = Scene::new(format!("program on {}", titled(program.mesh())), about)
        .with(Part::Grid(Grid::table(&heads, rows)))
        .noted("-> is communicated forward, <- for the gradient; names in colour are of backward and update")
        .noted(format!("types have a placement for each axis of {}", titled(program.mesh())))
        .noted("P is partial over its axis; I are replicas whose gradients are replicas; |- is a value without a \
             gradient");
    if left_out > 0 { scene.noted(format!("{} left out", counted(left_out, "line"))) } else { scene }
}

/// Returns the classes of live bytes, with a letter each.
///
/// The last class is the buffers of redistributions beyond source and target.
fn classes() -> Vec<(String, char)> {
    let letter = |class: ValueClass| match class {
        ValueClass::Parameter => 'p',
        ValueClass::State => 's',
        ValueClass::Input => 'i',
        ValueClass::Activation => 'a',
        ValueClass::Gradient => 'g',
    };
    let named = ValueClass::ALL.map(|class| (class.as_str().to_owned(), letter(class)));
    named.into_iter().chain([("staging".to_owned(), 'm')]).collect()
}

/// Draws the live bytes while each line of a program runs, by class, with the peak.
///
/// Beyond the limits on lines, consecutive lines are merged, with the maximum of them.
///
/// ```
/// use reshard_draw::{Limits, memory};
/// use reshard_program::Program;
/// let program: Program = "mesh x=2\nx: f32[8] S(0)\ny = relu(x)\nz = neg(y)".parse()?;
/// let text = memory(&program.memory_timeline(), Limits::USUAL).text(false);
/// assert!(text.contains("z |iii") && text.contains("peak 48 B at z"), "{text}");
/// # Ok::<(), reshard_program::Error>(())
/// ```
pub fn memory(moments: &[Peak], limits: Limits) -> Scene {
    let rows = limits.rows.clamp(1, 60);
    let bucket = moments.len().div_ceil(rows).max(1);
    // Of equal ones the first, as in a report.
    let most = |list: &[Peak]| -> Option<Peak> {
        list.iter()
            .fold(None::<&Peak>, |most, one| match most {
                Some(most) if most.bytes >= one.bytes => Some(most),
                Some(_) | None => Some(one),
            })
            .cloned()
    };
    let peak = most(moments).unwrap_or_default();
    let lanes: Vec<Lane> = moments
        .chunks(bucket)
        .filter_map(most)
        .map(|moment| {
            let mut at = 0u64;
            let bytes = ValueClass::ALL.iter().map(|class| moment.of(*class)).chain([moment.staging]);
            let bars = bytes.enumerate().filter_map(|(kind, bytes)| {
                let from = at;
                at = at.saturating_add(bytes);
                let text = classes()[kind].0.clone();
                (bytes > 0).then_some(Bar { from: from as f64, to: at as f64, kind, text, is_strong: false })
            });
            Lane {
                bars: bars.collect(),
                label: if moment.at.is_empty() { "no_grad".to_owned() } else { short(&moment.at, 24) },
                end: format!("{} B", moment.bytes),
                ranks: vec![],
            }
        })
        .collect();
    let of_class = ValueClass::ALL.iter().map(|class| (class.as_str(), peak.of(*class)));
    let words: Vec<String> = of_class
        .chain([("staging", peak.staging)])
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(class, bytes)| format!("{class} {bytes} B"))
        .collect();
    let at = short(&peak.at, 60);
    let about = format!(
        "Live bytes on the worst rank, line by line: at most {} B, at {at}: {}.",
        peak.bytes,
        words.join(", ")
    );
    let marks = vec![(peak.bytes as f64, format!("peak {} B at {at}", peak.bytes))];
    let lanes = Lanes { unit: "B".to_owned(), until: peak.bytes as f64, kinds: classes(), lanes, marks };
    let scene = Scene::new("live bytes on the worst rank, line by line", about)
        .with(Part::Lanes(lanes))
        .noted(format!("at {at}: {}", words.join(", ")));
    if bucket > 1 {
        scene.noted(format!("each row is the maximum of {bucket} consecutive lines, of {}", moments.len()))
    } else {
        scene
    }
}

/// Draws the time of a program: communication over each axis, and computation, by pass.
///
/// ```
/// use reshard_draw::program_cost;
/// use reshard_program::{Program, ComputeRates};
/// let program: Program = "mesh x=2\nx: f32[8] S(0)\ny: R = x".parse()?;
/// let text = program_cost(&program.report(&ComputeRates::uniform())).text(false);
/// assert!(text.contains("over x"), "{text}");
/// # Ok::<(), reshard_program::Error>(())
/// ```
pub fn program_cost(report: &Report) -> Scene {
    let lane = |label: String, times: [f64; 3], bytes: Option<u64>| {
        let mut at = 0.0;
        let bars = Pass::ALL.iter().zip(times).enumerate().filter_map(|(kind, (pass, time))| {
            let from = at;
            at += time;
            let text = pass.as_str().to_owned();
            (time > 0.0).then_some(Bar { from, to: at, kind, text, is_strong: false })
        });
        let bars = bars.collect();
        let bytes = bytes.map_or_else(String::new, |bytes| format!(", {bytes} B"));
        Lane { label, end: format!("{at:.1} us{bytes}"), bars, ranks: Vec::new() }
    };
    let computing = Pass::ALL.map(|pass| *report.compute_us.of(pass));
    let mut lanes = vec![lane("computing".to_owned(), computing, None)];
    let axes: Vec<Lane> = report
        .by_axes
        .iter()
        .map(|(over, passes)| {
            let of = Pass::ALL.map(|pass| *passes.of(pass));
            let bytes =
                of.iter().fold(0u64, |sum, traffic: &CommCost| sum.saturating_add(traffic.received_bytes));
            lane(short(&format!("over {over}"), 30), of.map(|traffic| traffic.cost_us), Some(bytes))
        })
        .collect();
    lanes.extend(axes);
    let until = lanes.iter().flat_map(|lane| &lane.bars).fold(0.0f64, |most, bar| most.max(bar.to));
    let words: Vec<String> = lanes.iter().map(|lane| format!("{} {}", lane.label, lane.end)).collect();
    let kinds = Pass::ALL.iter().zip("fbu".chars()).map(|(pass, c)| (pass.as_str().to_owned(), c)).collect();
    let about = format!("The time of the program by the model: {}.", words.join("; "));
    let lanes = Lanes { unit: "us".to_owned(), until, kinds, lanes, marks: Vec::new() };
    Scene::new("time by axis and pass", about).with(Part::Lanes(lanes))
}

/// Draws the bytes of each tensor of a list, such as those of a checkpoint.
///
/// An entry has a name, a description, and the bytes.
///
/// ```
/// use reshard_draw::{Limits, tensors};
/// let list = [("w".to_owned(), "f32 4x4 whole".to_owned(), 64)];
/// assert!(tensors("a file", &list, Limits::USUAL).text(false).contains("w |"));
/// ```
pub fn tensors(title: &str, list: &[(String, String, u64)], limits: Limits) -> Scene {
    let until = list.iter().map(|(.., bytes)| *bytes).max().unwrap_or(0);
    let all = list.iter().fold(0u64, |sum, (.., bytes)| sum.saturating_add(*bytes));
    let mut left_out = 0;
    let lanes = shown(list.len(), limits.rows).into_iter().map(|one| match one {
        Shown::LeftOut { count, .. } => {
            left_out = count;
            Lane { label: format!(".. {count} more"), ..Lane::default() }
        }
        Shown::At(at) => {
            let (name, what, bytes) = &list[at];
            let bar = Bar { from: 0.0, to: *bytes as f64, kind: 0, text: what.clone(), is_strong: false };
            let bars = if *bytes > 0 { vec![bar] } else { Vec::new() };
            Lane {
                label: short(name, 40),
                end: short(&format!("{bytes} B, {what}"), 80),
                bars,
                ranks: Vec::new(),
            }
        }
    });
    let lanes: Vec<Lane> = lanes.collect();
    let kinds = vec![("bytes".to_owned(), 'b')];
    let lanes = Lanes { unit: "B".to_owned(), until: until as f64, kinds, lanes, marks: Vec::new() };
    let about = format!("{} of {all} bytes in all, the largest of {until}.", counted(list.len(), "tensor"));
    let scene = Scene::new(short(title, 400), about).with(Part::Lanes(lanes));
    if left_out > 0 { scene.noted(format!("{} left out", counted(left_out, "tensor"))) } else { scene }
}
