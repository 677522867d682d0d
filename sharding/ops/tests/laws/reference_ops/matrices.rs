//! Batches of matrices.

use ndarray::{Axis, Ix2, s};
use reshard_verify::{Data, LocalView, Random};

use super::eliminations::{
    Complex, M, cholesky, covariance, determinant, diagonal, eigenvalues, eigenvector, eliminated,
    exponential, householder, inverse, lower, orthogonal, reflections, singular, solve, substituted,
    symmetric_eigen, upper,
};
use super::{A, Example, defined, example, make, x};

/// Runs on every member of a batch; of an empty batch, the shapes are those of zeros.
pub fn batched(l: &LocalView<'_>, dims: &[usize], f: impl Fn(&[A]) -> Vec<A>) -> Vec<A> {
    let inputs: Vec<A> = (0..dims.len()).map(|i| x(l, i)).collect();
    let (batch, _) = inputs[0].shape().split_at(inputs[0].ndim() - dims[0]);
    let n: usize = batch.iter().product();
    let flat: Vec<A> = (inputs.iter().zip(dims))
        .map(|(a, &d)| {
            let (outer, inner) = a.shape().split_at(a.ndim() - d);
            assert_eq!(outer, batch, "one batch");
            a.to_shape([&[n], inner].concat()).expect("a shape").to_owned()
        })
        .collect();
    let member = |i: usize| flat.iter().map(|a| a.index_axis(Axis(0), i).to_owned()).collect::<Vec<_>>();
    let none = || f(&flat.iter().map(|a| A::zeros(&a.shape()[1..])).collect::<Vec<_>>());
    let made: Vec<Vec<A>> = (0..n).map(|i| f(&member(i))).collect();
    let shapes: Vec<Vec<usize>> =
        made.first().map_or_else(none, Clone::clone).iter().map(|a| a.shape().to_vec()).collect();
    (shapes.iter().enumerate())
        .map(|(o, shape)| {
            let all = made.iter().flat_map(|m| m[o].iter().copied()).collect();
            A::from_shape_vec([batch, shape].concat(), all).expect("a shape")
        })
        .collect()
}

pub fn m(a: &A) -> M {
    a.clone().into_dimensionality::<Ix2>().expect("a matrix")
}

fn list(v: Vec<f64>) -> A {
    A::from_shape_vec(vec![v.len()], v).expect("a shape")
}

fn number(v: f64) -> A {
    make(&[], |_| v)
}

/// Small off the diagonal, at least 4 on it.
pub fn dominant(shape: &[usize], r: &mut Random) -> Vec<f64> {
    let n = shape[shape.len() - 1];
    let list = Data::Real.whole(shape, r).into_iter().enumerate();
    list.map(|(e, v)| if e / n % n == e % n { 4.0 + v / 4.0 } else { v / 4.0 }).collect()
}

/// The same, and symmetric.
fn symmetric(shape: &[usize], r: &mut Random) -> Vec<f64> {
    let n = shape[shape.len() - 1];
    let list = dominant(shape, r);
    let mirrored = |e: usize| e / (n * n) * n * n + (e % n).min(e / n % n) * n + (e % n).max(e / n % n);
    (0..list.len()).map(|e| list[mirrored(e)]).collect()
}

/// The row with which each row is swapped: itself or a later one.
fn pivots(shape: &[usize], r: &mut Random) -> Vec<f64> {
    let n = shape[shape.len() - 1];
    (0..shape.iter().product()).map(|e: usize| (e % n + r.below(n - e % n)) as f64).collect()
}

const SQUARE: &str = "6,2,2; 2,3,3";

const RECTANGLES: &str = "6,3,2; 2,2,3";

fn of_one(
    call: &'static str,
    shapes: &str,
    data: fn(&[usize], &mut Random) -> Vec<f64>,
    f: fn(&M) -> Vec<A>,
) -> Example {
    defined(call, shapes, move |l| batched(l, &[2], |a| f(&m(&a[0])))).data(&[Data::Made(data)]).near()
}

