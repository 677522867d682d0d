//! A checkpoint of which each rank reads its shards.
//!
//! The library gives the indices of a tensor that a rank holds, as runs; the file gives the offset of the
//! tensor. Nothing else is read.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use reshard_kernels::DType;
use reshard_program::schedule::LocalTensor;
use safetensors::Dtype;
use safetensors::tensor::Metadata;

/// The largest header that is read.
const LONGEST_HEADER: u64 = 1 << 24;

/// A safetensors file: eight bytes with the length of the header, the header, and the tensors.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    header: Metadata,
    /// The offset of the first tensor.
    begin: u64,
}

impl Checkpoint {
    /// Reads the header of a file.
    pub fn open(path: &Path) -> reshard::Result<Checkpoint> {
        let wrong = |e: &dyn core::fmt::Display| {
            unusable(format!("{} cannot be read as safetensors: {e}", path.display()))
        };
        let mut file = File::open(path).map_err(|e| wrong(&e))?;
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(|e| wrong(&e))?;
        let length = u64::from_le_bytes(length);
        if length > LONGEST_HEADER {
            return Err(wrong(&format!("its header is too long: {length} bytes")));
        }
        let mut header = Vec::new();
        file.take(length).read_to_end(&mut header).map_err(|e| wrong(&e))?;
        let header = serde_json::from_slice(&header).map_err(|e| wrong(&e))?;
        Ok(Checkpoint { path: path.to_owned(), header, begin: 8 + length })
    }

    /// Reads a rank's shard of a tensor.
    ///
    /// Fails for a tensor that is not there, is of another shape or is not f32.
    pub fn read(&self, name: &str, local: &LocalTensor, into: &mut [u8]) -> reshard::Result<()> {
        let path = self.path.display();
        let Some(stored) = self.header.info(name) else {
            return Err(unusable(format!("{path} has no tensor {name}")));
        };
        let place = local.region()?;
        if stored.shape != place.whole || stored.dtype != Dtype::F32 || local.dtype != DType::F32 {
            let (has, shape, whole, dtype) = (stored.dtype, &stored.shape, &place.whole, local.dtype);
            let reason =
                format!("{path} has {name} as {has:?}{shape:?}, but the program declares {dtype}{whole:?}");
            return Err(unusable(reason));
        }
        let wrong = |e: &dyn core::fmt::Display| unusable(format!("{name} cannot be read from {path}: {e}"));
        let begin = self.begin + stored.data_offsets.0 as u64;
        let mut file = File::open(&self.path).map_err(|e| wrong(&e))?;
        let mut rest = into;
        for run in place.region.runs(&place.whole)? {
            // The elements of a run with gaps are read one at a time.
            let (pieces, elements) = if run.stride == 1 { (1, run.len) } else { (run.len, 1) };
            for piece in 0..pieces {
                let bytes = usize::try_from(elements * 4).map_err(|e| wrong(&e))?;
                let Some((piece_of, after)) = rest.split_at_mut_checked(bytes) else {
                    return Err(wrong(&"the shard is larger than its buffer"));
                };
                let at = begin + (run.start + piece * run.stride) * 4;
                file.seek(SeekFrom::Start(at)).map_err(|e| wrong(&e))?;
                file.read_exact(piece_of).map_err(|e| wrong(&e))?;
                rest = after;
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(wrong(&"the shard is smaller than its buffer")) }
    }
}

fn unusable(reason: String) -> reshard::Error {
    reshard::Error::new(reshard::ErrorKind::InvalidInput, "weights", reason)
}
