//! Pieces, other orders, other shapes, and tensors made of nothing.

use ndarray::{Axis, Slice, concatenate, stack};
use reshard_ops::rules::verify::LocalView;

use super::{A, Example, example, make, noise, with_size, x};

pub fn cut(a: &A, dim: usize, start: usize, end: usize) -> A {
    assert!(end <= a.shape()[dim]);
    a.slice_axis(Axis(dim), Slice::from(start..end)).to_owned()
}

/// What lies at global indices of the input: an output by where each of its elements comes from.
pub fn from(l: &LocalView<'_>, source: impl Fn(&[usize]) -> Vec<usize>) -> Vec<A> {
    let a = x(l, 0);
    let held: Vec<Vec<usize>> = (0..a.ndim()).map(|d| l.places[0].indices(d).unwrap()).collect();
    let wanted: Vec<Vec<usize>> =
        (0..l.wanted[0].whole.len()).map(|d| l.wanted[0].indices(d).unwrap()).collect();
    vec![make(&l.wanted[0].shape(), |i| {
        let global: Vec<usize> = i.iter().enumerate().map(|(d, &c)| wanted[d][c]).collect();
        let at: Vec<usize> = (source(&global).iter().zip(&held))
            .map(|(g, held)| held.iter().position(|h| h == g).expect("held here"))
            .collect();
        a[ndarray::IxDyn(&at)]
    })]
}

fn triangle(l: &LocalView<'_>, keep: fn(usize, usize) -> bool) -> Vec<A> {
    let a = x(l, 0);
    let n = a.ndim();
    let (rows, columns) = (l.places[0].indices(n - 2).unwrap(), l.places[0].indices(n - 1).unwrap());
    vec![make(a.shape(), |i| if keep(rows[i[n - 2]], columns[i[n - 1]]) { a[i] } else { 0.0 })]
}

fn padded(l: &LocalView<'_>, value: f64) -> Vec<A> {
    let a = x(l, 0);
    let n = a.shape()[1];
    vec![make(&with_size(&a, 1, n + 3), |i| {
        let j = i[1].checked_sub(1).filter(|&j| j < n);
        j.map_or(value, |j| a[[i[0], j]])
    })]
}

/// Pieces of dim 1 one after the other, as long as they should be here.
fn pieces(l: &LocalView<'_>) -> Vec<A> {
    let a = x(l, 0);
    let mut start = 0;
    let mut next = |n: usize| {
        start += n;
        cut(&a, 1, start - n, start)
    };
    let out = l.wanted.iter().map(|w| next(w.shape()[1])).collect();
    assert_eq!(start, a.shape()[1]);
    out
}

/// The second of three parts of dim 1.
fn third(l: &LocalView<'_>) -> Vec<A> {
    let a = x(l, 0);
    let n = a.shape()[1] / 3;
    assert_eq!(a.shape()[1], 3 * n);
    vec![cut(&a, 1, n, 2 * n)]
}

