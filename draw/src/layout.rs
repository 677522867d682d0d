//! Layouts as grids: mode 0 runs down, mode 1 to the right, as `print_layout` of CuTe draws them.
//!
//! A layout of one mode is one row, and every coordinate of further modes has a separate grid.

use reshard_layout::algebra::ComposedLayout;
use reshard_layout::{Counted, Error, Layout};

use crate::limits::{Limits, Shown, counted, shown};
use crate::scene::{Cell, Grid, Group, Head, Paint, Part, Scene, Style};

/// The greatest number of cells that are drawn without leaving any out.
pub(crate) const MAX_CELLS: i64 = 1 << 16;

/// Draws a layout: a cell with the offset for every coordinate.
///
/// The cell has one of eight colours by the offset, and there are gaps between tiles.
///
/// ```
/// let scene = reshard_draw::layout(&"((2,2),2):((1,4),2)".parse()?)?;
/// assert_eq!(
///     scene.text(false),
///     "((2,2),2):((1,4),2)
///             0   1
///           +---+---+
///   0 (0,0) | 0 | 2 |
///           +---+---+
///   1 (1,0) | 1 | 3 |
///           +---+---+
///   2 (0,1) | 4 | 6 |
///           +---+---+
///   3 (1,1) | 5 | 7 |
///           +---+---+
/// "
/// );
/// # Ok::<(), reshard_layout::Error>(())
/// ```
///
/// # Errors
///
/// `too_large` beyond 65,536 cells.
pub fn layout(layout: &Layout) -> Result<Scene, Error> {
    whole(layout)?;
    layout_within(layout, Limits { side: MAX_CELLS as usize, ..Limits::USUAL })
}

/// Returns the same, with the cells beyond the limits left out.
///
/// ```
/// use reshard_draw::{Limits, layout_within};
/// let scene = layout_within(&"(1000000,2):(1,1000000)".parse()?, Limits::USUAL)?;
/// assert_eq!(scene.notes, ["mode 0: 999976 of 1000000 rows left out"]);
/// # Ok::<(), reshard_layout::Error>(())
/// ```
#[doc(hidden)]
pub fn layout_within(layout: &Layout, limits: Limits) -> Result<Scene, Error> {
    let about =
        format!("A table of the offsets of the layout {layout}, mode 0 down and mode 1 to the right.");
    let scene = Scene::new(layout.to_string(), about);
    drawn(scene, layout, limits, |index| Ok((layout.at(index)?, 0)))
}

/// Draws a composition, in the shape of its inner layout.
///
/// Colours are the banks of memory where offsets are words of 4 bytes: offsets modulo 32, in 32 colours. The
/// accesses of a column of one colour are serialized by one bank.
///
/// ```
/// let scene = reshard_draw::composed(&"Sw<2,0,2> o 0 o (4,4):(4,1)".parse()?)?;
/// assert!(scene.text(false).contains("1 |  5 |  4 |  7 |  6 |"));
/// # Ok::<(), reshard_layout::Error>(())
/// ```
///
/// # Errors
///
/// `too_large` beyond 65,536 cells.
pub fn composed(composed: &ComposedLayout) -> Result<Scene, Error> {
    whole(composed.inner())?;
    let about = format!(
        "A table of the offsets of {composed}, in colours of 32 banks, mode 0 down and mode 1 to the right."
    );
    let scene = Scene::new(composed.to_string(), about);
    let limits = Limits { side: MAX_CELLS as usize, ..Limits::USUAL };
    let scene = drawn(scene, composed.inner(), limits, |index| Ok((composed.at(index)?, BANKS)))?;
    Ok(scene.noted("colours: offsets modulo 32, the banks of words of 4 bytes"))
}

const BANKS: i64 = 32;

/// Draws a layout of threads and values, `(threads, values) -> offset in a tile`, as the tile.
///
/// Each cell shows the owning thread and the index of the value, in the colour of the thread.
///
/// ```
/// let scene = reshard_draw::thread_values(&"((2,2),2):((4,1),2)".parse()?, &[2, 4])?;
/// assert!(scene.text(false).contains("| T0 V0 |"));
/// # Ok::<(), reshard_layout::Error>(())
/// ```
///
/// # Errors
///
/// `too_large` beyond 65,536 cells; `inadmissible` for other than two modes or dims.
pub fn thread_values(layout: &Layout, tile: &[i64; 2]) -> Result<Scene, Error> {
    whole(layout)?;
    let [rows, columns] = *tile;
    let cells = rows.checked_mul(columns).filter(|n| (1..=MAX_CELLS).contains(n));
    let Some(cells) = cells else {
        return Err(Error::TooLarge { what: Counted::Cells, limit: MAX_CELLS as usize });
    };
    let threads = layout.modes().next().map_or(1, |mode| mode.size());
    let mut holders: Vec<Vec<(i64, i64)>> = vec![Vec::new(); cells as usize];
    let mut outside = 0usize;
    for index in 0..layout.size() {
        let place = layout.at(index)?;
        match usize::try_from(place).ok().and_then(|place| holders.get_mut(place)) {
            Some(cell) => cell.push((index % threads, index / threads)),
            None => outside += 1,
        }
    }
    // Offsets in a tile count down its columns, as everywhere in layouts.
    let cell = |row: i64, column: i64| {
        let held = &holders[(row + rows * column) as usize];
        let words: Vec<String> = held.iter().take(2).map(|(t, v)| format!("T{t} V{v}")).collect();
        let more = if held.len() > 2 { " .." } else { "" };
        let hues: Vec<usize> = held.iter().take(8).map(|(t, _)| *t as usize).collect();
        let paint = if hues.is_empty() { Paint::Muted } else { Paint::Hues(hues) };
        Cell { text: format!("{}{more}", words.join(",")), paint, ..Cell::default() }
    };
    let grid = Grid {
        style: Style::Ruled,
        columns: (0..columns).map(|at| Head::named(at.to_string())).collect(),
        rows: (0..rows).map(|at| Head::named(at.to_string())).collect(),
        cells: (0..rows).map(|row| (0..columns).map(|column| cell(row, column)).collect()).collect(),
    };
    let title = format!("{layout} over a tile of {rows}x{columns}");
    let about = format!(
        "The thread of each element of a tile of {rows}x{columns}, and the number of its value, by {layout}."
    );
    let mut scene =
        Scene::new(title, about).with(Part::Grid(grid)).noted("T is the thread, V the number of its value");
    if outside > 0 {
        scene = scene.noted(format!("{} outside of the tile", counted(outside, "value")));
    }
    Ok(scene)
}

