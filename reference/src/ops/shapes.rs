//! Ranges, other orders and other shapes of the same elements.

use ndarray::{Axis, concatenate, stack};

use super::Body::By;
use super::Ops;
use super::indexing::sliced;
use crate::Error;
use crate::arrays::{A, at, cut, make, numbers, of, place, taken, with};
use crate::ask::{Ask, Made};

/// Returns a wanted output; `source` maps the index of each element to its index in the whole input.
fn from(r: &Ask<'_>, source: &dyn Fn(&[usize]) -> Vec<usize>) -> Made {
    let (a, target) = (r.x(0)?, r.target(0)?);
    let held = (0..a.ndim()).map(|d| r.held(0, d)).collect::<Result<Vec<_>, _>>()?;
    let wanted = (0..target.whole.len()).map(|d| r.wanted(0, d)).collect::<Result<Vec<_>, _>>()?;
    let local = |i: &[usize]| -> Option<Vec<usize>> {
        let whole: Vec<usize> = i.iter().zip(&wanted).map(|(&c, wanted)| wanted[c]).collect();
        source(&whole).iter().zip(&held).map(|(g, held)| held.iter().position(|h| h == g)).collect()
    };
    let shape = target.shape();
    let all =
        crate::arrays::coordinates(&shape).iter().map(|i| Some(at(a, &local(i)?))).collect::<Option<_>>();
    let all = all.ok_or_else(|| r.wrong("a required element is not on this rank"))?;
    Ok(vec![r.fit(of(&shape, all))?])
}

/// The same elements, in order, in the wanted shape.
fn view(r: &Ask<'_>) -> Made {
    Ok(vec![r.fit(of(&r.target(0)?.shape(), numbers(r.x(0)?)))?])
}

fn ordered(r: &Ask<'_>, order: Vec<usize>) -> Made {
    let a = r.x(0)?;
    r.ensure(order.len() == a.ndim(), "the order must name all dims")?;
    Ok(vec![a.clone().permuted_axes(order)])
}

fn transpose(r: &Ask<'_>, a: usize, b: usize) -> Made {
    let mut order: Vec<usize> = (0..r.x(0)?.ndim()).collect();
    order.swap(a, b);
    ordered(r, order)
}

fn movedim(r: &Ask<'_>) -> Made {
    let (from, mut to) = (r.dims("source")?, Vec::new());
    for d in r.numbers("destination")? {
        to.push(d.rem_euclid(r.x(0)?.ndim().max(1) as i64) as usize);
    }
    let mut others = (0..r.x(0)?.ndim()).filter(|d| !from.contains(d));
    let one =
        |d: usize| to.iter().position(|&t| t == d).map_or_else(|| others.next(), |k| from.get(k).copied());
    let order: Option<Vec<usize>> = (0..r.x(0)?.ndim()).map(one).collect();
    ordered(r, order.ok_or_else(|| r.wrong("source and destination do not fit"))?)
}

fn squeeze(r: &Ask<'_>) -> Made {
    let (mut a, mut dims) = (r.x(0)?.clone(), r.dims("dims")?);
    dims.retain(|&d| r.inputs[0].shape()[d] == 1 && r.request.inputs[0][d] == 1);
    dims.sort_unstable();
    for d in dims.into_iter().rev() {
        a = a.index_axis_move(Axis(d), 0);
    }
    Ok(vec![a])
}

fn joined(r: &Ask<'_>, new: bool) -> Made {
    let views: Vec<_> = r.inputs.iter().map(|a| a.view()).collect();
    let axis = Axis(r.dim("dim")?);
    Ok(vec![if new { stack(axis, &views) } else { concatenate(axis, &views) }.map_err(|e| r.wrong(e))?])
}

/// Indices of a dim of the whole: start, end, and step.
type Slice = (usize, usize, usize);

/// Returns the locally held indices of each slice, one output per slice.
fn held_of(r: &Ask<'_>, dim: usize, slices: &[Slice]) -> Made {
    let (a, held) = (r.x(0)?, r.held(0, dim)?);
    let of = |&(start, end, step): &Slice| {
        let is = |h: usize| h >= start && h < end && (h - start).is_multiple_of(step);
        taken(a, dim, &(0..held.len()).filter(|&i| is(held[i])).collect::<Vec<_>>())
    };
    Ok(slices.iter().map(of).collect())
}

/// Returns contiguous ranges of these sizes of a dim of the whole.
fn pieces(r: &Ask<'_>, dim: usize, sizes: &[usize]) -> Made {
    let mut start = 0;
    let mut one = |&n: &usize| {
        start += n;
        (start - n, start, 1)
    };
    held_of(r, dim, &sizes.iter().map(&mut one).collect::<Vec<_>>())
}

