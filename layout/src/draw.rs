//! Drawing layouts as grids, in text and as SVG.
//!
//! Mode 0 runs down, mode 1 to the right, as `print_layout` of CuTe draws them; a layout of one mode is one row, and
//! every coordinate of further modes has a grid of its own.
//!
//! ```
//! use reshard_layout::draw::Drawing;
//!
//! let drawing = Drawing::of_layout(&"((2,2),2):((1,4),2)".parse()?)?;
//! assert_eq!(
//!     drawing.to_string(),
//!     "((2,2),2):((1,4),2)
//!             0   1
//!           +---+---+
//!   0 (0,0) | 0 | 2 |
//!           +---+---+
//!   1 (1,0) | 1 | 3 |
//!           +---+---+
//!   2 (0,1) | 4 | 6 |
//!           +---+---+
//!   3 (1,1) | 5 | 7 |
//!           +---+---+
//! "
//! );
//! # Ok::<(), reshard_layout::Error>(())
//! ```

use std::fmt::{self, Write as _};

use crate::algebra::Composed;
use crate::order::coordinates;
use crate::{Counted, Error, Layout};

/// The greatest number of cells that are drawn.
pub const MAX_CELLS: i64 = 1 << 16;

/// Eight light colours, which repeat.
const COLOURS: [&str; 8] =
    ["#afafff", "#ffafaf", "#afffaf", "#ffffaf", "#d2d2ff", "#ffd2d2", "#d2ffd2", "#ffffd2"];

/// One grid: a title where there are several, and the values row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Grid {
    title: Option<String>,
    rows: Vec<Vec<i64>>,
}

/// The grids of a layout with their labels; `Display` is the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawing {
    title: String,
    row_labels: Vec<String>,
    column_labels: Vec<String>,
    grids: Vec<Grid>,
}

/// The index into a mode, with its coordinates where it is nested.
fn labels(mode: &Layout) -> Vec<String> {
    (0..mode.size())
        .map(|index| {
            if mode.is_scalar() { index.to_string() } else { format!("{index} {}", coordinates(mode, index)) }
        })
        .collect()
}

impl Drawing {
    /// The drawing of a layout.
    ///
    /// # Errors
    ///
    /// `too_large` beyond [`MAX_CELLS`].
    pub fn of_layout(layout: &Layout) -> Result<Self, Error> {
        Self::of(layout.to_string(), layout, |index| layout.at(index))
    }

    /// The drawing of a composition, in the shape of its inner layout.
    ///
    /// # Errors
    ///
    /// `too_large` beyond [`MAX_CELLS`].
    pub fn of_composed(composed: &Composed) -> Result<Self, Error> {
        Self::of(composed.to_string(), composed.inner(), |index| composed.at(index))
    }

    fn of(title: String, shape: &Layout, value: impl Fn(i64) -> Result<i64, Error>) -> Result<Self, Error> {
        if shape.size() > MAX_CELLS {
            return Err(Error::TooLarge { what: Counted::Cells, limit: MAX_CELLS as usize });
        }
        let mut modes: Vec<Layout> = shape.modes().collect();
        if modes.len() == 1 {
            modes.insert(0, Layout::unit());
        }
        let (rows, columns) = (modes[0].size(), modes[1].size());
        let further = &modes[2..];
        let pages: i64 = further.iter().map(Layout::size).product();
        let grids: Result<Vec<_>, Error> = (0..pages)
            .map(|page| {
                let title = (!further.is_empty()).then(|| {
                    let mut rest = page;
                    further.iter().fold("(_,_".to_owned(), |text, mode| {
                        let at = rest % mode.size();
                        rest /= mode.size();
                        format!("{text},{at}")
                    }) + ")"
                });
                let row =
                    |row| (0..columns).map(|column| value(row + rows * (column + columns * page))).collect();
                Ok(Grid { title, rows: (0..rows).map(row).collect::<Result<_, Error>>()? })
            })
            .collect();
        Ok(Self { title, row_labels: labels(&modes[0]), column_labels: labels(&modes[1]), grids: grids? })
    }

