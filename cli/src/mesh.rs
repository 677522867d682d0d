//! `reshard mesh`: recipes, the ranks of a mesh as a grid, the groups of its axes, and their nodes on a
//! network.

mod nodes;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args;
use reshard_draw::{Limits, MeshLook, Scene, mesh_with};
use reshard_layout::internal::counted;
use reshard_planner::Topology;
use reshard_sharding::recipes::{Parallelism, Recipe, Role};
use reshard_sharding::{Mesh, SubAxis};
use serde::Serialize;

use super::arguments::Format;
use super::console::Console;
use super::error::CliError;
use super::network::{self, TopologyArg};
use super::pictures::PictureArgs;
use nodes::NodeLines;

/// More ranks than this are not drawn, and more members not listed.
const MOST_RANKS: usize = 1 << 12;

/// Help of `--topology` in this subcommand.
const TOPOLOGY: &str = "Report groups that span nodes of this network (uniform, h100 or a TOML file), and axes whose groups are split unequally";

/// Arguments of `reshard mesh`.
#[derive(Debug, Args)]
#[command(mut_arg("topology", |arg| arg.help(TOPOLOGY)))]
pub(crate) struct MeshArgs {
    /// Mesh like dp=2,tp=4 or x=2,y=2@[1,2,3,0], or recipe like ep:dp_shard=2,cp=2,tp=2,ep=4 [default: list
    /// the recipes]
    mesh: Option<String>,
    /// Show the groups of these axes or sub-axes, like dp,tp or tp:(1)2, of the mesh or of the recipe's
    /// sparse mesh
    #[arg(long)]
    groups: Option<String>,
    #[command(flatten)]
    topology: TopologyArg,
    /// Reject degrees that do not multiply to this number of ranks
    #[arg(long, value_parser = crate::whole::whole::<usize>, allow_negative_numbers = true)]
    world_size: Option<usize>,
    #[command(flatten)]
    pictures: PictureArgs,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// The answer for one mesh or recipe.
#[derive(Debug, Serialize)]
struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    recipe: Option<String>,
    mesh: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sparse: Option<String>,
    ranks: usize,
    axes: Vec<AxisLine>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    roles: BTreeMap<&'static str, Vec<&'static str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<GroupLines>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<NodeLines>>,
    #[serde(skip)]
    grid: String,
}

/// One axis.
#[derive(Debug, Serialize)]
struct AxisLine {
    name: String,
    size: usize,
    /// The layout from coordinate to rank offset; null if the ranks do not form a layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<String>,
}

/// The groups of a set of axes.
#[derive(Debug, Serialize)]
struct GroupLines {
    axes: String,
    /// The offsets of members from the lowest one, or every group's members if they do not form a layout.
    pattern: String,
    count: usize,
    /// Every group's members, unless there are too many.
    members: Option<Vec<Vec<usize>>>,
}

/// One recipe of the list.
#[derive(Debug, Serialize)]
struct RecipeLine {
    recipe: &'static str,
    about: &'static str,
    axes: Vec<&'static str>,
}

/// Lists the recipes, or shows one mesh.
pub(crate) fn run(args: &MeshArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    let Some(text) = &args.mesh else {
        if args.groups.is_some()
            || args.world_size.is_some()
            || args.topology.name().is_some()
            || args.pictures.are_asked()
        {
            return Err(CliError::refused(
                "usage",
                "`--draw`, `--groups`, `--svg`, `--topology` and `--world-size` need a mesh or a recipe (see --help)",
            ));
        }
        return list(args.format.json, console);
    };
    if !args.pictures.show(|| scene(text, args), args.format.json, console)? {
        return Ok(());
    }
    let answer = answer(text, args)?;
    if args.format.json { console.print_json(&answer) } else { console.print(&answer.text()) }
}

fn list(json: bool, console: &mut Console<'_>) -> Result<(), CliError> {
    let line = |kind: &Parallelism| RecipeLine {
        recipe: kind.as_str(),
        about: kind.about(),
        axes: kind.dense_axes().iter().chain(kind.sparse_axes()).copied().collect(),
    };
    let lines: Vec<RecipeLine> = Parallelism::ALL.iter().map(line).collect();
    if json {
        return console.print_json(&serde_json::json!({ "recipes": lines }));
    }
    let mut text = String::new();
    for l in lines {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:<8} {}\n         axes: {}", l.recipe, l.about, l.axes.join(", "));
    }
    console.print(&text)
}

