//! The ops of a schedule by candle's tensors.
//!
//! ```text
//! prepare   a call, its arguments and local shapes   ->   an Op, once
//! run       bytes of the arena -> tensors            ->   the Op -> bytes of the arena
//! ```
//!
//! Candle's tensors own their memory, so operands are copied out of the arena and the result is copied into it. What never changes, the
//! parameters, is copied out once: [`CandleKernels::hold`].

use std::collections::BTreeMap;
use std::sync::Arc;

use candle_core::{CpuStorage, DType, Device, Module, Storage, Tensor};
use candle_nn::{LayerNorm, Linear};
use reshard_ops::rules::{OpCall, OpTable, ShardRegion};
use reshard_program::schedule::{ArenaSlice, Kernels, LocalBuffer, LocalCall, LocalTensor};

/// Candle's ops on the CPU, for one rank.
#[derive(Debug)]
pub struct CandleKernels {
    /// The defaults of arguments that a call does not give.
    table: Arc<OpTable>,
    ready: Vec<Ready>,
    /// Tensors that never change, by their offset in the arena.
    held: BTreeMap<usize, Tensor>,
}

/// A call that is ready to run.
#[derive(Debug)]
struct Ready {
    op: Op,
    takes: Vec<(DType, Vec<usize>)>,
    makes: Vec<usize>,
}

/// The candle op of a call.
#[derive(Debug)]
enum Op {
    Add,
    DivScalar(f64),
    /// The rank's rows of the table, from this one on.
    Embedding {
        first: usize,
        rows: usize,
    },
    Gelu,
    LayerNorm {
        eps: f64,
    },
    Linear,
    Matmul,
    Narrow {
        dim: usize,
        start: usize,
        length: usize,
    },
    Permute(Vec<usize>),
    Softmax {
        dim: usize,
    },
    Transpose(usize, usize),
}

impl CandleKernels {
    /// The ops of this table.
    pub fn new(table: &Arc<OpTable>) -> CandleKernels {
        CandleKernels { table: Arc::clone(table), ready: Vec::new(), held: BTreeMap::new() }
    }

    /// Keeps an input that no run changes as a tensor.
    pub fn hold(&mut self, local: &LocalBuffer, bytes: &[u8]) -> candle_core::Result<()> {
        let LocalTensor { dtype, shape, .. } = &local.tensor;
        let tensor = Tensor::from_raw_buffer(bytes, element(*dtype)?, shape, &Device::Cpu)?;
        self.held.insert(local.slice.offset, tensor);
        Ok(())
    }

    /// Returns the operand at this position of the arena.
    fn operand(
        &self,
        (dtype, shape): &(DType, Vec<usize>),
        at: ArenaSlice,
        arena: &[u8],
    ) -> candle_core::Result<Tensor> {
        // A view of a held tensor has the same offset.
        if let Some(held) = self.held.get(&at.offset) {
            return held.reshape(shape.as_slice());
        }
        let bytes = arena.get(at.range()).ok_or_else(|| outside(at, arena.len()))?;
        Tensor::from_raw_buffer(bytes, *dtype, shape, &Device::Cpu)
    }
}

impl Kernels for CandleKernels {
    type Buffer = [u8];
    type Error = candle_core::Error;

    fn prepare(&mut self, call: &LocalCall) -> candle_core::Result<u32> {
        let op = Op::of(&self.table, call).map_err(candle_core::Error::wrap)?;
        let takes: candle_core::Result<Vec<(DType, Vec<usize>)>> =
            call.inputs.iter().map(|t| Ok((element(t.dtype)?, t.shape.clone()))).collect();
        let [LocalTensor { dtype: reshard_kernels::DType::F32, shape, .. }] = call.outputs.as_slice() else {
            let made: Vec<String> = call.outputs.iter().map(|t| t.dtype.to_string()).collect();
            let reason = format!("these kernels return one f32 tensor, not {}", made.join(" and "));
            return Err(candle_core::Error::msg(format!("{}: {reason}", call.call)));
        };
        self.ready.push(Ready { op, takes: takes?, makes: shape.clone() });
        u32::try_from(self.ready.len() - 1).map_err(|_| candle_core::Error::msg("there are 2^32 calls"))
    }

    fn run(&mut self, kernel: u32, args: &[ArenaSlice], arena: &mut [u8]) -> candle_core::Result<()> {
        let ready = self.ready.get(kernel as usize);
        let Some((Ready { op, takes, makes }, (to, from))) = ready.zip(args.split_last()) else {
            return Err(candle_core::Error::msg(format!("no kernel {kernel} with {} tensors", args.len())));
        };
        let operands: candle_core::Result<Vec<Tensor>> =
            takes.iter().zip(from).map(|(is, at)| self.operand(is, *at, arena)).collect();
        let made = op.run(&operands?)?;
        if made.dims() != makes {
            let reason = format!("{op:?} returned shape {:?}, expected {makes:?}", made.dims());
            return Err(candle_core::Error::msg(reason));
        }
        let held = arena.len();
        write(&made, arena.get_mut(to.range()).ok_or_else(|| outside(*to, held))?)
    }
}

