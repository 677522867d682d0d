//! Products of matrices, attention, rotary embedding, and cells of recurrent networks.

use super::Body::By;
use super::Ops;
use super::along::softmax;
use super::pointwise::sigmoid;
use crate::Error;
use crate::arrays::{A, at, broadcast, cut, einsum, make, map, number, numbers, spread, together, zip};
use crate::ask::{Ask, Made};

/// An equation of all inputs.
fn product(r: &Ask<'_>, equation: &str) -> Made {
    let inputs: Vec<&A> = r.inputs.iter().collect();
    Ok(vec![r.fit(einsum(equation, &inputs))?])
}

/// Multiplies along the last dim of both: `...k,nk->...n`.
fn rows(r: &Ask<'_>, a: &A, w: &A) -> Result<A, Error> {
    let outer = &a.shape()[..a.ndim().saturating_sub(1)];
    let flat = [outer.iter().product(), a.shape().last().copied().unwrap_or(1)];
    let flat = r.fit(crate::arrays::of(&flat, numbers(a)))?;
    let y = r.fit(einsum("mk,nk->mn", &[&flat, w]))?;
    r.fit(crate::arrays::of(&[outer, &w.shape()[..1]].concat(), y.into_iter().collect()))
}

/// Adds a tensor that is broadcast.
fn plus(r: &Ask<'_>, y: &A, bias: &A) -> Result<A, Error> {
    let z = r.fit(zip(y, bias, &|y, b| y + b))?;
    r.alike(&z, y)?;
    Ok(z)
}

fn linear(r: &Ask<'_>) -> Made {
    let y = rows(r, r.x(0)?, r.x(1)?)?;
    Ok(vec![if let Some(bias) = r.maybe(2) { plus(r, &y, bias)? } else { y }])
}

/// A broadcast operand plus a product.
fn added(r: &Ask<'_>, equation: &str) -> Made {
    let (beta, alpha) = (r.real("beta")?, r.real("alpha")?);
    let y = r.fit(einsum(equation, &[r.x(1)?, r.x(2)?]))?;
    Ok(vec![plus(r, &map(&y, &|y| alpha * y), &map(r.x(0)?, &|x| beta * x))?])
}

/// Batches of matrices, broadcast; a vector is a row on the left and a column on the right.
fn matmul(r: &Ask<'_>) -> Made {
    let (a, b) = (r.x(0)?, r.x(1)?);
    let (row, column) = (a.ndim() == 1, b.ndim() == 1);
    let axis = ndarray::Axis;
    let a = if row { a.clone().insert_axis(axis(0)) } else { a.clone() };
    let b = if column { b.clone().insert_axis(axis(1)) } else { b.clone() };
    let k = a.shape()[a.ndim() - 1];
    r.ensure(b.shape()[b.ndim() - 2] == k, "the sizes that are summed differ")?;
    let (p, q) = (a.ndim() - 2, b.ndim() - 2);
    let batch = r.fit(broadcast(&a.shape()[..p], &b.shape()[..q]))?;
    let n = batch.len();
    let mut y = make(&[&batch[..], &[a.shape()[p], b.shape()[q + 1]]].concat(), &|i| {
        let on = |x: &A, last: [usize; 2]| spread(x, &[&i[..n], &last[..]].concat());
        (0..k).map(|k| on(&a, [i[n], k]) * on(&b, [k, i[n + 1]])).sum()
    });
    if row {
        let first = y.ndim() - 2;
        y = y.index_axis_move(axis(first), 0);
    }
    if column {
        let last = y.ndim() - 1;
        y = y.index_axis_move(axis(last), 0);
    }
    Ok(vec![y])
}

