//! Writes the chosen strategies as program statements, each redistribution before the op that takes it.

use std::sync::Arc;

use reshard_kernels::DType;
use reshard_sharding::ShardingType;
use rustc_hash::FxHashMap;

use crate::Error;
use crate::comm_dtype;
use crate::elaborate::moves::{TypeId, Types, plan_error};
use crate::elaborate::segment::{Facts, Segment};
use crate::elaborate::solved::Solved;
use crate::elaborate::states::Choice;
use crate::elaborate::{ShardingSolver, made_later};
use crate::graph::{Graph, GraphStatement, ValueId};
use crate::program::{Program, Statement, stem};

impl Segment<'_> {
    /// Adds the statements of the chosen strategies; returns the compute cost in picoseconds.
    pub(crate) fn write(
        &mut self,
        elaborator: &ShardingSolver,
        program: &mut Program,
        types: &mut Types,
        Solved { looked, best, .. }: &Solved,
        facts: &Facts,
    ) -> Result<u64, Error> {
        let graph = self.graph;
        let mut computing = 0u64;
        // The available types of every value, with the program value that has each.
        let mut at_hand: FxHashMap<ValueId, Vec<(TypeId, ValueId)>> = FxHashMap::default();
        for (v, is) in &facts.outside {
            let Some(&at) = self.known.get(v) else { return Err(made_later(graph, *v)) };
            at_hand.insert(*v, vec![(types.id(graph.dtype(*v), is.clone()), at)]);
        }
        let mut chosen = best.iter();
        for (statement, ways) in self.statements.iter().zip(looked) {
            match (statement, ways) {
                (GraphStatement::Input(v), _) => {
                    let Some(is) = facts.pinned(graph, *v) else { return Err(made_later(graph, *v)) };
                    let made = program.add(graph.name(*v), graph.dtype(*v), is.clone());
                    program.statements.push(Statement::Input(made));
                    self.known.insert(*v, made);
                    at_hand.insert(*v, vec![(types.id(graph.dtype(*v), is), made)]);
                }
                (GraphStatement::Move { from, to, along, via }, _) if graph.moves_partly(along, *to) => {
                    let start = chosen.next().and_then(|start| {
                        at_hand.get(from)?.iter().find(|(id, _)| id.number() == start.way).copied()
                    });
                    let Some((is, start)) = start else { return Err(made_later(graph, *from)) };
                    let Some((id, _)) = types.put(is, along, *via) else {
                        return Err(made_later(graph, *to));
                    };
                    let made = moved_via(elaborator, (graph, program), types, start, (id, *via), *to)?;
                    self.known.insert(*to, made);
                    at_hand.insert(*to, vec![(id, made)]);
                }
                (GraphStatement::Move { from, to, via, .. }, _) => {
                    let Some(is) = facts.pinned(graph, *to) else { return Err(made_later(graph, *to)) };
                    let id = types.id(graph.dtype(*to), is);
                    let from_all = at_hand.get(from).map_or(&[][..], Vec::as_slice);
                    let start =
                        cheapest(types, from_all, id, *via).ok_or_else(|| made_later(graph, *from))?;
                    let made = moved_via(elaborator, (graph, program), types, start, (id, *via), *to)?;
                    self.known.insert(*to, made);
                    at_hand.insert(*to, vec![(id, made)]);
                }
                (GraphStatement::Op { call, op, inputs, outputs, .. }, Some(ways)) => {
                    let Some(&Choice { way, firsts }) = chosen.next() else { continue };
                    let way = &ways.list[way];
                    computing = computing.saturating_add(way.picoseconds);
                    let firsts = types.sets.of(firsts).to_vec();
                    let mut taken = Vec::with_capacity(inputs.len());
                    for (i, (v, wanted)) in inputs.iter().zip(&way.inputs).enumerate() {
                        for is in firsts.get(i).into_iter().chain([wanted]) {
                            let list = at_hand.entry(*v).or_default();
                            if list.iter().any(|(id, _)| id == is) {
                                continue;
                            }
                            let start =
                                cheapest(types, list, *is, None).ok_or_else(|| made_later(graph, *v))?;
                            let name = program.fresh(graph.name(*v), graph);
                            let made = if types.get(*is).value == program.get(start).ty.value
                                && types.get(*is).gradient.is_none()
                            {
                                // The same tensor; no gradient is required of it here.
                                start
                            } else {
                                moved(elaborator, program, types, start, *is, &name)?
                            };
                            list.push((*is, made));
                        }
                        let made = at_hand[v].iter().find(|(id, _)| id == wanted);
                        taken.extend(made.map(|(_, made)| *made));
                    }
                    let mut made = Vec::with_capacity(outputs.len());
                    let mut after = Vec::new();
                    for (&v, &id) in outputs.iter().zip(&way.outputs) {
                        let is = types.get(id).clone();
                        let pin = facts.pinned(graph, v);
                        let stays = pin.as_ref().is_none_or(|pin| *pin == is);
                        let name = if stays {
                            graph.name(v).to_owned()
                        } else {
                            program.fresh(graph.name(v), graph)
                        };
                        let value = program.add(&name, graph.dtype(v), is);
                        program.values[value.0].inner = graph.values[v.0].inner;
                        made.push(value);
                        match pin.filter(|_| !stays) {
                            None => {
                                self.known.insert(v, value);
                                at_hand.insert(v, vec![(id, value)]);
                            }
                            Some(pin) => after.push((v, value, pin)),
                        }
                    }
                    program.statements.push(Statement::Op {
                        call: call.clone(),
                        op: op.clone(),
                        inputs: taken,
                        outputs: made,
                        strategy: Arc::clone(&way.strategy),
                        operations: way.operations,
                        is_view: way.is_view,
                    });
                    for (v, value, pin) in after {
                        let id = types.id(graph.dtype(v), pin);
                        let made = moved(elaborator, program, types, value, id, graph.name(v))?;
                        self.known.insert(v, made);
                        at_hand.insert(v, vec![(id, made)]);
                    }
                }
                (GraphStatement::Op { .. }, None)
                | (GraphStatement::Gradient { .. } | GraphStatement::NoGrad, _) => {}
            }
        }
        Ok(computing)
    }
}

