//! An exchange as launches, once all buffers have their addresses.
//!
//! ```text
//! moves            one launch of copies: all pieces of all peers
//! a reduction      one launch per piece if the terms lie alike in all peers' sources (they do where shards are even);
//!                  otherwise one per term and piece, in the order of the terms
//! fills            copies of an element that is repeated with stride 0, before anything lands
//! averages         part of the reduction's launch, or one division per piece after it
//! ```

use reshard_collectives::{Error, Exchange, ReceiveMessage, ReceiveOp, TypedNest};
use reshard_cuda::Command;
use reshard_kernels::{CombineOp, LoopNest};
use reshard_layout::Mode;

/// Where everything lies on the device.
pub(crate) struct Addresses<'a> {
    /// The source of a peer.
    pub(crate) source_of: &'a dyn Fn(usize) -> i64,
    /// This rank's target.
    pub(crate) target: i64,
    /// The elements that fills repeat, each in eight bytes.
    pub(crate) constants: i64,
}

/// What lands in a target from one peer, and where it lies before.
#[derive(Clone, Debug)]
pub struct Landing {
    /// Where the elements lie from `base` on, and in the target.
    pub pieces: Vec<TypedNest>,
    /// How each piece lands: it is combined, or it overwrites.
    pub ops: Vec<Option<CombineOp>>,
    /// An address, aligned to the elements.
    pub base: i64,
}

impl Landing {
    /// What a receive brings, straight from where the peer has it.
    pub fn of(receive: &ReceiveMessage, base: i64) -> Landing {
        let op = |one: &ReceiveOp| match one {
            ReceiveOp::Copy(_) => None,
            ReceiveOp::Combine(combine) => Some(combine.op()),
        };
        Landing { pieces: receive.pieces().to_vec(), ops: receive.moves().iter().map(op).collect(), base }
    }
}

/// The eight-byte slots of the elements that fills repeat.
pub fn constants(exchange: &Exchange) -> Vec<u8> {
    let slot = |item: &[u8]| {
        let mut slot = [0; 8];
        slot[..item.len()].copy_from_slice(item);
        slot
    };
    exchange.fills().iter().flat_map(|fill| slot(&fill.item)).collect()
}

/// The launches of one rank's part, in order.
pub(crate) fn lower(exchange: &Exchange, at: &Addresses<'_>) -> Result<Vec<Command>, Error> {
    let mut work = Vec::from_iter(copies(exchange, &fills(exchange, at.target, at.constants)?)?);
    let landing = |receive: &ReceiveMessage| Landing::of(receive, (at.source_of)(receive.peer()));
    let landings: Vec<Landing> = exchange.receives().iter().map(landing).collect();
    work.extend(landed(exchange, &landings, at.target)?);
    Ok(work)
}

/// What is copied into the target before anything lands, in bytes: elements at `constants` that are repeated.
pub fn fills(exchange: &Exchange, target: i64, constants: i64) -> Result<Vec<LoopNest>, Error> {
    let fills = exchange.fills().iter().enumerate().map(|(i, fill)| {
        let mut nest = fill.piece.nest.clone();
        nest.source_offset = 0;
        nest.modes.iter_mut().for_each(|mode| mode.stride.0 = 0);
        in_bytes(&TypedNest { nest, dtype: fill.piece.dtype }, constants + 8 * i as i64, target)
    });
    fills.collect()
}

/// The launches by which everything lands that is to land, and by which averages are divided.
///
/// Requires of a reduction all landings, in the order of the exchange's receives.
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

/// The device's error, with its place.
pub fn engine(exchange: &Exchange, error: &reshard_cuda::Error) -> Error {
    Error::Engine { rank: exchange.rank(), message: format!("{error} in {}", exchange.place()) }
}

/// A piece as bytes from address 0.
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

/// Copies in one launch; none if there is nothing to copy.
pub fn copies(exchange: &Exchange, nests: &[LoopNest]) -> Result<Option<Command>, Error> {
    Command::copies(nests).map_err(|e| engine(exchange, &e))
}

/// The pieces of a reduction whose terms lie alike, each with its op; `None` if they do not, or combine into a fill.
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
    // The only term: any op gives it back.
    let op = |i: usize| rest.first().map_or(Some(CombineOp::Sum), |landing| landing.ops[i]);
    if !exchange.fills().is_empty() || !all_divided || !overwrites || !rest.iter().all(same) {
        return None;
    }
    let arithmetic = |i: usize, op: CombineOp| first.pieces[i].dtype.check_combine(op).is_ok();
    (0..first.pieces.len()).map(|i| Some((i, op(i).filter(|&op| arithmetic(i, op))?))).collect()
}

/// One piece of all terms.
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

/// One term.
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
