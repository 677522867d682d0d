//! Indexing, in which a rank leaves out the elements that it does not hold, and masked writes and reads.

use super::Body::By;
use super::Ops;
use super::pointwise::filling;
use crate::Error;
use crate::arrays::{A, at, coordinates, make, map, numbers, of, truth, with, zip};
use crate::ask::{Ask, Made};
use ndarray::IxDyn;

/// Maps the integers of an index below `n` to their positions in a list of held indices.
fn found(r: &Ask<'_>, index: &A, held: &[usize], n: usize) -> Result<Vec<Option<usize>>, Error> {
    let one = |&v: &f64| {
        if v.fract() == 0.0 && v >= 0.0 && v < n as f64 {
            return Ok(held.iter().position(|&h| h as f64 == v));
        }
        Err(r.wrong(format!("the index {v} is outside a dim of size {n}")))
    };
    index.iter().map(one).collect()
}

/// Maps an index along a dim of the first input to local positions; `None` where the element is not held.
fn along(r: &Ask<'_>, index: &A, dim: usize) -> Result<Vec<Option<usize>>, Error> {
    found(r, index, &r.held(0, dim)?, r.input(0)?[dim])
}

/// Makes a tensor from a function of each element's row-major index and coordinates.
fn each(shape: &[usize], f: &dyn Fn((usize, Vec<usize>)) -> f64) -> A {
    let list = coordinates(shape).into_iter().enumerate().map(f).collect();
    A::from_shape_vec(IxDyn(shape), list).unwrap_or_else(|_| A::zeros(IxDyn(shape)))
}

fn embedding(r: &Ask<'_>) -> Made {
    let (w, index) = (r.x(0)?, r.x(1)?);
    let rows = along(r, index, 0)?;
    let width = w.shape()[1];
    Ok(vec![each(&[index.shape(), &[width]].concat(), &|(e, _)| {
        rows[e / width].map_or(0.0, |row| w[[row, e % width]])
    })])
}

fn embedding_bag(r: &Ask<'_>) -> Made {
    let (w, index) = (r.x(0)?, r.x(1)?);
    let (rows, n, mean) = (along(r, index, 0)?, index.shape()[1], r.word("mode")? == "mean");
    Ok(vec![make(&[index.shape()[0], w.shape()[1]], &|i| {
        let sum: f64 = rows[i[0] * n..(i[0] + 1) * n].iter().flatten().map(|&row| w[[row, i[1]]]).sum();
        if mean { sum / n as f64 } else { sum }
    })])
}

fn gather(r: &Ask<'_>) -> Made {
    let (a, index, dim) = (r.x(0)?, r.x(1)?, r.dim("dim")?);
    leading(r, a, index, 1, dim)?;
    let places = along(r, index, dim)?;
    Ok(vec![each(index.shape(), &|(e, i)| places[e].map_or(0.0, |p| at(a, &with(&i, dim, p))))])
}

fn index_select(r: &Ask<'_>) -> Made {
    let (a, index, dim) = (r.x(0)?, r.x(1)?, r.dim("dim")?);
    let places = along(r, index, dim)?;
    Ok(vec![make(&with(a.shape(), dim, index.len()), &|i| {
        places[i[dim]].map_or(0.0, |p| at(a, &with(i, dim, p)))
    })])
}

/// Checks that another input is as large as the first except along a dim.
///
/// It may be a leading part of the first where that holds for the whole.
fn leading(r: &Ask<'_>, a: &A, b: &A, input: usize, dim: usize) -> Result<(), Error> {
    let (whole_a, whole_b) = (r.input(0)?, r.input(input)?);
    let fits =
        |d: usize| b.shape()[d] == a.shape()[d] || (whole_a[d] != whole_b[d] && b.shape()[d] <= a.shape()[d]);
    r.ensure(a.ndim() == b.ndim() && (0..a.ndim()).filter(|&d| d != dim).all(fits), "the shapes do not fit")
}

/// Writes along a dim; the index has all dims, or only that one.
fn written(r: &Ask<'_>, dim: usize, one_index: bool, f: fn(f64, f64) -> f64) -> Result<A, Error> {
    write_all(r, r.x(0)?.clone(), r.x(2)?, dim, one_index, f)
}

