//! Meshes as nested boxes: the last two axes are a table of ranks, and each axis before them a box within a
//! box.

use std::collections::HashMap;

use reshard_sharding::{Mesh, ProcessGroups};

use crate::holders::runs;
use crate::limits::{Limits, Shown, counted, shown, titled};
use crate::scene::{Cell, Direction, Grid, Group, Head, Paint, Part, Scene, Style};

/// Groups that have letters; others have a dash.
const MOST_GROUPS: usize = 1 << 16;

/// The annotations on the ranks of a mesh.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct MeshLook {
    /// Groups of ranks, which have a letter and a colour each.
    pub groups: Option<ProcessGroups>,
    /// The number of ranks on a node of the network; each rank then shows its node.
    pub node: Option<usize>,
    /// A part of the mesh, such as a slice: other ranks are grey.
    pub part: Option<Mesh>,
}

/// Returns the name of a group: A to Z, then A1 and so on.
fn letter(number: usize) -> String {
    let letter = char::from(b'A' + (number % 26) as u8);
    if number < 26 { letter.to_string() } else { format!("{letter}{}", number / 26) }
}

/// Returns the ranks of a mesh.
///
/// ```
/// use reshard_draw::{Limits, mesh};
/// let text = mesh(&"pp=2,dp=2,tp=4".parse()?, Limits::USUAL).text(false);
/// assert!(text.contains("
///   + pp=0 --------------------+   + pp=1 --------------------+
///   |      tp=0 tp=1 tp=2 tp=3 |   |      tp=0 tp=1 tp=2 tp=3 |
///   | dp=0    0    1    2    3 |   | dp=0    8    9   10   11 |
///   | dp=1    4    5    6    7 |   | dp=1   12   13   14   15 |
///   +--------------------------+   +--------------------------+
/// "), "{text}");
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
pub fn mesh(mesh: &Mesh, limits: Limits) -> Scene {
    mesh_with(mesh, &MeshLook::default(), limits)
}

/// Returns the ranks of a mesh, with groups, nodes or a slice of it.
///
/// ```
/// use reshard_draw::{Limits, MeshLook, mesh_with};
/// use reshard_sharding::Mesh;
/// let mesh: Mesh = "dp=2,tp=2".parse()?;
/// let look = MeshLook { groups: Some(mesh.groups_of_axes(&["dp"])?), ..MeshLook::default() };
/// let text = mesh_with(&mesh, &look, Limits::USUAL).text(false);
/// assert!(text.contains("dp=0  0 A  1 B\n  dp=1  2 A  3 B\n"), "{text}");
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[doc(hidden)]
pub fn mesh_with(mesh: &Mesh, look: &MeshLook, limits: Limits) -> Scene {
    let title = format!("mesh {}", titled(mesh));
    let names: Vec<&str> = mesh.axes().iter().map(|axis| axis.name().as_str()).collect();
    // The number of a group by its first rank, looked up once.
    let listed = look.groups.iter().flat_map(ProcessGroups::iter).take(MOST_GROUPS);
    let numbers = listed.enumerate().map(|(number, group)| (group.first(), number)).collect();
    let mut drawing = Drawing { mesh, look, limits, numbers, left_out: vec![0; names.len()] };
    let part = drawing.level(&mut Vec::new());
    let left_out = drawing.left_out;
    let mut about = format!(
        "{} by the axes {}, the last two as a table, each before them as a box within a box.",
        counted(mesh.size(), "rank"),
        names.join(", ")
    );
    let mut scene = Scene::new(title, String::new()).with(part);
    for (axis, &count) in mesh.axes().iter().zip(&left_out) {
        if count > 0 {
            scene = scene.noted(format!("{}: {count} of {} coordinates left out", axis.name(), axis.size()));
        }
    }
    if let Some(groups) = &look.groups {
        let many = counted(groups.count(), "group");
        scene = scene.noted(format!("letters and colours: {many} of {}", titled(groups.pattern())));
        let few: Vec<String> = groups
            .iter()
            .take(8)
            .enumerate()
            .map(|(at, group)| {
                let mut members: Vec<usize> = group.iter().take(64).collect();
                members.sort_unstable();
                format!("{} is {}", letter(at), runs(&members))
            })
            .collect();
        about.extend([" Groups: ", &few.join("; "), "."]);
    }
    if let Some(node) = look.node {
        scene = scene.noted(format!("n is the node of the network, of {}", counted(node, "rank")));
    }
    if let Some(part) = &look.part {
        scene = scene.noted(format!("in colour: {}, {} of {} ranks", titled(part), part.size(), mesh.size()));
    }
    scene.about = about;
    scene
}

struct Drawing<'a> {
    mesh: &'a Mesh,
    look: &'a MeshLook,
    limits: Limits,
    numbers: HashMap<usize, usize>,
    /// The number of coordinates of each axis that are not drawn.
    left_out: Vec<usize>,
}

