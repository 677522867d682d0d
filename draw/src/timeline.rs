//! Timelines: the calls, exchanges and waits of each rank, with the critical path; and the same in Chrome's
//! trace format.

use std::collections::BTreeSet;

use reshard_program::schedule::{Activity, Instruction, Schedule, Span, Timeline};
use serde_json::{Value, json};

use crate::holders::runs;
use crate::limits::{Limits, Shown, counted, short, shown};
use crate::scene::{Bar, Lane, Lanes, Part, Scene};
use crate::text::number;

const COMPUTING: usize = 0;
const EXCHANGING: usize = 1;
const WAITING: usize = 2;

/// Returns the name of the value or kernel of a span.
fn named(span: &Span, schedules: &[Schedule]) -> String {
    match &span.activity {
        Activity::Step { value, .. } | Activity::Exchange { value, .. } => short(value, 60),
        Activity::Call { rank, instr } => {
            let schedule = schedules.iter().find(|schedule| schedule.rank() == *rank);
            let call = schedule.and_then(|schedule| match schedule.instructions().get(*instr)? {
                Instruction::Call { kernel, args } => {
                    let made = schedule.arg_names().get(..args.end as usize)?.last()?;
                    let call = &schedule.calls().get(*kernel as usize)?.call;
                    Some(format!("{made} = {}", short(&call.to_string(), 40)))
                }
                Instruction::Post { .. } | Instruction::Wait { .. } => None,
            });
            call.unwrap_or_else(|| "call".to_owned())
        }
    }
}

/// Returns the numbers of the spans on the critical path.
fn critical(timeline: &Timeline) -> BTreeSet<usize> {
    let path = timeline.critical_path();
    let numbers = timeline.spans.iter().enumerate();
    let mut next = path.iter().peekable();
    // Both in order of making: each begins when one before it ends.
    let on_path = numbers.filter(|(_, span)| next.next_if(|one| core::ptr::eq(**one, *span)).is_some());
    on_path.map(|(number, _)| number).collect()
}

/// Draws a line of calls and a line of exchanges and waits for each rank.
///
/// The [`Timeline`] is that of the model or of a run.
///
/// Spans on the critical path are marked.
///
/// ```
/// use reshard_draw::{Limits, timeline};
/// use reshard_program::{Program, ComputeRates, schedule::{CompileOptions, Timeline}};
/// let program: Program = "
///     mesh tp=2
///     x: f32[512,512] S(1)
///     w: f32[512,512] S(0)
///     h = mm(x, w)
///     y: R = h
///     z = relu(y)
/// ".parse()?;
/// let schedules: Result<Vec<_>, _> = (0..2).map(|rank| program.compile(rank, &CompileOptions::default())).collect();
/// let schedules = schedules?;
/// let times = Timeline::of(&schedules, &ComputeRates::uniform())?;
/// let text = timeline(&times, &schedules, Limits::USUAL).text(false);
/// assert!(text.contains("rank 0 calls     |C"), "{text}");
/// # Ok::<(), reshard_program::Error>(())
/// ```
pub fn timeline(timeline: &Timeline, schedules: &[Schedule], limits: Limits) -> Scene {
    let strong = critical(timeline);
    let most = (limits.ranks / 2).max(1);
    let (total, ranks) = (timeline.total_us(), timeline.lanes.len().min(most));
    // Each lane has as many bars of a kind as the others.
    let most_bars = (limits.bars / (3 * ranks.max(1))).max(1);
    let mut left_out = 0;
    let mut joined = 0;
    let mut lanes = Vec::new();
    for one in shown(timeline.lanes.len(), most) {
        let at = match one {
            Shown::At(at) => at,
            Shown::LeftOut { count, .. } => {
                left_out = count;
                lanes.push(Lane { label: format!(".. {} more", counted(count, "rank")), ..Lane::default() });
                continue;
            }
        };
        let (lane, rank) = (&timeline.lanes[at], schedules.get(at).map_or(at, Schedule::rank));
        let mut bars = |numbers: &[usize], kind: usize| {
            let of = |&number: &usize| {
                let span = &timeline.spans[number];
                let is_strong = strong.contains(&number);
                Bar { from: span.begin_us, to: span.end_us, kind, text: named(span, schedules), is_strong }
            };
            together(numbers.iter().map(of).collect(), most_bars, total, &mut joined)
        };
        let (mut calls, steps) = (bars(&lane.calls, COMPUTING), bars(&lane.steps, EXCHANGING));
        let wait = |&(from, to): &(f64, f64)| Bar {
            from,
            to,
            kind: WAITING,
            text: "waits".to_owned(),
            is_strong: false,
        };
        calls.extend(together(lane.waits.iter().map(wait).collect(), most_bars, total, &mut joined));
        let times = [timeline.computing_us(lane), timeline.exchanging_us(lane), timeline.waiting_us(lane)];
        let ranks = vec![rank];
        let end = format!("{:.1} us, waits {:.1}", times[0], times[2]);
        lanes.push(Lane { label: format!("rank {rank} calls"), end, bars: calls, ranks: ranks.clone() });
        let end = format!("{:.1} us, {:.1} hidden", times[1], timeline.hidden_us(lane));
        lanes.push(Lane { label: format!("rank {rank} exchanges"), end, bars: steps, ranks });
    }
    let path: Vec<String> =
        timeline.critical_path().iter().take(12).map(|span| named(span, schedules)).collect();
    let about = format!(
        "Timeline of {}, {total:.1} us in all. The critical path has {}: {}.",
        counted(timeline.lanes.len(), "rank"),
        counted(strong.len(), "span"),
        path.join(", then ")
    );
    let kinds = [("computing", 'c'), ("exchanging", 'x'), ("waiting", 'w')];
    let kinds = kinds.map(|(name, letter)| (name.to_owned(), letter)).to_vec();
    let lanes = Lanes { unit: "us".to_owned(), until: total, kinds, lanes, marks: Vec::new() };
    let by = if timeline.is_measured { "of a run, by the clock" } else { "by the cost model" };
    let mut scene = Scene::new(format!("timeline of {total:.1} us, {by}"), about).with(Part::Lanes(lanes));
    if left_out > 0 {
        scene = scene.noted(format!("{} left out", counted(left_out, "rank")));
    }
    if joined > 0 {
        let within = number(total / most_bars as f64, "us");
        scene = scene.noted(format!(
            "{} drawn as one with a neighbour that begins within {within}",
            counted(joined, "bar")
        ));
    }
    scene
}

