//! One graph with open inputs: the cheapest choice at a price of memory, and a bound on all.

use std::sync::Arc;

use reshard_ops::gradients::Saved as Reads;
use reshard_sharding::{Sharding, ShardingType};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::elaborate::held::{HeldAtPrice, OpenInput};
use crate::elaborate::lane::Tables;
use crate::elaborate::moves::{TypeId, Types};
use crate::elaborate::order::gradients_last;
use crate::elaborate::segment::{Facts, Segment};
use crate::elaborate::ways::{Way, Ways};
use crate::graph::{Graph, GraphStatement, ValueId};
use crate::local_type::{self, Partly};
use crate::parallelize::keeps::{self, Asked, Keep, Prices, choices};
use crate::parallelize::saved::{Reading, SavedValues};
use crate::parallelize::updates::Update;
use crate::program::Program;
use crate::{Error, ShardingSolver};

/// The types of open inputs by name, in the order of the graph.
pub(super) type Chosen = Vec<(String, ShardingType)>;

/// The times of updates, by their statements, and the shardings of the parameter and of its gradient.
pub(super) type Times = FxHashMap<String, FxHashMap<(Sharding, Sharding), Option<u64>>>;

/// The cheapest choice at a price.
pub(super) struct Choice {
    /// A lower bound on time and priced bytes of all choices, in picoseconds.
    pub(super) bound: u64,
    pub(super) types: Chosen,
}

/// An open input of forward.
struct Input {
    value: ValueId,
    /// Its statement.
    at: usize,
    /// The open inputs that are its optimizer states.
    states: Vec<ValueId>,
    /// Every storage of it.
    keeps: Vec<Keep>,
    /// The statement and operand of a parameter that one op takes.
    only: Option<(usize, usize)>,
}

/// A graph with open inputs, and all that does not depend on the price of memory.
pub(super) struct Problem<'a> {
    solver: &'a ShardingSolver,
    graph: Graph,
    statements: Vec<GraphStatement>,
    /// The number of statements of forward.
    forward: usize,
    made_on: Vec<usize>,
    wanted: Option<FxHashSet<ValueId>>,
    /// The values that the loss depends on, and the loss.
    of_loss: FxHashSet<ValueId>,
    /// The open inputs of forward.
    inputs: Vec<Input>,
    saved: SavedValues,
    /// The bytes of the inputs that have a type.
    pub(super) fixed: u64,
    /// The least time of the sums of gradients of several uses, in picoseconds.
    sums: u64,
}

