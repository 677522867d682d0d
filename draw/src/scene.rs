//! Scenes: what is to be seen, as data, without a place or a character of it.

/// A picture as data: a title, what it says in words, and parts below each other.
///
/// Drawings are functions from values to scenes, and are tested as such; renderers know scenes and no values. Equal scenes are equal pictures.
///
/// ```
/// use reshard_draw::{Cell, Grid, Part, Scene};
/// let grid = Grid::of_rows(vec![vec![Cell::plain("a"), Cell::plain("b")]]);
/// let scene = Scene::new("two letters", "The letters a and b.").with(Part::Grid(grid));
/// assert_eq!(scene.text(false), "two letters\n  a b\n");
/// assert!(scene.svg().starts_with("<svg "));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// What it is of.
    pub title: String,
    /// The same in words, for those who do not see it.
    pub about: String,
    /// From top to bottom.
    pub parts: Vec<Part>,
    /// What has to be said beside it, such as what was left out.
    pub notes: Vec<String>,
}

/// A part of a scene.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// A line of text.
    Line(String),
    /// Parts that belong together.
    Group(Group),
    /// Cells in rows and columns.
    Grid(Grid),
    /// Who gives to whom.
    Flow(Flow),
    /// Bars along one scale.
    Lanes(Lanes),
}

/// Parts that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// What they are; may be empty.
    pub title: String,
    /// Whether they stand beside each other, as far as there is room, or below.
    pub way: Direction,
    /// Whether there is a line round them.
    pub is_boxed: bool,
    /// What they are made of.
    pub parts: Vec<Part>,
}

/// Where the next part of a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the right.
    Across,
    /// Below.
    Down,
}

/// Cells in rows and columns, with labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    /// How its lines are drawn.
    pub style: Style,
    /// The heads of the columns, from the left.
    pub columns: Vec<Head>,
    /// The heads of the rows, from the top.
    pub rows: Vec<Head>,
    /// The cells, row by row; those of a row or column that stands for others are not drawn.
    pub cells: Vec<Vec<Cell>>,
}

/// How a grid is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Cells beside each other, with gaps between the levels and lines where something is cut.
    #[default]
    Open,
    /// A line round every cell.
    Ruled,
    /// Columns of words, each as wide as it needs.
    Table,
}

/// The head of a row or a column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// What stands beside it; may be empty.
    pub label: String,
    /// How many levels of nesting begin anew with it: the gap before it.
    pub gap: usize,
    /// What cuts before it, such as the name of an axis.
    pub cut: Option<String>,
    /// Of how many rows or columns that are left out it is the mark.
    pub left_out: usize,
}

/// A cell of a grid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// What stands in it.
    pub text: String,
    /// Its colours.
    pub paint: Paint,
    /// The ranks that it tells of, ascending.
    pub ranks: Vec<usize>,
    /// What else there is to say; may be empty.
    pub hint: String,
}

/// The colours of a cell or a bar. No colour says what no word says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Paint {
    /// None.
    #[default]
    Blank,
    /// Grey: there is nothing.
    Muted,
    /// A stripe for each number, of which neighbours differ much.
    Hues(Vec<usize>),
    /// One of eight light colours, which repeat.
    Light(usize),
}

/// Boxes of before and after, and arrows between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flow {
    /// What gives.
    pub left: Vec<Cell>,
    /// What gets.
    pub right: Vec<Cell>,
    /// Who gives to whom.
    pub bundles: Vec<Bundle>,
}

/// Arrows from each of some boxes to each of others, except from a box to itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle {
    /// The numbers of boxes on the left.
    pub from: Vec<usize>,
    /// The numbers of boxes on the right.
    pub to: Vec<usize>,
    /// What stands at it.
    pub text: String,
}

/// Bars along one scale, a line of them each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lanes {
    /// What is measured, such as `us` or `bytes`.
    pub unit: String,
    /// The end of the scale, which begins at 0.
    pub until: f64,
    /// What bars may be of: a name, and the letter of bars where there are no colours.
    pub kinds: Vec<(String, char)>,
    /// From the top.
    pub lanes: Vec<Lane>,
    /// Places on the scale that are marked, each with what is there.
    pub marks: Vec<(f64, String)>,
}

