//! Tensors of any number of dims as one matrix of matrices.
//!
//! Counted from the last, dims alternate between x and y: the last two are a matrix, the two before them a
//! matrix of such matrices, and gaps grow with the level.
//!
//! ```text
//! 0  1   4  5
//! 2  3   6  7          the elements of a 2x2x2x2 tensor
//!
//! 8  9   12 13
//! 10 11  14 15
//! ```

use crate::limits::{Limits, Shown, counted, shown};
use crate::scene::{Cell, Grid, Head, Part, Scene, Style};

/// A part of a dim that is one row or column: these indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: usize,
    pub(crate) len: usize,
    /// The name of the axis that splits before it.
    pub(crate) cut: Option<String>,
}

impl Piece {
    fn label(&self) -> String {
        if self.len == 1 {
            self.start.to_string()
        } else {
            format!("{}..{}", self.start, self.start + self.len)
        }
    }
}

/// An index of a part for each dim along one direction, outermost first; `None` where the head is a mark.
type Places = Vec<Option<Vec<usize>>>;

/// Returns the heads of rows or columns: all parts of these dims, the last dim innermost.
fn heads(dims: &[(usize, &[Piece])], side: usize, notes: &mut Vec<String>) -> (Vec<Head>, Places) {
    let mut most: Vec<usize> = dims.iter().map(|(_, pieces)| pieces.len()).collect();
    // Shorten the longest first; of equal ones the outermost.
    while most.iter().try_fold(1usize, |n, &m| n.checked_mul(m)).is_none_or(|n| n > side.max(1)) {
        let longest = most.iter().copied().max().unwrap_or(1);
        let Some(at) = most.iter().position(|&m| m == longest && m > 1) else { break };
        most[at] = longest.div_ceil(2).min(longest - 1);
    }
    for ((dim, pieces), most) in dims.iter().zip(&most) {
        if *most < pieces.len() {
            let (left, all) = (pieces.len() - most, counted(pieces.len(), "part"));
            notes.push(format!("dim {dim}: {left} of {all} left out"));
        }
    }
    let mut all = vec![(Head::default(), Some(Vec::new()))];
    for (level, ((_, pieces), most)) in dims.iter().zip(&most).enumerate() {
        let inner = dims.len() - 1 - level;
        let list = shown(pieces.len(), *most);
        let mut next: Vec<(Head, Option<Vec<usize>>)> = Vec::new();
        for (head, places) in all {
            let Some(places) = places else {
                next.push((head, None));
                continue;
            };
            for (at, one) in list.iter().enumerate() {
                // The first one has the gap and line of the outer level.
                let (gap, cut) = if at == 0 { (head.gap, head.cut.clone()) } else { (inner, None) };
                next.push(match *one {
                    Shown::LeftOut { count, .. } => {
                        (Head { gap, cut, left_out: count, ..Head::default() }, None)
                    }
                    Shown::At(piece) => {
                        let own = &pieces[piece];
                        let label = match head.label.as_str() {
                            "" => own.label(),
                            outer => format!("{outer},{}", own.label()),
                        };
                        let cut = if at == 0 { cut } else { own.cut.clone() };
                        let places = places.iter().copied().chain([piece]).collect();
                        (Head { label, gap, cut, left_out: 0 }, Some(places))
                    }
                });
            }
        }
        all = next;
    }
    all.into_iter().unzip()
}

/// Returns the grid of a tensor with these parts of each dim.
///
/// `cell` is called with the index of a part per dim.
pub(crate) fn grid(
    dims: &[Vec<Piece>],
    side: usize,
    cell: impl Fn(&[usize]) -> Cell,
    notes: &mut Vec<String>,
) -> Grid {
    let along = |is_x: bool| -> Vec<(usize, &[Piece])> {
        let of = dims.iter().enumerate().filter(|(dim, _)| ((dims.len() - dim) % 2 == 1) == is_x);
        of.map(|(dim, pieces)| (dim, pieces.as_slice())).collect()
    };
    let (ys, xs) = (along(false), along(true));
    if dims.len() > 2 {
        let said = |dims: &[(usize, &[Piece])]| {
            dims.iter().map(|(dim, _)| dim.to_string()).collect::<Vec<_>>().join(",")
        };
        notes.push(format!("down are the dims {}, across {}", said(&ys), said(&xs)));
    }
    let (mut rows, row_places) = heads(&ys, side, notes);
    let (mut columns, column_places) = heads(&xs, side, notes);
    if ys.is_empty() {
        rows[0].label = String::new();
    }
    if xs.is_empty() {
        columns[0].label = String::new();
    }
    let mut index = vec![0; dims.len()];
    let cells = row_places
        .iter()
        .map(|row| {
            let of_row = column_places.iter().map(|column| {
                let (Some(row), Some(column)) = (row, column) else { return Cell::default() };
                for (places, dims) in [(row, &ys), (column, &xs)] {
                    for (&place, (dim, _)) in places.iter().zip(dims) {
                        index[*dim] = place;
                    }
                }
                cell(&index)
            });
            of_row.collect()
        })
        .collect();
    Grid { style: Style::Open, columns, rows, cells }
}

/// Returns a tensor by the numbers of its elements, the last dim fastest.
///
/// ```
/// use reshard_draw::{Limits, tensor};
/// let text = tensor(&[2, 2, 2, 2], Limits::USUAL).text(false);
/// assert!(text.contains("
///       0,0 0,1   1,0 1,1
///   0,0   0   1     4   5
///   0,1   2   3     6   7
///
///   1,0   8   9    12  13
///   1,1  10  11    14  15
/// "), "{text}");
/// ```
pub fn tensor(shape: &[usize], limits: Limits) -> Scene {
    let dims: Vec<Vec<Piece>> = shape
        .iter()
        .map(|&len| {
            // Parts beyond the side are not drawn, except the last ones, so a list of all is not needed.
            let all = (0..len.min(1 << 12)).map(|start| Piece { start, len: 1, cut: None });
            all.collect()
        })
        .collect();
    let mut notes = Vec::new();
    for (dim, &len) in shape.iter().enumerate().filter(|&(_, &len)| len > 1 << 12) {
        notes.push(format!("dim {dim}: the first {} of {len} indices", 1 << 12));
    }
    let number = |index: &[usize]| {
        index
            .iter()
            .zip(shape)
            .fold(0u128, |n, (&i, &len)| n.saturating_mul(len as u128).saturating_add(i as u128))
    };
    let grid = grid(&dims, limits.side, |index| Cell::plain(number(index).to_string()), &mut notes);
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    let sizes = if sizes.is_empty() { "a scalar".to_owned() } else { sizes.join("x") };
    let about = format!(
        "The elements of {sizes} by their numbers, the last dim fastest, dims along x, y, x, y from the last."
    );
    let scene = Scene::new(sizes, about).with(Part::Grid(grid));
    notes.into_iter().fold(scene, Scene::noted)
}
