//! The search for true strategies among all combinations that an op might have.
//!
//! Operands take `R`, `S(d)` or `P(op)`, and norms of the exponents that the rows have. A second round has
//! every `S(d)` strided by 2, never mixed. The local op is run once for each combination of inputs, and each
//! output is compared in all its placements at once, so that the work is the product over the *inputs*.
//! Combinations with fewest parts that are not `R` come first, and a budget ends the list.

use super::Verifier;
use super::candidate::{Candidate, KINDS, is_also, placement};
use super::trial::{Shapes, Trial};
use reshard_ops::Error;
use reshard_ops::rules::internal::Entry;
use reshard_sharding::ReduceOp;

/// The strategies that were found true.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Truths {
    pub(super) found: Vec<Candidate>,
    /// The number of input combinations that were tried; `of` is their total number.
    pub(super) tried: usize,
    pub(super) of: usize,
}

impl Truths {
    /// Returns `true` if a candidate is among them or follows from one of them.
    pub(super) fn hold(&self, c: &Candidate, inputs: usize) -> bool {
        self.found.iter().any(|t| c.follows_from(t, inputs))
    }

    /// The strategies that follow from no other one and from none of these.
    pub(super) fn news(&self, known: &[Candidate], inputs: usize) -> Vec<Candidate> {
        let strict =
            |a: &Candidate, b: &Candidate| a != b && a.follows_from(b, inputs) && !b.follows_from(a, inputs);
        (self.found.iter())
            .filter(|c| !known.iter().any(|k| c.follows_from(k, inputs)))
            .filter(|c| !self.found.iter().any(|t| strict(c, t)))
            .cloned()
            .collect()
    }
}

/// The known validity of a row so far.
#[derive(Clone, Copy, PartialEq)]
enum State {
    /// It held in every check; the bits are the numbers of ranks for which sizes were even.
    Any(u64),
    /// It failed, but never with even sizes; the bits are as in `Any`.
    Even(u64),
    False,
}

impl State {
    fn is_false(self) -> bool {
        self == State::False
    }

    /// Returns the state after a check on `n` ranks.
    fn tried(self, holds: bool, even: bool, n: usize) -> State {
        match (self, holds, even) {
            (State::False, ..) | (_, false, true) => State::False,
            (State::Any(seen), true, true) => State::Any(seen | 1 << n),
            (State::Even(seen), true, true) => State::Even(seen | 1 << n),
            (State::Any(seen) | State::Even(seen), false, false) => State::Even(seen),
            (same, true, false) => same,
        }
    }
}

/// A combination of inputs and the state of each option of each output.
struct Live {
    inputs: Vec<Entry>,
    outputs: Vec<Vec<State>>,
}

/// The true rows of calls whose operands have the same numbers of dims.
pub(super) fn search(
    v: &Verifier<'_>,
    calls: &[&Shapes],
    norms: &[ReduceOp],
    seed: u64,
    sets: usize,
) -> Result<Truths, Error> {
    let Some(first) = calls.first() else { return Ok(Truths { found: Vec::new(), tried: 0, of: 0 }) };
    let options = |shape: &Vec<usize>| -> Vec<Entry> {
        Entry::all(shape.len()).chain(norms.iter().copied().map(Entry::Partial)).collect()
    };
    let of_inputs: Vec<Vec<Entry>> = first.inputs.iter().map(options).collect();
    let of_outputs: Vec<Vec<Entry>> = first.outputs.iter().map(options).collect();
    let of = of_inputs.iter().map(Vec::len).try_fold(1usize, usize::checked_mul).unwrap_or(usize::MAX);
    let mut live: Vec<Live> = combinations(&of_inputs, v.budget)
        .into_iter()
        .map(|inputs| Live {
            inputs,
            outputs: of_outputs.iter().map(|o| vec![State::Any(0); o.len()]).collect(),
        })
        .collect();
    let tried = live.len();
    for (c, shapes) in calls.iter().enumerate() {
        for n in v.ranks.clone() {
            let trial = Trial::new(v, shapes, n, seed ^ ((c as u64) << 8) ^ n as u64, sets)?;
            for kind in KINDS {
                live.retain_mut(|l| {
                    step(v, &trial, l, &of_outputs, kind);
                    l.outputs.iter().all(|o| o.iter().any(|s| !s.is_false()))
                });
            }
        }
    }
    // A row that holds for even sizes has to have been checked on them, on every number of ranks.
    let all = v.ranks.clone().fold(0, |m, n| m | 1u64 << n);
    for state in live.iter_mut().flat_map(|l| l.outputs.iter_mut().flatten()) {
        if matches!(state, State::Even(seen) if *seen != all) {
            *state = State::False;
        }
    }
    let mut found = Vec::new();
    for l in &live {
        let mut rows = vec![Candidate { entries: l.inputs.clone(), even: false }];
        for (states, options) in l.outputs.iter().zip(&of_outputs) {
            // If one follows from another, only the other is listed.
            let best = |i: usize| {
                !states[i].is_false()
                    && !(0..options.len()).any(|j| {
                        j != i && matches!(states[j], State::Any(_)) && is_also(options[j], options[i])
                    })
            };
            rows = rows
                .iter()
                .flat_map(|row| {
                    (0..options.len()).filter(|&i| best(i)).map(|i| {
                        let mut row = row.clone();
                        row.entries.push(options[i]);
                        row.even |= matches!(states[i], State::Even(_));
                        row
                    })
                })
                .collect();
        }
        found.extend(rows);
    }
    Ok(Truths { found, tried, of })
}