impl<'a> Problem<'a> {
    /// Returns the problem of a graph in primitive ops.
    pub(super) fn of(
        solver: &'a ShardingSolver,
        graph: Graph,
        tables: &mut Tables,
        times: &mut Times,
    ) -> Result<Problem<'a>, Error> {
        let statements = gradients_last(&graph).into_owned();
        let ends = |s: &GraphStatement| matches!(s, GraphStatement::Gradient { .. } | GraphStatement::NoGrad);
        let forward = statements.iter().position(ends).unwrap_or(statements.len());
        let wanted = statements.iter().find_map(|s| match s {
            GraphStatement::Gradient { wrt, .. } => Some(wrt.iter().copied().collect::<FxHashSet<_>>()),
            GraphStatement::Input(_)
            | GraphStatement::Op { .. }
            | GraphStatement::Move { .. }
            | GraphStatement::NoGrad => None,
        });
        let mut problem = Problem {
            solver,
            made_on: graph.made_on(),
            saved: SavedValues::of(&graph, &[], &[]),
            graph,
            of_loss: before_loss(&statements),
            statements,
            forward,
            wanted,
            inputs: Vec::new(),
            fixed: 0,
            sums: 0,
        };
        problem.fixed = problem.bytes_of_typed(&mut tables.types);
        (problem.saved, problem.sums) =
            problem.with_segment(tables, None, |segment, facts, Tables { ways, .. }| {
                let readings: Vec<Reading> =
                    (0..segment.statements.len()).map(|n| segment.reading(solver, ways, facts, n)).collect();
                let saved = SavedValues::of(segment.graph, segment.statements, &readings);
                Ok((saved, segment.sums(solver, facts)))
            })?;
        problem.inputs = problem.keeps(tables, times)?;
        Ok(problem)
    }

    /// Returns the bytes of the inputs with a type, on the rank with the most.
    fn bytes_of_typed(&self, types: &mut Types) -> u64 {
        let graph = &self.graph;
        let bytes = |v: ValueId| {
            let id = types.id(graph.dtype(v), Arc::clone(graph.shared_pin(v)?));
            Some(types.local_bytes(id))
        };
        graph.inputs().filter_map(bytes).fold(0, u64::saturating_add)
    }

    /// Runs `ask` on forward, with its facts.
    fn with_segment<A>(
        &self,
        tables: &mut Tables,
        held: Option<&HeldAtPrice>,
        ask: impl FnOnce(&Segment<'_>, &Facts, &mut Tables) -> Result<A, Error>,
    ) -> Result<A, Error> {
        let mut known = FxHashMap::default();
        let mut segment = Segment {
            graph: &self.graph,
            made_on: &self.made_on,
            statements: &self.statements[..self.forward],
            trains: true,
            strict: self.wanted.is_some(),
            wanted: self.wanted.as_ref(),
            known: &mut known,
            held,
        };
        let mut facts = segment.facts(&Program::new(&self.graph.meshes, &self.graph.table))?;
        // No gradient flows to other values, and a report has no backward of them.
        facts.differentiate_only(segment.statements, &self.of_loss);
        ask(&segment, &facts, tables)
    }

    /// Returns the open inputs that forward takes, with every storage of each.
    fn keeps(&self, tables: &mut Tables, times: &mut Times) -> Result<Vec<Input>, Error> {
        let forward = &self.statements[..self.forward];
        let taken: FxHashSet<ValueId> = forward.iter().flat_map(|s| s.takes().iter().copied()).collect();
        let gradients: FxHashMap<ValueId, ValueId> = (self.statements.iter())
            .flat_map(|s| match s {
                GraphStatement::Gradient { wrt, gradients, .. } => {
                    wrt.iter().copied().zip(gradients.iter().copied()).collect()
                }
                GraphStatement::Input(_)
                | GraphStatement::Op { .. }
                | GraphStatement::Move { .. }
                | GraphStatement::NoGrad => Vec::new(),
            })
            .collect();
        let has_gradient = self.with_segment(tables, None, |_, facts, _| {
            Ok(taken.iter().copied().filter(|v| facts.has(*v)).collect::<FxHashSet<ValueId>>())
        })?;
        let open: Vec<ValueId> =
            self.graph.inputs().filter(|v| self.graph.values[v.0].open.is_some()).collect();
        let mut used = taken.clone();
        let mut out = Vec::new();
        for &v in open.iter().filter(|v| taken.contains(v)) {
            let given: Partly = self.graph.values[v.0].open.clone().unwrap_or_default();
            let (shape, dtype) = (self.graph.shape(v).to_vec(), self.graph.dtype(v));
            let has = has_gradient.contains(&v);
            let all = all_types(&self.graph, v, &shape, has)?;
            let gradient = gradients.get(&v).copied().filter(|_| has);
            let from = self.position_after_gradients();
            let update = gradient.map(|g| Update::of(&self.graph, from, v, g, &mut used)).unwrap_or_default();
            let state_bits = update.states.iter().map(|s| self.graph.dtype(*s).bits() as u64).sum();
            let known = times.entry(update.key(&self.graph, v)).or_default();
            let (solver, graph) = (self.solver, &self.graph);
            let mut time = |tables: &mut Tables, kept: &Sharding, at: &Sharding| {
                if update.is_empty() {
                    return Some(0);
                }
                let key = (kept.clone(), at.clone());
                *known
                    .entry(key)
                    .or_insert_with(|| update.picoseconds(solver, tables, graph, v, [kept, at]).ok())
            };
            // A given sharding is that of the value; its gradient may have another.
            let may_be = |is: &ShardingType| {
                let value = || ShardingType::new(is.value.clone(), None);
                given.is_empty() || local_type::holds(&given, &value())
            };
            let asked = Asked { dtype, taken: &all, may_be: &may_be, state_bits };
            let keeps = asked.keeps(tables, &mut time);
            if keeps.is_empty() {
                return Err(Error::Graph {
                    reason: format!(
                        "no type of `{}` has even shards on {} as it is given",
                        self.graph.name(v),
                        self.graph.mesh()
                    ),
                });
            }
            let forward = &self.statements[..self.forward];
            let at = forward.iter().position(|s| *s == GraphStatement::Input(v)).unwrap_or(0);
            let only = has.then(|| only_taker(forward, v)).flatten();
            out.push(Input { value: v, at, states: update.states, keeps, only });
        }
        if let Some(v) = open.iter().find(|v| !used.contains(v)) {
            return Err(Error::Graph {
                reason: format!(
                    "the type of `{}` is open, but it is neither taken by forward nor a state in the update of one parameter of its shape; write its type",
                    self.graph.name(*v)
                ),
            });
        }
        Ok(out)
    }

    /// Returns the number of the first statement of the graph after a gradient.
    fn position_after_gradients(&self) -> usize {
        let last = self.graph.statements.iter().rposition(|s| matches!(s, GraphStatement::Gradient { .. }));
        last.map_or(self.graph.statements.len(), |at| at + 1)
    }

    /// Returns the choice at a price, and a bound on all.
    pub(super) fn at(&self, tables: &mut Tables, prices: Prices) -> Result<Choice, Error> {
        let forward = self.forward;
        let mut held = HeldAtPrice {
            inputs: FxHashMap::default(),
            kept: vec![SmallVec::new(); forward],
            price: prices.turn,
            saved: self.saved.at_price(prices.turn),
        };
        let mut cheapest: Vec<Vec<(usize, u64)>> = Vec::with_capacity(self.inputs.len());
        for Input { value, keeps, only, .. } in &self.inputs {
            let own = keeps::cheapest(keeps, prices);
            let input = match only {
                Some((n, operand)) => {
                    let costs = own.iter().map(|&(keep, cost)| (keeps[keep].taken, cost));
                    held.kept[*n].push((*operand, costs.collect()));
                    let mut all: Vec<TypeId> = own.iter().map(|(keep, _)| keeps[*keep].taken).collect();
                    all.sort_unstable();
                    OpenInput::ForOne(tables.types.sets.number(&all))
                }
                None => OpenInput::Choices(Arc::new(choices(&mut tables.types, keeps, &own))),
            };
            held.inputs.insert(*value, input);
            cheapest.push(own);
        }
        let solver = self.solver;
        let (found, bound) =
            self.with_segment(tables, Some(&held), |segment, facts, Tables { types, ways }| {
                let count = segment.statements.len();
                let least: Vec<u64> = (0..count).map(|n| segment.least(solver, ways, facts, n)).collect();
                let (found, bound) = segment.found(solver, types, ways, facts, &least)?;
                let found = found.solved(types, bound);
                // The strategy of each statement.
                let mut chosen = found.best.into_iter();
                let mut of_statements: Vec<Option<Way>> = vec![None; count];
                for (n, (statement, looked)) in segment.statements.iter().zip(&found.looked).enumerate() {
                    let GraphStatement::Move { to, along, .. } = statement else {
                        if let Some(looked) = looked {
                            of_statements[n] =
                                chosen.next().and_then(|choice| looked.list.get(choice.way).cloned());
                        }
                        continue;
                    };
                    if segment.graph.moves_partly(along, *to) {
                        chosen.next();
                    }
                }
                Ok((of_statements, found.bound))
            })?;
        let mut keeps = Vec::with_capacity(self.inputs.len());
        for (input, own) in self.inputs.iter().zip(&cheapest) {
            let taken = match input.only {
                Some((n, operand)) => found[n].as_ref().and_then(|way| way.inputs.get(operand).copied()),
                None => found[input.at].as_ref().and_then(|way| way.outputs.first().copied()),
            };
            // For a type without a storage: the one from which it is reached for least.
            let types = &mut tables.types;
            let cost = |types: &mut Types, &(n, cost): &(usize, u64)| {
                let moved = taken.and_then(|taken| types.price(input.keeps[n].taken, taken));
                moved.map_or(u64::MAX, |moved| moved.saturating_add(cost))
            };
            let of_taken = own.iter().find(|(n, _)| Some(input.keeps[*n].taken) == taken);
            let best = of_taken.or_else(|| own.iter().min_by_key(|keep| cost(types, keep)));
            keeps.push(best.map_or(0, |(n, _)| *n));
        }
        Ok(Choice { bound: bound.saturating_add(self.sums), types: self.types_of(&tables.types, &keeps) })
    }

    /// Returns the number of open inputs.
    pub(super) fn count(&self) -> usize {
        self.inputs.len()
    }

    /// Returns the same types with each other storage of one input and its states.
    pub(super) fn next_to(&self, known: &Types, types: &Chosen, input: usize) -> Vec<Chosen> {
        let input = &self.inputs[input];
        let mut seen: FxHashSet<TypeId> = FxHashSet::default();
        let stored = input.keeps.iter().map(|keep| keep.stored).filter(|stored| seen.insert(*stored));
        let other = |stored: TypeId| {
            let of = stored_types(known, input, stored);
            let same = |(name, is): &(String, ShardingType)| {
                let other = of.iter().find(|(v, _)| self.graph.name(*v) == name);
                (name.clone(), other.map_or_else(|| is.clone(), |(_, is)| is.clone()))
            };
            types.iter().map(same).collect()
        };
        stored.map(other).collect()
    }

    /// Returns the types of open inputs by name, in the order of the graph.
    fn types_of(&self, types: &Types, keeps: &[usize]) -> Chosen {
        let mut all: FxHashMap<ValueId, ShardingType> = FxHashMap::default();
        for (input, &keep) in self.inputs.iter().zip(keeps) {
            all.extend(stored_types(types, input, input.keeps[keep].stored));
        }
        let open = self.graph.inputs().filter_map(|v| Some((self.graph.name(v).to_owned(), all.remove(&v)?)));
        open.collect()
    }
}

