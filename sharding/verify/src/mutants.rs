//! Wrong rules made of right ones, to see that examples are sharp enough to catch them.
//!
//! In every strategy of a call, each operand in turn becomes every alternative (a shard of another dim,
//! replicated, partial values of another op). All partial values of a row become those of another op, and a
//! requirement of evenness is dropped. In the replicated row an input and an output jointly become shards of
//! every pair of dims. That is the row that results if a factor that needs replication is declared to pass.
//!
//! A mutant that no check catches has to be true: then the exhaustive search finds it too, on other data. If
//! the search was not exhaustive, or its rows cannot express the mutant, it has to pass eight times as many
//! other data sets.

use super::Verifier;
use super::candidate::{Candidate, KINDS, fill, is_even, is_fixed, is_minor, plain};
use super::search::Truths;
use super::trial::{Shapes, Trial};
use reshard_ops::Error;
use reshard_ops::rules::Op;
use reshard_ops::rules::internal::{Bound, Entry, Row, bound_of};
use reshard_sharding::ReduceOp;

/// The outcome of a mutation test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mutants {
    /// The number of mutants that a check caught.
    pub caught: usize,
    /// The number of mutants that no check caught and the exhaustive search shows to be true.
    pub equivalent: usize,
    /// The number of uncaught mutants outside of any exhaustive search that passed 8 times as many data.
    pub upheld: usize,
    /// Those that no check caught and nothing shows to be true.
    pub missed: Vec<String>,
}

struct Mutant {
    row: Row,
    drop_even: bool,
    /// `false` for a row outside of the search: one with a sharded minor factor or an exact placement.
    searched: bool,
}

fn of_row(bound: &Bound, row: &Row, dims: &[usize], inputs: usize) -> Vec<Mutant> {
    let mut out = Vec::new();
    let minor = is_minor(bound, row);
    let mut push = |row: Row, drop_even: bool, searched: bool| {
        let searched = searched && !is_fixed(&row);
        out.push(Mutant { row, drop_even, searched });
    };
    for (o, (&dims, was)) in dims.iter().zip(plain(row)).enumerate() {
        for option in Entry::all(dims).filter(|&x| x != was) {
            let mut mutant = row.clone();
            mutant.entries[o] = option;
            push(mutant, false, !minor);
        }
    }
    for op in ReduceOp::ALL {
        let mut mutant = row.clone();
        for e in &mut mutant.entries {
            if let Entry::Partial(_) = e {
                *e = Entry::Partial(op);
            }
        }
        if mutant != *row {
            push(mutant, false, !minor);
        }
    }
    if is_even(bound, row) {
        push(row.clone(), true, !minor);
    }
    if row.entries.iter().all(|e| *e == Entry::Replicate) {
        for i in 0..inputs {
            for o in inputs..row.entries.len() {
                for (a, b) in (0..dims[i]).flat_map(|a| (0..dims[o]).map(move |b| (a, b))) {
                    let mut mutant = row.clone();
                    mutant.entries[i] = Entry::Shard { dim: a as u16, factor: None };
                    mutant.entries[o] = Entry::Shard { dim: b as u16, factor: None };
                    push(mutant, false, true);
                }
            }
        }
    }
    out
}

/// Every mutant of the rows of calls that have the same rows.
pub(super) fn mutants(
    v: &Verifier<'_>,
    ops: &[&Op],
    shapes: &[&Shapes],
    truths: Option<&Truths>,
) -> Result<Mutants, Error> {
    let mut count = Mutants::default();
    let Some((first, bound)) = ops.first().and_then(|op| Some((op, bound_of(op)?))) else { return Ok(count) };
    let inputs = first.inputs().len();
    let dims: Vec<usize> = first.inputs().iter().chain(first.outputs()).map(Vec::len).collect();
    let trials = |seed: u64, sets: usize| -> Result<Vec<Trial<'_>>, Error> {
        let mut out = Vec::new();
        for (c, &s) in shapes.iter().enumerate() {
            for n in v.ranks.clone() {
                out.push(Trial::new(v, s, n, seed ^ ((c as u64) << 8) ^ n as u64, sets)?);
            }
        }
        Ok(out)
    };
    let quick = trials(v.seed, v.sets)?;
    let mut slow = None;
    for (r, row) in bound.rows.iter().enumerate() {
        for m in of_row(bound, row, &dims, inputs) {
            let holds = |trials: &[Trial<'_>]| {
                trials.iter().enumerate().all(|(t, trial)| {
                    let call = t / v.ranks.clone().count();
                    let Some(own) = bound_of(ops[call]) else { return true };
                    let mut own = own.clone();
                    if m.drop_even {
                        own.factors.iter_mut().for_each(|f| f.even = false);
                    }
                    KINDS.iter().all(|&kind| {
                        // The mutant keeps the requirements of its original row.
                        if !m.drop_even && fill(&own, &own.rows[r], kind, trial.n).is_none() {
                            return true;
                        }
                        fill(&own, &m.row, kind, trial.n)
                            .is_none_or(|placements| trial.check(&placements).is_ok())
                    })
                })
            };
            if !holds(&quick) {
                count.caught += 1;
                continue;
            }
            let even = is_even(bound, row) && !m.drop_even;
            let candidate = Candidate { entries: plain(&m.row), even };
            let searched = truths.filter(|t| m.searched && t.tried == t.of);
            let proved = if let Some(truths) = searched {
                truths.hold(&candidate, inputs)
            } else {
                if slow.is_none() {
                    slow = Some(trials(v.seed ^ 0xABCD, 8 * v.sets)?);
                }
                slow.as_deref().is_some_and(holds)
            };
            if proved && searched.is_some() {
                count.equivalent += 1;
            } else if proved {
                count.upheld += 1;
            } else {
                let even = if m.drop_even { " of uneven sizes" } else { "" };
                count.missed.push(format!("{}{even}", bound.strategy(&candidate.entries, inputs)));
            }
        }
    }
    Ok(count)
}