/// Parses a mesh or a recipe.
fn read(text: &str, args: &MeshArgs) -> Result<(Mesh, Option<Recipe>), CliError> {
    let recipe = if is_recipe(text) { Some(text.parse::<Recipe>()?) } else { None };
    let recipe = match (recipe, args.world_size) {
        (Some(r), Some(world)) => Some(r.on_world(world)?),
        (r, _) => r,
    };
    let mesh: Mesh = match &recipe {
        Some(r) => r.mesh().clone(),
        None => text.parse()?,
    };
    if let Some(world) = args.world_size.filter(|&w| w != mesh.size()) {
        let message = format!(
            "the mesh `{mesh}` has {}, not {world}; change it, or `--world-size`",
            counted(mesh.size(), "rank", "ranks")
        );
        return Err(CliError::refused("mesh", message));
    }
    Ok((mesh, recipe))
}

/// Draws the ranks, coloured by the requested groups, with the nodes of the innermost level of the network.
fn scene(text: &str, args: &MeshArgs) -> Result<Scene, CliError> {
    let (mesh, recipe) = read(text, args)?;
    let sparse = recipe.as_ref().and_then(Recipe::sparse);
    let mut drawn = &mesh;
    let mut look = MeshLook::default();
    if let Some(axes) = &args.groups {
        let (holding, subs) = holding(&mesh, sparse, axes)?;
        look.groups = Some(holding.groups(&subs)?);
        drawn = holding;
    }
    if let Some(name) = args.topology.name() {
        look.node = network::topology(name)?.levels().first().and_then(|level| level.ranks);
    }
    Ok(mesh_with(drawn, &look, Limits::USUAL))
}

fn answer(text: &str, args: &MeshArgs) -> Result<Answer, CliError> {
    let (mesh, recipe) = read(text, args)?;
    let sparse = recipe.as_ref().and_then(Recipe::sparse);
    let groups = match &args.groups {
        Some(axes) => Some(groups_of(&mesh, sparse, axes)?),
        None => None,
    };
    let nodes = match args.topology.name() {
        Some(name) => Some(nodes_of(&mesh, sparse, args.groups.as_deref(), &network::topology(name)?)?),
        None => None,
    };
    let mut roles = BTreeMap::new();
    if let Some(r) = &recipe {
        for role in Role::ALL.into_iter().filter(|&role| !r.axes(role).is_empty()) {
            roles.insert(role.as_str(), r.axes(role).to_vec());
        }
    }
    let line = |a: &reshard_sharding::Axis| AxisLine {
        name: a.name().to_string(),
        size: a.size(),
        layout: mesh.rank_table().is_none().then(|| a.layout().to_string()),
    };
    Ok(Answer {
        recipe: recipe.as_ref().map(ToString::to_string),
        mesh: mesh.to_string(),
        sparse: sparse.map(ToString::to_string),
        ranks: mesh.size(),
        axes: mesh.axes().iter().map(line).collect(),
        roles,
        groups,
        nodes,
        grid: if mesh.size() > MOST_RANKS { String::new() } else { grid(&mesh) },
    })
}

/// A recipe starts with a name that no `=` follows.
fn is_recipe(text: &str) -> bool {
    let text = text.trim_start();
    let name = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    name > 0 && matches!(text[name..].trim_start().chars().next(), None | Some(':'))
}

/// The groups of axes of the mesh, or of the sparse one if it alone has them.
fn groups_of(mesh: &Mesh, sparse: Option<&Mesh>, axes: &str) -> Result<GroupLines, CliError> {
    let (mesh, subs) = holding(mesh, sparse, axes)?;
    let groups = mesh.groups(&subs)?;
    let members = (mesh.size() <= MOST_RANKS).then(|| groups.iter().map(|g| g.iter().collect()).collect());
    Ok(GroupLines {
        axes: axes.to_owned(),
        pattern: groups.pattern().to_string(),
        count: groups.count(),
        members,
    })
}

