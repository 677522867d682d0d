//! A segment: statements between gradients, the known facts on their values, and the search over the rest.

use std::cell::OnceCell;
use std::sync::Arc;

use reshard_ops::propagate::is_of_magnitudes;
use reshard_ops::rules::{Op, OpCall};
use reshard_planner::internal::go_on;
use reshard_sharding::ShardingType;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};

use crate::Error;
use crate::elaborate::ahead::Ahead;
use crate::elaborate::at_hand::AtHand;
use crate::elaborate::flows::{Differentiable, Flows};
use crate::elaborate::held::{HeldAtPrice, OpenInput, SavedOperands};
use crate::elaborate::implicit::ImplicitRedistribution;
use crate::elaborate::lane::Tables;
use crate::elaborate::limits::Limits;
use crate::elaborate::moves::{Estimates, TypeId, Types};
use crate::elaborate::nonnegative;
use crate::elaborate::search::{Frontier, Shared, Step};
use crate::elaborate::solved::Solved;
use crate::elaborate::ways::{Asked, OfList, Ways};
use crate::elaborate::{ShardingSolver, made_later, refusal};
use crate::graph::{Given, Graph, GraphStatement, ValueId};
use crate::local_type::Partly;
use crate::program::{Program, Statement};

/// The statements between two gradients.
pub(crate) struct Segment<'a> {
    pub(crate) graph: &'a Graph,
    /// The number of the mesh on which each value of the graph is computed.
    pub(crate) made_on: &'a [usize],
    pub(crate) statements: &'a [GraphStatement],
    /// `true` if computed values have a gradient where they depend on a value that has one.
    pub(crate) trains: bool,
    /// `true` if an op without a gradient formula is an error where its gradient is required.
    pub(crate) strict: bool,
    /// The values to differentiate with respect to; `None` for all that have a gradient.
    pub(crate) wanted: Option<&'a FxHashSet<ValueId>>,
    /// The program value of each graph value.
    pub(crate) known: &'a mut FxHashMap<ValueId, ValueId>,
    /// The operands that it holds, if memory has a price; then inputs may be open.
    pub(crate) held: Option<&'a HeldAtPrice>,
}

/// Facts on the values of a segment that are known before the search.
#[derive(Default)]
pub(crate) struct Facts {
    /// The values from outside the segment, with their types.
    pub(crate) outside: Vec<(ValueId, Arc<ShardingType>)>,
    /// The last statement that takes each value, by value number; 0 if no statement does.
    pub(crate) last: Vec<usize>,
    /// `true` for the values that have gradients.
    gradients: FxHashMap<ValueId, bool>,
    /// The values without negative elements.
    nonnegative: FxHashSet<ValueId>,
    /// The gradient flow through the inputs and outputs of each op.
    pub(crate) ops: Vec<Option<Flows>>,
    /// Search-independent data of each statement, computed on first use.
    plain: Vec<OnceCell<Plain>>,
}

impl Facts {
    pub(crate) fn has(&self, v: ValueId) -> bool {
        self.gradients.get(&v).copied().unwrap_or(false)
    }

    /// Takes the gradients from values that the loss does not depend on, and from the ops that make them.
    pub(crate) fn differentiate_only(&mut self, statements: &[GraphStatement], loss: &FxHashSet<ValueId>) {
        self.gradients.iter_mut().for_each(|(v, has)| *has &= loss.contains(v));
        for (statement, flows) in statements.iter().zip(&mut self.ops) {
            if let Some((takes, gives)) = flows
                && !statement.makes().iter().any(|v| loss.contains(v))
            {
                takes.fill(false);
                gives.fill(false);
            }
        }
    }

    /// Returns the interned sharding constraint of a value.
    fn pin(&self, graph: &Graph, types: &mut Types, v: ValueId) -> Option<TypeId> {
        self.pinned(graph, v).map(|is| types.id(graph.dtype(v), is))
    }

    /// Returns the sharding constraint of a value, without a gradient if the value has none.
    pub(crate) fn pinned(&self, graph: &Graph, v: ValueId) -> Option<Arc<ShardingType>> {
        let is = graph.shared_pin(v)?;
        Some(with_gradient_if(is, self.has(v)))
    }
}

