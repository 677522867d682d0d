//! The rule of a composite, derived from the rules of the ops in its body.
//!
//! Bound to shapes, every op of the body is a nest of loops over factors, and a value ties the factors of the
//! op that made it to those of the ops that use it ([`Ties`]). The tied factors are the **loops** of the
//! composite. Sharding loop `t` over a mesh axis means that every op whose factors contain `t` takes a row
//! that shards such a factor, and every other op a row that shards none. The rows of the composite are the
//! **join** of the rows of its ops on the values between them: the output of one op is the input of the next,
//! without redistribution. A loop needs its region if an op that has it does. So a derived row is true if the
//! rows of the table are. The derived rows are all that need no communication inside.

use std::collections::BTreeSet;

use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::call::OpCall;
use crate::rules::composite::Composite;
use crate::rules::factor::{Dim, FactorKind};
use crate::rules::op::Op;
use crate::rules::partial_rule::PartialRule;
use crate::rules::row::{Bound, Entry};
use crate::rules::rule::Rule;
use crate::rules::strategy::{OperandPlacement, Strategy};
use crate::rules::ties::Ties;
use reshard_sharding::ReduceOp;

/// The maximum number of intermediate rows of a join.
const MOST_ROWS: usize = 1 << 16;

/// The op of a composite on inputs of these shapes; `bind` makes the ops of its body.
pub(super) fn derive(
    body: &Composite,
    request: &BoundCall<'_>,
    mut bind: impl FnMut(&OpCall, &[&[usize]]) -> Result<Op, Error>,
) -> Result<Op, Error> {
    request.inputs_of(body.inputs().len()..=body.inputs().len())?;
    let mut shapes: Vec<Vec<usize>> = request.inputs.iter().map(|s| s.to_vec()).collect();
    let mut ops: Vec<Op> = Vec::with_capacity(body.statements.len());
    for s in &body.statements {
        let inputs: Vec<&[usize]> = s.operands.iter().map(|&v| shapes[v].as_slice()).collect();
        let op = bind(&s.call, &inputs)?;
        if op.outputs().len() != s.results.len() {
            return Err(request.error(format!(
                "{} makes {} values, not {}",
                s.call,
                op.outputs().len(),
                s.results.len()
            )));
        }
        if op.bound().is_some_and(|b| b.dims.is_empty() && !b.rows.is_empty()) {
            return Err(request.error(format!(
                "{} is a list of strategies, which does not define its loops; give it an equation",
                s.call
            )));
        }
        shapes.extend(op.outputs().iter().cloned());
        ops.push(op);
    }
    let loops = Loops::new(body, &ops, &shapes);
    let rows = loops.all_rows(request)?;
    let outputs: Vec<&[usize]> = body.outputs.iter().map(|&v| shapes[v].as_slice()).collect();
    request.op_to(&loops.rule(request, &rows)?, &outputs)
}

/// The class of a value along an axis: a shard of one of its dims represents the sharded loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Along {
    Replicate,
    Partial(ReduceOp),
    Shard(u16),
}

/// A row of the composite: the loop that it shards, if any, and its operands, inputs first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Joined {
    sharded: Option<usize>,
    operands: Vec<Along>,
}

/// The loops of a body.
struct Loops<'a> {
    body: &'a Composite,
    ops: &'a [Op],
    ties: Ties,
    /// The digit of every factor of every op; none for views.
    factors: Vec<Vec<usize>>,
    /// The digits of every dim of every value, most significant first.
    dims: Vec<Vec<Vec<usize>>>,
}

