//! Functions of matrices, by elimination and rotations.

use std::cmp::Ordering;

use ndarray::{Array2, Axis};
#[cfg(test)]
use reshard_verify::{Data, Random};

use super::A;

pub type M = Array2<f64>;

pub fn diagonal(values: impl IntoIterator<Item = f64>) -> M {
    M::from_diag(&ndarray::Array1::from_iter(values))
}

pub fn eye(n: usize) -> M {
    M::eye(n)
}

/// Returns the rows in order of elimination, `L` below the diagonal and `U` on and above it, and the sign.
pub fn eliminated(a: &M) -> (Vec<usize>, M, f64) {
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
pub fn substituted(lu: &M, b: &M) -> M {
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

pub fn upper(u: &M, b: &M) -> M {
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

pub fn inverse(a: &M) -> M {
    solve(a, &eye(a.nrows()))
}

pub fn determinant(a: &M) -> f64 {
    let (_, lu, sign) = eliminated(a);
    sign * lu.diag().product()
}

pub fn cholesky(a: &M) -> M {
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
pub fn symmetric_eigen(a: &M) -> (Vec<f64>, M) {
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
pub fn singular(a: &M) -> (M, Vec<f64>, M) {
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

/// Gram and Schmidt's columns, and their coefficients.
pub fn orthogonal(a: &M) -> (M, M) {
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

pub fn exponential(a: &M) -> M {
    let (mut sum, mut term) = (eye(a.nrows()), eye(a.nrows()));
    let scaled = a / 64.0;
    for k in 1..20 {
        term = term.dot(&scaled) / f64::from(k);
        sum += &term;
    }
    (0..6).fold(sum, |e, _| e.dot(&e))
}

/// The product of reflections `1 - tau v v^T`, whose vectors are stored below the diagonal.
pub fn reflections(a: &M, tau: &A) -> M {
    let n = a.nrows();
    (0..tau.len()).fold(eye(n), |q, i| {
        let v = M::from_shape_fn((n, 1), |(r, _)| match r.cmp(&i) {
            Ordering::Equal => 1.0,
            Ordering::Greater => a[[r, i]],
            Ordering::Less => 0.0,
        });
        let turn = eye(n) - v.dot(&v.t()) * tau[[i]];
        q.dot(&turn)
    })
}

pub fn lower(a: &M) -> M {
    M::from_shape_fn(a.raw_dim(), |(i, j)| if i >= j { a[[i, j]] } else { 0.0 })
}

/// The covariance of variables in rows.
pub fn covariance(a: &M) -> M {
    let n = a.ncols() as f64;
    let centred = a - &a.mean_axis(Axis(1)).expect("a column").insert_axis(Axis(1));
    centred.dot(&centred.t()) / (n - 1.0)
}

/// Reflections whose vectors are stored below the diagonal, and their factors; `R` on and above it.
pub fn householder(a: &M) -> (M, Vec<f64>) {
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

pub type Complex = (f64, f64);

pub fn times(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

pub fn over(a: Complex, b: Complex) -> Complex {
    let n = b.0 * b.0 + b.1 * b.1;
    let (re, im) = times(a, (b.0, -b.1));
    (re / n, im / n)
}

/// The zeros of the characteristic polynomial (Faddeev and Leverrier; Durand and Kerner), in order.
pub fn eigenvalues(a: &M) -> Vec<Complex> {
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

/// The null vector of `a - z`, scaled to a last significant number of 1: by the product of all other factors.
pub fn eigenvector(a: &M, z: Complex) -> Vec<Complex> {
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

/// The products of factors give the factored matrix.
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
        near(&reflections(&packed, &A::from_shape_vec(vec![tau.len()], tau).unwrap()).dot(&upper), &a);
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
