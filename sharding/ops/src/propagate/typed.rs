//! The types of an op's operands, for each path (one row per slot): sharding and gradient sharding.
//!
//! Along a slot a row gives the values' shardings, and its transpose the gradients'
//! ([`Strategy::transposes`]):
//!
//! ```text
//! row          value     gradient                     R* = P    P* = R    S* = S
//! S(m),R -> S(m)         a replicated weight has a partial gradient: R|P
//! R,R -> R               ranks do different work on replicas: R|P everywhere
//! R,R -> R     again     all ranks do the same work on replicas: R|R everywhere, written I
//! ```
//!
//! Propagation needs the cheapest path of one op. A solver that chooses for many ops at once needs all of
//! them.

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

/// One strategy of an op on a whole mesh, with the types of all operands.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedStrategy {
    /// The required type of each input; without a gradient if none is needed.
    pub inputs: Vec<Arc<ShardingType>>,
    /// The type of each output.
    pub outputs: Vec<Arc<ShardingType>>,
    /// The strategy of each (sub-)axis with more than one rank; none for a view.
    pub rows: Arc<[(SubAxis, Strategy)]>,
    /// The fraction of the op's work that a rank does: the product over all slots that shard it.
    pub work_fraction: f64,
    /// `true` if the op has to know its region along some axis.
    pub region: bool,
}

/// The request for the [typed strategies](Propagator::typed) of an op.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct TypedStrategyQuery<'a> {
    /// For each input, its available shardings (at least one); strategies use the kinds of shards in them.
    pub inputs: &'a [Vec<Sharding>],
    /// More shardings whose sub-axes and kinds of shards are considered, as of constrained outputs.
    pub also: &'a [Sharding],
    /// For each input, `true` if it has a gradient.
    pub input_gradients: &'a [bool],
    /// For each output, `true` if it has a gradient.
    pub output_gradients: &'a [bool],
    /// For each input, `true` if it is known to have no negative element; `false` for those that are omitted.
    pub nonnegative: &'a [bool],
}

impl Propagator {
    /// Returns at most `most` strategies of an op on a mesh, with operand types, in the order of its rows.
    ///
    /// An input becomes partial only along two kinds of slots: those where it is available as partial values,
    /// and those where other inputs of the row are shards or available as partial values. If the op needs a
    /// gradient, only partial sums are considered.
    ///
    /// ```
    /// use reshard_ops::propagate::{Propagator, TypedStrategyQuery};
    /// use reshard_ops::rules::OpTable;
    /// use reshard_sharding::{Mesh, Sharding};
    /// let mesh: Mesh = "tp=4".parse()?;
    /// let mm = OpTable::standard().op(&"mm".parse()?, &[&[8, 16], &[16, 32]])?;
    /// let inputs = [vec![Sharding::parse(&mesh, &[8, 16], "R")?], vec![Sharding::parse(&mesh, &[16, 32], "S(1)")?]];
    /// let question = TypedStrategyQuery { inputs: &inputs, also: &[], input_gradients: &[true, true], output_gradients: &[true], nonnegative: &[] };
    /// let found = Propagator::new().typed(&mm, &mesh, &question, 100)?;
    /// let texts: Vec<String> = found.iter().map(|s| format!("{} {} -> {}", s.inputs[0], s.inputs[1], s.outputs[0])).collect();
    /// assert_eq!(texts, ["R R -> R", "I I -> I", "S(0) R -> S(0)", "R S(1) -> S(1)", "S(1) S(0) -> P(sum)"]);
    /// # Ok::<(), reshard_ops::Error>(())
    /// ```
    ///
    /// Fails for operands that are not the op's, as [`Propagator::propagate`] does.
    #[doc(hidden)]
    pub fn typed(
        &self,
        op: &Op,
        mesh: &Mesh,
        question: &TypedStrategyQuery<'_>,
        most: usize,
    ) -> Result<Vec<TypedStrategy>, Error> {
        self.asked(op, mesh, question, |typed| typed.all(most, &mut OnMesh::default()))
    }

    /// Returns the number of the same list in a cache, computed and added if it is new.
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
    ) -> Result<usize, Error> {
        let TypedLists { numbers, lists, meshes } = known;
        self.asked(op, mesh, question, |typed| {
            let key = typed.key();
            if let Some(&number) = numbers.get(&key) {
                return number;
            }
            let at = meshes.iter().position(|(known, _)| known == mesh).unwrap_or_else(|| {
                meshes.push((mesh.clone(), OnMesh::default()));
                meshes.len() - 1
            });
            lists.push(typed.all(most, &mut meshes[at].1).into_iter().map(Arc::new).collect());
            numbers.insert(key, lists.len() - 1);
            lists.len() - 1
        })
    }

    /// Builds the propagation problem of a request and passes it to `answer`.
    fn asked<T>(
        &self,
        op: &Op,
        mesh: &Mesh,
        question: &TypedStrategyQuery<'_>,
        answer: impl FnOnce(&Typed<'_, '_>) -> T,
    ) -> Result<T, Error> {
        let firsts: Result<Vec<Operand>, Error> = (question.inputs.iter().enumerate())
            .map(|(i, at_hand)| match at_hand.first() {
                Some(first) => {
                    let first = Operand::new(reshard_kernels::DType::F32, first.clone());
                    let is_known = question.nonnegative.get(i) == Some(&true);
                    Ok(if is_known { first.nonnegative() } else { first })
                }
                None => Err(Error::Rule {
                    reason: format!("an input of {} is not available in any sharding", op.name()),
                }),
            })
            .collect();
        let firsts = firsts?;
        // The caller accounts for reducing partial outputs.
        let constraints = vec![OutputConstraint::Reduced; op.outputs().len()];
        let also: Vec<&Sharding> = question.inputs.iter().flatten().chain(question.also).collect();
        let problem = Problem::beside(&self.planner, op, mesh, &firsts, &constraints, Stays::Nothing, &also)?;
        let trained = question.input_gradients.iter().chain(question.output_gradients).any(|g| *g);
        let typed = Typed { problem: &problem, question, trained, rows: Vec::new() }.with_rows();
        Ok(answer(&typed))
    }
}