impl<'a> Loops<'a> {
    fn new(body: &'a Composite, ops: &'a [Op], shapes: &[Vec<usize>]) -> Loops<'a> {
        let mut ties = Ties::default();
        let dims: Vec<Vec<Vec<usize>>> =
            shapes.iter().map(|s| s.iter().map(|&n| vec![ties.add(n)]).collect()).collect();
        let of = |b: &Bound, ties: &mut Ties| -> Vec<usize> {
            let loops: Vec<usize> = b
                .factors
                .iter()
                .map(|f| {
                    let x = ties.add(f.size);
                    ties.even[x] = f.even;
                    x
                })
                .collect();
            for entry in b.rows.iter().filter(|row| row.region).flat_map(|row| &row.entries) {
                if let Entry::Shard { factor: Some(f), .. } = entry {
                    ties.region[loops[usize::from(*f)]] = true;
                }
            }
            loops
        };
        let factors: Vec<Vec<usize>> =
            ops.iter().map(|op| op.bound().map_or_else(Vec::new, |b| of(b, &mut ties))).collect();
        let mut loops = Loops { body, ops, ties, factors, dims };
        while loops.tied() {}
        loops
    }

    /// Ties the dims of all values once; returns `true` if that changed anything.
    fn tied(&mut self) -> bool {
        let mut news = false;
        for ((op, s), factors) in self.ops.iter().zip(&self.body.statements).zip(&self.factors) {
            let values: Vec<usize> = s.operands.iter().chain(&s.results).copied().collect();
            let Some(bound) = op.bound() else {
                let flat = |v: usize| self.dims[v].concat();
                news |= self.ties.tie(&flat(values[0]), &flat(values[1]));
                continue;
            };
            for (&v, dims) in values.iter().zip(&bound.dims) {
                for (own, dim) in self.dims[v].iter().zip(dims) {
                    news |= if let Some(list) = dim {
                        let list: Vec<usize> = list.iter().map(|&x| factors[usize::from(x)]).collect();
                        self.ties.tie(own, &list)
                    } else {
                        self.ties.close(&self.ties.leaves(own))
                    };
                }
            }
        }
        news
    }

    /// Returns the dim of a value that has a loop; `None` if it does not have it, or twice.
    fn dim_of(&self, value: usize, sharded: usize) -> Option<u16> {
        let holds = |dim: &Vec<usize>| self.ties.leaves(dim).iter().filter(|&&x| x == sharded).count();
        let mut found = None;
        for (d, count) in self.dims[value].iter().map(holds).enumerate() {
            match (count, found) {
                (0, _) => {}
                (1, None) => found = Some(d as u16),
                _ => return None,
            }
        }
        found
    }

    /// Inputs and outputs.
    fn operands(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.body.inputs().len()).chain(self.body.outputs.iter().copied())
    }

    /// The loops of outputs, then of inputs.
    fn of_operands(&self) -> Vec<usize> {
        let mut out: Vec<usize> = Vec::new();
        for v in self.body.outputs.iter().copied().chain(0..self.body.inputs().len()) {
            for x in self.ties.leaves(&self.dims[v].concat()) {
                if !out.contains(&x) {
                    out.push(x);
                }
            }
        }
        out
    }

    /// All rows of the composite.
    fn all_rows(&self, request: &BoundCall<'_>) -> Result<Vec<Joined>, Error> {
        let open = self.of_operands().into_iter().filter(|&x| !self.ties.whole[x]);
        let mut out = Vec::new();
        for sharded in open.map(Some).chain([None]) {
            self.join(sharded, request, &mut out)?;
        }
        Ok(out)
    }

    /// The rows that shard one loop, or none.
    fn join(
        &self,
        sharded: Option<usize>,
        request: &BoundCall<'_>,
        out: &mut Vec<Joined>,
    ) -> Result<(), Error> {
        let mut states: BTreeSet<Vec<Option<Along>>> = BTreeSet::new();
        states.insert(vec![None; self.body.values()]);
        for (i, s) in self.body.statements.iter().enumerate() {
            let rows = self.rows(i, sharded);
            let later = |v: usize| {
                self.operands().any(|o| o == v)
                    || self.body.statements[i + 1..].iter().any(|s| s.operands.contains(&v))
            };
            let mut next = BTreeSet::new();
            for state in &states {
                for row in &rows {
                    let mut state = state.clone();
                    let values = s.operands.iter().chain(&s.results);
                    let fits = values.clone().zip(row).all(|(&v, &along)| {
                        let known = *state[v].get_or_insert(along);
                        known == along
                    });
                    if fits {
                        values.filter(|&&v| !later(v)).for_each(|&v| state[v] = None);
                        next.insert(state);
                    }
                }
                if next.len() > MOST_ROWS {
                    return Err(request.error(format!(
                        "its ops have more than {MOST_ROWS} joint strategies at {}; split it into two composites",
                        s.call
                    )));
                }
            }
            states = next;
        }
        for state in states {
            let operands: Option<Vec<Along>> = self.operands().map(|v| state[v]).collect();
            let Some(operands) = operands else { continue };
            let shards = operands.iter().any(|o| matches!(o, Along::Shard(_)));
            let row = Joined { sharded, operands };
            if shards == sharded.is_some() && !out.contains(&row) {
                out.push(row);
            }
        }
        Ok(())
    }

    /// Returns the rows of one op that shard a loop, or no loop if the op does not have it.
    fn rows(&self, statement: usize, sharded: Option<usize>) -> Vec<Vec<Along>> {
        let (op, s) = (&self.ops[statement], &self.body.statements[statement]);
        let Some(bound) = op.bound() else {
            let values = [s.operands[0], s.results[0]];
            if let Some([Some(a), Some(b)]) = sharded.map(|x| values.map(|v| self.dim_of(v, x))) {
                return vec![vec![Along::Shard(a), Along::Shard(b)]];
            }
            let partial = ReduceOp::ALL.into_iter().map(Along::Partial);
            return [Along::Replicate].into_iter().chain(partial).map(|along| vec![along; 2]).collect();
        };
        let carries = |f: u16| {
            let leaves = self.ties.leaves(&[self.factors[statement][usize::from(f)]]);
            sharded.is_some_and(|x| leaves.contains(&x))
        };
        let has = (0..bound.factors.len()).any(|f| carries(f as u16));
        let mut out = Vec::new();
        for row in &bound.rows {
            let mut shards = false;
            let along = row.entries.iter().map(|e| match e {
                Entry::Replicate => Some(Along::Replicate),
                Entry::Partial(op) => Some(Along::Partial(*op)),
                Entry::Shard { dim, factor } => {
                    shards = true;
                    factor.filter(|&f| carries(f)).map(|_| Along::Shard(*dim))
                }
                Entry::Fixed(_) => None,
            });
            let along: Option<Vec<Along>> = along.collect();
            out.extend(along.filter(|_| shards == has));
        }
        out
    }

    /// Returns the rule of these rows.
    fn rule(&self, request: &BoundCall<'_>, rows: &[Joined]) -> Result<Rule, Error> {
        let loops = self.of_operands();
        let letters = request.letters(loops.len())?;
        let letter = |x: &usize| loops.iter().position(|y| y == x).map(|i| letters[i]);
        let dims = |v: usize| {
            self.dims[v].iter().map(|d| Dim::compound(self.ties.leaves(d).iter().filter_map(letter)))
        };
        let mut rule = RuleBuilder::new();
        for v in 0..self.body.inputs().len() {
            rule = rule.input(dims(v));
        }
        for &v in &self.body.outputs {
            rule = rule.output(dims(v));
        }
        // The shapes do not determine the parts of a product of factors.
        let all: Vec<Dim> = self.operands().flat_map(dims).collect();
        let is_part = |name: char| all.iter().any(|d| d.factors().len() > 1 && d.factors().contains(&name));
        let mut more: Vec<PartialRule> = Vec::new();
        for (&x, &name) in loops.iter().zip(&letters) {
            let of_loop: Vec<&Joined> = rows.iter().filter(|r| r.sharded == Some(x)).collect();
            let standard = of_loop.iter().find_map(|r| self.role(x, r).map(|role| (*r, role)));
            rule = rule.role(name, standard.map_or(FactorKind::NeedReplication, |(_, role)| role));
            if self.ties.even[x] {
                rule = rule.even(name);
            }
            if self.ties.region[x] && !of_loop.is_empty() {
                rule = rule.regions([name]);
            }
            if is_part(name) {
                rule = rule.size(name, self.ties.size[x]);
            }
            let others = of_loop.iter().filter(|r| standard.is_none_or(|(known, _)| known != **r));
            more.extend(others.map(|r| PartialRule::Row(self.strategy(r, Some(name)))));
        }
        let terms = rows.iter().filter(|r| r.operands.iter().any(|o| matches!(o, Along::Partial(_))));
        more.extend(terms.filter(|r| r.sharded.is_none()).map(|r| PartialRule::Row(self.strategy(r, None))));
        rule.passings(more).build()
    }

    /// Returns the role of a loop in a row, if the row expresses nothing else.
    fn role(&self, sharded: usize, row: &Joined) -> Option<FactorKind> {
        let inputs = self.body.inputs().len();
        let mut reduced = None;
        for (i, (v, along)) in self.operands().zip(&row.operands).enumerate() {
            match (self.dim_of(v, sharded), along) {
                (Some(dim), Along::Shard(d)) if dim == *d => {}
                (None, Along::Replicate) if i < inputs => {}
                (None, Along::Partial(op)) if i >= inputs && reduced.is_none_or(|known| known == *op) => {
                    reduced = Some(*op);
                }
                _ => return None,
            }
        }
        Some(reduced.map_or(FactorKind::PassThrough, FactorKind::Reduction))
    }

    fn strategy(&self, row: &Joined, name: Option<char>) -> Strategy {
        let part = |along: &Along| match (along, name) {
            (Along::Partial(op), _) => OperandPlacement::Partial(*op),
            (Along::Shard(_), Some(name)) => OperandPlacement::Factor(name),
            (Along::Replicate, _) | (Along::Shard(_), None) => OperandPlacement::Replicate,
        };
        let (inputs, outputs) = row.operands.split_at(self.body.inputs().len());
        Strategy { inputs: inputs.iter().map(part).collect(), outputs: outputs.iter().map(part).collect() }
    }
}