/// Data of a statement that is the same in every search.
#[derive(Debug, Default)]
pub(super) struct Plain {
    /// The number of an op's strategy query.
    pub(super) question: u32,
    inputs: SmallVec<[usize; 4]>,
    /// The outputs, with their required types.
    pub(super) outputs: SmallVec<[(usize, Option<TypeId>); 2]>,
    /// The available input types of an op whose strategy is given; `None` if it is not given.
    pub(super) given: Option<SmallVec<[AtHand; 4]>>,
    /// The number of the mesh on which an op runs.
    pub(super) on: usize,
}

impl Plain {
    /// Returns the required type of the first output.
    fn pin(&self) -> Option<TypeId> {
        self.outputs.first()?.1
    }
}

/// The result of a search.
pub(crate) struct Searched {
    pub(crate) frontier: Frontier,
    /// The strategies of each op that were considered.
    pub(crate) looked: Vec<Option<Shared>>,
}

impl Searched {
    /// Returns the best choices; `bound` is a lower bound on all.
    pub(crate) fn solved(self, types: &Types, bound: u64) -> Solved {
        let Searched { frontier, looked } = self;
        // States were compared by estimates, which the bound counts as nothing.
        let bound = if types.stand_in() { bound } else { bound.max(frontier.bound_of_all()) };
        Solved { looked, best: frontier.best(), bound }
    }
}

/// The gap, in picoseconds, below which nothing cheaper is looked for; a report prints nanoseconds.
pub(crate) const NEGLIGIBLE: u64 = 500;

