//! Building blocks of ops: tensors by elements, lines along a dim, pairs of elements, and sums of products.
//!
//! Closures are passed as `&dyn Fn`: loops over elements are compiled once, and not again for every op.

use ndarray::{ArrayD, Axis, Dimension, IxDyn, Slice};

/// A tensor, dense in row-major order.
pub(crate) type A = ArrayD<f64>;

/// The reason why shapes do not fit; the call is printed before it.
pub(crate) type Unfit = String;

/// Makes a tensor from a function of the index.
pub(crate) fn make(shape: &[usize], f: &dyn Fn(&[usize]) -> f64) -> A {
    A::from_shape_fn(IxDyn(shape), |i| f(i.slice()))
}

/// Makes a tensor of these numbers; fails if their count is not that of the shape.
pub(crate) fn of(shape: &[usize], numbers: Vec<f64>) -> Result<A, Unfit> {
    let n = numbers.len();
    A::from_shape_vec(IxDyn(shape), numbers)
        .map_err(|_| format!("{n} numbers do not fit the shape {shape:?}"))
}

/// The numbers of a tensor, in row-major order.
pub(crate) fn numbers(a: &A) -> Vec<f64> {
    a.iter().copied().collect()
}

/// Makes a scalar tensor.
pub(crate) fn number(x: f64) -> A {
    A::from_elem(IxDyn(&[]), x)
}

/// Returns an element.
pub(crate) fn at(a: &A, i: &[usize]) -> f64 {
    a[i]
}

/// Returns `i` with another coordinate along a dim.
pub(crate) fn with(i: &[usize], dim: usize, at: usize) -> Vec<usize> {
    let mut i = i.to_vec();
    i[dim] = at;
    i
}

/// Returns `i` without its coordinate along a dim.
pub(crate) fn without(i: &[usize], dim: usize) -> Vec<usize> {
    let mut i = i.to_vec();
    i.remove(dim);
    i
}

/// The row-major offset of an element of a dense tensor.
pub(crate) fn place(shape: &[usize], at: impl IntoIterator<Item = usize>) -> usize {
    at.into_iter().zip(shape).fold(0, |place, (c, &n)| place * n + c)
}

/// All coordinates of a shape, in row-major order.
pub(crate) fn coordinates(shape: &[usize]) -> Vec<Vec<usize>> {
    ndarray::indices(IxDyn(shape)).into_iter().map(|i| i.slice().to_vec()).collect()
}

/// Replaces each line along a dim by another line, all of one length.
pub(crate) fn lines(a: &A, dim: usize, f: &dyn Fn(&[f64]) -> Vec<f64>) -> A {
    let list: Vec<Vec<f64>> = a.lanes(Axis(dim)).into_iter().map(|l| f(&l.to_vec())).collect();
    // Without any line, a line of zeros gives the length of the results.
    let n = list.first().map_or_else(|| f(&vec![0.0; a.shape()[dim]]).len(), Vec::len);
    let other = without(a.shape(), dim);
    make(&with(a.shape(), dim, n), &|i| list[place(&other, without(i, dim))][i[dim]])
}

/// Reduces each line along a dim to a number.
pub(crate) fn fold(a: &A, dim: usize, f: &dyn Fn(&[f64]) -> f64) -> A {
    a.map_axis(Axis(dim), |l| f(&l.to_vec()))
}

/// The elements over some dims, as one list for each position of a shape; `keep` leaves dims of size 1.
pub(crate) fn groups(a: &A, dims: &[usize], keep: bool) -> (Vec<usize>, Vec<Vec<f64>>) {
    let others: Vec<usize> = (0..a.ndim()).filter(|d| !dims.contains(d)).collect();
    let mut sorted = dims.to_vec();
    sorted.sort_unstable();
    let order: Vec<usize> = others.iter().chain(&sorted).copied().collect();
    let all: Vec<f64> = a.view().permuted_axes(order).iter().copied().collect();
    let inner: usize = sorted.iter().map(|&d| a.shape()[d]).product();
    let outer: Vec<usize> = others.iter().map(|&d| a.shape()[d]).collect();
    let lists = (0..outer.iter().product()).map(|row: usize| all[row * inner..(row + 1) * inner].to_vec());
    let kept = (0..a.ndim()).map(|d| if dims.contains(&d) { 1 } else { a.shape()[d] }).collect();
    (if keep { kept } else { outer.clone() }, lists.collect())
}

/// Reduces the elements over some dims to a number each.
pub(crate) fn over(a: &A, dims: &[usize], keep: bool, f: &dyn Fn(&[f64]) -> f64) -> A {
    let (shape, lists) = groups(a, dims, keep);
    make(&shape, &|i| f(&lists[place(&shape, i.iter().copied())]))
}

