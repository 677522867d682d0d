//! Cells of recurrent networks, and products of scaled and grouped matrices.

use reshard_ops::rules::verify::{Data, LocalView};

use super::products::einsum;
use super::{A, Example, example, make, x, zip};

fn sum(list: &[A]) -> A {
    list.iter().skip(1).fold(list[0].clone(), |a, b| zip(&a, b, |a, b| a + b))
}

fn sigmoid(a: &A) -> A {
    a.mapv(|v| 1.0 / (1.0 + (-v).exp()))
}

/// A part of the columns, of which there are `gates` times as many.
fn gate(a: &A, i: usize, gates: usize) -> A {
    assert!(a.shape()[1].is_multiple_of(gates));
    let n = a.shape()[1] / gates;
    super::shapes::cut(a, 1, i * n, (i + 1) * n)
}

fn product(l: &LocalView<'_>, a: usize, w: usize, bias: usize) -> A {
    let y = einsum("bi,oi->bo", &[x(l, a), x(l, w)]);
    assert_eq!(y.shape()[1], x(l, bias).len());
    sum(&[y, x(l, bias)])
}

fn rnn(l: &LocalView<'_>, f: fn(f64) -> f64) -> Vec<A> {
    vec![sum(&[product(l, 0, 2, 4), product(l, 1, 3, 5)]).mapv(f)]
}

pub fn all() -> Vec<Example> {
    let lstm = |l: &LocalView<'_>| {
        let all = sum(&[product(l, 0, 3, 5), product(l, 1, 4, 6)]);
        let of = |i| gate(&all, i, 4);
        let memory = x(l, 2);
        assert_eq!(memory.shape(), of(0).shape());
        let kept = zip(&sigmoid(&of(1)), &memory, |f, c| f * c);
        let taken = zip(&sigmoid(&of(0)), &of(2), |i, g| i * g.tanh());
        let memory = sum(&[kept, taken]);
        vec![zip(&sigmoid(&of(3)), &memory, |o, c| o * c.tanh()), memory]
    };
    let gru = |l: &LocalView<'_>| {
        let (a, h) = (product(l, 0, 2, 4), product(l, 1, 3, 5));
        let reset = sigmoid(&sum(&[gate(&a, 0, 3), gate(&h, 0, 3)]));
        let update = sigmoid(&sum(&[gate(&a, 1, 3), gate(&h, 1, 3)]));
        let new = sum(&[gate(&a, 2, 3), zip(&reset, &gate(&h, 2, 3), |r, h| r * h)]).mapv(f64::tanh);
        let left = zip(&update, &new, |z, n| (1.0 - z) * n);
        vec![sum(&[left, zip(&update, &x(l, 1), |z, h| z * h)])]
    };
    let unscaled = |l: &LocalView<'_>| {
        let (g, found, by) = (x(l, 0), x(l, 1), x(l, 2));
        let odd = g.iter().any(|v| v.is_infinite());
        let found = found[[]].max(f64::from(u8::from(odd)));
        vec![g.mapv(|v| v * by[[]]), make(&[], |_| found)]
    };
    let sometimes_infinite = Data::Made(|s, r| {
        let odd = r.below(2) == 0;
        let list = Data::Integers.whole(s, r).into_iter();
        list.map(|v| if odd && v > 8.0 { f64::INFINITY } else { v }).collect()
    });
    let scaled = |l: &LocalView<'_>| {
        let y = einsum("mk,kn->mn", &[x(l, 0), x(l, 1)]);
        let z = zip(&zip(&y, &x(l, 2), |y, s| y * s), &x(l, 3), |y, s| y * s);
        assert_eq!(z.shape(), y.shape());
        vec![z]
    };
    // Rows up to the first end belong to the first group that is held, and so on.
    let grouped = |l: &LocalView<'_>| {
        let (a, w, ends) = (x(l, 0), x(l, 1), x(l, 2));
        assert_eq!(a.shape()[1], w.shape()[1]);
        let (rows, groups) = (l.places[0].indices(0).unwrap(), l.places[1].indices(0).unwrap());
        vec![make(&[a.shape()[0], w.shape()[2]], |i| {
            let group = ends.iter().take_while(|&&e| e as usize <= rows[i[0]]).count();
            let held = groups.iter().position(|&g| g == group);
            held.map_or(0.0, |g| (0..a.shape()[1]).map(|k| a[[i[0], k]] * w[[g, k, i[1]]]).sum())
        })]
    };
    let ends = Data::Made(|s, r| {
        let mut list: Vec<f64> = (0..s[0]).map(|_| r.below(6) as f64).collect();
        list.sort_by(f64::total_cmp);
        list
    });
    vec![
        example("rnn_tanh_cell", "6,4 6,6 6,4 6,6 6 6; 2,3 2,5 5,3 5,5 5 5", |l| rnn(l, f64::tanh))
            .data(&[Data::Real; 6])
            .near()
            .budget(60),
        example("rnn_relu_cell", "6,4 6,6 6,4 6,6 6 6; 2,3 2,5 5,3 5,5 5 5", |l| rnn(l, |v| v.max(0.0)))
            .data(&[Data::Real; 6])
            .near()
            .budget(60),
        example("lstm_cell", "6,2 6,6 6,6 24,2 24,6 24 24; 2,3 2,5 2,5 20,3 20,5 20 20", lstm)
            .data(&[Data::Real; 7])
            .near()
            .budget(60),
        example("gru_cell", "6,2 6,6 18,2 18,6 18 18; 2,3 2,5 15,3 15,5 15 15", gru)
            .data(&[Data::Real; 6])
            .near()
            .budget(60),
        example("check_and_unscale", "6,5 () (); 2,3 () ()", unscaled).data(&[
            sometimes_infinite,
            Data::Mask { ones: 30 },
            Data::Positive,
        ]),
        example("scaled_mm", "6,5 5,4 () (); 3,6 6,6 () ()", scaled)
            .data(&[Data::Integers, Data::Integers, Data::Positive, Data::Positive])
            .near()
            .budget(200),
        example("scaled_mm", "6,5 5,4 6,1 1,4; 3,6 6,6 3,1 1,6", scaled)
            .data(&[Data::Integers, Data::Integers, Data::Positive, Data::Positive])
            .near()
            .budget(200),
        example("grouped_mm", "6,5 6,5,4 6; 5,6 3,6,6 3", grouped)
            .data(&[Data::Integers, Data::Integers, ends])
            .budget(200),
    ]
}