/// Merges bars of one kind that begin in the same part of the timeline, if there are more than `most`.
///
/// `joined` counts the bars that were merged away.
fn together(bars: Vec<Bar>, most: usize, until: f64, joined: &mut usize) -> Vec<Bar> {
    if bars.len() <= most {
        return bars;
    }
    let part = |bar: &Bar| (bar.from / until * most as f64) as usize;
    let parts = bars.chunk_by(|a, b| part(a) == part(b)).map(|some| {
        let [first, .., last] = some else { return some[0].clone() };
        let to = some.iter().fold(first.to, |most, bar| most.max(bar.to));
        let text = format!("{} from {} to {}", some.len(), first.text, last.text);
        let is_strong = some.iter().any(|bar| bar.is_strong);
        Bar { from: first.from, to, kind: first.kind, text, is_strong }
    });
    let drawn: Vec<Bar> = parts.collect();
    *joined += bars.len() - drawn.len();
    drawn
}

/// Returns a timeline in Chrome's trace format, which `chrome://tracing` and Perfetto read.
///
/// Each rank is a process, with a thread of calls, one of exchanges and one of waits.
///
/// ```
/// use reshard_draw::chrome_trace;
/// use reshard_program::{Program, ComputeRates, schedule::{CompileOptions, Timeline}};
/// let program: Program = "mesh x=2\nx: f32[8] S(0)\ny = relu(x)".parse()?;
/// let schedules = [program.compile(0, &CompileOptions::default())?, program.compile(1, &CompileOptions::default())?];
/// let text = chrome_trace(&Timeline::of(&schedules, &ComputeRates::uniform())?, &schedules);
/// assert!(text.contains(r#""name":"y = relu""#) && text.contains(r#""ph":"X""#), "{text}");
/// # Ok::<(), reshard_program::Error>(())
/// ```
pub fn chrome_trace(timeline: &Timeline, schedules: &[Schedule]) -> String {
    let strong = critical(timeline);
    let mut events: Vec<Value> = Vec::new();
    for (at, lane) in timeline.lanes.iter().enumerate() {
        let rank = schedules.get(at).map_or(at, Schedule::rank);
        events.push(
            json!({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": format!("rank {rank}")}}),
        );
        for (thread, name) in ["calls", "exchanges", "waits"].into_iter().enumerate() {
            events.push(
                json!({"ph": "M", "name": "thread_name", "pid": rank, "tid": thread, "args": {"name": name}}),
            );
        }
        for (thread, numbers) in [&lane.calls, &lane.steps].into_iter().enumerate() {
            for &number in numbers {
                let span = &timeline.spans[number];
                let mut event = json!({
                    "ph": "X", "name": named(span, schedules), "pid": rank, "tid": thread,
                    "ts": span.begin_us, "dur": span.end_us - span.begin_us,
                    "args": {"critical": strong.contains(&number)},
                });
                match &span.activity {
                    Activity::Step { step, members, .. } => {
                        event["args"]["step"] = json!(step);
                        event["args"]["members"] = json!(runs(members));
                    }
                    Activity::Exchange { members, .. } => event["args"]["members"] = json!(runs(members)),
                    Activity::Call { .. } => {}
                }
                events.push(event);
            }
        }
        for &(from, to) in &lane.waits {
            events.push(
                json!({"ph": "X", "name": "waits", "pid": rank, "tid": 2, "ts": from, "dur": to - from}),
            );
        }
    }
    json!({"displayTimeUnit": "ms", "traceEvents": events}).to_string()
}
