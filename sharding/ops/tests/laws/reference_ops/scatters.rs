//! Parts written over, filled and reduced into, and elements picked by a mask or by their number.

use reshard_ops::rules::verify::{Data, LocalView, Random};

use super::indexing::{different, find, scatter};
use super::{A, Example, example, make, x};

/// Where a row-major number lies in what is held of an input.
fn numbered(l: &LocalView<'_>, i: usize) -> Vec<usize> {
    l.places[i].elements()
}

/// As `scatter`, to the mean of what is there and what is written.
fn means(l: &LocalView<'_>, dim: usize) -> Vec<A> {
    let sums = scatter(l, dim, |a, v| a + v).remove(0);
    let ones = |i: usize| {
        reshard_ops::rules::verify::Tensor::new(&l.inputs[i].shape, vec![1.0; l.inputs[i].data.len()])
    };
    let (a, b) = (ones(0), ones(2));
    let counted =
        LocalView { inputs: vec![&a, l.inputs[1], &b], places: l.places.clone(), wanted: l.wanted.clone() };
    let counts = scatter(&counted, dim, |a, v| a + v).remove(0);
    vec![super::zip(&sums, &counts, |s, n| s / n)]
}

/// Three of these are true.
fn three(shape: &[usize], r: &mut Random) -> Vec<f64> {
    let n = shape.iter().product();
    r.permutation(n).into_iter().map(|i| f64::from(u8::from(i < 3))).collect()
}

