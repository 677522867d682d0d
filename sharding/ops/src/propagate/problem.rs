//! One propagation problem: slots, rows for each slot, and inputs grouped by equality.
//!
//! The rows of a slot are the op's rows, with each placeholder filled by each kind that some tensor has along
//! that slot, and by plain shards. Replicas and shards become partial values without communication. The
//! cheapest strategy to add two shards of different dims would thus expand both to whole tensors and leave
//! the sum pending. So a row whose inputs are partial is a candidate only if their reduction is accounted
//! for:
//!
//! ```text
//! kept        an input already holds such partial values along the slot             P + R   =  P + P   ->  P
//! pending     the op itself produces partial values, as its row shards a factor     R + S(k) @ S(k)    ->  P
//! counted     every output with partial values for it is constrained, so that the   S(0) + S(1), and R is required
//!             reduction is part of the cost
//! ```
//!
//! Partial values of a norm are magnitudes, so an input becomes such partial values only if it is known to
//! have no negative element.
//!
//! The rows of an operand are few letters: its class along the slot. A path (one row for each slot) spells a
//! string of letters for each operand, and that string is its target.

use reshard_kernels::DType;
use smallvec::SmallVec;

use crate::Error;
use crate::propagate::constraint::OutputConstraint;
use crate::propagate::operand::Operand;
use crate::propagate::slots::{Class, PerSlot, ShardKind, classify, slots};
use crate::rules::{Bound, Entry, Op, Row};
use reshard_planner::{Objective, Planner};
use reshard_sharding::{Exponent, Mesh, ReduceOp, Sharding, SubAxis};

/// One row for each slot, so far.
pub(super) type Path = SmallVec<[u16; 8]>;

/// The class that an operand takes along one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Letter {
    pub(super) entry: Entry,
    /// Index into the slot's kinds of shards, for shards.
    pub(super) kind: u16,
}

/// A row of a slot: one of the op's rows, filled with a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SlotRow {
    pub(super) row: u16,
    pub(super) kind: u16,
}

/// Inputs with one source, one element type and one column of entries.
#[allow(clippy::struct_excessive_bools, reason = "independent properties of the inputs")]
pub(super) struct Alike<'a> {
    pub(super) source: &'a Sharding,
    pub(super) dtype: DType,
    /// `true` if these inputs may not be redistributed.
    pub(super) stays: bool,
    /// The first of them.
    pub(super) operand: usize,
    pub(super) count: u64,
    /// The class of the source along each slot.
    pub(super) at: PerSlot<Class>,
    /// For each slot and row, the index of its letter among those of the slot.
    pub(super) letters: PerSlot<SmallVec<[u8; 16]>>,
    /// The factor by which the remaining slots can shrink the target, by shards and partial values, per slot.
    pub(super) shrink: PerSlot<f64>,
    /// The product of the remaining slots along which the source is partial, per slot.
    pub(super) open_terms: PerSlot<f64>,
    /// `true` if the source is partial; `is_mixed` is `true` if it has an unnamed class along some slot.
    pub(super) has_terms: bool,
    /// `true` if it is known that no element is negative.
    nonnegative: bool,
    pub(super) is_mixed: bool,
}

/// The inputs that may not be redistributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stays {
    /// No input.
    Nothing,
    /// The inputs that the op writes.
    Written,
    /// All inputs.
    All,
}

/// The problem.
pub(super) struct Problem<'a> {
    pub(super) op: &'a Op,
    pub(super) planner: &'a Planner,
    /// The exponents of norms of which inputs hold partial values, for which the rows are made.
    pub(super) norms: SmallVec<[Exponent; 1]>,
    pub(super) bound: Bounded<'a>,
    pub(super) mesh: Mesh,
    pub(super) slots: PerSlot<SubAxis>,
    pub(super) kinds: PerSlot<SmallVec<[ShardKind; 2]>>,
    pub(super) rows: PerSlot<SmallVec<[SlotRow; 12]>>,
    pub(super) inputs: SmallVec<[Alike<'a>; 3]>,
    /// For every input, its index in `inputs`.
    pub(super) alike: SmallVec<[u16; 4]>,
    pub(super) constraints: &'a [OutputConstraint],
    /// The class of each constrained output along each slot.
    pub(super) constrained: SmallVec<[Option<PerSlot<Class>>; 2]>,
    pub(super) output_dtype: DType,
    /// `true` if a zero bound means a free plan: the planner minimizes time and rejects no plan.
    pub(super) trusts_free: bool,
}

