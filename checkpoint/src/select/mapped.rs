//! A checkpoint through a [`Mapping`]: the tensors that its rules make, of the bytes of the files.
//!
//! ```text
//! rule --Mapping::apply--> pieces: loop nests from source indices to target indices
//! piece, and a region that a file has of the source --InOrder--> the region of the target that has the file's bytes
//!     otherwise --within_source--> the nests that read that file
//!     such a nest --> a region of the target, and the strided bytes of the file in the order of that region
//! ```
//!
//! So a made tensor is a tensor in chunks, and everything that reads one reads it. No byte is copied here, except to
//! compare tensors that must be equal. A chunk that is all of a file's region keeps the checksum of that.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use reshard_mapping::{Check, MadeTensor, Mapped, Mapping, Piece, SourceTensor};
use safetensors::Dtype;

use crate::bytes::Bytes;
use crate::bytes::read::read_text;
use crate::check::diff;
use crate::error::Error;
use crate::model::checkpoint::{Checkpoint, Data, Tensor};
use crate::model::placed::Known;
use crate::model::units::Units;
use crate::reading::Source;
use crate::select::chunks::Chunks;
use crate::select::packed::in_units;
use crate::shown::Shown;

/// The most chunks of a tensor that a mapping makes.
const MOST_CHUNKS: usize = 1 << 16;

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
        let units = Units::of(stored, shape);
        let mut chunks = Chunks::new(units.shape().len(), units.bytes);
        for piece in pieces {
            if piece.elements() == 0 {
                continue;
            }
            let packed;
            let piece = if stored.bitsize() % 8 == 0 {
                piece
            } else {
                let source = piece.source.and_then(|source| self.sources.get(source));
                let shapes = [shape].into_iter().chain(source.map(|source| &source.shape[..]));
                packed = in_units(piece, stored, &shapes.collect::<Vec<_>>())?;
                &packed
            };
            match piece.source {
                None => chunks.add_zeros(piece)?,
                Some(number) => {
                    let source = self.source(number)?;
                    chunks.add(&self.sources[number], source.as_ref(), piece)?;
                }
            }
            if chunks.placed.regions.len() > MOST_CHUNKS {
                let message = format!("its rule reads more than {MOST_CHUNKS} separate parts of files");
                return Err(Error::unsupported("mapping", message));
            }
        }
        let Chunks { placed, bytes, sums, .. } = chunks;
        let (data, sums) = if bytes.is_empty() {
            (Data::Whole(Bytes::from(Vec::new())), Vec::new())
        } else {
            (Data::Chunks { placed: Arc::new(placed), chunks: bytes }, sums)
        };
        let (name, shape) = (name.to_owned(), shape.to_vec());
        Ok(Tensor { name, path: None, dtype, stored, shape, data, sums, parts: None })
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
