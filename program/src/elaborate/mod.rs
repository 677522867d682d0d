//! Sharding solver: turns statements into a typed program with explicit redistributions.
//!
//! It chooses a strategy for every op.

mod ahead;
mod at_hand;
mod chosen;
mod dual;
mod flows;
mod implicit;
#[cfg(test)]
mod laws;
mod limits;
mod moves;
mod nonnegative;
mod numbered;
mod order;
mod outcomes;
mod refusal;
mod search;
mod segment;
mod states;
mod ways;

use std::borrow::Cow;

use reshard_planner::Planner;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::decompose::Apart;
use crate::elaborate::moves::Types;
use crate::elaborate::order::gradients_last;
use crate::elaborate::segment::Segment;
use crate::elaborate::ways::Ways;
use crate::graph::{Graph, GraphStatement, ValueId};
use crate::program::{Program, Statement};
use crate::{ComputeRates, Error};

pub use implicit::ImplicitRedistribution;

/// A sharding solver: chooses the shardings and strategies that a graph leaves open, and checks the rest.
///
/// Finds the cheapest assignment over all ops, redistributions and computing, forward and backward jointly.
/// If the search was pruned, [`Program::optimality_gap_us`] bounds the distance to the optimum.
///
/// ```
/// use reshard_program::{ShardingSolver, Graph, ImplicitRedistribution};
/// let graph: Graph = "
///     mesh tp=4
///     x: f32[64,32] R
///     w: f32[32,16] S(0)
///     y = mm(x, w)
///     z = relu(y)
/// ".parse()?;
/// let program = ShardingSolver::new().solve(&graph)?;
/// assert!(program.redistributions().count() > 0);
/// // x would have to be sharded like w: a local slice forward, but its gradient is gathered.
/// let refused = ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny).solve(&graph).unwrap_err();
/// assert_eq!(refused.code(), "needs_redistribute");
/// # Ok::<(), reshard_program::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ShardingSolver {
    planner: Planner,
    pub(crate) rates: ComputeRates,
    implicit_redistribution: ImplicitRedistribution,
    beam_width: usize,
}

impl Default for ShardingSolver {
    fn default() -> ShardingSolver {
        ShardingSolver::new()
    }
}

impl ShardingSolver {
    /// Returns a solver for the `uniform` network and uniform compute rates.
    pub fn new() -> ShardingSolver {
        ShardingSolver {
            planner: Planner::new().arithmetic(reshard_planner::Arithmetic::Framework),
            rates: ComputeRates::uniform(),
            implicit_redistribution: ImplicitRedistribution::Allow,
            beam_width: 256,
        }
    }

    /// Returns the same solver with another planner, whose costs are the prices of redistributions.
    #[must_use]
    pub fn planner(self, planner: Planner) -> ShardingSolver {
        ShardingSolver { planner: planner.arithmetic(reshard_planner::Arithmetic::Framework), ..self }
    }

    /// Returns the same solver with other compute rates.
    #[must_use]
    pub fn rates(self, rates: ComputeRates) -> ShardingSolver {
        ShardingSolver { rates, ..self }
    }

    /// Returns the same solver, restricted to the given kind of implicit redistributions.
    #[must_use]
    pub fn implicit_redistribution(self, moves: ImplicitRedistribution) -> ShardingSolver {
        ShardingSolver { implicit_redistribution: moves, ..self }
    }

    /// Returns the same solver with at most `most_states` states between statements.
    ///
    /// More states take longer and find cheaper programs. At least one is used.
    #[must_use]
    pub fn beam_width(self, most_states: usize) -> ShardingSolver {
        ShardingSolver { beam_width: most_states.max(1), ..self }
    }

    /// Solves a graph and returns its program.
    ///
    /// Returns an error if no strategy of an op accepts its inputs with the allowed redistributions (the
    /// error suggests a fix), if a gradient is requested of a value that has none, or if a sharding
    /// constraint is unreachable.
    pub fn solve(&self, graph: &Graph) -> Result<Program, Error> {
        let whole = graph.in_parts(Apart { means: true, rows: false })?;
        if self.implicit_redistribution != ImplicitRedistribution::Allow {
            return self.pass(&whole);
        }
        // Also try the graph in which reductions along a dim are decomposed, if there are any; use the
        // cheaper program.
        let parted = graph.in_parts(Apart { means: true, rows: true })?;
        if parted.statements.len() == whole.statements.len() {
            return self.pass(&whole);
        }
        match (self.pass(&whole), self.pass(&parted)) {
            (Ok(a), Ok(b)) => {
                let us = |program: &Program| program.report(&self.rates).total_us();
                Ok(if us(&b) < us(&a) { b } else { a })
            }
            (Ok(only), Err(_)) | (Err(_), Ok(only)) => Ok(only),
            (Err(e), Err(_)) => Err(e),
        }
    }

