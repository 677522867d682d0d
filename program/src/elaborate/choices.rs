//! The choices of each op of a segment, as the bound on its cost sees them.

use crate::elaborate::dual::Dual;
use crate::elaborate::held::OpenInput;
use crate::elaborate::moves::{Estimates, TypeId, Types};
use crate::elaborate::search::Shared;
use crate::elaborate::segment::{Facts, Segment};
use crate::graph::{GraphStatement, ValueId};

/// An op as the bound sees it.
#[derive(Debug)]
pub(crate) struct Choices {
    /// The statement.
    pub(crate) at: usize,
    /// The numbers of the values that it takes, and that it makes.
    pub(crate) values: [Vec<usize>; 2],
    /// Each strategy: its cost, and the types of its inputs and outputs.
    pub(crate) list: Vec<(u64, Vec<TypeId>)>,
}

impl Choices {
    /// Returns the types that a value has in these strategies, if it is an operand.
    fn types_of(&self, value: usize) -> impl Iterator<Item = TypeId> + '_ {
        let operands = self.values.iter().flatten().enumerate();
        let same = operands.filter(move |(_, operand)| **operand == value).map(|(i, _)| i);
        same.flat_map(|i| self.list.iter().map(move |(_, types)| types[i]))
    }
}

impl Segment<'_> {
    /// Returns the factors of the cost over all choices of these strategies, in picoseconds.
    pub(crate) fn factors(
        &self,
        types: &mut Types,
        facts: &Facts,
        looked: &[Option<Shared>],
        estimates: Estimates,
    ) -> Dual {
        let id = |types: &mut Types, v: &ValueId| {
            Some(types.id(self.graph.dtype(*v), facts.pinned(self.graph, *v)?))
        };
        let mut outside: Vec<(usize, TypeId)> =
            (facts.outside.iter()).map(|(v, is)| (v.0, types.id(self.graph.dtype(*v), is.clone()))).collect();
        let mut ops: Vec<Choices> = Vec::new();
        for (at, (statement, looked)) in self.statements.iter().zip(looked).enumerate() {
            let choices = match (statement, looked) {
                (GraphStatement::Input(v), Some(looked)) => {
                    let list = looked.list.iter().map(|way| (way.picoseconds, way.outputs.to_vec()));
                    Choices { at, values: [Vec::new(), vec![v.0]], list: list.collect() }
                }
                (GraphStatement::Input(v), None) => {
                    let Some(is) = id(types, v) else { continue };
                    outside.push((v.0, is));
                    continue;
                }
                (GraphStatement::Move { from, to, along, .. }, _) if self.graph.moves_partly(along, *to) => {
                    // What the redistribution costs is left out.
                    let mut starts: Vec<TypeId> = ops.iter().flat_map(|op| op.types_of(from.0)).collect();
                    starts.extend(outside.iter().filter(|(v, _)| *v == from.0).map(|(_, is)| *is));
                    starts.sort_unstable();
                    starts.dedup();
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
                    // An input that one op alone takes costs as a part of that op.
                    let is_for_one = |v: &ValueId| {
                        let of = self.held.and_then(|held| held.inputs.get(v));
                        matches!(of, Some(OpenInput::ForOne(_)))
                    };
                    let is_operand: Vec<bool> = inputs.iter().map(|v| !is_for_one(v)).collect();
                    for way in &looked.list {
                        let operands = way.inputs.iter().zip(&is_operand);
                        let mut of: Vec<TypeId> =
                            operands.filter(|(_, is)| **is).map(|(id, _)| *id).collect();
                        let mut cost = Some(way.picoseconds);
                        for (&made, pin) in way.outputs.iter().zip(&pins) {
                            let is = pin.unwrap_or(made);
                            cost = cost
                                .zip(types.price_with(made, is, estimates))
                                .map(|(a, b)| a.saturating_add(b));
                            of.push(is);
                        }
                        list.extend(cost.map(|cost| (cost, of)));
                    }
                    let numbers =
                        |list: &[ValueId]| list.iter().filter(|v| !is_for_one(v)).map(|v| v.0).collect();
                    Choices { at, values: [numbers(inputs), numbers(outputs)], list }
                }
                (GraphStatement::Op { .. }, None)
                | (GraphStatement::Gradient { .. } | GraphStatement::NoGrad, _) => continue,
            };
            ops.push(choices);
        }
        Dual::new(types, &outside, &ops, estimates)
    }
}
