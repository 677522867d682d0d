//! A run with a clock gives the results of one without.
//!
//! Its timeline agrees with its records, by rank and in order.

use std::collections::BTreeSet;

use reshard_program::schedule::{Activity, Instruction, RunRecord, Schedule, Span, Timeline};
use reshard_program::{Program, ShardingSolver};
use reshard_reference::{on_schedules, timed};

use crate::programs::inputs;
use crate::schedules::{bits, ways};

/// A step on two meshes, uneven, and a pipeline whose ranks run different ops.
const PROGRAMS: [&str; 2] = [
    "mesh dp=2,tp=2
mesh storage: fsdp=4
x: f32[7,16] S(0),I
w: f32[16,32] S(0) on storage
v: f32[32,16] I,S(0)
h = mm(x, w)
a = relu(h)
y: S(0),I = mm(a, v)
loss = sum(y)
gradient loss wrt w, v
w' = sgd(w, dw)
v' = sgd(v, dv)",
    "mesh pp=2,tp=2
mesh first: tp=2
mesh second: tp=2@2
x: f32[8,16] I on first
w: f32[16,16] S(1) on first
v: f32[16,16] S(1) on second
h = mm(x, w)
g: I on second = h
y = mm(g, v)
l = sum(y)
gradient l wrt w, v",
];

/// Returns `true` if spans of a lane are in sequence.
fn in_order<'a>(spans: impl Iterator<Item = &'a Span>) -> bool {
    let mut before = 0.0;
    for span in spans {
        if span.begin_us < before || span.end_us < span.begin_us {
            return false;
        }
        before = span.end_us;
    }
    true
}

/// Returns the latest time at which a rank or one of its senders began to wait for an exchange.
///
/// All data of the exchange are sent by then.
fn began(schedules: &[Schedule], records: &[RunRecord], n: usize, exchange: usize) -> u128 {
    let transfer = &schedules[n].exchanges()[exchange];
    let mut from = BTreeSet::from([schedules[n].rank()]);
    for phase in transfer.compiled.exchanges() {
        from.extend(
            phase
                .receives()
                .iter()
                .filter(|message| message.bytes() > 0)
                .map(reshard_collectives::ReceiveMessage::peer),
        );
    }
    let mut latest = 0;
    for (schedule, record) in schedules.iter().zip(records).filter(|(one, _)| from.contains(&one.rank())) {
        for (instr, (begin, _)) in schedule.instructions().iter().zip(record.times()) {
            let Instruction::Wait { exchange } = instr else { continue };
            let same = schedule.exchanges()[*exchange as usize]
                .moves
                .iter()
                .any(|moved| transfer.moves.iter().any(|own| own.values.1 == moved.values.1));
            if same {
                latest = latest.max(begin.as_nanos());
            }
        }
    }
    latest
}

#[test]
fn a_run_is_what_its_clock_says() {
    for text in PROGRAMS {
        let program: Program = ShardingSolver::new().solve(&text.parse().unwrap()).unwrap();
        let inputs = inputs::<f64>(&program, 5);
        for options in ways() {
            let run = timed(&program, &inputs, &options).unwrap();
            let plain = on_schedules(&program, &inputs, &options).unwrap();
            for value in program.values() {
                let [a, b] = [&run.ranks, &plain].map(|ranks| ranks.shards(&value.name).map(bits));
                assert_eq!(a, b, "{} {options:?}\n{program}", value.name);
            }
            assert_eq!(run.ranks.received_bytes(), plain.received_bytes());
            let timeline = run.timeline().unwrap();
            let (schedules, records) = (&run.schedules, &run.records);
            let start =
                records.iter().filter_map(|record| record.times().first()).map(|(begin, _)| *begin).min();
            let start = start.unwrap().as_nanos();
            let us = |ns: u128| (ns - start) as f64 / 1000.0;
            let mut spans = 0;
            for (n, ((schedule, record), lane)) in
                schedules.iter().zip(records).zip(&timeline.lanes).enumerate()
            {
                assert_eq!(record.times().len(), schedule.instructions().len());
                let (mut calls, mut steps, mut waits) =
                    (lane.calls.iter(), lane.steps.iter(), lane.waits.iter());
                let (mut computing, mut waiting, mut before) = (0.0, 0.0, 0);
                for (at, (instr, (begin, end))) in
                    schedule.instructions().iter().zip(record.times()).enumerate()
                {
                    let (begin, end) = (begin.as_nanos(), end.as_nanos());
                    assert!(before <= begin && begin <= end);
                    before = end;
                    match instr {
                        Instruction::Call { .. } => {
                            let span = &timeline.spans[*calls.next().unwrap()];
                            assert_eq!(span.activity, Activity::Call { rank: schedule.rank(), instr: at });
                            assert_eq!((span.begin_us, span.end_us), (us(begin), us(end)));
                            computing += us(end) - us(begin);
                        }
                        Instruction::Post { .. } => {}
                        Instruction::Wait { exchange } => {
                            assert_eq!(waits.next(), Some(&(us(begin), us(end))));
                            waiting += us(end) - us(begin);
                            let span = &timeline.spans[*steps.next().unwrap()];
                            let name = schedule.exchanges()[*exchange as usize].name();
                            assert!(
                                matches!(&span.activity, Activity::Exchange { value, rank, .. } if (value, *rank) == (&name, schedule.rank()))
                            );
                            // No wait ends before all of its senders have begun.
                            let began = began(schedules, records, n, *exchange as usize);
                            assert!(began <= end, "{began} {end} {name}\n{program}");
                            assert_eq!(
                                (span.begin_us, span.end_us),
                                (us(began), us(end)),
                                "{name}\n{program}"
                            );
                        }
                    }
                }
                assert!(calls.next().is_none() && steps.next().is_none() && waits.next().is_none());
                assert!(in_order(lane.calls.iter().map(|&n| &timeline.spans[n])));
                assert!(in_order(lane.steps.iter().map(|&n| &timeline.spans[n])));
                assert!((timeline.computing_us(lane) - computing).abs() < 1e-6);
                assert!((timeline.waiting_us(lane) - waiting).abs() < 1e-6);
                assert!(computing + waiting <= timeline.total_us() + 1e-6);
                // An engine begins where it waits, so nothing is hidden, whatever was hoisted.
                assert!(timeline.hidden_us(lane) < 1e-6 && timeline.exchanging_us(lane) <= waiting + 1e-6);
                spans += lane.calls.len() + lane.steps.len();
            }
            assert_eq!(spans, timeline.spans.len());
            explains_the_end(&timeline);
        }
    }
}

/// The critical path ends with the last span, and each span on it begins when its predecessor ended.
fn explains_the_end(timeline: &Timeline) {
    let path = timeline.critical_path();
    assert!(in_order(path.iter().copied()) && path.len() > 2);
    assert!((path.last().unwrap().end_us - timeline.total_us()).abs() < 1e-9);
    assert!(path.first().unwrap().after.is_none());
    for (n, span) in timeline.spans.iter().enumerate() {
        assert!(span.after.is_none_or(|after| after < n && timeline.spans[after].end_us <= span.begin_us));
    }
}
