//! Pools with windows from the output, random or inverted ones; power means, and neighbouring channels.

use super::window::{extent, with_space};
use super::{Family, POOL};
use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::Dim;
use crate::rules::op::Op;
use crate::rules::partial_rule::PartialRule;
use crate::rules::terms::{ALL, AVG, MAX, MIN, P, PROD, R, linear, row};

const LP: &str =
    "kernel: spatial >= 1, stride: spatial >= 1 = kernel, padding: spatial >= 0 = 0, norm_type: real = 2";
const SIZE: &str = "size: spatial >= 1";

families! {
    "adaptive_avg_pool1d" (SIZE) => |r| sized(r, 1, 1, vec![linear(ALL)]);
    "adaptive_avg_pool2d" (SIZE) => |r| sized(r, 2, 1, vec![linear(ALL)]);
    "adaptive_avg_pool3d" (SIZE) => |r| sized(r, 3, 1, vec![linear(ALL)]);
    "adaptive_max_pool1d" (SIZE) => |r| sized(r, 1, 1, vec![row([MAX], [MAX])]);
    "adaptive_max_pool2d" (SIZE) => |r| sized(r, 2, 1, vec![row([MAX], [MAX])]);
    "adaptive_max_pool3d" (SIZE) => |r| sized(r, 3, 1, vec![row([MAX], [MAX])]);
    "adaptive_max_pool1d_with_indices" (SIZE) => |r| sized(r, 1, 2, vec![]);
    "adaptive_max_pool2d_with_indices" (SIZE) => |r| sized(r, 2, 2, vec![]);
    "adaptive_max_pool3d_with_indices" (SIZE) => |r| sized(r, 3, 2, vec![]);
    "max_pool1d_with_indices" (POOL) => |r| super::window::pool(r, 1, 2, None);
    "max_pool3d_with_indices" (POOL) => |r| super::window::pool(r, 3, 2, None);
    "lp_pool1d" (LP) => |r| super::window::pool(r, 1, 1, None);
    "lp_pool2d" (LP) => |r| super::window::pool(r, 2, 1, None);
    "lp_pool3d" (LP) => |r| super::window::pool(r, 3, 1, None);
    "max_unpool1d" (SIZE) => |r| unpool(r, 1);
    "max_unpool2d" (SIZE) => |r| unpool(r, 2);
    "max_unpool3d" (SIZE) => |r| unpool(r, 3);
    "fractional_max_pool2d" ("size: spatial >= 1, kernel: spatial >= 1") => |r| fractional(r, 2, 1);
    "fractional_max_pool3d" ("size: spatial >= 1, kernel: spatial >= 1") => |r| fractional(r, 3, 1);
    "fractional_max_pool2d_with_indices" ("size: spatial >= 1, kernel: spatial >= 1") => |r| fractional(r, 2, 2);
    "fractional_max_pool3d_with_indices" ("size: spatial >= 1, kernel: spatial >= 1") => |r| fractional(r, 3, 2);
    "local_response_norm" ("size: number >= 1, alpha: real = 0.0001, beta: real = 0.75, k: real = 1") => |r| { r.inputs_of(1..=1)?; r.op(&"bc...->bc... {c: replicate, none}".parse()?) };
    "im2col" ("kernel: spatial >= 1, stride: spatial >= 1 = 1, padding: spatial >= 0 = 0, dilation: spatial >= 1 = 1") => im2col;
    "col2im" ("size: spatial >= 1, kernel: spatial >= 1, stride: spatial >= 1 = 1, padding: spatial >= 0 = 0, dilation: spatial >= 1 = 1") => col2im;
}

/// `n` dims of space, which become these.
fn shape_of(r: &BoundCall<'_>, n: usize) -> Result<Vec<usize>, Error> {
    let x = r.input(0)?;
    if x.len() != n + 2 {
        return Err(r.error(format!("needs an input with batch, channels and {n} spatial dims")));
    }
    Ok([&x[..2], &r.spatial("size", n)?[..]].concat())
}

