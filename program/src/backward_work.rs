//! The computing of the backward of an op, for the shards of its operands.
//!
//! It is that of the statements which `gradient` writes: the calls of the op's formula, each priced by the
//! larger of operations and memory traffic. Values inside a kernel have no traffic. So the solver
//! minimises the number that a report estimates without `gradient`, and that it adds up for written gradients.
//!
//! The shardings of the written statements are chosen later. Here they follow from those of the op:
//!
//! ```text
//! saved values, wanted gradients     sharded as the op's operands are
//! a factor of a call                 the part of it that the operand with the smallest part has
//! other values                       the product of their factors
//! ```

use std::borrow::Cow;
use std::sync::Arc;

use reshard_kernels::DType;
use reshard_ops::gradients::Saved;
use reshard_ops::rules::internal::{bound_of, gcd};
use reshard_ops::rules::{Argument, Op, OpCall, OpTable};
use reshard_sharding::Sharding;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use crate::in_kernels::{InKernel, stored_operands};
use crate::{ComputeRates, Error};

/// The number of indices of a shard along each dim.
pub(crate) type Local = SmallVec<[usize; 6]>;

/// Operations and compute time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    pub(crate) operations: f64,
    pub(crate) us: f64,
}

/// The written statements of an op's backward, before they have shardings.
#[derive(Debug)]
pub(crate) struct BackwardWork {
    /// The saved values, then those that the lines make.
    values: Vec<Held>,
    saved: Vec<Saved>,
    lines: Vec<Line>,
    /// The gradients, each with its input.
    gradients: Vec<(usize, usize)>,
}

#[derive(Debug)]
struct Held {
    shape: Vec<usize>,
    dtype: DType,
    inner: bool,
}

/// One statement, on values by number.
#[derive(Debug)]
struct Line {
    op: Op,
    takes: Vec<usize>,
    makes: Vec<usize>,
}

/// The backward of ops, each computed once.
#[derive(Debug, Default)]
pub(crate) struct BackwardWorks {
    known: FxHashMap<Key, Option<Arc<BackwardWork>>>,
}

/// A call, its op, the dtypes of operands, and the inputs whose gradients are wanted.
type Key = (OpCall, Op, SmallVec<[DType; 6]>, SmallVec<[bool; 4]>);

impl BackwardWorks {
    /// Returns the backward of a call; `None` if no gradient is wanted, or if the op has no formula.
    pub(crate) fn of(
        &mut self,
        table: &OpTable,
        (call, op): (&OpCall, &Op),
        dtypes: SmallVec<[DType; 6]>,
        wanted: &[bool],
    ) -> Option<Arc<BackwardWork>> {
        if !wanted.contains(&true) {
            return None;
        }
        // The key of a random op changes no work.
        let call = match call.argument("key") {
            Some(_) => call.clone().with("key", Argument::Numbers(vec![0])),
            None => call.clone(),
        };
        let key = (call, op.clone(), dtypes, SmallVec::from_slice(wanted));
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let made = BackwardWork::of(table, &key).ok().map(Arc::new);
        self.known.insert(key, made.clone());
        made
    }
}

impl BackwardWork {
    fn of(table: &OpTable, (call, op, dtypes, wanted): &Key) -> Result<BackwardWork, Error> {
        let shapes: Vec<&[usize]> = op.inputs().iter().map(Vec::as_slice).collect();
        let gradient = table.gradient(call, &shapes)?;
        let mut work = BackwardWork {
            values: Vec::new(),
            saved: gradient.inputs().to_vec(),
            lines: Vec::new(),
            gradients: Vec::new(),
        };
        let Some(body) = gradient.body() else { return Ok(work) };
        let inner = gradient.inner_values(wanted);
        for saved in gradient.inputs() {
            let operand = match *saved {
                Saved::Input(i) => i,
                Saved::Output(o) | Saved::Gradient(o) => op.inputs().len() + o,
            };
            let shape = op.inputs().iter().chain(op.outputs()).nth(operand).cloned().unwrap_or_default();
            work.values.push(Held { shape, dtype: dtypes[operand], inner: false });
        }
        for (called, takes, _) in body.calls() {
            work.add(table, &of_dtype(called, dtypes[0]), takes, &inner)?;
        }
        // Lines in reverse, of which some make only gradients that are not wanted.
        let mut used = vec![false; work.values.len()];
        for (input, gives) in gradient.input_gradients().iter().enumerate() {
            let Some(output) = gives.filter(|_| wanted[input]) else { continue };
            let mut made = body.output_values()[output];
            used[made] = true;
            if work.values[made].dtype != dtypes[input] {
                let word = Argument::Word(dtypes[input].name().to_owned());
                work.add(table, &OpCall::new("cast").with("dtype", word), &[made], &[])?;
                made = work.values.len() - 1;
                used.push(true);
            }
            work.gradients.push((made, input));
        }
        for n in (0..work.lines.len()).rev() {
            if work.lines[n].makes.iter().any(|&v| used[v]) {
                work.lines[n].takes.iter().for_each(|&v| used[v] = true);
            } else {
                work.lines.remove(n);
            }
        }
        Ok(work)
    }