/// Computes attention; the logits of each row of queries exclude masked and, if causal, later positions.
fn attention(r: &Ask<'_>) -> Made {
    let (q, k, v) = (r.x(0)?, r.x(1)?, r.x(2)?);
    r.ensure(q.shape()[0] == k.shape()[0] && q.shape()[0] == v.shape()[0], "the batches differ")?;
    r.ensure(q.shape()[3] == k.shape()[3] && k.shape()[..3] == v.shape()[..3], "keys and values do not fit")?;
    let (width, length, causal) = (q.shape()[3], k.shape()[2], r.flag("causal")?);
    let scale = r.maybe_real("scale")?.unwrap_or(1.0 / (width as f64).sqrt());
    // The head of keys for each head of queries, by their indices in the whole.
    let (heads, keys) = (r.held(0, 1)?, r.held(1, 1)?);
    let each = r.input(0)?[1] / r.input(1)?[1].max(1);
    let of_head: Vec<Option<usize>> =
        heads.iter().map(|h| keys.iter().position(|key| *key == h / each.max(1))).collect();
    r.ensure(of_head.iter().all(Option::is_some), "a rank has a query head without its key head")?;
    let (at_row, at_column) = (r.held(0, 2)?, r.held(1, 2)?);
    if let Some(m) = r.maybe(3) {
        let full = [q.shape()[0], q.shape()[1], q.shape()[2], length];
        let fits =
            m.ndim() <= 4 && m.shape().iter().zip(&full[4 - m.ndim()..]).all(|(&m, &n)| m == n || m == 1);
        r.ensure(fits, "the mask does not fit")?;
    }
    let masked = |i: [usize; 4]| {
        r.maybe(3).map_or(0.0, |m| {
            let last = &i[4 - m.ndim()..];
            at(m, &last.iter().zip(m.shape()).map(|(&c, &n)| if n == 1 { 0 } else { c }).collect::<Vec<_>>())
        })
    };
    let taken = make(&[q.shape()[0], q.shape()[1], q.shape()[2], length], &|i| {
        let (b, h, row, column) = (i[0], i[1], i[2], i[3]);
        let head = of_head[h].unwrap_or(0);
        let dot: f64 = (0..width).map(|d| q[[b, h, row, d]] * k[[b, head, column, d]]).sum();
        let hidden = causal && at_column[column] > at_row[row];
        if hidden { f64::NEG_INFINITY } else { dot * scale + masked([b, h, row, column]) }
    });
    let taken = crate::arrays::lines(&taken, 3, &softmax);
    Ok(vec![make(&[q.shape()[0], q.shape()[1], q.shape()[2], v.shape()[3]], &|i| {
        let head = of_head[i[1]].unwrap_or(0);
        (0..length).map(|j| taken[[i[0], i[1], i[2], j]] * v[[i[0], head, j, i[3]]]).sum()
    })])
}

/// Rotates pairs of elements at a distance of half the width, by angles given as cosines and sines.
fn rotary(r: &Ask<'_>) -> Made {
    let (a, cos, sin) = (r.x(0)?, r.x(1)?, r.x(2)?);
    let n = a.ndim();
    r.ensure(
        n >= 2 && cos.shape() == &a.shape()[n - 2..] && sin.shape() == cos.shape(),
        "the tables do not fit",
    )?;
    let half = a.shape()[n - 1] / 2;
    Ok(vec![make(a.shape(), &|i| {
        let (mut other, d) = (i.to_vec(), i[n - 1]);
        other[n - 1] = if d < half { d + half } else { d - half };
        let turned = if d < half { -at(a, &other) } else { at(a, &other) };
        at(a, i) * at(cos, &i[n - 2..]) + turned * at(sin, &i[n - 2..])
    })])
}

fn bilinear(r: &Ask<'_>) -> Made {
    let (a, b) = (r.x(0)?, r.x(1)?);
    let outer = &a.shape()[..a.ndim().saturating_sub(1)];
    r.ensure(b.ndim() == a.ndim() && &b.shape()[..outer.len()] == outer, "the batches differ")?;
    let flat = |a: &A| {
        let shape = [outer.iter().product(), a.shape().last().copied().unwrap_or(1)];
        r.fit(crate::arrays::of(&shape, numbers(a)))
    };
    let y = r.fit(einsum("bi,bj,oij->bo", &[&flat(a)?, &flat(b)?, r.x(2)?]))?;
    let shape = [outer, &r.x(2)?.shape()[..1]].concat();
    Ok(vec![r.fit(crate::arrays::of(&shape, y.into_iter().collect()))?])
}

