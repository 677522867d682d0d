//! A lower bound on the cost of a segment, by messages between ops and values.
//!
//! The cost of a choice is a sum over two kinds of factors, which share the types of operands:
//!
//! ```text
//! op       computing of its strategy                                   types of its inputs and outputs
//! value    the dearest of its redistributions, from the type in which it is made      the same types
//! ```
//!
//! A value costs at least its dearest redistribution, however its copies are shared. A *message* shifts a part
//! of the cost of a type from one factor to the other, so that the sum stays the same for every choice. Hence,
//! whatever the messages,
//!
//! ```text
//! cost of a choice  =  sum of its factors  >=  sum over factors of the least of each         (the bound)
//! ```
//!
//! The sweeps only make the bound larger. A factor sends each neighbour that comes later (earlier, in the sweep
//! back) an equal share of the least cost of each type: a share of at most one in all, so the rest is not
//! negative and what arrives counts in full. On a tree of factors the bound is the least cost. [`crate::theory`] has the
//! proof.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::elaborate::moves::{TypeId, Types};
use crate::elaborate::search::Shared;
use crate::elaborate::segment::{Facts, Segment};
use crate::graph::{GraphStatement, ValueId};

/// A cost that no choice has.
pub(crate) const FAR: i64 = 1 << 52;

/// The most types of a value whose redistributions count: on four axes there are more than a thousand.
const TYPES: usize = 400;

/// The most sweeps, there and back.
const SWEEPS: usize = 12;

/// An operand of an op: the edge between an op and a value, with the cost that the value has given to the op.
#[derive(Debug)]
pub(crate) struct Port {
    /// The statement of the op.
    pub(crate) at: usize,
    /// The positions in the list of the value's types that the operand can have; no choice has another.
    types: Vec<usize>,
    /// The same by position.
    pub(crate) can: Vec<bool>,
    /// The cost by position, added to the op and subtracted from the value.
    pub(crate) given: Vec<i64>,
}

/// The choices of an op.
#[derive(Debug)]
pub(crate) struct OpFactor {
    /// The statement.
    pub(crate) at: usize,
    /// The inputs, then the outputs.
    ports: Vec<usize>,
    inputs: usize,
    /// The cost of each strategy.
    costs: Vec<i64>,
    /// The positions of the types at each port, strategy by strategy.
    types: Vec<usize>,
}

/// The redistributions of a value.
#[derive(Debug)]
pub(crate) struct ValueFactor {
    pub(crate) number: usize,
    /// The port of the op that makes it, or the types in which it is given.
    made: Result<usize, Vec<usize>>,
    /// The ports of its consumers, in order.
    pub(crate) taken: Vec<usize>,
    /// The least cost to get from each type to each, row by row.
    pub(crate) costs: Arc<Costs>,
}

/// The least costs between types, and for each the others, the nearest first.
#[derive(Debug)]
pub(crate) struct Costs {
    pub(crate) types: Vec<TypeId>,
    pub(crate) count: usize,
    pub(crate) from_to: Vec<i64>,
    nearest: Vec<Vec<usize>>,
}

/// An op as the bound sees it.
#[derive(Debug, Default)]
struct Choices {
    /// The statement.
    at: usize,
    /// The numbers of the values that it takes, and that it makes.
    values: [Vec<usize>; 2],
    /// Each strategy: its cost, and the types of its inputs and outputs.
    list: Vec<(u64, Vec<TypeId>)>,
}

/// The factors of a segment.
#[derive(Debug, Default)]
pub(crate) struct Dual {
    pub(crate) ports: Vec<Port>,
    pub(crate) ops: Vec<OpFactor>,
    /// The values from outside, and then those that each op makes.
    pub(crate) values: Vec<Vec<ValueFactor>>,
}