pub fn all() -> Vec<Example> {
    let two = "6,5; 4,6; 2,3";
    let cats = |dim: usize| {
        move |l: &LocalView<'_>| {
            let list: Vec<A> = (0..l.inputs.len()).map(|i| x(l, i)).collect();
            let views: Vec<_> = list.iter().map(|a| a.view()).collect();
            vec![concatenate(Axis(dim), &views).expect("fits")]
        }
    };
    let stacks = |dim: usize| {
        move |l: &LocalView<'_>| {
            let list: Vec<A> = (0..l.inputs.len()).map(|i| x(l, i)).collect();
            let views: Vec<_> = list.iter().map(|a| a.view()).collect();
            vec![stack(Axis(dim), &views).expect("fits")]
        }
    };
    let permuted =
        |order: &'static [usize]| move |l: &LocalView<'_>| vec![x(l, 0).permuted_axes(order.to_vec())];
    let rolled = |l: &LocalView<'_>| {
        let a = x(l, 0);
        let n = a.shape()[1];
        vec![make(a.shape(), |i| a[[i[0], (i[1] + n - 1) % n]])]
    };
    let flipped = |l: &LocalView<'_>| {
        let a = x(l, 0);
        let n = a.shape()[1];
        vec![make(a.shape(), |i| a[[i[0], n - 1 - i[1]]])]
    };
    let diagonal = |l: &LocalView<'_>| -> A {
        let a = x(l, 0);
        let (rows, columns) = (l.places[0].indices(0).unwrap(), l.places[0].indices(1).unwrap());
        assert_eq!(rows, columns);
        make(&[rows.len()], |i| a[[i[0], i[0]]])
    };
    let by_element = |f: fn(usize) -> f64| {
        move |l: &LocalView<'_>| {
            let list: Vec<f64> = l.wanted[0].elements().into_iter().map(f).collect();
            vec![A::from_shape_vec(l.wanted[0].shape(), list).expect("a shape")]
        }
    };
    let mut out = vec![
        example("cat(dim=1)", "6,4 6,4; 5,6 5,6; 3,5 3,5; 2,1 2,1", cats(1)),
        example("cat(dim=1)", "6,5 6,2; 4,3 4,6; 2,1 2,3", cats(1)),
        example("cat(dim=0)", "6,5 4,5 3,5; 4,6 2,6 6,6", cats(0)),
        example("stack(dim=1)", "6,5 6,5; 4,6 4,6", stacks(1)),
        example("cat(dim=1)", "6,12 6,4 6,4; 5,6 5,2 5,2; 3,15 3,5 3,5", cats(1)),
        example("split(size=4,dim=1)", "6,12; 5,12", pieces).wants(),
        example("split(size=2,dim=1)", "4,3; 5,5", pieces).wants(),
        example("split(size=4,dim=1)", "6,6; 5,10", pieces).wants(),
        example("split(sizes=[1,3],dim=1)", "6,4; 5,4", pieces).wants(),
        example("split(sizes=[12,4,4],dim=1)", "6,20; 5,20", pieces).wants(),
        example("split(sizes=[9,3,3],dim=1)", "6,15; 5,15", pieces).wants(),
        example("chunk(chunks=2,dim=1)", "6,8; 5,6; 3,12; 2,10; 1,2", |l| {
            let a = x(l, 0);
            let n = a.shape()[1] / 2;
            assert_eq!(a.shape()[1], 2 * n);
            vec![cut(&a, 1, 0, n), cut(&a, 1, n, 2 * n)]
        }),
        example("chunk(chunks=2,dim=1)", "4,3; 5,5", pieces).wants(),
        example("chunk(chunks=3,dim=0)", "12,5; 6,4; 9,3; 15,2", |l| {
            let a = x(l, 0);
            let n = a.shape()[0] / 3;
            assert_eq!(a.shape()[0], 3 * n);
            (0..3).map(|i| cut(&a, 0, i * n, (i + 1) * n)).collect()
        }),
        example("unbind(dim=1)", "6,2; 5,2", |l| {
            let a = x(l, 0);
            assert_eq!(a.shape()[1], 2);
            vec![a.index_axis(Axis(1), 0).to_owned(), a.index_axis(Axis(1), 1).to_owned()]
        }),
        example("select(dim=1,index=1)", "6,6; 5,4", |l| vec![x(l, 0).index_axis(Axis(1), 1).to_owned()]),
        example("slice(dim=1,start=1,end=5,step=2)", "6,6; 5,5", |l| {
            let a = x(l, 0);
            let end = 5.min(a.shape()[1]) as isize;
            vec![a.slice_axis(Axis(1), Slice::new(1.min(end), Some(end), 2)).to_owned()]
        }),
        example("slice(dim=1)", "6,6; 5,4", |l| vec![x(l, 0)]),
        example("slice(dim=1,start=4,end=8)", "6,12; 5,12", third),
        example("narrow(dim=1,start=1,length=3)", "6,6; 5,4", |l| vec![cut(&x(l, 0), 1, 1, 4)]),
        example("narrow(dim=1,start=4,length=4)", "6,12; 5,12", third),
        example("pad(pads=[1,2])", two, |l| padded(l, 0.0)),
        example("pad(pads=[1,2],value=-4)", two, |l| padded(l, -4.0)),
        example("pad(pads=[1,2],mode=circular)", "6,6; 5,4", |l| {
            let a = x(l, 0);
            let n = a.shape()[1];
            vec![make(&with_size(&a, 1, n + 3), |i| a[[i[0], (i[1] + n - 1) % n]])]
        }),
        example("roll(shifts=[1],dims=[1])", two, rolled),
        example("flip(dims=[1])", two, flipped),
        example("tril", "6,6; 5,4", |l| triangle(l, |i, j| i >= j)),
        example("triu", "6,6; 5,4", |l| triangle(l, |i, j| i <= j)),
        example("tril", "2,6,6; 3,5,4", |l| triangle(l, |i, j| i >= j)),
        example("diagonal", "6,6; 4,4", move |l| vec![diagonal(l)]),
        example("trace", "6,6; 4,4", move |l| vec![make(&[], |_| diagonal(l).sum())]),
        example("t", two, permuted(&[1, 0])),
        example("transpose(dim0=0,dim1=2)", "6,5,2; 3,4,6", permuted(&[2, 1, 0])),
        example("permute(dims=[2,0,1])", "6,5,2; 3,4,6", permuted(&[2, 0, 1])),
        example("expand(shape=[6,-1])", "5; 6", |l| from(l, |i| vec![i[1]])).wants(),
        example("expand(shape=[-1,6,5])", "6,1,5; 4,1,5", |l| from(l, |i| vec![i[0], 0, i[2]])).wants(),
        example("repeat(times=[6,2])", "6,4; 4,3", |l| {
            let whole = l.places[0].whole.clone();
            from(l, |i| vec![i[0] % whole[0], i[1] % whole[1]])
        })
        .wants(),
        example("repeat_interleave(times=3,dim=0)", "6,4; 5,3", |l| from(l, |i| vec![i[0] / 3, i[1]]))
            .wants(),
        example("squeeze", "6,1,5; 4,1,6", |l| vec![x(l, 0).index_axis(Axis(1), 0).to_owned()]),
        example("unsqueeze(dim=1)", two, |l| vec![x(l, 0).insert_axis(Axis(1))]),
        example("rand(shape=[6,5])", "-", by_element(noise)).wants(),
        example("randn(shape=[5,6])", "-", by_element(|e| noise(e) - noise(e + 1000))).wants(),
        example("arange(size=6)", "-", by_element(|e| e as f64)).wants(),
        example("eye(size=6)", "-", by_element(|e| f64::from(u8::from(e % 7 == 0)))).wants(),
    ];
    for (call, value) in [("zeros(shape=[6,5])", 0.0), ("ones(shape=[6,5])", 1.0), ("full(shape=[6,5])", 7.0)]
    {
        let filled = move |l: &LocalView<'_>| vec![make(&l.wanted[0].shape(), |_| value)];
        out.push(example(call, "-", filled).wants().constant());
    }
    out
}