fn write_all(
    r: &Ask<'_>,
    mut a: A,
    source: &A,
    dim: usize,
    one_index: bool,
    f: fn(f64, f64) -> f64,
) -> Result<A, Error> {
    let index = r.x(1)?;
    leading(r, &a, source, 2, dim)?;
    if one_index {
        r.ensure(index.len() == source.shape()[dim], "the index and the source have different lengths")?;
    } else {
        r.alike(index, source)?;
    }
    let places = along(r, index, dim)?;
    for (e, i) in coordinates(source.shape()).into_iter().enumerate() {
        if let Some(p) = places[if one_index { i[dim] } else { e }] {
            let to = &with(&i, dim, p)[..];
            a[to] = f(a[to], at(source, &i));
        }
    }
    Ok(a)
}

fn put_over(r: &Ask<'_>, one_index: bool, f: fn(f64, f64) -> f64) -> Made {
    Ok(vec![written(r, r.dim("dim")?, one_index, f)?])
}

fn over(_: f64, v: f64) -> f64 {
    v
}

fn plus(a: f64, v: f64) -> f64 {
    a + v
}

fn index_put(r: &Ask<'_>) -> Made {
    Ok(vec![written(r, 0, true, if r.flag("accumulate")? { plus } else { over })?])
}

/// Reduces written elements with the existing ones.
fn reduced(r: &Ask<'_>, one_index: bool) -> Made {
    let dim = r.dim("dim")?;
    let f: fn(f64, f64) -> f64 = match r.word("reduce")?.as_str() {
        "prod" => |a, v| a * v,
        "amax" => f64::max,
        "amin" => f64::min,
        _ => plus,
    };
    let made = written(r, dim, one_index, f)?;
    if r.word("reduce")? != "mean" {
        return Ok(vec![made]);
    }
    let ones = |a: &A| map(a, &|_| 1.0);
    let counts = write_all(r, ones(r.x(0)?), &ones(r.x(2)?), dim, one_index, plus)?;
    Ok(vec![r.fit(zip(&made, &counts, &|sum, n| sum / n))?])
}

fn index_fill(r: &Ask<'_>) -> Made {
    let (mut a, dim, value) = (r.x(0)?.clone(), r.dim("dim")?, filling(r)?);
    for p in along(r, r.x(1)?, dim)?.into_iter().flatten() {
        a.index_axis_mut(ndarray::Axis(dim), p).fill(value);
    }
    Ok(vec![a])
}

/// Maps row-major indices to local positions; `None` where the element is not held.
fn numbered(r: &Ask<'_>) -> Result<Vec<Option<usize>>, Error> {
    found(r, r.x(1)?, &r.places[0].elements(), r.input(0)?.iter().product())
}

fn take(r: &Ask<'_>) -> Made {
    let (all, places) = (numbers(r.x(0)?), numbered(r)?);
    Ok(vec![each(r.x(1)?.shape(), &|(e, _)| places[e].map_or(0.0, |p| all[p]))])
}

fn put(r: &Ask<'_>) -> Made {
    let (a, source, add) = (r.x(0)?, r.x(2)?, r.flag("accumulate")?);
    r.alike(r.x(1)?, source)?;
    let mut all = numbers(a);
    for (p, v) in numbered(r)?.into_iter().zip(source) {
        if let Some(p) = p {
            all[p] = if add { all[p] + v } else { *v };
        }
    }
    Ok(vec![r.fit(of(a.shape(), all))?])
}

/// Returns the start, end and step of a slice of a dim.
pub(crate) fn sliced(r: &Ask<'_>, dim: usize) -> Result<(usize, usize, usize), Error> {
    let n = r.input(0)?[dim] as i64;
    let clamp = |i: i64| (if i < 0 { i.saturating_add(n) } else { i }).clamp(0, n) as usize;
    let end = if r.has("end")? { clamp(r.number("end")?) } else { n as usize };
    Ok((clamp(r.number("start")?), end, r.size("step")?))
}

fn slice_scatter(r: &Ask<'_>) -> Made {
    let (mut a, b, dim) = (r.x(0)?.clone(), r.x(1)?, r.dim("dim")?);
    let (start, end, step) = sliced(r, dim)?;
    leading(r, &a, b, 1, dim)?;
    r.ensure(
        b.shape()[dim] == end.saturating_sub(start).div_ceil(step),
        "the source does not have the length of the slice",
    )?;
    for (i, &v) in b.indexed_iter() {
        let i = ndarray::Dimension::slice(&i);
        a[&with(i, dim, start + step * i[dim])[..]] = v;
    }
    Ok(vec![a])
}

fn select_scatter(r: &Ask<'_>) -> Made {
    let (a, b, dim) = (r.x(0)?, r.x(1)?, r.dim("dim")?);
    let index = r.number("index")?.rem_euclid(r.input(0)?[dim].max(1) as i64) as usize;
    r.ensure(b.shape() == crate::arrays::without(a.shape(), dim), "the shapes do not fit")?;
    Ok(vec![make(a.shape(), &|i| {
        if i[dim] == index { at(b, &crate::arrays::without(i, dim)) } else { at(a, i) }
    })])
}