/// A line of bars.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lane {
    /// What stands before it.
    pub label: String,
    /// What stands behind it.
    pub end: String,
    /// Its bars; what comes later is drawn over what came before, and as text what takes most of a column.
    pub bars: Vec<Bar>,
    /// The ranks that it tells of.
    pub ranks: Vec<usize>,
}

/// A bar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// The number of its kind.
    pub kind: usize,
    /// What it is.
    pub text: String,
    /// Whether it is among what matters most, such as the critical path.
    pub is_strong: bool,
}

impl Scene {
    /// A scene without parts.
    pub fn new(title: impl Into<String>, about: impl Into<String>) -> Self {
        Self { title: title.into(), about: about.into(), parts: Vec::new(), notes: Vec::new() }
    }

    /// The same with one more part below.
    #[must_use]
    pub fn with(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// The same with one more note.
    #[must_use]
    pub fn noted(mut self, note: impl Into<String>) -> Self {
        let note = note.into();
        if !note.is_empty() && !self.notes.contains(&note) {
            self.notes.push(note);
        }
        self
    }
}

impl Lanes {
    /// The kinds that some bar is of, with their numbers.
    pub(crate) fn used_kinds(&self) -> impl Iterator<Item = (usize, &(String, char))> {
        let is_used = |at: usize| self.lanes.iter().flat_map(|lane| &lane.bars).any(|bar| bar.kind == at);
        self.kinds.iter().enumerate().filter(move |(at, _)| is_used(*at))
    }
}

impl Group {
    /// Parts below each other, without a line round them.
    pub fn down(title: impl Into<String>, parts: Vec<Part>) -> Self {
        Self { title: title.into(), way: Direction::Down, is_boxed: false, parts }
    }

    /// Parts beside each other, without a line round them.
    pub fn across(title: impl Into<String>, parts: Vec<Part>) -> Self {
        Self { title: title.into(), way: Direction::Across, is_boxed: false, parts }
    }
}

impl Grid {
    /// A grid without heads.
    pub fn of_rows(cells: Vec<Vec<Cell>>) -> Self {
        let columns = vec![Head::default(); cells.iter().map(Vec::len).max().unwrap_or(0)];
        let rows = vec![Head::default(); cells.len()];
        Self { style: Style::Open, columns, rows, cells }
    }

    /// A table: the words of its head, and of its rows.
    pub fn table(heads: &[&str], rows: Vec<Vec<Cell>>) -> Self {
        let columns = heads.iter().map(|head| Head::named(*head)).collect();
        Self { style: Style::Table, columns, rows: vec![Head::default(); rows.len()], cells: rows }
    }

    /// Whether a cell is drawn, and not only stands for others.
    pub(crate) fn cell(&self, row: usize, column: usize) -> Option<&Cell> {
        let is_mark = |heads: &[Head], at: usize| heads.get(at).is_some_and(|head| head.left_out > 0);
        let cell = self.cells.get(row)?.get(column)?;
        (!is_mark(&self.rows, row) && !is_mark(&self.columns, column)).then_some(cell)
    }
}

impl Head {
    /// A head with a label.
    pub fn named(label: impl Into<String>) -> Self {
        Self { label: label.into(), ..Self::default() }
    }
}

impl Cell {
    /// A text without colour.
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A text in the colour of a number.
    pub fn hued(text: impl Into<String>, hue: usize) -> Self {
        Self { text: text.into(), paint: Paint::Hues(vec![hue]), ..Self::default() }
    }
}

impl Scene {
    /// Several scenes as one, each under its title.
    pub fn joined(title: impl Into<String>, scenes: Vec<Scene>) -> Self {
        let mut whole = Self::new(title, "");
        for scene in scenes {
            let words = if whole.about.is_empty() { "" } else { " " };
            whole.about.extend([words, &scene.title, ": ", &scene.about]);
            whole.parts.push(Part::Group(Group::down(scene.title, scene.parts)));
            for note in scene.notes {
                whole = whole.noted(note);
            }
        }
        whole
    }
}