impl Drawing<'_> {
    /// Returns the coordinates of an axis that are drawn.
    ///
    /// There are fewer the further out the axis is and the more axes there are.
    fn shown(&mut self, axis: usize) -> Vec<Shown> {
        let size = self.mesh.axes()[axis].size();
        let outer = self.mesh.axes().len().saturating_sub(2);
        let most = if axis < outer {
            // The total number of boxes is about the limit on ranks.
            let wide = self.mesh.axes()[..outer].iter().filter(|axis| axis.size() > 1).count() as u32;
            let mut most = 1;
            while usize::pow(most + 1, wide) <= self.limits.ranks {
                most += 1;
                if most >= self.limits.ranks {
                    break;
                }
            }
            most
        } else {
            self.limits.side
        };
        let list = shown(size, most);
        for one in &list {
            if let Shown::LeftOut { count, .. } = one {
                self.left_out[axis] = *count;
            }
        }
        list
    }

    fn level(&mut self, at: &mut Vec<usize>) -> Part {
        let axes = self.mesh.axes();
        let axis = at.len();
        if axis + 2 >= axes.len() {
            return Part::Grid(self.table(at));
        }
        let name = axes[axis].name().to_string();
        let mut parts = Vec::new();
        for one in self.shown(axis) {
            match one {
                Shown::LeftOut { count, .. } => parts.push(Part::Line(format!(".. {count} more"))),
                Shown::At(coordinate) => {
                    at.push(coordinate);
                    let inner = self.level(at);
                    at.pop();
                    let title = format!("{name}={coordinate}");
                    parts.push(Part::Group(Group {
                        title,
                        way: Direction::Down,
                        is_boxed: true,
                        parts: vec![inner],
                    }));
                }
            }
        }
        // Boxes are next to each other where they hold tables, and alternate outside.
        let way = if (axes.len() - axis) % 2 == 1 { Direction::Across } else { Direction::Down };
        Part::Group(Group { title: String::new(), way, is_boxed: false, parts })
    }

    /// Returns the last axes, one or two, as a table.
    fn table(&mut self, outer: &[usize]) -> Grid {
        let axes = self.mesh.axes();
        let inner = axes.len() - outer.len();
        let heads = |axis: Option<usize>, list: &[Shown]| -> Vec<Head> {
            let of = |one: &Shown| match (*one, axis) {
                (Shown::LeftOut { count, .. }, _) => Head { left_out: count, ..Head::default() },
                (Shown::At(at), Some(axis)) => Head::named(format!("{}={at}", axes[axis].name())),
                (Shown::At(_), None) => Head::default(),
            };
            list.iter().map(of).collect()
        };
        let (row_axis, column_axis) = match inner {
            0 => (None, None),
            1 => (None, Some(outer.len())),
            _ => (Some(outer.len()), Some(outer.len() + 1)),
        };
        let mut list = |axis: Option<usize>| axis.map_or_else(|| vec![Shown::At(0)], |axis| self.shown(axis));
        let (rows, columns) = (list(row_axis), list(column_axis));
        let cell = |row: &Shown, column: &Shown| {
            let (Shown::At(row), Shown::At(column)) = (row, column) else { return Cell::default() };
            let mut place = outer.to_vec();
            place.extend(row_axis.map(|_| row));
            place.extend(column_axis.map(|_| column));
            self.mesh.rank_at(&place).map_or_else(Cell::default, |rank| self.cell(rank, &place))
        };
        let cells = rows.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect()).collect();
        Grid {
            style: Style::Open,
            columns: heads(column_axis, &columns),
            rows: heads(row_axis, &rows),
            cells,
        }
    }

    fn cell(&self, rank: usize, place: &[usize]) -> Cell {
        let mut text = rank.to_string();
        let mut hue = rank;
        if let Some(node) = self.look.node.filter(|&node| node > 0) {
            text.extend([" n", &(rank / node).to_string()]);
            hue = rank / node;
        }
        if let Some(groups) = &self.look.groups {
            match groups.group_of(rank).and_then(|own| self.numbers.get(&own.first()).copied()) {
                Some(number) => {
                    text.extend([" ", &letter(number)]);
                    hue = number;
                }
                None => text.push_str(" -"),
            }
        }
        let is_in = self.look.part.as_ref().is_none_or(|part| part.contains(rank));
        let names = self.mesh.axes().iter().zip(place);
        let digits: Vec<String> = names.map(|(axis, at)| format!("{}={at}", axis.name())).collect();
        let paint = if is_in { Paint::Hues(vec![hue]) } else { Paint::Muted };
        Cell { text, paint, ranks: vec![rank], hint: format!("rank {rank}: {}", digits.join(" ")) }
    }
}
