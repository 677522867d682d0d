//! `reshard inspect`: the contents of a checkpoint.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use indicatif::HumanBytes;
use reshard_checkpoint::{Checkpoint, Object, Tensor};
use reshard_draw::{Limits, Page, Scene, Section};
use reshard_layout::internal::counted;
use serde::Serialize;

use super::arguments::{Format, SourceArg};
use super::console::{Console, WIDEST};
use super::error::{CliError, printable};
use super::pictures::PictureArgs;

/// Arguments of `reshard inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Checkpoint: a file of safetensors, torch.save or NumPy, a folder of such files, the output of an earlier
    /// run, or a checkpoint of PyTorch (distributed, or rank files of FSDP) or Orbax
    path: PathBuf,
    #[command(flatten)]
    source: SourceArg,
    #[command(flatten)]
    pub(crate) pictures: PictureArgs,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Inspected<'a> {
    /// The mesh of its shardings; null if its tensors are stored whole.
    mesh: Option<String>,
    bytes: u64,
    /// `true` if it has checksums, which `verify` compares.
    checksums: bool,
    texts: BTreeMap<&'a str, &'a str>,
    tensors: Vec<Row>,
    /// The names of the entries that are not tensors.
    others: Vec<&'a str>,
    /// The names of those of them whose bytes are missing, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lost: Vec<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    ignored: &'a [String],
}

/// One tensor.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    sharding: Option<String>,
    /// The number of chunks, if it is stored in chunks of arbitrary sizes.
    chunks: Option<usize>,
    bytes: u64,
}

/// Opens and prints; reads headers only.
pub(crate) fn run(args: &InspectArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let checkpoint = args.source.open(&args.path)?;
    if !args.pictures.show(|| Ok(scene(&checkpoint, args)), args.format.json, console)? {
        return Ok(());
    }
    let tensors: Vec<Row> = checkpoint.tensors().iter().map(Row::of).collect();
    let inspected = Inspected {
        mesh: checkpoint.mesh().map(ToString::to_string),
        bytes: tensors.iter().map(|tensor| tensor.bytes).sum(),
        checksums: checkpoint.has_checksums(),
        texts: checkpoint.metadata().collect(),
        tensors,
        ignored: checkpoint.ignored(),
        others: checkpoint.objects().iter().map(Object::name).collect(),
        lost: checkpoint.objects().iter().filter(|one| one.is_lost()).map(Object::name).collect(),
    };
    if args.format.json { console.print_json(&inspected) } else { console.print(&inspected.table()) }
}

/// Draws the bytes of all tensors.
fn scene(checkpoint: &Checkpoint, args: &InspectArgs) -> Scene {
    let row = |tensor: &Tensor| {
        let row = Row::of(tensor);
        let [_, dtype, shape, sharding] = row.cells();
        (row.name, format!("{dtype}{shape} {sharding}"), row.bytes)
    };
    let rows: Vec<(String, String, u64)> = checkpoint.tensors().iter().map(row).collect();
    reshard_draw::tensors(&format!("tensors of {}", args.path.display()), &rows, Limits::USUAL)
}

/// The most shardings of a checkpoint that have separate pictures on a page.
const MOST_SHARDINGS: usize = 12;

/// Makes the page of a checkpoint.
pub(crate) fn page(args: &InspectArgs) -> Result<Page, CliError> {
    let checkpoint = args.source.open(&args.path)?;
    let mut shown: Vec<&reshard_sharding::Sharding> = Vec::new();
    let mut scenes = Vec::new();
    for tensor in checkpoint.tensors() {
        let Some(sharding) = tensor.sharding() else { continue };
        if scenes.len() < MOST_SHARDINGS && !shown.contains(&sharding) {
            shown.push(sharding);
            let mut scene = reshard_draw::sharding(sharding, Limits::USUAL);
            scene.title = format!("{}: {}", tensor.name(), scene.title);
            scenes.push(scene);
        }
    }
    let page = Page::new(format!("Checkpoint {}", args.path.display()))
        .with(Section::new("Tensors", vec![scene(&checkpoint, args)]));
    if scenes.is_empty() {
        return Ok(page);
    }
    Ok(page.with(Section::new(
        format!("Shards of each rank: the first {MOST_SHARDINGS} distinct shardings"),
        scenes,
    )))
}

impl Row {
    fn of(tensor: &Tensor) -> Self {
        Self {
            name: tensor.name().to_owned(),
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            sharding: tensor.sharding().map(ToString::to_string),
            chunks: tensor.chunks(),
            bytes: tensor.byte_len(),
        }
    }

    fn cells(&self) -> [String; 4] {
        let shape: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        let sharding = match (&self.sharding, self.chunks) {
            (Some(sharding), _) => sharding.clone(),
            (None, Some(chunks)) => format!("{chunks}", chunks = counted(chunks, "chunk", "chunks")),
            (None, None) => "whole".to_owned(),
        };
        [printable(&self.name).into_owned(), self.dtype.clone(), format!("[{}]", shape.join(",")), sharding]
    }
}

