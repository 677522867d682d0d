//! Windows over space: convolutions, pools, and space of another size.

use super::Body::By;
use super::Ops;
use super::reductions::norm_of;
use crate::Error;
use crate::arrays::{A, at, coordinates, make, numbers, of, place};
use crate::ask::{Ask, Made};

/// Windows along each spatial dim.
pub(super) struct Windows {
    pub(super) kernel: Vec<usize>,
    stride: Vec<usize>,
    padding: Vec<usize>,
    dilation: Vec<usize>,
}

impl Windows {
    /// Returns the windows of a call's arguments with this kernel; arguments that the op lacks are 1.
    pub(super) fn of(r: &Ask<'_>, kernel: &[usize], dilated: bool) -> Result<Windows, Error> {
        let n = kernel.len();
        let dilation = if dilated { r.spatial("dilation", n)? } else { vec![1; n] };
        let (stride, padding) = (r.spatial("stride", n)?, r.spatial("padding", n)?);
        Ok(Windows { kernel: kernel.to_vec(), stride, padding, dilation })
    }

    /// The number of windows over a space of this size, per dim.
    pub(super) fn count(&self, r: &Ask<'_>, space: &[usize]) -> Result<Vec<usize>, Error> {
        (0..space.len())
            .map(|d| {
                let window = self.dilation[d] * (self.kernel[d].max(1) - 1) + 1;
                let room = (space[d] + 2 * self.padding[d]).checked_sub(window);
                Ok(room.ok_or_else(|| r.wrong("a window does not fit into the spatial dims"))?
                    / self.stride[d]
                    + 1)
            })
            .collect()
    }

    /// The position of a window's element in space; `None` in padding.
    pub(super) fn at(&self, window: &[usize], k: &[usize], space: &[usize]) -> Option<Vec<usize>> {
        (0..space.len())
            .map(|d| {
                let place = window[d] * self.stride[d] + k[d] * self.dilation[d];
                place.checked_sub(self.padding[d]).filter(|&p| p < space[d])
            })
            .collect()
    }
}

/// Convolves with the number of groups that follows from the weight's channels.
fn conv(r: &Ask<'_>) -> Made {
    let (a, w) = (r.x(0)?, r.x(1)?);
    let windows = Windows::of(r, &w.shape()[2..], true)?;
    let (inputs, each, outputs) = (a.shape()[1], w.shape()[1], w.shape()[0]);
    let groups = inputs.checked_div(each).unwrap_or(1);
    r.ensure(inputs == groups * each && groups > 0 && outputs.is_multiple_of(groups), "channels do not fit")?;
    if let Some(bias) = r.maybe(2) {
        r.ensure(bias.len() == outputs, "the bias must have one element per channel")?;
    }
    let space = windows.count(r, &a.shape()[2..])?;
    let kernel = coordinates(&w.shape()[2..]);
    let (of_a, of_w) = (numbers(a), numbers(w));
    Ok(vec![make(&[&[a.shape()[0], outputs], &space[..]].concat(), &|i| {
        let first = i[1] / (outputs / groups) * each;
        let mut sum = r.maybe(2).map_or(0.0, |bias| bias[i[1]]);
        for k in &kernel {
            let Some(at) = windows.at(&i[2..], k, &a.shape()[2..]) else { continue };
            for c in 0..each {
                let of_a = of_a[place(a.shape(), [i[0], first + c].into_iter().chain(at.iter().copied()))];
                sum += of_a * of_w[place(w.shape(), [i[1], c].into_iter().chain(k.iter().copied()))];
            }
        }
        sum
    })])
}

/// Adds each input element times the kernel to the window that a convolution would have read.
fn transposed(r: &Ask<'_>) -> Made {
    let (a, w) = (r.x(0)?, r.x(1)?);
    let windows = Windows::of(r, &w.shape()[2..], false)?;
    // The groups of the local channels.
    let groups = r.size("groups")?;
    let (channels, each) = (r.held(0, 1)?, (r.input(0)?[1] / groups).max(1));
    r.ensure(channels == r.held(1, 0)?, "input and weight hold different channels")?;
    let mut here: Vec<usize> = channels.iter().map(|c| c / each).collect();
    here.dedup();
    // A rank without input channels has partial values of the groups of its output.
    let each_out = w.shape()[1];
    let groups = if here.is_empty() { r.wanted(0, 1)?.len() / each_out.max(1) } else { here.len() };
    let each_in = (a.shape()[1] / groups.max(1)).max(1);
    let mut shape = vec![a.shape()[0], each_out * groups];
    for d in 0..windows.kernel.len() {
        let full = (a.shape()[d + 2].max(1) - 1) * windows.stride[d] + windows.kernel[d];
        let kept = full.checked_sub(2 * windows.padding[d]);
        shape.push(kept.ok_or_else(|| r.wrong("the padding exceeds the output"))?);
    }
    if let Some(bias) = r.maybe(2) {
        r.ensure(bias.len() == shape[1], "the bias must have one element per channel")?;
    }
    let mut y = make(&shape, &|i| r.maybe(2).map_or(0.0, |bias| bias[i[1]])).into_raw_vec_and_offset().0;
    let kernel = coordinates(&w.shape()[2..]);
    for (i, v) in coordinates(a.shape()).iter().zip(a) {
        for k in &kernel {
            let Some(to) = windows.at(&i[2..], k, &shape[2..]) else { continue };
            for o in 0..each_out {
                let channel = i[1] / each_in * each_out + o;
                let of_w = at(w, &[&[i[1], o], &k[..]].concat());
                y[place(&shape, [i[0], channel].into_iter().chain(to.iter().copied()))] += v * of_w;
            }
        }
    }
    Ok(vec![r.fit(of(&shape, y))?])
}