    fn add(&mut self, table: &OpTable, call: &OpCall, takes: &[usize], inner: &[bool]) -> Result<(), Error> {
        let shapes: Vec<&[usize]> = takes.iter().map(|&v| self.values[v].shape.as_slice()).collect();
        let op = table.op(call, &shapes)?;
        let dtypes: Vec<DType> = takes.iter().map(|&v| self.values[v].dtype).collect();
        let first = self.values.len();
        for (shape, dtype) in op.outputs().iter().zip(table.result_dtypes(call, &dtypes, op.outputs().len()))
        {
            let inner = inner.get(self.values.len()).copied().unwrap_or(false);
            self.values.push(Held { shape: shape.clone(), dtype, inner });
        }
        self.lines.push(Line { op, takes: takes.to_vec(), makes: (first..self.values.len()).collect() });
        Ok(())
    }

    /// Returns the operands of the op that its backward reads.
    pub(crate) fn reads(&self) -> Vec<Saved> {
        let is_read = |n: &usize| self.lines.iter().any(|line| line.takes.contains(n));
        (0..self.saved.len()).filter(is_read).map(|n| self.saved[n]).collect()
    }

    /// Returns the work on shards of the op's inputs and outputs.
    pub(crate) fn local(&self, inputs: &[Local], outputs: &[Local], rates: &ComputeRates) -> Work {
        let mut shards: Vec<Local> = self.values.iter().map(|held| Local::from_slice(&held.shape)).collect();
        for (shard, saved) in shards.iter_mut().zip(&self.saved) {
            *shard = match *saved {
                Saved::Input(i) => inputs[i].clone(),
                Saved::Output(o) | Saved::Gradient(o) => outputs[o].clone(),
            };
        }
        for &(made, input) in &self.gradients {
            shards[made].clone_from(&inputs[input]);
        }
        for line in &self.lines {
            self.follow(line, &mut shards, &line.makes);
        }
        for line in self.lines.iter().rev() {
            self.follow(line, &mut shards, &line.takes);
        }
        let (mut work, mut shares) = (Work::default(), Vec::with_capacity(self.lines.len()));
        for line in &self.lines {
            let share = self.follow(line, &mut shards, &line.makes);
            shares.push(share);
        }
        for (n, stored) in self.stored(&shards).into_iter().enumerate() {
            let Some(stored) = stored else { continue };
            let line = &self.lines[n];
            let operations = line.op.operations() * shares[n];
            work.operations += operations;
            work.us += self.time_us((line, &stored), operations, 1.0, &shards, rates);
        }
        work
    }

    /// Returns the least compute time over all shardings on this number of ranks.
    pub(crate) fn least_us(&self, ranks: f64, rates: &ComputeRates) -> f64 {
        let whole: Vec<Local> = self.values.iter().map(|held| Local::from_slice(&held.shape)).collect();
        let ones: Vec<Local> = self.values.iter().map(|held| smallvec![1; held.shape.len()]).collect();
        let us = |(line, stored): (&Line, Option<Vec<bool>>)| {
            let operations = line.op.operations() / ranks;
            stored.map_or(0.0, |stored| self.time_us((line, &stored), operations, ranks, &whole, rates))
        };
        self.lines.iter().zip(self.stored(&ones)).map(us).sum()
    }

    /// Returns for each line the operands in memory; `None` for lines that leave every rank's data unchanged.
    fn stored(&self, shards: &[Local]) -> Vec<Option<Vec<bool>>> {
        let line = |line| (self.leaves_all(line, shards), line);
        let lines: Vec<(bool, &Line)> = self.lines.iter().map(line).collect();
        let statements: Vec<InKernel<'_, usize>> =
            lines.iter().map(|(is_view, line)| (&line.takes[..], &line.makes[..], *is_view)).collect();
        let stored = stored_operands(&statements, |v| self.values[v].inner);
        lines.iter().zip(stored).map(|((is_view, _), stored)| (!is_view).then_some(stored)).collect()
    }

    fn time_us(
        &self,
        (line, stored): (&Line, &[bool]),
        operations: f64,
        ranks: f64,
        shards: &[Local],
        rates: &ComputeRates,
    ) -> f64 {
        let values = || line.takes.iter().chain(&line.makes);
        let Some(dtype) = values().map(|&v| self.values[v].dtype).find(|dtype| !dtype.is_integral()) else {
            return 0.0;
        };
        let bytes = values().zip(stored).filter(|(_, stored)| **stored).map(|(&v, _)| {
            let elements = shards[v].iter().fold(1u64, |n, &m| n.saturating_mul(m as u64));
            elements.saturating_mul(self.values[v].dtype.bits() as u64).div_ceil(8)
        });
        let bytes = bytes.fold(0, u64::saturating_add) as f64 / ranks;
        rates.time_us(dtype, operations, bytes as u64)
    }

