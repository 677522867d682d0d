//! A checkpoint through a [`Mapping`]: the tensors that its rules make, of the bytes of the files.
//!
//! ```text
//! rule --Mapping::apply--> pieces: loop nests from source indices to target indices
//! piece, and a region that a file has of the source --within_source--> the nests that read that file
//! such a nest --> a region of the target, and the strided bytes of the file in the order of that region
//! ```
//!
//! So a made tensor is a tensor in chunks, and everything that reads one reads it. No byte is copied here, except to
//! compare tensors that must be equal.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use reshard_layout::internal::counted;
use reshard_mapping::{Check, MadeTensor, Mapped, Mapping, Piece, SourceTensor};
use reshard_sharding::{Interval, Intervals, Region};
use safetensors::Dtype;

use crate::bytes::Bytes;
use crate::bytes::read::read_text;
use crate::bytes::strided::nest;
use crate::check::diff;
use crate::error::Error;
use crate::model::boxes::each_box;
use crate::model::checkpoint::{Checkpoint, Data, Tensor};
use crate::model::placed::{Known, Placed};
use crate::reading::Source;
use crate::shown::Shown;

/// The most chunks of a tensor that a mapping makes.
const MOST_CHUNKS: usize = 1 << 16;

/// The most intervals of a dim of a chunk.
const MOST_INTERVALS: usize = 1 << 20;

/// The names that a mapping does not make: dropped ones, and those without a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unmade {
    pub(crate) dropped: Vec<String>,
    pub(crate) kept: Vec<String>,
}

/// Reads a mapping from a file: TOML if the name ends in `.toml`, otherwise the lines of rules alone.
pub(crate) fn read(path: &Path) -> Result<Mapping, Error> {
    let text = read_text(path).map_err(|error| {
        Error::unreadable_as("mapping", format!("the mapping {} cannot be read: {error}", path.display()))
    })?;
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    let mapping = if is_toml { Mapping::from_toml(&text) } else { text.parse() };
    mapping.map_err(|error| Error::from(error).about(format!("the mapping {}", path.display())))
}

impl Checkpoint {
    /// Returns the tensors that a mapping makes.
    ///
    /// Their bytes are read on demand. What the mapping requires to be equal is compared now. Other entries stay.
    ///
    /// ```
    /// use reshard_checkpoint::Checkpoint;
    ///
    /// let made = Checkpoint::open(None)?.mapped(&"up.weight = mlp.up.weight[0:128]".parse()?)?;
    /// assert_eq!(made.tensor("up.weight")?.shape(), [128, 256]);
    /// assert!(made.tensor("mlp.up.weight").is_err() && made.tensor("mlp.up.bias").is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Errors: a rule that matches nothing, a part that is missing, a name that is made twice, extents or dtypes that
    /// do not fit, and tensors that must be equal and differ.
    pub fn mapped(&self, mapping: &Mapping) -> Result<Self, Error> {
        Ok(self.mapped_by(mapping)?.0)
    }

    /// Returns the tensors that a mapping makes, and the names that it does not make.
    pub(crate) fn mapped_by(&self, mapping: &Mapping) -> Result<(Self, Unmade), Error> {
        let sources: Vec<SourceTensor<'_>> = self
            .tensors
            .iter()
            .map(|tensor| SourceTensor { name: &tensor.name, shape: &tensor.shape, dtype: tensor.dtype })
            .collect();
        let Mapped { tensors, checks, dropped, kept } = mapping.apply(&sources)?;
        let mut maker = Maker { sources: &self.tensors, known: Known::default(), read: HashMap::new() };
        let mut made = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let name = tensor.name.clone();
            made.push(maker.tensor(tensor).map_err(|error| error.about_tensor(&name))?);
        }
        for check in &checks {
            maker.check(check)?;
        }
        Ok((self.with(made, self.objects.clone())?, Unmade { dropped, kept }))
    }
}

/// Makes tensors of the tensors of a checkpoint.
struct Maker<'a> {
    sources: &'a [Tensor],
    known: Known,
    /// The locations of the sources that have been used.
    read: HashMap<usize, Arc<Source<'a>>>,
}

impl<'a> Maker<'a> {
    fn tensor(&mut self, made: MadeTensor) -> Result<Tensor, Error> {
        if let Some(source) = self.whole(&made) {
            // The bytes are those of the source, so its sharding and its checksums hold.
            let path = source.path.clone().filter(|_| made.name == source.name);
            let parts = made.local_parts.or_else(|| source.parts.clone());
            return Ok(Tensor { name: made.name, path, parts, ..source.clone() });
        }
        let tensor = self.of_pieces(&made.name, &made.shape, made.dtype, &made.pieces)?;
        Ok(Tensor { parts: made.local_parts, ..tensor })
    }