/// The elements of a window that are in space, each with its row-major index there.
pub(super) type Part = Vec<(f64, usize)>;

/// Reduces each window to a number.
fn pooled(r: &Ask<'_>, fs: &[&dyn Fn(&Part) -> f64]) -> Made {
    let a = r.x(0)?;
    let space = &a.shape()[2..];
    let windows = Windows::of(r, &r.spatial("kernel", space.len())?, false)?;
    let shape = [&a.shape()[..2], &windows.count(r, space)?[..]].concat();
    let kernel = coordinates(&windows.kernel);
    let part = |i: &[usize]| -> Part {
        let here = kernel.iter().filter_map(|k| windows.at(&i[2..], k, space));
        here.map(|p| (at(a, &[&i[..2], &p[..]].concat()), place(space, p))).collect()
    };
    Ok(fs.iter().map(|f| make(&shape, &|i| f(&part(i)))).collect())
}

pub(super) fn greatest(v: &Part) -> f64 {
    v.iter().fold(f64::NEG_INFINITY, |a, b| a.max(b.0))
}

/// The index of the first greatest element.
pub(super) fn greatest_at(v: &Part) -> f64 {
    v.iter().fold((f64::NEG_INFINITY, 0), |a, b| if b.0 > a.0 { *b } else { a }).1 as f64
}

fn mean(v: &Part) -> f64 {
    v.iter().map(|x| x.0).sum::<f64>() / v.len() as f64
}

/// Averages windows; padding counts as zeros.
fn avg_pool(r: &Ask<'_>) -> Made {
    let n: usize = r.spatial("kernel", r.x(0)?.ndim() - 2)?.iter().product();
    pooled(r, &[&|v: &Part| v.iter().map(|x| x.0).sum::<f64>() / n as f64])
}

fn lp_pool(r: &Ask<'_>) -> Made {
    let p = r.real("norm_type")?;
    pooled(r, &[&|v: &Part| norm_of(p, &v.iter().map(|x| x.0).collect::<Vec<_>>())])
}

/// Computes each position of a space of the given size from its part of the input's space.
fn parts(r: &Ask<'_>, fs: &[fn(&Part) -> f64]) -> Made {
    let a = r.x(0)?;
    let space = &a.shape()[2..];
    let size = r.spatial("size", space.len())?;
    let part = |i: &[usize]| -> Part {
        let from: Vec<usize> = (0..space.len()).map(|d| i[d + 2] * space[d] / size[d]).collect();
        let to = |d: usize| ((i[d + 2] + 1) * space[d]).div_ceil(size[d]);
        let extents: Vec<usize> = (0..space.len()).map(|d| to(d) - from[d]).collect();
        let here = coordinates(&extents).into_iter();
        here.map(|k| {
            let p: Vec<usize> = k.iter().zip(&from).map(|(k, from)| k + from).collect();
            (at(a, &[&i[..2], &p[..]].concat()), place(space, p))
        })
        .collect()
    };
    let shape = [&a.shape()[..2], &size[..]].concat();
    Ok(fs.iter().map(|f| make(&shape, &|i| f(&part(i)))).collect())
}

/// Returns the weights of four neighbours.
fn cubic(t: f64) -> [f64; 4] {
    let a = -0.75;
    let near = |t: f64| (a + 2.0) * t.powi(3) - (a + 3.0) * t.powi(2) + 1.0;
    let far = |t: f64| a * t.powi(3) - 5.0 * a * t.powi(2) + 8.0 * a * t - 4.0 * a;
    [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]
}