fn vecdot(r: &Ask<'_>) -> Made {
    let y = r.fit(zip(r.x(0)?, r.x(1)?, &|a, b| a * b))?;
    Ok(vec![y.sum_axis(ndarray::Axis(y.ndim().saturating_sub(1)))])
}

fn kron(r: &Ask<'_>) -> Made {
    let (a, b) = (r.x(0)?, r.x(1)?);
    let (p, q) = (b.shape()[0], b.shape()[1]);
    let shape = [a.shape()[0] * p, a.shape()[1] * q];
    Ok(vec![make(&shape, &|i| a[[i[0] / p, i[1] / q]] * b[[i[0] % p, i[1] % q]])])
}

fn cross(r: &Ask<'_>) -> Made {
    let (a, b, dim) = (r.x(0)?, r.x(1)?, r.dim("dim")?);
    r.alike(a, b)?;
    r.ensure(a.shape()[dim] == 3, "a cross product needs a dim of size 3")?;
    Ok(vec![make(a.shape(), &|i| {
        let on = |x: &A, by: usize| at(x, &crate::arrays::with(i, dim, (i[dim] + by) % 3));
        on(a, 1) * on(b, 2) - on(a, 2) * on(b, 1)
    })])
}

fn letters(from: usize, n: usize) -> String {
    ('a'..='z').chain('A'..='Z').skip(from).take(n).collect()
}

/// Contracts the last dims of one with the first of the other.
fn tensordot(r: &Ask<'_>) -> Made {
    let (a, b, n) = (r.x(0)?.ndim(), r.x(1)?.ndim(), r.size("dims")?);
    r.ensure(n <= a && n <= b && a + b - n <= 52, "has too few dims")?;
    let (left, right) = (letters(0, a), letters(a - n, b));
    product(r, &format!("{left},{right}->{}{}", letters(0, a - n), letters(a, b - n)))
}

fn multi_dot(r: &Ask<'_>) -> Made {
    let n = r.given_inputs();
    r.ensure((2..=50).contains(&n), "needs 2 to 50 matrices")?;
    let all: Vec<String> = (0..n).map(|i| letters(i, 2)).collect();
    product(r, &format!("{}->{}{}", all.join(","), letters(0, 1), letters(n, 1)))
}

/// Returns a product plus a bias of a cell.
fn gates(r: &Ask<'_>, a: usize, w: usize, bias: usize) -> Result<A, Error> {
    plus(r, &rows(r, r.x(a)?, r.x(w)?)?, r.x(bias)?)
}

/// Returns the `i`-th of `of` equal parts of the columns.
fn gate(r: &Ask<'_>, a: &A, i: usize, of: usize) -> Result<A, Error> {
    let n = a.shape()[1] / of;
    r.ensure(a.shape()[1] == of * n, "the gates differ in size")?;
    r.fit(cut(a, 1, i * n, (i + 1) * n))
}

fn rnn(r: &Ask<'_>, f: fn(f64) -> f64) -> Made {
    Ok(vec![map(&plus(r, &gates(r, 0, 2, 4)?, &gates(r, 1, 3, 5)?)?, &f)])
}

fn lstm(r: &Ask<'_>) -> Made {
    let all = plus(r, &gates(r, 0, 3, 5)?, &gates(r, 1, 4, 6)?)?;
    let [i, f, g, o] = [0, 1, 2, 3].map(|k| gate(r, &all, k, 4));
    let (i, f, g, o, memory) = (i?, f?, g?, o?, r.x(2)?);
    r.alike(memory, &f)?;
    let parts = [&f, memory, &i, &g];
    let memory = r.fit(together(parts, &|[f, c, i, g]| sigmoid(f) * c + sigmoid(i) * g.tanh()))?;
    Ok(vec![r.fit(zip(&o, &memory, &|o, c| sigmoid(o) * c.tanh()))?, memory])
}

