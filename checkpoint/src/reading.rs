//! Parts of tensors, whatever files and shardings hold them: exactly the bytes that are asked for are read, and no other.
//!
//! What a file holds is a region of its tensor, and so is what is asked for; the stretches that both have are read from the file
//! to where they belong. Of a region that several ranks hold, the first one's file is read.

use std::sync::Arc;

use reshard_layout::internal::counted;
use reshard_sharding::{Region, Sharding};

use super::bytes::{self, Bytes};
use super::cast::{Cast, Float};
use super::checkpoint::{Checkpoint, Data, Tensor};
use super::copies::copies;
use super::placed::{Known, Placed, all};
use super::units::Units;
use crate::error::Error;

/// So many stretches are read at a time.
const TOGETHER: usize = 256;

/// Where the bytes of a tensor are.
pub(crate) struct Source<'a> {
    /// What each of its files holds.
    pub(crate) placed: Arc<Placed>,
    /// The bytes of each rank, in the order of the ranks; of a whole tensor only one.
    pub(crate) files: &'a [Bytes],
    /// The bytes of a unit there.
    pub(crate) item_bytes: usize,
    /// What is made of the elements on the way, if they become others.
    pub(crate) cast: Option<Cast>,
}

impl Checkpoint {
    /// The bytes of a region of a tensor, in row-major order, whatever files and shardings hold it.
    ///
    /// ```
    /// use reshard_checkpoint::Checkpoint;
    /// use reshard_sharding::{Mesh, Sharding};
    ///
    /// let block = Checkpoint::open(None)?;
    /// let mesh: Mesh = "tp=2".parse()?;
    /// let halves = Sharding::parse(&mesh, &[2003, 256], "S(1)")?;
    /// let right = block.read("embedding.weight", &halves.region(1)?)?;
    /// assert_eq!(right, block.shard("embedding.weight", &halves, 1)?);
    /// assert_eq!(right.len(), 2003 * 128 * 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(&self, tensor: &str, region: &Region) -> Result<Vec<u8>, Error> {
        let tensor = self.tensor(tensor)?;
        tensor.read(region).map_err(|error| error.about_tensor(&tensor.name))
    }

    /// The bytes that a rank of a sharding holds of a tensor: what it would find in its file, without anything written.
    ///
    /// Reads what the rank needs and no byte more, as [`Checkpoint::bytes_read`] counts it.
    pub fn shard(&self, tensor: &str, sharding: &Sharding, rank: usize) -> Result<Vec<u8>, Error> {
        let tensor = self.tensor(tensor)?;
        tensor.shard(sharding, rank).map_err(|error| error.about_tensor(&tensor.name))
    }

    /// How many bytes of tensors have been read from files by [`Checkpoint::read`], [`Checkpoint::shard`] and what builds on
    /// the same parts; headers do not count.
    pub fn bytes_read(&self) -> u64 {
        let mut inputs: Vec<_> =
            self.tensors.iter().flat_map(Tensor::files).filter_map(Bytes::input).collect();
        inputs.sort_by_key(|input| Arc::as_ptr(input));
        inputs.dedup_by_key(|input| Arc::as_ptr(input));
        inputs.into_iter().map(|input| input.bytes_read()).sum()
    }
}

impl Tensor {
    /// Its bytes, as files have them.
    pub(crate) fn files(&self) -> &[Bytes] {
        match &self.data {
            Data::Whole(bytes) => std::slice::from_ref(bytes),
            Data::Shards { shards, .. } => shards,
            Data::Chunks { chunks, .. } => chunks,
        }
    }

    pub(crate) fn units(&self) -> Units {
        Units::of(self.dtype, &self.shape)
    }

