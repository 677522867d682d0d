//! A mesh from a list of ranks: a layout if the list is one, else a layout of positions and the list as its
//! table.
//!
//! The ranks of a row-major array are a mesh exactly if they are a sum of one function per axis,
//!
//! ```text
//! rank(c) = rank(0) + sum over axes a of f_a(c_a)
//! ```
//!
//! and every `f_a` is a layout. A function `f` on `0..n` with `f(0) = 0` is one exactly if its longest linear
//! start, of `s` values, divides `n` and repeats: `f(i) = f(i mod s) + f(i - i mod s)`, and `f(s j)` is a
//! layout of `j`.

use reshard_layout::{Layout, Mode, Modes};
use smallvec::SmallVec;
use std::sync::Arc;

use super::table::{Table, check_ranks};
use super::{Inner, Mesh};
use crate::Error;
use crate::axis::AxisName;
use crate::notation::cursor::Cursor;

/// Axes by name and size.
type Named = SmallVec<[(AxisName, usize); 4]>;

impl Mesh {
    /// Returns the mesh of these axes with this list of ranks, last axis fastest.
    ///
    /// The ranks are distinct and may be in any order.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let mesh = Mesh::from_ranks([("dp", 2), ("tp", 2)], &[8, 10, 12, 14])?;
    /// assert_eq!(mesh.to_string(), "dp=2:4,tp=2:2@8");
    /// let ring = Mesh::from_ranks([("x", 4)], &[1, 2, 3, 0])?;
    /// assert_eq!(ring.to_string(), "x=4@[1,2,3,0]");
    /// assert_eq!(ring.coordinate(0).unwrap().as_slice(), [3]);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `mesh` where the sizes or names cannot be, or two coordinates are one rank, and with
    /// `overflow` for a rank of 2^63 - 1 or more.
    pub fn from_ranks<N: AsRef<str>>(
        axes: impl IntoIterator<Item = (N, usize)>,
        ranks: &[usize],
    ) -> Result<Mesh, Error> {
        let axes = axes
            .into_iter()
            .map(|(name, n)| Ok((AxisName::new(name.as_ref())?, n)))
            .collect::<Result<Named, Error>>()?;
        let size = axes.iter().try_fold(1usize, |p, a| p.checked_mul(a.1));
        if size != Some(ranks.len()) || ranks.is_empty() {
            let sizes: Vec<String> = axes.iter().map(|(name, n)| format!("{name}={n}")).collect();
            return Err(Error::Mesh {
                reason: format!(
                    "the mesh {} does not have {} ranks; give one rank per coordinate",
                    sizes.join(","),
                    ranks.len()
                ),
            });
        }
        check_ranks(ranks)?;
        if let Some(layouts) = layouts_of(&axes, ranks)
            && let Ok(mesh) = Mesh::with_layouts(layouts, ranks[0])
            && mesh.ranks().eq(ranks.iter().copied())
        {
            return Ok(mesh);
        }
        // Positions: invalid names and sizes are rejected here.
        let positions = Mesh::new(axes.iter().map(|(name, n)| (name.as_str(), *n)))?;
        let table = Table::new(ranks).map_err(|[a, b]| {
            let at = |i| positions.coordinate_at(i).unwrap_or_default().to_vec();
            Error::Mesh {
                reason: format!(
                    "rank {} is at the coordinates {:?} and {:?}; give each coordinate a different rank",
                    ranks[a],
                    at(a),
                    at(b)
                ),
            }
        })?;
        let Inner { axes, offset, size, world, lowest, modes, .. } = &*positions.0;
        Ok(Mesh(Arc::new(Inner {
            axes: axes.clone(),
            offset: *offset,
            size: *size,
            world: *world,
            lowest: *lowest,
            modes: modes.clone(),
            table: Some(table),
        })))
    }