/// `bc**->bc**` with `outputs` outputs.
fn sized(r: &BoundCall<'_>, n: usize, outputs: usize, terms: Vec<PartialRule>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let shape = shape_of(r, n)?;
    let dims = with_space('b'.into(), 'c'.into(), n);
    let rule = RuleBuilder::new().input(dims.clone()).outputs(outputs, dims).passings(terms);
    r.op_to(&rule.build()?, &vec![shape.as_slice(); outputs])
}

/// `bchw,bchw->bc** {h: sum, w: sum}`: elements go to the given indices; a rank leaves zeros elsewhere.
fn unpool(r: &BoundCall<'_>, n: usize) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let shape = shape_of(r, n)?;
    let space = ['d', 'h', 'w'].into_iter().skip(3 - n).map(Dim::from);
    let dims: Vec<Dim> = ['b', 'c'].into_iter().map(Dim::from).chain(space).collect();
    let rule = RuleBuilder::new().inputs(2, dims).output(with_space('b'.into(), 'c'.into(), n));
    r.op_to(
        &rule.passings([P, AVG, PROD, MIN, MAX].map(|term| row([term.clone(), R], [term]))).build()?,
        &[&shape],
    )
}

/// `bc**,bc*->bc**`: window starts follow from the random numbers of the second input.
fn fractional(r: &BoundCall<'_>, n: usize, outputs: usize) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let (shape, kernel) = (shape_of(r, n)?, r.spatial("kernel", n)?);
    if (0..n).any(|d| kernel[d].checked_add(shape[d + 2] - 1).is_none_or(|least| least > r.inputs[0][d + 2]))
    {
        return Err(r.error("has too many windows for its space"));
    }
    let dims = with_space('b'.into(), 'c'.into(), n);
    let rule = RuleBuilder::new().input(dims.clone()).input(['b'.into(), 'c'.into(), Dim::Whole]);
    let greatest = (outputs == 1).then(|| row([MAX, R], [MAX]));
    r.op_to(&rule.outputs(outputs, dims).passings(greatest).build()?, &vec![shape.as_slice(); outputs])
}

/// Returns the number of window positions in a space, and the number of elements of a window.
fn windows(r: &BoundCall<'_>, space: &[usize]) -> Result<(usize, usize), Error> {
    let n = space.len();
    let [kernel, stride, padding, dilation] = [
        r.spatial("kernel", n)?,
        r.spatial("stride", n)?,
        r.spatial("padding", n)?,
        r.spatial("dilation", n)?,
    ];
    let mut places = Some(1usize);
    for d in 0..n {
        places = places.and_then(|p| {
            p.checked_mul(extent(r, space[d], kernel[d], stride[d], padding[d], dilation[d]).ok()?)
        });
        extent(r, space[d], kernel[d], stride[d], padding[d], dilation[d])?;
    }
    let elements = kernel.iter().try_fold(1usize, |p, &k| p.checked_mul(k));
    match (places, elements) {
        (Some(places), Some(elements)) => Ok((places, elements)),
        (None, _) | (_, None) => Err(Error::overflow("the windows of an image".to_owned())),
    }
}

/// `bc**->b(ck)*`: every window a column.
fn im2col(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let [b, c, space @ ..] = r.inputs[0] else { return Err(r.error("needs batch and channels")) };
    let (places, k) = windows(r, space)?;
    let rule = format!("bc{}->b(ck)* {{k: {k} replicate, selecting}}", "*".repeat(space.len()));
    let rows = c.checked_mul(k).ok_or_else(|| Error::overflow("the rows of an image".to_owned()))?;
    r.op_to(&rule.parse()?, &[&[*b, rows, places]])
}

/// `b(ck)*->bc**`: the sum of the windows' contributions.
fn col2im(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let [b, rows, columns] = r.inputs[0] else { return Err(r.error("needs batch, rows and columns")) };
    let space = r.spatial("size", 2)?;
    let (places, k) = windows(r, &space)?;
    if places != *columns || !rows.is_multiple_of(k) {
        return Err(r.error(format!("needs a multiple of {k} rows and {places} columns")));
    }
    r.op_to(
        &format!("b(ck)*->bc** {{k: {k} replicate, linear}}").parse()?,
        &[&[&[*b, rows / k], &space[..]].concat()],
    )
}
