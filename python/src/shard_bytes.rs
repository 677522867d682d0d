//! Shards as bytes of any element type: what a rank holds of a whole tensor, and the whole that shards mean.

use bytemuck::Pod;
use reshard_collectives::threads;
use reshard_kernels::DType;
use reshard_planner::Planner;
use reshard_sharding::{ReduceOp, Sharding, meaning};

use crate::failure::{Answer, Failure, refused};

fn elements<T: Pod>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

/// The bits of 1.
fn one(dtype: DType) -> Answer<u64> {
    Ok(match dtype {
        DType::F64 => 1f64.to_bits(),
        DType::F32 => 1f32.to_bits().into(),
        DType::BF16 => 0x3f80,
        DType::F16 => 0x3c00,
        DType::Bool
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64 => 1,
        DType::F4
        | DType::F6_E2M3
        | DType::F6_E3M2
        | DType::F8_E5M2
        | DType::F8_E4M3
        | DType::F8_E8M0
        | DType::F8_E4M3FNUZ
        | DType::F8_E5M2FNUZ
        | DType::C64 => {
            return Err(refused("unsupported", format!("no input of {dtype} lies in factors of a product")));
        }
    })
}

fn shard_as<T: Pod>(
    sharding: &Sharding,
    rank: usize,
    whole: &[u8],
    identity: Option<u64>,
) -> Answer<Vec<u8>> {
    let whole: Vec<T> = elements(whole);
    let shard: Vec<T> = match identity {
        Some(bits) => {
            let identity = bytemuck::pod_read_unaligned::<T>(&bits.to_le_bytes()[..size_of::<T>()]);
            meaning::shard(sharding, rank, &whole, identity)?
        }
        None => meaning::held(sharding, rank)?.into_iter().map(|element| whole[element]).collect(),
    };
    Ok(bytemuck::cast_slice(&shard).to_vec())
}

/// What a rank holds of a tensor: of terms the first rank has all and the others what changes nothing, or all have the same where that
/// is a term, too.
pub(crate) fn shard(sharding: &Sharding, rank: usize, dtype: DType, whole: &[u8]) -> Answer<Vec<u8>> {
    let identity = match sharding.partial().first().map(|terms| terms.op) {
        None | Some(ReduceOp::Sum | ReduceOp::Norm(_)) => Some(0),
        Some(ReduceOp::Prod) => Some(one(dtype)?),
        Some(ReduceOp::Avg | ReduceOp::Min | ReduceOp::Max) => None,
    };
    match dtype.item_bytes()? {
        1 => shard_as::<u8>(sharding, rank, whole, identity),
        2 => shard_as::<u16>(sharding, rank, whole, identity),
        4 => shard_as::<u32>(sharding, rank, whole, identity),
        _ => shard_as::<u64>(sharding, rank, whole, identity),
    }
}

fn meaning_as<T: Pod + meaning::Term>(sharding: &Sharding, shards: &[Vec<u8>]) -> Answer<Vec<u8>> {
    let shards: Vec<Vec<T>> = shards.iter().map(|bytes| elements(bytes)).collect();
    Ok(bytemuck::cast_slice(&meaning::meaning(sharding, &shards)?).to_vec())
}

/// The same of bits that are compared and never combined, as wider numbers.
fn meaning_of_bits<T: Pod>(
    sharding: &Sharding,
    shards: &[Vec<u8>],
    widen: impl Fn(T) -> i32,
    narrow: impl Fn(i32) -> T,
) -> Answer<Vec<u8>> {
    let wide = |bytes: &Vec<u8>| elements::<T>(bytes).into_iter().map(&widen).collect();
    let shards: Vec<Vec<i32>> = shards.iter().map(wide).collect();
    let whole: Vec<T> = meaning::meaning(sharding, &shards)?.into_iter().map(narrow).collect();
    Ok(bytemuck::cast_slice(&whole).to_vec())
}

/// The whole tensor that shards mean; refused where replicas differ in a bit.
pub(crate) fn meaning(sharding: &Sharding, dtype: DType, shards: &[Vec<u8>]) -> Answer<Vec<u8>> {
    match (dtype, sharding.is_partial()) {
        (DType::F64, true) => meaning_as::<f64>(sharding, shards),
        (DType::F32, true) => meaning_as::<f32>(sharding, shards),
        // Bits are compared, and combined only where they are terms.
        (_, false) => match dtype.item_bytes()? {
            1 => meaning_of_bits(sharding, shards, |bits: u8| bits.into(), |bits| bits as u8),
            2 => meaning_of_bits(sharding, shards, |bits: u16| bits.into(), |bits| bits as u16),
            4 => meaning_as::<i32>(sharding, shards),
            _ => meaning_as::<i64>(sharding, shards),
        },
        (_, true) => {
            let replicated = Sharding::replicated(sharding.mesh(), sharding.shape())?;
            let plan = Planner::new().plan(sharding, &replicated, dtype)?;
            let (whole, _) = threads::redistribute::<u8>(&plan, shards)
                .map_err(|error| -> Failure { refused("engine", error.to_string()) })?;
            whole.into_iter().next().ok_or_else(|| refused("engine", "a mesh has a rank"))
        }
    }
}