/// Returns the types of an input and its states if it is stored so.
fn stored_types(types: &Types, input: &Input, stored: TypeId) -> Vec<(ValueId, ShardingType)> {
    let stored = types.get(stored);
    let gradient = stored.gradient.as_ref().unwrap_or(&stored.value);
    let states = input.states.iter().map(|s| (*s, ShardingType::new(gradient.clone(), None)));
    core::iter::once((input.value, ShardingType::clone(stored))).chain(states).collect()
}

/// Returns the values that the loss depends on, and the loss.
fn before_loss(statements: &[GraphStatement]) -> FxHashSet<ValueId> {
    let mut found: FxHashSet<ValueId> = FxHashSet::default();
    for statement in statements.iter().rev() {
        match statement {
            GraphStatement::Gradient { loss, .. } => {
                found.insert(*loss);
            }
            GraphStatement::Op { .. } | GraphStatement::Move { .. } => {
                if statement.makes().iter().any(|v| found.contains(v)) {
                    found.extend(statement.takes());
                }
            }
            GraphStatement::Input(_) | GraphStatement::NoGrad => {}
        }
    }
    found
}

/// The most types of an input.
const MOST_TYPES: usize = 512;

/// Returns the op and the operand that take a value, if there is one.
fn only_taker(statements: &[GraphStatement], v: ValueId) -> Option<(usize, usize)> {
    let takes = |(n, statement): (usize, &GraphStatement)| {
        let operands = statement.takes().iter().enumerate().filter(|(_, taken)| **taken == v);
        operands.map(|(operand, _)| (n, operand)).collect::<Vec<_>>()
    };
    let all: Vec<(usize, usize)> = statements.iter().enumerate().flat_map(takes).collect();
    let [(n, operand)] = all[..] else { return None };
    matches!(statements[n], GraphStatement::Op { .. }).then_some((n, operand))
}

