//! What notebooks show: tables of a mesh, a sharding and a plan, at most 64 KiB each, without scripts.

use std::fmt::{Display, Write as _};

use reshard_planner::Plan;
use reshard_sharding::{Interval, Mesh, Sharding};

/// The most bytes of one page.
const MOST_BYTES: usize = 64 << 10;

/// What is kept free for the end of a table and the line on what was left out.
const END_BYTES: usize = 512;

/// The most cells along a side of a picture.
const MOST_CELLS: usize = 64;

/// A text in which no character has a meaning to HTML, and none is left out.
fn escaped(text: &impl Display) -> String {
    let mut safe = String::new();
    for character in text.to_string().chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// The start of a text that may be long, escaped.
fn short(text: &impl Display) -> String {
    let text = text.to_string();
    let mut characters = text.chars();
    let start: String = characters.by_ref().take(400).collect();
    if characters.next().is_some() { format!("{}..", escaped(&start)) } else { escaped(&start) }
}

/// The colour of a rank: hues a golden angle apart, so that neighbours differ.
fn colour(rank: usize) -> String {
    format!("hsl({},70%,80%)", rank % 360 * 137 % 360)
}

fn cell(text: &str, background: Option<usize>) -> String {
    match background {
        Some(rank) => format!("<td style=\"background:{};color:#000\">{text}</td>", colour(rank)),
        None => format!("<td>{text}</td>"),
    }
}

/// A page with a title and a table, whose rows come one by one.
struct Page {
    text: String,
    left_out: usize,
}

impl Page {
    fn new(title: &str, heads: &[&str]) -> Page {
        let mut text = format!("<div><p><code>{title}</code></p><table>");
        if !heads.is_empty() {
            let heads: Vec<String> = heads.iter().map(|head| format!("<th>{}</th>", escaped(head))).collect();
            let _ = write!(text, "<tr>{}</tr>", heads.concat());
        }
        Page { text, left_out: 0 }
    }

    /// Adds a row, or counts it if there is no room; says whether there was.
    fn row(&mut self, cells: &[String]) -> bool {
        let row = format!("<tr>{}</tr>", cells.concat());
        let fits = self.left_out == 0 && self.text.len() + row.len() + END_BYTES <= MOST_BYTES;
        if fits {
            self.text.push_str(&row);
        } else {
            self.left_out += 1;
        }
        fits
    }

    /// Counts rows that were not made.
    fn leave_out(&mut self, rows: usize) {
        self.left_out = self.left_out.saturating_add(rows);
    }

    fn end(mut self, last: &str) -> String {
        self.text.push_str("</table>");
        if self.left_out > 0 {
            let _ = write!(self.text, "<p>and {} more rows</p>", self.left_out);
        }
        if self.text.len() + last.len() + END_BYTES / 2 <= MOST_BYTES {
            self.text.push_str(last);
        }
        self.text.push_str("</div>");
        self.text
    }
}

/// The ranks of a mesh: a row for every coordinate of all axes but the last.
pub(crate) fn mesh(mesh: &Mesh) -> String {
    let last = mesh.axes().last().map_or(1, reshard_sharding::Axis::size);
    let mut page = Page::new(&format!("Mesh {}", short(mesh)), &[]);
    let rows = mesh.size() / last.max(1);
    let names: Vec<&str> = mesh.axes().iter().map(|axis| axis.name().as_str()).collect();
    for row in 0..rows {
        let place = mesh.coordinate_of_index(row * last).unwrap_or_default();
        let digits: Vec<String> = names
            .iter()
            .zip(place.iter())
            .take(names.len().saturating_sub(1))
            .map(|(n, c)| format!("{n}={c}"))
            .collect();
        let mut cells = vec![format!("<th>{}</th>", short(&digits.join(" ")))];
        let shown = last.min(MOST_CELLS);
        for index in row * last..row * last + shown {
            let rank = mesh.coordinate_of_index(index).and_then(|place| mesh.rank_at(&place));
            cells.push(rank.map_or_else(String::new, |rank| cell(&rank.to_string(), Some(rank))));
        }
        if shown < last {
            cells.push(cell(&format!("and {} more", last - shown), None));
        }
        if !page.row(&cells) {
            page.leave_out(rows - row - 1);
            break;
        }
    }
    page.end("")
}

/// Where the parts of a dim begin that some rank holds whole or not at all, up to so many.
fn borders(dim: &[Vec<Interval>], len: usize) -> Option<Vec<usize>> {
    let mut borders: Vec<usize> = vec![0];
    for part in dim.iter().flatten() {
        borders.extend([part.start, part.start + part.len]);
    }
    borders.sort_unstable();
    borders.dedup();
    borders.retain(|&border| border < len);
    (borders.len() <= MOST_CELLS).then_some(borders)
}

/// A picture of a tensor of one or two dims: every block with the ranks that hold it.
fn picture(sharding: &Sharding, ranks: &[usize], regions: &[Vec<Vec<Interval>>]) -> Option<String> {
    let shape = match *sharding.shape() {
        [columns] => [1, columns],
        [rows, columns] => [rows, columns],
        _ => return None,
    };
    let whole = vec![Interval { start: 0, len: 1 }];
    let of_dim = |dim: usize| -> Vec<Vec<Interval>> {
        regions
            .iter()
            .map(|dims| {
                if dims.len() == 2 {
                    dims[dim].clone()
                } else if dim == 0 {
                    whole.clone()
                } else {
                    dims[0].clone()
                }
            })
            .collect()
    };
    let (rows, columns) = (of_dim(0), of_dim(1));
    let (tops, lefts) = (borders(&rows, shape[0])?, borders(&columns, shape[1])?);
    if tops.len() * lefts.len() * ranks.len() > 1 << 18 {
        return None;
    }
    let holds = |parts: &[Interval], index: usize| {
        parts.iter().any(|part| part.start <= index && index < part.start + part.len)
    };
    let mut page = Page::new("", &[]);
    for &top in &tops {
        let mut cells = Vec::new();
        for &left in &lefts {
            let holders: Vec<usize> = ranks
                .iter()
                .enumerate()
                .filter(|(at, _)| holds(&rows[*at], top) && holds(&columns[*at], left))
                .map(|(_, &rank)| rank)
                .collect();
            let named: Vec<String> = holders.iter().take(8).map(ToString::to_string).collect();
            let more = if holders.len() > 8 { ",.." } else { "" };
            cells.push(cell(&format!("{}{more}", named.join(",")), holders.first().copied()));
        }
        if !page.row(&cells) {
            return None;
        }
    }
    let text = page.end("");
    (text.len() <= MOST_BYTES / 2).then_some(text)
}

/// What every rank of a sharding holds, a colour for each rank.
pub(crate) fn sharding(sharding: &Sharding) -> String {
    let title = format!(
        "Sharding {} of {} on {}",
        short(sharding),
        short(&shape_text(sharding.shape())),
        short(sharding.mesh())
    );
    let mut page = Page::new(&title, &["rank", "place", "local shape", "indices"]);
    let size = sharding.mesh().size();
    let (mut ranks, mut regions) = (Vec::new(), Vec::new());
    for (at, rank) in sharding.mesh().ranks().enumerate() {
        let Ok(region) = sharding.region(rank) else { break };
        let place = sharding.mesh().coordinate(rank).unwrap_or_default();
        let parts: Vec<String> = region
            .dims
            .iter()
            .map(|dim| {
                let parts: Vec<String> = dim
                    .iter()
                    .take(8)
                    .map(|part| format!("{}..{}", part.start, part.start + part.len))
                    .collect();
                let more = if dim.len() > 8 { "+.." } else { "" };
                if parts.is_empty() { "none".to_owned() } else { format!("{}{more}", parts.join("+")) }
            })
            .collect();
        let cells = [
            cell(&rank.to_string(), Some(rank)),
            cell(&short(&shape_text(&place)), None),
            cell(&short(&shape_text(&region.local_shape())), None),
            cell(&short(&parts.join(" x ")), None),
        ];
        if !page.row(&cells) {
            page.leave_out(size - at - 1);
            break;
        }
        ranks.push(rank);
        regions.push(region.dims.iter().map(|dim| dim.to_vec()).collect::<Vec<_>>());
    }
    let picture = if ranks.len() == size { picture(sharding, &ranks, &regions) } else { None };
    page.end(&picture.unwrap_or_default())
}

fn shape_text(shape: &[usize]) -> String {
    let numbers: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("({})", numbers.join(","))
}

/// The steps of a plan.
pub(crate) fn plan(plan: &Plan) -> String {
    let title = format!(
        "Plan {} -&gt; {} of {} {}",
        short(plan.from()),
        short(plan.to()),
        plan.dtype(),
        short(&shape_text(plan.from().shape()))
    );
    let mut page = Page::new(&title, &["", "op", "axes", "group", "before", "after", "bytes received", "us"]);
    for (at, step) in plan.steps().iter().enumerate() {
        let cells = [
            cell(&(at + 1).to_string(), None),
            cell(&escaped(&step.op()), None),
            cell(&short(&step.axis_names().join(",")), None),
            cell(&short(&step.group), None),
            cell(&short(&step.before), None),
            cell(&short(&step.after), None),
            cell(&step.received_bytes.to_string(), None),
            cell(&format!("{:.1}", step.cost_us), None),
        ];
        page.row(&cells);
    }
    let bound = plan.lower_bound_bytes().map_or_else(|| "not known".to_owned(), |bytes| format!("{bytes} B"));
    let last = format!(
        "<p>{} B received (bound {bound}), {:.1} us (bound {:.1} us), {} B at most at once</p>",
        plan.received_bytes(),
        plan.cost_us(),
        plan.lower_bound_us(),
        plan.peak_bytes()
    );
    page.end(&last)
}
