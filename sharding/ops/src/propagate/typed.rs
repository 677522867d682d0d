//! The types of an op's operands: for each path, one row for each slot, what every input and output is, and its gradient.
//!
//! Along a slot a row says what values are, and its transpose what gradients are ([`Strategy::transposes`]):
//!
//! ```text
//! row          value     gradient                     R* = P    P* = R    S* = S
//! S(m),R -> S(m)         a weight that replicates has terms for a gradient: R|P
//! R,R -> R               ranks do different work with the same: R|P everywhere
//! R,R -> R     again     all ranks do the same work with the same: R|R everywhere, written I
//! ```
//!
//! Propagation asks for the cheapest path of one op. Whoever chooses for many ops at once needs all of them.

use core::ops::ControlFlow;
use std::sync::Arc;

use reshard_planner::internal::WordMap;
use smallvec::SmallVec;

use crate::Error;
use crate::propagate::constraint::OutputConstraint;
use crate::propagate::operand::Operand;
use crate::propagate::problem::{Path, Problem, SlotRow, Stays};
use crate::propagate::propagator::Propagator;
use crate::propagate::slots::{Class, PerSlot, ShardKind, classify};
use crate::propagate::target::Terms;
use crate::rules::{Entry, Op, Strategy};
use reshard_sharding::internal::{Cuts, Shape};
use reshard_sharding::{Exponent, Mesh, ReduceOp, Sharding, ShardingType, SubAxis};

/// One way for an op to run on a whole mesh, with the types of all operands.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedStrategy {
    /// What each input has to be; without a gradient where none is wanted of it.
    pub inputs: Vec<Arc<ShardingType>>,
    /// What each output is.
    pub outputs: Vec<Arc<ShardingType>>,
    /// The strategy of each (sub-)axis with more than one rank; none for a view.
    pub rows: Arc<[(SubAxis, Strategy)]>,
    /// The part of the op's work that a rank does: the product over all slots that cut it.
    pub work_fraction: f64,
    /// Whether the op has to know its region along some axis.
    pub region: bool,
}

/// What is asked of the [typed strategies](Propagator::typed) of an op.
#[derive(Clone, Copy, Debug)]
pub struct TypedStrategyQuery<'a> {
    /// Of each input, the shardings in which it may be at hand, at least one: what they cut is what strategies cut.
    pub inputs: &'a [Vec<Sharding>],
    /// More shardings whose sub-axes and kinds of shards are looked at, as of pinned outputs.
    pub also: &'a [Sharding],
    /// Of each input, whether it has a gradient.
    pub input_gradients: &'a [bool],
    /// Of each output, whether it has a gradient.
    pub output_gradients: &'a [bool],
}

impl Propagator {
    /// All strategies of an op on a mesh, with the types of its operands, in the order of its rows; at most so many.
    ///
    /// An input is made terms only along slots where it is at hand as terms, or where others of the row are shards or terms
    /// at hand. Terms of anything but sums are left out where a gradient is wanted of the op.
    ///
    /// ```
    /// use reshard_ops::propagate::{Propagator, TypedQuestion};
    /// use reshard_ops::rules::Table;
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "tp=4".parse()?;
    /// let mm = Table::standard().op(&"mm".parse()?, &[&[8, 16], &[16, 32]])?;
    /// let inputs = [vec![Sharding::parse(&mesh, &[8, 16], "R")?], vec![Sharding::parse(&mesh, &[16, 32], "S(1)")?]];
    /// let question = TypedQuestion { inputs: &inputs, also: &[], input_gradients: &[true, true], output_gradients: &[true] };
    /// let found = Propagator::new().typed(&mm, &mesh, &question, 100)?;
    /// let texts: Vec<String> = found.iter().map(|s| format!("{} {} -> {}", s.inputs[0], s.inputs[1], s.outputs[0])).collect();
    /// assert_eq!(texts, ["R R -> R", "I I -> I", "S(0) R -> S(0)", "R S(1) -> S(1)", "S(1) S(0) -> P(sum)"]);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    ///
    /// Fails for operands that are not the op's, as [`Propagator::propagate`] does.
    pub fn typed(
        &self,
        op: &Op,
        mesh: &Mesh,
        question: &TypedStrategyQuery<'_>,
        most: usize,
    ) -> Result<Vec<TypedStrategy>, Error> {
        self.asked(op, mesh, question, |typed| typed.all(most, &mut OnMesh::default()))
    }