/// The op's rows, made on demand for a view and for an op that passes the partial norms of its inputs.
pub(super) enum Bounded<'a> {
    Rows(&'a Bound),
    Made(Bound),
}

impl Bounded<'_> {
    pub(super) fn get(&self) -> &Bound {
        match self {
            Bounded::Rows(b) => b,
            Bounded::Made(b) => b,
        }
    }
}

impl<'a> Problem<'a> {
    pub(super) fn new(
        planner: &'a Planner,
        op: &'a Op,
        mesh: &Mesh,
        inputs: &'a [Operand],
        constraints: &'a [OutputConstraint],
        stays: Stays,
    ) -> Result<Problem<'a>, Error> {
        Problem::beside(planner, op, mesh, inputs, constraints, stays, &[])
    }

    /// Returns the problem in which the sub-axes and kinds of shards of other tensors are considered too.
    pub(super) fn beside(
        planner: &'a Planner,
        op: &'a Op,
        mesh: &Mesh,
        inputs: &'a [Operand],
        constraints: &'a [OutputConstraint],
        stays: Stays,
        also: &[&Sharding],
    ) -> Result<Problem<'a>, Error> {
        check(op, mesh, inputs, constraints)?;
        let norms = norms_of(inputs.iter().map(|i| &i.sharding).chain(also.iter().copied()));
        let bound = match op.bound() {
            Some(b) if norms.is_empty() => Bounded::Rows(b),
            Some(_) => Bounded::Made(op.with_norms(&norms)?.bound().cloned().unwrap_or_default()),
            None => Bounded::Made(rows_of_view(op, &norms)),
        };
        // The input sharding advised for a view that is not free, so that its kinds and sub-axes are among
        // the candidates.
        let advised = match inputs {
            [x] if op.is_view() && x.sharding.try_view(&op.outputs()[0]).is_none() => {
                reshard_sharding::internal::advised(&x.sharding, &op.outputs()[0]).ok().map(|a| a.0)
            }
            _ => None,
        };
        let tensors = inputs
            .iter()
            .map(|i| &i.sharding)
            .chain(constraints.iter().filter_map(OutputConstraint::sharding));
        let tensors = tensors.chain(&advised).chain(also.iter().copied());
        let slots = slots(mesh, &tensors);
        // Group inputs that are equal, so that each is priced once.
        let mut distinct: SmallVec<[Alike<'a>; 3]> = SmallVec::new();
        let mut alike = SmallVec::new();
        for (i, input) in inputs.iter().enumerate() {
            let dtype = input.whole_bytes()?;
            let rows = &bound.get().rows;
            let stays = match stays {
                Stays::Nothing => false,
                Stays::Written => bound.get().written.iter().any(|&(written, _)| usize::from(written) == i),
                Stays::All => true,
            };
            let same = |a: &Alike<'_>| {
                a.dtype == dtype
                    && a.stays == stays
                    && a.nonnegative == input.nonnegative
                    && *a.source == input.sharding
                    && rows.iter().all(|r| r.entries[a.operand] == r.entries[i])
            };
            if let Some(known) = distinct.iter().position(same) {
                distinct[known].count += 1;
                alike.push(known as u16);
                continue;
            }
            alike.push(distinct.len() as u16);
            let at = classify(&input.sharding, &slots);
            distinct.push(Alike {
                source: &input.sharding,
                dtype,
                stays,
                operand: i,
                count: 1,
                has_terms: input.sharding.is_partial(),
                nonnegative: input.nonnegative,
                is_mixed: at.contains(&Class::Mixed),
                at,
                letters: PerSlot::new(),
                shrink: PerSlot::new(),
                open_terms: PerSlot::new(),
            });
        }
        let constrained: SmallVec<[_; 2]> =
            constraints.iter().map(|w| w.sharding().map(|s| classify(s, &slots))).collect();
        // A condition or an index often comes first; an output mostly has the dtype of the first real input.
        let real = |x: &&Operand| {
            !matches!(x.dtype, DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::U16)
                && !matches!(x.dtype, DType::I32 | DType::U32 | DType::I64 | DType::U64)
        };
        let output_dtype = match inputs.iter().find(real).or(inputs.first()) {
            Some(like) => like.whole_bytes()?,
            None => DType::F32,
        };
        let mut problem = Problem {
            op,
            planner,
            norms,
            bound,
            mesh: mesh.clone(),
            kinds: PerSlot::new(),
            rows: PerSlot::new(),
            inputs: distinct,
            alike,
            constraints,
            constrained,
            output_dtype,
            trusts_free: planner.options().objective() == Objective::Time
                && planner.options().max_peak_bytes().is_none(),
            slots,
        };
        let besides: Vec<PerSlot<Class>> =
            advised.iter().chain(also.iter().copied()).map(|s| classify(s, &problem.slots)).collect();
        problem.fill(&besides);
        Ok(problem)
    }

    /// The rows of every slot, and the letters that they spell.
    fn fill(&mut self, besides: &[PerSlot<Class>]) {
        for slot in 0..self.slots.len() {
            let mut kinds: SmallVec<[ShardKind; 2]> = SmallVec::new();
            kinds.push(ShardKind::Plain);
            let classes =
                self.inputs.iter().map(|a| &a.at).chain(self.constrained.iter().flatten()).chain(besides);
            for class in classes {
                if let Class::Shard { kind, .. } = &class[slot]
                    && !kinds.contains(kind)
                {
                    kinds.push(kind.clone());
                }
            }
            let bound = self.bound.get();
            let mut rows: SmallVec<[SlotRow; 12]> = SmallVec::new();
            // All replicated first: ties go to the simplest row.
            let is_plain = |r: &Row| r.entries.iter().all(|e| *e == Entry::Replicate);
            let order = (0..bound.rows.len())
                .filter(|&r| is_plain(&bound.rows[r]))
                .chain((0..bound.rows.len()).filter(|&r| !is_plain(&bound.rows[r])));
            for row in order {
                let entries = &bound.rows[row].entries;
                if !self.admits(slot, entries) {
                    continue;
                }
                let fills =
                    if entries.iter().any(|e| matches!(e, Entry::Shard { .. })) { kinds.len() } else { 1 };
                rows.extend((0..fills).map(|kind| SlotRow { row: row as u16, kind: kind as u16 }));
            }
            for a in &mut self.inputs {
                let mut seen: SmallVec<[Letter; 8]> = SmallVec::new();
                let mut numbers: SmallVec<[u8; 16]> = SmallVec::new();
                for r in &rows {
                    let letter = letter(bound, *r, a.operand);
                    let at = seen.iter().position(|l| *l == letter).unwrap_or_else(|| {
                        seen.push(letter);
                        seen.len() - 1
                    });
                    numbers.push(at as u8);
                }
                a.letters.push(numbers);
            }
            self.kinds.push(kinds);
            self.rows.push(rows);
        }
        let bound = self.bound.get();
        let slots = self.slots.len();
        for a in &mut self.inputs {
            a.shrink = SmallVec::from_elem(1.0, slots + 1);
            a.open_terms = SmallVec::from_elem(1.0, slots + 1);
            for slot in (0..slots).rev() {
                let n = self.slots[slot].size as f64;
                let divides =
                    |r: &SlotRow| bound.rows[usize::from(r.row)].entries[a.operand] != Entry::Replicate;
                let shrinks = self.rows[slot].iter().any(divides);
                a.shrink[slot] = a.shrink[slot + 1] * if shrinks { n } else { 1.0 };
                let terms = matches!(a.at[slot], Class::Partial(_));
                a.open_terms[slot] = a.open_terms[slot + 1] * if terms { n } else { 1.0 };
            }
        }
    }

    /// Returns `true` if a row is a candidate for a slot.
    fn admits(&self, slot: usize, entries: &[Entry]) -> bool {
        let bound = self.bound.get();
        let inputs = &entries[..self.alike.len()];
        let makes_terms = inputs.iter().any(|e| matches!(e, Entry::Partial(_)));
        let holds = |(e, &a): (&Entry, &u16)| match (e, &self.inputs[usize::from(a)].at[slot]) {
            (Entry::Partial(op), Class::Partial(held)) => op.mixes_with(*held),
            (Entry::Partial(_), Class::Mixed) => true,
            _ => false,
        };
        let kept = || inputs.iter().zip(&self.alike).any(holds);
        let pending = || inputs.iter().any(|e| matches!(e, Entry::Shard { .. }));
        if makes_terms && !kept() && !pending() && !self.counts(&entries[self.alike.len()..]) {
            return false;
        }
        let denotes = |(e, &a): (&Entry, &u16)| match e {
            Entry::Partial(op) => !op.is_of_magnitudes() || self.inputs[usize::from(a)].nonnegative,
            Entry::Replicate | Entry::Shard { .. } | Entry::Fixed(_) => true,
        };
        if makes_terms && !inputs.iter().zip(&self.alike).all(denotes) {
            return false;
        }
        let even = |e: &Entry| match e {
            Entry::Shard { factor: Some(f), .. } => {
                let factor = &bound.factors[usize::from(*f)];
                !factor.even || factor.size.is_multiple_of(self.slots[slot].size)
            }
            Entry::Shard { factor: None, .. } | Entry::Replicate | Entry::Partial(_) | Entry::Fixed(_) => {
                true
            }
        };
        entries.iter().all(even)
    }

    /// Returns `true` if the cost of every partial output contains its reduction.
    fn counts(&self, outputs: &[Entry]) -> bool {
        outputs.iter().enumerate().all(|(o, entry)| match self.constraints.get(o) {
            Some(OutputConstraint::Exactly(_) | OutputConstraint::Reduced) => true,
            None | Some(OutputConstraint::Any | OutputConstraint::Prefer { .. }) => {
                !matches!(entry, Entry::Partial(_))
            }
        })
    }

    pub(super) fn letter(&self, slot: usize, row: u16, operand: usize) -> Letter {
        letter(self.bound.get(), self.rows[slot][usize::from(row)], operand)
    }
}

