//! A bounded cache of choices, shared by threads.
//!
//! A choice is a pure function of propagator, op, mesh, inputs and constraints, so that nothing is ever
//! invalidated. As for plans there are two lookups: by value (hash, then compare) and by handle (interned
//! ids).

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use crate::Error;
use crate::propagate::choice::OpSharding;
use crate::propagate::constraint::OutputConstraint;
use crate::propagate::operand::Operand;
use crate::propagate::propagator::Propagator;
use crate::rules::Op;
use reshard_planner::Interned;
use reshard_planner::internal::Table;
use reshard_planner::internal::WordHasher;
use reshard_sharding::Mesh;

/// A request and its answer.
#[derive(Debug)]
struct Answer {
    op: Op,
    mesh: Mesh,
    inputs: Vec<Operand>,
    constraints: Vec<OutputConstraint>,
    choice: Arc<OpSharding>,
}

/// The ids of an op and of its inputs.
type Ids = SmallVec<[u64; 6]>;

/// A cache of the choices of one propagator.
///
/// ```
/// use reshard_kernels::DType;
/// use reshard_sharding::{Mesh, Sharding};
/// use reshard_ops::{propagate::{Operand, PropagationCache, Propagator}, rules::Op};
/// let mesh: Mesh = "dp=2,tp=4".parse()?;
/// let mm = Op::new("mm", &"mk,kn->mn".parse()?, &[&[64, 32], &[32, 16]])?;
/// let of = |shape: &[usize], p: &str| Sharding::parse(&mesh, shape, p).map(|s| Operand::new(DType::F32, s));
/// let inputs = [of(&[64, 32], "S(0),R")?, of(&[32, 16], "R,S(0)")?];
/// let cache = PropagationCache::new(Propagator::new(), 1024);
/// let first = cache.propagate(&mm, &mesh, &inputs, &[])?;
/// assert!(std::sync::Arc::ptr_eq(&first, &cache.propagate(&mm, &mesh, &inputs, &[])?));
/// // By handle, only numbers are compared.
/// let (op, a, b) = (cache.intern_op(&mm), cache.intern(&inputs[0]), cache.intern(&inputs[1]));
/// assert!(std::sync::Arc::ptr_eq(&first, &cache.propagate_interned(&op, &[&a, &b])?));
/// # Ok::<(), reshard_ops::Error>(())
/// ```
#[derive(Debug)]
#[doc(hidden)]
pub struct PropagationCache {
    propagator: Propagator,
    by_value: Table<u64, Arc<Answer>>,
    by_handle: Table<Ids, Arc<OpSharding>>,
    operands: Table<Operand, Interned<Operand>>,
    ops: Table<Op, Interned<Op>>,
    next: AtomicU64,
}

impl PropagationCache {
    /// Returns a cache of at most `capacity` choices per lookup, and as many interned ops and operands.
    pub fn new(propagator: Propagator, capacity: usize) -> PropagationCache {
        PropagationCache {
            propagator,
            by_value: Table::new(capacity),
            by_handle: Table::new(capacity),
            operands: Table::new(capacity),
            ops: Table::new(capacity),
            next: AtomicU64::new(0),
        }
    }

    /// The propagator whose choices these are.
    pub fn propagator(&self) -> &Propagator {
        &self.propagator
    }

    /// Returns the choice of [`Propagator::propagate`], computed if it is not cached. Errors are not cached.
    ///
    /// Two threads that request an uncached choice at once may both compute it; the results are equal.
    pub fn propagate(
        &self,
        op: &Op,
        mesh: &Mesh,
        inputs: &[Operand],
        constraints: &[OutputConstraint],
    ) -> Result<Arc<OpSharding>, Error> {
        let mut hasher = WordHasher::default();
        hasher.write_u64(op.hash_word());
        for input in inputs {
            input.sharding.hash(&mut hasher);
            hasher.write_u8(input.dtype as u8);
        }
        for constrained in constraints.iter().filter_map(OutputConstraint::sharding) {
            constrained.hash(&mut hasher);
        }
        let key = hasher.finish();
        if let Some(known) = self.by_value.get(&key)
            && known.op == *op
            && known.inputs == inputs
            && known.constraints == constraints
            && known.mesh == *mesh
        {
            return Ok(Arc::clone(&known.choice));
        }
        let choice = Arc::new(self.propagator.propagate(op, mesh, inputs, constraints)?);
        let answer = Answer {
            op: op.clone(),
            mesh: mesh.clone(),
            inputs: inputs.to_vec(),
            constraints: constraints.to_vec(),
            choice: Arc::clone(&choice),
        };
        self.by_value.insert(key, Arc::new(answer));
        Ok(choice)
    }