/// A cache of lists of typed strategies: the same op is often requested with equally sharded inputs.
#[derive(Debug, Default)]
pub struct TypedLists {
    numbers: WordMap<Key, usize>,
    lists: Vec<Arc<[Arc<TypedStrategy>]>>,
    /// The interned operands of all ops, per mesh.
    meshes: Vec<(Mesh, OnMesh)>,
}

impl TypedLists {
    /// Returns a cached list.
    pub fn get(&self, number: usize) -> &Arc<[Arc<TypedStrategy>]> {
        &self.lists[number]
    }

    /// The number of cached lists.
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    /// Returns `true` if no list is cached.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }
}

/// The interned operand shardings on one mesh: many strategies share a few shardings.
#[derive(Debug, Default)]
struct OnMesh {
    numbers: WordMap<Spelled, Number>,
    /// The outputs of views, by input and output shape.
    seen: WordMap<(Number, Shape), Option<Number>>,
    /// The shardings by number; `None` for a spelling that is not a sharding.
    shardings: Vec<Option<Sharding>>,
    /// The types by number and the sub-axes along which ranks do the same work; `None` without a gradient.
    types: WordMap<(Number, Option<Again>), Option<Arc<ShardingType>>>,
}

/// Shape, dim splits and partial axes.
type Spelled = (Shape, Cuts, Terms);

/// The sub-axes along which ranks do the same work.
type Again = SmallVec<[SubAxis; 4]>;

/// The number of an interned sharding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Number(usize);

impl OnMesh {
    /// Returns the number of the view of a sharding in this shape, if the view is free.
    fn seen_as(&mut self, first: Number, shape: &[usize]) -> Option<Number> {
        let OnMesh { seen, shardings, .. } = self;
        *seen.entry((first, Shape::from_slice(shape))).or_insert_with(|| {
            let made = shardings[first.0].as_ref()?.try_view(shape)?;
            shardings.push(Some(made));
            Some(Number(shardings.len() - 1))
        })
    }

    /// Returns the number of the sharding that is spelled so, or `None` if there is none.
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

    /// Returns the type of a sharding, without a gradient if `again` is `None`.
    ///
    /// Otherwise the gradient is that of ranks that do the same work along these sub-axes.
    fn typed(&mut self, number: Number, again: Option<&Again>) -> Option<Arc<ShardingType>> {
        let OnMesh { shardings, types, .. } = self;
        let value = shardings[number.0].as_ref()?;
        let make = || match again {
            None => Some(Arc::new(ShardingType::new(value.clone(), None))),
            Some(again) => ShardingType::invariant_along(value.clone(), again).ok().map(Arc::new),
        };
        types.entry((number, again.cloned())).or_insert_with(make).clone()
    }
}

/// The cache key of the typed strategies of an op.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    op: Op,
    mesh: Mesh,
    /// The norms of which inputs hold partial values; the op has rows for them.
    norms: SmallVec<[Exponent; 1]>,
    /// For inputs and outputs, `true` if they have gradients.
    gradients: SmallVec<[bool; 6]>,
    slots: PerSlot<SubAxis>,
    kinds: PerSlot<SmallVec<[ShardKind; 2]>>,
    rows: PerSlot<SmallVec<[SlotRow; 12]>>,
}

/// The paths of a problem, with types.
struct Typed<'p, 'a> {
    problem: &'p Problem<'a>,
    question: &'p TypedStrategyQuery<'p>,
    /// `true` if any operand has a gradient.
    trained: bool,
    /// The rows that are considered, per slot.
    rows: Vec<Vec<u16>>,
}

impl Typed<'_, '_> {
    fn with_rows(mut self) -> Self {
        let p = self.problem;
        // The class of each input along each slot, for every available sharding.
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

    /// Returns the cache key of the list.
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

    /// Returns at most `most` strategies, in the order of the rows.
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

    /// Returns `true` if a row is a candidate for a slot; see [`Propagator::typed`].
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

    /// Calls a function with every whole path that begins with `path`.
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

    /// Adds all typed strategies of a path: replicas along a slot do the same work or different work.
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
        // Views of replicas: along an axis, a view does the same to values and to gradients.
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

    /// Returns the shardings of inputs and outputs of a path; `None` if it spells an invalid sharding.
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

    /// Returns the fraction of the work that the most loaded rank does.
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
