//! The shapes of each part, in tenths of a pixel.

use super::{LETTER, LINE, Picture, Shape, WIDEST, letters};
use crate::colour::{KINDS, hex};
use crate::scene::{Cell, Direction, Flow, Grid, Group, Head, Lanes, Paint, Part, Style};
use crate::text::{colours, number};

/// The height of a cell.
const CELL: i32 = 260;

pub(super) fn picture(part: &Part) -> Picture {
    match part {
        Part::Line(text) => Picture::of_text(text, 92, "t"),
        Part::Group(group) => of_group(group),
        Part::Grid(grid) => of_grid(grid),
        Part::Flow(flow) => of_flow(flow),
        Part::Lanes(lanes) => of_lanes(lanes),
    }
}

fn of_group(group: &Group) -> Picture {
    let mut inner = Picture::default();
    let mut row = Picture::default();
    for part in group.parts.iter().map(picture) {
        match group.way {
            Direction::Down => inner.below(80, part),
            Direction::Across => {
                if row.width > 0 && row.width + 160 + part.width > 10 * WIDEST {
                    inner.below(80, std::mem::take(&mut row));
                }
                let x = if row.width > 0 { row.width + 160 } else { 0 };
                row.put(x, 0, part);
            }
        }
    }
    if row.width > 0 {
        inner.below(80, row);
    }
    let mut picture = Picture::default();
    if !group.title.is_empty() {
        picture.below(0, Picture::of_text(&group.title, 92, "t"));
    }
    picture.below(40, inner);
    if !group.is_boxed {
        return picture;
    }
    let mut boxed = Picture::default();
    let (w, h) = (picture.width + 160, picture.height + 140);
    boxed.shapes.push(Shape::Rect([0, 0, w, h], None, "l"));
    boxed.put(80, 60, picture);
    (boxed.width, boxed.height) = (w, h);
    boxed
}

/// Draws a cell of this size: its stripes, its outline, its text.
fn of_cell(cell: &Cell, [x, y, w, h]: [i32; 4], to_the_left: bool, shapes: &mut Vec<Shape>) {
    let tells = !cell.ranks.is_empty() || !cell.hint.is_empty();
    if tells {
        shapes.push(Shape::Open(cell.ranks.clone(), cell.hint.clone()));
    }
    let colours = colours(&cell.paint);
    let is_coloured = !colours.is_empty();
    match &colours[..] {
        [colour] => shapes.push(Shape::Rect([x, y, w, h], Some(hex(*colour)), "r")),
        [] if to_the_left => {}
        stripes => {
            let n = stripes.len() as i32;
            for (at, colour) in stripes.iter().enumerate() {
                let (from, to) = (w * at as i32 / n, w * (at as i32 + 1) / n);
                shapes.push(Shape::Rect([x + from, y, to - from, h], Some(hex(*colour)), "z"));
            }
            let class = if cell.paint == Paint::Muted { "e" } else { "l" };
            shapes.push(Shape::Rect([x, y, w, h], None, class));
        }
    }
    let class = match (is_coloured, &cell.paint) {
        (true, _) => "k",
        (false, Paint::Muted) => "m",
        (false, Paint::Blank | Paint::Hues(_) | Paint::Light(_)) => "t",
    };
    if !cell.text.is_empty() {
        let (place, anchor) = if to_the_left { (x + 40, "start") } else { (x + w / 2, "middle") };
        shapes.push(Shape::Text([place, y + h / 2 + 45], anchor, class, cell.text.clone()));
    }
    if tells {
        shapes.push(Shape::Close);
    }
}

/// Returns the space before a row or column: the levels that begin with it, and space for a line.
fn space(head: &Head, at: usize) -> i32 {
    if at == 0 { 0 } else { 80 * head.gap.min(6) as i32 + if head.cut.is_some() { 60 } else { 0 } }
}

