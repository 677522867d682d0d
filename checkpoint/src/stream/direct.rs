//! Copies of long ranges from file to file by the operating system.
//!
//! It need not pass them through this process, and a file system that supports it shares the blocks.

use std::fs::{File, OpenOptions};
use std::path::Path;

use reshard_sharding::Region;
use rustix::fs::copy_file_range;
use rustix::io::Errno;

use crate::bytes::Access;
use crate::error::Error;
use crate::model::copies::{Copies, Stretch, copies};
use crate::model::slab::Slab;
use crate::stream::feed::Work;
use crate::stream::files::Files;

/// The shortest range that justifies a system call, in bytes.
const LONG: usize = 64 << 10;

/// The ranges of one input that go to one location of one output.
struct Way<'a> {
    file: usize,
    copies: Copies,
    /// The offset in the input of its part of the block.
    read: usize,
    path: &'a Path,
    write: u64,
}

/// Copies a block if all its ranges are long and the operating system can; returns `true` if it did.
pub(super) fn copy(work: &Work<'_>, slab: &Slab, files: &Files) -> Result<bool, Error> {
    let Some(ways) = ways(work, slab, files) else { return Ok(false) };
    for way in ways {
        let access = work.source.files[way.file].access()?;
        let output = OpenOptions::new().write(true).open(way.path);
        let output = output.map_err(|error| Error::io("writing", way.path, &error))?;
        let mut can = true;
        way.copies.each(&mut |Stretch { from, to, len }| {
            can = can && stretch(&access, way.read + from, &output, way.path, way.write + to as u64, len)?;
            Ok::<(), Error>(())
        })?;
        access.finish()?;
        if !can {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns all copies of a block; `None` if some range is short.
fn ways<'a>(work: &Work<'_>, slab: &Slab, files: &'a Files) -> Option<Vec<Way<'a>>> {
    let item_bytes = work.tensor.units.bytes;
    let mut ways = Vec::new();
    for (held, holders) in work.source.placed.regions.iter().zip(&work.source.placed.holders) {
        let Some(part) = slab.part(held) else { continue };
        let file = *holders.first()?;
        work.source.files[file].input()?;
        let long = |to: &Region| {
            copies(&part.region, to, item_bytes).map(|all| (all.shortest() >= LONG).then_some(all))
        };
        for (region, shard) in work.shards.iter().flat_map(|shards| shards.regions.iter().enumerate()) {
            let Some(target) = slab.part(shard) else { continue };
            for place in work.holders(region) {
                let Some(copies) = long(&target.region) else { break };
                let write = work.start(region, *place) + target.bytes.start as u64;
                ways.push(Way {
                    file,
                    copies: copies?,
                    read: part.bytes.start,
                    path: files.shard(*place)?,
                    write,
                });
            }
        }
        if let Some(path) = files.whole() {
            let write = work.whole_start + work.place_in_whole(slab) as u64;
            ways.push(Way { file, copies: long(&slab.region)??, read: part.bytes.start, path, write });
        }
    }
    Some(ways)
}

/// Copies one range; returns `true` if the operating system could.
fn stretch(
    access: &Access<'_>,
    from: usize,
    output: &File,
    path: &Path,
    to: u64,
    len: usize,
) -> Result<bool, Error> {
    let Some((input, mut read)) = access.in_file(from, len)? else { return Ok(false) };
    let (mut write, mut left) = (to, len);
    while left > 0 {
        match copy_file_range(input, Some(&mut read), output, Some(&mut write), left) {
            // The input became shorter; the next check of it reports that.
            Ok(0) => return Ok(false),
            Ok(count) => left = left.saturating_sub(count),
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::BADF | Errno::PERM) => {
                return Ok(false);
            }
            Err(error) => return Err(Error::io("copying to", path, &error.into())),
        }
    }
    Ok(true)
}
