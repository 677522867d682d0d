//! Scenes as text for terminals, in colour where there is some.
//!
//! Every part is a block of lines of equal width; groups stack blocks or set them side by side. Colours come
//! from `anstyle`, which `clap` uses as well; the caller decides about colour.

use std::fmt::Write as _;

use anstyle::{Color, Reset, RgbColor, Style as Ansi};

use crate::clean::{clean, width};
use crate::colour::{KINDS, LIGHT, hue};
use crate::scene::{Cell, Direction, Flow, Grid, Group, Head, Lane, Lanes, Paint, Part, Scene, Style};

/// The maximum total width of adjacent parts in columns, unless one alone needs more.
const WIDEST: usize = 110;

/// Characters along the scale of bars.
const SCALE: usize = 60;

/// Characters of one colour.
#[derive(Clone, Debug, Default)]
struct Span {
    text: String,
    colour: Option<[u8; 3]>,
}

/// Lines of one width.
#[derive(Clone, Debug, Default)]
struct Block {
    lines: Vec<Vec<Span>>,
    width: usize,
}

impl Span {
    fn plain(text: impl AsRef<str>) -> Self {
        Self { text: clean(text.as_ref()).into_owned(), colour: None }
    }
}

fn width_of(line: &[Span]) -> usize {
    line.iter().map(|span| width(&span.text)).sum()
}

impl Block {
    fn of(lines: Vec<Vec<Span>>) -> Self {
        let width = lines.iter().map(|line| width_of(line)).max().unwrap_or(0);
        Self { lines, width }
    }

    fn line(text: impl AsRef<str>) -> Self {
        Self::of(vec![vec![Span::plain(text)]])
    }

    fn below(self, other: Self) -> Self {
        let width = self.width.max(other.width);
        Self { lines: self.lines.into_iter().chain(other.lines).collect(), width }
    }

    fn beside(self, other: &Self) -> Self {
        if self.lines.is_empty() {
            return other.clone();
        }
        let height = self.lines.len().max(other.lines.len());
        let mut lines = self.lines;
        lines.resize(height, Vec::new());
        for (at, line) in lines.iter_mut().enumerate() {
            let Some(more) = other.lines.get(at) else { continue };
            let missing = self.width + 3 - width_of(line);
            line.push(Span::plain(" ".repeat(missing)));
            line.extend(more.iter().cloned());
        }
        Self::of(lines)
    }

    /// Adds an outline of `+`, `-` and `|`.
    fn boxed(self, title: &str) -> Self {
        let title = clean(title);
        let inner = self.width.max(width(&title) + 2);
        let fill = |n: usize| "-".repeat(n);
        let top = if title.is_empty() {
            format!("+{}+", fill(inner + 2))
        } else {
            format!("+ {title} {}+", fill(inner - width(&title)))
        };
        let mut lines = vec![vec![Span::plain(top)]];
        for mut line in self.lines {
            let missing = inner - width_of(&line);
            line.insert(0, Span::plain("| "));
            line.push(Span::plain(format!("{} |", " ".repeat(missing))));
            lines.push(line);
        }
        lines.push(vec![Span::plain(format!("+{}+", fill(inner + 2)))]);
        Self::of(lines)
    }
}

impl Scene {
    /// Returns the scene as text, which ends with a newline; with escape sequences if it may be in colour.
    ///
    /// Ensures that nothing that comes from a value's names can be an escape sequence.
    pub fn text(&self, in_colour: bool) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", clean(&self.title));
        for part in &self.parts {
            for line in block(part).lines {
                let mut written = String::from("  ");
                for span in line {
                    write_span(&mut written, &span, in_colour);
                }
                let _ = writeln!(text, "{}", written.trim_end_matches(' '));
            }
        }
        for note in &self.notes {
            let _ = writeln!(text, "  ({})", clean(note));
        }
        text
    }
}