    /// The same out of a memory of lists where it has that.
    ///
    /// Requires that `most` is always the same.
    #[doc(hidden)]
    pub fn typed_once(
        &self,
        op: &Op,
        mesh: &Mesh,
        question: &TypedStrategyQuery<'_>,
        most: usize,
        known: &mut TypedLists,
    ) -> Result<Arc<[Arc<TypedStrategy>]>, Error> {
        let TypedLists { lists, meshes } = known;
        self.asked(op, mesh, question, |typed| {
            let key = typed.key();
            if let Some(list) = lists.get(&key) {
                return Arc::clone(list);
            }
            let at = meshes.iter().position(|(known, _)| known == mesh).unwrap_or_else(|| {
                meshes.push((mesh.clone(), OnMesh::default()));
                meshes.len() - 1
            });
            let list: Arc<[_]> = typed.all(most, &mut meshes[at].1).into_iter().map(Arc::new).collect();
            lists.insert(key, Arc::clone(&list));
            list
        })
    }

    /// What is asked, as a problem.
    fn asked<T>(
        &self,
        op: &Op,
        mesh: &Mesh,
        question: &TypedStrategyQuery<'_>,
        answer: impl FnOnce(&Typed<'_, '_>) -> T,
    ) -> Result<T, Error> {
        let firsts: Result<Vec<Operand>, Error> = (question.inputs.iter())
            .map(|at_hand| match at_hand.first() {
                Some(first) => Ok(Operand::new(reshard_kernels::DType::F32, first.clone())),
                None => Err(Error::Rule { reason: format!("an input of {} is nowhere at hand", op.name()) }),
            })
            .collect();
        let firsts = firsts?;
        // Whoever asks answers for terms.
        let constraints = vec![OutputConstraint::Reduced; op.outputs().len()];
        let also: Vec<&Sharding> = question.inputs.iter().flatten().chain(question.also).collect();
        let problem = Problem::beside(&self.planner, op, mesh, &firsts, &constraints, Stays::Nothing, &also)?;
        let trained = question.input_gradients.iter().chain(question.output_gradients).any(|g| *g);
        let typed = Typed { problem: &problem, question, trained, rows: Vec::new() }.with_rows();
        Ok(answer(&typed))
    }
}

/// A memory of lists of typed strategies: ops are asked for again where other inputs are at hand that are cut alike.
#[derive(Debug, Default)]
pub struct TypedLists {
    lists: WordMap<Key, Arc<[Arc<TypedStrategy>]>>,
    /// What operands of all ops are, on each mesh.
    meshes: Vec<(Mesh, OnMesh)>,
}

impl TypedLists {
    /// How many lists there are.
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }
}

/// What operands are on one mesh: strategies are many, and what one operand is in them are few.
#[derive(Debug, Default)]
struct OnMesh {
    numbers: WordMap<Spelled, Number>,
    /// Of what a view makes, by its input and the shape.
    seen: WordMap<(Number, Shape), Option<Number>>,
    /// By number; none where no sharding is that.
    shardings: Vec<Option<Sharding>>,
    /// The types whose ranks do the same work along some sub-axes; none where there is no gradient.
    types: WordMap<(Number, Option<Again>), Option<Arc<ShardingType>>>,
}

/// Shape, cuts and terms.
type Spelled = (Shape, Cuts, Terms);

/// Along which sub-axes ranks do the same work.
type Again = SmallVec<[SubAxis; 4]>;

/// A sharding by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Number(usize);

impl OnMesh {
    /// The number of a sharding as a view of this shape sees it, if it does.
    fn seen_as(&mut self, first: Number, shape: &[usize]) -> Option<Number> {
        let OnMesh { seen, shardings, .. } = self;
        *seen.entry((first, Shape::from_slice(shape))).or_insert_with(|| {
            let made = shardings[first.0].as_ref()?.try_view(shape)?;
            shardings.push(Some(made));
            Some(Number(shardings.len() - 1))
        })
    }

    /// The number of what is spelled so, if a sharding is that.
    fn number(
        &mut self,
        spelled: Spelled,
        make: impl FnOnce(&Spelled) -> Option<Sharding>,
    ) -> Option<Number> {
        let OnMesh { numbers, shardings, .. } = self;
        let number = *numbers.entry(spelled).or_insert_with_key(|spelled| {
            shardings.push(make(spelled));
            Number(shardings.len() - 1)
        });
        shardings[number.0].as_ref().map(|_| number)
    }