/// Returns an error unless the whole layout can be drawn.
fn whole(layout: &Layout) -> Result<(), Error> {
    if layout.size() > MAX_CELLS {
        return Err(Error::TooLarge { what: Counted::Cells, limit: MAX_CELLS as usize });
    }
    Ok(())
}

/// Returns the head of an index into a mode.
///
/// It has the coordinates of the index if the mode is nested, and the number of nesting levels that start
/// there.
fn head(mode: &Layout, index: i64) -> Head {
    let label = match mode.coordinates(index) {
        Ok(coordinates) if !mode.is_scalar() => format!("{index} {coordinates}"),
        Ok(_) | Err(_) => index.to_string(),
    };
    let mut gap = 0;
    let mut size = 1;
    for part in mode.modes().map(|part| part.size()).collect::<Vec<_>>().iter().rev().skip(1).rev() {
        size *= part;
        gap += usize::from(index > 0 && size > 1 && index % size == 0);
    }
    Head { label, gap, ..Head::default() }
}

/// Draws the grids of a function of indices of this shape: a value and a modulus for its colour.
fn drawn(
    mut scene: Scene,
    shape: &Layout,
    limits: Limits,
    value: impl Fn(i64) -> Result<(i64, i64), Error>,
) -> Result<Scene, Error> {
    let mut modes: Vec<Layout> = shape.modes().collect();
    if modes.len() == 1 {
        modes.insert(0, Layout::unit());
    }
    let further = &modes[2..];
    let (rows, columns) = (modes[0].size(), modes[1].size());
    let pages: i64 = further.iter().map(Layout::size).product();
    let mut left_out = |what: String, count: usize, all: i64, of: &str| {
        if count > 0 {
            scene.notes.push(format!("{what}: {count} of {all} {of} left out"));
        }
    };
    let side = |mode: &Layout| shown(mode.size() as usize, limits.side);
    let (row_list, column_list) = (side(&modes[0]), side(&modes[1]));
    let page_list = shown(pages as usize, limits.side);
    let missing = |list: &[Shown]| {
        list.iter().map(|one| if let Shown::LeftOut { count, .. } = one { *count } else { 0 }).sum::<usize>()
    };
    left_out("mode 0".to_owned(), missing(&row_list), rows, "rows");
    left_out("mode 1".to_owned(), missing(&column_list), columns, "columns");
    left_out("further modes".to_owned(), missing(&page_list), pages, "grids");
    let heads = |mode: &Layout, list: &[Shown]| -> Vec<Head> {
        let of = |one: &Shown| match *one {
            Shown::At(at) => head(mode, at as i64),
            Shown::LeftOut { count, .. } => Head { left_out: count, ..Head::default() },
        };
        list.iter().map(of).collect()
    };
    for page in page_list {
        let Shown::At(page) = page else {
            scene.parts.push(Part::Line("..".to_owned()));
            continue;
        };
        let cell = |row: &Shown, column: &Shown| -> Result<Cell, Error> {
            let (Shown::At(row), Shown::At(column)) = (row, column) else { return Ok(Cell::default()) };
            let (value, modulo) = value(*row as i64 + rows * (*column as i64 + columns * page as i64))?;
            let paint = if modulo > 0 {
                Paint::Hues(vec![value.rem_euclid(modulo) as usize])
            } else {
                Paint::Light(value.rem_euclid(8) as usize)
            };
            Ok(Cell { text: value.to_string(), paint, ..Cell::default() })
        };
        let cells: Result<Vec<Vec<Cell>>, Error> =
            row_list.iter().map(|row| column_list.iter().map(|column| cell(row, column)).collect()).collect();
        let grid = Grid {
            style: Style::Ruled,
            columns: heads(&modes[1], &column_list),
            rows: heads(&modes[0], &row_list),
            cells: cells?,
        };
        if further.is_empty() {
            scene.parts.push(Part::Grid(grid));
        } else {
            let mut rest = page as i64;
            let title = further.iter().fold("(_,_".to_owned(), |text, mode| {
                let at = rest % mode.size();
                rest /= mode.size();
                format!("{text},{at}")
            }) + ")";
            scene.parts.push(Part::Group(Group::down(title, vec![Part::Grid(grid)])));
        }
    }
    Ok(scene)
}