fn write_span(text: &mut String, span: &Span, in_colour: bool) {
    match span.colour {
        Some([r, g, b]) if in_colour => {
            let black = Color::Rgb(RgbColor(0, 0, 0));
            let style = Ansi::new().bg_color(Some(Color::Rgb(RgbColor(r, g, b)))).fg_color(Some(black));
            let _ = write!(text, "{style}{}{Reset}", span.text);
        }
        Some(_) | None => text.push_str(&span.text),
    }
}

fn block(part: &Part) -> Block {
    match part {
        Part::Line(text) => Block::line(text),
        Part::Group(group) => group_block(group),
        Part::Grid(grid) => grid_block(grid),
        Part::Flow(flow) => flow_block(flow),
        Part::Lanes(lanes) => lanes_block(lanes),
    }
}

fn group_block(group: &Group) -> Block {
    let mut whole = Block::default();
    let mut row = Block::default();
    for part in group.parts.iter().map(block) {
        match group.way {
            Direction::Down => whole = whole.below(part),
            Direction::Across if row.width + 3 + part.width > WIDEST && !row.lines.is_empty() => {
                whole = whole.below(row);
                row = part;
            }
            Direction::Across => row = row.beside(&part),
        }
    }
    whole = whole.below(row);
    if group.is_boxed {
        whole.boxed(&group.title)
    } else if group.title.is_empty() {
        whole
    } else {
        Block::line(&group.title).below(whole)
    }
}

/// Returns the colours of a paint; the last one continues.
pub(crate) fn colours(paint: &Paint) -> Vec<[u8; 3]> {
    match paint {
        Paint::Blank | Paint::Muted => Vec::new(),
        Paint::Hues(numbers) => numbers.iter().map(|&number| hue(number)).collect(),
        Paint::Light(number) => vec![LIGHT[number % LIGHT.len()]],
    }
}

/// Returns a cell in `columns` columns, a stripe for each of its colours.
fn cell_spans(cell: &Cell, columns: usize, to_the_left: bool) -> Vec<Span> {
    let text = clean(&cell.text);
    let pad = " ".repeat(columns.saturating_sub(width(&text)));
    let text = if to_the_left { format!("{text}{pad}") } else { format!("{pad}{text}") };
    let colours = colours(&cell.paint);
    if colours.len() < 2 {
        return vec![Span { text, colour: colours.first().copied() }];
    }
    let characters: Vec<char> = text.chars().collect();
    let stripes = colours.len().min(characters.len());
    (0..stripes)
        .map(|at| {
            let part = characters.len() * at / stripes..characters.len() * (at + 1) / stripes;
            Span { text: characters[part].iter().collect(), colour: Some(colours[at]) }
        })
        .collect()
}

/// Returns the text before a column.
fn before_column(head: &Head, at: usize, style: Style) -> &'static str {
    if at == 0 {
        return if style == Style::Ruled { " " } else { "" };
    }
    match (style != Style::Open, head.cut.is_some(), head.gap) {
        (true, ..) if style == Style::Table => "  ",
        (true, ..) | (false, false, 0) => " ",
        (false, true, 0) => " | ",
        (false, true, _) => "  |  ",
        (false, false, 1) => "   ",
        (false, false, _) => "     ",
    }
}