/// Returns the mesh that has these axes, the sparse one if it alone does, and the axes.
fn holding<'m>(
    mesh: &'m Mesh,
    sparse: Option<&'m Mesh>,
    axes: &str,
) -> Result<(&'m Mesh, Vec<SubAxis>), CliError> {
    match (mesh.sub_axes(axes), sparse.map(|s| (s, s.sub_axes(axes)))) {
        (Ok(subs), _) => Ok((mesh, subs.to_vec())),
        (Err(_), Some((sparse, Ok(subs)))) => Ok((sparse, subs.to_vec())),
        (Err(e), _) => Err(e.into()),
    }
}

/// Returns the nodes of the groups of these axes, or of each axis of several ranks.
fn nodes_of(
    mesh: &Mesh,
    sparse: Option<&Mesh>,
    axes: Option<&str>,
    topology: &Topology,
) -> Result<Vec<NodeLines>, CliError> {
    if let Some(axes) = axes {
        let (mesh, subs) = holding(mesh, sparse, axes)?;
        return nodes::lines(mesh, &[(axes.to_owned(), subs)], topology);
    }
    let wide = mesh.whole_axes().filter(|sub| sub.size > 1);
    let each: Vec<(String, Vec<SubAxis>)> = wide.map(|sub| (sub.printed(mesh.axes()), vec![sub])).collect();
    nodes::lines(mesh, &each, topology)
}

/// Prints the ranks as a table of the last two axes, one table for every coordinate of the others.
fn grid(mesh: &Mesh) -> String {
    let axes = mesh.axes();
    let width = mesh.world_size().saturating_sub(1).to_string().len();
    let tail = axes.len().saturating_sub(2);
    let inner: usize = axes[tail..].iter().map(reshard_sharding::Axis::size).product();
    let columns = axes.last().map_or(1, reshard_sharding::Axis::size);
    let ranks: Vec<usize> = mesh.ranks().collect();
    let mut text = String::new();
    for (i, block) in ranks.chunks(inner.max(1)).enumerate() {
        // Writing to a string does not fail.
        if tail > 0 {
            let c = mesh.coordinate_at(i * inner).unwrap_or_default();
            let at: Vec<String> =
                axes[..tail].iter().zip(&c).map(|(a, x)| format!("{}={x}", a.name())).collect();
            let _ = writeln!(text, "{}", at.join(" "));
        }
        if let [rows, columns] = &axes[tail..] {
            let _ = writeln!(text, "  {} down, {} across", rows.name(), columns.name());
        }
        for row in block.chunks(columns.max(1)) {
            let cells: Vec<String> = row.iter().map(|r| format!("{r:>width$}")).collect();
            let _ = writeln!(text, "  {}", cells.join(" "));
        }
    }
    text
}

impl Answer {
    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        if let Some(recipe) = &self.recipe {
            let _ = writeln!(text, "recipe  {recipe}");
        }
        let _ = writeln!(text, "mesh    {}   ({})", self.mesh, counted(self.ranks, "rank", "ranks"));
        if let Some(sparse) = &self.sparse {
            let _ = writeln!(text, "sparse  {sparse}");
        }
        for (role, axes) in &self.roles {
            let _ = writeln!(text, "  {role:<18} {}", axes.join(", "));
        }
        match &self.groups {
            Some(groups) => {
                let _ = writeln!(
                    text,
                    "groups of {}: {} of pattern {}",
                    groups.axes, groups.count, groups.pattern
                );
                for members in groups.members.iter().flatten() {
                    let ranks: Vec<String> = members.iter().map(usize::to_string).collect();
                    let _ = writeln!(text, "  ({})", ranks.join(","));
                }
            }
            None if self.grid.is_empty() => {
                let _ = writeln!(text, "(more than {MOST_RANKS} ranks are not drawn)");
            }
            None => text.push_str(&self.grid),
        }
        match self.nodes.as_deref() {
            None => {}
            Some([]) => text.push_str("one node: no group spans nodes\n"),
            Some(nodes) => nodes.iter().for_each(|on| on.write(&mut text)),
        }
        text
    }
}
