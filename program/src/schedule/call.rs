//! An op as one rank calls it: with local shapes, and with regions if the op needs them.

use std::sync::Arc;

use reshard_kernels::DType;
use reshard_ops::rules::{OpCall, ShardRegion};
use reshard_planner::{Plan, Planner};
use reshard_sharding::{Region, Sharding};

use crate::comm_dtype::is_narrower;
use crate::program::{Statement, Value};
use crate::schedule::build::refused;
use crate::{Error, Program};

/// A rank's shard of a tensor: dense and row-major.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalTensor {
    /// The type of its elements.
    pub dtype: DType,
    /// The shape of the shard.
    pub shape: Vec<usize>,
    sharding: Sharding,
    rank: usize,
    /// The number of leading dims left out because the rank has one slice along them.
    skipped: usize,
}

impl LocalTensor {
    /// Returns the shard of a value on a rank of its mesh.
    pub(super) fn of(value: &Value, rank: usize) -> Result<LocalTensor, Error> {
        let sharding = value.ty.value.clone();
        let shape = sharding.local_shape(rank).map_err(|e| Error::of(&value.name, e))?.to_vec();
        Ok(LocalTensor { dtype: value.dtype, shape, sharding, rank, skipped: 0 })
    }

    /// Returns the size in bytes.
    ///
    /// Returns an error if it does not fit in `isize`.
    #[doc(hidden)]
    pub fn bytes(&self) -> Result<usize, Error> {
        let bits = self.shape.iter().try_fold(self.dtype.bits() as u128, |n, &m| n.checked_mul(m as u128));
        let bytes = bits.and_then(|bits| isize::try_from(bits.div_ceil(8)).ok());
        bytes.map(isize::unsigned_abs).ok_or_else(|| {
            let Self { dtype, shape, rank, .. } = self;
            refused(format!(
                "{dtype}{shape:?} on rank {rank} exceeds the address space; shard it over more ranks"
            ))
        })
    }

    /// Returns the global indices of the shard, or those within the slice on which a rank calls.
    pub fn region(&self) -> Result<ShardRegion, Error> {
        let whole = self.sharding.shape()[self.skipped..].to_vec();
        let all = self.sharding.region(self.rank)?;
        let region = Region { dims: all.dims.iter().skip(self.skipped).cloned().collect() };
        Ok(ShardRegion { region, whole })
    }

    /// Returns the first index of the rank along each of the first `dims` dims.
    fn first_indices(&self, dims: usize) -> Vec<usize> {
        let first = |dim: usize| self.region().ok()?.indices(dim).ok()?.first().copied();
        (0..dims).map(|dim| first(dim).unwrap_or_default()).collect()
    }

    /// Returns the same without the first `dims` dims, along which there is one slice.
    fn slice(mut self, dims: usize) -> LocalTensor {
        self.shape.drain(..dims);
        self.skipped += dims;
        self
    }
}

/// Returns the call of a rank that has exactly one slice of every operand.
///
/// Applies to calls [on each slice](reshard_ops::rules::Vmapped). The result is the inner call, and the number
/// of leading dims that each operand and result loses. So per-device code runs as it is written. Random
/// numbers are drawn by the key of the slice: `slice` returns its indices along the first dims of a result.
#[doc(hidden)]
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
/// Its arguments refer to the whole tensors: `view(shape=[4,6,8])` is the same call on every rank.
#[derive(Clone, Debug)]
pub struct LocalCall {
    /// The op and its arguments.
    pub call: OpCall,
    /// The inputs.
    pub inputs: Vec<LocalTensor>,
    /// The outputs.
    pub outputs: Vec<LocalTensor>,
    /// `true` for each operand that is read from memory or written to it, inputs before outputs.
    ///
    /// It is `false` for values [inside a kernel](crate::Value::inner), and where a kernel reads an operand again.
    pub(crate) stored: Vec<bool>,
    /// `true` if its result depends on the [region](LocalTensor::region) of its tensors.
    pub needs_region: bool,
    /// The number of operations of the rank with the most of them.
    pub operations: f64,
    /// `true` for an elementwise op.
    ///
    /// It may write its outputs over its inputs.
    pub is_elementwise: bool,
}

/// Returns the call of a rank with these operands, inputs first, reduced to one slice if possible.
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
    /// Returns the program with all real numbers in one dtype, and plans for it.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_program::Program;
    /// let text = "mesh x=2\nt: f32[8,2] R\ni: i64[4] S(0)\ne = embedding(t, i)\ny: R = e";
    /// let program = text.parse::<Program>()?.with_dtype(DType::F64)?;
    /// let dtypes: Vec<DType> = program.values().iter().map(|v| v.dtype).collect();
    /// assert_eq!(dtypes, [DType::F64, DType::I64, DType::F64, DType::F64]);
    /// assert_eq!(program.redistributions().map(|m| m.forward.received_bytes()).sum::<u64>(), 32);
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Integers, truth values and complex numbers keep their dtypes, which ops such as `embedding` need.
    ///
    /// Fails for a dtype of integers or truth values, and if a redistribution cannot be planned for the dtype.
    #[doc(hidden)]
    pub fn with_dtype(&self, dtype: DType) -> Result<Program, Error> {
        if dtype.is_integral() {
            return Err(Error::Graph {
                reason: format!(
                    "a program computes with real numbers, not with {dtype}; choose a dtype such as f64"
                ),
            });
        }
        self.retyped(dtype, |was| !was.is_integral() && was != DType::C64)
    }

    /// Returns the program with all values in one dtype, also integers and truth values, for engines with one type.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_program::Program;
    /// let program: Program = "mesh x=2\ni: i64[4] S(0)\nj: R = i".parse()?;
    /// let program = program.in_one_dtype(DType::F64)?;
    /// assert!(program.values().iter().all(|v| v.dtype == DType::F64));
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Its text need not round-trip, as ops that take integers or truth values do not take the dtype.
    ///
    /// Fails if a redistribution cannot be planned for the dtype.
    #[doc(hidden)]
    pub fn in_one_dtype(&self, dtype: DType) -> Result<Program, Error> {
        self.retyped(dtype, |_| true)
    }

    /// Returns the program with the values of some dtypes in this one.
    fn retyped(&self, dtype: DType, changes: impl Fn(DType) -> bool) -> Result<Program, Error> {
        let mut same = self.clone();
        for item in &mut same.statements {
            match item {
                Statement::Redistribute { from, to, forward, backward, via } => {
                    let (from, to) = (self.get(*from), self.get(*to));
                    if !changes(to.dtype) {
                        continue;
                    }
                    let was = via.take();
                    *via = was.filter(|via| is_narrower(*via, dtype));
                    let again = |plan: &Arc<Plan>, a: &Sharding, b: &Sharding| {
                        // A plan in a narrower dtype stays; one that would not be narrower becomes a plain
                        // redistribution.
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
        same.values.iter_mut().filter(|value| changes(value.dtype)).for_each(|value| value.dtype = dtype);
        Ok(same)
    }
}