fn grid_block(grid: &Grid) -> Block {
    let is_ruled = grid.style == Style::Ruled;
    let is_table = grid.style == Style::Table;
    let left = grid.rows.iter().map(|head| width(&head.label)).max().unwrap_or(0);
    let mut widths: Vec<usize> = grid
        .columns
        .iter()
        .enumerate()
        .map(|(column, head)| {
            let cells = (0..grid.rows.len()).filter_map(|row| grid.cell(row, column));
            let cells = cells.map(|cell| width(&cell.text)).max().unwrap_or(0);
            let mark = if head.left_out > 0 { 2 } else { 0 };
            cells.max(width(&head.label)).max(mark)
        })
        .collect();
    if !is_table {
        let widest = widths.iter().copied().max().unwrap_or(1).max(1);
        widths.fill(widest);
    }
    let lead = if left > 0 { left + 1 } else { 0 };
    let before = |at: usize| before_column(&grid.columns[at], at, grid.style);
    let mut lines = Vec::new();
    if grid.columns.iter().skip(1).any(|head| head.cut.is_some()) {
        let mut names = " ".repeat(lead);
        for (at, head) in grid.columns.iter().enumerate() {
            // The name of the splitting axis is above the line.
            let name = head.cut.as_deref().filter(|_| at > 0).unwrap_or_default();
            let space = before(at);
            let start = space.find('|').unwrap_or(space.len());
            names.extend([&" ".repeat(start), name]);
            let whole = space.len() + widths[at];
            names.push_str(&" ".repeat(whole.saturating_sub(start + width(name))));
        }
        lines.push(vec![Span::plain(names)]);
    }
    if grid.columns.iter().any(|head| !head.label.is_empty() || head.left_out > 0) {
        let mut line = " ".repeat(lead + usize::from(is_ruled && left == 0));
        for (at, head) in grid.columns.iter().enumerate() {
            let label = if head.left_out > 0 { ".." } else { head.label.as_str() };
            let missing = " ".repeat(widths[at] - width(label));
            match grid.style {
                Style::Ruled => line.extend(["  ", &missing, label, " "]),
                Style::Open => line.extend([before(at), &missing, label]),
                Style::Table => line.extend([before(at), label, &missing]),
            }
        }
        lines.push(vec![Span::plain(line)]);
    }
    let rule: String = widths.iter().flat_map(|width| ["-".repeat(width + 2), "+".to_owned()]).collect();
    let rule = vec![Span::plain(format!("{} +{rule}", " ".repeat(left)))];
    if is_ruled {
        lines.push(rule.clone());
    }
    for (row, head) in grid.rows.iter().enumerate() {
        if !is_ruled && row > 0 {
            match &head.cut {
                Some(name) => {
                    let whole: usize = (0..widths.len()).map(|at| before(at).len() + widths[at]).sum();
                    lines.push(vec![Span::plain(format!(
                        "{}{} {name}",
                        " ".repeat(lead),
                        "-".repeat(whole)
                    ))]);
                }
                None if head.gap > 0 => lines.push(Vec::new()),
                None => {}
            }
        }
        let label = if head.left_out > 0 { ".." } else { head.label.as_str() };
        let missing = " ".repeat(left.saturating_sub(width(label)));
        let mut line = vec![Span::plain(format!("{missing}{label}"))];
        line.push(Span::plain(if is_ruled {
            " |"
        } else if left > 0 {
            " "
        } else {
            ""
        }));
        for (at, &columns) in widths.iter().enumerate() {
            let is_mark = head.left_out > 0 || grid.columns[at].left_out > 0;
            let mark = Cell::plain(if is_mark { ".." } else { "" });
            line.push(Span::plain(if is_ruled { " " } else { before(at) }));
            line.extend(cell_spans(grid.cell(row, at).unwrap_or(&mark), columns, is_table));
            line.push(Span::plain(if is_ruled { " |" } else { "" }));
        }
        lines.push(line);
        if is_ruled {
            lines.push(rule.clone());
        }
    }
    Block::of(lines)
}

fn flow_block(flow: &Flow) -> Block {
    let named = |cells: &[Cell], numbers: &[usize]| {
        let names: Vec<&str> =
            numbers.iter().filter_map(|&at| cells.get(at)).map(|cell| cell.text.as_str()).collect();
        names.join(",")
    };
    let sides: Vec<[String; 2]> = flow
        .bundles
        .iter()
        .map(|bundle| [named(&flow.left, &bundle.from), named(&flow.right, &bundle.to)])
        .collect();
    let widest = |side: usize| sides.iter().map(|names| width(&names[side])).max().unwrap_or(0);
    let (left, right) = (widest(0), widest(1));
    let pad = |name: &str, to: usize| " ".repeat(to - width(name));
    let lines = flow.bundles.iter().zip(&sides).map(|(bundle, [from, to])| {
        let text = format!("{from}{} -> {to}{}   {}", pad(from, left), pad(to, right), bundle.text);
        vec![Span::plain(text.trim_end())]
    });
    Block::of(lines.collect())
}