pub fn all() -> Vec<Example> {
    let real: fn(&[usize], &mut Random) -> Vec<f64> = |s, r| Data::Real.whole(s, r);
    vec![
        of_one("cholesky", SQUARE, symmetric, |a| vec![cholesky(a).into_dyn()]),
        of_one("inv", SQUARE, dominant, |a| vec![inverse(a).into_dyn()]),
        of_one("matrix_exp", SQUARE, real, |a| vec![exponential(a).into_dyn()]),
        of_one("matrix_power", SQUARE, real, |a| vec![a.dot(a).dot(a).into_dyn()]),
        of_one("matrix_sqrth", SQUARE, symmetric, |a| {
            let (values, v) = symmetric_eigen(a);
            let roots = diagonal(values.iter().map(|x| x.sqrt()));
            vec![v.dot(&roots).dot(&v.t()).into_dyn()]
        }),
        of_one("polar_decomposition", SQUARE, dominant, |a| {
            let (u, s, vt) = singular(a);
            vec![u.dot(&vt).into_dyn(), vt.t().dot(&diagonal(s)).dot(&vt).into_dyn()]
        }),
        of_one("cholesky_inverse", SQUARE, dominant, |a| {
            vec![inverse(&lower(a).dot(&lower(a).t())).into_dyn()]
        }),
        of_one("det", SQUARE, real, |a| vec![number(determinant(a))]),
        of_one("logdet", SQUARE, symmetric, |a| vec![number(determinant(a).ln())]),
        of_one("slogdet", SQUARE, real, |a| {
            let d = determinant(a);
            vec![number(d.signum()), number(d.abs().ln())]
        }),
        of_one("cond", SQUARE, dominant, |a| {
            let (_, s, _) = singular(a);
            vec![number(s[0] / s[s.len() - 1])]
        }),
        of_one("eigvalsh", SQUARE, symmetric, |a| vec![list(symmetric_eigen(a).0)]),
        of_one("eigh", SQUARE, symmetric, |a| {
            let (values, v) = symmetric_eigen(a);
            vec![list(values), v.into_dyn()]
        }),
        of_one("lu_factor", SQUARE, real, |a| {
            let (order, lu, _) = eliminated(a);
            vec![lu.into_dyn(), list(order.iter().map(|&i| i as f64).collect())]
        }),
        of_one("ldl_factor", SQUARE, symmetric, |a| {
            let l = cholesky(a);
            let d = l.diag().to_owned();
            let packed =
                M::from_shape_fn(a.raw_dim(), |(i, j)| if i == j { d[i] * d[i] } else { l[[i, j]] / d[j] });
            vec![packed.into_dyn(), list((1..=a.nrows()).map(|i| i as f64).collect())]
        }),
        of_one("pinv", "6,3,2; 2,2,3", real, |a| {
            let (u, s, vt) = singular(a);
            let inverted = diagonal(s.iter().map(|s| 1.0 / s));
            vec![vt.t().dot(&inverted).dot(&u.t()).into_dyn()]
        }),
        of_one(
            "matrix_rank",
            "6,3,2; 2,3,3",
            |s, r| Data::Mask { ones: 40 }.whole(s, r),
            |a| vec![number(singular(a).1.iter().filter(|s| **s > 1e-6).count() as f64)],
        ),
        defined("solve", "6,2,2 6,2,5; 2,3,3 2,3,4", |l| {
            batched(l, &[2, 2], |a| vec![solve(&m(&a[0]), &m(&a[1])).into_dyn()])
        })
        .data(&[Data::Made(dominant), Data::Real])
        .near(),
        defined("solve_triangular", "6,2,2 6,2,5; 2,3,3 2,3,4", |l| {
            batched(l, &[2, 2], |a| vec![upper(&m(&a[0]), &m(&a[1])).into_dyn()])
        })
        .data(&[Data::Made(dominant), Data::Real])
        .near(),
        defined("cholesky_solve", "6,2,5 6,2,2; 2,3,4 2,3,3", |l| {
            batched(l, &[2, 2], |a| {
                let factor = lower(&m(&a[1]));
                vec![solve(&factor.dot(&factor.t()), &m(&a[0])).into_dyn()]
            })
        })
        .data(&[Data::Real, Data::Made(dominant)])
        .near(),
        defined("lu_solve", "6,2,2 6,2 6,2,5; 2,3,3 2,3 2,3,4", |l| {
            batched(l, &[2, 1, 2], |a| {
                let mut order: Vec<usize> = (0..a[0].shape()[0]).collect();
                for (i, &p) in a[1].iter().enumerate() {
                    order.swap(i, p as usize);
                }
                vec![substituted(&m(&a[0]), &m(&a[2]).select(Axis(0), &order)).into_dyn()]
            })
        })
        .data(&[Data::Made(dominant), Data::Made(pivots), Data::Real])
        .near()
        .budget(300),
        defined("lu_unpack", "6,3,2 6,2; 2,2,3 2,2", |l| {
            batched(l, &[2, 1], |a| {
                let (lu, n) = (m(&a[0]), a[0].shape()[0]);
                let mut order: Vec<usize> = (0..n).collect();
                for (i, &p) in a[1].iter().enumerate() {
                    order.swap(i, (p as usize).min(n - 1));
                }
                unpacked(&order, &lu)
            })
        })
        .data(&[Data::Real, Data::Made(pivots)])
        .near(),
        defined("ldl_solve", "6,2,2 6,2 6,2,5; 2,3,3 2,3 2,3,4", |l| {
            batched(l, &[2, 1, 2], |a| {
                let packed = m(&a[0]);
                let below = M::from_shape_fn(packed.raw_dim(), |(i, j)| match i.cmp(&j) {
                    std::cmp::Ordering::Greater => packed[[i, j]],
                    std::cmp::Ordering::Equal => 1.0,
                    std::cmp::Ordering::Less => 0.0,
                });
                let whole = below.dot(&M::from_diag(&packed.diag())).dot(&below.t());
                vec![solve(&whole, &m(&a[2])).into_dyn()]
            })
        })
        .data(&[Data::Made(dominant), Data::Made(pivots), Data::Real])
        .idle()
        .near()
        .budget(300),
        defined("lstsq", "6,3,2 6,3,5; 2,4,3 2,4,4", |l| {
            batched(l, &[2, 2], |a| {
                let (a, b) = (m(&a[0]), m(&a[1]));
                assert_eq!(a.nrows(), b.nrows());
                vec![solve(&a.t().dot(&a), &a.t().dot(&b)).into_dyn()]
            })
        })
        .data(&[Data::Real; 2])
        .near(),
        defined("householder_product", "6,3,2 6,2; 2,3,3 2,3", |l| {
            batched(l, &[2, 1], |a| {
                let q = reflections(&m(&a[0]), &a[1]);
                vec![q.slice(s![.., ..a[0].shape()[1]]).to_owned().into_dyn()]
            })
        })
        .data(&[Data::Real; 2])
        .near(),
        defined("ormqr", "6,3,2 6,2 6,3,5; 2,3,3 2,3 2,3,4", |l| {
            batched(l, &[2, 1, 2], |a| vec![reflections(&m(&a[0]), &a[1]).dot(&m(&a[2])).into_dyn()])
        })
        .data(&[Data::Real; 3])
        .near()
        .budget(300),
        defined("cov", "6,5; 3,4", |l| vec![covariance(&m(&x(l, 0))).into_dyn()]).near(),
        defined("corrcoef", "6,5; 3,4", |l| {
            let c = covariance(&m(&x(l, 0)));
            vec![
                M::from_shape_fn(c.raw_dim(), |(i, j)| c[[i, j]] / (c[[i, i]] * c[[j, j]]).sqrt()).into_dyn(),
            ]
        })
        .near(),
        of_one("qr", RECTANGLES, real, |a| {
            let (q, r) = orthogonal(a);
            vec![q.into_dyn(), r.into_dyn()]
        }),
        of_one("svd", RECTANGLES, real, |a| {
            let (u, s, vt) = singular(a);
            vec![u.into_dyn(), list(s), vt.into_dyn()]
        }),
        of_one("svdvals", RECTANGLES, real, |a| vec![list(singular(a).1)]),
        of_one("lu", RECTANGLES, real, |a| {
            let (order, lu, _) = eliminated(a);
            unpacked(&order, &lu)
        }),
        of_one("geqrf", RECTANGLES, real, |a| {
            let (packed, tau) = householder(a);
            vec![packed.into_dyn(), list(tau)]
        }),
        of_one("eigvals", SQUARE, real, |a| vec![pairs(&eigenvalues(a), &[a.nrows()])]),
        of_one("eig", SQUARE, real, |a| {
            let (n, values) = (a.nrows(), eigenvalues(a));
            let vectors: Vec<Vec<(f64, f64)>> = values.iter().map(|&v| eigenvector(a, v)).collect();
            let by_row: Vec<(f64, f64)> = (0..n).flat_map(|i| vectors.iter().map(move |v| v[i])).collect();
            vec![pairs(&values, &[n]), pairs(&by_row, &[n, n])]
        }),
        example("vander(columns=3)", "6; 3"),
        example("vecdot", "6,5 6,5; 2,3 3"),
        example("kron", "6,2 2,6; 4,6 6,4; 2,3 3,1"),
        example("bilinear", "6,4 6,5 6,4,5; 3,6 3,2 4,6,2").budget(300),
        example("cross", "6,3 6,3; 2,3 2,3"),
        example("multi_dot", "6,5 5,4 4,6; 3,6 6,2 2,5").budget(300),
        example("tensordot(dims=2)", "6,5,4 5,4,3; 3,6,2 6,2,6").budget(300),
        example("tensordot(dims=1)", "6,5 5,4; 3,6 6,2").budget(300),
        example("addr", "6,4 6 4; 3,5 3 5").budget(300),
        example("addr(beta=2,alpha=-3)", "4 6 4; 5 3 5").budget(300),
        example("addbmm", "6,4 6,6,2 6,2,4; 3,5 4,3,6 4,6,5").budget(300),
        example("addbmm(beta=2,alpha=-3)", "6,4 6,6,2 6,2,4; 3,5 4,3,6 4,6,5").budget(300),
    ]
}

/// Complex numbers in a last dim of two.
fn pairs(list: &[Complex], shape: &[usize]) -> A {
    let all = list.iter().flat_map(|z| [z.0, z.1]).collect();
    A::from_shape_vec([shape, &[2]].concat(), all).expect("a shape")
}

/// `P`, `L` and `U` of an order of rows and of packed factors.
fn unpacked(order: &[usize], lu: &M) -> Vec<A> {
    let (rows, columns) = (lu.nrows(), lu.ncols());
    let k = rows.min(columns);
    let p = M::from_shape_fn((rows, rows), |(i, j)| f64::from(u8::from(order[j] == i)));
    let l = M::from_shape_fn((rows, k), |(i, j)| match i.cmp(&j) {
        std::cmp::Ordering::Greater => lu[[i, j]],
        std::cmp::Ordering::Equal => 1.0,
        std::cmp::Ordering::Less => 0.0,
    });
    let u = M::from_shape_fn((k, columns), |(i, j)| if i <= j { lu[[i, j]] } else { 0.0 });
    vec![p.into_dyn(), l.into_dyn(), u.into_dyn()]
}
