//! A mesh from a list of ranks, if the list is a layout.
//!
//! The ranks of a row-major array are a mesh exactly if they are a sum of one function per axis,
//!
//! ```text
//! rank(c) = rank(0) + sum over axes a of f_a(c_a)
//! ```
//!
//! and every `f_a` is a layout. A function `f` on `0..n` with `f(0) = 0` is one exactly if its longest linear start,
//! of `s` values, divides `n` and repeats: `f(i) = f(i mod s) + f(i - i mod s)`, and `f(s j)` is a layout of `j`.

use reshard_layout::{Layout, Mode, Modes};
use smallvec::SmallVec;

use super::Mesh;
use crate::Error;
use crate::axis::AxisName;
use crate::notation::cursor::Cursor;

impl Mesh {
    /// The mesh of these axes whose ranks, last axis fastest, are this list.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let mesh = Mesh::from_ranks([("dp", 2), ("tp", 2)], &[8, 10, 12, 14])?;
    /// assert_eq!(mesh.to_string(), "dp=2:4,tp=2:2@8");
    /// assert_eq!(Mesh::from_ranks([("x", 4)], &[0, 1, 2, 4]).unwrap_err().kind(), "not_a_layout");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `not_a_layout` at the first rank that departs from a layout, and with `mesh` where the sizes or names
    /// cannot be, or two coordinates are one rank.
    pub fn from_ranks<N: AsRef<str>>(
        axes: impl IntoIterator<Item = (N, usize)>,
        ranks: &[usize],
    ) -> Result<Mesh, Error> {
        let axes = axes
            .into_iter()
            .map(|(name, n)| Ok((AxisName::new(name.as_ref())?, n)))
            .collect::<Result<SmallVec<[(AxisName, usize); 4]>, Error>>()?;
        let size = axes.iter().try_fold(1usize, |p, a| p.checked_mul(a.1));
        if size != Some(ranks.len()) || ranks.is_empty() {
            let sizes: Vec<String> = axes.iter().map(|(name, n)| format!("{name}={n}")).collect();
            return Err(Error::Mesh {
                reason: format!(
                    "a mesh {} does not have {} ranks: give one rank per coordinate",
                    sizes.join(","),
                    ranks.len()
                ),
            });
        }
        let signed = ranks
            .iter()
            .map(|&r| i64::try_from(r).map_err(|_| Error::overflow(format!("the rank {r}"))))
            .collect::<Result<Vec<i64>, Error>>()?;
        let mut weight = 1;
        let mut layouts: SmallVec<[(AxisName, Layout); 4]> = SmallVec::new();
        for (name, n) in axes.into_iter().rev() {
            let line: Vec<i64> = (0..n).map(|i| signed[i * weight] - signed[0]).collect();
            let modes = modes_of_line(&line).map_err(|i| Error::NotALayout {
                reason: format!(
                    "the ranks are not a layout: along {name}, coordinate {i} is rank {}, which breaks the pattern of those before it",
                    ranks[i * weight]
                ),
            })?;
            layouts.push((name, Layout::from_flat(modes)?));
            weight *= n;
        }
        layouts.reverse();
        let mesh = Mesh::with_layouts(layouts, ranks[0])?;
        let departs = mesh.ranks().zip(ranks).position(|(a, &b)| a != b);
        match departs {
            None => Ok(mesh),
            Some(i) => Err(Error::NotALayout {
                reason: format!(
                    "the ranks are not a layout: coordinate {:?} is rank {}, but along the axes it would be {}",
                    mesh.coordinate_of_index(i).as_ref(),
                    ranks[i],
                    mesh.rank_at(&mesh.coordinate_of_index(i)).unwrap_or_default()
                ),
            }),
        }
    }

    /// The mesh of a nested list of ranks as it is printed, one name per level.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let mesh = Mesh::from_nested(&["dp", "tp"], "[[0, 1], [4, 5]]")?;
    /// assert_eq!(mesh.to_string(), "dp=2:4,tp=2:1");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails like [`Mesh::from_ranks`], and with `parse` where the list is not one or its rows differ in length.
    pub fn from_nested(names: &[&str], list: &str) -> Result<Mesh, Error> {
        let mut r = Cursor::new("list of ranks", list);
        let mut sizes: SmallVec<[Option<usize>; 4]> = SmallVec::from_elem(None, names.len());
        let mut ranks = Vec::new();
        read_level(&mut r, &mut sizes, &mut ranks)?;
        r.finish()?;
        Mesh::from_ranks(names.iter().zip(sizes).map(|(name, n)| (name, n.unwrap_or(0))), &ranks)
    }
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

/// The modes of a function given by its values, which start with 0; or the first index that departs from any layout.
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
            line[i * step] == line[(i - inner) * step] + stride * inner as i64
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
