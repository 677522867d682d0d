//! Scenes: the content of a picture as data, without positions or characters.

/// A picture as data: a title, a description in words, and parts from top to bottom.
///
/// Drawings are functions from values to scenes, and are tested as such; renderers know scenes and no values.
/// Equal scenes are equal pictures.
///
/// ```
/// let scene = reshard_draw::layout(&"(2,2):(1,2)".parse()?)?;
/// assert!(scene.text(false).starts_with("(2,2):(1,2)\n"));
/// assert!(scene.svg().starts_with("<svg "));
/// # Ok::<(), reshard_layout::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// The subject of the picture.
    pub title: String,
    /// A text alternative to the picture.
    pub about: String,
    /// From top to bottom.
    pub parts: Vec<Part>,
    /// Notes for the reader, such as the parts that were left out.
    pub notes: Vec<String>,
}

/// A part of a scene.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// A line of text.
    Line(String),
    /// Related parts.
    Group(Group),
    /// Cells in rows and columns.
    Grid(Grid),
    /// Arrows from senders to receivers.
    Flow(Flow),
    /// Bars along one scale.
    Lanes(Lanes),
}

/// Related parts.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The title of the group; may be empty.
    pub title: String,
    /// The direction in which the parts follow: across, as far as the width allows, or down.
    pub way: Direction,
    /// `true` if the group has an outline.
    pub is_boxed: bool,
    /// The parts of the group.
    pub parts: Vec<Part>,
}

/// The position of the next part of a group.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the right.
    Across,
    /// Below.
    Down,
}

/// Cells in rows and columns, with labels.
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    /// The style of its lines.
    pub style: Style,
    /// The heads of the columns, from the left.
    pub columns: Vec<Head>,
    /// The heads of the rows, from the top.
    pub rows: Vec<Head>,
    /// The cells, row by row; those of a row or column that stands for others are not drawn.
    pub cells: Vec<Vec<Cell>>,
}

/// The style of a grid.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Adjacent cells, with gaps between the levels and lines where an axis splits.
    #[default]
    Open,
    /// A line round every cell.
    Ruled,
    /// Columns of words, each as wide as it needs.
    Table,
}

/// The head of a row or a column.
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The label of the row or column; may be empty.
    pub label: String,
    /// The number of nesting levels that start at it: the gap before it.
    pub gap: usize,
    /// The split before it, such as the name of an axis.
    pub cut: Option<String>,
    /// The number of left-out rows or columns for which it is the mark.
    pub left_out: usize,
}

/// A cell of a grid.
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The text of the cell.
    pub text: String,
    /// Its colours.
    pub paint: Paint,
    /// The ranks that it describes, ascending.
    pub ranks: Vec<usize>,
    /// Additional information; may be empty.
    pub hint: String,
}

/// The colours of a cell or a bar. Colour never carries information that is not also in words.
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Paint {
    /// No colour.
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
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flow {
    /// The senders.
    pub left: Vec<Cell>,
    /// The receivers.
    pub right: Vec<Cell>,
    /// The arrows from senders to receivers.
    pub bundles: Vec<Bundle>,
}

/// Arrows from each of some boxes to each of others, except from a box to itself.
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle {
    /// The numbers of boxes on the left.
    pub from: Vec<usize>,
    /// The numbers of boxes on the right.
    pub to: Vec<usize>,
    /// The label of the arrows.
    pub text: String,
}

/// Bars along one scale, a line of them each.
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lanes {
    /// The unit, such as `us` or `bytes`.
    pub unit: String,
    /// The end of the scale, which begins at 0.
    pub until: f64,
    /// The kinds of bars: a name, and the letter of bars where there are no colours.
    pub kinds: Vec<(String, char)>,
    /// From the top.
    pub lanes: Vec<Lane>,
    /// Marked positions on the scale, with their labels.
    pub marks: Vec<(f64, String)>,
}

/// A line of bars.
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lane {
    /// The label before the bars.
    pub label: String,
    /// The label after the bars.
    pub end: String,
    /// Its bars; later ones are drawn over earlier ones.
    ///
    /// As text, each column shows the kind that takes most of it.
    pub bars: Vec<Bar>,
    /// The ranks that it describes.
    pub ranks: Vec<usize>,
}

/// A bar.
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// The start of the bar.
    pub from: f64,
    /// The end of the bar.
    pub to: f64,
    /// The number of its kind.
    pub kind: usize,
    /// The label of the bar.
    pub text: String,
    /// `true` if it is among the most important bars, such as the critical path.
    pub is_strong: bool,
}

impl Scene {
    /// Returns a scene without parts.
    #[doc(hidden)]
    pub fn new(title: impl Into<String>, about: impl Into<String>) -> Self {
        Self { title: title.into(), about: about.into(), parts: Vec::new(), notes: Vec::new() }
    }

    /// Returns the same with one more part below.
    #[doc(hidden)]
    #[must_use]
    pub fn with(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Returns the same with one more note.
    #[doc(hidden)]
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
    /// Returns the kinds that some bar is of, with their numbers.
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

    /// Returns a group of adjacent parts, without an outline.
    pub fn across(title: impl Into<String>, parts: Vec<Part>) -> Self {
        Self { title: title.into(), way: Direction::Across, is_boxed: false, parts }
    }
}

impl Grid {
    /// Returns a grid without heads.
    pub fn of_rows(cells: Vec<Vec<Cell>>) -> Self {
        let columns = vec![Head::default(); cells.iter().map(Vec::len).max().unwrap_or(0)];
        let rows = vec![Head::default(); cells.len()];
        Self { style: Style::Open, columns, rows, cells }
    }

    /// Returns a table: the words of its head, and of its rows.
    pub fn table(heads: &[&str], rows: Vec<Vec<Cell>>) -> Self {
        let columns = heads.iter().map(|head| Head::named(*head)).collect();
        Self { style: Style::Table, columns, rows: vec![Head::default(); rows.len()], cells: rows }
    }

    /// Returns a cell if it is drawn, and `None` for a cell that only represents others.
    pub(crate) fn cell(&self, row: usize, column: usize) -> Option<&Cell> {
        let is_mark = |heads: &[Head], at: usize| heads.get(at).is_some_and(|head| head.left_out > 0);
        let cell = self.cells.get(row)?.get(column)?;
        (!is_mark(&self.rows, row) && !is_mark(&self.columns, column)).then_some(cell)
    }
}

impl Head {
    /// Returns a head with a label.
    pub fn named(label: impl Into<String>) -> Self {
        Self { label: label.into(), ..Self::default() }
    }
}

impl Cell {
    /// Returns a text without colour.
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Returns a text in the colour of a number.
    pub fn hued(text: impl Into<String>, hue: usize) -> Self {
        Self { text: text.into(), paint: Paint::Hues(vec![hue]), ..Self::default() }
    }
}

impl Scene {
    /// Joins several scenes into one, each under its title.
    #[doc(hidden)]
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