impl Dual {
    /// Returns the factors of these ops, in order; values from outside are given in one type.
    fn new(types: &mut Types, outside: &[(usize, TypeId)], ops: &[Choices]) -> Dual {
        // Every type that a value can have somewhere.
        let mut lists: FxHashMap<usize, Vec<TypeId>> = FxHashMap::default();
        for &(value, is) in outside {
            lists.entry(value).or_default().push(is);
        }
        for op in ops {
            for (i, &value) in op.values.iter().flatten().enumerate() {
                lists.entry(value).or_default().extend(op.list.iter().map(|(_, types)| types[i]));
            }
        }
        for list in lists.values_mut() {
            list.sort_unstable();
            list.dedup();
        }
        let taken: FxHashSet<usize> = ops.iter().flat_map(|op| op.values[0].iter().copied()).collect();
        let mut dual = Dual::default();
        let mut takers: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        let mut makers: FxHashMap<usize, usize> = FxHashMap::default();
        for op in ops {
            let mut ports = Vec::new();
            let mut positions: Vec<Vec<usize>> = Vec::new();
            for (i, value) in op.values.iter().flatten().enumerate() {
                if !taken.contains(value) {
                    continue;
                }
                let list = &lists[value];
                let at = |is: TypeId| list.binary_search(&is).unwrap_or_default();
                let of: Vec<usize> = op.list.iter().map(|(_, types)| at(types[i])).collect();
                let mut types = of.clone();
                types.sort_unstable();
                types.dedup();
                let port = dual.ports.len();
                let mut can = vec![false; list.len()];
                for &at in &types {
                    can[at] = true;
                }
                dual.ports.push(Port { at: op.at, types, can, given: vec![0; list.len()] });
                if i < op.values[0].len() {
                    takers.entry(*value).or_default().push(port);
                } else {
                    makers.insert(*value, port);
                }
                ports.push(port);
                positions.push(of);
            }
            let ways = op.list.len();
            dual.ops.push(OpFactor {
                at: op.at,
                inputs: op.values[0].len(),
                costs: op.list.iter().map(|(cost, _)| (*cost).min(FAR as u64) as i64).collect(),
                types: (0..ways).flat_map(|way| positions.iter().map(move |of| of[way])).collect(),
                ports,
            });
        }
        let mut known: FxHashMap<&[TypeId], Arc<Costs>> = FxHashMap::default();
        let mut factor = |types: &mut Types, value: usize, made| {
            let taken = takers.remove(&value)?;
            let list = lists.get(&value).filter(|list| list.len() <= TYPES)?;
            let costs = known.entry(list).or_insert_with(|| Arc::new(Costs::between(types, list)));
            Some(ValueFactor { number: value, made, taken, costs: Arc::clone(costs) })
        };
        let given = outside.iter().filter_map(|(value, is)| {
            let at = lists[value].binary_search(is).ok()?;
            factor(types, *value, Err(vec![at]))
        });
        dual.values.push(given.collect());
        for op in ops {
            let made = op.values[1].iter().filter_map(|value| factor(types, *value, Ok(*makers.get(value)?)));
            dual.values.push(made.collect());
        }
        dual
    }

    /// Sweeps there and back until the bound is at least `enough`, and returns it.
    pub(crate) fn bound(&mut self, enough: u64) -> u64 {
        let (values, ops) = (core::mem::take(&mut self.values), core::mem::take(&mut self.ops));
        let mut bound = 0;
        for _ in 0..SWEEPS {
            for value in &values[0] {
                self.sends_from_value(value, true);
            }
            for (op, made) in ops.iter().zip(&values[1..]) {
                self.sends_from_op(op, op.inputs..op.ports.len());
                for value in made {
                    self.sends_from_value(value, true);
                }
            }
            for (op, made) in ops.iter().zip(&values[1..]).rev() {
                for value in made {
                    self.sends_from_value(value, false);
                }
                self.sends_from_op(op, 0..op.inputs);
            }
            let of_ops = ops.iter().map(|op| self.costs_of(op).min().unwrap_or(0));
            let of_values = values
                .iter()
                .flatten()
                .map(|value| self.least_of_value(value).made.into_iter().min().unwrap_or(0));
            bound = bound.max(u64::try_from(of_ops.chain(of_values).sum::<i64>()).unwrap_or(0));
            if bound >= enough {
                break;
            }
        }
        (self.values, self.ops) = (values, ops);
        bound
    }

    /// Returns the cost of each strategy of an op, with what its ports were given.
    pub(crate) fn costs_of<'a>(&'a self, op: &'a OpFactor) -> impl Iterator<Item = i64> + 'a {
        let count = op.ports.len();
        op.costs.iter().enumerate().map(move |(way, cost)| {
            let types = &op.types[way * count..(way + 1) * count];
            let ports = || op.ports.iter().map(|&port| &self.ports[port]).zip(types);
            if ports().all(|(port, &at)| port.can[at]) {
                cost + ports().map(|(port, &at)| port.given[at]).sum::<i64>()
            } else {
                FAR
            }
        })
    }

