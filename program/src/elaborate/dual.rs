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

use crate::elaborate::choices::Choices;
use crate::elaborate::moves::{Estimates, TypeId, Types};

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

/// The origin of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// The port of the op that makes it.
    Op(usize),
    /// The position of the type in which it is given from outside.
    Outside(usize),
}

/// The redistributions of a value.
#[derive(Debug)]
pub(crate) struct ValueFactor {
    pub(crate) number: usize,
    pub(crate) origin: Origin,
    /// The ports of its consumers, in order.
    pub(crate) taken: Vec<usize>,
    /// The least cost to get from each type to each, row by row.
    pub(crate) costs: Arc<LeastCosts>,
}

/// The least costs between types, and for each the others, the nearest first.
#[derive(Debug)]
pub(crate) struct LeastCosts {
    pub(crate) types: Vec<TypeId>,
    pub(crate) count: usize,
    from_to: Vec<i64>,
    nearest: Vec<Vec<usize>>,
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
    pub(crate) fn new(
        types: &mut Types,
        outside: &[(usize, TypeId)],
        ops: &[Choices],
        estimates: Estimates,
    ) -> Dual {
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
        let mut factor = |types: &mut Types, value: usize, origin| {
            let taken = takers.remove(&value)?;
            let list = lists.get(&value).filter(|list| list.len() <= TYPES)?;
            let costs = types.least_costs(list, estimates);
            Some(ValueFactor { number: value, origin, taken, costs })
        };
        let given = outside.iter().filter_map(|(value, is)| {
            let at = lists[value].binary_search(is).ok()?;
            factor(types, *value, Origin::Outside(at))
        });
        dual.values.push(given.collect());
        for op in ops {
            let made = op.values[1].iter();
            let made = made.filter_map(|value| factor(types, *value, Origin::Op(*makers.get(value)?)));
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
            let of_ops = ops.iter().map(|op| self.least_of_op(op));
            let of_values = values.iter().flatten().map(|value| self.least_of_value(value));
            bound = bound.max(u64::try_from(of_ops.chain(of_values).sum::<i64>()).unwrap_or(0));
            if bound >= enough {
                break;
            }
        }
        (self.values, self.ops) = (values, ops);
        bound
    }

    /// Returns the cost of each strategy of an op, with what its ports were given.
    fn costs_of<'a>(&'a self, op: &'a OpFactor) -> impl Iterator<Item = i64> + 'a {
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
        let shares = value.taken.len().max(1) as i64;
        if later {
            for (&port, least) in value.taken.iter().zip(&self.least_taken(value)) {
                self.ports[port].gets(least, shares);
            }
        } else if let Origin::Op(port) = value.origin {
            let least = self.least_made(value);
            self.ports[port].gets(&least, shares);
        }
    }

    /// Returns the least cost of an op.
    pub(crate) fn least_of_op(&self, op: &OpFactor) -> i64 {
        self.costs_of(op).min().unwrap_or(0)
    }

    /// Returns the least cost of a value.
    pub(crate) fn least_of_value(&self, value: &ValueFactor) -> i64 {
        self.least_made(value).into_iter().min().unwrap_or(0)
    }

