//! Space sampled at points, split into windows and reassembled.

use super::Body::By;
use super::Ops;
use super::windows::{Part, Windows, greatest, greatest_at};
use crate::arrays::{A, at, coordinates, make, place};
use crate::ask::{Ask, Made};

/// Windows as columns; the rows are the elements of each, channel by channel.
fn im2col(r: &Ask<'_>) -> Made {
    let a = r.x(0)?;
    let space = &a.shape()[2..];
    let windows = Windows::of(r, &r.spatial("kernel", space.len())?, true)?;
    let (kernel, places) = (coordinates(&windows.kernel), coordinates(&windows.count(r, space)?));
    Ok(vec![make(&[a.shape()[0], a.shape()[1] * kernel.len(), places.len()], &|i| {
        let (c, k) = (i[1] / kernel.len(), i[1] % kernel.len());
        let from = windows.at(&places[i[2]], &kernel[k], space);
        from.map_or(0.0, |p| at(a, &[&[i[0], c], &p[..]].concat()))
    })])
}

/// The sum of the windows' contributions to each element.
fn col2im(r: &Ask<'_>) -> Made {
    let (a, space) = (r.x(0)?, r.spatial("size", 2)?);
    let windows = Windows::of(r, &r.spatial("kernel", 2)?, true)?;
    let (kernel, places) = (coordinates(&windows.kernel), coordinates(&windows.count(r, &space)?));
    r.ensure(
        a.shape()[1].is_multiple_of(kernel.len()) && a.shape()[2] == places.len(),
        "rows or columns do not fit",
    )?;
    let mut y = A::zeros([&[a.shape()[0], a.shape()[1] / kernel.len()], &space[..]].concat());
    for (i, &v) in a.indexed_iter() {
        let (c, k) = (i[1] / kernel.len(), i[1] % kernel.len());
        if let Some(p) = windows.at(&places[i[2]], &kernel[k], &space) {
            y[&[&[i[0], c], &p[..]].concat()[..]] += v;
        }
    }
    Ok(vec![y])
}

/// Writes elements at the given indices of a space of the given size.
fn max_unpool(r: &Ask<'_>) -> Made {
    let (a, index) = (r.x(0)?, r.x(1)?);
    r.alike(a, index)?;
    let size = r.spatial("size", a.ndim() - 2)?;
    let places = coordinates(&size);
    let mut y = A::zeros([&a.shape()[..2], &size[..]].concat());
    for (i, &v) in a.indexed_iter() {
        let (i, p) = (ndarray::Dimension::slice(&i), index[&i]);
        r.ensure(
            p.fract() == 0.0 && p >= 0.0 && p < places.len() as f64,
            "an index is outside the spatial dims",
        )?;
        y[&[&i[..2], &places[p as usize][..]].concat()[..]] = v;
    }
    Ok(vec![y])
}

/// Pools windows whose starts are given by random numbers between 0 and 1.
fn fractional(r: &Ask<'_>, fs: &[fn(&Part) -> f64]) -> Made {
    let (a, samples) = (r.x(0)?, r.x(1)?);
    let space = &a.shape()[2..];
    let (size, kernel) = (r.spatial("size", space.len())?, r.spatial("kernel", space.len())?);
    r.ensure(
        a.shape()[..2] == samples.shape()[..2] && samples.shape()[2] == space.len(),
        "samples do not fit",
    )?;
    r.ensure(samples.iter().all(|u| (0.0..1.0).contains(u)), "samples must be in [0, 1)")?;
    r.ensure(kernel.iter().zip(space).all(|(k, n)| k <= n), "a window does not fit into the spatial dims")?;
    let start = |i: &[usize], d: usize| {
        let (room, u) = (space[d] - kernel[d], samples[[i[0], i[1], d]]);
        let step = room as f64 / (size[d] as f64 - 1.0);
        let moved = || ((i[d + 2] as f64 + u) * step) as usize - (u * step) as usize;
        if i[d + 2] + 1 == size[d] { room } else { moved() }
    };
    let part = |i: &[usize]| -> Part {
        let of = |k: &Vec<usize>| {
            let p: Vec<usize> = (0..space.len()).map(|d| start(i, d) + k[d]).collect();
            (at(a, &[&i[..2], &p[..]].concat()), place(space, p))
        };
        coordinates(&kernel).iter().map(of).collect()
    };
    let shape = [&a.shape()[..2], &size[..]].concat();
    Ok(fs.iter().map(|f| make(&shape, &|i| f(&part(i)))).collect())
}