impl Segment<'_> {
    /// Solves the segment and adds its statements to a program.
    ///
    /// Returns the cost that was minimised, and the computing in it, in picoseconds.
    pub(crate) fn elaborate(
        &mut self,
        elaborator: &ShardingSolver,
        program: &mut Program,
        Tables { types, ways }: &mut Tables,
    ) -> Result<(u64, u64), Error> {
        let facts = self.facts(program)?;
        // Another kernel reads these.
        for (v, _) in &facts.outside {
            if let Some(v) = self.known.get(v) {
                program.values[v.0].inner = false;
            }
        }
        let least: Vec<u64> =
            (0..self.statements.len()).map(|n| self.least(elaborator, ways, &facts, n)).collect();
        let solved = self.solved(elaborator, types, ways, &facts, &least)?;
        let first = program.statements.len();
        let computing = self.write(elaborator, program, types, &solved, &facts)?;
        let sent = program.statements[first..].iter().map(Statement::sends_picoseconds).sum::<u64>();
        let cost = computing.saturating_add(sent);
        program.gap = program.gap.saturating_add(cost.saturating_sub(solved.bound));
        Ok((cost, computing))
    }

    /// Returns the choices for all statements.
    fn solved(
        &self,
        elaborator: &ShardingSolver,
        types: &mut Types,
        ways: &mut Ways,
        facts: &Facts,
        least: &[u64],
    ) -> Result<Arc<Solved>, Error> {
        if elaborator.implicit_redistribution != ImplicitRedistribution::Allow {
            let limits = Limits::thorough(elaborator.beam_width);
            let found = self.search(elaborator, types, ways, facts, least, &limits)?;
            return Ok(Arc::new(found.solved(types, 0)));
        }
        let like = self.likeness(types, ways, facts, least);
        if let Some(known) = ways.solved.get(&like) {
            return Ok(Arc::clone(known));
        }
        let (found, bound) = self.found(elaborator, types, ways, facts, least)?;
        let solved = Arc::new(found.solved(types, bound));
        ways.solved.insert(like, Arc::clone(&solved));
        Ok(solved)
    }

    /// Searches with redistributions between statements; returns the result and a lower bound on all others.
    pub(crate) fn found(
        &self,
        elaborator: &ShardingSolver,
        types: &mut Types,
        ways: &mut Ways,
        facts: &Facts,
        least: &[u64],
    ) -> Result<(Searched, u64), Error> {
        let mut hasty = self.search(elaborator, types, ways, facts, least, &Limits::hasty())?;
        let known = hasty.frontier.least();
        if !types.stand_in() && hasty.frontier.bound_of_all() == known {
            return Ok((hasty, known));
        }
        let mut factors = self.factors(types, facts, &hasty.looked, Estimates::Count);
        let mut bound = factors.bound(known.saturating_sub(NEGLIGIBLE));
        if types.stand_in() {
            let mut certain = self.factors(types, facts, &hasty.looked, Estimates::AreNothing);
            bound = certain.bound(known.saturating_sub(NEGLIGIBLE)).max(least.iter().sum());
        }
        if known.saturating_sub(bound) <= NEGLIGIBLE {
            return Ok((hasty, bound));
        }
        // The cost of the greedy search bounds the thorough one, which may lose every cheaper program.
        let ahead = Some(Ahead::new(factors, types, self.statements.len()));
        let could_be = core::mem::take(&mut hasty.frontier.seen);
        let limits = Limits { known, could_be, ahead, ..Limits::thorough(elaborator.beam_width) };
        match self.search(elaborator, types, ways, facts, least, &limits) {
            Ok(found) if found.frontier.least() <= known => Ok((found, bound)),
            Ok(_) | Err(_) => Ok((hasty, bound)),
        }
    }

    /// Returns the facts known before the search: the values from outside, and the gradients.
    pub(crate) fn facts(&mut self, program: &Program) -> Result<Facts, Error> {
        let graph = self.graph;
        let mut facts = Facts { last: vec![0; graph.values.len()], ..Facts::default() };
        facts.plain.resize_with(self.statements.len(), OnceCell::new);
        let mut differentiable = Differentiable::default();
        let mut made: FxHashSet<ValueId> = FxHashSet::default();
        for (n, statement) in self.statements.iter().enumerate() {
            for &v in statement.takes() {
                facts.last[v.0] = n;
                if !made.contains(&v) && !facts.outside.iter().any(|(known, _)| *known == v) {
                    let is = self.outside(program, v)?;
                    facts.gradients.insert(v, is.gradient.is_some());
                    if is_of_magnitudes(&is.value) {
                        facts.nonnegative.insert(v);
                    }
                    facts.outside.push((v, is));
                }
            }
            made.extend(statement.makes());
            nonnegative::follow(graph, statement, &mut facts.nonnegative);
            let mut op_gradients = None;
            match statement {
                GraphStatement::Input(v) => {
                    let wanted = self.wanted.is_none_or(|wanted| wanted.contains(v));
                    facts.gradients.insert(*v, self.trains && wanted && graph.has_own_gradient(*v));
                }
                GraphStatement::Move { from, to, along, .. } => {
                    let pinned = graph.constraint(*to).is_some_and(|is| is.gradient.is_some());
                    let own = pinned || graph.moves_partly(along, *to);
                    let has = own && self.trains && (facts.has(*from) || self.wants(*to));
                    facts.gradients.insert(*to, has);
                }
                GraphStatement::Op { call, op, inputs, outputs, .. } => {
                    let wanted = self.trains && inputs.iter().any(|v| facts.has(*v));
                    let (takes, gives) = differentiable.of(&graph.table, call, op, wanted, self.strict)?;
                    let takes: Vec<bool> =
                        inputs.iter().zip(&takes).map(|(v, takes)| facts.has(*v) && *takes).collect();
                    let gives: Vec<bool> = (outputs.iter().zip(&gives))
                        .map(|(v, gives)| {
                            let own = graph.constraint(*v).is_none_or(|is| is.gradient.is_some());
                            let flows = takes.contains(&true) && *gives;
                            (flows || self.wants(*v)) && own && !graph.dtype(*v).is_integral()
                        })
                        .collect();
                    facts.gradients.extend(outputs.iter().copied().zip(gives.iter().copied()));
                    let takes = if gives.contains(&true) { takes } else { vec![false; inputs.len()] };
                    op_gradients = Some((takes, gives));
                }
                GraphStatement::Gradient { .. } | GraphStatement::NoGrad => {}
            }
            facts.ops.push(op_gradients);
        }
        Ok(facts)
    }

    /// Returns `true` if a gradient is taken with respect to a value, even if its producer blocks gradients.
    fn wants(&self, v: ValueId) -> bool {
        self.trains && self.wanted.is_some_and(|wanted| wanted.contains(&v))
    }

    /// Searches through all statements.
    #[allow(clippy::too_many_arguments, reason = "the search problem and its limits")]
    pub(crate) fn search(
        &self,
        elaborator: &ShardingSolver,
        types: &mut Types,
        ways: &mut Ways,
        facts: &Facts,
        least: &[u64],
        limits: &Limits,
    ) -> Result<Searched, Error> {
        let graph = self.graph;
        let mut frontier = Frontier::new(types, limits, elaborator.implicit_redistribution);
        let mut looked: Vec<Option<Shared>> = Vec::with_capacity(self.statements.len());
        let mut rest = least.iter().fold(0u64, |a, b| a.saturating_add(*b));
        for (v, is) in &facts.outside {
            let id = types.id(graph.dtype(*v), is.clone());
            let at_hand = types.sets.number(&[id]);
            frontier.enters(types, v.0, at_hand);
        }
        for (n, statement) in self.statements.iter().enumerate() {
            go_on().map_err(reshard_ops::Error::from)?;
            rest = rest.saturating_sub(least[n]);
            looked.push(None);
            frontier.paces(types, n, self.statements.len());
            let live = |value: usize| facts.last.get(value).is_some_and(|&at| at > n);
            match statement {
                GraphStatement::Input(v) if graph.values[v.0].open.is_some() => {
                    // An open input that only an update takes is not in a segment before it.
                    match self.held.and_then(|held| held.inputs.get(v)) {
                        None => {}
                        Some(OpenInput::ForOne(at_hand)) => frontier.enters(types, v.0, *at_hand),
                        Some(OpenInput::Choices(found)) => {
                            let outputs = [(v.0, None)];
                            let ahead = limits.ahead.as_ref().map(|ahead| (ahead, n));
                            let step = Step { ways: found, inputs: &[], outputs: &outputs, rest, ahead };
                            if !frontier.op(types, step, &live) {
                                return Err(made_later(graph, *v));
                            }
                            looked[n] = Some(Arc::clone(found));
                        }
                    }
                }
                GraphStatement::Input(v) => {
                    let Some(id) = self.plain(types, ways, (facts, n), &looked).pin() else {
                        return Err(made_later(graph, *v));
                    };
                    let at_hand = types.sets.number(&[id]);
                    frontier.enters(types, v.0, at_hand);
                }
                GraphStatement::Move { from, to, along, via } if graph.moves_partly(along, *to) => {
                    if !frontier.moved_along(types, (from.0, to.0), along, *via) {
                        return Err(refusal::no_part(types, graph, *from, along, &frontier));
                    }
                }
                GraphStatement::Move { from, to, via, .. } => {
                    let Some(id) = self.plain(types, ways, (facts, n), &looked).pin() else {
                        return Err(made_later(graph, *to));
                    };
                    if !frontier.moved(types, (from.0, to.0), (id, *via)) {
                        return Err(refusal::no_plan(
                            types,
                            elaborator,
                            graph,
                            (*from, *to, *via),
                            &frontier,
                        ));
                    }
                }
                GraphStatement::Op { call, inputs, by, .. } => {
                    let plain = self.plain(types, ways, (facts, n), &looked);
                    let at_hand = match &plain.given {
                        Some(given) => given.clone(),
                        None => plain.inputs.iter().map(|&v| frontier.at_hand(types, v)).collect(),
                    };
                    let mesh = graph.meshes.at(plain.on);
                    let found = ways.of(types, mesh, (plain.question, at_hand))?;
                    if found.list.is_empty()
                        && let Some(by) = by
                    {
                        return Err(refusal::no_strategy(graph, mesh, call, by, inputs.len()));
                    }
                    let ahead = limits.ahead.as_ref().map(|ahead| (ahead, n));
                    let (inputs, outputs) = (&plain.inputs, &plain.outputs);
                    let step = Step { ways: &found, inputs, outputs, rest, ahead };
                    if !frontier.op(types, step, &live) {
                        return Err(refusal::no_way(types, elaborator, graph, statement, &frontier, step));
                    }
                    looked[n] = Some(found);
                }
                GraphStatement::Gradient { .. } | GraphStatement::NoGrad => {}
            }
        }
        // Whoever stops a search in its last statement gets no program either.
        go_on().map_err(reshard_ops::Error::from)?;
        Ok(Searched { frontier, looked })
    }

    /// Returns the search-independent data of statement `n`.
    ///
    /// `looked` has the strategies of all statements before it.
    pub(super) fn plain<'f>(
        &self,
        types: &mut Types,
        ways: &mut Ways,
        (facts, n): (&'f Facts, usize),
        looked: &[Option<Shared>],
    ) -> &'f Plain {
        facts.plain[n].get_or_init(|| match &self.statements[n] {
            GraphStatement::Input(v) | GraphStatement::Move { to: v, .. } => {
                let pin = facts.pin(self.graph, types, *v);
                Plain { outputs: smallvec![(v.0, pin)], ..Plain::default() }
            }
            GraphStatement::Op { call, op, inputs, outputs, by } => {
                let saved = self.held.map(|held| held.saved_at(n, looked)).unwrap_or_default();
                self.plain_op(types, ways, (facts, n), (call, op), (inputs, outputs), (by.as_deref(), saved))
            }
            GraphStatement::Gradient { .. } | GraphStatement::NoGrad => Plain::default(),
        })
    }

    fn plain_op(
        &self,
        types: &mut Types,
        ways: &mut Ways,
        (facts, n): (&Facts, usize),
        (call, op): (&OpCall, &Op),
        (inputs, outputs): (&[ValueId], &[ValueId]),
        (by, saved): (Option<&[Given]>, SavedOperands),
    ) -> Plain {
        let graph = self.graph;
        let (input_gradients, output_gradients) = facts.ops[n].clone().unwrap_or_default();
        let made = outputs.iter().map(|v| (v.0, facts.pin(graph, types, *v)));
        let made: SmallVec<[(usize, Option<TypeId>); 2]> = made.collect();
        let operands = inputs.iter().chain(outputs).zip(by.unwrap_or_default());
        let given: Option<Vec<TypeId>> = by.and_then(|_| {
            let whole = |(v, given): (&ValueId, &Given)| match given {
                Given::Whole { value, .. } => {
                    let plain = Arc::new(ShardingType::new((**value).clone(), None));
                    Some(types.id(graph.dtype(*v), plain))
                }
                Given::Along(_) => None,
            };
            operands.clone().map(whole).collect()
        });
        let along = operands.map(|(_, given)| match given {
            Given::Whole { .. } => Partly::new(),
            Given::Along(partly) => partly.clone(),
        });
        let (on, trains) = (self.runs_on(outputs), input_gradients.contains(&true));
        let alone = |types: &mut Types, is: TypeId| types.sets.number(&[is]);
        let asked = Asked {
            op: op.clone(),
            also: match &given {
                Some(given) => given[inputs.len()..].to_vec(),
                None => made.iter().filter_map(|(_, pin)| *pin).collect(),
            },
            input_gradients,
            output_gradients,
            nonnegative: inputs.iter().map(|v| facts.nonnegative.contains(v)).collect(),
            on,
            of_list: OfList {
                given: given.clone().unwrap_or_default(),
                along: along.collect(),
                input_dtypes: inputs.iter().map(|&v| graph.dtype(v)).collect(),
                output_dtypes: outputs.iter().map(|&v| graph.dtype(v)).collect(),
                call: trains.then(|| call.clone()),
                stored: self.stored(inputs, outputs),
                saved,
            },
        };
        let given = given.map(|given| given[..inputs.len()].iter().map(|&is| alone(types, is)).collect());
        let question = ways.number(asked);
        Plain { question, inputs: inputs.iter().map(|v| v.0).collect(), outputs: made, given, on }
    }

    /// Returns `true` for each operand of an op whose memory traffic depends on the strategy.
    ///
    /// The reads of a kernel are known before. As a part of its first statement, they would seem to justify a
    /// redistribution in the kernel, to read less there.
    pub(super) fn stored(&self, inputs: &[ValueId], outputs: &[ValueId]) -> Vec<bool> {
        let is_inner = |v: &ValueId| self.graph.values[v.0].inner;
        let is_in_kernel = inputs.iter().chain(outputs).any(is_inner);
        let reads = inputs.iter().map(|_| !is_in_kernel);
        reads.chain(outputs.iter().map(|v| !is_inner(v))).collect()
    }

    /// Returns the number of the mesh on which the op with these outputs runs.
    pub(super) fn runs_on(&self, outputs: &[ValueId]) -> usize {
        outputs.first().map_or(0, |v| self.made_on[v.0])
    }

    /// Returns the type of a program value that this segment takes.
    fn outside(&mut self, program: &Program, v: ValueId) -> Result<Arc<ShardingType>, Error> {
        let name = self.graph.name(v);
        let at = self
            .known
            .get(&v)
            .copied()
            .or_else(|| program.value(name))
            .ok_or_else(|| made_later(self.graph, v))?;
        self.known.insert(v, at);
        Ok(with_gradient_if(&program.get(at).ty, self.trains))
    }
}

/// Returns the same type, without its gradient if `has` is `false`.
fn with_gradient_if(is: &Arc<ShardingType>, has: bool) -> Arc<ShardingType> {
    if has || is.gradient.is_none() {
        return Arc::clone(is);
    }
    Arc::new(ShardingType::new(is.value.clone(), None))
}