/// Formats a number for a scale.
pub(crate) fn number(value: f64, unit: &str) -> String {
    let whole = value.abs() >= 100.0 || (value - value.round()).abs() < 1e-9;
    if whole { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

/// Returns the position of a value on a scale, in columns.
fn place(lanes: &Lanes, at: f64) -> f64 {
    let share = if lanes.until > 0.0 { (at / lanes.until).clamp(0.0, 1.0) } else { 0.0 };
    share * SCALE as f64
}

/// Returns a letter and a colour for every column of a lane.
///
/// If a column has several bars, they are those of the kind that takes most of it.
fn columns(lanes: &Lanes, lane: &Lane) -> Vec<(char, Option<[u8; 3]>)> {
    let kinds = lane.bars.iter().map(|bar| bar.kind + 1).max().unwrap_or(0);
    let place = |at: f64| place(lanes, at);
    // For each column and kind: the width taken, the width taken by strong bars, and the last bar.
    let mut taken = vec![vec![(0.0f64, 0.0f64, None); kinds]; SCALE];
    for (n, bar) in lane.bars.iter().enumerate() {
        let (from, to) = (place(bar.from), place(bar.to));
        let first = (from.round() as usize).min(SCALE - 1);
        for (column, kinds) in
            taken.iter_mut().enumerate().take((to.round() as usize).max(first + 1)).skip(first)
        {
            let share = (to.min(column as f64 + 1.0) - from.max(column as f64)).max(0.0);
            let (all, strong, last) = &mut kinds[bar.kind];
            *all += share;
            *strong += if bar.is_strong { share } else { 0.0 };
            *last = Some(n);
        }
    }
    let of_column = |kinds: &Vec<(f64, f64, Option<usize>)>| {
        let bars = kinds
            .iter()
            .enumerate()
            .filter_map(|(kind, (all, strong, last))| Some((kind, *all, *strong, (*last)?)));
        let Some((kind, all, strong, last)) = bars.max_by(|a, b| a.1.total_cmp(&b.1).then(a.3.cmp(&b.3)))
        else {
            return (' ', None);
        };
        let letter = lanes.kinds.get(kind).map_or('#', |kind| kind.1);
        let is_strong = if all > 0.0 { 2.0 * strong >= all } else { lane.bars[last].is_strong };
        (if is_strong { letter.to_ascii_uppercase() } else { letter }, Some(KINDS[kind % KINDS.len()]))
    };
    taken.iter().map(of_column).collect()
}

fn lanes_block(lanes: &Lanes) -> Block {
    let left = lanes.lanes.iter().map(|lane| width(&lane.label)).max().unwrap_or(0);
    let column = |at: f64| (place(lanes, at).round() as usize).min(SCALE);
    let mut lines = Vec::new();
    for lane in &lanes.lanes {
        let line = columns(lanes, lane);
        let missing = " ".repeat(left - width(&lane.label));
        let mut spans = vec![Span::plain(format!("{}{missing} |", lane.label))];
        spans.extend(line.iter().map(|&(letter, colour)| Span { text: letter.to_string(), colour }));
        spans.push(Span::plain(format!("| {}", lane.end)));
        lines.push(spans);
    }
    let end = number(lanes.until, &lanes.unit);
    let missing = " ".repeat(SCALE.saturating_sub(width(&end) + 1));
    lines.push(vec![Span::plain(format!("{} 0{missing} {end}", " ".repeat(left + 1)))]);
    for (place, text) in &lanes.marks {
        lines.push(vec![Span::plain(format!("{}^ {text}", " ".repeat(left + 2 + column(*place))))]);
    }
    let is_strong = lanes.lanes.iter().flat_map(|lane| &lane.bars).any(|bar| bar.is_strong);
    let mut kinds: Vec<String> =
        lanes.used_kinds().map(|(_, (name, letter))| format!("{letter} {name}")).collect();
    if is_strong {
        kinds.push("capitals: the critical path".to_owned());
    }
    lines.push(vec![Span::plain(kinds.join(", "))]);
    Block::of(lines)
}