    /// Sends the values at these ports of an op a share of the least cost of each type.
    fn sends_from_op(&mut self, op: &OpFactor, to: core::ops::Range<usize>) {
        let count = op.ports.len();
        let shares = op.inputs.max(count - op.inputs) as i64;
        let costs: Vec<i64> = self.costs_of(op).collect();
        for i in to {
            let port = &mut self.ports[op.ports[i]];
            let mut least = vec![FAR; port.given.len()];
            for (way, &cost) in costs.iter().enumerate() {
                let at = op.types[way * count + i];
                least[at] = least[at].min(cost);
            }
            port.gets(&least, -shares);
        }
    }

    /// Sends the ops that take a value, or the one that makes it, a share of the least cost of each type.
    fn sends_from_value(&mut self, value: &ValueFactor, later: bool) {
        let least = self.least_of_value(value);
        let shares = value.taken.len().max(1) as i64;
        if later {
            for (&port, least) in value.taken.iter().zip(&least.taken) {
                self.ports[port].gets(least, shares);
            }
        } else if let Ok(port) = value.made {
            self.ports[port].gets(&least.made, shares);
        }
    }

    /// Returns the least cost of a value, by the type in which it is made and by each in which it is taken.
    pub(crate) fn least_of_value(&self, value: &ValueFactor) -> LeastOfValue {
        let costs = &value.costs;
        let (starts, given) = match &value.made {
            Ok(port) => (&self.ports[*port].types, Some(&self.ports[*port].given)),
            Err(starts) => (starts, None),
        };
        let takers: Vec<&Port> = value.taken.iter().map(|&port| &self.ports[port]).collect();
        let mut out =
            LeastOfValue { made: vec![FAR; costs.count], taken: vec![vec![FAR; costs.count]; takers.len()] };
        let mut reached: Vec<i64> = Vec::new();
        for &start in starts {
            let own = given.map_or(0, |given| -given[start]);
            let row = &costs.from_to[start * costs.count..(start + 1) * costs.count];
            let order = &costs.nearest[start];
            // For the types up to each, the least that each taker adds.
            let mut nearest = vec![FAR; takers.len()];
            reached.clear();
            let mut least = FAR;
            for &at in order {
                for (port, nearest) in takers.iter().zip(&mut nearest) {
                    if port.can[at] {
                        *nearest = (*nearest).min(-port.given[at]);
                    }
                }
                reached.extend_from_slice(&nearest);
                least = least.min(row[at].saturating_add(nearest.iter().sum::<i64>()));
            }
            out.made[start] = least.saturating_add(own);
            for (j, port) in takers.iter().enumerate() {
                let mut rest = FAR;
                for (i, &at) in order.iter().enumerate().rev() {
                    let others = &reached[i * takers.len()..(i + 1) * takers.len()];
                    let others = others.iter().sum::<i64>() - others[j];
                    rest = rest.min(row[at].saturating_add(others));
                    if port.can[at] {
                        let cost = rest.saturating_add(own) - port.given[at];
                        out.taken[j][at] = out.taken[j][at].min(cost);
                    }
                }
            }
        }
        out
    }
}

/// The least cost of a value, by the position of a type.
pub(crate) struct LeastOfValue {
    pub(crate) made: Vec<i64>,
    /// For each that takes it.
    taken: Vec<Vec<i64>>,
}

impl ValueFactor {
    /// Returns the types in which a value from outside is given.
    pub(crate) fn starts(&self) -> Vec<TypeId> {
        self.made.as_ref().err().into_iter().flatten().map(|&at| self.costs.types[at]).collect()
    }
}

impl Port {
    /// Adds a share of these costs; a type without a choice is ruled out.
    fn gets(&mut self, costs: &[i64], shares: i64) {
        let Port { types, can, given, .. } = self;
        types.retain(|&at| {
            can[at] = costs[at] < FAR / 2;
            given[at] += costs[at] / shares;
            can[at]
        });
    }
}