/// Tries one combination of inputs on one case.
fn step(v: &Verifier<'_>, trial: &Trial<'_>, l: &mut Live, of_outputs: &[Vec<Entry>], kind: usize) {
    let divides = |e: Entry, shape: &[usize]| match e {
        Entry::Shard { dim, .. } => shape[usize::from(dim)].is_multiple_of(kind * trial.n),
        Entry::Replicate | Entry::Partial(_) | Entry::Fixed(_) => true,
    };
    let even = l.inputs.iter().zip(&trial.shapes.inputs).all(|(&e, s)| divides(e, s));
    let inputs: Vec<_> = l.inputs.iter().map(|&e| placement(e, kind)).collect();
    let replicated: Vec<_> = of_outputs.iter().map(|_| placement(Entry::Replicate, 1)).collect();
    let Ok(magnitudes) = trial.on_magnitudes(&inputs) else {
        l.outputs.iter_mut().flatten().for_each(|s| *s = State::False);
        return;
    };
    let trial = magnitudes.as_deref().unwrap_or(trial);
    for set in 0..trial.sets() {
        let all: Vec<_> = inputs.iter().chain(&replicated).cloned().collect();
        let once = if v.wants { None } else { Some(trial.run(set, &all)) };
        for (o, options) in of_outputs.iter().enumerate() {
            for (i, &option) in options.iter().enumerate() {
                let state = l.outputs[o][i];
                let even = even && divides(option, &trial.shapes.outputs[o]);
                if state.is_false() || (matches!(state, State::Even(_)) && !even) {
                    continue;
                }
                let output = placement(option, kind);
                let result = match &once {
                    Some(Ok(locals)) => trial.compare(set, o, &output, locals),
                    Some(Err(e)) => Err(e.clone()),
                    None => {
                        let mut all = all.clone();
                        all[inputs.len() + o] = output.clone();
                        trial.run(set, &all).and_then(|locals| trial.compare(set, o, &output, &locals))
                    }
                };
                l.outputs[o][i] = state.tried(result.is_ok(), even, trial.n);
            }
        }
        if l.outputs.iter().any(|o| o.iter().all(|s| s.is_false())) {
            return;
        }
    }
}

/// Choices of one option each, those with fewest that are not the first option first, at most `budget`.
fn combinations(options: &[Vec<Entry>], budget: usize) -> Vec<Vec<Entry>> {
    let mut out: Vec<Vec<Entry>> = Vec::new();
    for others in 0..=options.len() {
        let mut row: Vec<Entry> = Vec::new();
        choose(options, others, &mut row, &mut out, budget);
    }
    out
}

fn choose(
    options: &[Vec<Entry>],
    others: usize,
    row: &mut Vec<Entry>,
    out: &mut Vec<Vec<Entry>>,
    budget: usize,
) {
    if out.len() >= budget || others > options.len() - row.len() {
        return;
    }
    let Some(here) = options.get(row.len()) else {
        out.push(row.clone());
        return;
    };
    for (i, &option) in here.iter().enumerate() {
        let left = if i == 0 { Some(others) } else { others.checked_sub(1) };
        if let Some(left) = left {
            row.push(option);
            choose(options, left, row, out, budget);
            row.pop();
        }
    }
}
