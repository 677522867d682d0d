//! Pools whose windows follow from the output, space sampled at points, and channels in another order.

use ndarray::IxDyn;
use reshard_ops::rules::verify::{Data, LocalView, Random};

use super::{A, Example, defined, example, make, x};

fn greatest(v: &[(f64, usize)]) -> f64 {
    v.iter().fold(f64::NEG_INFINITY, |a, b| a.max(b.0))
}

fn place(v: &[(f64, usize)]) -> f64 {
    v.iter().fold((f64::NEG_INFINITY, 0), |a, b| if b.0 > a.0 { *b } else { a }).1 as f64
}

/// Elements put where indices say, in a space of this size.
fn unpooled(l: &LocalView<'_>, size: usize) -> Vec<A> {
    let (a, index) = (x(l, 0), x(l, 1));
    assert_eq!(a.shape(), index.shape());
    let space = vec![size; a.ndim() - 2];
    let mut y = A::zeros([&a.shape()[..2], &space[..]].concat());
    for (i, &v) in a.indexed_iter() {
        let i = ndarray::Dimension::slice(&i);
        assert!(index[i].fract() == 0.0, "an index");
        let mut at = index[i] as usize;
        let mut to: Vec<usize> = space
            .iter()
            .rev()
            .map(|n| {
                let c = at % n;
                at /= n;
                c
            })
            .collect();
        to.reverse();
        y[IxDyn(&[&i[..2], &to[..]].concat())] = v;
    }
    vec![y]
}

/// Different places of a space of 9 for every channel.
fn places(shape: &[usize], r: &mut Random) -> Vec<f64> {
    let n: usize = shape[2..].iter().product();
    (0..shape[0] * shape[1])
        .flat_map(|_| r.permutation(n).into_iter().map(|p| p as f64).collect::<Vec<_>>())
        .collect()
}

/// Windows of 2 that start where a random number between 0 and 1 says.
fn fractional(l: &LocalView<'_>, size: usize) -> Vec<A> {
    let (a, samples) = (x(l, 0), x(l, 1));
    assert!(a.shape()[..2] == samples.shape()[..2] && samples.shape()[2] == a.ndim() - 2);
    let space = &a.shape()[2..];
    let shape = [&a.shape()[..2], &vec![size; space.len()]].concat();
    let window = |i: &[usize]| -> Vec<(f64, usize)> {
        let start = |d: usize| {
            let (room, u) = (space[d] - 2, samples[[i[0], i[1], d]]);
            let step = room as f64 / (size as f64 - 1.0);
            if i[d + 2] == size - 1 {
                room
            } else {
                ((i[d + 2] as f64 + u) * step) as usize - (u * step) as usize
            }
        };
        coordinates(&vec![2; space.len()])
            .iter()
            .map(|k| {
                let at: Vec<usize> = (0..space.len()).map(|d| start(d) + k[d]).collect();
                let place = at.iter().zip(space).fold(0, |e, (c, n)| e * n + c);
                (a[IxDyn(&[&i[..2], &at[..]].concat())], place)
            })
            .collect()
    };
    vec![make(&shape, |i| greatest(&window(i))), make(&shape, |i| place(&window(i)))]
}

/// The value between four neighbours, zeros outside.
fn sampled(l: &LocalView<'_>, nearest: bool) -> Vec<A> {
    let (a, grid) = (x(l, 0), x(l, 1));
    assert!(a.shape()[0] == grid.shape()[0] && grid.shape()[3] == 2);
    let (h, w) = (a.shape()[2] as f64, a.shape()[3] as f64);
    let get = |b: usize, c: usize, row: f64, column: f64| {
        let inside = row >= 0.0 && column >= 0.0 && row < h && column < w;
        if inside { a[[b, c, row as usize, column as usize]] } else { 0.0 }
    };
    vec![make(&[a.shape()[0], a.shape()[1], grid.shape()[1], grid.shape()[2]], |i| {
        let p = |k: usize, n: f64| ((grid[[i[0], i[2], i[3], k]] + 1.0) * n - 1.0) / 2.0;
        let (column, row) = (p(0, w), p(1, h));
        if nearest {
            return get(i[0], i[1], row.round(), column.round());
        }
        let (top, left) = (row.floor(), column.floor());
        let corner = |dr: f64, dc: f64| {
            let weight = (1.0 - (row - top - dr).abs()) * (1.0 - (column - left - dc).abs());
            weight * get(i[0], i[1], top + dr, left + dc)
        };
        corner(0.0, 0.0) + corner(0.0, 1.0) + corner(1.0, 0.0) + corner(1.0, 1.0)
    })]
}

/// All coordinates of a shape.
fn coordinates(shape: &[usize]) -> Vec<Vec<usize>> {
    ndarray::indices(IxDyn(shape)).into_iter().map(|i| ndarray::Dimension::slice(&i).to_vec()).collect()
}