impl Costs {
    /// Returns the least costs between these types, by redistributions over any of them.
    fn between(types: &mut Types, list: &[TypeId]) -> Costs {
        let count = list.len();
        let mut from_to = vec![FAR; count * count];
        for (i, &from) in list.iter().enumerate() {
            for (j, &to) in list.iter().enumerate() {
                if let Some(cost) = types.price(from, to) {
                    from_to[i * count + j] = (cost as i64).min(FAR);
                }
            }
        }
        for by in 0..count {
            let rest = from_to[by * count..(by + 1) * count].to_vec();
            for row in from_to.chunks_exact_mut(count) {
                let first = row[by];
                if first < FAR {
                    row.iter_mut().zip(&rest).for_each(|(cost, rest)| *cost = (*cost).min(first + rest));
                }
            }
        }
        let nearest = (0..count).map(|i| {
            let mut order: Vec<usize> = (0..count).filter(|j| from_to[i * count + j] < FAR).collect();
            order.sort_by_key(|j| from_to[i * count + j]);
            order
        });
        Costs { types: list.to_vec(), count, nearest: nearest.collect(), from_to }
    }
}

impl Segment<'_> {
    /// Returns the factors of the cost over all choices of these strategies, in picoseconds.
    pub(crate) fn factors(&self, types: &mut Types, facts: &Facts, looked: &[Option<Shared>]) -> Dual {
        let id = |types: &mut Types, v: &ValueId| {
            Some(types.id(self.graph.dtype(*v), facts.pinned(self.graph, *v)?))
        };
        let mut outside: Vec<(usize, TypeId)> =
            (facts.outside.iter()).map(|(v, is)| (v.0, types.id(self.graph.dtype(*v), is.clone()))).collect();
        // The types that each value can have before each statement.
        let mut can: FxHashMap<usize, Vec<TypeId>> = outside.iter().map(|&(v, is)| (v, vec![is])).collect();
        let mut ops: Vec<Choices> = Vec::new();
        for (at, (statement, looked)) in self.statements.iter().zip(looked).enumerate() {
            let choices = match (statement, looked) {
                (GraphStatement::Input(v), _) => {
                    let Some(is) = id(types, v) else { continue };
                    outside.push((v.0, is));
                    can.insert(v.0, vec![is]);
                    continue;
                }
                (GraphStatement::Move { from, to, along, .. }, _) if self.graph.moves_partly(along, *to) => {
                    // What the redistribution costs is left out.
                    let starts = can.get(&from.0).cloned().unwrap_or_default();
                    let made = starts.into_iter().filter_map(|start| types.put(start, along, None));
                    let list = made.map(|(is, _)| (0, vec![is])).collect();
                    Choices { at, values: [Vec::new(), vec![to.0]], list }
                }
                (GraphStatement::Move { from, to, via, .. }, _) => {
                    let Some(is) = id(types, to) else { continue };
                    match via {
                        None => {
                            Choices { at, values: [vec![from.0], vec![to.0]], list: vec![(0, vec![is, is])] }
                        }
                        // Its cost in its communication dtype is left out.
                        Some(_) => {
                            Choices { at, values: [Vec::new(), vec![to.0]], list: vec![(0, vec![is])] }
                        }
                    }
                }
                (GraphStatement::Op { inputs, outputs, .. }, Some(looked)) => {
                    let pins: Vec<Option<TypeId>> = outputs.iter().map(|v| id(types, v)).collect();
                    let mut list = Vec::with_capacity(looked.list.len());
                    for way in &looked.list {
                        let mut of: Vec<TypeId> = way.inputs.to_vec();
                        let mut cost = Some(way.picoseconds);
                        for (&made, pin) in way.outputs.iter().zip(&pins) {
                            let is = pin.unwrap_or(made);
                            cost = cost.zip(types.price(made, is)).map(|(a, b)| a.saturating_add(b));
                            of.push(is);
                        }
                        list.extend(cost.map(|cost| (cost, of)));
                    }
                    let numbers = |list: &[ValueId]| list.iter().map(|v| v.0).collect();
                    Choices { at, values: [numbers(inputs), numbers(outputs)], list }
                }
                (GraphStatement::Op { .. }, None)
                | (GraphStatement::Gradient { .. } | GraphStatement::NoGrad, _) => continue,
            };
            for (i, value) in choices.values.iter().flatten().enumerate() {
                let known = can.entry(*value).or_default();
                for (_, of) in &choices.list {
                    if !known.contains(&of[i]) {
                        known.push(of[i]);
                    }
                }
            }
            ops.push(choices);
        }
        Dual::new(types, &outside, &ops)
    }
}
