//! An op as one rank calls it: on local shapes, and on regions where it has to know them.

use std::sync::Arc;

use reshard_kernels::DType;
use reshard_ops::rules::OpCall;
use reshard_ops::rules::verify::ShardRegion;
use reshard_planner::{Plan, Planner};
use reshard_sharding::{Region, Sharding};

use crate::program::{Statement, Value};
use crate::schedule::build::refused;
use crate::wire::is_narrower;
use crate::{Error, Program};

/// What a rank holds of a tensor: dense and row-major.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalTensor {
    /// The type of its elements.
    pub dtype: DType,
    /// The shape of what is held.
    pub shape: Vec<usize>,
    sharding: Sharding,
    rank: usize,
    /// How many of the first dims are left out, along which it is one slice.
    skipped: usize,
}

impl LocalTensor {
    /// What a rank of the value's mesh holds of it.
    pub(super) fn of(value: &Value, rank: usize) -> Result<LocalTensor, Error> {
        let sharding = value.ty.value.clone();
        let shape = sharding.local_shape(rank).map_err(|e| Error::of(&value.name, e))?.to_vec();
        Ok(LocalTensor { dtype: value.dtype, shape, sharding, rank, skipped: 0 })
    }

    /// Its bytes.
    ///
    /// Fails where they are more than can be counted.
    pub fn bytes(&self) -> Result<usize, Error> {
        let bits = self.shape.iter().try_fold(self.dtype.bits() as u128, |n, &m| n.checked_mul(m as u128));
        let bytes = bits.and_then(|bits| isize::try_from(bits.div_ceil(8)).ok());
        bytes.map(isize::unsigned_abs).ok_or_else(|| {
            let Self { dtype, shape, rank, .. } = self;
            refused(format!(
                "{dtype}{shape:?} on rank {rank} is more bytes than memory has: cut it over more ranks"
            ))
        })
    }

    /// Which indices of the whole tensor these are, or of the slice of it that a rank calls on.
    pub fn region(&self) -> Result<ShardRegion, Error> {
        let whole = self.sharding.shape()[self.skipped..].to_vec();
        let all = self.sharding.region(self.rank)?;
        let region = Region { dims: all.dims.iter().skip(self.skipped).cloned().collect() };
        Ok(ShardRegion { region, whole })
    }

    /// The first index that the rank has along each of so many first dims.
    fn first_indices(&self, dims: usize) -> Vec<usize> {
        let first = |dim: usize| self.region().ok()?.indices(dim).ok()?.first().copied();
        (0..dims).map(|dim| first(dim).unwrap_or_default()).collect()
    }

    /// The same without so many first dims, along which there is one slice.
    fn slice(mut self, dims: usize) -> LocalTensor {
        self.shape.drain(..dims);
        self.skipped += dims;
        self
    }
}

/// What a rank calls, where of a call [on each slice](reshard_ops::rules::Each) it has one slice of every operand: the call itself, and how many dims that
/// leaves out of each operand and result. So per-device code runs as it is written, and draws by the key of its slice, whose indices
/// along the first dims of a result are asked for.
pub fn on_one_slice(
    call: &OpCall,
    takes: &[&[usize]],
    makes: &[&[usize]],
    slice: impl FnOnce(usize) -> Vec<usize>,
) -> Option<(OpCall, Vec<usize>)> {
    let OpCall::Each(each) = call else { return None };
    let all = each.sizes().len();
    let dims: Vec<usize> =
        (0..takes.len()).map(|i| each.dims_of(i)).chain(makes.iter().map(|_| all)).collect();
    let one = |(shape, &dims): (&&[usize], &usize)| {
        shape.get(..dims).is_some_and(|own| own.iter().all(|&n| n == 1))
    };
    if !takes.iter().chain(makes).zip(&dims).all(one) {
        return None;
    }
    let draws = each.call().argument("key").is_some();
    Some((if draws { each.call().folded(&slice(all)) } else { each.call().clone() }, dims))
}

/// A call of an op on one rank.
///
/// Its arguments speak of the whole tensors: `view(shape=[4,6,8])` is the same call on every rank.
#[derive(Clone, Debug)]
pub struct LocalCall {
    /// What is called.
    pub call: OpCall,
    /// What it takes.
    pub inputs: Vec<LocalTensor>,
    /// What it makes.
    pub outputs: Vec<LocalTensor>,
    /// Whether it computes something else where it does not know [where its tensors lie](LocalTensor::region).
    pub needs_region: bool,
    /// Its operations, of the rank with most of them.
    pub operations: f64,
    /// Whether it works [element by element](reshard_ops::rules::Op::is_elementwise): then what it makes may be in the place of what it takes.
    pub is_elementwise: bool,
}

/// The call of a rank with these operands, inputs first, as it is made there.
pub(super) fn called(call: &OpCall, tensors: Vec<LocalTensor>, inputs: usize) -> (OpCall, Vec<LocalTensor>) {
    let shapes: Vec<&[usize]> = tensors.iter().map(|tensor| tensor.shape.as_slice()).collect();
    let (takes, makes) = shapes.split_at(inputs);
    let slice = |dims| tensors.get(inputs).map_or_else(Vec::new, |made| made.first_indices(dims));
    match on_one_slice(call, takes, makes, slice) {
        None => (call.clone(), tensors),
        Some((call, dims)) => {
            let slices = tensors.into_iter().zip(dims).map(|(tensor, dims)| tensor.slice(dims));
            (call, slices.collect())
        }
    }
}

impl Program {
    /// The same program with all its numbers in one type, and its moves planned for that: truth values and indices are numbers too.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_program::Program;
    /// let program: Program = "mesh x=2\ni: i64[4] S(0)\nj: R = i".parse()?;
    /// let program = program.in_dtype(DType::F64)?;
    /// assert!(program.values().iter().all(|v| v.dtype == DType::F64));
    /// assert_eq!(program.moves().map(|m| m.forward.received_bytes()).sum::<u64>(), 16);
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Fails where a move cannot be planned for it.
    pub fn with_dtype(&self, dtype: DType) -> Result<Program, Error> {
        let mut same = self.clone();
        for item in &mut same.statements {
            match item {
                Statement::Redistribute { from, to, forward, backward, via } => {
                    let (from, to) = (self.get(*from), self.get(*to));
                    let was = via.take();
                    *via = was.filter(|via| is_narrower(*via, dtype));
                    let again = |plan: &Arc<Plan>, a: &Sharding, b: &Sharding| {
                        // What travels narrower still does, and what would not is an ordinary move.
                        let stays = Some(plan.dtype()) == *via || (was.is_none() && plan.dtype() == dtype);
                        if stays {
                            return Ok(Arc::clone(plan));
                        }
                        let planner = Planner::from(plan.options().clone());
                        planner.plan(a, b, dtype).map(Arc::new).map_err(|e| Error::of(&to.name, e))
                    };
                    *forward = again(forward, &from.ty.value, &to.ty.value)?;
                    let back = backward.as_ref().zip(to.ty.gradient.as_ref().zip(from.ty.gradient.as_ref()));
                    *backward = back.map(|(plan, (a, b))| again(plan, a, b)).transpose()?;
                }
                Statement::Input(_) | Statement::Op { .. } | Statement::NoGrad => {}
            }
        }
        same.values.iter_mut().for_each(|value| value.dtype = dtype);
        Ok(same)
    }
}
