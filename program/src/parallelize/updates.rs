//! The update of a parameter: the statements after the gradient that compute its next value, and their time.
//!
//! An update is solved alone for each sharding of the gradient. Its own values are the parameter, its gradient, its
//! states, and all that is computed from these and from scalars. Other scalars, such as the factor that clips
//! gradients by the norm of all of them, are given.

use std::sync::Arc;

use reshard_sharding::{Mesh, Sharding, ShardingType};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::elaborate::lane::Tables;
use crate::graph::{Graph, GraphStatement, ValueId};
use crate::{Error, ShardingSolver};

/// The update of one parameter.
#[derive(Clone, Debug, Default)]
pub(super) struct Update {
    /// The statements, in order.
    statements: Vec<usize>,
    /// The open inputs that are its states.
    pub(super) states: Vec<ValueId>,
}

impl Update {
    /// Returns the update of a parameter with this gradient.
    ///
    /// `taken` are the states of other parameters, and the inputs that forward takes.
    pub(super) fn of(
        graph: &Graph,
        from: usize,
        parameter: ValueId,
        gradient: ValueId,
        taken: &mut FxHashSet<ValueId>,
    ) -> Update {
        let mut own: FxHashSet<ValueId> = FxHashSet::from_iter([parameter, gradient]);
        let mut update = Update::default();
        let shape = graph.shape(parameter);
        let is_scalar = |v: ValueId| graph.shape(v).iter().product::<usize>() <= 1;
        for (n, statement) in graph.statements.iter().enumerate().skip(from) {
            let takes = statement.takes();
            let is_state = |v: ValueId, taken: &FxHashSet<ValueId>| {
                graph.values[v.0].open.is_some() && !taken.contains(&v) && graph.shape(v) == shape
            };
            let fits = |v: &ValueId| own.contains(v) || is_scalar(*v) || is_state(*v, taken);
            let begins = takes.iter().any(|v| own.contains(v) && *v != parameter);
            if !begins || !takes.iter().all(fits) {
                continue;
            }
            for &v in takes {
                if !own.contains(&v) && is_state(v, taken) {
                    taken.insert(v);
                    own.insert(v);
                    update.states.push(v);
                }
            }
            own.extend(statement.makes().iter().filter(|v| !is_scalar(**v)));
            update.statements.push(n);
        }
        update
    }

    /// Returns `true` if nothing is updated.
    pub(super) fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    /// Returns the key of its time for any sharding: the statements with values by position.
    pub(super) fn key(&self, graph: &Graph, parameter: ValueId) -> String {
        let mut numbers: FxHashMap<ValueId, usize> = FxHashMap::default();
        let mut text = format!("{:?}", (graph.shape(parameter), graph.dtype(parameter)));
        for &n in &self.statements {
            let statement = &graph.statements[n];
            if let GraphStatement::Op { call, .. } = statement {
                text += &call.to_string();
            }
            for v in statement.takes().iter().chain(statement.makes()) {
                let next = numbers.len();
                let number = *numbers.entry(*v).or_insert(next);
                text.extend([" ", &number.to_string(), " ", graph.dtype(*v).name()]);
            }
        }
        text
    }

    /// Returns its time in picoseconds, with the parameter in one sharding, and its gradient and states in another.
    pub(super) fn picoseconds(
        &self,
        solver: &ShardingSolver,
        tables: &mut Tables,
        graph: &Graph,
        parameter: ValueId,
        [kept, at]: [&Sharding; 2],
    ) -> Result<u64, Error> {
        let mesh: &Mesh = graph.mesh();
        let mut alone = Graph::with_table(mesh, Arc::clone(&graph.table));
        alone.no_grad();
        let mut known: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        // The next value of the parameter is constrained to its type, also where no statement takes it.
        let is = ShardingType::new(kept.clone(), None);
        let first = alone.input_with_type(graph.name(parameter), graph.dtype(parameter), is)?;
        known.insert(parameter, first);
        for &n in &self.statements {
            let statement = &graph.statements[n];
            for v in statement.takes() {
                if known.contains_key(v) {
                    continue;
                }
                let is = if graph.shape(*v) == graph.shape(parameter) {
                    at.clone()
                } else {
                    replicated(mesh, graph.shape(*v))?
                };
                let is = ShardingType::new(is, None);
                known.insert(*v, alone.input_with_type(graph.name(*v), graph.dtype(*v), is)?);
            }
            match statement {
                GraphStatement::Op { call, inputs, outputs, .. } => {
                    let inputs: Vec<ValueId> = inputs.iter().map(|v| known[v]).collect();
                    let names: Vec<&str> = outputs.iter().map(|v| graph.name(*v)).collect();
                    let made = alone.apply(call, &inputs, &names)?;
                    known.extend(outputs.iter().copied().zip(made));
                }
                // The sharding is given for all.
                GraphStatement::Move { from, to, .. } => {
                    known.insert(*to, known[from]);
                }
                GraphStatement::Input(_) | GraphStatement::Gradient { .. } | GraphStatement::NoGrad => {}
            }
        }
        let program = solver.solve_with(&alone, tables)?;
        let us = program.report(&solver.rates).total_us() - program.optimality_gap_us();
        Ok((us.max(0.0) * 1e6) as u64)
    }
}

fn replicated(mesh: &Mesh, shape: &[usize]) -> Result<Sharding, Error> {
    Sharding::replicated(mesh, shape).map_err(|e| Error::Ops { at: None, error: e.into() })
}