    /// Solves a decomposed graph.
    fn pass(&self, graph: &Graph) -> Result<Program, Error> {
        let made_on = graph.made_on();
        let mut program = Program::new(&graph.meshes, &graph.table);
        let reserved = graph.names();
        let mut known: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        let mut types = Types::new(&self.planner);
        let mut ways = Ways::new(&self.planner, self.rates);
        let mut start = 0;
        let mut marked = false;
        let ordered = gradients_last(graph);
        let (statements, together) = (&*ordered, matches!(ordered, Cow::Owned(_)));
        let asks = |statements: &[GraphStatement]| {
            statements.iter().any(|s| matches!(s, GraphStatement::Gradient { .. }))
        };
        let strict = asks(statements);
        let all: FxHashSet<ValueId> = (statements.iter())
            .filter(|s| matches!(s, GraphStatement::Gradient { .. }))
            .flat_map(|s| s.takes().iter().copied())
            .collect();
        let wanted = strict.then_some(&all);
        while start < statements.len() {
            let rest = &statements[start..];
            let end = rest
                .iter()
                .position(|s| matches!(s, GraphStatement::Gradient { .. } | GraphStatement::NoGrad));
            let segment = &rest[..end.unwrap_or(rest.len())];
            // Differentiate the statements before a gradient; without one, those that no `no_grad` marks.
            let trains = !marked && (!strict || asks(&statements[start + segment.len()..]));
            let mut segment = Segment {
                graph,
                made_on: &made_on,
                statements: segment,
                trains,
                strict,
                wanted,
                known: &mut known,
            };
            segment.elaborate(self, &mut program, &mut types, &mut ways)?;
            start += segment.statements.len();
            match statements.get(start) {
                Some(GraphStatement::Gradient { loss, wrt, gradients }) => {
                    let later = !together && asks(&statements[start + 1..]);
                    let of = |v: &ValueId| known.get(v).copied().ok_or_else(|| made_later(graph, *v));
                    let called = gradients.iter().map(|g| graph.name(*g).to_owned());
                    let wrt = wrt.iter().zip(called).map(|(v, name)| Ok((of(v)?, name)));
                    let (loss, wrt) = (of(loss)?, wrt.collect::<Result<Vec<_>, Error>>()?);
                    let (mut backward, mut ends) = program.backward(loss, &wrt, later, &reserved)?;
                    if later
                        && let Cow::Owned(parted) = backward.in_parts(Apart { means: true, rows: false })?
                    {
                        ends = vec![parted.statements.len()];
                        backward = parted;
                    }
                    if !later && !marked {
                        program.statements.push(Statement::NoGrad);
                        marked = true;
                    }
                    let made_on = backward.made_on();
                    let mut inner: FxHashMap<ValueId, ValueId> = FxHashMap::default();
                    let free = ShardingSolver {
                        implicit_redistribution: ImplicitRedistribution::Allow,
                        ..self.clone()
                    };
                    // The gradients of each statement have given types, so each is solved alone.
                    let mut from = 0;
                    for end in ends {
                        let mut segment = Segment {
                            graph: &backward,
                            made_on: &made_on,
                            statements: &backward.statements[from..end],
                            trains: later,
                            strict,
                            wanted: None,
                            known: &mut inner,
                        };
                        segment.elaborate(&free, &mut program, &mut types, &mut ways)?;
                        from = end;
                    }
                    for (g, (_, name)) in gradients.iter().zip(&wrt) {
                        let made = program.value(name).ok_or_else(|| made_later(graph, *g))?;
                        known.insert(*g, made);
                    }
                    start += 1;
                }
                Some(GraphStatement::NoGrad) => {
                    if !marked {
                        program.statements.push(Statement::NoGrad);
                    }
                    marked = true;
                    start += 1;
                }
                Some(_) | None => {}
            }
        }
        Ok(program)
    }
}

fn made_later(graph: &Graph, v: ValueId) -> Error {
    Error::Graph { reason: format!("`{}` is used before it is computed", graph.name(v)) }
}