/// Returns ranges of one size, the last one smaller.
fn equal(r: &Ask<'_>, dim: usize, size: usize) -> Made {
    let (n, size) = (r.input(0)?[dim], size.max(1));
    let count = n.div_ceil(size).max(1);
    pieces(r, dim, &(0..count).map(|i| size.min(n - i * size)).collect::<Vec<_>>())
}

fn split(r: &Ask<'_>) -> Made {
    let dim = r.dim("dim")?;
    if r.has("sizes")? { pieces(r, dim, &r.sizes("sizes")?) } else { equal(r, dim, r.size("size")?) }
}

fn chunk(r: &Ask<'_>) -> Made {
    let dim = r.dim("dim")?;
    equal(r, dim, r.input(0)?[dim].div_ceil(r.size("chunks")?))
}

fn tensor_split(r: &Ask<'_>) -> Made {
    let (a, dim) = (r.x(0)?, r.dim("dim")?);
    let n = a.shape()[dim];
    let ends: Vec<usize> = if r.has("sections")? {
        let k = r.size("sections")?;
        (1..=k).map(|i| i * (n / k) + i.min(n % k)).collect()
    } else {
        let clamp = |i: i64| (if i < 0 { i.saturating_add(n as i64) } else { i }).clamp(0, n as i64) as usize;
        r.numbers("indices")?.into_iter().map(clamp).chain([n]).collect()
    };
    let start = |k: usize| if k == 0 { 0 } else { ends[k - 1] };
    (0..ends.len()).map(|k| r.fit(cut(a, dim, start(k).min(ends[k]), ends[k]))).collect()
}

fn unbind(r: &Ask<'_>) -> Made {
    let (a, dim) = (r.x(0)?, r.dim("dim")?);
    r.ensure(a.shape()[dim] == r.input(0)?[dim], "the unbound dim must be whole on each rank")?;
    Ok(a.axis_iter(Axis(dim)).map(|a| a.to_owned()).collect())
}

fn select(r: &Ask<'_>) -> Made {
    let (a, dim) = (r.x(0)?, r.dim("dim")?);
    let index = r.number("index")?.rem_euclid(r.input(0)?[dim].max(1) as i64) as usize;
    r.ensure(index < a.shape()[dim], "the index is not on this rank")?;
    Ok(vec![a.index_axis(Axis(dim), index).to_owned()])
}

fn slice(r: &Ask<'_>) -> Made {
    let dim = r.dim("dim")?;
    let (start, end, step) = sliced(r, dim)?;
    held_of(r, dim, &[(start, end, step)])
}

fn narrow(r: &Ask<'_>) -> Made {
    let (dim, start) = (r.dim("dim")?, r.size("start")?);
    held_of(r, dim, &[(start, start.saturating_add(r.size("length")?), 1)])
}

/// Returns the source index of an index before or after a dim of `n`; `None` for constant padding.
fn folded_back(i: i64, n: i64, mode: &str) -> Option<i64> {
    match mode {
        _ if (0..n).contains(&i) => Some(i),
        "reflect" if n > 1 => {
            let period = 2 * (n - 1);
            let i = i.rem_euclid(period);
            Some(if i < n { i } else { period - i })
        }
        "replicate" if n > 0 => Some(i.clamp(0, n - 1)),
        "circular" if n > 0 => Some(i.rem_euclid(n)),
        _ => None,
    }
}

fn pad(r: &Ask<'_>) -> Made {
    let (a, pads, mode, value) = (r.x(0)?, r.numbers("pads")?, r.word("mode")?, r.real("value")?);
    let (mut before, mut shape) = (vec![0; a.ndim()], a.shape().to_vec());
    for (k, pair) in pads.chunks(2).enumerate() {
        let d = (a.ndim().checked_sub(k + 1)).ok_or_else(|| r.wrong("pads more dims than there are"))?;
        before[d] = pair[0];
        shape[d] = usize::try_from(shape[d] as i64 + pair.iter().sum::<i64>()).map_err(|e| r.wrong(e))?;
    }
    Ok(vec![make(&shape, &|i| {
        let source =
            |d: usize| folded_back(i[d] as i64 - before[d], a.shape()[d] as i64, &mode).map(|c| c as usize);
        (0..a.ndim()).map(source).collect::<Option<Vec<_>>>().map_or(value, |from| at(a, &from))
    })])
}