/// Space sampled at points from -1 to 1, zeros outside, interpolated between two indices, the columns first.
fn grid_sample(r: &Ask<'_>) -> Made {
    let (a, grid, nearest) = (r.x(0)?, r.x(1)?, r.word("mode")? == "nearest");
    r.ensure(
        a.ndim() == 4 && grid.ndim() == 4 && r.word("mode")? != "cubic",
        "is implemented for two dims, linear or nearest",
    )?;
    r.ensure(a.shape()[0] == grid.shape()[0] && grid.shape()[3] == 2, "the points do not fit")?;
    let (h, w) = (a.shape()[2] as f64, a.shape()[3] as f64);
    let get = |b: usize, c: usize, row: f64, column: f64| {
        let inside = row >= 0.0 && column >= 0.0 && row < h && column < w;
        if inside { a[[b, c, row as usize, column as usize]] } else { 0.0 }
    };
    Ok(vec![make(&[a.shape()[0], a.shape()[1], grid.shape()[1], grid.shape()[2]], &|i| {
        let p = |k: usize, n: f64| ((grid[[i[0], i[2], i[3], k]] + 1.0) * n - 1.0) / 2.0;
        let (column, row) = (p(0, w), p(1, h));
        if nearest {
            return get(i[0], i[1], row.round_ties_even(), column.round_ties_even());
        }
        let (top, left) = (row.floor(), column.floor());
        let corner = |down: f64, right: f64| {
            let weight = (1.0 - (row - top - down).abs()) * (1.0 - (column - left - right).abs());
            weight * get(i[0], i[1], top + down, left + right)
        };
        corner(0.0, 0.0) + corner(0.0, 1.0) + corner(1.0, 0.0) + corner(1.0, 1.0)
    })])
}

/// Transforms the points of a grid from -1 to 1 by a matrix and a vector.
///
/// The last spatial dim is the first coordinate.
fn affine_grid(r: &Ask<'_>) -> Made {
    let a = r.x(0)?;
    let (b, n) = (a.shape()[0], r.target(0)?.whole.len() - 2);
    let size = r.spatial("size", n)?;
    let held = (0..n).map(|d| r.wanted(0, d + 1)).collect::<Result<Vec<_>, _>>()?;
    r.ensure(a.shape()[1..] == [n, n + 1], "the matrices do not have this number of dims")?;
    let space: Vec<usize> = held.iter().map(Vec::len).collect();
    Ok(vec![make(&[&[b], &space[..], &[n]].concat(), &|i| {
        let point = |k: usize| {
            let d = n - 1 - k;
            (2.0 * held[d][i[d + 1]] as f64 + 1.0) / size[d] as f64 - 1.0
        };
        let row = i[n + 1];
        (0..n).map(|k| a[[i[0], row, k]] * point(k)).sum::<f64>() + a[[i[0], row, n]]
    })])
}

pub(super) const OPS: Ops = &[
    ("im2col", By(im2col)),
    ("col2im", By(col2im)),
    ("max_unpool1d", By(max_unpool)),
    ("max_unpool2d", By(max_unpool)),
    ("max_unpool3d", By(max_unpool)),
    ("fractional_max_pool2d", By(|r| fractional(r, &[greatest]))),
    ("fractional_max_pool3d", By(|r| fractional(r, &[greatest]))),
    ("fractional_max_pool2d_with_indices", By(|r| fractional(r, &[greatest, greatest_at]))),
    ("fractional_max_pool3d_with_indices", By(|r| fractional(r, &[greatest, greatest_at]))),
    ("grid_sample", By(grid_sample)),
    ("affine_grid", By(affine_grid)),
];