    /// Returns the source that a tensor is, under any name.
    fn whole(&self, made: &MadeTensor) -> Option<&'a Tensor> {
        let [piece] = &made.pieces[..] else { return None };
        let source = self.sources.get(piece.source?)?;
        let in_place = piece.source_offset.iter().chain(&piece.target_offset).all(|offset| *offset == 0)
            && piece.axes.iter().all(|axis| {
                axis.source_dim == Some(axis.target_dim) && (axis.target_step, axis.source_step) == (1, 1)
            });
        (in_place && piece.casts.is_empty() && source.shape == made.shape).then_some(source)
    }

    fn of_pieces(
        &mut self,
        name: &str,
        shape: &[usize],
        dtype: Dtype,
        pieces: &[Piece],
    ) -> Result<Tensor, Error> {
        let stored = self.stored(dtype, pieces)?;
        if stored.bitsize() % 8 != 0 {
            let message = format!("elements of {stored} share bytes, so a rule can only rename the tensor");
            return Err(Error::refused("packed", message));
        }
        let (mut placed, mut chunks) = (Placed::apart(Vec::new()), Vec::new());
        for piece in pieces {
            if piece.elements() == 0 {
                continue;
            }
            match piece.source {
                None => {
                    let item = stored.bitsize() / 8;
                    placed.push(target(piece, shape.len())?, 1);
                    chunks.push(nest(Bytes::from(vec![0; item]), item, 0, &[(piece.elements(), 0)])?);
                }
                Some(source) => {
                    self.pieces_of(source, piece, shape.len(), stored, &mut placed, &mut chunks)?;
                }
            }
            if placed.regions.len() > MOST_CHUNKS {
                let message = format!("its rule reads more than {MOST_CHUNKS} separate parts of files");
                return Err(Error::unsupported("mapping", message));
            }
        }
        let data = if chunks.is_empty() {
            Data::Whole(Bytes::from(Vec::new()))
        } else {
            Data::Chunks { placed: Arc::new(placed), chunks }
        };
        let (name, shape) = (name.to_owned(), shape.to_vec());
        Ok(Tensor { name, path: None, dtype, stored, shape, data, sums: None, parts: None })
    }

    /// Returns the dtype in the files, from which all elements are converted at once.
    fn stored(&self, dtype: Dtype, pieces: &[Piece]) -> Result<Dtype, Error> {
        let mut stored = None;
        for piece in pieces {
            let Some(source) = piece.source.and_then(|source| self.sources.get(source)) else { continue };
            let steps = usize::from(source.stored != source.dtype) + piece.casts.len();
            if steps > 1 {
                let message = format!(
                    "`{}` would be rounded {steps} times; convert it once, or in a separate run",
                    source.name.shown()
                );
                return Err(Error::unsupported("mapping", message));
            }
            if let Some(other) = stored.filter(|stored| *stored != source.stored) {
                let message = format!(
                    "it is made of {other} and {}; convert the tensors to one dtype in a separate run",
                    source.stored
                );
                return Err(Error::unsupported("mapping", message));
            }
            stored = Some(source.stored);
        }
        Ok(stored.unwrap_or(dtype))
    }

    /// Appends the parts of the files of a source that a loop nest reads.
    fn pieces_of(
        &mut self,
        number: usize,
        piece: &Piece,
        dims: usize,
        stored: Dtype,
        placed: &mut Placed,
        chunks: &mut Vec<Bytes>,
    ) -> Result<(), Error> {
        let source = self.source(number)?;
        let item = stored.bitsize() / 8;
        for (held, holders) in source.placed.regions.iter().zip(&source.placed.holders) {
            let extents = held.local_shape();
            let stride = |dim: usize| extents.iter().skip(dim + 1).product::<usize>();
            let strides: Vec<usize> = (0..extents.len()).map(stride).collect();
            each_box(held, &mut |intervals| {
                let start: Vec<usize> = intervals.iter().map(|one| one.start).collect();
                let stop: Vec<usize> = intervals.iter().map(|one| one.start + one.len).collect();
                // The index of its start in the region.
                let before = |(dim, one): (&Intervals, &Interval)| {
                    dim.iter().take_while(|before| before.start < one.start).map(|before| before.len).sum()
                };
                let local: Vec<usize> = held.dims.iter().zip(intervals).map(before).collect();
                for part in piece.within_source(&start, &stop) {
                    let first: usize = (0..strides.len())
                        .map(|dim| (local[dim] + part.source_offset[dim] - start[dim]) * strides[dim])
                        .sum();
                    let axes: Vec<(usize, usize)> = part
                        .axes
                        .iter()
                        .map(|axis| {
                            (axis.extent, axis.source_dim.map_or(0, |dim| axis.source_step * strides[dim]))
                        })
                        .collect();
                    placed.push(target(&part, dims)?, holders.len());
                    for holder in holders {
                        chunks.push(nest(source.files[*holder].clone(), item, first, &axes)?);
                    }
                }
                Ok::<(), Error>(())
            })?;
        }
        Ok(())
    }

    fn source(&mut self, number: usize) -> Result<Arc<Source<'a>>, Error> {
        if let Some(source) = self.read.get(&number) {
            return Ok(Arc::clone(source));
        }
        let tensor = self.sources.get(number);
        let tensor = tensor.ok_or_else(|| Error::internal("a rule reads a tensor that does not exist"))?;
        let source = Arc::new(tensor.source(&tensor.units(), &mut self.known)?);
        self.read.insert(number, Arc::clone(&source));
        Ok(source)
    }

    /// Compares two tensors that must be equal.
    fn check(&mut self, check: &Check) -> Result<(), Error> {
        let about = |error: Error| error.about(format_args!("`{}`", check.rule));
        let mut made =
            |pieces| self.of_pieces(&check.subject, &check.shape, check.dtype, pieces).map_err(about);
        let (left, right) = (made(&check.left)?, made(&check.right)?);
        match diff::difference(&left, &right).map_err(about)? {
            None => Ok(()),
            Some(what) => {
                let message = format!("{} must be equal, but {what}", check.subject);
                Err(about(Error::mismatch("mapping", message)))
            }
        }
    }
}