    /// The type of a sharding: with the gradient of ranks that do the same work along some sub-axes, or without one.
    fn typed(&mut self, number: Number, again: Option<&Again>) -> Option<Arc<ShardingType>> {
        let OnMesh { shardings, types, .. } = self;
        let value = shardings[number.0].as_ref()?;
        let make = || match again {
            None => Some(Arc::new(ShardingType { value: value.clone(), gradient: None })),
            Some(again) => ShardingType::invariant_along(value.clone(), again).ok().map(Arc::new),
        };
        types.entry((number, again.cloned())).or_insert_with(make).clone()
    }
}

/// All that the typed strategies of an op depend on.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    op: Op,
    mesh: Mesh,
    /// The norms of which inputs hold terms: rows of the op's for them.
    norms: SmallVec<[Exponent; 1]>,
    /// Of inputs and outputs, which have gradients.
    gradients: SmallVec<[bool; 6]>,
    slots: PerSlot<SubAxis>,
    kinds: PerSlot<SmallVec<[ShardKind; 2]>>,
    rows: PerSlot<SmallVec<[SlotRow; 12]>>,
}

/// The paths of a problem, with types.
struct Typed<'p, 'a> {
    problem: &'p Problem<'a>,
    question: &'p TypedStrategyQuery<'p>,
    /// Whether anything here has a gradient.
    trained: bool,
    /// By slot, which rows are looked at.
    rows: Vec<Vec<u16>>,
}

impl Typed<'_, '_> {
    fn with_rows(mut self) -> Self {
        let p = self.problem;
        // What each input is, wherever it is at hand, along each slot.
        let at: Vec<Vec<PerSlot<Class>>> = (self.question.inputs.iter())
            .map(|at_hand| at_hand.iter().map(|s| classify(s, &p.slots)).collect())
            .collect();
        self.rows = (0..p.slots.len())
            .map(|slot| {
                let rows = 0..p.rows[slot].len() as u16;
                rows.filter(|&row| self.admits(slot, p.rows[slot][usize::from(row)], &at)).collect()
            })
            .collect();
        self
    }

    /// All that the list depends on.
    fn key(&self) -> Key {
        let p = self.problem;
        let rows = self.rows.iter().zip(&p.rows);
        let gradients = self.question.input_gradients.iter().chain(self.question.output_gradients);
        Key {
            op: p.op.clone(),
            mesh: p.mesh.clone(),
            norms: p.norms.clone(),
            gradients: gradients.copied().collect(),
            slots: p.slots.clone(),
            kinds: p.kinds.clone(),
            rows: rows.map(|(rows, of)| rows.iter().map(|&row| of[usize::from(row)]).collect()).collect(),
        }
    }

