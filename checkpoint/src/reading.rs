//! Parts of tensors, for any files and shardings: exactly the requested bytes are read, and no others.
//!
//! The contents of a file are a region of its tensor, and so is the request; their common ranges are read
//! directly to their target offsets. For a region that several ranks hold, the first one's file is read.

pub(crate) mod loading;
pub(crate) mod slab_read;

use std::sync::Arc;

use reshard_kernels::Cast;
use reshard_layout::internal::counted;
use reshard_sharding::{Region, Sharding};

use crate::bytes::{self, Bytes};
use crate::error::Error;
use crate::model::checkpoint::{Checkpoint, Data, Tensor};
use crate::model::copies::copies;
use crate::model::placed::{Known, Placed, all};
use crate::model::units::Units;
use crate::select::cast::cast;

/// The number of ranges that are read at a time.
const TOGETHER: usize = 256;

/// The locations of the bytes of a tensor.
pub(crate) struct Source<'a> {
    /// The region of each file.
    pub(crate) placed: Arc<Placed>,
    /// The bytes of each rank, in rank order; of a whole tensor only one.
    pub(crate) files: &'a [Bytes],
    /// The size of a unit in the files, in bytes.
    pub(crate) item_bytes: usize,
    /// The conversion of the elements during reading, if there is one.
    pub(crate) cast: Option<Cast>,
}

impl Checkpoint {
    /// Returns the bytes of a region of a tensor, in row-major order, for any files and shardings.
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

    /// Returns the bytes of a rank's shard under a sharding, as a rank file would contain them.
    ///
    /// Reads the bytes that the rank needs and no more, as [`Checkpoint::bytes_read`] counts them.
    pub fn shard(&self, tensor: &str, sharding: &Sharding, rank: usize) -> Result<Vec<u8>, Error> {
        let tensor = self.tensor(tensor)?;
        tensor.shard(sharding, rank).map_err(|error| error.about_tensor(&tensor.name))
    }

    /// Returns the number of tensor bytes that have been read from files; headers are not counted.
    ///
    /// Counts reads by [`Checkpoint::read`], [`Checkpoint::shard`] and everything that uses the same code.
    pub fn bytes_read(&self) -> u64 {
        let mut inputs: Vec<_> =
            self.tensors.iter().flat_map(Tensor::files).filter_map(Bytes::input).collect();
        inputs.sort_by_key(|input| Arc::as_ptr(input));
        inputs.dedup_by_key(|input| Arc::as_ptr(input));
        inputs.into_iter().map(|input| input.bytes_read()).sum()
    }
}

impl Tensor {
    /// Returns its bytes, as the files have them.
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

    /// Returns the locations of its units.
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
        // A unit of a type that can be cast is an element, so the regions are the same.
        let item_bytes = if cast.is_some() { self.stored.bitsize() / 8 } else { units.bytes };
        for (place, bytes) in files.iter().enumerate() {
            let len = placed.regions[placed.of_rank[place]].numel() * item_bytes;
            if bytes.len() != len {
                return Err(crate::check::verify::wrong_length(place, len, bytes.len()));
            }
        }
        if !self.sums.is_empty() && self.sums.len() != placed.regions.len() {
            let message = format!(
                "the manifest has {} for its {}",
                counted(self.sums.len(), "checksum", "checksums"),
                counted(placed.regions.len(), "shard", "shards")
            );
            return Err(Error::malformed("manifest", message));
        }
        Ok(Source { placed, files, item_bytes, cast })
    }

    /// Returns the conversion of its elements, if there is one.
    fn cast(&self) -> Option<Cast> {
        cast(self.stored, self.dtype)
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

    /// Reads the whole tensor.
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
            if let Bytes::Strided(strided) = &source.files[*file]
                && strided.is_of(held)
            {
                strided.read_shared(access.stored(), held, region, room)?;
            } else {
                // In batches: over a network, ranges that are close to each other are one request.
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
    /// Converts elements from the files to their final dtype; returns how many became infinite.
    pub(crate) fn convert(&self, elements: &mut Vec<u8>) -> Result<u64, Error> {
        let Some(cast) = self.cast else { return Ok(0) };
        let mut converted = Vec::new();
        bytes::resize(&mut converted, elements.len() / self.item_bytes * cast.element_bytes().1)?;
        let infinite = cast
            .run(&mut converted, elements)
            .map_err(|error| Error::malformed("dtype", error.to_string()))?;
        *elements = converted;
        Ok(infinite)
    }
}

/// Checks a region that came from a caller.
fn check(region: &Region, shape: &[usize]) -> Result<(), Error> {
    let refused = |why: String| Err(Error::refused("region", why));
    if region.dims.len() != shape.len() {
        return refused(format!(
            "the region has {}, but the tensor is {shape:?}",
            counted(region.dims.len(), "dim", "dims")
        ));
    }
    for (dim, (list, extent)) in region.dims.iter().zip(shape).enumerate() {
        let mut end = 0;
        for x in list {
            let Some(next) = x.start.checked_add(x.len).filter(|next| next <= extent && x.start >= end)
            else {
                return refused(format!(
                    "dim {dim} of the tensor has {extent}, but the region has {} from {} on",
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
