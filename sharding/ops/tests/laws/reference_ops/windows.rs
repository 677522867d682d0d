//! Windows over space.

use reshard_ops::rules::verify::{Data, LocalView};

use super::{A, Example, example, make, numbers, place, x};

/// All coordinates of a shape.
pub fn coordinates(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &n in shape {
        all = all.iter().flat_map(|c: &Vec<usize>| (0..n).map(move |i| [&c[..], &[i]].concat())).collect();
    }
    all
}

/// A convolution with groups as many as the weight's channels leave.
fn conv(l: &LocalView<'_>, stride: usize, padding: usize) -> Vec<A> {
    let (a, w) = (x(l, 0), x(l, 1));
    let (inputs, each, outputs) = (a.shape()[1], w.shape()[1], w.shape()[0]);
    let groups = if each == 0 {
        assert_eq!(inputs, 0);
        1
    } else {
        assert_eq!(inputs % each, 0);
        inputs / each
    };
    assert!(groups > 0 && outputs.is_multiple_of(groups), "groups");
    let of_group = outputs / groups;
    let mut shape = vec![a.shape()[0], outputs];
    for d in 2..a.ndim() {
        shape.push((a.shape()[d] + 2 * padding - w.shape()[d]) / stride + 1);
    }
    let kernel = coordinates(&w.shape()[2..]);
    let bias = (l.inputs.len() > 2).then(|| x(l, 2));
    if let Some(b) = &bias {
        assert_eq!(b.len(), outputs);
    }
    vec![make(&shape, |i| {
        let first = i[1] / of_group * each;
        let mut sum = bias.as_ref().map_or(0.0, |b| b[i[1]]);
        for k in &kernel {
            let at: Option<Vec<usize>> = (2..i.len())
                .map(|d| (i[d] * stride + k[d - 2]).checked_sub(padding).filter(|&p| p < a.shape()[d]))
                .collect();
            let Some(at) = at else { continue };
            for c in 0..each {
                let of_a = place(a.shape(), [i[0], first + c].into_iter().chain(at.iter().copied()));
                let of_w = place(w.shape(), [i[1], c].into_iter().chain(k.iter().copied()));
                sum += numbers(&a)[of_a] * numbers(&w)[of_w];
            }
        }
        sum
    })]
}

/// The transpose of a convolution without padding.
fn transposed(l: &LocalView<'_>, stride: usize, groups: usize) -> Vec<A> {
    let (a, w) = (x(l, 0), x(l, 1));
    let each_out = w.shape()[1];
    // Which groups the channels here belong to.
    let (channels, each) = (l.places[0].indices(1).unwrap(), l.places[0].whole[1] / groups);
    assert_eq!(channels, l.places[1].indices(0).unwrap(), "channels");
    let mut here: Vec<usize> = channels.iter().map(|c| c / each.max(1)).collect();
    here.dedup();
    // A rank without input channels has terms of all groups.
    let groups = if here.is_empty() { groups } else { here.len() };
    let each_in = a.shape()[1] / groups;
    let mut shape = vec![a.shape()[0], each_out * groups];
    for d in 2..a.ndim() {
        shape.push((a.shape()[d] - 1) * stride + w.shape()[d]);
    }
    let bias = (l.inputs.len() > 2).then(|| x(l, 2));
    if let Some(b) = &bias {
        assert_eq!(b.len(), shape[1]);
    }
    let mut y = make(&shape, |i| bias.as_ref().map_or(0.0, |b| b[i[1]]));
    let y_numbers = y.as_slice_mut().expect("dense");
    let kernel = coordinates(&w.shape()[2..]);
    for (p, a) in coordinates(a.shape()).iter().zip(numbers(&a)) {
        let g = p[1] / each_in.max(1);
        for o in 0..each_out {
            for k in &kernel {
                let at = (2..p.len()).map(|d| p[d] * stride + k[d - 2]);
                let of_y = place(&shape, [p[0], g * each_out + o].into_iter().chain(at));
                let of_w = place(w.shape(), [p[1], o].into_iter().chain(k.iter().copied()));
                y_numbers[of_y] += a * numbers(&w)[of_w];
            }
        }
    }
    vec![y]
}

/// Windows of 2, side by side.
pub fn pool(a: &A, f: impl Fn(&[(f64, usize)]) -> f64) -> A {
    let mut shape = a.shape().to_vec();
    for n in &mut shape[2..] {
        *n /= 2;
    }
    let space = &a.shape()[2..];
    let window = coordinates(&vec![2; space.len()]);
    make(&shape, |i| {
        let list: Vec<(f64, usize)> = (window.iter())
            .map(|k| {
                let at = (0..space.len()).map(|d| 2 * i[d + 2] + k[d]);
                let all = i[..2].iter().copied().chain(at.clone());
                (numbers(a)[place(a.shape(), all)], place(space, at))
            })
            .collect();
        f(&list)
    })
}