pub fn all() -> Vec<Example> {
    let int = Data::Integers;
    let five = Data::Index { below: 5 };
    let apart = Data::Made(different);
    let mask = Data::Mask { ones: 50 };
    let small = Data::Made(|s, r| {
        Data::Index { below: 4 }.whole(s, r).into_iter().map(|v| [1.0, -1.0, 2.0, -0.5][v as usize]).collect()
    });
    let mut out = vec![
        example("slice_scatter(dim=1,start=1,end=5,step=2)", "6,6 6,2; 5,5 5,2; 2,5 2,2", |l| {
            let (mut a, b) = (x(l, 0), x(l, 1));
            assert!(a.shape()[0] == b.shape()[0] && b.shape()[1] == 2);
            for (i, &v) in b.indexed_iter() {
                let at = [i[0], 1 + 2 * i[1]];
                a[at.as_slice()] = v;
            }
            vec![a]
        }),
        example("select_scatter(dim=1,index=1)", "6,6 6; 5,4 5; 2,3 2", |l| {
            let (a, b) = (x(l, 0), x(l, 1));
            assert_eq!(a.shape()[0], b.len());
            vec![make(a.shape(), |i| if i[1] == 1 { b[i[0]] } else { a[i] })]
        }),
        example("take", "6,2 4; 5,3 3; 2,3 6", |l| {
            let (a, index, held) = (x(l, 0), x(l, 1), numbered(l, 0));
            let all: Vec<f64> = a.iter().copied().collect();
            vec![index.mapv(|n| find(&held, n).map_or(0.0, |at| all[at]))]
        })
        .data(&[int, five]),
        example("masked_scatter", "6,2 6,2 12; 2,3 2,3 6", |l| {
            let (a, m, s) = (x(l, 0), x(l, 1), x(l, 2));
            assert_eq!(a.shape(), m.shape());
            let mut next = s.iter();
            let list =
                a.iter().zip(&m).map(|(&a, &m)| if m > 0.5 { *next.next().expect("enough") } else { a });
            vec![A::from_shape_vec(a.raw_dim(), list.collect()).expect("a shape")]
        })
        .data(&[int, mask, int])
        .budget(200),
        example("masked_select(count=3)", "6,2 6,2; 2,3 2,3", |l| {
            let (a, m) = (x(l, 0), x(l, 1));
            assert_eq!(a.shape(), m.shape());
            let list: Vec<f64> = a.iter().zip(&m).filter(|(_, m)| **m > 0.5).map(|(a, _)| *a).collect();
            vec![A::from_shape_vec(vec![list.len()], list).expect("a shape")]
        })
        .data(&[int, Data::Made(three)]),
        example("nonzero(count=3)", "6,2; 3,4", |l| {
            let found: Vec<Vec<usize>> = x(l, 0)
                .indexed_iter()
                .filter(|(_, v)| **v != 0.0)
                .map(|(i, _)| ndarray::Dimension::slice(&i).to_vec())
                .collect();
            vec![make(&[found.len(), 2], |i| found[i[0]][i[1]] as f64)]
        })
        .data(&[Data::Made(three)]),
        example("bucketize", "4,6 6; 6,3 5", |l| {
            let (v, edges) = (x(l, 0), x(l, 1));
            vec![v.mapv(|v| edges.iter().filter(|&&e| e < v).count() as f64)]
        })
        .data(&[
            Data::Real,
            Data::Made(|shape, r| {
                let mut v = Data::Real.whole(shape, r);
                v.sort_by(f64::total_cmp);
                v
            }),
        ]),
        example("isin", "4,6 6; 6,3 5", |l| {
            let (v, list) = (x(l, 0), x(l, 1));
            vec![v.mapv(|v| f64::from(u8::from(list.iter().any(|&x| x == v))))]
        }),
    ];
    for (call, value) in
        [("index_fill(dim=0)", 7.0), ("index_fill(dim=0,value=0)", 0.0), ("index_fill(dim=0,value=1)", 1.0)]
    {
        let fill = move |l: &LocalView<'_>| {
            let (mut a, held) = (x(l, 0), l.places[0].indices(0).unwrap());
            for at in x(l, 1).iter().filter_map(|&n| find(&held, n)) {
                a.index_axis_mut(ndarray::Axis(0), at).fill(value);
            }
            vec![a]
        };
        out.push(example(call, "6,6 3; 5,4 4", fill).data(&[int, five]));
    }
    for (call, accumulate) in [("put", false), ("put(accumulate=true)", true)] {
        let write = move |l: &LocalView<'_>| {
            let (mut a, index, source, held) = (x(l, 0), x(l, 1), x(l, 2), numbered(l, 0));
            assert_eq!(index.len(), source.len());
            let shape = a.shape().to_vec();
            for (&n, &v) in index.iter().zip(&source) {
                if let Some(at) = find(&held, n) {
                    let at = [at / shape[1], at % shape[1]];
                    let place = &mut a[at.as_slice()];
                    *place = if accumulate { *place + v } else { v };
                }
            }
            vec![a]
        };
        let index = if accumulate { five } else { apart };
        out.push(example(call, "6,2 3 3; 5,3 4 4; 2,3 3 3", write).data(&[int, index, int]).budget(300));
    }
    let add: fn(f64, f64) -> f64 = |a, v| a + v;
    let times: fn(f64, f64) -> f64 = |a, v| a * v;
    let ways: [(&'static str, &'static str, Option<fn(f64, f64) -> f64>, Data); 5] = [
        ("index_reduce(reduce=sum)", "scatter_reduce(reduce=sum,dim=1)", Some(add), int),
        ("index_reduce(reduce=prod)", "scatter_reduce(reduce=prod,dim=1)", Some(times), small),
        ("index_reduce(reduce=amax)", "scatter_reduce(reduce=amax,dim=1)", Some(f64::max), int),
        ("index_reduce(reduce=amin)", "scatter_reduce(reduce=amin,dim=1)", Some(f64::min), int),
        ("index_reduce(reduce=mean)", "scatter_reduce(reduce=mean,dim=1)", None, int),
    ];
    for (one_index, all_dims, f, data) in ways {
        let run = move |dim: usize| {
            move |l: &LocalView<'_>| f.map_or_else(|| means(l, dim), |f| scatter(l, dim, f))
        };
        let data = [data, five, data];
        out.push(example(one_index, "6,6 3 3,6; 5,4 6 6,4", run(0)).data(&data).near().budget(300));
        out.push(example(all_dims, "6,6 6,3 6,3; 4,5 4,6 4,6", run(1)).data(&data).near().budget(300));
    }
    out
}