impl Op {
    /// The op of a call.
    fn of(table: &OpTable, call: &LocalCall) -> reshard::Result<Op> {
        let refused = |reason: String| {
            reshard::Error::new(reshard::ErrorKind::Unsupported, "kernel", format!("{}: {reason}", call.call))
        };
        let OpCall::Named { name, .. } = &call.call else {
            return Err(refused("a rule has no kernel here; use named ops instead".to_owned()));
        };
        let places: Vec<ShardRegion> =
            call.inputs.iter().map(LocalTensor::region).collect::<Result<_, _>>()?;
        // Arguments refer to global tensors.
        let whole: Vec<&[usize]> = places.iter().map(|place| place.whole.as_slice()).collect();
        let ask = table.request(&call.call, &whole)?;
        Ok(match name.as_str() {
            "add" => Op::Add,
            "div_scalar" => Op::DivScalar(ask.real("value")?),
            "embedding" => match places.first().and_then(|table| table.region.dims.first()).map(|d| &d[..]) {
                Some([rows]) => Op::Embedding { first: rows.start, rows: rows.len },
                Some(_) | None => {
                    return Err(refused("the rows of a rank are not contiguous".to_owned()));
                }
            },
            "gelu" if ask.word("approximate")? == "none" => Op::Gelu,
            "layer_norm" if ask.size("last")? == 1 && !ask.has("dims")? => {
                Op::LayerNorm { eps: ask.real("eps")? }
            }
            "linear" => Op::Linear,
            "matmul" => Op::Matmul,
            "narrow" => {
                let dim = ask.dim("dim")?;
                if places.iter().any(|place| place.shape().get(dim) != place.whole.get(dim)) {
                    return Err(refused(format!("dim {dim} is sharded; all-gather it before narrow")));
                }
                Op::Narrow { dim, start: ask.size("start")?, length: ask.size("length")? }
            }
            "permute" => Op::Permute(ask.dims("dims")?),
            "softmax" => Op::Softmax { dim: ask.dim("dim")? },
            "transpose" => Op::Transpose(ask.dim("dim0")?, ask.dim("dim1")?),
            _ => return Err(refused("candle has no kernel for this call; add one to Op".to_owned())),
        })
    }

    /// Computes the result of the operands.
    fn run(&self, operands: &[Tensor]) -> candle_core::Result<Tensor> {
        let x = |i: usize| {
            operands.get(i).ok_or_else(|| candle_core::Error::Msg(format!("{self:?} has no operand {i}")))
        };
        match self {
            Op::Add => x(0)?.broadcast_add(x(1)?),
            Op::DivScalar(value) => x(0)? / *value,
            Op::Embedding { first, rows } => embedding(x(0)?, x(1)?, *first, *rows),
            Op::Gelu => x(0)?.gelu_erf(),
            Op::LayerNorm { eps } => LayerNorm::new(x(1)?.clone(), x(2)?.clone(), *eps).forward(x(0)?),
            Op::Linear => Linear::new(x(1)?.clone(), operands.get(2).cloned()).forward(x(0)?),
            Op::Matmul => x(0)?.matmul(x(1)?),
            Op::Narrow { dim, start, length } => x(0)?.narrow(*dim, *start, *length),
            Op::Permute(dims) => x(0)?.permute(dims.as_slice()),
            Op::Softmax { dim } => candle_nn::ops::softmax(x(0)?, *dim),
            Op::Transpose(a, b) => x(0)?.transpose(*a, *b),
        }
    }
}

/// Looks up the rows of these tokens: zeros where another rank has the row, so results are partial sums.
fn embedding(table: &Tensor, ids: &Tensor, first: usize, rows: usize) -> candle_core::Result<Tensor> {
    let (first, rows) = (i64::try_from(first)?, i64::try_from(rows)?);
    let row = ids.flatten_all()?.broadcast_sub(&Tensor::new(first, ids.device())?)?;
    let held = (row.ge(0_i64)? * row.lt(rows)?)?;
    let taken = table.index_select(&held.where_cond(&row, &row.zeros_like()?)?, 0)?;
    let taken = taken.broadcast_mul(&held.to_dtype(table.dtype())?.unsqueeze(1)?)?;
    taken.reshape([ids.dims(), &table.dims()[1..]].concat())
}

/// Candle's word for a type.
fn element(dtype: reshard_kernels::DType) -> candle_core::Result<DType> {
    if dtype == reshard_kernels::DType::F32 {
        Ok(DType::F32)
    } else if dtype == reshard_kernels::DType::I64 {
        Ok(DType::I64)
    } else {
        Err(candle_core::Error::msg(format!("these kernels support f32 and i64, not {dtype}")))
    }
}

/// Writes the numbers of a tensor to the arena.
fn write(made: &Tensor, bytes: &mut [u8]) -> candle_core::Result<()> {
    let made = made.contiguous()?;
    let (storage, layout) = made.storage_and_layout();
    let (Storage::Cpu(CpuStorage::F32(numbers)), Some((begin, end))) =
        (&*storage, layout.contiguous_offsets())
    else {
        return Err(candle_core::Error::msg("candle returned something other than f32 in host memory"));
    };
    for (number, at) in numbers[begin..end].iter().zip(bytes.chunks_exact_mut(4)) {
        at.copy_from_slice(&number.to_ne_bytes());
    }
    Ok(())
}

fn outside(at: ArenaSlice, bytes: usize) -> candle_core::Error {
    let ArenaSlice { offset, bytes: len } = at;
    candle_core::Error::msg(format!("{len} bytes at offset {offset} are outside an arena of {bytes} bytes"))
}
