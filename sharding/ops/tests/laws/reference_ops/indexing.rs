//! Indexing, in which a rank leaves out what it does not hold.

use ndarray::IxDyn;
use reshard_ops::rules::verify::{Data, LocalView, Random};

use super::{A, Example, example, make, x};

/// Where a global index lies in a list of those held.
pub fn find(held: &[usize], index: f64) -> Option<usize> {
    held.iter().position(|&h| h as f64 == index)
}

pub fn with(i: &[usize], dim: usize, at: usize) -> Vec<usize> {
    let mut i = i.to_vec();
    i[dim] = at;
    i
}

/// Different indices below 5 along the last dim.
pub fn different(shape: &[usize], r: &mut Random) -> Vec<f64> {
    let (&k, outer) = shape.split_last().expect("a dim");
    let lines: usize = outer.iter().product();
    (0..lines)
        .flat_map(|_| r.permutation(5).into_iter().take(k).map(|i| i as f64).collect::<Vec<_>>())
        .collect()
}

fn gather(l: &LocalView<'_>, dim: usize) -> Vec<A> {
    let (a, index) = (x(l, 0), x(l, 1));
    let held = l.places[0].indices(dim).unwrap();
    for d in (0..a.ndim()).filter(|&d| d != dim) {
        assert!(index.shape()[d] <= a.shape()[d], "index");
        assert!(l.places[0].whole[d] != l.places[1].whole[d] || index.shape()[d] == a.shape()[d], "index");
    }
    vec![make(index.shape(), |i| find(&held, index[i]).map_or(0.0, |at| a[IxDyn(&with(i, dim, at))]))]
}

fn select(l: &LocalView<'_>, dim: usize) -> Vec<A> {
    let (a, index) = (x(l, 0), x(l, 1));
    let held = l.places[0].indices(dim).unwrap();
    vec![make(&super::with_size(&a, dim, index.len()), |i| {
        find(&held, index[i[dim]]).map_or(0.0, |at| a[IxDyn(&with(i, dim, at))])
    })]
}

/// Writes along a dim; the index has all dims, or only that one.
pub fn scatter(l: &LocalView<'_>, dim: usize, f: fn(f64, f64) -> f64) -> Vec<A> {
    let (mut a, index, source) = (x(l, 0), x(l, 1), x(l, 2));
    let held = l.places[0].indices(dim).unwrap();
    if index.ndim() == a.ndim() && index.ndim() > 1 {
        assert_eq!(index.shape(), source.shape());
    } else {
        assert_eq!(index.len(), source.shape()[dim]);
    }
    for d in (0..a.ndim()).filter(|&d| d != dim) {
        assert_eq!(source.shape()[d], a.shape()[d]);
    }
    for (i, &v) in source.indexed_iter() {
        let i = ndarray::Dimension::slice(&i);
        let to = if index.ndim() == a.ndim() && index.ndim() > 1 { index[i] } else { index[i[dim]] };
        if let Some(at) = find(&held, to) {
            let at = IxDyn(&with(i, dim, at));
            a[&at] = f(a[&at], v);
        }
    }
    vec![a]
}