fn of_grid(grid: &Grid) -> Picture {
    let is_table = grid.style == Style::Table;
    let labels = grid.rows.iter().map(|head| letters(&head.label)).max().unwrap_or(0);
    let left = if labels > 0 { labels + 80 } else { 0 };
    let has_cuts = grid.columns.iter().skip(1).any(|head| head.cut.is_some());
    let has_labels = grid.columns.iter().any(|head| !head.label.is_empty());
    let top = 10 * LINE * (i32::from(has_cuts) + i32::from(has_labels));
    let mut widths: Vec<i32> = grid
        .columns
        .iter()
        .enumerate()
        .map(|(column, head)| {
            let cells = (0..grid.rows.len()).filter_map(|row| grid.cell(row, column));
            let text = cells.map(|cell| letters(&cell.text)).max().unwrap_or(0).max(letters(&head.label));
            (text + 100).max(if is_table { 0 } else { CELL })
        })
        .collect();
    if !is_table {
        let whole = grid.columns.iter().zip(&widths).filter(|(head, _)| head.left_out == 0);
        let widest = whole.map(|(_, width)| *width).max().unwrap_or(CELL);
        for (width, head) in widths.iter_mut().zip(&grid.columns) {
            *width = if head.left_out > 0 { CELL } else { widest };
        }
    }
    let height = if is_table { 10 * LINE + 40 } else { CELL };
    let mut picture = Picture::default();
    let mut lines = Vec::new();
    let mut x = left;
    let mut columns = Vec::new();
    for (at, (head, &width)) in grid.columns.iter().zip(&widths).enumerate() {
        x += space(head, at);
        columns.push(x);
        let label = if head.left_out > 0 { ".." } else { head.label.as_str() };
        if !label.is_empty() {
            let (place, anchor) = if is_table { (x + 40, "start") } else { (x + width / 2, "middle") };
            picture.shapes.push(Shape::Text([place, top - 50], anchor, "m", label.to_owned()));
        }
        x += width;
    }
    let right = x;
    let mut y = top;
    for (row, head) in grid.rows.iter().enumerate() {
        if let (Some(name), true) = (&head.cut, row > 0) {
            let line = y + space(head, row) / 2;
            lines.push(Shape::Line([left, line, right, line], "c"));
            lines.push(Shape::Text([right + 60, line + 45], "start", "n", name.clone()));
            picture.width = picture.width.max(right + 60 + letters(name));
        }
        y += space(head, row);
        let label = if head.left_out > 0 { ".." } else { head.label.as_str() };
        if !label.is_empty() {
            let place = [left - 60, y + height / 2 + 45];
            picture.shapes.push(Shape::Text(place, "end", "m", label.to_owned()));
        }
        for (column, (&x, &width)) in columns.iter().zip(&widths).enumerate() {
            let place = [x, y, width, height];
            if let Some(cell) = grid.cell(row, column) {
                of_cell(cell, place, is_table, &mut picture.shapes);
            } else {
                let middle = [x + width / 2, y + height / 2 + 45];
                picture.shapes.push(Shape::Text(middle, "middle", "m", "..".to_owned()));
            }
        }
        y += height;
    }
    for (at, head) in grid.columns.iter().enumerate().skip(1) {
        if let Some(name) = &head.cut {
            let line = columns[at] - space(head, at) / 2;
            lines.push(Shape::Line([line, top - 30, line, y], "c"));
            lines.push(Shape::Text([line, 130], "middle", "n", name.clone()));
            picture.width = picture.width.max(line + letters(name) / 2);
        }
    }
    picture.shapes.extend(lines);
    (picture.width, picture.height) = (picture.width.max(right), y);
    picture
}

/// Positions with at least this distance, as near to the wanted ones as their order allows.
fn apart(wanted: &[i32], distance: i32) -> Vec<i32> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&at| wanted[at]);
    let mut places = wanted.to_vec();
    for pair in order.windows(2) {
        places[pair[1]] = places[pair[1]].max(places[pair[0]] + distance);
    }
    places
}

fn of_flow(flow: &Flow) -> Picture {
    const BETWEEN: i32 = 2600;
    let widest = |cells: &[Cell]| cells.iter().map(|cell| letters(&cell.text)).max().unwrap_or(0) + 120;
    let (left, right) = (widest(&flow.left), widest(&flow.right));
    let texts = flow.bundles.iter().map(|bundle| letters(&bundle.text)).max().unwrap_or(0);
    let between = BETWEEN.max(texts + 1200);
    let y_of = |at: usize| 300 * at as i32;
    let mut picture = Picture::default();
    let whole = left + between + right;
    for (x, width, cells) in [(0, left, &flow.left), (left + between, right, &flow.right)] {
        for (at, cell) in cells.iter().enumerate() {
            of_cell(cell, [x, y_of(at), width, 240], false, &mut picture.shapes);
            picture.height = picture.height.max(y_of(at) + 240);
        }
    }
    let middle = left + between / 2;
    let mean = |bundle: &crate::scene::Bundle| {
        let ends: Vec<i32> = bundle.from.iter().chain(&bundle.to).map(|&at| y_of(at) + 120).collect();
        ends.iter().sum::<i32>() / (ends.len() as i32).max(1)
    };
    let hubs = apart(&flow.bundles.iter().map(mean).collect::<Vec<_>>(), 10 * LINE + 60);
    for (bundle, &hub) in flow.bundles.iter().zip(&hubs) {
        for &at in &bundle.from {
            picture.shapes.push(Shape::Curve([left, y_of(at) + 120, middle, hub], false));
        }
        for &at in &bundle.to {
            picture.shapes.push(Shape::Curve([middle, hub, left + between, y_of(at) + 120], true));
        }
        if !bundle.text.is_empty() {
            let width = letters(&bundle.text) + 80;
            let place = [middle - width / 2, hub - 100, width, 200];
            picture.shapes.push(Shape::Rect(place, None, "b"));
            picture.shapes.push(Shape::Text([middle, hub + 45], "middle", "t", bundle.text.clone()));
        }
        picture.height = picture.height.max(hub + 120);
    }
    picture.width = picture.width.max(whole);
    picture
}