/// Returns the region of the target that a loop nest fills, in the order of its axes.
fn target(piece: &Piece, dims: usize) -> Result<Region, Error> {
    let dim = |dim: usize| {
        let mut list: Intervals =
            [Interval { start: piece.target_offset.get(dim).copied().unwrap_or_default(), len: 1 }]
                .into_iter()
                .collect();
        for axis in piece.axes.iter().filter(|axis| axis.target_dim == dim) {
            if list.len().saturating_mul(axis.extent) > MOST_INTERVALS && axis.target_step != 1 {
                let message = format!(
                    "its rule splits dim {dim} into more than {count}",
                    count = counted(MOST_INTERVALS, "interval", "intervals")
                );
                return Err(Error::unsupported("mapping", message));
            }
            let mut longer = Intervals::default();
            for one in &list {
                if axis.target_step == one.len {
                    longer.push(Interval { start: one.start, len: one.len * axis.extent });
                    continue;
                }
                for step in 0..axis.extent {
                    longer.push(Interval { start: one.start + step * axis.target_step, len: one.len });
                }
            }
            list = longer;
        }
        Ok(merged(&list))
    };
    Ok(Region { dims: (0..dims).map(dim).collect::<Result<_, Error>>()? })
}

/// Joins ascending intervals that touch.
fn merged(list: &Intervals) -> Intervals {
    let mut result = Intervals::default();
    for one in list {
        match result.last_mut() {
            Some(last) if last.start + last.len == one.start => last.len += one.len,
            _ => result.push(*one),
        }
    }
    result
}

impl From<reshard_mapping::Error> for Error {
    fn from(error: reshard_mapping::Error) -> Self {
        use reshard_mapping::ErrorKind;
        let message = error.to_string();
        match error.kind() {
            ErrorKind::Syntax | ErrorKind::File | ErrorKind::UnknownNumber => {
                Self::malformed("mapping", message)
            }
            ErrorKind::TooLarge | ErrorKind::TooComplex => Self::unsupported("mapping", message),
            ErrorKind::NoMatch
            | ErrorKind::Missing
            | ErrorKind::Duplicate
            | ErrorKind::Indivisible
            | ErrorKind::MixedTypes
            | ErrorKind::Shape
            | ErrorKind::Gap
            | ErrorKind::NotInvertible
            | ErrorKind::Unnamed
            | ErrorKind::Differ
            | ErrorKind::NotFloat
            | _ => Self::refused("mapping", message),
        }
    }
}
