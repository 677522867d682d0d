//! Gradients of windows over space: convolutions and pooling.
//!
//! ```text
//! y = conv(x, w)             dx = conv_transpose(dy, w)         dw[o,i,k] = sum over b, t of dy[b,o,t] x[b,i, t stride + k dilation]
//! y = conv_transpose(x, w)   dx = conv(dy, w)                   dw the same with x and dy exchanged
//! ```
//!
//! The sum of a weight is itself a convolution, over the batch, whose stride and dilation are exchanged;
//! groups are next to the batch. Mean pooling is a convolution of each channel with a constant; max pooling
//! passes the gradient to the maxima.

use super::Formula;
use super::builder::{GradientBuilder, Variable, numbers, whole};
use super::pointwise::Alike;
use crate::Error;
use crate::rules::{Argument, OpCall};

type Many = fn(&mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error>;

pub(super) fn formulas() -> Vec<Alike> {
    let list: &[(&[&str], Many)] = &[
        (&["conv1d", "conv2d", "conv3d", "convolution"], conv),
        (&["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"], conv_transpose),
        (&["avg_pool1d", "avg_pool2d", "avg_pool3d"], avg_pool),
        (&["pixel_shuffle"], |b| pixels(b, "pixel_unshuffle")),
        (&["pixel_unshuffle"], |b| pixels(b, "pixel_shuffle")),
    ];
    list.iter().map(|&(names, f)| -> Alike { (names, Formula::new(f)) }).collect()
}

/// The gradient of channels to space, or back, by the inverse op.
fn pixels(b: &mut GradientBuilder<'_>, back: &str) -> Result<Vec<Option<Variable>>, Error> {
    let factor = b.argument(|r| r.size("factor"))?;
    b.call(&OpCall::new(back).with("factor", whole(factor)), &[b.dy(0)]).map(|dx| vec![Some(dx)])
}

/// The parameters of a window, one number for each spatial dim.
struct Window {
    stride: Vec<usize>,
    padding: Vec<usize>,
    dilation: Vec<usize>,
    groups: usize,
}

impl Window {
    fn of(b: &GradientBuilder<'_>, dilated: bool) -> Result<Window, Error> {
        let n = b.forward().inputs()[0].len() - 2;
        b.argument(|r| {
            Ok(Window {
                stride: r.spatial("stride", n)?,
                padding: r.spatial("padding", n)?,
                dilation: if dilated { r.spatial("dilation", n)? } else { vec![1; n] },
                groups: r.size("groups")?,
            })
        })
    }

    fn conv(&self) -> OpCall {
        OpCall::new("convolution")
            .with("stride", numbers(&self.stride))
            .with("padding", numbers(&self.padding))
            .with("dilation", numbers(&self.dilation))
            .with("groups", whole(self.groups))
    }
}

fn conv(b: &mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error> {
    let window = Window::of(b, true)?;
    let inputs = b.forward().inputs().to_vec();
    let spread = dilated(b, b.x(1), &window.dilation)?;
    let dx = spread_over(b, b.dy(0), spread, &window, &inputs[0][2..])?;
    let dw = weight(b, [b.x(0), b.dy(0)], &window, &inputs[1])?;
    with_bias(b, dx, dw)
}

fn conv_transpose(b: &mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error> {
    let window = Window::of(b, false)?;
    let inputs = b.forward().inputs().to_vec();
    let dx = b.call(&window.conv(), &[b.dy(0), b.x(1)])?;
    let dw = weight(b, [b.dy(0), b.x(0)], &window, &inputs[1])?;
    with_bias(b, dx, dw)
}

/// The gradients of input and weight, and of a bias if there is one: the sum over batch and space.
fn with_bias(
    b: &mut GradientBuilder<'_>,
    dx: Variable,
    dw: Variable,
) -> Result<Vec<Option<Variable>>, Error> {
    let mut out = vec![Some(dx), Some(dw)];
    if b.forward().inputs().len() == 3 {
        let dims: Vec<usize> = (0..b.shape(b.dy(0)).len()).filter(|&d| d != 1).collect();
        out.push(Some(b.summed(b.dy(0), &dims, false)?));
    }
    Ok(out)
}

/// A weight with zeros between its elements.
fn dilated(b: &mut GradientBuilder<'_>, weight: Variable, dilation: &[usize]) -> Result<Variable, Error> {
    let mut weight = weight;
    for (d, &dilation) in dilation.iter().enumerate() {
        let (dim, shape) = (d + 2, b.shape(weight).to_vec());
        if dilation == 1 || shape[dim] < 2 {
            continue;
        }
        // An additional dim of an element and its zeros; those after the last element are dropped.
        let apart = [&shape[..=dim], &[1], &shape[dim + 1..]].concat();
        let with_zeros = [&shape[..dim], &[shape[dim] * dilation], &shape[dim + 1..]].concat();
        let one = b.reshaped(weight, &apart)?;
        let padded = padded(b, one, dim + 1, [0, dilation as i64 - 1])?;
        let flat = b.reshaped(padded, &with_zeros)?;
        weight = b.narrowed(flat, dim, 0, (shape[dim] - 1) * dilation + 1)?;
    }
    Ok(weight)
}

/// Pads a dim with zeros before and after; negative padding crops.
fn padded(b: &mut GradientBuilder<'_>, value: Variable, dim: usize, by: [i64; 2]) -> Result<Variable, Error> {
    if by == [0, 0] {
        return Ok(value);
    }
    let after = b.shape(value).len() - 1 - dim;
    let pads = [vec![0; 2 * after], by.to_vec()].concat();
    b.call(&OpCall::new("pad").with("pads", Argument::Numbers(pads)), &[value])
}

/// Adds each element of `dy` times the window's weight at its window.
///
/// The result includes all of the padding, which is then removed.
fn spread_over(
    b: &mut GradientBuilder<'_>,
    dy: Variable,
    weight: Variable,
    window: &Window,
    space: &[usize],
) -> Result<Variable, Error> {
    let name = ["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]
        .get(space.len() - 1)
        .ok_or_else(|| super::refused(&format!("{} over {} dims of space", b.name(), space.len())))?;
    let call = OpCall::new(name).with("stride", numbers(&window.stride)).with("groups", whole(window.groups));
    let mut all = b.call(&call, &[dy, weight])?;
    for (d, (&size, &padding)) in space.iter().zip(&window.padding).enumerate() {
        let has = b.shape(all)[d + 2];
        let (before, after) = (-(padding as i64), (size + padding) as i64 - has as i64);
        all = padded(b, all, d + 2, [before, after])?;
    }
    Ok(all)
}

/// `sum over b, t of small[b,o,t] large[b,i, t stride + k dilation - padding]`, as `o i k`.
fn weight(
    b: &mut GradientBuilder<'_>,
    [large, small]: [Variable; 2],
    window: &Window,
    shape: &[usize],
) -> Result<Variable, Error> {
    let (n, groups) = (shape.len() - 2, window.groups);
    let large_shape = b.shape(large).to_vec();
    let (batch, each) = (large_shape[0], large_shape[1].checked_div(groups).unwrap_or(0));
    // b (g i) .. as i (g b) ..: the channels of a group are images, and its images channels.
    let apart = [&[batch, groups, each], &large_shape[2..]].concat();
    let together = [&[each, groups * batch], &large_shape[2..]].concat();
    let order: Vec<usize> = [2, 1, 0].into_iter().chain(3..n + 3).collect();
    let images = b.reshaped(large, &apart)?;
    let images = b.permuted(images, &order)?;
    let images = b.reshaped(images, &together)?;
    // b (g o) .. as (g o) b ..
    let swap: Vec<usize> = [1, 0].into_iter().chain(2..n + 2).collect();
    let weights = b.permuted(small, &swap)?;
    let exchanged = Window {
        stride: window.dilation.clone(),
        dilation: window.stride.clone(),
        padding: window.padding.clone(),
        groups,
    };
    let mut sums = b.call(&exchanged.conv(), &[images, weights])?;
    // i (g o) k, which may have more elements than windows.
    for (d, &size) in shape[2..].iter().enumerate() {
        if b.shape(sums)[d + 2] > size {
            sums = b.narrowed(sums, d + 2, 0, size)?;
        }
    }
    b.permuted(sums, &swap)
}

fn pooled(b: &GradientBuilder<'_>) -> Result<(Vec<usize>, Window), Error> {
    let n = b.forward().inputs()[0].len() - 2;
    b.argument(|r| {
        let window = Window {
            stride: r.spatial("stride", n)?,
            padding: r.spatial("padding", n)?,
            dilation: vec![1; n],
            groups: 1,
        };
        Ok((r.spatial("kernel", n)?, window))
    })
}

/// Average pooling as a convolution of every channel of every image with a constant weight.
fn avg_pool(b: &mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error> {
    let (kernel, window) = pooled(b)?;
    let (shape, out) = (b.forward().inputs()[0].clone(), b.forward().outputs()[0].clone());
    let images = shape[0] * shape[1];
    let dy = b.reshaped(b.dy(0), &[&[images, 1], &out[2..]].concat())?;
    let ones = OpCall::new("ones").with("shape", numbers(&[&[1, 1], &kernel[..]].concat()));
    let ones = b.call(&ones, &[])?;
    let share = b.scaled(ones, 1.0 / kernel.iter().product::<usize>() as f64)?;
    let dx = spread_over(b, dy, share, &window, &shape[2..])?;
    Ok(vec![Some(b.reshaped(dx, &shape)?)])
}
