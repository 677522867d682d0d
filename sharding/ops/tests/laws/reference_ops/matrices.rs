//! Batches of matrices, by elimination and rotations.

use ndarray::{Array2, Axis, Ix2, s};
use reshard_ops::rules::verify::{Data, LocalView, Random};

use super::products::einsum;
use super::{A, Example, example, make, x};

pub type M = Array2<f64>;

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

fn diagonal(values: impl IntoIterator<Item = f64>) -> M {
    M::from_diag(&ndarray::Array1::from_iter(values))
}

fn eye(n: usize) -> M {
    M::eye(n)
}

/// The rows in the order of elimination, `L` below the diagonal and `U` on and above it, and its sign.
fn eliminated(a: &M) -> (Vec<usize>, M, f64) {
    let n = a.nrows();
    let (mut lu, mut order, mut sign) = (a.clone(), (0..n).collect::<Vec<_>>(), 1.0);
    for k in 0..n.min(a.ncols()) {
        let pivot = (k..n).max_by(|&i, &j| lu[[i, k]].abs().total_cmp(&lu[[j, k]].abs())).expect("a row");
        if pivot != k {
            order.swap(pivot, k);
            sign = -sign;
            for j in 0..a.ncols() {
                lu.swap([k, j], [pivot, j]);
            }
        }
        for i in k + 1..n {
            let by = lu[[i, k]] / lu[[k, k]];
            for j in k + 1..a.ncols() {
                lu[[i, j]] -= by * lu[[k, j]];
            }
            lu[[i, k]] = by;
        }
    }
    (order, lu, sign)
}

/// `L y = b` with ones on the diagonal, then `U x = y`.
fn substituted(lu: &M, b: &M) -> M {
    let n = lu.nrows();
    let mut y = b.clone();
    for i in 0..n {
        for k in 0..i {
            let row = y.row(k).to_owned();
            y.row_mut(i).scaled_add(-lu[[i, k]], &row);
        }
    }
    upper(lu, &y)
}

fn upper(u: &M, b: &M) -> M {
    let mut x = b.clone();
    for i in (0..u.nrows()).rev() {
        for k in i + 1..u.nrows() {
            let row = x.row(k).to_owned();
            x.row_mut(i).scaled_add(-u[[i, k]], &row);
        }
        x.row_mut(i).mapv_inplace(|v| v / u[[i, i]]);
    }
    x
}

pub fn solve(a: &M, b: &M) -> M {
    assert_eq!(a.nrows(), b.nrows());
    let (order, lu, _) = eliminated(a);
    substituted(&lu, &b.select(Axis(0), &order))
}

fn inverse(a: &M) -> M {
    solve(a, &eye(a.nrows()))
}

fn determinant(a: &M) -> f64 {
    let (_, lu, sign) = eliminated(a);
    sign * lu.diag().product()
}

fn cholesky(a: &M) -> M {
    let mut l = M::zeros(a.raw_dim());
    for i in 0..a.nrows() {
        for j in 0..=i {
            let rest = a[[i, j]] - (0..j).map(|k| l[[i, k]] * l[[j, k]]).sum::<f64>();
            l[[i, j]] = if i == j { rest.sqrt() } else { rest / l[[j, j]] };
        }
    }
    l
}