fn diagonal_scatter(r: &Ask<'_>) -> Made {
    let (a, d) = (r.x(0)?, r.x(1)?);
    let n = a.ndim();
    r.ensure(a.shape()[..n - 1] == *d.shape(), "the shapes do not fit")?;
    Ok(vec![make(a.shape(), &|i| if i[n - 1] == i[n - 2] { at(d, &i[..n - 1]) } else { at(a, i) })])
}

fn masked_scatter(r: &Ask<'_>) -> Made {
    let (a, mask) = (r.x(0)?, r.x(1)?);
    r.alike(a, mask)?;
    let mut next = r.x(2)?.iter();
    let list: Option<Vec<f64>> =
        a.iter().zip(mask).map(|(&a, &m)| if m == 0.0 { Some(a) } else { next.next().copied() }).collect();
    let list = list.ok_or_else(|| r.wrong("the mask selects more elements than the source has"))?;
    Ok(vec![r.fit(of(a.shape(), list))?])
}

fn masked_select(r: &Ask<'_>) -> Made {
    let (a, mask) = (r.x(0)?, r.x(1)?);
    let list: Vec<f64> =
        r.fit(zip(a, mask, &|a, m| if m == 0.0 { f64::NAN } else { a }))?.into_iter().collect();
    let kept = r.fit(zip(a, mask, &|_, m| m))?;
    let list: Vec<f64> = list.into_iter().zip(&kept).filter(|(_, m)| **m != 0.0).map(|(v, _)| v).collect();
    Ok(vec![r.fit(of(&[list.len()], list))?])
}

fn nonzero(r: &Ask<'_>) -> Made {
    let a = r.x(0)?;
    let found: Vec<Vec<usize>> = coordinates(a.shape()).into_iter().filter(|i| at(a, i) != 0.0).collect();
    Ok(vec![make(&[found.len(), a.ndim()], &|i| found[i[0]][i[1]] as f64)])
}

fn one_hot(r: &Ask<'_>) -> Made {
    let a = r.x(0)?;
    let classes = r.wanted(0, a.ndim())?;
    let shape = [a.shape(), &[classes.len()]].concat();
    Ok(vec![make(&shape, &|i| truth(at(a, &i[..a.ndim()]) == classes[i[a.ndim()]] as f64))])
}

fn bincount(r: &Ask<'_>) -> Made {
    let (a, classes) = (r.x(0)?, r.wanted(0, 0)?);
    Ok(vec![make(&[classes.len()], &|i| a.iter().filter(|&&v| v == classes[i[0]] as f64).count() as f64)])
}

/// Counts, for each value, the elements of a list that are less.
fn below(list: &A, values: &A) -> Made {
    Ok(vec![map(values, &|v| list.iter().filter(|&&s| s < v).count() as f64)])
}

pub(super) const OPS: Ops = &[
    ("embedding", By(embedding)),
    ("embedding_bag", By(embedding_bag)),
    ("gather", By(gather)),
    ("take_along_dim", By(gather)),
    ("index_select", By(index_select)),
    ("scatter", By(|r| put_over(r, false, over))),
    ("scatter_add", By(|r| put_over(r, false, plus))),
    ("scatter_amax", By(|r| put_over(r, false, f64::max))),
    ("index_copy", By(|r| put_over(r, true, over))),
    ("index_add", By(|r| put_over(r, true, plus))),
    ("index_put", By(index_put)),
    ("index_reduce", By(|r| reduced(r, true))),
    ("scatter_reduce", By(|r| reduced(r, false))),
    ("index_fill", By(index_fill)),
    ("take", By(take)),
    ("put", By(put)),
    ("slice_scatter", By(slice_scatter)),
    ("select_scatter", By(select_scatter)),
    ("diagonal_scatter", By(diagonal_scatter)),
    ("masked_scatter", By(masked_scatter)),
    ("masked_select", By(masked_select)),
    ("nonzero", By(nonzero)),
    ("one_hot", By(one_hot)),
    ("bincount", By(bincount)),
    ("searchsorted", By(|r| below(r.x(0)?, r.x(1)?))),
    ("bucketize", By(|r| below(r.x(1)?, r.x(0)?))),
    (
        "isin",
        By(|r| {
            let list = r.x(1)?;
            r.map(&|v| truth(list.iter().any(|&x| x == v)))
        }),
    ),
];
