//! An exchange as launches, once all buffers have their addresses.
//!
//! ```text
//! copies           one launch: all loop nests of all peers
//! a reduction      one launch per loop nest if the partial values have equal layouts in all peers' sources
//!                  (as for even shards); otherwise one per partial value and loop nest, in their order
//! fills            copies of an element that is repeated with stride 0, before any data arrives
//! averages         part of the reduction's launch, or one division per loop nest after it
//! ```

use reshard_collectives::{Error, Exchange, ReceiveMessage, ReceiveOp, TypedNest};
use reshard_cuda::Command;
use reshard_kernels::{CombineOp, LoopNest};
use reshard_layout::Mode;

/// The addresses of all buffers on the device.
pub(crate) struct Addresses<'a> {
    /// The source of a peer.
    pub(crate) source_of: &'a dyn Fn(usize) -> i64,
    /// This rank's target.
    pub(crate) target: i64,
    /// The elements that fills repeat, each in eight bytes.
    pub(crate) constants: i64,
}

/// The data that a target receives from one peer, and its location before.
#[derive(Clone, Debug)]
pub struct Landing {
    /// The offsets of the elements from `base` on, and in the target.
    pub pieces: Vec<TypedNest>,
    /// The op of each nest: it is combined with it, or overwrites if there is none.
    pub ops: Vec<Option<CombineOp>>,
    /// An address, aligned to the elements.
    pub base: i64,
}

impl Landing {
    /// Returns the data of a receive, read directly from the peer's source.
    pub fn of(receive: &ReceiveMessage, base: i64) -> Landing {
        let op = |one: &ReceiveOp| match one {
            ReceiveOp::Copy(_) => None,
            ReceiveOp::Combine(combine) => Some(combine.op()),
        };
        Landing { pieces: receive.pieces().to_vec(), ops: receive.ops().iter().map(op).collect(), base }
    }
}

/// Returns the elements that fills repeat, in slots of eight bytes.
pub fn constants(exchange: &Exchange) -> Vec<u8> {
    let slot = |item: &[u8]| {
        let mut slot = [0; 8];
        slot[..item.len()].copy_from_slice(item);
        slot
    };
    exchange.fills().iter().flat_map(|fill| slot(&fill.item)).collect()
}

/// Returns the launches of one rank's part, in order.
pub(crate) fn lower(exchange: &Exchange, at: &Addresses<'_>) -> Result<Vec<Command>, Error> {
    let mut work = Vec::from_iter(copies(exchange, &fills(exchange, at.target, at.constants)?)?);
    let landing = |receive: &ReceiveMessage| Landing::of(receive, (at.source_of)(receive.peer()));
    let landings: Vec<Landing> = exchange.receives().iter().map(landing).collect();
    work.extend(landed(exchange, &landings, at.target)?);
    Ok(work)
}

/// Returns the fill copies that run before any receive, in bytes: elements at `constants` that are repeated.
pub fn fills(exchange: &Exchange, target: i64, constants: i64) -> Result<Vec<LoopNest>, Error> {
    let fills = exchange.fills().iter().enumerate().map(|(i, fill)| {
        let mut nest = fill.piece.nest.clone();
        nest.source_offset = 0;
        nest.modes.iter_mut().for_each(|mode| mode.stride.0 = 0);
        in_bytes(&TypedNest { nest, dtype: fill.piece.dtype }, constants + 8 * i as i64, target)
    });
    fills.collect()
}

/// Returns the launches that write all received data, and that divide averages.
///
/// For a reduction, requires all landings in the order of the exchange's receives.
pub fn landed(exchange: &Exchange, landings: &[Landing], target: i64) -> Result<Vec<Command>, Error> {
    let mut work = Vec::new();
    if !exchange.is_reduction() {
        let pieces = landings.iter().flat_map(|landing| {
            landing.pieces.iter().map(move |piece| in_bytes(piece, landing.base, target))
        });
        work.extend(copies(exchange, &pieces.collect::<Result<Vec<LoopNest>, Error>>()?)?);
        return Ok(work);
    }
    let divided = if let Some(pieces) = alike(exchange, landings) {
        let divisor = exchange.reduction().map_or(1, |reduction| reduction.divisor);
        for (piece, op) in pieces {
            work.extend(reduced(exchange, landings, target, piece, op, divisor)?);
        }
        divisor != 1
    } else {
        for landing in landings {
            work.extend(term(exchange, landing, target)?);
        }
        false
    };
    for average in exchange.averages().iter().filter(|_| !divided) {
        let TypedNest { nest, dtype } = &average.piece;
        let divide = Command::divide(nest, *dtype, target, average.divisor);
        work.extend(divide.map_err(|e| engine(exchange, &e))?);
    }
    Ok(work)
}