    /// Returns `true` if a line leaves every rank's data unchanged, as `Statement::Op` states.
    fn leaves_all(&self, line: &Line, shards: &[Local]) -> bool {
        if line.op.is_view() {
            return true;
        }
        let (&[from], &[to]) = (line.takes.as_slice(), line.makes.as_slice()) else { return false };
        self.values[from].dtype == self.values[to].dtype && line.op.is_local_noop(&shards[from], &shards[to])
    }

    /// Makes shards of some operands as small as those of the others, and returns the rank's share of the work.
    fn follow(&self, line: &Line, shards: &mut [Local], smaller: &[usize]) -> f64 {
        let Some(bound) = bound_of(&line.op) else {
            let (from, to) = (line.takes[0], line.makes[0]);
            let (from, to) = if smaller == line.takes.as_slice() { (to, from) } else { (from, to) };
            if to < self.saved.len() {
                return 1.0;
            }
            shard_of_view(
                (&self.values[from].shape, &shards[from].clone()),
                (&self.values[to].shape, &mut shards[to]),
            );
            return 1.0;
        };
        let operands = || line.takes.iter().chain(&line.makes).copied();
        if bound.dims.len() < operands().count() {
            return self.follow_first(line, shards, smaller);
        }
        let mut parts: SmallVec<[usize; 8]> = bound.factors.iter().map(|f| f.size).collect();
        for (v, dims) in operands().zip(&bound.dims) {
            for ((dim, &whole), &part) in dims.iter().zip(&self.values[v].shape).zip(&shards[v]) {
                match dim.as_deref().unwrap_or_default() {
                    [] => {}
                    &[one] => parts[usize::from(one)] = parts[usize::from(one)].min(part),
                    several => {
                        let mut ways = whole.checked_div(part).unwrap_or(1);
                        for &f in several {
                            let size = bound.factors[usize::from(f)].size;
                            let here = gcd(ways, size).max(1);
                            parts[usize::from(f)] = parts[usize::from(f)].min(size / here);
                            ways /= here;
                        }
                    }
                }
            }
        }
        let follows = |v: &usize| smaller.contains(v) && *v >= self.saved.len();
        for (v, dims) in operands().zip(&bound.dims).filter(|(v, _)| follows(v)) {
            for (dim, part) in dims.iter().zip(&mut shards[v]) {
                if let Some(factors) = dim.as_deref().filter(|factors| !factors.is_empty()) {
                    *part = (*part).min(factors.iter().map(|&f| parts[usize::from(f)]).product());
                }
            }
        }
        parts.iter().zip(&bound.factors).map(|(&n, f)| n as f64 / f.size.max(1) as f64).product()
    }

    /// Does the same for an op that is a list of strategies: operands of one shape have one sharding.
    fn follow_first(&self, line: &Line, shards: &mut [Local], smaller: &[usize]) -> f64 {
        let numel = |dims: &[usize]| dims.iter().map(|&n| n as f64).product::<f64>();
        let mut share = 1.0;
        for &from in line.takes.iter().chain(&line.makes) {
            for &to in smaller.iter().filter(|to| **to >= self.saved.len()) {
                if self.values[from].shape == self.values[to].shape {
                    shards[to] = shards[to].iter().zip(&shards[from]).map(|(&a, &b)| a.min(b)).collect();
                }
            }
            share = f64::min(share, numel(&shards[from]) / numel(&self.values[from].shape).max(1.0));
        }
        share
    }
}

/// Returns a call of a formula for values of this dtype: a cast without a dtype is one to that of the input.
pub(crate) fn of_dtype(call: &OpCall, dtype: DType) -> Cow<'_, OpCall> {
    match call.name() {
        Some("cast") if call.argument("dtype").is_none() => {
            Cow::Owned(call.clone().with("dtype", Argument::Word(dtype.name().to_owned())))
        }
        Some(_) | None => Cow::Borrowed(call),
    }
}

/// Returns the shard of a value on the rank that has the most of it.
pub(crate) fn shard(sharding: &Sharding) -> Local {
    let shape = sharding.max_local_shape();
    shape.map_or_else(|| Local::from_slice(sharding.shape()), |shape| Local::from_slice(&shape))
}

/// Makes a shard of a view as small as that of its operand: the major dims of a group are sharded first.
fn shard_of_view((from, has): (&[usize], &[usize]), (to, shard): (&[usize], &mut Local)) {
    let (mut i, mut j) = (0, 0);
    while i < from.len() && j < to.len() {
        let (first, start) = (i, j);
        let (mut a, mut b) = (from[i], to[j]);
        while a != b {
            let next = if a < b { &mut i } else { &mut j };
            *next += 1;
            if i >= from.len() || j >= to.len() {
                return;
            }
            if a < b { a *= from[i] } else { b *= to[j] }
        }
        (i, j) = (i + 1, j + 1);
        let ways: usize = (first..i).map(|d| from[d].checked_div(has[d]).unwrap_or(1)).product();
        let mut ways = ways.max(1);
        for d in start..j {
            let here = gcd(ways, to[d]).max(1);
            shard[d] = shard[d].min(to[d] / here);
            ways /= here;
        }
    }
}
