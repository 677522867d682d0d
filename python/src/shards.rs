//! Shards of whole tensors and back, by the definition, for every element type.
//!
//! ```text
//! bytes     scatter_bytes: global tensor -> shards     meaning_bytes: shards of all ranks -> global tensor
//! arrays    scatter, meaning: the same on borrowed Python arrays, with new arrays as results
//! ```

use core::fmt;
use std::marker::PhantomData;

use pyo3::prelude::*;
use pyo3::types::PyList;
use reshard_kernels::{DType, LoopNest, PreparedCombine, PreparedDivide};
use reshard_planner::Arithmetic;
use reshard_planner::internal::combine_op;
use reshard_sharding::shards::Reducible;
use reshard_sharding::{ReduceOp, Sharding};

use crate::buffers::{Lent, make};
use crate::element_text::element_text;
use crate::failure::{Answer, Failure, mismatched};

/// The bytes of one element.
#[derive(Clone, Copy, PartialEq)]
struct Element<K, const N: usize>([u8; N], PhantomData<K>);

/// Prints the element as a number, since messages show the elements that differ.
impl<K: Kind, const N: usize> fmt::Debug for Element<K, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&element_text(K::DTYPE, &self.0))
    }
}

/// The element type of the bytes.
trait Kind: Copy + PartialEq {
    const DTYPE: DType;
}

/// The nest of one element.
fn one() -> LoopNest {
    LoopNest::new(0, 0, [])
}

impl<K: Kind, const N: usize> Reducible for Element<K, N> {
    // `Arithmetic::check` was called before, so a kernel can be made and accepts one element.
    fn combine(op: ReduceOp, mut a: Self, b: Self) -> Self {
        if let Ok(kernel) = PreparedCombine::new(&one(), K::DTYPE, combine_op(op)) {
            let _ = kernel.run(&mut a.0, &b.0);
        }
        a
    }

    fn divide(mut self, n: usize) -> Self {
        if let Ok(kernel) = PreparedDivide::new(&one(), K::DTYPE, n) {
            let _ = kernel.run(&mut self.0);
        }
        self
    }

    fn same(self, other: Self) -> bool {
        self.0 == other.0
    }
}

/// Splits bytes into elements.
fn elements<const N: usize>(bytes: &[u8]) -> Vec<[u8; N]> {
    bytes.as_chunks::<N>().0.to_vec()
}

fn scattered<const N: usize>(
    sharding: &Sharding,
    ranks: &[usize],
    whole: &[u8],
    identity: &[u8],
    targets: &mut [&mut [u8]],
) -> Result<(), reshard_sharding::Error> {
    let (whole, mut fill) = (elements::<N>(whole), [0; N]);
    fill.copy_from_slice(identity);
    for (&rank, target) in ranks.iter().zip(targets) {
        target.copy_from_slice(sharding.shard(rank, &whole, fill)?.as_flattened());
    }
    Ok(())
}

fn meant<K: Kind, const N: usize>(
    sharding: &Sharding,
    shards: &[&[u8]],
    target: &mut [u8],
) -> Result<(), reshard_sharding::Error> {
    let shards: Vec<Vec<Element<K, N>>> = shards
        .iter()
        .map(|shard| elements::<N>(shard).into_iter().map(|bytes| Element(bytes, PhantomData)).collect())
        .collect();
    let whole: Vec<[u8; N]> = sharding.assemble(&shards)?.into_iter().map(|element| element.0).collect();
    target.copy_from_slice(whole.as_flattened());
    Ok(())
}

macro_rules! kinds {
    ($($dtype:ident $bytes:literal),*) => {
        #[allow(non_camel_case_types, reason = "the names of the element types")]
        mod kind {
            $(
                #[derive(Clone, Copy, PartialEq)]
                pub(super) struct $dtype;
                impl super::Kind for $dtype {
                    const DTYPE: super::DType = super::DType::$dtype;
                }
            )*
        }

        /// `None` for elements whose bytes are shared; `item_bytes` rejects them before.
        fn scatter_of(dtype: DType) -> Option<Scatter> {
            match dtype {
                $(DType::$dtype => Some(scattered::<$bytes>),)*
                DType::F4 | DType::F6_E2M3 | DType::F6_E3M2 => None,
            }
        }

        fn meaning_of(dtype: DType) -> Option<Meaning> {
            match dtype {
                $(DType::$dtype => Some(meant::<kind::$dtype, $bytes>),)*
                DType::F4 | DType::F6_E2M3 | DType::F6_E3M2 => None,
            }
        }
    };
}

type Scatter = fn(&Sharding, &[usize], &[u8], &[u8], &mut [&mut [u8]]) -> Result<(), reshard_sharding::Error>;
type Meaning = fn(&Sharding, &[&[u8]], &mut [u8]) -> Result<(), reshard_sharding::Error>;

kinds! {
    Bool 1, U8 1, I8 1, F8_E5M2 1, F8_E4M3 1, F8_E8M0 1, F8_E4M3FNUZ 1, F8_E5M2FNUZ 1,
    I16 2, U16 2, F16 2, BF16 2, I32 4, U32 4, F32 4, C64 8, F64 8, I64 8, U64 8
}

