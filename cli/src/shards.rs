//! `reshard shards`: which indices of a tensor every rank holds.

use std::fmt::Write as _;

use clap::Args;
use reshard_draw::Limits;
use reshard_layout::internal::counted;
use reshard_sharding::{Mesh, Sharding};
use serde::{Deserialize, Serialize};

use super::arguments::Format;
use super::arguments::MeshArg;
use super::arguments::PlacementsArg;
use super::arguments::ShapeArg;
use super::batch;
use super::console::Console;
use super::error::CliError;
use super::pictures::PictureArgs;

/// More ranks than this are not listed.
const MOST_RANKS: usize = 1 << 20;

/// Arguments of `reshard shards`.
#[derive(Debug, Args)]
#[command(mut_arg("draw", |arg| arg.conflicts_with("batch")), mut_arg("svg", |arg| arg.conflicts_with("batch")))]
pub(crate) struct ShardsArgs {
    #[command(flatten)]
    request: Request,
    /// Answer one JSON request per line of stdin, like
    /// {"mesh":"dp=2,tp=4","shape":[64,32],"placements":"S(0),R"}
    #[arg(long, conflicts_with = "Request")]
    batch: bool,
    #[command(flatten)]
    pictures: PictureArgs,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// One request, from flags or from a line.
#[derive(Debug, Args, Deserialize)]
#[group(args = ["mesh", "shape", "placements"])]
#[serde(deny_unknown_fields)]
struct Request {
    #[command(flatten)]
    mesh: MeshArg,
    #[command(flatten)]
    shape: ShapeArg,
    #[command(flatten)]
    placements: PlacementsArg,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Shards {
    ranks: Vec<RankShard>,
    /// The whole ownership as one layout, where every dim divides.
    layout: Option<String>,
}

/// The shard of one rank.
#[derive(Debug, Serialize)]
struct RankShard {
    rank: usize,
    coord: Vec<usize>,
    local_shape: Vec<usize>,
    /// For each dim the intervals of indices, in local order.
    dims: Vec<Vec<[usize; 2]>>,
}

/// Answers the flags, or every line of stdin.
pub(crate) fn run(args: &ShardsArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    if args.batch {
        return batch::run(console, answer);
    }
    let scene = || Ok(reshard_draw::sharding(&args.request.sharding()?.1, Limits::USUAL));
    if !args.pictures.show(scene, args.format.json, console)? {
        return Ok(());
    }
    let shards = answer(&args.request)?;
    if args.format.json { console.print_json(&shards) } else { console.print(&shards.table()) }
}

impl Request {
    /// Parses the requested mesh and the sharding, whose text may contain the mesh.
    fn sharding(&self) -> Result<(Mesh, Sharding), CliError> {
        let mesh = self.mesh.or_inlined([self.placements.text()])?;
        let sharding = Sharding::parse(&mesh, &self.shape.required()?, self.placements.required()?)?;
        Ok((mesh, sharding))
    }
}

fn answer(request: &Request) -> Result<Shards, CliError> {
    let (mesh, sharding) = request.sharding()?;
    if mesh.size() > MOST_RANKS {
        let message = format!(
            "the mesh `{mesh}` has {}, above the limit of {MOST_RANKS} ranks to list",
            counted(mesh.size(), "rank", "ranks")
        );
        return Err(CliError::refused("too_many_ranks", message));
    }
    // The sharding of a device list can have another mesh, in whose order the layout counts ranks.
    let ranks =
        sharding.mesh().ranks().map(|rank| RankShard::of(&sharding, rank)).collect::<Result<_, _>>()?;
    Ok(Shards { ranks, layout: sharding.ownership().map(|layout| layout.to_string()) })
}

impl RankShard {
    fn of(sharding: &Sharding, rank: usize) -> Result<Self, CliError> {
        let region = sharding.region(rank)?;
        let intervals =
            region.dims.iter().map(|dim| dim.iter().map(|piece| [piece.start, piece.len]).collect());
        Ok(Self {
            rank,
            coord: sharding.mesh().coordinate(rank).map(|coordinate| coordinate.to_vec()).unwrap_or_default(),
            local_shape: sharding.local_shape(rank)?.to_vec(),
            dims: intervals.collect(),
        })
    }
}

impl Shards {
    /// One line a rank: `rank 3 (0,3)  [512,1024]  0..512 x 3072..4096`.
    fn table(&self) -> String {
        let mut rows: Vec<[String; 4]> = self.ranks.iter().map(RankShard::row).collect();
        rows.insert(0, ["rank", "coord", "local shape", "indices"].map(str::to_owned));
        let mut width = [0; 4];
        for row in &rows {
            for (width, cell) in width.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut text = String::new();
        for [rank, coord, shape, indices] in &rows {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{rank:>0$}  {coord:<1$}  {shape:<2$}  {indices}",
                width[0], width[1], width[2]
            );
        }
        let layout = self.layout.as_deref().unwrap_or("none: a dim does not divide evenly");
        let _ = writeln!(text, "layout: {layout}");
        text
    }
}

impl RankShard {
    fn row(&self) -> [String; 4] {
        let indices: Vec<String> = self.dims.iter().map(|pieces| ranges(pieces)).collect();
        let indices = if indices.is_empty() { "the one element".to_owned() } else { indices.join(" x ") };
        [self.rank.to_string(), list('(', &self.coord, ')'), list('[', &self.local_shape, ']'), indices]
    }
}

fn list(open: char, numbers: &[usize], close: char) -> String {
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    format!("{open}{}{close}", numbers.join(","))
}

/// `0..2+8..10`, or `none`.
fn ranges(pieces: &[[usize; 2]]) -> String {
    if pieces.is_empty() {
        return "none".to_owned();
    }
    let pieces: Vec<String> = pieces.iter().map(|[start, len]| format!("{start}..{}", start + len)).collect();
    pieces.join("+")
}