/// Returns the broadcast shape of two shapes.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>, Unfit> {
    let n = a.len().max(b.len());
    let size = |s: &[usize], d: usize| (d + s.len()).checked_sub(n).map_or(1, |i| s[i]);
    (0..n)
        .map(|d| match (size(a, d), size(b, d)) {
            (1, m) | (m, 1) => Ok(m),
            (p, q) if p == q => Ok(p),
            (p, q) => Err(format!("{p} and {q} do not broadcast")),
        })
        .collect()
}

/// Returns an element of a tensor, broadcast to a larger shape.
pub(crate) fn spread(a: &A, i: &[usize]) -> f64 {
    let last = &i[i.len() - a.ndim()..];
    let there: Vec<usize> = last.iter().zip(a.shape()).map(|(&c, &n)| if n == 1 { 0 } else { c }).collect();
    at(a, &there)
}

/// Combines `N` tensors, broadcast, element by element.
pub(crate) fn together<const N: usize>(inputs: [&A; N], f: &dyn Fn([f64; N]) -> f64) -> Result<A, Unfit> {
    let shape = inputs.iter().try_fold(Vec::new(), |shape, a| broadcast(&shape, a.shape()))?;
    Ok(make(&shape, &|i| f(inputs.map(|a| spread(a, i)))))
}

/// Maps one tensor, element by element.
pub(crate) fn map(a: &A, f: &dyn Fn(f64) -> f64) -> A {
    a.mapv(f)
}

/// Combines two tensors, broadcast, element by element.
pub(crate) fn zip(a: &A, b: &A, f: &dyn Fn(f64, f64) -> f64) -> Result<A, Unfit> {
    together([a, b], &|[a, b]| f(a, b))
}

/// Returns the indices of a dim from `start` up to `end`.
pub(crate) fn cut(a: &A, dim: usize, start: usize, end: usize) -> Result<A, Unfit> {
    if start > end || end > a.shape()[dim] {
        return Err(format!("the range {start}..{end} is outside a dim of size {}", a.shape()[dim]));
    }
    Ok(a.slice_axis(Axis(dim), Slice::from(start..end)).to_owned())
}

/// Returns these indices of a dim.
pub(crate) fn taken(a: &A, dim: usize, indices: &[usize]) -> A {
    a.select(Axis(dim), indices)
}

/// Computes an einsum with one letter for each dim.
pub(crate) fn einsum(equation: &str, inputs: &[&A]) -> Result<A, Unfit> {
    let (left, right) = equation.split_once("->").unwrap_or((equation, ""));
    let operands: Vec<Vec<char>> = left.split(',').map(|s| s.chars().collect()).collect();
    let mut letters: Vec<char> = right.chars().collect();
    letters.extend(operands.iter().flatten());
    let mut known = Vec::new();
    letters.retain(|c| {
        !known.contains(c) && {
            known.push(*c);
            true
        }
    });
    let mut sizes = vec![None; letters.len()];
    for (dims, a) in operands.iter().zip(inputs) {
        if dims.len() != a.ndim() {
            return Err(format!("{equation} has {} dims, but the tensor has {}", dims.len(), a.ndim()));
        }
        for (c, &n) in dims.iter().zip(a.shape()) {
            let size = &mut sizes[letters.iter().position(|l| l == c).unwrap_or(0)];
            if size.is_some_and(|size| size != n) {
                return Err(format!("{c} of {equation} has several sizes"));
            }
            *size = Some(n);
        }
    }
    let sizes: Vec<usize> = sizes.into_iter().map(|n| n.unwrap_or(1)).collect();
    // The stride of each operand for each letter.
    let steps: Vec<Vec<usize>> = (operands.iter().zip(inputs))
        .map(|(dims, a)| {
            let step = |d: usize| a.shape()[d + 1..].iter().product::<usize>();
            let of = |l: &char| dims.iter().enumerate().filter(|(_, c)| *c == l).map(|(d, _)| step(d)).sum();
            letters.iter().map(of).collect()
        })
        .collect();
    let numbers: Vec<Vec<f64>> = inputs.iter().map(|a| numbers(a)).collect();
    let free = right.chars().count();
    let summed = coordinates(&sizes[free..]);
    Ok(make(&sizes[..free], &|i| {
        let term = |s: &Vec<usize>| -> f64 {
            let place =
                |steps: &Vec<usize>| i.iter().chain(s).zip(steps).map(|(c, step)| c * step).sum::<usize>();
            steps.iter().zip(&numbers).map(|(steps, numbers)| numbers[place(steps)]).product()
        };
        summed.iter().map(term).sum()
    }))
}

/// Returns 1 for `true` and 0 for `false`.
pub(crate) fn truth(b: bool) -> f64 {
    f64::from(u8::from(b))
}