fn shared_bytes(dtype: DType) -> Failure {
    mismatched("dtype", format!("elements of {dtype} share bytes and cannot be sharded"))
}

/// Replaces partial values of an average, a minimum or a maximum by replicas.
///
/// Equal partial values of these ops are the value itself.
fn copied(sharding: &Sharding) -> Answer<Sharding> {
    let added = sharding.partial().iter().filter(|terms| match terms.op {
        ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Norm(_) => true,
        ReduceOp::Avg | ReduceOp::Min | ReduceOp::Max => false,
    });
    Ok(sharding.with_partial(added.copied())?)
}

/// Writes the shards of a global tensor, given as bytes.
///
/// Of a sum, a product or a norm the first rank gets the values and the others the identity, of an average, a
/// minimum or a maximum all ranks get the values. The global tensor and each target must have the number of
/// bytes of the sharding.
pub(crate) fn scatter_bytes(
    sharding: &Sharding,
    ranks: &[usize],
    dtype: DType,
    whole: &[u8],
    targets: &mut [&mut [u8]],
) -> Answer<()> {
    let scatter = scatter_of(dtype).ok_or_else(|| shared_bytes(dtype))?;
    let sharding = copied(sharding)?;
    let identity = match sharding.reduction() {
        Some((op, _)) => dtype.identity(combine_op(op))?.to_vec(),
        None => vec![0; dtype.element_bytes()?],
    };
    Ok(scatter(&sharding, ranks, whole, &identity, targets)?)
}

/// Writes the global tensor of shards, given as bytes in the order of the mesh's ranks.
///
/// An error if replicas differ.
pub(crate) fn meaning_bytes(
    sharding: &Sharding,
    dtype: DType,
    shards: &[&[u8]],
    target: &mut [u8],
) -> Answer<()> {
    Arithmetic::Kernels.check(sharding, dtype)?;
    let meaning = meaning_of(dtype).ok_or_else(|| shared_bytes(dtype))?;
    Ok(meaning(sharding, shards, target)?)
}

/// The element type of an array: the given one, else the array's own.
fn dtype_of(lent: &Lent, said: Option<DType>) -> DType {
    said.unwrap_or(lent.dtype())
}

/// The shards of a tensor for these ranks, as arrays like the one that is given.
pub(crate) fn scatter<'py>(
    sharding: &Sharding,
    array: &Bound<'py, PyAny>,
    ranks: &[usize],
    dtype: Option<DType>,
) -> Answer<Bound<'py, PyList>> {
    let py = array.py();
    let whole = Lent::new(array, "the tensor".to_owned())?;
    let dtype = dtype_of(&whole, dtype);
    whole.check(dtype, sharding.shape())?;
    let shapes = ranks.iter().map(|&rank| Ok(sharding.local_shape(rank)?.to_vec())).collect::<Answer<_>>()?;
    let made = make(array, whole.is_raw(dtype), dtype, shapes)?;
    let mut targets = ranks
        .iter()
        .zip(made.iter())
        .map(|(rank, target)| Lent::for_writing(&target, format!("the shard of rank {rank}")))
        .collect::<Answer<Vec<_>>>()?;
    let (bytes, mut targets): (_, Vec<&mut [u8]>) =
        (whole.bytes(), targets.iter_mut().map(Lent::bytes_mut).collect());
    py.detach(|| scatter_bytes(sharding, ranks, dtype, bytes, &mut targets))?;
    Ok(made)
}

/// Assembles the tensor of shards, as an array like the first.
pub(crate) fn meaning<'py>(
    sharding: &Sharding,
    shards: &[Bound<'py, PyAny>],
    dtype: Option<DType>,
) -> Answer<Bound<'py, PyAny>> {
    let size = sharding.mesh().size();
    let Some(first) = shards.first().filter(|_| shards.len() == size) else {
        let message = format!("{} shards were given but the mesh has {size} ranks", shards.len());
        return Err(mismatched("count", message));
    };
    let py = first.py();
    let lent = lend_shards(sharding, shards)?;
    let dtype = dtype_of(&lent[0], dtype);
    check_shards(sharding, &lent, dtype)?;
    let made = make(first, lent[0].is_raw(dtype), dtype, vec![sharding.shape().to_vec()])?.get_item(0)?;
    let mut target = Lent::for_writing(&made, "the tensor".to_owned())?;
    let (bytes, target): (Vec<&[u8]>, _) = (lent.iter().map(Lent::bytes).collect(), target.bytes_mut());
    py.detach(|| meaning_bytes(sharding, dtype, &bytes, target))?;
    Ok(made)
}

/// Holds the shards of a sharding, in the order of its ranks.
pub(crate) fn lend_shards(sharding: &Sharding, shards: &[Bound<'_, PyAny>]) -> Answer<Vec<Lent>> {
    let ranks = sharding.mesh().ranks();
    ranks.zip(shards).map(|(rank, shard)| Lent::new(shard, format!("the shard of rank {rank}"))).collect()
}

/// Succeeds if these are the shards of a sharding.
pub(crate) fn check_shards(sharding: &Sharding, shards: &[Lent], dtype: DType) -> Answer<()> {
    for (rank, shard) in sharding.mesh().ranks().zip(shards) {
        shard.check(dtype, &sharding.local_shape(rank)?)?;
    }
    Ok(())
}
