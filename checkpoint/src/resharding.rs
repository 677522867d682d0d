//! Resharding as one call: an open checkpoint, a mesh, a spec, and a place.

use std::path::Path;
use std::time::Instant;

use reshard_sharding::Mesh;

use super::checkpoint::Checkpoint;
use super::error::Error;
use super::job::OutputFormat;
use super::observer::{Observer, told};
use super::offline::{self, Asked};
use super::place;
use super::report::JobReport;
use super::spec::PlacementSpec;
use super::staging;
use super::wish::Wish;

/// What [`reshard`] may be told besides; [`Options::default`] checks everything and replaces nothing.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Options<'a> {
    /// The sharding of tensors that no pattern of the spec matches; one that lacks its dims is replicated.
    pub to: Option<String>,
    /// Only this tensor.
    pub tensor: Option<String>,
    /// What the files of a directory are.
    pub format: OutputFormat,
    /// A file of whole tensors in a directory has at most so many bytes, or one tensor; else 5 GB.
    pub file_bytes: Option<u64>,
    /// Whether it is refused, before anything is written, if an entry that is not a tensor would not be in the output.
    pub strict: bool,
    /// Whether an output of an earlier call that is there already is replaced.
    pub force: bool,
    /// Whether it goes on with what a call for the same has done that was killed; then what it has done itself stays too, if it
    /// fails in reading or writing.
    pub resume: bool,
    /// Write no checksums, read nothing back, and compare neither checksums nor replicas of the input.
    pub unchecked: bool,
    /// Who is told how far it is.
    pub observer: Option<&'a mut dyn Observer>,
}

/// Writes a checkpoint anew, over another mesh: one file per rank and `sharding.json` in the directory `out`, or whole tensors where
/// `out` ends in `.safetensors`.
///
/// Bytes go from files to files; memory stays below 256 MiB for any tensor. The output appears whole or not at all.
///
/// ```
/// use reshard_checkpoint::{Checkpoint, Options, Spec, reshard};
///
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("out");
/// let block = Checkpoint::open(None)?;
/// let spec = Spec::new([("*.weight", "R,S(0)"), ("*", "R,R")])?;
/// let report = reshard(&block, &"dp=2,tp=4".parse()?, &spec, &out, Options::default())?;
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
    options: Options<'_>,
) -> Result<JobReport, Error> {
    let start = Instant::now();
    let mut nobody = ();
    let observer = options.observer.unwrap_or(&mut nobody);
    let wish = Wish {
        mesh: mesh.clone(),
        from: None,
        to: options.to,
        spec: Some(spec),
        tensor: options.tensor.as_deref(),
    };
    let is_file = staging::is_whole_file(out).map_err(|error| told(error, observer))?;
    let asked = Asked {
        out: (!is_file).then_some(out),
        gather: is_file.then_some(out),
        force: options.force,
        strict: options.strict,
        checked: !options.unchecked,
        format: options.format,
        resume: options.resume,
        file_bytes: options.file_bytes.unwrap_or(offline::FILE_BYTES),
    };
    if is_file && options.format.is_of_pytorch() {
        let message = format!(
            "a distributed checkpoint is a directory, and {} ends as a file of whole tensors does",
            out.display()
        );
        return Err(told(Error::refused("usage", message), observer));
    }
    place::is_here(Some(out)).map_err(|error| told(error, observer))?;
    let done = offline::reshard(checkpoint, &wish, asked, start, observer);
    let done = done.map_err(|error| told(error, observer));
    staging::unless_abandoned();
    done
}
