//! An exchange as launches, once all buffers have their addresses.
//!
//! ```text
//! moves            one launch of copies: all pieces of all peers
//! a reduction      one launch per piece if the terms lie alike in all peers' sources (they do where shards are even);
//!                  otherwise one per term and piece, in the order of the terms
//! fills            copies of an element that is repeated with stride 0, before anything lands
//! averages         part of the reduction's launch, or one division per piece after it
//! ```

use reshard_collectives::{Error, Exchange, Move, Piece, Receive};
use reshard_cuda::Work;
use reshard_kernels::{CombineOp, Loop, Nest};

/// Where everything lies on the device.
pub(crate) struct Addresses<'a> {
    /// The source of a peer.
    pub(crate) source_of: &'a dyn Fn(usize) -> i64,
    /// This rank's target.
    pub(crate) target: i64,
    /// The elements that fills repeat, each in eight bytes.
    pub(crate) constants: i64,
}

/// The eight-byte slots of the elements that fills repeat.
pub(crate) fn constants(exchange: &Exchange) -> Vec<u8> {
    let slot = |item: &[u8]| {
        let mut slot = [0; 8];
        slot[..item.len()].copy_from_slice(item);
        slot
    };
    exchange.fills().iter().flat_map(|fill| slot(&fill.item)).collect()
}

/// The launches of one rank's part, in order.
pub(crate) fn lower(exchange: &Exchange, at: &Addresses<'_>) -> Result<Vec<Work>, Error> {
    let mut work = Vec::new();
    let fills = exchange.fills().iter().enumerate().map(|(i, fill)| {
        let mut nest = fill.piece.nest.clone();
        nest.source_offset = 0;
        nest.loops.iter_mut().for_each(|l| l.source_stride = 0);
        in_bytes(&Piece { nest, dtype: fill.piece.dtype }, at.constants + 8 * i as i64, at.target)
    });
    work.extend(copies(exchange, &fills.collect::<Result<Vec<Nest>, Error>>()?)?);
    if !exchange.is_reduction() {
        let pieces = exchange.receives().iter().flat_map(|receive| {
            let source = (at.source_of)(receive.peer());
            receive.pieces().iter().map(move |piece| in_bytes(piece, source, at.target))
        });
        work.extend(copies(exchange, &pieces.collect::<Result<Vec<Nest>, Error>>()?)?);
        return Ok(work);
    }
    let divided = if let Some(pieces) = alike(exchange) {
        let divisor = exchange.reduction().map_or(1, |reduction| reduction.divisor);
        for (piece, op) in pieces {
            work.extend(reduced(exchange, at, piece, op, divisor)?);
        }
        divisor != 1
    } else {
        for receive in exchange.receives() {
            work.extend(term(exchange, receive, at)?);
        }
        false
    };
    for average in exchange.averages().iter().filter(|_| !divided) {
        let Piece { nest, dtype } = &average.piece;
        let divide = Work::divide(nest, *dtype, at.target, average.divisor);
        work.extend(divide.map_err(|e| engine(exchange, &e))?);
    }
    Ok(work)
}

pub(crate) fn engine(exchange: &Exchange, error: &reshard_cuda::Error) -> Error {
    Error::Engine { rank: exchange.rank(), message: format!("{error} in {}", exchange.place()) }
}

/// A piece as bytes from address 0.
fn in_bytes(piece: &Piece, source: i64, target: i64) -> Result<Nest, Error> {
    let item = piece.dtype.item_bytes()?;
    let mut nest = piece.nest.scale(item)?;
    nest.loops.push(Loop::new(item, 1, 1));
    let moved = |offset: i64, by: i64| {
        offset.checked_add(by).ok_or(reshard_kernels::Error::Overflow { what: "an address" })
    };
    nest.source_offset = moved(nest.source_offset, source)?;
    nest.target_offset = moved(nest.target_offset, target)?;
    Ok(nest)
}

fn copies(exchange: &Exchange, nests: &[Nest]) -> Result<Option<Work>, Error> {
    Work::copies(nests).map_err(|e| engine(exchange, &e))
}

/// The pieces of a reduction whose terms lie alike, each with its op; `None` if they do not, or combine into a fill.
fn alike(exchange: &Exchange) -> Option<Vec<(usize, CombineOp)>> {
    let (first, rest) = exchange.receives().split_first()?;
    let all_divided = exchange.averages().is_empty() || exchange.reduction().is_some();
    let overwrites = first.moves().iter().all(|one| matches!(one, Move::Copy(_)));
    let same = |receive: &Receive| {
        receive.pieces().len() == first.pieces().len()
            && receive.pieces().iter().zip(first.pieces()).all(|(a, b)| {
                a.dtype == b.dtype
                    && a.nest.loops == b.nest.loops
                    && a.nest.target_offset == b.nest.target_offset
            })
    };
    let op = |i: usize| match rest.first().map(|receive| &receive.moves()[i]) {
        Some(Move::Combine(combine)) => Some(combine.op()),
        // The only term: any op gives it back.
        None => Some(CombineOp::Sum),
        Some(Move::Copy(_)) => None,
    };
    if !exchange.fills().is_empty() || !all_divided || !overwrites || !rest.iter().all(same) {
        return None;
    }
    let arithmetic = |i: usize, op: CombineOp| first.pieces()[i].dtype.check_combine(op).is_ok();
    (0..first.pieces().len()).map(|i| Some((i, op(i).filter(|&op| arithmetic(i, op))?))).collect()
}

/// One piece of all terms.
fn reduced(
    exchange: &Exchange,
    at: &Addresses<'_>,
    piece: usize,
    op: CombineOp,
    divisor: usize,
) -> Result<Vec<Work>, Error> {
    let Piece { mut nest, dtype } = exchange.receives()[0].pieces()[piece].clone();
    let item = dtype.item_bytes()? as i64;
    nest.source_offset = 0;
    let base = |receive: &Receive| {
        (at.source_of)(receive.peer()) + receive.pieces()[piece].nest.source_offset * item
    };
    let bases: Vec<i64> = exchange.receives().iter().map(base).collect();
    Work::reduce(&nest, dtype, op, &bases, at.target, divisor).map_err(|e| engine(exchange, &e))
}

/// One term.
fn term(exchange: &Exchange, receive: &Receive, at: &Addresses<'_>) -> Result<Vec<Work>, Error> {
    let source = (at.source_of)(receive.peer());
    let (mut work, mut moved) = (Vec::new(), Vec::new());
    for (piece, one) in receive.pieces().iter().zip(receive.moves()) {
        match one {
            Move::Copy(_) => moved.push(in_bytes(piece, source, at.target)?),
            Move::Combine(combine) => {
                let combined = Work::combine(&piece.nest, piece.dtype, combine.op(), source, at.target);
                work.extend(combined.map_err(|e| engine(exchange, &e))?);
            }
        }
    }
    work.extend(copies(exchange, &moved)?);
    Ok(work)
}
