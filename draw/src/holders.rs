//! The owners of each part of a tensor: each part in the colours of its ranks.
//!
//! ```text
//! region of every rank --borders--> ranges of every dim --owners of each product of ranges--> cells
//!                                        '--owners that differ along an axis--> split lines
//! ```
//!
//! A part is a single index where the dim is short, and otherwise all indices between two borders, whose
//! owners are the same. Owners of equal values are joined by `,`, and ranks that hold partial values of one
//! value by `+`.

use reshard_sharding::{Interval, Mesh, Sharding};

use crate::limits::{Limits, counted, titled};
use crate::scene::{Cell, Grid, Paint, Part, Scene};
use crate::tensor::{self, Piece};

/// The maximum number of ranks whose regions are drawn, and of intervals.
const MOST_RANKS: usize = 1 << 10;
const MOST_INTERVALS: usize = 1 << 17;

/// A dim of at most this many indices is drawn index by index.
const FEW: usize = 16;

/// The regions of the ranks that are drawn.
struct Held {
    ranks: Vec<usize>,
    coordinates: Vec<Vec<usize>>,
    /// Of each rank and dim.
    regions: Vec<Vec<Vec<Interval>>>,
    /// The number of ranks that are not drawn.
    left_out: usize,
}

impl Held {
    fn of(sharding: &Sharding) -> Self {
        let mesh = sharding.mesh();
        let mut held = Self { ranks: Vec::new(), coordinates: Vec::new(), regions: Vec::new(), left_out: 0 };
        let mut intervals = 0;
        for rank in mesh.ranks().take(MOST_RANKS) {
            let Ok(region) = sharding.region(rank) else { break };
            intervals += region.dims.iter().map(|dim| dim.len()).sum::<usize>();
            if intervals > MOST_INTERVALS && !held.ranks.is_empty() {
                break;
            }
            held.ranks.push(rank);
            held.coordinates.push(mesh.coordinate(rank).unwrap_or_default().to_vec());
            held.regions.push(region.dims.iter().map(|dim| dim.to_vec()).collect());
        }
        held.left_out = mesh.size() - held.ranks.len();
        held
    }

    /// Returns the owners of these ranges of a dim.
    fn holders(&self, dim: usize, pieces: &[Piece]) -> Vec<Vec<bool>> {
        let mut holders = vec![vec![false; self.ranks.len()]; pieces.len()];
        for (at, region) in self.regions.iter().enumerate() {
            for part in &region[dim] {
                let first = pieces.partition_point(|piece| piece.start < part.start);
                for (piece, of) in pieces[first..].iter().zip(&mut holders[first..]) {
                    if piece.start >= part.start + part.len {
                        break;
                    }
                    of[at] = true;
                }
            }
        }
        holders
    }

    /// Returns the axis that splits between two sets of owners.
    ///
    /// That is the outermost axis on which their coordinates differ.
    fn cut(&self, mesh: &Mesh, a: &[bool], b: &[bool]) -> Option<String> {
        if a == b {
            return None;
        }
        let along = |set: &[bool], axis: usize| -> Vec<usize> {
            let held = set.iter().zip(&self.coordinates).filter(|(held, _)| **held);
            let mut all: Vec<usize> = held.map(|(_, coordinate)| coordinate[axis]).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let cuts = (0..mesh.axes().len()).find(|&axis| along(a, axis) != along(b, axis));
        cuts.map(|axis| mesh.axes()[axis].name().to_string())
    }

    /// Returns the ranges of a dim: single indices for a short dim, else the ranges between borders.
    fn pieces(&self, mesh: &Mesh, dim: usize, len: usize, notes: &mut Vec<String>) -> Vec<Piece> {
        let mut borders: Vec<usize> = if len <= FEW {
            (0..len).collect()
        } else {
            let parts = self.regions.iter().flat_map(|region| &region[dim]);
            let mut all: Vec<usize> = parts.flat_map(|part| [part.start, part.start + part.len]).collect();
            all.push(0);
            all.sort_unstable();
            all.dedup();
            all.retain(|&border| border < len);
            all
        };
        if borders.len() > MOST_RANKS {
            notes.push(format!("dim {dim}: the first {MOST_RANKS} of {} parts", borders.len()));
            borders.truncate(MOST_RANKS);
        }
        let ends = borders.iter().skip(1).copied().chain([len]);
        let mut pieces: Vec<Piece> = borders
            .iter()
            .zip(ends)
            .map(|(&start, end)| Piece { start, len: end - start, cut: None })
            .collect();
        let holders = self.holders(dim, &pieces);
        for at in 1..pieces.len() {
            pieces[at].cut = self.cut(mesh, &holders[at - 1], &holders[at]);
        }
        pieces
    }
}

/// Numbers as few words: `0,3`, `0-3`, `0-3,8`.
pub(crate) fn runs(numbers: &[usize]) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut at = 0;
    while at < numbers.len() {
        let mut end = at;
        while numbers.get(end + 1).is_some_and(|&next| next == numbers[end] + 1) {
            end += 1;
        }
        if end >= at + 2 {
            words.push(format!("{}-{}", numbers[at], numbers[end]));
        } else {
            words.extend(numbers[at..=end].iter().map(usize::to_string));
        }
        at = end + 1;
    }
    if words.len() > 6 {
        let last = words.pop().unwrap_or_default();
        words.truncate(4);
        words.extend(["..".to_owned(), last]);
    }
    words.join(",")
}

