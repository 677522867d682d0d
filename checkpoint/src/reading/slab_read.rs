//! A block of a tensor in memory, assembled from the files that have parts of it.

use crate::bytes;
use crate::bytes::checksum::{Sum, checksum};
use crate::bytes::pieces::{path, read};
use crate::error::Error;
use crate::job::decision::Move;
use crate::model::checkpoint::Data;
use crate::model::copies::{Stretch, copies};
use crate::model::slab::Slab;
use crate::reading::Source;

/// The buffers of one thread, reused for every block.
#[derive(Default)]
pub(crate) struct Buffers {
    /// The bytes of the block.
    pub(crate) slab: Vec<u8>,
    /// The bytes of a part of it.
    pub(crate) part: Vec<u8>,
    /// A replica of that part.
    replica: Vec<u8>,
}

/// Assembles a block in `buffers.slab`; returns how many of its elements became infinite.
pub(crate) fn assemble(source: &Source<'_>, slab: &Slab, buffers: &mut Buffers) -> Result<u64, Error> {
    gather(source, slab, buffers, |_, _, _, _| Ok(()))
}

/// Assembles a block, and checks all bytes of all ranks.
///
/// Replicas are compared, and each region's bytes are added to its checksum if the manifest has one.
pub(crate) fn assemble_checked(
    tensor: &Move<'_>,
    source: &Source<'_>,
    sums: &[Sum],
    slab: &Slab,
    buffers: &mut Buffers,
) -> Result<u64, Error> {
    gather(source, slab, buffers, |region, at, part, replica| {
        if tensor.tensor.sum(region).is_some() {
            let len = source.files[source.placed.holders[region][0]].len();
            sums[region].add(checksum(part), len - at - part.len());
        }
        let (first, others) = source.placed.holders[region].split_at(1);
        for other in others {
            bytes::resize(replica, part.len())?;
            read(&source.files[*other], at, replica)?;
            if replica[..part.len()] != *part {
                return Err(differ(tensor, source, [first[0], *other]));
            }
        }
        Ok(())
    })
}

/// Returns the error for replicas that differ.
fn differ(tensor: &Move<'_>, source: &Source<'_>, places: [usize; 2]) -> Error {
    let both = match &tensor.tensor.data {
        Data::Shards { .. } => {
            let rank = |place| tensor.unit_from.mesh().ranks().nth(place).unwrap_or_default();
            format!("ranks {} and {}", rank(places[0]), rank(places[1]))
        }
        Data::Whole(_) | Data::Chunks { .. } => {
            format!("{} and {}", path(&source.files[places[0]]), path(&source.files[places[1]]))
        }
    };
    let message = format!("{both} should hold the same bytes, but do not");
    Error::mismatch("replicas", message)
}

/// Assembles a block; calls `seen` for each region.
///
/// The arguments of `seen` are the region's number, the offset of the part in its file, the part, and a spare
/// buffer.
fn gather(
    source: &Source<'_>,
    slab: &Slab,
    buffers: &mut Buffers,
    mut seen: impl FnMut(usize, usize, &[u8], &mut Vec<u8>) -> Result<(), Error>,
) -> Result<u64, Error> {
    let item_bytes = source.item_bytes;
    let slab = &slab.with_items(item_bytes);
    let Buffers { slab: whole, part: room, replica } = buffers;
    bytes::resize(whole, slab.len)?;
    for (number, region) in source.placed.regions.iter().enumerate() {
        let Some(part) = slab.part(region) else { continue };
        let Some(copies) = copies(&part.region, &slab.region, item_bytes) else { continue };
        let file = &source.files[source.placed.holders[number][0]];
        let at = part.bytes.start;
        if copies.shortest() == part.bytes.len() {
            copies.each(&mut |Stretch { to, len, .. }| {
                let part = &mut whole[to..to + len];
                read(file, at, part)?;
                seen(number, at, part, replica)
            })?;
            continue;
        }
        bytes::resize(room, part.bytes.len())?;
        read(file, at, room)?;
        seen(number, at, room, replica)?;
        copies.each(&mut |Stretch { from, to, len }| {
            whole[to..to + len].copy_from_slice(&room[from..from + len]);
            Ok::<(), Error>(())
        })?;
    }
    source.convert(whole)
}