fn gru(r: &Ask<'_>) -> Made {
    let (a, h) = (gates(r, 0, 2, 4)?, gates(r, 1, 3, 5)?);
    let of = |k| -> Result<(A, A), Error> { Ok((gate(r, &a, k, 3)?, gate(r, &h, k, 3)?)) };
    let (reset, update, new) = (of(0)?, of(1)?, of(2)?);
    let sum = |p: &(A, A)| r.fit(zip(&p.0, &p.1, &|a, b| sigmoid(a + b)));
    let new = r.fit(together([&new.0, &sum(&reset)?, &new.1], &|[a, r, h]| (a + r * h).tanh()))?;
    Ok(vec![r.fit(together([&sum(&update)?, &new, r.x(1)?], &|[z, n, h]| (1.0 - z) * n + z * h))?])
}

fn check_and_unscale(r: &Ask<'_>) -> Made {
    let (g, found, by) = (r.x(0)?, r.x(1)?, r.x(2)?);
    let odd = g.iter().any(|v| !v.is_finite());
    let found = found.iter().copied().fold(0.0, f64::max).max(f64::from(u8::from(odd)));
    Ok(vec![r.fit(zip(g, by, &|v, by| v * by))?, number(found)])
}

fn scaled_mm(r: &Ask<'_>) -> Made {
    let y = r.fit(einsum("mk,kn->mn", &[r.x(0)?, r.x(1)?]))?;
    let z = r.fit(together([&y, r.x(2)?, r.x(3)?], &|[y, a, b]| y * a * b))?;
    r.alike(&z, &y)?;
    Ok(vec![z])
}

/// Multiplies the rows up to the first end by the first matrix, and so on.
fn grouped_mm(r: &Ask<'_>) -> Made {
    let (a, w, ends) = (r.x(0)?, r.x(1)?, r.x(2)?);
    r.ensure(a.shape()[1] == w.shape()[1], "the sizes that are summed differ")?;
    let (rows, groups) = (r.held(0, 0)?, r.held(1, 0)?);
    Ok(vec![make(&[a.shape()[0], w.shape()[2]], &|i| {
        let group = ends.iter().take_while(|&&e| e <= rows[i[0]] as f64).count();
        let held = groups.iter().position(|&g| g == group);
        held.map_or(0.0, |g| (0..a.shape()[1]).map(|k| a[[i[0], k]] * w[[g, k, i[1]]]).sum())
    })])
}

pub(super) const OPS: Ops = &[
    ("mm", By(|r| product(r, "mk,kn->mn"))),
    ("bmm", By(|r| product(r, "bmk,bkn->bmn"))),
    ("dot", By(|r| product(r, "k,k->"))),
    ("vdot", By(|r| product(r, "k,k->"))),
    ("mv", By(|r| product(r, "mk,k->m"))),
    ("outer", By(|r| product(r, "m,n->mn"))),
    ("matmul", By(matmul)),
    ("linear", By(linear)),
    ("addmm", By(|r| added(r, "mk,kn->mn"))),
    ("addmv", By(|r| added(r, "mk,k->m"))),
    ("addr", By(|r| added(r, "m,n->mn"))),
    ("baddbmm", By(|r| added(r, "bmk,bkn->bmn"))),
    ("addbmm", By(|r| added(r, "bmk,bkn->mn"))),
    ("bilinear", By(bilinear)),
    ("vecdot", By(vecdot)),
    ("kron", By(kron)),
    ("cross", By(cross)),
    (
        "vander",
        By(|r| {
            let (a, n) = (r.x(0)?, r.size("columns")?);
            Ok(vec![make(&[a.len(), n], &|i| a[i[0]].powi((n - 1 - i[1]) as i32))])
        }),
    ),
    ("tensordot", By(tensordot)),
    ("multi_dot", By(multi_dot)),
    ("scaled_dot_product_attention", By(attention)),
    ("rotary", By(rotary)),
    ("rnn_tanh_cell", By(|r| rnn(r, f64::tanh))),
    ("rnn_relu_cell", By(|r| rnn(r, |x| x.max(0.0)))),
    ("lstm_cell", By(lstm)),
    ("gru_cell", By(gru)),
    ("check_and_unscale", By(check_and_unscale)),
    ("scaled_mm", By(scaled_mm)),
    ("grouped_mm", By(grouped_mm)),
];