/// Returns the value from which redistribution to a type costs least.
fn cheapest(
    types: &mut Types,
    at_hand: &[(TypeId, ValueId)],
    to: TypeId,
    via: Option<DType>,
) -> Option<ValueId> {
    let ids: Vec<TypeId> = at_hand.iter().map(|(id, _)| *id).collect();
    let (from, _) = types.cheapest_via(&ids, to, via)?;
    at_hand.iter().find(|(id, _)| *id == from).map(|(_, v)| *v)
}

/// Adds a redistribution of a value to a type.
fn moved(
    elaborator: &ShardingSolver,
    program: &mut Program,
    types: &mut Types,
    from: ValueId,
    to: TypeId,
    name: &str,
) -> Result<ValueId, Error> {
    let source = program.get(from).clone();
    let is = types.get(to).clone();
    let mut plan = |a, b| {
        let plan = types.plan(&elaborator.planner, (a, b, source.dtype));
        plan.map_err(|e| plan_error(&source.name, e))
    };
    let forward = plan(&source.ty.value, &is.value)?;
    let backward = match (&is.gradient, &source.ty.gradient) {
        (Some(from), Some(to)) => Some(plan(from, to)?),
        (None, _) | (_, None) => None,
    };
    let to = program.add(name, source.dtype, is);
    program.values[to.0].inner = source.inner && forward.steps().is_empty();
    // Values that are sent or copied are in memory.
    program.values[from.0].inner &= forward.steps().is_empty();
    program.statements.push(Statement::Redistribute { from, to, forward, backward, via: None });
    Ok(to)
}

/// Adds a redistribution of a value to a type, or the two that replace it in a communication dtype.
fn moved_via(
    elaborator: &ShardingSolver,
    (graph, program): (&Graph, &mut Program),
    types: &mut Types,
    from: ValueId,
    (to, via): (TypeId, Option<DType>),
    made: ValueId,
) -> Result<ValueId, Error> {
    let name = graph.name(made);
    let Some(via) = via else { return moved(elaborator, program, types, from, to, name) };
    let (mut from, is) = (from, &types.get(to).clone());
    let dtype = program.get(from).dtype;
    if let Some(middle) = comm_dtype::between(&elaborator.planner, &program.get(from).ty, is, via)? {
        let middle = if is.gradient.is_some() { middle } else { middle.without_gradient() };
        let name = program.fresh(stem(name), graph);
        from = through(elaborator, program, from, (middle, dtype, via), &name)?;
    }
    through(elaborator, program, from, (ShardingType::clone(is), dtype, via), name)
}

/// Adds one redistribution in a communication dtype.
fn through(
    elaborator: &ShardingSolver,
    program: &mut Program,
    from: ValueId,
    (is, dtype, via): (ShardingType, DType, DType),
    name: &str,
) -> Result<ValueId, Error> {
    let source = program.get(from);
    let plan = |a, b| match comm_dtype::plan(&elaborator.planner, a, b, dtype, via) {
        Ok((_, plan)) => Ok(Arc::new(plan)),
        Err(Error::Ops { error, .. }) => Err(Error::of(&source.name, error)),
        Err(e) => Err(e),
    };
    let forward = plan(&source.ty.value, &is.value)?;
    let backward = match (&is.gradient, &source.ty.gradient) {
        (Some(from), Some(to)) => Some(plan(from, to)?),
        (None, _) | (_, None) => None,
    };
    let to = program.add(name, dtype, is);
    program.values[from.0].inner = false;
    program.statements.push(Statement::Redistribute { from, to, forward, backward, via: Some(via) });
    Ok(to)
}