/// Returns the indices of `n` from which an index of `size` is interpolated, with their weights, for one dim.
fn weights(mode: &str, corners: bool, i: usize, size: usize, n: usize) -> Vec<(usize, f64)> {
    let ratio = n as f64 / size as f64;
    let last = n.saturating_sub(1) as f64;
    let centre = if corners && size > 1 {
        i as f64 * last / (size - 1) as f64
    } else {
        (i as f64 + 0.5) * ratio - 0.5
    };
    match mode {
        "nearest" => vec![(i * n / size, 1.0)],
        "nearest_exact" => vec![((2 * i + 1) * n / (2 * size), 1.0)],
        "cubic" => {
            let of = |k: usize| (centre.floor() + k as f64 - 1.0).clamp(0.0, last) as usize;
            cubic(centre - centre.floor()).into_iter().enumerate().map(|(k, w)| (of(k), w)).collect()
        }
        _ => {
            let centre = if corners && size == 1 { 0.0 } else { centre.clamp(0.0, last) };
            let t = centre.fract();
            vec![(centre as usize, 1.0 - t), ((centre as usize + 1).min(n - 1), t)]
        }
    }
}

fn interpolate(r: &Ask<'_>) -> Made {
    let (mode, corners) = (r.word("mode")?, r.flag("align_corners")?);
    if mode == "area" {
        return parts(r, &[mean]);
    }
    // Interpolate one spatial dim at a time.
    let mut a: A = r.x(0)?.clone();
    let size = r.spatial("size", a.ndim() - 2)?;
    for (d, &to) in size.iter().enumerate() {
        let n = a.shape()[d + 2];
        r.ensure(n > 0, "space is empty")?;
        let all: Vec<Vec<(usize, f64)>> = (0..to).map(|i| weights(&mode, corners, i, to, n)).collect();
        let of = |i: &[usize]| {
            let each = all[i[d + 2]].iter();
            each.map(|&(from, w)| w * at(&a, &crate::arrays::with(i, d + 2, from))).sum()
        };
        a = make(&crate::arrays::with(a.shape(), d + 2, to), &of);
    }
    Ok(vec![a])
}

/// Sums over neighbouring channels: half of the size before, and the rest after.
fn local_response_norm(r: &Ask<'_>) -> Made {
    let (a, size) = (r.x(0)?, r.size("size")?);
    let (alpha, beta, k) = (r.real("alpha")?, r.real("beta")?, r.real("k")?);
    Ok(vec![make(a.shape(), &|i| {
        let (from, to) = (i[1].saturating_sub(size / 2), (i[1] + size.div_ceil(2)).min(a.shape()[1]));
        let sum: f64 = (from..to).map(|c| at(a, &crate::arrays::with(i, 1, c)).powi(2)).sum();
        at(a, i) / (k + alpha * sum / size as f64).powf(beta)
    })])
}

pub(super) const OPS: Ops = &[
    ("conv1d", By(conv)),
    ("conv2d", By(conv)),
    ("conv3d", By(conv)),
    ("convolution", By(conv)),
    ("conv_transpose1d", By(transposed)),
    ("conv_transpose2d", By(transposed)),
    ("conv_transpose3d", By(transposed)),
    ("max_pool1d", By(|r| pooled(r, &[&greatest]))),
    ("max_pool2d", By(|r| pooled(r, &[&greatest]))),
    ("max_pool3d", By(|r| pooled(r, &[&greatest]))),
    ("max_pool1d_with_indices", By(|r| pooled(r, &[&greatest, &greatest_at]))),
    ("max_pool2d_with_indices", By(|r| pooled(r, &[&greatest, &greatest_at]))),
    ("max_pool3d_with_indices", By(|r| pooled(r, &[&greatest, &greatest_at]))),
    ("avg_pool1d", By(avg_pool)),
    ("avg_pool2d", By(avg_pool)),
    ("avg_pool3d", By(avg_pool)),
    ("lp_pool1d", By(lp_pool)),
    ("lp_pool2d", By(lp_pool)),
    ("lp_pool3d", By(lp_pool)),
    ("adaptive_avg_pool1d", By(|r| parts(r, &[mean]))),
    ("adaptive_avg_pool2d", By(|r| parts(r, &[mean]))),
    ("adaptive_avg_pool3d", By(|r| parts(r, &[mean]))),
    ("adaptive_max_pool1d", By(|r| parts(r, &[greatest]))),
    ("adaptive_max_pool2d", By(|r| parts(r, &[greatest]))),
    ("adaptive_max_pool3d", By(|r| parts(r, &[greatest]))),
    ("adaptive_max_pool1d_with_indices", By(|r| parts(r, &[greatest, greatest_at]))),
    ("adaptive_max_pool2d_with_indices", By(|r| parts(r, &[greatest, greatest_at]))),
    ("adaptive_max_pool3d_with_indices", By(|r| parts(r, &[greatest, greatest_at]))),
    ("interpolate", By(interpolate)),
    ("local_response_norm", By(local_response_norm)),
];