pub fn all() -> Vec<Example> {
    let greatest = |v: &[(f64, usize)]| v.iter().fold(f64::NEG_INFINITY, |a, b| a.max(b.0));
    let mean = |v: &[(f64, usize)]| v.iter().map(|x| x.0).sum::<f64>() / v.len() as f64;
    let place = |v: &[(f64, usize)]| {
        let best = v.iter().fold((f64::NEG_INFINITY, 0), |a, b| if b.0 > a.0 { *b } else { a });
        best.1 as f64
    };
    let mut out = vec![
        example("conv1d", "6,3,4 6,3,2; 2,6,3 5,6,2", |l| conv(l, 1, 0)),
        example("conv2d(stride=[2,2],padding=[1,1])", "6,3,4,3 6,3,2,2; 2,6,3,3 5,6,2,3", |l| conv(l, 2, 1)),
        example("conv3d", "6,3,2,2,2 6,3,2,2,1; 2,6,2,1,2 5,6,2,1,1", |l| conv(l, 1, 0)),
        example("convolution", "6,3,4 6,3,2; 2,6,3 5,6,2", |l| conv(l, 1, 0)),
        example("conv1d", "6,3,4 6,3,2 6; 2,6,3 5,6,2 5", |l| conv(l, 1, 0)),
        example("conv1d(groups=6)", "6,12,3 18,2,2; 5,24,3 6,4,2", |l| conv(l, 1, 0)),
        example("conv1d(groups=6)", "6,12,3 18,2,2 18; 5,24,3 6,4,2 6", |l| conv(l, 1, 0)),
        example("conv1d(groups=3)", "4,6,3 6,2,2", |l| conv(l, 1, 0)),
        example("conv_transpose1d", "6,3,4 3,6,2; 2,6,3 6,5,2", |l| transposed(l, 1, 1)),
        example("conv_transpose2d(stride=2)", "6,3,2,2 3,6,2,2; 2,6,3,2 6,5,2,3", |l| transposed(l, 2, 1)),
        example("conv_transpose3d", "6,3,2,1,2 3,6,2,1,1; 2,6,1,2,1 6,5,2,1,1", |l| transposed(l, 1, 1)),
        example("conv_transpose1d", "6,3,4 3,6,2 6; 2,6,3 6,5,2 5", |l| transposed(l, 1, 1)),
        example("conv_transpose1d(groups=6)", "6,12,3 12,2,2; 5,24,2 24,1,2", |l| transposed(l, 1, 6)),
        example("max_pool1d(kernel=2)", "6,5,4; 2,6,6", move |l| vec![pool(&x(l, 0), greatest)]),
        example("max_pool2d(kernel=2)", "6,5,4,2; 2,6,2,4", move |l| vec![pool(&x(l, 0), greatest)]),
        example("max_pool3d(kernel=2)", "6,5,4,2,2; 2,6,2,2,4", move |l| vec![pool(&x(l, 0), greatest)]),
        example("avg_pool1d(kernel=2)", "6,5,4; 2,6,6", move |l| vec![pool(&x(l, 0), mean)]).near(),
        example("avg_pool2d(kernel=2)", "6,5,4,2; 2,6,2,4", move |l| vec![pool(&x(l, 0), mean)]).near(),
        example("avg_pool3d(kernel=2)", "6,5,4,2,2; 2,6,2,2,4", move |l| vec![pool(&x(l, 0), mean)]).near(),
    ];
    let indices = move |l: &LocalView<'_>| vec![pool(&x(l, 0), greatest), pool(&x(l, 0), place)];
    out.push(
        example("max_pool2d_with_indices(kernel=2)", "6,5,4,2; 2,6,2,4", indices).data(&[Data::Distinct]),
    );
    out.push(example("interpolate(size=6)", "6,5,3; 2,6,4", |l| {
        let a = x(l, 0);
        let n = a.shape()[2];
        vec![make(&super::with_size(&a, 2, 6), |i| a[[i[0], i[1], i[2] * n / 6]])]
    }));
    out.push(
        example("interpolate(size=5,mode=linear)", "6,5,3; 2,6,4", |l| {
            let a = x(l, 0);
            let n = a.shape()[2];
            vec![make(&super::with_size(&a, 2, 5), |i| {
                let at = i[2] as f64 * (n - 1) as f64 / 4.0;
                let (k, t) = (at.floor() as usize, at.fract());
                a[[i[0], i[1], k]] * (1.0 - t) + a[[i[0], i[1], (k + 1).min(n - 1)]] * t
            })]
        })
        .near(),
    );
    out.push(example("pixel_shuffle(factor=2)", "6,24,2,3; 2,12,5,2", |l| {
        let a = x(l, 0);
        let s = a.shape();
        assert_eq!(s[1] % 4, 0);
        vec![make(&[s[0], s[1] / 4, 2 * s[2], 2 * s[3]], |i| {
            a[[i[0], 4 * i[1] + 2 * (i[2] % 2) + i[3] % 2, i[2] / 2, i[3] / 2]]
        })]
    }));
    out
}