pub fn all() -> Vec<Example> {
    let (real, apart) = ([Data::Real], [Data::Distinct]);
    let spaces = ["6,5,4; 2,6,3", "6,5,4,2; 2,6,3,4", "6,3,2,3,2; 2,6,3,2,2"];
    let mut out = Vec::new();
    for (calls, data) in [
        (["adaptive_avg_pool1d(size=2)", "adaptive_avg_pool2d(size=2)", "adaptive_avg_pool3d(size=2)"], real),
        (["adaptive_max_pool1d(size=2)", "adaptive_max_pool2d(size=2)", "adaptive_max_pool3d(size=2)"], real),
        (["lp_pool1d(kernel=2)", "lp_pool2d(kernel=2)", "lp_pool3d(kernel=2)"], real),
        (
            [
                "lp_pool1d(kernel=2,norm_type=3)",
                "lp_pool2d(kernel=2,norm_type=3)",
                "lp_pool3d(kernel=2,norm_type=3)",
            ],
            real,
        ),
    ] {
        for (call, space) in calls.into_iter().zip(spaces) {
            out.push(example(call, space).data(&data).near());
        }
    }
    for (call, space) in [
        ("adaptive_max_pool1d_with_indices(size=2)", 0),
        ("adaptive_max_pool2d_with_indices(size=2)", 1),
        ("adaptive_max_pool3d_with_indices(size=2)", 2),
        ("max_pool1d_with_indices(kernel=2)", 0),
        ("max_pool3d_with_indices(kernel=2)", 2),
    ] {
        out.push(example(call, spaces[space]).data(&apart));
    }
    for (call, shapes, size) in [
        ("max_unpool1d(size=9)", "6,5,3 6,5,3; 2,3,4 2,3,4", 9),
        ("max_unpool2d(size=3)", "6,5,2,2 6,5,2,2; 2,3,2,3 2,3,2,3", 3),
        ("max_unpool3d(size=2)", "6,5,1,2,2 6,5,1,2,2; 2,3,2,2,2 2,3,2,2,2", 2),
    ] {
        out.push(
            defined(call, shapes, move |l| unpooled(l, size))
                .data(&[Data::Integers, Data::Made(places)])
                .budget(200),
        );
    }
    let chance = Data::Made(|s, r| Data::Real.whole(s, r).into_iter().map(|v| (v + 3.0) / 6.1).collect());
    let (flat, solid) = ("6,5,7,8 6,5,2; 2,3,9,7 2,3,2", "6,3,5,4,4 6,3,3; 2,3,5,6,4 2,3,3");
    for (call, shapes, outputs) in [
        ("fractional_max_pool2d(size=3,kernel=2)", flat, 1),
        ("fractional_max_pool3d(size=3,kernel=2)", solid, 1),
        ("fractional_max_pool2d_with_indices(size=3,kernel=2)", flat, 2),
        ("fractional_max_pool3d_with_indices(size=3,kernel=2)", solid, 2),
    ] {
        let run = move |l: &LocalView<'_>| fractional(l, 3).into_iter().take(outputs).collect();
        out.push(defined(call, shapes, run).data(&[Data::Distinct, chance]).budget(200));
    }
    for call in ["local_response_norm(size=2)", "local_response_norm(size=3,alpha=1.5,beta=0.5,k=2)"] {
        out.push(example(call, "6,5,2; 2,3,3").data(&real).near());
    }
    // Windows of 2 by 2, one step apart.
    out.push(defined("im2col(kernel=2)", "6,6,3,2; 4,2,2,3; 2,3,2,2", |l| {
        let a = x(l, 0);
        let (rows, columns) = (a.shape()[2] - 1, a.shape()[3] - 1);
        vec![make(&[a.shape()[0], 4 * a.shape()[1], rows * columns], |i| {
            let (c, k, p) = (i[1] / 4, i[1] % 4, i[2]);
            a[[i[0], c, p / columns + k / 2, p % columns + k % 2]]
        })]
    }));
    out.push(defined("col2im(size=[3,2],kernel=2)", "6,24,2; 4,8,2; 2,12,2", |l| {
        let a = x(l, 0);
        let mut y = A::zeros(vec![a.shape()[0], a.shape()[1] / 4, 3, 2]);
        assert!(a.shape()[1].is_multiple_of(4));
        for (i, &v) in a.indexed_iter() {
            let i = ndarray::Dimension::slice(&i);
            let k = i[1] % 4;
            y[[i[0], i[1] / 4, i[2] + k / 2, k % 2].as_slice()] += v;
        }
        vec![y]
    }));
    let points = "6,5,3,4 6,5,4,2; 4,2,2,3 4,3,6,2";
    out.push(
        defined("grid_sample", points, |l| sampled(l, false)).data(&[Data::Real, chance]).near().budget(200),
    );
    out.push(
        defined("grid_sample(mode=nearest)", points, |l| sampled(l, true))
            .data(&[Data::Real, chance])
            .budget(200),
    );
    out.push(
        defined("affine_grid(size=[5,6])", "6,2,3; 4,2,3", |l| {
            let (a, rows, columns) =
                (x(l, 0), l.wanted[0].indices(1).unwrap(), l.wanted[0].indices(2).unwrap());
            vec![make(&[a.shape()[0], rows.len(), columns.len(), 2], |i| {
                let at = |k: usize, n: f64| (2.0 * k as f64 + 1.0) / n - 1.0;
                let (u, v) = (at(columns[i[2]], 6.0), at(rows[i[1]], 5.0));
                a[[i[0], i[3], 0]] * u + a[[i[0], i[3], 1]] * v + a[[i[0], i[3], 2]]
            })]
        })
        .near()
        .wants(),
    );
    out.push(example("channel_shuffle(groups=6)", "6,36,2; 2,12,2"));
    out.push(example("pixel_unshuffle(factor=2)", "6,6,12,8; 2,3,4,24"));
    out
}
