//! `reshard view`: the sharding of the same tensor in another shape, if the view needs no communication.

use clap::Args;
use reshard_draw::{Limits, Scene};
use reshard_sharding::{Mesh, Sharding};
use serde::{Deserialize, Serialize};

use super::arguments::Format;
use super::arguments::MeshArg;
use super::arguments::PlacementsArg;
use super::arguments::ShapeArg;
use super::console::Console;
use super::error::CliError;
use super::pictures::PictureArgs;
use super::shape::Shape;
use super::{batch, required};

/// Arguments of `reshard view`.
#[derive(Debug, Args)]
#[command(mut_arg("placements", |arg| arg.help("Sharding of the tensor, like S(0),R")))]
#[command(mut_arg("draw", |arg| arg.conflicts_with("batch")), mut_arg("svg", |arg| arg.conflicts_with("batch")))]
pub(crate) struct ViewArgs {
    #[command(flatten)]
    request: Request,
    /// Answer one JSON request per line of stdin, like
    /// {"mesh":"tp=3","shape":[4,6],"to_shape":[24],"placements":"S(1)"}
    #[arg(long, conflicts_with = "Request")]
    batch: bool,
    #[command(flatten)]
    pictures: PictureArgs,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// One request, from flags or from a line.
#[derive(Debug, Args, Deserialize)]
#[group(args = ["mesh", "shape", "to_shape", "placements"])]
#[serde(deny_unknown_fields)]
struct Request {
    #[command(flatten)]
    mesh: MeshArg,
    #[command(flatten)]
    shape: ShapeArg,
    /// Shape of the view, like 1024,64,64
    #[arg(long, allow_hyphen_values = true)]
    to_shape: Option<Shape>,
    #[command(flatten)]
    placements: PlacementsArg,
}

/// The sharding of the view.
#[derive(Debug, Serialize)]
struct View {
    /// One placement per mesh axis, with their order of application where it is not the mesh's.
    ///
    /// Null if only sub-axes can express the sharding; then use `by_tensor`.
    placements: Option<String>,
    /// The axes of each dim, unless the chunks of an uneven dim have more than one reading.
    by_tensor: Option<String>,
    /// The local shape of the first rank, which is the largest.
    local_shape: Vec<usize>,
    /// The mesh of the placements, if a device list has another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    mesh: Option<String>,
}

/// Answers the flags, or every line of stdin.
pub(crate) fn run(args: &ViewArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    if args.batch {
        return batch::run(console, answer);
    }
    let scene = || {
        let (_, before, view) = args.request.both()?;
        let of = |sharding| reshard_draw::sharding(sharding, Limits::USUAL);
        Ok(Scene::joined("the same tensor in two shapes", vec![of(&before), of(&view)]))
    };
    if !args.pictures.show(scene, args.format.json, console)? {
        return Ok(());
    }
    let view = answer(&args.request)?;
    if args.format.json { console.print_json(&view) } else { console.print(&view.text()) }
}

impl Request {
    /// Parses the requested mesh and sharding, and computes the sharding of the view.
    fn both(&self) -> Result<(Mesh, Sharding, Sharding), CliError> {
        let mesh = self.mesh.or_inlined([self.placements.text()])?;
        let shape = self.shape.required()?;
        let to_shape = required("to_shape", self.to_shape.as_ref())?.dims()?;
        let before = Sharding::parse(&mesh, &shape, self.placements.required()?)?;
        let view = before.view(&to_shape)?;
        Ok((mesh, before, view))
    }
}

fn answer(request: &Request) -> Result<View, CliError> {
    let (mesh, _, view) = request.both()?;
    let first = view.mesh().offset();
    Ok(View {
        placements: placements_of(&view),
        by_tensor: view.to_dims_notation().ok(),
        local_shape: view.local_shape(first)?.to_vec(),
        mesh: (*view.mesh() != mesh).then(|| view.mesh().to_string()),
    })
}

/// Returns the sharding as placements, with an order of axes if needed; `None` if only sub-axes express it.
fn placements_of(view: &Sharding) -> Option<String> {
    let held = view.placements().is_ok() || (view.layout().is_none() && view.whole_axes());
    held.then(|| view.to_string())
}

impl View {
    /// `S(0),S(1)   [{a},{b}]   local [1,4]`.
    fn text(&self) -> String {
        let absent = || "-".to_owned();
        let mesh = self.mesh.as_ref().map(|mesh| format!("mesh         {mesh}\n")).unwrap_or_default();
        format!(
            "{mesh}placements   {}\nby tensor    {}\nlocal shape  {:?}\n",
            self.placements.clone().unwrap_or_else(absent),
            self.by_tensor.clone().unwrap_or_else(absent),
            self.local_shape
        )
    }
}
