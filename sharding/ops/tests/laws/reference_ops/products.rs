//! Products, attention and rotary embedding.

use reshard_ops::rules::verify::{Data, LocalView};

use super::{A, Example, example, make, numbers, place, x, zip};

/// An equation of letters, one per dim, as einsum.
pub fn einsum(equation: &str, inputs: &[A]) -> A {
    let (left, right) = equation.split_once("->").expect("an arrow");
    let operands: Vec<Vec<char>> = left.split(',').map(|s| s.chars().collect()).collect();
    let mut letters: Vec<char> = right.chars().collect();
    for c in operands.iter().flatten() {
        if !letters.contains(c) {
            letters.push(*c);
        }
    }
    let size = |c: char| {
        let mut sizes = operands.iter().zip(inputs).flat_map(|(o, a)| {
            assert_eq!(o.len(), a.ndim());
            o.iter().zip(a.shape()).filter(move |(l, _)| **l == c).map(|(_, n)| *n)
        });
        let first = sizes.next().expect("a letter");
        assert!(sizes.all(|n| n == first), "sizes of {c} differ");
        first
    };
    let sizes: Vec<usize> = letters.iter().map(|&c| size(c)).collect();
    let free = right.chars().count();
    // How far an operand moves with each letter.
    let steps: Vec<Vec<usize>> = (operands.iter().zip(inputs))
        .map(|(o, a)| {
            let with =
                |l: &char| o.iter().zip(a.strides()).filter(|(c, _)| *c == l).map(|(_, s)| *s as usize).sum();
            letters.iter().map(with).collect()
        })
        .collect();
    let terms: Vec<(&[f64], &[usize])> =
        inputs.iter().map(numbers).zip(steps.iter().map(Vec::as_slice)).collect();
    let summed: usize = sizes[free..].iter().product();
    make(&sizes[..free], |i| {
        let mut all = i.to_vec();
        all.resize(letters.len(), 0);
        (0..summed)
            .map(|mut s| {
                for d in (free..letters.len()).rev() {
                    all[d] = s % sizes[d];
                    s /= sizes[d];
                }
                let at = |steps: &[usize]| all.iter().zip(steps).map(|(c, s)| c * s).sum::<usize>();
                terms.iter().map(|(a, steps)| a[at(steps)]).product::<f64>()
            })
            .sum()
    })
}

fn of(equation: &'static str, n: usize) -> impl Fn(&LocalView<'_>) -> Vec<A> {
    move |l| vec![einsum(equation, &(0..n).map(|i| x(l, i)).collect::<Vec<_>>())]
}

fn attention(l: &LocalView<'_>, causal: bool) -> Vec<A> {
    let (q, k, v) = (x(l, 0), x(l, 1), x(l, 2));
    assert!(q.shape()[0] == k.shape()[0] && q.shape()[0] == v.shape()[0], "batch");
    assert!(q.shape()[3] == k.shape()[3] && k.shape()[..3] == v.shape()[..3], "keys");
    let shared = k.shape()[1];
    assert!(shared > 0 || q.shape()[1] == 0, "heads");
    // Which head of keys a head of queries has, by where both lie in the whole.
    let group = l.places[0].whole[1] / l.places[1].whole[1].max(1);
    let (heads, keys) = (l.places[0].indices(1).unwrap(), l.places[1].indices(1).unwrap());
    let (rows, columns) = (l.places[0].indices(2).unwrap(), l.places[1].indices(2).unwrap());
    let mask = (l.inputs.len() > 3).then(|| x(l, 3));
    let (width, length) = (q.shape()[3], k.shape()[2]);
    // A row of queries at a time: how much of which row of keys it takes.
    let taken = |i: [usize; 3], kv: usize| -> Vec<f64> {
        let mut logits: Vec<f64> = (0..length)
            .map(|j| {
                let from_q = place(&q.shape()[..3], i) * width;
                let from_k = place(&k.shape()[..3], [i[0], kv, j]) * width;
                let dot: f64 = (0..width).map(|d| numbers(&q)[from_q + d] * numbers(&k)[from_k + d]).sum();
                if causal && columns[j] > rows[i[2]] { f64::NEG_INFINITY } else { dot * 0.5 }
            })
            .collect();
        if let Some(m) = &mask {
            let sizes = [q.shape()[0], q.shape()[1], q.shape()[2], length];
            for (j, logit) in logits.iter_mut().enumerate() {
                let all = [i[0], i[1], i[2], j];
                let at = (4 - m.ndim()..4).zip(m.shape()).map(|(d, &n)| {
                    assert!(n == 1 || n == sizes[d], "mask");
                    if n == 1 { 0 } else { all[d] }
                });
                *logit += numbers(m)[place(m.shape(), at)];
            }
        }
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let e: Vec<f64> = logits.iter().map(|x| (x - most).exp()).collect();
        let sum: f64 = e.iter().sum();
        e.iter().map(|p| p / sum).collect()
    };
    let (rows_each, columns_each) = (q.shape()[2], v.shape()[3]);
    let mut shape = q.shape().to_vec();
    shape[3] = columns_each;
    let mut y = Vec::new();
    for (b, h) in (0..shape[0]).flat_map(|b| (0..shape[1]).map(move |h| (b, h))) {
        for r in 0..rows_each {
            if columns_each > 0 {
                let kv = keys.iter().position(|&key| key == heads[h] / group).expect("its keys");
                let taken = taken([b, h, r], kv);
                let value =
                    |c: usize| taken.iter().enumerate().map(|(j, p)| p * v[[b, kv, j, c]]).sum::<f64>();
                y.extend((0..columns_each).map(value));
            }
        }
    }
    vec![A::from_shape_vec(shape, y).expect("a shape")]
}