fn roll(r: &Ask<'_>) -> Made {
    let (a, shifts) = (r.x(0)?, r.numbers("shifts")?);
    if !r.has("dims")? {
        // All elements as one line.
        let (n, all) = (a.len(), numbers(a));
        let by = shifts.first().copied().unwrap_or(0).rem_euclid(n.max(1) as i64);
        let from =
            |i: &[usize]| (place(a.shape(), i.iter().copied()) as i64 - by).rem_euclid(n as i64) as usize;
        return Ok(vec![make(a.shape(), &|i| all[from(i)])]);
    }
    let dims = r.dims("dims")?;
    r.ensure(shifts.len() == dims.len() || shifts.len() == 1, "needs one shift for each dim")?;
    Ok(vec![make(a.shape(), &|i| {
        let mut from = i.to_vec();
        for (k, &d) in dims.iter().enumerate() {
            let n = a.shape()[d] as i64;
            let by = shifts[k.min(shifts.len() - 1)].rem_euclid(n);
            from[d] = (i[d] as i64 - by).rem_euclid(n) as usize;
        }
        at(a, &from)
    })])
}

fn flipped(a: &A, dims: &[usize]) -> A {
    make(a.shape(), &|i| {
        let back = |(d, &c): (usize, &usize)| if dims.contains(&d) { a.shape()[d] - 1 - c } else { c };
        at(a, &i.iter().enumerate().map(back).collect::<Vec<_>>())
    })
}

fn rot90(r: &Ask<'_>) -> Made {
    let (mut a, dims) = (r.x(0)?.clone(), r.dims("dims")?);
    r.ensure(dims.len() == 2, "a rotation needs two dims")?;
    for _ in 0..r.number("times")?.rem_euclid(4) {
        a = flipped(&a, &dims[1..]);
        a.swap_axes(dims[0], dims[1]);
    }
    Ok(vec![a])
}

/// Keeps the elements whose row and column satisfy `keep`; the others become 0.
fn triangle(r: &Ask<'_>, keep: fn(usize, usize) -> bool) -> Made {
    let a = r.x(0)?;
    let n = a.ndim();
    let (rows, columns) = (r.held(0, n - 2)?, r.held(0, n - 1)?);
    Ok(vec![make(a.shape(), &|i| if keep(rows[i[n - 2]], columns[i[n - 1]]) { at(a, i) } else { 0.0 })])
}

fn diagonal(r: &Ask<'_>) -> Result<A, Error> {
    let a = r.x(0)?;
    let n = a.ndim();
    r.ensure(r.held(0, n - 2)? == r.held(0, n - 1)?, "the rows and columns on this rank differ")?;
    Ok(make(&a.shape()[..n - 1], &|i| at(a, &[i, &i[n - 2..]].concat())))
}

fn diag_embed(r: &Ask<'_>) -> Made {
    let a = r.x(0)?;
    let n = a.ndim();
    let shape = [a.shape(), &a.shape()[n - 1..]].concat();
    Ok(vec![make(&shape, &|i| if i[n] == i[n - 1] { at(a, &i[..n]) } else { 0.0 })])
}

fn expand(r: &Ask<'_>) -> Made {
    let whole = r.input(0)?.to_vec();
    from(r, &|i| {
        let last = &i[i.len() - whole.len()..];
        last.iter().zip(&whole).map(|(&c, &n)| if n == 1 { 0 } else { c }).collect()
    })
}

/// Repeats each dim as a whole.
fn tiled(r: &Ask<'_>) -> Made {
    let whole = r.input(0)?.to_vec();
    from(r, &|i| i[i.len() - whole.len()..].iter().zip(&whole).map(|(&c, &n)| c % n.max(1)).collect())
}

fn unfold_dim(r: &Ask<'_>) -> Made {
    let (a, dim, size, step) = (r.x(0)?, r.dim("dim")?, r.size("size")?, r.size("step")?);
    let windows =
        a.shape()[dim].checked_sub(size).ok_or_else(|| r.wrong("the dim is smaller than a window"))? / step
            + 1;
    let shape = [&with(a.shape(), dim, windows)[..], &[size]].concat();
    Ok(vec![make(&shape, &|i| at(a, &with(&i[..a.ndim()], dim, i[dim] * step + i[a.ndim()])))])
}

fn pixel_shuffle(r: &Ask<'_>) -> Made {
    let (a, f) = (r.x(0)?, r.size("factor")?);
    let s = a.shape();
    r.ensure(s[1].is_multiple_of(f * f), "the channels must be a multiple of the square of the factor")?;
    Ok(vec![make(&[s[0], s[1] / f / f, f * s[2], f * s[3]], &|i| {
        a[[i[0], f * f * i[1] + f * (i[2] % f) + i[3] % f, i[2] / f, i[3] / f]]
    })])
}