    /// Returns the positions of the types in which a value is made, each with the cost given to its op.
    fn starts<'a>(&'a self, value: &ValueFactor) -> impl Iterator<Item = (usize, i64)> + use<'a> {
        let (made, outside) = match value.origin {
            Origin::Op(port) => (Some(&self.ports[port]), None),
            Origin::Outside(at) => (None, Some((at, 0))),
        };
        made.into_iter().flat_map(|port| port.types.iter().map(|&at| (at, -port.given[at]))).chain(outside)
    }

    /// Returns the least cost of a value by the type in which it is made.
    fn least_made(&self, value: &ValueFactor) -> Vec<i64> {
        let costs = &value.costs;
        let mut least = vec![FAR; costs.count];
        for (start, own) in self.starts(value) {
            let reached = least_reached(&self.ports, &value.taken, &costs.nearest[start], costs.from(start));
            least[start] = reached.saturating_add(own);
        }
        least
    }

    /// Returns, for each consumer of a value, the least cost by the type in which that takes it.
    fn least_taken(&self, value: &ValueFactor) -> Vec<Vec<i64>> {
        let costs = &value.costs;
        let count = value.taken.len();
        let mut least = vec![vec![FAR; costs.count]; count];
        let mut reached: Vec<i64> = Vec::new();
        for (start, own) in self.starts(value) {
            let (order, row) = (&costs.nearest[start], costs.from(start));
            reached.clear();
            let mut nearest = vec![FAR; count];
            for &at in order {
                reaches(&self.ports, &value.taken, at, &mut nearest);
                reached.extend_from_slice(&nearest);
            }
            for (j, &port) in value.taken.iter().enumerate() {
                let port = &self.ports[port];
                let mut rest = FAR;
                for (i, &at) in order.iter().enumerate().rev() {
                    let others = &reached[i * count..(i + 1) * count];
                    let others = total(&others[..j]).saturating_add(total(&others[j + 1..]));
                    rest = rest.min(row[at].saturating_add(others));
                    if port.can[at] {
                        let cost = rest.saturating_add(own) - port.given[at];
                        least[j][at] = least[j][at].min(cost);
                    }
                }
            }
        }
        least
    }
}

/// Returns the least cost of redistributions to all these ports, over types in the order of these costs.
pub(crate) fn least_reached(ports: &[Port], takers: &[usize], order: &[usize], costs: &[i64]) -> i64 {
    let mut nearest = vec![FAR; takers.len()];
    let reached = order.iter().map(|&at| {
        reaches(ports, takers, at, &mut nearest);
        costs[at].saturating_add(total(&nearest))
    });
    reached.fold(FAR, i64::min)
}

/// Lets these ports take a type too: the least of what each adds.
fn reaches(ports: &[Port], takers: &[usize], at: usize, nearest: &mut [i64]) {
    for (&port, nearest) in takers.iter().zip(nearest) {
        if ports[port].can[at] {
            *nearest = (*nearest).min(-ports[port].given[at]);
        }
    }
}

/// Returns the sum of costs; many of them may be [`FAR`].
fn total(costs: &[i64]) -> i64 {
    costs.iter().fold(0, |sum: i64, cost| sum.saturating_add(*cost))
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

impl LeastCosts {
    /// Returns the least costs between these types, by redistributions over any of them.
    pub(crate) fn between(types: &mut Types, list: &[TypeId], estimates: Estimates) -> LeastCosts {
        let count = list.len();
        let mut from_to = vec![FAR; count * count];
        for (i, &from) in list.iter().enumerate() {
            for (j, &to) in list.iter().enumerate() {
                if let Some(cost) = types.price_with(from, to, estimates) {
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
        let nearest = (0..count).map(|i| nearest_first(&from_to[i * count..(i + 1) * count])).collect();
        LeastCosts { types: list.to_vec(), count, nearest, from_to }
    }

    /// Returns the costs from a type.
    pub(crate) fn from(&self, start: usize) -> &[i64] {
        &self.from_to[start * self.count..(start + 1) * self.count]
    }
}

/// Returns the positions of the types that can be reached at these costs, the nearest first.
pub(crate) fn nearest_first(costs: &[i64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..costs.len()).filter(|&at| costs[at] < FAR).collect();
    order.sort_by_key(|&at| costs[at]);
    order
}

#[cfg(test)]
mod tests {
    use super::{FAR, total};

    #[test]
    fn thousands_of_consumers_that_take_none_of_the_types_do_not_overflow() {
        assert_eq!(total(&[FAR; 1 << 11]), i64::MAX);
        assert_eq!(total(&[3, -5, 1]), -1);
    }
}
