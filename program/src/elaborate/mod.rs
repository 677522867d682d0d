//! Sharding solver: turns statements into a typed program with explicit redistributions.
//!
//! It chooses a strategy for every op.

mod ahead;
mod at_hand;
mod choices;
mod chosen;
mod dual;
mod flows;
pub(crate) mod held;
mod implicit;
pub(crate) mod lane;
#[cfg(test)]
mod laws;
mod least;
mod limits;
pub(crate) mod moves;
mod nonnegative;
mod numbered;
pub(crate) mod order;
mod outcomes;
#[cfg(test)]
mod priced;
mod refusal;
mod search;
pub(crate) mod segment;
mod solved;
mod states;
pub(crate) mod ways;

use std::borrow::Cow;

use reshard_planner::Planner;

use crate::decompose::Apart;
use crate::elaborate::lane::{Lane, Tables};
use crate::elaborate::order::gradients_last;
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
    pub(crate) planner: Planner,
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
        self.solve_with(graph, &mut Tables::new(self, graph))
    }

    /// Solves a graph with the tables of another one on the same meshes, solved by this solver.
    pub(crate) fn solve_with(&self, graph: &Graph, tables: &mut Tables) -> Result<Program, Error> {
        if let Some(v) = graph.first_open() {
            return Err(Error::Graph {
                reason: format!(
                    "the type of input `{}` is open (`?`); write a type, or let `reshard parallelize` choose it",
                    graph.name(v)
                ),
            });
        }
        let whole = graph.in_parts(Apart { means: true, rows: false })?;
        if self.implicit_redistribution != ImplicitRedistribution::Allow {
            return self.restricted(graph, &whole, tables);
        }
        // Also try the graph in which reductions along a dim are decomposed, if there are any; use the
        // cheaper program.
        let parted = graph.in_parts(Apart { means: true, rows: true })?;
        if parted.statements.len() == whole.statements.len() {
            return self.pass(&whole, None, tables);
        }
        match (self.pass(&whole, None, tables), self.pass(&parted, None, tables)) {
            (Ok(a), Ok(b)) => {
                // The parts of an op are one kernel too, but only its formula is known as one: neither counts.
                let us = |program: &Program| program.without_kernels().report(&self.rates).total_us();
                Ok(if us(&b) < us(&a) { b } else { a })
            }
            (Ok(only), Err(_)) | (Err(_), Ok(only)) => Ok(only),
            (Err(e), Err(_)) => Err(e),
        }
    }

    /// Solves a graph without some implicit redistributions; `whole` is the graph in primitive ops.
    fn restricted(&self, graph: &Graph, whole: &Graph, tables: &mut Tables) -> Result<Program, Error> {
        let lettered = graph.lettered();
        let lettered = match &lettered {
            Some(lettered) => Some(lettered.in_parts(Apart { means: true, rows: false })?),
            None => None,
        };
        let mut program = match self.pass(whole, lettered.as_deref(), tables) {
            Ok(program) => program,
            Err(Error::OneRank { error, .. }) => return Err(self.error_of_letters(graph, *error)),
            Err(error) if lettered.is_some() => return Err(self.error_next_to_letters(graph, error)),
            Err(error) => return Err(error),
        };
        if let Some(error) = self.error_of_text(graph) {
            return Err(error);
        }
        if self.implicit_redistribution == ImplicitRedistribution::Deny {
            // The author chose the redistributions, and no gap is computed.
            program.gap = 0;
        }
        Ok(program)
    }

    /// Returns the same solver for types along axes of one rank.
    ///
    /// Only types matter there, and costs of this network may not be defined for their mesh.
    pub(crate) fn without_network(&self) -> ShardingSolver {
        let plain = ShardingSolver::new().implicit_redistribution(self.implicit_redistribution);
        plain.beam_width(self.beam_width)
    }

    /// Solves a decomposed graph.
    ///
    /// `letters` is the graph along the axes of one rank, if that is known. It is solved too, and gives the
    /// values their letters.
    fn pass(&self, graph: &Graph, letters: Option<&Graph>, tables: &mut Tables) -> Result<Program, Error> {
        let reserved = graph.names();
        let ordered = gradients_last(graph);
        let mut own = Lane::new(self, graph, &ordered, tables);
        let plain = self.without_network();
        let letters = letters.map(|graph| (graph, gradients_last(graph)));
        let mut of_letters = Tables::new(&plain, graph);
        let mut beside =
            letters.as_ref().map(|(graph, ordered)| Lane::new(&plain, graph, ordered, &mut of_letters));
        let mut start = 0;
        let mut marked = false;
        let (statements, together) = (&*ordered, matches!(ordered, Cow::Owned(_)));
        let asks = |statements: &[GraphStatement]| {
            statements.iter().any(|s| matches!(s, GraphStatement::Gradient { .. }))
        };
        while start < statements.len() {
            let rest = &statements[start..];
            let end = rest
                .iter()
                .position(|s| matches!(s, GraphStatement::Gradient { .. } | GraphStatement::NoGrad));
            let end = end.map_or(statements.len(), |end| start + end);
            // Differentiate the statements before a gradient; without one, those that no `no_grad` marks.
            let trains = !marked && (!own.is_differentiated() || asks(&statements[end..]));
            own.solve(start..end, trains)?;
            beside = own.beside(beside, |lane| lane.solve(start..end, trains).map(|_| ()))?;
            start = end;
            match statements.get(start) {
                Some(GraphStatement::Gradient { .. }) => {
                    let later = !together && asks(&statements[start + 1..]);
                    let marks = !later && !marked;
                    let backward = own.backward(start, later, &reserved)?;
                    // With a redistribution where types differ along any axis.
                    let letters = backward.0.lettered().map(|letters| (letters, backward.1.clone()));
                    own.differentiate(start, &backward, (later, marks))?;
                    beside = own.beside(beside, |lane| {
                        let backward = match letters {
                            Some(letters) => letters,
                            None => lane.backward(start, later, &reserved)?,
                        };
                        lane.differentiate(start, &backward, (later, marks))
                    })?;
                    marked |= marks;
                    start += 1;
                }
                Some(GraphStatement::NoGrad) => {
                    if !marked {
                        own.program.statements.push(Statement::NoGrad);
                    }
                    marked = true;
                    start += 1;
                }
                Some(_) | None => {}
            }
        }
        own.program.store_results();
        if !beside.is_some_and(|lane| own.program.take_letters(&lane.program)) {
            own.program.forget_letters();
        }
        Ok(own.program)
    }
}

fn made_later(graph: &Graph, v: ValueId) -> Error {
    Error::Graph { reason: format!("`{}` is used before it is computed", graph.name(v)) }
}