pub fn all() -> Vec<Example> {
    let five = Data::Index { below: 5 };
    let int = Data::Integers;
    let apart = Data::Made(different);
    let put: fn(f64, f64) -> f64 = |_, v| v;
    let add: fn(f64, f64) -> f64 = |a, v| a + v;
    let embedding = |l: &LocalView<'_>| {
        let (w, index) = (x(l, 0), x(l, 1));
        let held = l.places[0].indices(0).unwrap();
        let mut shape = index.shape().to_vec();
        shape.push(w.shape()[1]);
        vec![make(&shape, |i| {
            let (d, at) = i.split_last().expect("a dim");
            find(&held, index[IxDyn(at)]).map_or(0.0, |r| w[[r, *d]])
        })]
    };
    let bag = |mean: bool| {
        move |l: &LocalView<'_>| {
            let (w, index) = (x(l, 0), x(l, 1));
            let held = l.places[0].indices(0).unwrap();
            let n = index.shape()[1];
            vec![make(&[index.shape()[0], w.shape()[1]], |i| {
                let sum: f64 =
                    (0..n).filter_map(|j| find(&held, index[[i[0], j]])).map(|r| w[[r, i[1]]]).sum();
                if mean { sum / n as f64 } else { sum }
            })]
        }
    };
    let wanted = |l: &LocalView<'_>, dim: usize| l.wanted[0].indices(dim).unwrap();
    vec![
        example("embedding", "6,5 6,4; 5,6 3,6", embedding).data(&[int, five]),
        example("embedding_bag", "6,5 6,6; 5,6 4,3", bag(false)).data(&[int, five]),
        example("embedding_bag(mode=mean)", "6,5 6,6; 5,6 4,3", bag(true)).data(&[int, five]).near(),
        example("gather(dim=1)", "6,5 6,4; 4,6 4,6", |l| gather(l, 1)).data(&[int, five]),
        example("gather(dim=1)", "6,6 4,6; 5,5 3,4", |l| gather(l, 1)).data(&[int, five]),
        example("take_along_dim(dim=0)", "6,5 4,5; 5,6 6,6", |l| gather(l, 0)).data(&[int, five]),
        example("index_select(dim=0)", "6,5 4; 5,6 6", |l| select(l, 0)).data(&[int, five]),
        example("index_select(dim=1)", "6,5 4; 5,6 6", |l| select(l, 1)).data(&[int, five]),
        example("scatter(dim=1)", "6,6 6,3 6,3; 4,5 4,4 4,4", move |l| scatter(l, 1, put))
            .data(&[int, apart, int]),
        example("scatter_add(dim=1)", "6,6 6,3 6,3; 4,5 4,6 4,6", move |l| scatter(l, 1, add))
            .data(&[int, five, int]),
        example("scatter_amax(dim=1)", "6,6 6,3 6,3; 4,5 4,6 4,6", |l| scatter(l, 1, f64::max))
            .data(&[int, five, int]),
        example("index_copy(dim=0)", "6,6 3 3,6; 5,4 4 4,4", move |l| scatter(l, 0, put))
            .data(&[int, apart, int]),
        example("index_add(dim=0)", "6,6 3 3,6; 5,4 6 6,4", move |l| scatter(l, 0, add))
            .data(&[int, five, int]),
        example("index_put", "6,6 3 3,6; 5,4 4 4,4", move |l| scatter(l, 0, put)).data(&[int, apart, int]),
        example("index_put(accumulate=true)", "6,6 3 3,6; 5,4 6 6,4", move |l| scatter(l, 0, add))
            .data(&[int, five, int]),
        example("one_hot(classes=6)", "6; 4", move |l| {
            let (a, classes) = (x(l, 0), wanted(l, 1));
            vec![make(&[a.len(), classes.len()], |i| f64::from(u8::from(a[i[0]] == classes[i[1]] as f64)))]
        })
        .data(&[five])
        .wants(),
        example("bincount(classes=6)", "6; 5", move |l| {
            let (a, classes) = (x(l, 0), wanted(l, 0));
            vec![make(&[classes.len()], |i| a.iter().filter(|&&v| v == classes[i[0]] as f64).count() as f64)]
        })
        .data(&[five])
        .wants(),
        example("searchsorted", "6 4,6; 5 6,3", |l| {
            let (a, v) = (x(l, 0), x(l, 1));
            vec![v.mapv(|v| a.iter().filter(|&&s| s < v).count() as f64)]
        })
        .data(&[
            Data::Made(|shape, r| {
                let mut v = Data::Real.whole(shape, r);
                v.sort_by(f64::total_cmp);
                v
            }),
            Data::Real,
        ]),
    ]
}