/// Eigenvalues in order and their vectors in columns, by Jacobi's rotations.
fn symmetric_eigen(a: &M) -> (Vec<f64>, M) {
    let n = a.nrows();
    let (mut a, mut v) = (a.clone(), eye(n));
    for _ in 0..30 {
        for p in 0..n {
            for q in p + 1..n {
                let angle = 0.5 * (2.0 * a[[p, q]]).atan2(a[[q, q]] - a[[p, p]]);
                let (sin, cos) = angle.sin_cos();
                let mut turn = eye(n);
                (turn[[p, p]], turn[[q, q]], turn[[p, q]], turn[[q, p]]) = (cos, cos, sin, -sin);
                a = turn.t().dot(&a).dot(&turn);
                v = v.dot(&turn);
            }
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| a[[i, i]].total_cmp(&a[[j, j]]));
    (order.iter().map(|&i| a[[i, i]]).collect(), v.select(Axis(1), &order))
}

/// `U`, the singular values, greatest first, and the transpose of `V`.
fn singular(a: &M) -> (M, Vec<f64>, M) {
    if a.nrows() < a.ncols() {
        let (u, s, vt) = singular(&a.t().to_owned());
        return (vt.t().to_owned(), s, u.t().to_owned());
    }
    let (values, v) = symmetric_eigen(&a.t().dot(a));
    let order: Vec<usize> = (0..values.len()).rev().collect();
    let (s, v): (Vec<f64>, M) =
        (order.iter().map(|&i| values[i].max(0.0).sqrt()).collect(), v.select(Axis(1), &order));
    let mut u = a.dot(&v);
    for (mut column, s) in u.columns_mut().into_iter().zip(&s) {
        column.mapv_inplace(|x| x / s);
    }
    (u, s, v.t().to_owned())
}

/// Gram and Schmidt's columns, and what they are multiplied by.
fn orthogonal(a: &M) -> (M, M) {
    let k = a.nrows().min(a.ncols());
    let (mut q, mut r) = (M::zeros((a.nrows(), k)), M::zeros((k, a.ncols())));
    for j in 0..a.ncols() {
        let mut column = a.column(j).to_owned();
        for i in 0..j.min(k) {
            r[[i, j]] = q.column(i).dot(&column);
            column.scaled_add(-r[[i, j]], &q.column(i));
        }
        if j < k {
            r[[j, j]] = column.dot(&column).sqrt();
            q.column_mut(j).assign(&(column / r[[j, j]]));
        }
    }
    (q, r)
}

fn exponential(a: &M) -> M {
    let (mut sum, mut term) = (eye(a.nrows()), eye(a.nrows()));
    let scaled = a / 64.0;
    for k in 1..20 {
        term = term.dot(&scaled) / f64::from(k);
        sum += &term;
    }
    (0..6).fold(sum, |e, _| e.dot(&e))
}

/// The product of reflections `1 - tau v v^T`, whose vectors lie below the diagonal.
fn reflections(a: &M, tau: &A) -> M {
    let n = a.nrows();
    (0..tau.len()).fold(eye(n), |q, i| {
        let v = M::from_shape_fn((n, 1), |(r, _)| {
            if r == i {
                1.0
            } else if r > i {
                a[[r, i]]
            } else {
                0.0
            }
        });
        let turn = eye(n) - v.dot(&v.t()) * tau[[i]];
        q.dot(&turn)
    })
}

fn lower(a: &M) -> M {
    M::from_shape_fn(a.raw_dim(), |(i, j)| if i >= j { a[[i, j]] } else { 0.0 })
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

/// Which row each row changes places with: itself or a later one.
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
    example(call, shapes, move |l| batched(l, &[2], |a| f(&m(&a[0])))).data(&[Data::Made(data)]).near()
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
        example("solve", "6,2,2 6,2,5; 2,3,3 2,3,4", |l| {
            batched(l, &[2, 2], |a| vec![solve(&m(&a[0]), &m(&a[1])).into_dyn()])
        })
        .data(&[Data::Made(dominant), Data::Real])
        .near(),
        example("solve_triangular", "6,2,2 6,2,5; 2,3,3 2,3,4", |l| {
            batched(l, &[2, 2], |a| vec![upper(&m(&a[0]), &m(&a[1])).into_dyn()])
        })
        .data(&[Data::Made(dominant), Data::Real])
        .near(),
        example("cholesky_solve", "6,2,5 6,2,2; 2,3,4 2,3,3", |l| {
            batched(l, &[2, 2], |a| {
                let factor = lower(&m(&a[1]));
                vec![solve(&factor.dot(&factor.t()), &m(&a[0])).into_dyn()]
            })
        })
        .data(&[Data::Real, Data::Made(dominant)])
        .near(),
        example("lu_solve", "6,2,2 6,2 6,2,5; 2,3,3 2,3 2,3,4", |l| {
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
        example("lu_unpack", "6,3,2 6,2; 2,2,3 2,2", |l| {
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
        example("ldl_solve", "6,2,2 6,2 6,2,5; 2,3,3 2,3 2,3,4", |l| {
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
        example("lstsq", "6,3,2 6,3,5; 2,4,3 2,4,4", |l| {
            batched(l, &[2, 2], |a| {
                let (a, b) = (m(&a[0]), m(&a[1]));
                assert_eq!(a.nrows(), b.nrows());
                vec![solve(&a.t().dot(&a), &a.t().dot(&b)).into_dyn()]
            })
        })
        .data(&[Data::Real; 2])
        .near(),
        example("householder_product", "6,3,2 6,2; 2,3,3 2,3", |l| {
            batched(l, &[2, 1], |a| {
                let q = reflections(&m(&a[0]), &a[1]);
                vec![q.slice(s![.., ..a[0].shape()[1]]).to_owned().into_dyn()]
            })
        })
        .data(&[Data::Real; 2])
        .near(),
        example("ormqr", "6,3,2 6,2 6,3,5; 2,3,3 2,3 2,3,4", |l| {
            batched(l, &[2, 1, 2], |a| vec![reflections(&m(&a[0]), &a[1]).dot(&m(&a[2])).into_dyn()])
        })
        .data(&[Data::Real; 3])
        .near()
        .budget(300),
        example("vecdot", "6,5 6,5; 2,3 3", |l| {
            let y = super::zip(&x(l, 0), &x(l, 1), |a, b| a * b);
            vec![y.sum_axis(Axis(y.ndim() - 1))]
        }),
        example("kron", "6,2 2,6; 4,6 6,4; 2,3 3,1", |l| {
            let (a, b) = (x(l, 0), x(l, 1));
            let (p, q) = (b.shape()[0], b.shape()[1]);
            vec![make(&[a.shape()[0] * p, a.shape()[1] * q], |i| {
                a[[i[0] / p, i[1] / q]] * b[[i[0] % p, i[1] % q]]
            })]
        }),
        example("bilinear", "6,4 6,5 6,4,5; 3,6 3,2 4,6,2", |l| {
            vec![einsum("bi,bj,oij->bo", &[x(l, 0), x(l, 1), x(l, 2)])]
        })
        .budget(300),
        example("cov", "6,5; 3,4", |l| vec![covariance(&m(&x(l, 0))).into_dyn()]).near(),
        example("corrcoef", "6,5; 3,4", |l| {
            let c = covariance(&m(&x(l, 0)));
            vec![
                M::from_shape_fn(c.raw_dim(), |(i, j)| c[[i, j]] / (c[[i, i]] * c[[j, j]]).sqrt()).into_dyn(),
            ]
        })
        .near(),
        example("matrix_transpose", "6,5,4; 2,3,6", |l| vec![x(l, 0).permuted_axes(vec![0, 2, 1])]),
        example("diag_embed", "6,5; 2,3", |l| {
            let a = x(l, 0);
            let n = a.shape()[1];
            vec![make(&[a.shape()[0], n, n], |i| if i[1] == i[2] { a[[i[0], i[1]]] } else { 0.0 })]
        }),
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
        example("vander(columns=3)", "6; 3", |l| {
            let a = x(l, 0);
            vec![make(&[a.len(), 3], |i| a[i[0]].powi(2 - i[1] as i32))]
        }),
        example("cross", "6,3 6,3; 2,3 2,3", |l| {
            let (a, b) = (x(l, 0), x(l, 1));
            assert!(a.shape() == b.shape() && a.shape()[1] == 3);
            vec![make(a.shape(), |i| {
                let (j, k) = ((i[1] + 1) % 3, (i[1] + 2) % 3);
                a[[i[0], j]] * b[[i[0], k]] - a[[i[0], k]] * b[[i[0], j]]
            })]
        }),
        example("multi_dot", "6,5 5,4 4,6; 3,6 6,2 2,5", |l| {
            vec![einsum("ab,bc,cd->ad", &[x(l, 0), x(l, 1), x(l, 2)])]
        })
        .budget(300),
        example("tensordot(dims=2)", "6,5,4 5,4,3; 3,6,2 6,2,6", |l| {
            vec![einsum("abc,bcd->ad", &[x(l, 0), x(l, 1)])]
        })
        .budget(300),
        example("addr", "6,4 6 4; 3,5 3 5", |l| plus(l, "m,n->mn")).budget(300),
        example("addr", "4 6 4; 5 3 5", |l| plus(l, "m,n->mn")).budget(300),
        example("addbmm", "6,4 6,6,2 6,2,4; 3,5 4,3,6 4,6,5", |l| plus(l, "bmk,bkn->mn")).budget(300),
        example("diagonal_scatter", "6,4,4 6,4; 2,3,3 2,3", |l| {
            let (a, d) = (x(l, 0), x(l, 1));
            assert_eq!(a.shape()[..2], *d.shape());
            vec![make(a.shape(), |i| if i[1] == i[2] { d[[i[0], i[1]]] } else { a[i] })]
        }),
    ]
}

/// Of variables in rows.
fn covariance(a: &M) -> M {
    let n = a.ncols() as f64;
    let centred = a - &a.mean_axis(Axis(1)).expect("a column").insert_axis(Axis(1));
    centred.dot(&centred.t()) / (n - 1.0)
}

/// Something, broadcast, and a product.
fn plus(l: &LocalView<'_>, equation: &str) -> Vec<A> {
    let y = einsum(equation, &[x(l, 1), x(l, 2)]);
    let z = super::zip(&x(l, 0), &y, |a, b| a + b);
    assert_eq!(z.shape(), y.shape());
    vec![z]
}

/// Reflections whose vectors lie below the diagonal, and their factors; `R` on and above it.
fn householder(a: &M) -> (M, Vec<f64>) {
    let mut packed = a.clone();
    let mut factors = Vec::new();
    for k in 0..a.nrows().min(a.ncols()) {
        let column: Vec<f64> = (k..a.nrows()).map(|i| packed[[i, k]]).collect();
        let norm = column.iter().map(|v| v * v).sum::<f64>().sqrt();
        let head = if column[0] > 0.0 { -norm } else { norm };
        if column[1..].iter().all(|v| *v == 0.0) {
            factors.push(0.0);
            continue;
        }
        let tau = (head - column[0]) / head;
        let v: Vec<f64> = column
            .iter()
            .enumerate()
            .map(|(i, c)| if i == 0 { 1.0 } else { c / (column[0] - head) })
            .collect();
        for j in k..a.ncols() {
            let dot: f64 = v.iter().enumerate().map(|(i, v)| v * packed[[k + i, j]]).sum();
            for (i, v) in v.iter().enumerate() {
                packed[[k + i, j]] -= tau * v * dot;
            }
        }
        for (i, v) in v.iter().enumerate().skip(1) {
            packed[[k + i, k]] = *v;
        }
        factors.push(tau);
    }
    (packed, factors)
}

type Complex = (f64, f64);

fn times(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

fn over(a: Complex, b: Complex) -> Complex {
    let n = b.0 * b.0 + b.1 * b.1;
    let (re, im) = times(a, (b.0, -b.1));
    (re / n, im / n)
}

/// Complex numbers in a last dim of two.
fn pairs(list: &[Complex], shape: &[usize]) -> A {
    let all = list.iter().flat_map(|z| [z.0, z.1]).collect();
    A::from_shape_vec([shape, &[2]].concat(), all).expect("a shape")
}

/// The zeros of the characteristic polynomial (Faddeev and Leverrier; Durand and Kerner), in order.
fn eigenvalues(a: &M) -> Vec<Complex> {
    let n = a.nrows();
    let (mut c, mut m) = (vec![1.0], eye(n));
    for k in 1..=n {
        let am = a.dot(&m);
        c.push(-am.diag().sum() / k as f64);
        m = am + eye(n) * c[k];
    }
    let value = |z: Complex| c.iter().fold((0.0, 0.0), |v, c| (times(v, z).0 + c, times(v, z).1));
    let mut z: Vec<Complex> =
        (0..n).scan((1.0, 0.0), |p, _| Some(std::mem::replace(p, times(*p, (0.4, 0.9))))).collect();
    for _ in 0..200 {
        for i in 0..n {
            let others = (0..n).filter(|&j| j != i);
            let by = others.fold((1.0, 0.0), |p, j| times(p, (z[i].0 - z[j].0, z[i].1 - z[j].1)));
            let step = over(value(z[i]), by);
            if step.0.is_finite() && step.1.is_finite() {
                z[i] = (z[i].0 - step.0, z[i].1 - step.1);
            }
        }
    }
    let key = |z: &Complex| ((z.0 * 1e6).round() as i64, (z.1 * 1e6).round() as i64);
    z.sort_by_key(key);
    z
}

/// What `a - z` takes to nothing, of which the last number that matters is 1: by the product of all other factors.
fn eigenvector(a: &M, z: Complex) -> Vec<Complex> {
    let n = a.nrows();
    let mut v: Vec<Complex> = (0..n).map(|i| (1.0, i as f64)).collect();
    for &(re, im) in eigenvalues(a).iter().filter(|w| (w.0 - z.0).hypot(w.1 - z.1) > 1e-6) {
        let row = |i: usize| {
            let by =
                (0..n).fold((0.0, 0.0), |s: Complex, j| (s.0 + a[[i, j]] * v[j].0, s.1 + a[[i, j]] * v[j].1));
            let moved = times((re, im), v[i]);
            (by.0 - moved.0, by.1 - moved.1)
        };
        v = (0..n).map(row).collect();
    }
    let norm = v.iter().map(|v| v.0 * v.0 + v.1 * v.1).sum::<f64>().sqrt().max(1e-300);
    v.into_iter().map(|v| (v.0 / norm, v.1 / norm)).collect()
}

/// What factors are factors of.
#[test]
fn factors_of_matrices_are_factors() {
    let mut random = Random::new(3);
    let near = |a: &M, b: &M| assert!((a - b).iter().all(|x| x.abs() < 1e-8), "{a} {b}");
    for (rows, columns) in [(3, 2), (2, 3), (3, 3), (4, 4)] {
        let data = Data::Real.whole(&[rows, columns], &mut random);
        let a = M::from_shape_vec((rows, columns), data).unwrap();
        let (q, r) = orthogonal(&a);
        near(&q.dot(&r), &a);
        let (u, s, vt) = singular(&a);
        near(&u.dot(&diagonal(s)).dot(&vt), &a);
        let (packed, tau) = householder(&a);
        let upper = M::from_shape_fn(a.raw_dim(), |(i, j)| if i <= j { packed[[i, j]] } else { 0.0 });
        near(&reflections(&packed, &list(tau)).dot(&upper), &a);
        if rows == columns {
            near(&a.dot(&inverse(&a)), &eye(rows));
            let symmetric = &a + &a.t();
            let (values, v) = symmetric_eigen(&symmetric);
            near(&v.dot(&diagonal(values)).dot(&v.t()), &symmetric);
            near(&exponential(&a).dot(&exponential(&-&a)), &eye(rows));
            for z in eigenvalues(&a) {
                let v = eigenvector(&a, z);
                for i in 0..rows {
                    let moved = times(z, v[i]);
                    let re: f64 = (0..rows).map(|j| a[[i, j]] * v[j].0).sum();
                    let im: f64 = (0..rows).map(|j| a[[i, j]] * v[j].1).sum();
                    assert!((re - moved.0).hypot(im - moved.1) < 1e-6);
                }
            }
        }
    }
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