/// Returns the types of an input with even shards, of each placement along each axis.
fn all_types(
    graph: &Graph,
    v: ValueId,
    shape: &[usize],
    has_gradient: bool,
) -> Result<Vec<Arc<ShardingType>>, Error> {
    let mut texts: Vec<String> = vec![String::new()];
    for axis in graph.mesh().axes() {
        let replicas: &[&str] = if has_gradient { &["R", "I"] } else { &["R"] };
        let shards = (0..shape.len()).map(|dim| format!("S({dim})")).filter(|_| axis.size() > 1);
        let words: Vec<String> = replicas.iter().map(|word| (*word).to_owned()).chain(shards).collect();
        let longer = |text: &String| {
            words
                .iter()
                .map(|word| if text.is_empty() { word.clone() } else { format!("{text},{word}") })
                .collect::<Vec<_>>()
        };
        texts = texts.iter().flat_map(longer).collect();
        if texts.len() > MOST_TYPES {
            return Err(Error::Graph {
                reason: format!(
                    "`{}` has more than {MOST_TYPES} types on {}; use fewer axes, or write its type",
                    graph.name(v),
                    graph.mesh()
                ),
            });
        }
    }
    let read = |text: &String| {
        let is = graph.type_of(graph.name(v), shape, text).ok()?;
        let is = if has_gradient { is } else { is.without_gradient() };
        is.value.common_local_shape().is_some().then(|| Arc::new(is))
    };
    Ok(texts.iter().filter_map(read).collect())
}