impl Inspected<'_> {
    /// Returns the entries that are not tensors, those of several ranks as one: `rng.rank_{0..3}.numpy`.
    ///
    /// The flag is `true` if their bytes are missing.
    fn others_by_rank(&self) -> Vec<(String, bool)> {
        let mut groups: Vec<((&str, &str), bool, Vec<usize>)> = Vec::new();
        let mut known: HashMap<((&str, &str), bool), usize> = HashMap::new();
        let mut lines: Vec<(Option<usize>, &str, bool)> = Vec::new();
        for other in &self.others {
            let lost = self.lost.binary_search(other).is_ok();
            let Some((around, rank)) = rank_in(other) else {
                lines.push((None, other, lost));
                continue;
            };
            let group = *known.entry((around, lost)).or_insert_with(|| {
                groups.push((around, lost, Vec::new()));
                lines.push((Some(groups.len() - 1), other, lost));
                groups.len() - 1
            });
            groups[group].2.push(rank);
        }
        let shown = |(group, name, lost): (Option<usize>, &str, bool)| match group {
            Some(group) if groups[group].2.len() > 1 => {
                let ((before, after), _, ranks) = &groups[group];
                (format!("{before}{{{}}}{after}", ranges(ranks)), lost)
            }
            Some(_) | None => (name.to_owned(), lost),
        };
        lines.into_iter().map(shown).collect()
    }

    /// Prints a line for each tensor, and a summary.
    fn table(&self) -> String {
        let mut rows: Vec<[String; 4]> = self.tensors.iter().map(Row::cells).collect();
        rows.insert(0, ["tensor", "type", "shape", "sharding"].map(str::to_owned));
        let mut width = [0; 4];
        for row in &rows {
            for (width, cell) in width.iter_mut().zip(row) {
                *width = cell.chars().count().clamp(*width, WIDEST.max(*width));
            }
        }
        let mut text = String::new();
        for [name, dtype, shape, sharding] in &rows {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{name:<0$}  {dtype:<1$}  {shape:<2$}  {sharding}",
                width[0], width[1], width[2]
            );
        }
        for (other, lost) in self.others_by_rank() {
            let lost = if lost { ", its bytes are missing" } else { "" };
            let _ = writeln!(text, "{}  not a tensor{lost}", printable(&other));
        }
        for name in self.ignored {
            let _ = writeln!(text, "{}  not read: sharding.json does not list it", printable(name));
        }
        let mesh = self.mesh.as_deref().map_or_else(String::new, |mesh| format!(" over {mesh}"));
        let checksums = if self.checksums { "with checksums" } else { "no checksums" };
        let _ = writeln!(
            text,
            "{}{mesh}, {} ({}), {checksums}",
            counted(self.tensors.len(), "tensor", "tensors"),
            counted(self.bytes, "byte", "bytes"),
            HumanBytes(self.bytes)
        );
        text
    }
}

/// Returns the texts before and after the number of a rank in a name, and the number.
fn rank_in(name: &str) -> Option<((&str, &str), usize)> {
    const RANK: &str = "rank_";
    let (start, _) = name.match_indices(RANK).find(|(at, _)| {
        let before = name[..*at].chars().next_back();
        before.is_none_or(|before| !before.is_alphanumeric())
            && name[at + RANK.len()..].starts_with(|digit: char| digit.is_ascii_digit())
    })?;
    let (before, rest) = name.split_at(start + RANK.len());
    let end = rest.find(|one: char| !one.is_ascii_digit()).unwrap_or(rest.len());
    let (number, after) = rest.split_at(end);
    let rank: usize = number.parse().ok()?;
    (rank.to_string() == number).then_some(((before, after), rank))
}

/// Returns numbers as ranges: `0..3,7`.
fn ranges(numbers: &[usize]) -> String {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    let range = |run: &[usize]| match run {
        [first, .., last] => format!("{first}..{last}"),
        run => run.iter().map(ToString::to_string).collect(),
    };
    numbers.chunk_by(|one, next| one + 1 == *next).map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::{ranges, rank_in};

    #[test]
    fn names_of_ranks_have_a_number_alone() {
        assert_eq!(rank_in("rng.rank_12.numpy"), Some((("rng.rank_", ".numpy"), 12)));
        assert_eq!(rank_in("loader.dp_rank_0"), Some((("loader.dp_rank_", ""), 0)));
        assert_eq!(rank_in("rank_of.rank_3"), Some((("rank_of.rank_", ""), 3)));
        for name in ["rank_", "frank_3", "rank_03", "rank", "rank_99999999999999999999"] {
            assert_eq!(rank_in(name), None, "{name}");
        }
        assert_eq!(ranges(&[3, 0, 1, 2, 7, 9, 10]), "0..3,7,9..10");
    }
}