/// The width of a scale of bars.
const SCALE: i32 = 4800;

fn of_lanes(lanes: &Lanes) -> Picture {
    const LANE: i32 = 200;
    let left = lanes.lanes.iter().map(|lane| letters(&lane.label)).max().unwrap_or(0) + 80;
    let place = |value: f64| {
        let share = if lanes.until > 0.0 { (value / lanes.until).clamp(0.0, 1.0) } else { 0.0 };
        left + (share * f64::from(SCALE)).round() as i32
    };
    let mut picture = Picture::default();
    let mut y = 0;
    for lane in &lanes.lanes {
        let tells = !lane.ranks.is_empty();
        if tells {
            picture.shapes.push(Shape::Open(lane.ranks.clone(), String::new()));
        }
        picture.shapes.push(Shape::Text([0, y + 145], "start", "t", lane.label.clone()));
        for bar in &lane.bars {
            let (from, to) = (place(bar.from), place(bar.to));
            let width = (to - from).max(10);
            let hint = format!("{}: {}", bar.text, number(bar.to - bar.from, &lanes.unit));
            picture.shapes.push(Shape::Open(Vec::new(), hint));
            let fill = hex(KINDS[bar.kind % KINDS.len()]);
            // An outline round a narrow bar would hide it.
            let class = if width < 40 { "z" } else { "r" };
            picture.shapes.push(Shape::Rect([from, y + 10, width, LANE - 20], Some(fill), class));
            if bar.is_strong {
                // Under the bar: an outline would hide the short ones.
                picture.shapes.push(Shape::Line([from, y + LANE - 10, from + width, y + LANE - 10], "s"));
            }
            if letters(&bar.text) + 60 <= width {
                let middle = [from + width / 2, y + 145];
                picture.shapes.push(Shape::Text(middle, "middle", "k", bar.text.clone()));
            }
            picture.shapes.push(Shape::Close);
        }
        if !lane.end.is_empty() {
            let x = left + SCALE + 80;
            picture.shapes.push(Shape::Text([x, y + 145], "start", "t", lane.end.clone()));
            picture.width = picture.width.max(x + letters(&lane.end));
        }
        if tells {
            picture.shapes.push(Shape::Close);
        }
        y += LANE + 40;
    }
    picture.shapes.push(Shape::Line([left, y, left + SCALE, y], "l"));
    for quarter in 0..=4 {
        let x = left + SCALE * quarter / 4;
        picture.shapes.push(Shape::Line([x, y, x, y + 50], "l"));
        if quarter % 2 == 0 {
            let anchor = ["start", "middle", "end"][quarter as usize / 2];
            let text = number(lanes.until * f64::from(quarter) / 4.0, &lanes.unit);
            picture.shapes.push(Shape::Text([x, y + 190], anchor, "m", text));
        }
    }
    let axis = y;
    y += 240;
    for (value, text) in &lanes.marks {
        let x = place(*value);
        picture.shapes.push(Shape::Line([x, 0, x, axis], "c"));
        let is_left = x < left + SCALE / 2;
        let (x, anchor) = if is_left { (x, "start") } else { (x, "end") };
        picture.shapes.push(Shape::Text([x, y + 100], anchor, "n", text.clone()));
        y += 10 * LINE;
    }
    // The legend of the colours.
    let mut x = 0;
    let strong = lanes.lanes.iter().flat_map(|lane| &lane.bars).any(|bar| bar.is_strong);
    let kinds = lanes.used_kinds().map(|(at, (name, _))| (Some(hex(KINDS[at % KINDS.len()])), name.as_str()));
    let strong = strong.then_some((None, "thick line: the critical path"));
    for (fill, name) in kinds.chain(strong) {
        if x + letters(name) + 300 > left + SCALE && x > 0 {
            x = 0;
            y += 10 * LINE + 60;
        }
        let is_path = fill.is_none();
        picture.shapes.push(Shape::Rect([x + 10, y + 30, 160, 140], fill, if is_path { "e" } else { "r" }));
        if is_path {
            picture.shapes.push(Shape::Line([x + 10, y + 170, x + 170, y + 170], "s"));
        }
        picture.shapes.push(Shape::Text([x + 240, y + 145], "start", "t", name.to_owned()));
        x += letters(name) + 240 + 20 * LETTER;
        picture.width = picture.width.max(x);
    }
    y += 10 * LINE + 40;
    picture.width = picture.width.max(left + SCALE);
    picture.height = y;
    picture
}