/// Formats a shape as `2x5`, and `one element` for a scalar.
pub(crate) fn sizes(shape: &[usize]) -> String {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    if sizes.is_empty() { "one element".to_owned() } else { sizes.join("x") }
}

/// Formats the region of a rank: `0..2+8..10 x 0..4`.
pub(crate) fn indices(sharding: &Sharding, rank: usize) -> String {
    let Ok(region) = sharding.region(rank) else { return "nothing".to_owned() };
    let dims = region.dims.iter().map(|dim| {
        let parts: Vec<String> =
            dim.iter().take(8).map(|part| format!("{}..{}", part.start, part.start + part.len)).collect();
        let more = if dim.len() > 8 { "+.." } else { "" };
        if parts.is_empty() { "none".to_owned() } else { format!("{}{more}", parts.join("+")) }
    });
    let dims: Vec<String> = dims.collect();
    if dims.is_empty() { "the one element".to_owned() } else { dims.join(" x ") }
}

/// Returns the cell of a range, with its ranks grouped by partial value.
fn cell(sharding: &Sharding, held: &Held, holds: &[bool]) -> Cell {
    let holders: Vec<usize> = (0..held.ranks.len()).filter(|&at| holds[at]).collect();
    let term = |at: usize| -> Vec<usize> {
        let axes = sharding.mesh().axes();
        let digit = |of: &reshard_sharding::PartialAxis| {
            let axis = of.sub.axis;
            of.sub.digit(held.coordinates[at][axis], axes[axis].size()).unwrap_or(0)
        };
        sharding.partial().iter().map(digit).collect()
    };
    let mut terms: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    for &at in &holders {
        let of = term(at);
        match terms.iter_mut().find(|(known, _)| *known == of) {
            Some((_, ranks)) => ranks.push(held.ranks[at]),
            None => terms.push((of, vec![held.ranks[at]])),
        }
    }
    let mut ranks: Vec<usize> = holders.iter().map(|&at| held.ranks[at]).collect();
    let words: Vec<String> = terms
        .iter_mut()
        .map(|(_, ranks)| {
            ranks.sort_unstable();
            runs(ranks)
        })
        .collect();
    ranks.sort_unstable();
    let text = match words.len() {
        0 => "no rank".to_owned(),
        1..=4 => words.join("+"),
        n => format!("{}+{}+..+{}", words[0], words[1], words[n - 1]),
    };
    let how = if terms.len() > 1 { "partial values of ranks" } else { "held by" };
    let paint =
        if ranks.is_empty() { Paint::Muted } else { Paint::Hues(ranks.iter().copied().take(8).collect()) };
    ranks.truncate(64);
    Cell { hint: format!("{how} {text}"), text, paint, ranks }
}

/// Returns the picture of a sharding without its title: the grid and its notes.
pub(crate) fn grid(sharding: &Sharding, limits: Limits) -> (Grid, Vec<String>) {
    let mesh = sharding.mesh();
    let held = Held::of(sharding);
    let mut notes = Vec::new();
    if held.left_out > 0 {
        let drawn = counted(held.ranks.len(), "rank");
        notes.push(format!("only the first {drawn} of {} are drawn, with their parts", mesh.size()));
    }
    let dims: Vec<Vec<Piece>> = sharding
        .shape()
        .iter()
        .enumerate()
        .map(|(dim, &len)| held.pieces(mesh, dim, len, &mut notes))
        .collect();
    let holders: Vec<Vec<Vec<bool>>> =
        dims.iter().enumerate().map(|(dim, pieces)| held.holders(dim, pieces)).collect();
    let of = |index: &[usize]| {
        let mut holds = vec![true; held.ranks.len()];
        for (dim, &piece) in index.iter().enumerate() {
            for (all, here) in holds.iter_mut().zip(&holders[dim][piece]) {
                *all &= here;
            }
        }
        cell(sharding, &held, &holds)
    };
    let grid = tensor::grid(&dims, limits.side, of, &mut notes);
    notes.extend(said(sharding, &held));
    (grid, notes)
}