    /// All strategies, in the order of the rows; at most so many.
    fn all(&self, most: usize, known: &mut OnMesh) -> Vec<TypedStrategy> {
        let mut found = Vec::new();
        let mut path = Path::new();
        let _ = self.extended(&mut path, &mut |path| {
            self.every(path, known, &mut found);
            if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        found.truncate(most);
        found
    }

    /// Whether a row may stand for a slot: see [`Propagator::typed`].
    fn admits(&self, slot: usize, row: SlotRow, at: &[Vec<PerSlot<Class>>]) -> bool {
        let bound = self.problem.bound.get();
        let entries = &bound.rows[usize::from(row.row)].entries;
        let of_sum = |e: &Entry| !matches!(e, Entry::Partial(op) if *op != ReduceOp::Sum);
        if self.trained && !entries.iter().all(of_sum) {
            return false;
        }
        let inputs = &entries[..at.len()];
        let makes_terms = inputs.iter().any(|e| matches!(e, Entry::Partial(_)));
        let pending = inputs.iter().any(|e| matches!(e, Entry::Shard { .. }));
        let held = |(e, at): (&Entry, &Vec<PerSlot<Class>>)| match e {
            Entry::Partial(op) => at.iter().any(|c| match c[slot] {
                Class::Partial(held) => op.mixes_with(held),
                Class::Mixed => true,
                Class::Replicate | Class::Shard { .. } => false,
            }),
            Entry::Replicate | Entry::Shard { .. } | Entry::Fixed(_) => false,
        };
        !makes_terms || pending || inputs.iter().zip(at).any(held)
    }

    /// Calls a function with every whole path that begins so.
    fn extended(&self, path: &mut Path, f: &mut impl FnMut(&Path) -> ControlFlow<()>) -> ControlFlow<()> {
        let Some(rows) = self.rows.get(path.len()) else { return f(path) };
        for &row in rows {
            path.push(row);
            if self.problem.is_even(path) {
                self.extended(path, f)?;
            }
            path.pop();
        }
        ControlFlow::Continue(())
    }

    /// All that a path may mean: along slots where all operands are replicas, the same work or different work.
    fn every(&self, path: &Path, known: &mut OnMesh, found: &mut Vec<TypedStrategy>) {
        let p = self.problem;
        let bound = p.bound.get();
        let rows =
            || path.iter().enumerate().map(|(s, &r)| &bound.rows[usize::from(p.rows[s][usize::from(r)].row)]);
        let Some(values) = self.values(path, known) else { return };
        let replicates = |row: &crate::rules::Row| row.entries.iter().all(|e| *e == Entry::Replicate);
        let free: SmallVec<[SubAxis; 6]> = rows()
            .zip(&p.slots)
            .filter(|(row, _)| self.trained && replicates(row))
            .map(|(_, s)| *s)
            .collect();
        let views = p.op.is_view();
        let strategies: Arc<[(SubAxis, Strategy)]> = if views {
            Arc::default()
        } else {
            p.slots
                .iter()
                .copied()
                .zip(rows().map(|row| bound.strategy(&row.entries, p.alike.len())))
                .collect()
        };
        let region = !views && rows().any(|row| row.region);
        let share = if views { 1.0 } else { self.share(path) };
        let (inputs, outputs) = values.split_at(p.op.inputs().len());
        // Views of replicas: what a view does along an axis it does to values and to gradients.
        for same in 0..1usize << free.len().min(8) {
            let again: Again =
                free.iter().enumerate().filter(|(i, _)| same >> i & 1 == 1).map(|(_, s)| *s).collect();
            let mut typed = |values: &[Number], gradients: &[bool]| -> Option<Vec<Arc<ShardingType>>> {
                values.iter().zip(gradients).map(|(&v, &g)| known.typed(v, g.then_some(&again))).collect()
            };
            let (Some(inputs), Some(outputs)) = (
                typed(inputs, self.question.input_gradients),
                typed(outputs, self.question.output_gradients),
            ) else {
                continue;
            };
            found.push(TypedStrategy {
                inputs,
                outputs,
                rows: strategies.clone(),
                work_fraction: share,
                region,
            });
        }
    }

    /// The shardings of a path, of inputs and outputs; none where no sharding is what it spells.
    fn values(&self, path: &Path, known: &mut OnMesh) -> Option<SmallVec<[Number; 6]>> {
        let p = self.problem;
        let (inputs, outputs) = (p.op.inputs(), p.op.outputs());
        let mut values: SmallVec<[Number; 6]> = SmallVec::new();
        for (operand, shape) in inputs.iter().chain(outputs).enumerate() {
            let seen = values.first().copied().filter(|_| p.op.is_view() && operand == inputs.len());
            values.push(if let Some(first) = seen {
                known.seen_as(first, shape)?
            } else {
                let (cuts, terms) = p.spelled(path, operand, shape).ok()?;
                known.number((Shape::from_slice(shape), cuts, terms), |(shape, cuts, terms)| {
                    p.made(shape, cuts.clone(), terms.clone()).ok()
                })?
            });
        }
        Some(values)
    }

    /// The part of the work that the rank with most of it does.
    fn share(&self, path: &Path) -> f64 {
        let p = self.problem;
        let bound = p.bound.get();
        let mut share = 1.0;
        for (slot, &row) in path.iter().enumerate() {
            let entries = &bound.rows[usize::from(p.rows[slot][usize::from(row)].row)].entries;
            let (n, shapes) = (p.slots[slot].size, p.op.inputs().iter().chain(p.op.outputs()));
            let size = |(e, shape): (&Entry, &Vec<usize>)| match *e {
                Entry::Shard { factor: Some(f), .. } => Some(bound.factors[usize::from(f)].size),
                Entry::Shard { dim, factor: None } => shape.get(usize::from(dim)).copied(),
                Entry::Fixed(i) => bound.fixed[usize::from(i)].dim().and_then(|d| shape.get(d).copied()),
                Entry::Replicate | Entry::Partial(_) => None,
            };
            if let Some(size) = entries.iter().zip(shapes).find_map(size) {
                share *= size.div_ceil(n) as f64 / size.max(1) as f64;
            }
        }
        share
    }
}