fn pixel_unshuffle(r: &Ask<'_>) -> Made {
    let (a, f) = (r.x(0)?, r.size("factor")?);
    let s = a.shape();
    r.ensure(
        s[2].is_multiple_of(f) && s[3].is_multiple_of(f),
        "the spatial dims must be a multiple of the factor",
    )?;
    Ok(vec![make(&[s[0], f * f * s[1], s[2] / f, s[3] / f], &|i| {
        a[[i[0], i[1] / f / f, f * i[2] + i[1] / f % f, f * i[3] + i[1] % f]]
    })])
}

/// Sorts channels by their index within the group first, then by group.
fn channel_shuffle(r: &Ask<'_>) -> Made {
    let (a, held) = (r.x(0)?, r.held(0, 1)?);
    let each = (r.input(0)?[1] / r.size("groups")?).max(1);
    let mut order: Vec<usize> = (0..held.len()).collect();
    order.sort_by_key(|&i| (held[i] % each, held[i] / each));
    Ok(vec![taken(a, 1, &order)])
}

fn meshgrid(r: &Ask<'_>) -> Made {
    let shape: Vec<usize> = r.inputs.iter().map(A::len).collect();
    Ok(r.inputs.iter().enumerate().map(|(d, a)| make(&shape, &|i| a[i[d]])).collect())
}

fn cartesian_prod(r: &Ask<'_>) -> Made {
    let shape: Vec<usize> = r.inputs.iter().map(A::len).collect();
    let rows = crate::arrays::coordinates(&shape);
    if let [one] = &r.inputs[..] {
        return Ok(vec![one.clone()]);
    }
    Ok(vec![make(&[rows.len(), shape.len()], &|i| r.inputs[i[1]][rows[i[0]][i[1]]])])
}

fn block_diag(r: &Ask<'_>) -> Made {
    let size = |d: usize| r.inputs.iter().map(|a| a.shape()[d]).sum::<usize>();
    r.ensure(r.inputs.iter().all(|a| a.ndim() == 2), "blocks are matrices")?;
    let mut y = A::zeros(vec![size(0), size(1)]);
    let mut start = [0, 0];
    for a in &r.inputs {
        for (i, &v) in a.indexed_iter() {
            y[[start[0] + i[0], start[1] + i[1]]] = v;
        }
        start = [start[0] + a.shape()[0], start[1] + a.shape()[1]];
    }
    Ok(vec![y])
}

pub(super) const OPS: Ops = &[
    ("view", By(view)),
    ("reshape", By(view)),
    ("flatten", By(view)),
    ("unflatten", By(view)),
    ("t", By(|r| transpose(r, 0, 1))),
    (
        "matrix_transpose",
        By(|r| {
            let n = r.x(0)?.ndim();
            transpose(r, n - 2, n - 1)
        }),
    ),
    ("transpose", By(|r| transpose(r, r.dim("dim0")?, r.dim("dim1")?))),
    ("permute", By(|r| ordered(r, r.dims("dims")?))),
    ("movedim", By(movedim)),
    ("squeeze", By(squeeze)),
    ("unsqueeze", By(|r| Ok(vec![r.x(0)?.clone().insert_axis(Axis(r.dim("dim")?))]))),
    ("cat", By(|r| joined(r, false))),
    ("stack", By(|r| joined(r, true))),
    ("split", By(split)),
    ("chunk", By(chunk)),
    ("tensor_split", By(tensor_split)),
    ("unbind", By(unbind)),
    ("select", By(select)),
    ("slice", By(slice)),
    ("narrow", By(narrow)),
    ("pad", By(pad)),
    ("roll", By(roll)),
    ("flip", By(|r| Ok(vec![flipped(r.x(0)?, &r.dims("dims")?)]))),
    ("rot90", By(rot90)),
    ("tril", By(|r| triangle(r, |i, j| i >= j))),
    ("triu", By(|r| triangle(r, |i, j| i <= j))),
    ("diagonal", By(|r| Ok(vec![diagonal(r)?]))),
    ("trace", By(|r| Ok(vec![crate::arrays::number(diagonal(r)?.sum())]))),
    ("diag_embed", By(diag_embed)),
    ("expand", By(expand)),
    ("repeat", By(tiled)),
    ("tile", By(tiled)),
    (
        "repeat_interleave",
        By(|r| {
            let (dim, times) = (r.dim("dim")?, r.size("times")?);
            from(r, &|i| with(i, dim, i[dim] / times))
        }),
    ),
    ("unfold_dim", By(unfold_dim)),
    ("pixel_shuffle", By(pixel_shuffle)),
    ("pixel_unshuffle", By(pixel_unshuffle)),
    ("channel_shuffle", By(channel_shuffle)),
    ("meshgrid", By(meshgrid)),
    ("cartesian_prod", By(cartesian_prod)),
    ("block_diag", By(block_diag)),
];