    /// Returns the mesh of these layouts from coordinates to ranks, or to positions in this mesh's table.
    ///
    /// So every transform is layout algebra, followed by the table.
    pub(super) fn through_table(
        &self,
        axes: impl IntoIterator<Item = (AxisName, Layout)>,
        offset: usize,
    ) -> Result<Mesh, Error> {
        let part = Mesh::with_layouts(axes, offset)?;
        let Some(table) = self.rank_table() else { return Ok(part) };
        let ranks: Vec<usize> = part.ranks().map(|position| table[position]).collect();
        Mesh::from_ranks(part.axes().iter().map(|a| (a.name().as_str(), a.size())), &ranks)
    }

    /// Returns the mesh of a nested list of ranks as it is printed, one name per level.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let mesh = Mesh::from_nested(&["dp", "tp"], "[[0, 1], [4, 5]]")?;
    /// assert_eq!(mesh.to_string(), "dp=2:4,tp=2:1");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails like [`Mesh::from_ranks`], and with `parse` where the list is not one or its rows differ in
    /// length.
    pub fn from_nested(names: &[&str], list: &str) -> Result<Mesh, Error> {
        let mut r = Cursor::new("list of ranks", list);
        let mut sizes: SmallVec<[Option<usize>; 4]> = SmallVec::from_elem(None, names.len());
        let mut ranks = Vec::new();
        read_level(&mut r, &mut sizes, &mut ranks)?;
        r.finish()?;
        Mesh::from_ranks(names.iter().zip(sizes).map(|(name, n)| (name, n.unwrap_or(0))), &ranks)
    }
}

/// Returns the layouts of the lines through coordinate 0 of all axes, if each is one.
///
/// Values are relative to the rank there.
fn layouts_of(axes: &Named, ranks: &[usize]) -> Option<SmallVec<[(AxisName, Layout); 4]>> {
    let mut weight = 1;
    let mut layouts: SmallVec<[(AxisName, Layout); 4]> = SmallVec::new();
    for (name, n) in axes.iter().rev() {
        // Ranks are below 2^63.
        let line: Vec<i64> = (0..*n).map(|i| ranks[i * weight] as i64 - ranks[0] as i64).collect();
        layouts.push((name.clone(), Layout::from_flat(modes_of_line(&line).ok()?).ok()?));
        weight *= n;
    }
    layouts.reverse();
    Some(layouts)
}

/// Reads one level of a nested list; `sizes` are those of this level and the ones inside, once known.
fn read_level(r: &mut Cursor<'_>, sizes: &mut [Option<usize>], ranks: &mut Vec<usize>) -> Result<(), Error> {
    let Some((size, inner)) = sizes.split_first_mut() else {
        ranks.push(r.number("a rank (there is one name per level of the list)")?);
        return Ok(());
    };
    r.expect("[")?;
    let mut n = 0;
    loop {
        read_level(r, inner, ranks)?;
        n += 1;
        if !r.eat(",") {
            break;
        }
    }
    let at = r.here();
    if size.is_some_and(|s| s != n) {
        return Err(r.error_at(at, format!("as many entries as in the first list, {}", size.unwrap_or(0))));
    }
    *size = Some(n);
    r.expect("]")
}

/// Returns the modes of a function given by its values, which start with 0.
///
/// Fails with the first index that departs from any layout.
pub(crate) fn modes_of_line(line: &[i64]) -> Result<Modes, usize> {
    let mut modes = Modes::new();
    let mut step = 1;
    while step < line.len() {
        let n = line.len() / step;
        let stride = line[step];
        let linear = |i: usize| stride.checked_mul(i as i64) == Some(line[i * step]);
        let run = (1..n).find(|&i| !linear(i)).unwrap_or(n);
        if !n.is_multiple_of(run) {
            return Err(run * step);
        }
        let repeats = |i: usize| {
            let inner = i % run;
            stride.checked_mul(inner as i64).and_then(|x| x.checked_add(line[(i - inner) * step]))
                == Some(line[i * step])
        };
        if let Some(i) = (0..n).find(|&i| !repeats(i)) {
            return Err(i * step);
        }
        modes.push(Mode::new(run as i64, stride));
        step *= run;
    }
    if modes.is_empty() {
        modes.push(Mode::new(1, 0));
    }
    Ok(modes)
}
