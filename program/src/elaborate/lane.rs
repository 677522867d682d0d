//! The program of a graph while it is solved, segment by segment.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use reshard_planner::{Planner, SearchBudget};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Error;
use crate::decompose::Apart;
use crate::elaborate::moves::{Types, is_strided};
use crate::elaborate::segment::Segment;
use crate::elaborate::ways::Ways;
use crate::elaborate::{ImplicitRedistribution, ShardingSolver, made_later};
use crate::graph::{Graph, GraphStatement, ValueId};
use crate::program::{Program, Statement};

/// A graph that is solved, and the program so far.
pub(crate) struct Lane<'a> {
    solver: &'a ShardingSolver,
    graph: &'a Graph,
    /// The statements of the graph in the order in which they are solved.
    statements: &'a [GraphStatement],
    /// The number of the mesh on which each value of the graph is computed.
    made_on: Vec<usize>,
    /// The values to differentiate with respect to; `None` if there is no gradient.
    wanted: Option<FxHashSet<ValueId>>,
    pub(crate) program: Program,
    /// The program value of each graph value.
    pub(crate) known: FxHashMap<ValueId, ValueId>,
    tables: &'a mut Tables,
}

/// The types and strategies on the meshes of a graph that are known, for one solver.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) types: Types,
    pub(crate) ways: Ways,
}

impl Tables {
    pub(crate) fn new(solver: &ShardingSolver, graph: &Graph) -> Tables {
        let ways = Ways::new(&solver.planner, &graph.table, solver.rates);
        Tables { types: Types::new(&solver.planner), ways }
    }

    /// Returns the same with a budget for rank-by-rank pricing.
    pub(crate) fn within(self, planner: &Planner, budget: SearchBudget) -> Tables {
        Tables { types: Types::looking(planner, budget.work()), ..self }
    }

    /// Returns the same without strided shards, if the graph gives no value one.
    ///
    /// An op on groups of a dim has twice as many types with them, and most prices between these are searched.
    pub(crate) fn in_one_piece(mut self, graph: &Graph) -> Tables {
        let mut given = graph.values.iter().filter_map(|known| known.pinned.as_deref());
        self.ways.in_one_piece = !given.any(is_strided);
        self
    }
}

impl<'a> Lane<'a> {
    pub(crate) fn new(
        solver: &'a ShardingSolver,
        graph: &'a Graph,
        statements: &'a [GraphStatement],
        tables: &'a mut Tables,
    ) -> Lane<'a> {
        let gradients = || statements.iter().filter(|s| matches!(s, GraphStatement::Gradient { .. }));
        let wanted = gradients().flat_map(|s| s.takes().iter().copied());
        Lane {
            solver,
            graph,
            statements,
            made_on: graph.made_on(),
            wanted: gradients().next().is_some().then(|| wanted.collect()),
            program: Program::new(&graph.meshes, &graph.table),
            known: FxHashMap::default(),
            tables,
        }
    }

    /// Returns `true` if the graph has a gradient.
    pub(crate) fn is_differentiated(&self) -> bool {
        self.wanted.is_some()
    }

    /// Solves these statements, and returns the minimised computing; `trains` if they are differentiated.
    pub(crate) fn solve(&mut self, statements: Range<usize>, trains: bool) -> Result<u64, Error> {
        let mut segment = Segment {
            graph: self.graph,
            made_on: &self.made_on,
            statements: &self.statements[statements],
            trains,
            strict: self.is_differentiated(),
            wanted: self.wanted.as_ref(),
            known: &mut self.known,
            held: None,
        };
        let solved = segment.elaborate(self.solver, &mut self.program, self.tables);
        solved.map(|(_, computing)| computing)
    }

    /// Returns the backward of a gradient, statement `n`, and where that of each forward statement ends.
    ///
    /// With `later` it is differentiated too.
    pub(crate) fn backward(
        &self,
        n: usize,
        later: bool,
        reserved: &Arc<FxHashSet<String>>,
    ) -> Result<(Graph, Vec<usize>), Error> {
        let GraphStatement::Gradient { loss, wrt, gradients } = &self.statements[n] else {
            return Err(Error::Graph { reason: "only a gradient has a backward".to_owned() });
        };
        let of = |v: &ValueId| self.known.get(v).copied().ok_or_else(|| made_later(self.graph, *v));
        let called = gradients.iter().map(|g| self.graph.name(*g).to_owned());
        let wrt = wrt.iter().zip(called).map(|(v, name)| Ok((of(v)?, name)));
        let (loss, wrt) = (of(loss)?, wrt.collect::<Result<Vec<_>, Error>>()?);
        self.program.backward(loss, &wrt, later, reserved)
    }

    /// Solves the backward of a gradient, statement `n`, with any redistributions.
    ///
    /// The gradients of each statement have given types, so each is solved alone. If it `marks`, values after
    /// it have no gradient.
    pub(crate) fn differentiate(
        &mut self,
        n: usize,
        (backward, ends): &(Graph, Vec<usize>),
        (later, marks): (bool, bool),
    ) -> Result<(), Error> {
        let gradients = self.statements[n].makes();
        if marks {
            self.program.statements.push(Statement::NoGrad);
        }
        let parted = if later {
            backward.in_parts(Apart { means: true, rows: false })?
        } else {
            Cow::Borrowed(backward)
        };
        let all = [parted.statements.len()];
        let ends = if matches!(parted, Cow::Owned(_)) { &all[..] } else { ends };
        let made_on = parted.made_on();
        let mut inner: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        let free =
            ShardingSolver { implicit_redistribution: ImplicitRedistribution::Allow, ..self.solver.clone() };
        let mut from = 0;
        for &end in ends {
            let mut segment = Segment {
                graph: &parted,
                made_on: &made_on,
                statements: &parted.statements[from..end],
                trains: later,
                strict: self.is_differentiated(),
                wanted: None,
                known: &mut inner,
                held: None,
            };
            segment.elaborate(&free, &mut self.program, self.tables)?;
            from = end;
        }
        for &g in gradients {
            let made = self.program.value(self.graph.name(g)).ok_or_else(|| made_later(self.graph, g))?;
            self.known.insert(g, made);
        }
        Ok(())
    }

    /// Lets a lane along axes of one rank do what this one did; `None` if it cannot.
    ///
    /// This one takes its letters, as long as both have the same values. Fails with [`Error::OneRank`] for a program that is wrong there.
    pub(crate) fn beside<'b>(
        &mut self,
        lane: Option<Lane<'b>>,
        step: impl FnOnce(&mut Lane<'b>) -> Result<(), Error>,
    ) -> Result<Option<Lane<'b>>, Error> {
        let Some(mut lane) = lane else { return Ok(None) };
        match step(&mut lane) {
            Ok(()) => {
                self.program.take_letters(&lane.program);
                Ok(Some(lane))
            }
            Err(error) if error.is_of_types() => {
                Err(Error::OneRank { sizes: String::new(), error: Box::new(error) })
            }
            // With more ranks some shards are uneven, which ops and plans may not support.
            Err(_) => Ok(None),
        }
    }
}