/// Returns the device's error, with its location.
pub fn engine(exchange: &Exchange, error: &reshard_cuda::Error) -> Error {
    Error::Engine { rank: exchange.rank(), message: format!("{error} in {}", exchange.place()) }
}

/// Returns a nest in bytes from address 0.
///
/// Errors: addresses that overflow.
pub fn in_bytes(piece: &TypedNest, source: i64, target: i64) -> Result<LoopNest, Error> {
    let item = piece.dtype.element_bytes()?;
    let mut nest = piece.nest.scale(item)?;
    nest.modes.insert(0, Mode::new(item as i64, (1, 1)));
    let moved = |offset: i64, by: i64| {
        offset.checked_add(by).ok_or(reshard_kernels::Error::Overflow { what: "an address" })
    };
    nest.source_offset = moved(nest.source_offset, source)?;
    nest.target_offset = moved(nest.target_offset, target)?;
    Ok(nest)
}

/// Returns the copies as one launch; none if there is nothing to copy.
pub fn copies(exchange: &Exchange, nests: &[LoopNest]) -> Result<Option<Command>, Error> {
    Command::copies(nests).map_err(|e| engine(exchange, &e))
}

/// Returns the nests of a reduction whose partial values have equal nests, each with its op.
///
/// `None` if their nests differ, or if they combine into a fill.
fn alike(exchange: &Exchange, landings: &[Landing]) -> Option<Vec<(usize, CombineOp)>> {
    let (first, rest) = landings.split_first()?;
    let all_divided = exchange.averages().is_empty() || exchange.reduction().is_some();
    let overwrites = first.ops.iter().all(Option::is_none);
    let same = |landing: &Landing| {
        landing.pieces.len() == first.pieces.len()
            && landing.pieces.iter().zip(&first.pieces).all(|(a, b)| {
                a.dtype == b.dtype
                    && a.nest.modes == b.nest.modes
                    && a.nest.target_offset == b.nest.target_offset
            })
    };
    // The only partial value: every op returns it unchanged.
    let op = |i: usize| rest.first().map_or(Some(CombineOp::Sum), |landing| landing.ops[i]);
    if !exchange.fills().is_empty() || !all_divided || !overwrites || !rest.iter().all(same) {
        return None;
    }
    let arithmetic = |i: usize, op: CombineOp| first.pieces[i].dtype.check_combine(op).is_ok();
    (0..first.pieces.len()).map(|i| Some((i, op(i).filter(|&op| arithmetic(i, op))?))).collect()
}

/// Returns the launch of one nest of all partial values.
fn reduced(
    exchange: &Exchange,
    landings: &[Landing],
    target: i64,
    piece: usize,
    op: CombineOp,
    divisor: usize,
) -> Result<Vec<Command>, Error> {
    let TypedNest { mut nest, dtype } = landings[0].pieces[piece].clone();
    let item = dtype.element_bytes()? as i64;
    nest.source_offset = 0;
    let base = |landing: &Landing| landing.base + landing.pieces[piece].nest.source_offset * item;
    let bases: Vec<i64> = landings.iter().map(base).collect();
    Command::reduce(&nest, dtype, op, &bases, target, divisor).map_err(|e| engine(exchange, &e))
}

/// Returns the launches of one partial value.
fn term(exchange: &Exchange, landing: &Landing, target: i64) -> Result<Vec<Command>, Error> {
    let (mut work, mut moved) = (Vec::new(), Vec::new());
    for (piece, op) in landing.pieces.iter().zip(&landing.ops) {
        match op {
            None => moved.push(in_bytes(piece, landing.base, target)?),
            Some(op) => {
                let combined = Command::combine(&piece.nest, piece.dtype, *op, landing.base, target);
                work.extend(combined.map_err(|e| engine(exchange, &e))?);
            }
        }
    }
    work.extend(copies(exchange, &moved)?);
    Ok(work)
}
