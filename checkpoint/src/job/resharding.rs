//! Resharding as one call: an open checkpoint, a mesh, a spec, and an output path.

use std::path::Path;
use std::time::Instant;

use reshard_sharding::Mesh;

use crate::bytes::place;
use crate::error::Error;
use crate::job::observer::{Observer, told};
use crate::job::report::JobReport;
use crate::job::wish::Wish;
use crate::job::{OutputFormat, Replicas};
use crate::model::checkpoint::Checkpoint;
use crate::select::spec::PlacementSpec;
use crate::stream::{self, Asked};
use crate::write::staging;

/// The options of [`reshard`]; [`ReshardOptions::default`] checks everything and replaces nothing.
#[allow(clippy::struct_excessive_bools, reason = "each is a separate flag")]
pub struct ReshardOptions<'a> {
    /// The sharding of tensors that no pattern of the spec matches; one that lacks its dims is replicated.
    pub to: Option<String>,
    /// The format of the files of a directory.
    pub format: OutputFormat,
    /// The files that hold data of several ranks.
    pub replicas: Replicas,
    /// The most bytes of a file of whole tensors in a directory, unless one tensor is larger; default: 5 GB.
    pub file_bytes: Option<u64>,
    /// `true` to fail before writing if the output would lack an entry that is not a tensor.
    pub strict: bool,
    /// `true` to replace an existing output of an earlier call.
    pub force: bool,
    /// `true` to continue the work of a killed call with the same arguments.
    ///
    /// The work of this call is then retained too, if I/O fails.
    pub resume: bool,
    /// `true`, the default, to write checksums, verify the output, and compare checksums and replicas.
    pub verify: bool,
    /// The observer of the progress.
    pub observer: Option<&'a mut dyn Observer>,
}

impl Default for ReshardOptions<'_> {
    fn default() -> Self {
        Self {
            to: None,
            format: OutputFormat::default(),
            replicas: Replicas::default(),
            file_bytes: None,
            strict: false,
            force: false,
            resume: false,
            verify: true,
            observer: None,
        }
    }
}

/// Writes a checkpoint over another mesh, as one file per rank and `sharding.json` in the directory `out`.
///
/// If `out` ends in `.safetensors`, it writes one file of whole tensors instead.
///
/// Bytes are copied from files to files; memory stays below 256 MiB for any tensor. The output appears
/// completely or not at all.
///
/// ```
/// use reshard_checkpoint::{Checkpoint, ReshardOptions, PlacementSpec, reshard};
///
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("out");
/// let block = Checkpoint::open(None)?;
/// let spec = PlacementSpec::new([("*.weight", "R,S(0)"), ("*", "R,R")])?;
/// let report = reshard(&block, &"dp=2,tp=4".parse()?, &spec, &out, ReshardOptions::default())?;
/// assert!(report.verified);
/// let sharded = Checkpoint::open(Some(&out))?;
/// assert_eq!(sharded.tensor("mlp.up.weight")?.sharding().unwrap().to_string(), "R,S(0)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn reshard(
    checkpoint: &Checkpoint,
    mesh: &Mesh,
    spec: &PlacementSpec,
    out: &Path,
    options: ReshardOptions<'_>,
) -> Result<JobReport, Error> {
    let start = Instant::now();
    let mut nobody = ();
    let observer = options.observer.unwrap_or(&mut nobody);
    let replicas = options.replicas.in_files(options.format);
    let wish = Wish { mesh: mesh.clone(), from: None, to: options.to, spec: Some(spec), replicas };
    let is_file = staging::is_whole_file(out).map_err(|error| told(error, observer))?;
    let asked = Asked {
        out: (!is_file).then_some(out),
        gather: is_file.then_some(out),
        force: options.force,
        strict: options.strict,
        checked: options.verify,
        format: options.format,
        resume: options.resume,
        file_bytes: options.file_bytes.unwrap_or(stream::FILE_BYTES),
    };
    if is_file && options.format.is_of_pytorch() {
        let message = format!(
            "a distributed checkpoint is a directory, but {} has the suffix of a file of whole tensors",
            out.display()
        );
        return Err(told(Error::refused("usage", message), observer));
    }
    place::is_here(Some(out)).map_err(|error| told(error, observer))?;
    let done = stream::reshard(checkpoint, &wish, asked, start, observer);
    let done = done.map_err(|error| told(error, observer));
    staging::unless_abandoned();
    done
}