pub fn all() -> Vec<Example> {
    let plus = |equation: &'static str| {
        move |l: &LocalView<'_>| {
            let y = einsum(equation, &[x(l, 1), x(l, 2)]);
            let z = zip(&x(l, 0), &y, |a, b| a + b);
            assert_eq!(z.shape(), y.shape());
            vec![z]
        }
    };
    let linear = |l: &LocalView<'_>| {
        let y = einsum("mk,nk->mn", &[x(l, 0), x(l, 1)]);
        if l.inputs.len() == 2 {
            return vec![y];
        }
        let z = zip(&y, &x(l, 2), |a, b| a + b);
        assert_eq!(z.shape(), y.shape());
        vec![z]
    };
    let mut out = vec![
        example("mm", "6,5 5,4; 3,6 6,6; 1,4 4,1; 6,1 1,6", of("mk,kn->mn", 2)),
        example("mk,kn->mn", "6,5 5,4; 3,6 6,6", of("mk,kn->mn", 2)),
        example("abc,cd,bd->ad", "4,5,6 6,3 5,3; 6,6,4 4,6 6,6", of("abc,cd,bd->ad", 3)),
        example("bmm", "6,3,5 6,5,4; 3,6,6 3,6,6", of("bmk,bkn->bmn", 2)),
        example("dot", "6 6; 5 5", of("k,k->", 2)),
        example("vdot", "6 6; 5 5", of("k,k->", 2)),
        example("mv", "6,5 5; 5,6 6", of("mk,k->m", 2)),
        example("outer", "6 5; 4 6", of("m,n->mn", 2)),
        example("matmul", "6,3,5 6,5,4; 3,6,6 3,6,6", of("bmk,bkn->bmn", 2)),
        example("linear", "6,5 4,5; 3,6 6,6", linear),
        example("addmm", "6,4 6,5 5,4; 3,6 3,6 6,6", plus("mk,kn->mn")),
        example("addmm", "4 6,5 5,4; 6 3,6 6,6", plus("mk,kn->mn")),
        example("addmm", "6,1 6,5 5,4; 3,1 3,6 6,6", plus("mk,kn->mn")),
        example("linear", "6,5 4,5 4; 3,6 6,6 6", linear),
        example("addmv", "6 6,5 5; 3 3,6 6", plus("mk,k->m")),
        example("baddbmm", "6,3,4 6,3,5 6,5,4; 3,6,6 3,6,6 3,6,6", plus("bmk,bkn->bmn")).budget(300),
    ];
    let real = [Data::Real; 4];
    for (call, shapes, causal) in [
        ("scaled_dot_product_attention", "6,6,3,2 6,6,4,2 6,6,4,3; 2,3,6,3 2,3,6,3 2,3,6,6", false),
        ("scaled_dot_product_attention", "2,12,3,2 2,6,4,2 2,6,4,3; 3,9,2,2 3,3,5,2 3,3,5,2", false),
        (
            "scaled_dot_product_attention(causal=true)",
            "6,6,3,2 6,6,3,2 6,6,3,3; 2,3,6,3 2,3,6,3 2,3,6,6",
            true,
        ),
        (
            "scaled_dot_product_attention",
            "2,12,3,2 2,6,4,2 2,6,4,3 12,3,4; 3,18,2,2 3,6,5,2 3,6,5,2 18,2,5",
            false,
        ),
        ("scaled_dot_product_attention", "2,6,4,2 2,6,6,2 2,6,6,3 4,6; 3,3,6,2 3,3,5,2 3,3,5,2 6,5", false),
    ] {
        let n = shapes.split(';').next().unwrap().split_whitespace().count();
        out.push(example(call, shapes, move |l| attention(l, causal)).data(&real[..n]).near().budget(300));
    }
    out.push(
        example("rotary", "2,6,4 6,4 6,4; 3,5,6 5,6 5,6", |l| {
            let (a, cos, sin) = (x(l, 0), x(l, 1), x(l, 2));
            assert!(cos.shape() == &a.shape()[1..] && sin.shape() == cos.shape(), "tables");
            let half = a.shape()[2] / 2;
            vec![make(a.shape(), |i| {
                let turned =
                    if i[2] < half { -a[[i[0], i[1], i[2] + half]] } else { a[[i[0], i[1], i[2] - half]] };
                a[i] * cos[[i[1], i[2]]] + turned * sin[[i[1], i[2]]]
            })]
        })
        .near(),
    );
    out
}