fn letter(bound: &Bound, r: SlotRow, operand: usize) -> Letter {
    let entry = bound.rows[usize::from(r.row)].entries[operand];
    let kind = if matches!(entry, Entry::Shard { .. }) { r.kind } else { 0 };
    Letter { entry, kind }
}

/// Returns the exponents of norms of which these hold partial values, except 2, which all rules name.
fn norms_of<'a>(all: impl Iterator<Item = &'a Sharding>) -> SmallVec<[Exponent; 1]> {
    let mut out = SmallVec::new();
    for p in all.flat_map(Sharding::partial) {
        match p.op {
            ReduceOp::Norm(p) if p != Exponent::TWO && !out.contains(&p) => out.push(p),
            ReduceOp::Norm(_)
            | ReduceOp::Sum
            | ReduceOp::Avg
            | ReduceOp::Prod
            | ReduceOp::Min
            | ReduceOp::Max => {}
        }
    }
    out
}

/// Returns the rows of a view: any shard and any partial values.
///
/// Partial values pass; the output of shards is determined when the path is whole.
fn rows_of_view(op: &Op, norms: &[Exponent]) -> Bound {
    let one = |entry| {
        let made = if matches!(entry, Entry::Partial(_)) { entry } else { Entry::Replicate };
        Row { entries: vec![entry, made], region: false }
    };
    let terms = norms.iter().map(|&p| Entry::Partial(ReduceOp::Norm(p)));
    let rows = Entry::all(op.inputs()[0].len()).chain(terms).map(one).collect();
    Bound { rows, ..Bound::default() }
}

