//! Other shapes of the same elements.

use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::Dim;
use crate::rules::op::Op;
use crate::rules::terms::{ALL, selecting};

/// Returns a rule with one input and one output, whose elements are all elements of the input.
fn selected(input: impl IntoIterator<Item = impl Into<Dim>>, output: Vec<Dim>) -> RuleBuilder {
    RuleBuilder::new().input(input).output(output).passing(selecting(ALL))
}

/// `abc->cab`.
pub(super) fn permute(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let rank = r.inputs[0].len();
    let dims = r.dims("dims")?;
    if dims.len() != rank {
        return Err(r.error(format!("dims has to name each of the {rank} dims once")));
    }
    reorder(r, &dims)
}

/// The dims in this order.
pub(super) fn reorder(r: &BoundCall<'_>, dims: &[usize]) -> Result<Op, Error> {
    let letters = r.letters(dims.len())?;
    let output = dims.iter().map(|&d| letters[d].into()).collect();
    r.op(&selected(letters, output).build()?)
}

/// Swaps two dims.
pub(super) fn transpose(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let rank = r.inputs[0].len();
    let mut dims: Vec<usize> = (0..rank).collect();
    dims.swap(r.dim("dim0")?, r.dim("dim1")?);
    reorder(r, &dims)
}

/// `j->ij`, `1j->ij`: a broadcast dim is a factor of the output alone.
pub(super) fn expand(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let x = r.inputs[0];
    let shape = r.numbers("shape")?;
    let Some(new) = shape.len().checked_sub(x.len()) else {
        return Err(r.error(format!("shape has fewer dims than the {} of the input", x.len())));
    };
    let letters = r.letters(shape.len())?;
    let (mut input, mut sizes, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for (d, &n) in shape.iter().enumerate() {
        let was = d.checked_sub(new).map(|i| x[i]);
        let size = match (n, was) {
            (-1, Some(was)) => was,
            (n, _) if n < 0 => return Err(r.error(format!("shape has {n} where there is no dim to keep"))),
            (n, _) => n as usize,
        };
        match was {
            Some(was) if was == size => input.push(letters[d].into()),
            Some(1) => input.push(Dim::ONE),
            Some(was) => return Err(r.error(format!("dim {d} is {was}, which does not become {size}"))),
            None => {}
        }
        if was != Some(size) {
            sizes.push((letters[d], size));
        }
        out.push(size);
    }
    let rule = selected(input, letters.into_iter().map(Dim::from).collect());
    let sized = sizes.into_iter().fold(rule, |rule, (factor, n)| rule.size(factor, n));
    r.op_to(&sized.build()?, &[&out])
}

/// `ij->(ai)(bj)`: repeats each dim the given number of times, as a whole.
pub(super) fn repeat(r: &BoundCall<'_>) -> Result<Op, Error> {
    repeat_by(r, &r.sizes("times")?)
}

/// Repeats each dim by these numbers.
pub(super) fn repeat_by(r: &BoundCall<'_>, times: &[usize]) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let x = r.inputs[0];
    let Some(new) = times.len().checked_sub(x.len()) else {
        return Err(r.error(format!("times has fewer numbers than the {} dims of the input", x.len())));
    };
    let letters = r.letters(2 * times.len())?;
    let (of_times, of_dims) = letters.split_at(times.len());
    let (mut output, mut sizes) = (Vec::new(), Vec::new());
    for (d, &n) in times.iter().enumerate() {
        let (t, i) = (of_times[d], of_dims[d]);
        output.push(match (n, d >= new) {
            (1, true) => Dim::from(i),
            (_, true) => Dim::compound([t, i]),
            (_, false) => Dim::from(t),
        });
        if n != 1 || d < new {
            sizes.push((t, n));
        }
    }
    let rule = selected(of_dims[new..].iter().copied(), output);
    r.op(&sizes.into_iter().fold(rule, |rule, (factor, n)| rule.size(factor, n)).build()?)
}

/// `i->(it)`: repeats each index of a dim `times` times.
pub(super) fn repeat_interleave(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let rank = r.inputs[0].len();
    let dim = r.dim("dim")?;
    let times = r.size("times")?;
    let letters = r.letters(rank + 1)?;
    let (input, t) = (&letters[..rank], letters[rank]);
    let mut output: Vec<Dim> = input.iter().map(|&c| c.into()).collect();
    output[dim] = Dim::compound([letters[dim], t]);
    r.op(&selected(input.iter().copied(), output).size(t, times).regions([t]).build()?)
}

/// Removes dims of size 1: all of them, or the given ones.
pub(super) fn squeeze(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let x = r.inputs[0];
    let dims = r.dims("dims")?;
    let letters = r.letters(x.len())?;
    let gone = |d: &usize| dims.contains(d) && x[*d] == 1;
    let input = (0..x.len()).map(|d| if gone(&d) { Dim::ONE } else { letters[d].into() });
    let output = (0..x.len()).filter(|d| !gone(d)).map(|d| letters[d].into()).collect();
    r.op(&selected(input, output).build()?)
}

/// Adds a dim of size 1.
pub(super) fn unsqueeze(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let rank = r.inputs[0].len();
    let dim = r.dim("dim")?;
    let input = r.dims_whole(rank, &[])?;
    let mut output = input.clone();
    output.insert(dim, Dim::ONE);
    r.op(&selected(input, output).build()?)
}

/// A shape in which one size may be -1.
fn completed(r: &BoundCall<'_>, list: &[i64], all: usize) -> Result<Vec<usize>, Error> {
    let known = list.iter().filter(|&&n| n >= 0).try_fold(1usize, |p, &n| p.checked_mul(n as usize));
    let Some(known) = known else { return Err(Error::overflow(format!("the shape of {}", r.call))) };
    let open = list.iter().filter(|&&n| n < 0).count();
    let fits = if open == 0 { known == all } else { known > 0 && all.is_multiple_of(known) };
    if list.iter().any(|&n| n < -1) || open > 1 || !fits {
        return Err(r.error(format!("{all} elements do not fit that shape, in which one size may be -1")));
    }
    Ok(list.iter().map(|&n| if n < 0 { all / known } else { n as usize }).collect())
}

/// The elements in row-major order in another shape.
pub(super) fn view(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let list = r.numbers("shape")?;
    let all = reshard_sharding::internal::numel(r.inputs[0])?;
    Op::view(r.inputs[0], &completed(r, &list, all)?)
}

/// Flattens the dims from `start` to `end` into one.
pub(super) fn flatten(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let x = r.inputs[0];
    if x.is_empty() {
        return Op::view(x, &[1]);
    }
    let (start, end) = (r.dim("start")?, r.dim("end")?);
    if start > end {
        return Err(r.error(format!("start is dim {start}, which is after end, dim {end}")));
    }
    let joined = reshard_sharding::internal::numel(&x[start..=end])?;
    Op::view(x, &[&x[..start], &[joined], &x[end + 1..]].concat())
}

/// Splits a dim into several.
pub(super) fn unflatten(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let x = r.inputs[0];
    let dim = r.dim("dim")?;
    let list = r.numbers("sizes")?;
    Op::view(x, &[&x[..dim], &completed(r, &list, x[dim])?[..], &x[dim + 1..]].concat())
}