    /// Interns an operand.
    pub fn intern(&self, operand: &Operand) -> Interned<Operand> {
        intern(&self.operands, &self.next, operand)
    }

    /// Interns an op.
    pub fn intern_op(&self, op: &Op) -> Interned<Op> {
        intern(&self.ops, &self.next, op)
    }

    /// Returns the choice without constraints, found by ids alone; else by value, computed if not cached.
    ///
    /// Requires at least one input, and that this cache interned the op and all inputs.
    pub fn propagate_interned(
        &self,
        op: &Interned<Op>,
        inputs: &[&Interned<Operand>],
    ) -> Result<Arc<OpSharding>, Error> {
        let key: Ids = core::iter::once(op.id()).chain(inputs.iter().map(|i| i.id())).collect();
        if let Some(choice) = self.by_handle.get(&key) {
            return Ok(choice);
        }
        let values: Vec<Operand> = inputs.iter().map(|i| i.value().clone()).collect();
        let Some(first) = values.first() else {
            return Err(Error::Rule {
                reason: format!(
                    "{} without inputs has no mesh; pass the mesh and values instead of handles",
                    op.value().name()
                ),
            });
        };
        let choice = self.propagate(op.value(), first.sharding.mesh(), &values, &[])?;
        self.by_handle.insert(key, Arc::clone(&choice));
        Ok(choice)
    }

    /// The number of choices cached by value.
    pub fn len(&self) -> usize {
        self.by_value.len()
    }

    /// Returns `true` if no choice is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn intern<T: Clone + Eq + Hash>(table: &Table<T, Interned<T>>, next: &AtomicU64, value: &T) -> Interned<T> {
    if let Some(known) = table.get(value) {
        return known;
    }
    let new = Interned::new(next.fetch_add(1, Ordering::Relaxed), value.clone());
    table.insert(value.clone(), new.clone());
    new
}

#[cfg(test)]
mod tests {
    use super::*;
    use reshard_kernels::DType;
    use reshard_sharding::Sharding;

    fn operand(mesh: &Mesh, rows: usize, text: &str) -> Operand {
        Operand::new(DType::F32, Sharding::parse(mesh, &[rows, 8], text).unwrap())
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let mesh: Mesh = "x=2".parse().unwrap();
        let cache = PropagationCache::new(Propagator::new(), 8);
        let ask = |rows: usize| {
            let op = Op::new("double", &"ij->ij".parse().unwrap(), &[&[rows, 8]]).unwrap();
            cache.propagate(&op, &mesh, &[operand(&mesh, rows, "S(0)")], &[]).unwrap()
        };
        let hot = ask(2);
        for rows in 3..60 {
            ask(rows);
            assert!(cache.len() <= 8);
            assert!(Arc::ptr_eq(&hot, &ask(2)));
        }
    }

    #[test]
    fn whatever_differs_is_another_choice_and_threads_share_them() {
        let mesh: Mesh = "x=2,y=2".parse().unwrap();
        let rule = "mk,kn->mn".parse().unwrap();
        let (mm, named) = (
            Op::new("mm", &rule, &[&[8, 8], &[8, 8]]).unwrap(),
            Op::new("matmul", &rule, &[&[8, 8], &[8, 8]]).unwrap(),
        );
        let cache = PropagationCache::new(Propagator::new(), 1024);
        let all = ["R,R", "S(0),R", "R,S(1)", "P,R"].map(|t| operand(&mesh, 8, t));
        let constraint = OutputConstraint::Exactly(all[0].sharding.clone());
        let ask = || {
            for op in [&mm, &named] {
                for a in &all {
                    for b in &all {
                        let inputs = [a.clone(), b.clone()];
                        for constraints in [&[][..], core::slice::from_ref(&constraint)] {
                            let known = cache.propagate(op, &mesh, &inputs, constraints).unwrap();
                            let new = cache.propagator().propagate(op, &mesh, &inputs, constraints).unwrap();
                            assert_eq!((&known.inputs, &known.outputs), (&new.inputs, &new.outputs));
                            assert!((known.cost_us - new.cost_us).abs() < 1e-9);
                        }
                        let ids = [cache.intern(a), cache.intern(b)];
                        let by_id =
                            cache.propagate_interned(&cache.intern_op(op), &[&ids[0], &ids[1]]).unwrap();
                        assert!(by_id.inputs == cache.propagate(op, &mesh, &inputs, &[]).unwrap().inputs);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(ask);
            }
        });
        assert_eq!(cache.len(), 2 * 16 * 2);
    }
}