/// Rejects operands that are not the op's.
fn check(op: &Op, mesh: &Mesh, inputs: &[Operand], constraints: &[OutputConstraint]) -> Result<(), Error> {
    let bad = |reason: String| Err(Error::Rule { reason });
    let name = op.name();
    if inputs.len() != op.inputs().len() {
        return bad(format!("{name} has {} inputs, not {}", op.inputs().len(), inputs.len()));
    }
    for (i, (input, shape)) in inputs.iter().zip(op.inputs()).enumerate() {
        if input.sharding.shape() != shape.as_slice() {
            return bad(format!("input {i} of {name} is {input}, but its shape must be {shape:?}"));
        }
        if input.sharding.mesh() != mesh {
            return bad(format!(
                "input {i} of {name} is {input}, but the op runs on {mesh}; redistribute it to that mesh first"
            ));
        }
    }
    if constraints.len() > op.outputs().len() {
        return bad(format!(
            "{name} has {} outputs, but there are {} constraints",
            op.outputs().len(),
            constraints.len()
        ));
    }
    for (w, shape) in constraints.iter().zip(op.outputs()) {
        if let Some(s) = w.sharding()
            && (s.mesh() != mesh || s.shape() != shape.as_slice())
        {
            return bad(format!(
                "an output of {name} is {shape:?} on {mesh}, so it cannot be {s} of {:?} on {}",
                s.shape(),
                s.mesh()
            ));
        }
    }
    Ok(())
}