impl Segment<'_> {
    /// Returns the least time of the sums of the gradients of values that several operands take, in picoseconds.
    fn sums(&self, solver: &ShardingSolver, facts: &Facts) -> u64 {
        let mut uses: FxHashMap<ValueId, u64> = FxHashMap::default();
        for (statement, flows) in self.statements.iter().zip(&facts.ops) {
            for (i, v) in statement.takes().iter().enumerate() {
                let flows = flows.as_ref().map_or(facts.has(*v), |(takes, _)| takes.get(i) == Some(&true));
                *uses.entry(*v).or_default() += u64::from(flows);
            }
        }
        let ranks = self.graph.mesh().size().max(1) as f64;
        let of = |(v, uses): (&ValueId, &u64)| {
            let elements = self.graph.shape(*v).iter().map(|&n| n as f64).product::<f64>() / ranks;
            let dtype = self.graph.dtype(*v);
            let bytes = elements * dtype.bits() as f64 / 8.0 * 3.0;
            let us = solver.rates.time_us(dtype, elements, bytes as u64);
            (us * 1e6) as u64 * uses.saturating_sub(1)
        };
        uses.iter().map(of).fold(0, u64::saturating_add)
    }

    /// Returns what backward reads of a statement, and the least time of its forward.
    fn reading(&self, solver: &ShardingSolver, ways: &mut Ways, facts: &Facts, n: usize) -> Reading {
        let (GraphStatement::Op { call, op, inputs, outputs, .. }, Some((takes, _))) =
            (&self.statements[n], &facts.ops[n])
        else {
            return Reading::default();
        };
        let dtypes = inputs.iter().chain(outputs).map(|v| self.graph.dtype(*v)).collect();
        let work = ways.backward.of(&self.graph.table, (call, op), dtypes, takes);
        let reads: Vec<Reads> = work.map(|work| work.reads()).unwrap_or_default();
        Reading { reads, forward: self.least_forward(solver, n), shares: self.may_be_noop(n) }
    }
}
