//! Gradients of max pools, and of ops that are linear along each spatial dim separately.
//!
//! ```text
//! y = max of windows         dx: to the position of each, an output of the op that also returns indices
//! y = x W_1 W_2 ..           dx = dy W_1^T W_2^T ..    W_d is the op on the identity of dim d
//! ```
//!
//! No matrix is written down: the op on one spatial dim, run on the unit vectors as if they were channels, is
//! its matrix.

use super::Formula;
use super::builder::{GradientBuilder, Variable, numbers, whole};
use super::pointwise::Alike;
use crate::Error;
use crate::rules::{Argument, OpCall};

type One = fn(&mut GradientBuilder<'_>) -> Result<Variable, Error>;

pub(super) fn formulas() -> Vec<Alike> {
    let list: &[(&[&str], One)] = &[
        (
            &[
                "max_pool1d",
                "max_pool2d",
                "max_pool3d",
                "max_pool1d_with_indices",
                "max_pool2d_with_indices",
                "max_pool3d_with_indices",
                "adaptive_max_pool1d",
                "adaptive_max_pool2d",
                "adaptive_max_pool3d",
                "adaptive_max_pool1d_with_indices",
                "adaptive_max_pool2d_with_indices",
                "adaptive_max_pool3d_with_indices",
                "fractional_max_pool2d",
                "fractional_max_pool3d",
                "fractional_max_pool2d_with_indices",
                "fractional_max_pool3d_with_indices",
            ],
            greatest,
        ),
        (&["adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"], |b| {
            by_dims(b, &OpCall::new("adaptive_avg_pool1d"))
        }),
        (&["interpolate"], |b| {
            let call = b.same_call();
            by_dims(b, &call)
        }),
        (&["affine_grid"], affine_grid),
    ];
    let one = |&(names, f): &(&'static [&'static str], One)| -> Alike {
        (
            names,
            Formula::new(move |b| {
                let dx = f(b)?;
                // Indices and random numbers have no gradient.
                let rest = b.forward().inputs().len() - 1;
                Ok([vec![Some(dx)], vec![None; rest]].concat())
            }),
        )
    };
    list.iter().map(one).collect()
}

/// Scatters the gradient to the maxima, with the indices of the op or of its variant that gives indices.
fn greatest(b: &mut GradientBuilder<'_>) -> Result<Variable, Error> {
    let (shape, out) = (b.forward().inputs()[0].clone(), b.forward().outputs()[0].clone());
    let index = if b.forward().outputs().len() == 2 {
        b.y(1)
    } else {
        let name = format!("{}_with_indices", b.name());
        let call = b.with_arguments(&name, &["kernel", "stride", "padding", "size"]);
        let operands: Vec<Variable> = (0..b.forward().inputs().len()).map(|i| b.x(i)).collect();
        b.calls(&call, &operands)?[1]
    };
    let flat = |shape: &[usize]| [shape[0], shape[1], shape[2..].iter().product()];
    let index = b.reshaped(index, &flat(&out))?;
    let dy = b.reshaped(b.dy(0), &flat(&out))?;
    let x = b.reshaped(b.x(0), &flat(&shape))?;
    let zeros = b.op("zeros_like", &[x])?;
    let dx = b.op("scatter_add(dim=2)", &[zeros, index, dy])?;
    b.reshaped(dx, &shape)
}

/// Applies the same call to one spatial dim at a time, on the unit vectors of each.
fn by_dims(b: &mut GradientBuilder<'_>, call: &OpCall) -> Result<Variable, Error> {
    let (shape, out) = (b.forward().inputs()[0].clone(), b.forward().outputs()[0].clone());
    let mut dx = b.dy(0);
    for dim in 2..shape.len() {
        let unit = b.call(&OpCall::new("eye").with("size", whole(shape[dim])), &[])?;
        let unit = b.reshaped(unit, &[1, shape[dim], shape[dim]])?;
        let matrix = b.call(&call.clone().with("size", numbers(&[out[dim]])), &[unit])?;
        let matrix = b.reshaped(matrix, &[shape[dim], out[dim]])?;
        let here = b.shape(dx).to_vec();
        let flat = [here[..dim].iter().product(), here[dim], here[dim + 1..].iter().product()];
        let rows = b.reshaped(dx, &flat)?;
        let made = b.call(&OpCall::Rule("aob,io->aib".parse()?), &[rows, matrix])?;
        dx = b.reshaped(made, &[&here[..dim], &[shape[dim]], &here[dim + 1..]].concat())?;
    }
    Ok(dx)
}

/// `y[b,p,i] = sum over k of x[b,i,k] base[k,p]`.
///
/// The base points are the op's results for unit vectors as first rows.
fn affine_grid(b: &mut GradientBuilder<'_>) -> Result<Variable, Error> {
    let (shape, out) = (b.forward().inputs()[0].clone(), b.forward().outputs()[0].clone());
    let (n, points) = (shape[1], out[1..out.len() - 1].iter().product());
    let unit = b.call(&OpCall::new("eye").with("size", whole(n + 1)), &[])?;
    let rows = b.reshaped(unit, &[n + 1, 1, n + 1])?;
    let pads = Argument::Numbers(vec![0, 0, 0, n as i64 - 1]);
    let units = b.call(&OpCall::new("pad").with("pads", pads), &[rows])?;
    let all = b.again(units)?;
    let base = b.narrowed(all, out.len() - 1, 0, 1)?;
    let base = b.reshaped(base, &[n + 1, points])?;
    let dy = b.reshaped(b.dy(0), &[shape[0], points, n])?;
    b.call(&OpCall::Rule("bpi,kp->bik".parse()?), &[dy, base])
}