/// Returns the notes of a picture: sizes, empty shards, partial values and replicas.
fn said(sharding: &Sharding, held: &Held) -> Vec<String> {
    let mut notes = Vec::new();
    let mut shapes: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    for (at, region) in held.regions.iter().enumerate() {
        let shape: Vec<usize> = region.iter().map(|dim| dim.iter().map(|part| part.len).sum()).collect();
        match shapes.iter_mut().find(|(known, _)| *known == shape) {
            Some((_, ranks)) => ranks.push(held.ranks[at]),
            None => shapes.push((shape, vec![held.ranks[at]])),
        }
    }
    if let [(shape, _)] = &shapes[..] {
        notes.push(format!("every rank holds {}", sizes(shape)));
    } else {
        let (few, more) = shapes.split_at(shapes.len().min(6));
        let mut words: Vec<String> = few
            .iter()
            .map(|(shape, ranks)| {
                let mut ranks = ranks.clone();
                ranks.sort_unstable();
                let nothing = if shape.contains(&0) { ", which is nothing" } else { "" };
                format!("{}: {}{nothing}", runs(&ranks), sizes(shape))
            })
            .collect();
        if !more.is_empty() {
            words.push(format!("and {} other sizes", more.len()));
        }
        notes.push(format!("uneven: ranks {}", words.join("; ")));
    }
    if sharding.is_partial() {
        let terms: Vec<String> = sharding
            .partial()
            .iter()
            .map(|term| format!("{} over {}", term.op, term.sub.printed(sharding.mesh().axes())))
            .collect();
        notes.push(format!("+ joins partial values: {}", terms.join(", ")));
    }
    let axes = sharding.mesh().axes();
    let terms = sharding.partial();
    let replicas = sharding.replicated_axes();
    let replicated: Vec<String> = replicas
        .iter()
        .filter(|sub| sub.size > 1 && !terms.iter().any(|term| term.sub.contains(**sub)))
        .map(|sub| sub.printed(axes))
        .collect();
    if !replicated.is_empty() {
        notes.push(format!("replicas over {} are joined by , and -", replicated.join(", ")));
    }
    notes
}

/// Draws the owners of each part of a tensor.
///
/// Cells have the colours of their ranks, replicas are stripes, partial values are joined by `+`, and lines
/// show where each axis splits.
///
/// ```
/// use reshard_draw::{Limits, sharding};
/// use reshard_sharding::Sharding;
/// let mesh = "dp=2,tp=2".parse()?;
/// let text = sharding(&Sharding::parse(&mesh, &[2, 4], "S(0),P")?, Limits::USUAL).text(false);
/// assert!(text.contains("
///   0 0+1 0+1 0+1 0+1
///     --------------- dp
///   1 2+3 2+3 2+3 2+3
/// "), "{text}");
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
pub fn sharding(sharding: &Sharding, limits: Limits) -> Scene {
    let title = format!(
        "{} of {} on {}",
        titled(sharding),
        titled(&sizes(sharding.shape())),
        titled(sharding.mesh())
    );
    let (grid, notes) = grid(sharding, limits);
    let about = format!(
        "The ranks that hold each part of a tensor of {}, {} over the mesh {}: {}.",
        sizes(sharding.shape()),
        titled(sharding),
        titled(sharding.mesh()),
        notes.join("; ")
    );
    let scene = Scene::new(title, about).with(Part::Grid(grid));
    notes.into_iter().fold(scene, Scene::noted)
}

/// Returns the shard of each rank in words, for a table.
///
/// ```
/// use reshard_draw::{Limits, held};
/// use reshard_sharding::Sharding;
/// let sharding = Sharding::parse(&"x=2".parse()?, &[6], "S(0)")?;
/// assert_eq!(held(&sharding, Limits::USUAL), [(0, "3: 0..3".to_owned()), (1, "3: 3..6".to_owned())]);
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[doc(hidden)]
pub fn held(sharding: &Sharding, limits: Limits) -> Vec<(usize, String)> {
    let ranks = sharding.mesh().ranks().take(limits.rows.min(MOST_RANKS));
    ranks
        .map(|rank| {
            let shape = sharding.local_shape(rank).map(|shape| sizes(&shape)).unwrap_or_default();
            (rank, format!("{shape}: {}", indices(sharding, rank)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn runs_are_few_words() {
        assert_eq!(runs(&[0, 1, 2, 3]), "0-3");
        assert_eq!(runs(&[0, 1, 4]), "0,1,4");
        assert_eq!(runs(&[0, 2, 4, 6, 8, 10, 12, 14]), "0,2,4,6,..,14");
    }
}