    /// Where its units are.
    pub(crate) fn source(&self, units: &Units, known: &mut Known) -> Result<Source<'_>, Error> {
        let placed = match &self.data {
            Data::Whole(_) => Arc::new(Placed::whole(units.shape())),
            Data::Shards { sharding, .. } => {
                let sharding = units.sharding(sharding).map_err(|why| Error::refused("packed", why))?;
                known.placed(&sharding)?
            }
            Data::Chunks { placed, .. } => Arc::clone(placed),
        };
        let files = self.files();
        let cast = self.cast();
        // Types that are cast have units that are elements, so the regions are the same.
        let item_bytes = if cast.is_some() { self.stored.bitsize() / 8 } else { units.bytes };
        for (place, bytes) in files.iter().enumerate() {
            let len = placed.regions[placed.of_rank[place]].numel() * item_bytes;
            if bytes.len() != len {
                return Err(super::verify::wrong_length(place, len, bytes.len()));
            }
        }
        if let Some(sums) = self.sums.as_ref().filter(|sums| sums.len() != placed.regions.len()) {
            let message = format!(
                "the manifest has {} for its {}",
                counted(sums.len(), "checksum", "checksums"),
                counted(placed.regions.len(), "shard", "shards")
            );
            return Err(Error::refused("manifest", message));
        }
        Ok(Source { placed, files, item_bytes, cast })
    }

    /// What its elements become on the way, if that is something else.
    fn cast(&self) -> Option<Cast> {
        let (from, to) = (Float::of(self.stored)?, Float::of(self.dtype)?);
        (from != to).then_some(Cast { from, to })
    }

    fn shard(&self, sharding: &Sharding, rank: usize) -> Result<Vec<u8>, Error> {
        let units = self.units();
        let of_units = self.in_units(&units, sharding)?;
        self.read_units(&units, &of_units.region(rank)?)
    }

    fn read(&self, region: &Region) -> Result<Vec<u8>, Error> {
        check(region, &self.shape)?;
        let units = self.units();
        let of_units = units.region(&self.shape, region).map_err(|why| Error::refused("packed", why))?;
        self.read_units(&units, &of_units)
    }

    /// Reads all of it.
    pub(crate) fn read_whole(&self, room: &mut Vec<u8>) -> Result<(), Error> {
        let units = self.units();
        self.read_into(&units, &all(units.shape()), room)
    }

    pub(crate) fn read_units(&self, units: &Units, region: &Region) -> Result<Vec<u8>, Error> {
        let mut room = Vec::new();
        self.read_into(units, region, &mut room)?;
        Ok(room)
    }

    fn read_into(&self, units: &Units, region: &Region, room: &mut Vec<u8>) -> Result<(), Error> {
        let source = self.source(units, &mut Known::default())?;
        let item_bytes = source.item_bytes;
        bytes::resize(room, region.numel() * item_bytes)?;
        for (held, holders) in source.placed.regions.iter().zip(&source.placed.holders) {
            let (Some(copies), Some(file)) = (copies(held, region, item_bytes), holders.first()) else {
                continue;
            };
            let access = source.files[*file].access()?;
            if let Bytes::Strided(strided) = &source.files[*file] {
                strided.read_shared(access.stored(), held, region, room)?;
            } else {
                // Some at a time: over a network those that lie close together are one question.
                let mut some = Vec::with_capacity(TOGETHER);
                copies.each(&mut |stretch| {
                    some.push(stretch);
                    if some.len() < TOGETHER {
                        return Ok(());
                    }
                    access.read_stretches(&std::mem::take(&mut some), room)
                })?;
                access.read_stretches(&some, room)?;
            }
            access.finish()?;
        }
        source.convert(room)?;
        Ok(())
    }
}

impl Source<'_> {
    /// Makes of elements as they are in the files what they become; says how many became infinite.
    pub(crate) fn convert(&self, elements: &mut Vec<u8>) -> Result<u64, Error> {
        let Some(cast) = self.cast else { return Ok(0) };
        let mut converted = Vec::new();
        bytes::reserve(&mut converted, elements.len() / self.item_bytes * cast.to.bytes())?;
        let infinite = cast.append(elements, &mut converted);
        *elements = converted;
        Ok(infinite)
    }
}

/// A region that anybody may have made.
fn check(region: &Region, shape: &[usize]) -> Result<(), Error> {
    let refused = |why: String| Err(Error::refused("region", why));
    if region.dims.len() != shape.len() {
        return refused(format!(
            "the region has {}, and the tensor is {shape:?}",
            counted(region.dims.len(), "dim", "dims")
        ));
    }
    for (dim, (list, extent)) in region.dims.iter().zip(shape).enumerate() {
        let mut end = 0;
        for x in list {
            let Some(next) = x.start.checked_add(x.len).filter(|next| next <= extent && x.start >= end)
            else {
                return refused(format!(
                    "dim {dim} of the tensor has {extent}, and the region has {} from {} on",
                    x.len,
                    x.start,
                    extent = counted(extent, "index", "indices")
                ));
            };
            end = next;
        }
    }
    Ok(())
}