    /// The drawing as an SVG picture, coloured by value.
    ///
    /// ```
    /// use reshard_layout::draw::Drawing;
    ///
    /// let svg = Drawing::of_layout(&"(2,2):(1,2)".parse()?)?.svg();
    /// assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    /// assert_eq!(svg.matches("<rect ").count(), 4);
    /// # Ok::<(), reshard_layout::Error>(())
    /// ```
    pub fn svg(&self) -> String {
        const CELL: usize = 36;
        const LETTER: usize = 8;
        let longest = |labels: &[String]| labels.iter().map(String::len).max().unwrap_or(0);
        let widest = self.values().map(|value| value.to_string().len()).max().unwrap_or(1);
        let left = LETTER * longest(&self.row_labels) + 16;
        let cell = CELL.max(LETTER * widest.max(longest(&self.column_labels)) + 10);
        let height = CELL * (self.row_labels.len() + 2);
        let top = CELL;
        let width = (left + cell * self.column_labels.len() + 8).max(LETTER * self.title.len() + 16);
        let total = top + height * self.grids.len();
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{total}\" \
             font-family=\"monospace\" font-size=\"13\" text-anchor=\"middle\">\n"
        );
        // Writing to a String cannot fail.
        let text = |x: usize, y: usize, anchor: &str, what: &str| {
            let what = what.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{what}</text>\n")
        };
        svg += &text(8, 20, "start", &self.title);
        for (page, grid) in self.grids.iter().enumerate() {
            let y0 = top + height * page;
            if let Some(title) = &grid.title {
                svg += &text(8, y0 + 16, "start", title);
            }
            for (column, label) in self.column_labels.iter().enumerate() {
                svg += &text(left + cell * column + cell / 2, y0 + CELL - 6, "middle", label);
            }
            for (at, (row, label)) in grid.rows.iter().zip(&self.row_labels).enumerate() {
                let y = y0 + CELL * (at + 1);
                svg += &text(left - 6, y + 23, "end", label);
                for (column, value) in row.iter().enumerate() {
                    let x = left + cell * column;
                    let colour = COLOURS[value.rem_euclid(8) as usize];
                    let _ = writeln!(
                        svg,
                        "<rect x=\"{x}\" y=\"{y}\" width=\"{cell}\" height=\"{CELL}\" fill=\"{colour}\" stroke=\"black\"/>"
                    );
                    svg += &text(x + cell / 2, y + 23, "middle", &value.to_string());
                }
            }
        }
        svg + "</svg>\n"
    }

    fn values(&self) -> impl Iterator<Item = i64> + '_ {
        self.grids.iter().flat_map(|grid| grid.rows.iter().flatten().copied())
    }
}

impl fmt::Display for Drawing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.row_labels.iter().map(String::len).max().unwrap_or(0);
        let cell = self.values().map(|value| value.to_string().len()).max().unwrap_or(1);
        let cell = cell.max(self.column_labels.iter().map(String::len).max().unwrap_or(0));
        let rule = format!(
            "{:left$}   +{}\n",
            "",
            format!("{:-<1$}+", "", cell + 2).repeat(self.column_labels.len())
        );
        writeln!(f, "{}", self.title)?;
        for grid in &self.grids {
            if let Some(title) = &grid.title {
                writeln!(f, "{title}")?;
            }
            let header: Vec<String> =
                self.column_labels.iter().map(|label| format!("  {label:>cell$}")).collect();
            writeln!(f, "{:left$}   {}", "", header.join(" "))?;
            f.write_str(&rule)?;
            for (row, label) in grid.rows.iter().zip(&self.row_labels) {
                write!(f, "  {label:>left$} |")?;
                for value in row {
                    write!(f, " {value:>cell$} |")?;
                }
                writeln!(f)?;
                f.write_str(&rule)?;
            }
        }
        Ok(())
    }
}
