//! Gradients of products whose letters depend on the shapes: matmul, linear and ops that add to a product.

use super::Formula;
use super::builder::{GradientBuilder, Variable};
use super::pointwise::Alike;
use crate::Error;
use crate::rules::{OpCall, RuleBuilder};

type Many = fn(&mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error>;

pub(super) fn formulas() -> Vec<Alike> {
    let list: &[(&[&str], Many)] = &[
        (&["matmul"], matmul),
        (&["linear"], linear),
        (&["addmm", "baddbmm", "addmv"], added),
        (&["rotary"], rotary),
        (&["glu"], glu),
    ];
    list.iter().map(|&(names, f)| -> Alike { (names, Formula::new(f)) }).collect()
}

/// An einsum of two operands by their letters.
fn einsum(
    b: &mut GradientBuilder<'_>,
    operands: [(Variable, &[char]); 2],
    output: &[char],
) -> Result<Variable, Error> {
    let [(x, of_x), (y, of_y)] = operands;
    let rule = RuleBuilder::new()
        .input(of_x.iter().copied())
        .input(of_y.iter().copied())
        .output(output.iter().copied())
        .build()?;
    b.call(&OpCall::Rule(rule), &[x, y])
}

/// Returns letters for `dims` dims, which are neither those of a product nor `P`, `R` or `S`.
fn batch(b: &GradientBuilder<'_>, dims: usize) -> Result<Vec<char>, Error> {
    let letters: Vec<char> = "abcdefghijlopqrstuvwxyz".chars().take(dims).collect();
    if letters.len() == dims {
        return Ok(letters);
    }
    Err(Error::Rule { reason: format!("{} has {dims} dims before those of the product", b.name()) })
}

/// `..mk,..kn->..mn`; each operand may lack its separate dim, and batches broadcast.
fn matmul(b: &mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error> {
    let shapes = b.forward().inputs().to_vec();
    // A vector is a matrix of one row, or of one column.
    let with = |b: &mut GradientBuilder<'_>, value: Variable, dim: usize| {
        let mut shape = b.shape(value).to_vec();
        shape.insert(dim, 1);
        b.reshaped(value, &shape)
    };
    let (mut x, mut w, mut dy) = (b.x(0), b.x(1), b.dy(0));
    if shapes[1].len() == 1 {
        w = with(b, w, 1)?;
        let end = b.shape(dy).len();
        dy = with(b, dy, end)?;
    }
    if shapes[0].len() == 1 {
        x = with(b, x, 0)?;
        let end = b.shape(dy).len() - 1;
        dy = with(b, dy, end)?;
    }
    let n = b.shape(dy).len() - 2;
    let lead = b.shape(dy)[..n].to_vec();
    let full = |b: &mut GradientBuilder<'_>, value: Variable| {
        let own = b.shape(value).to_vec();
        let shape = [&lead[..], &own[own.len() - 2..]].concat();
        b.expanded(value, &shape)
    };
    let (x, w) = (full(b, x)?, full(b, w)?);
    let letters = batch(b, n)?;
    let of = |last: [char; 2]| [&letters[..], &last].concat();
    let dx = einsum(b, [(dy, &of(['m', 'n'])), (w, &of(['k', 'n']))], &of(['m', 'k']))?;
    let dw = einsum(b, [(x, &of(['m', 'k'])), (dy, &of(['m', 'n']))], &of(['k', 'n']))?;
    let fit = |b: &mut GradientBuilder<'_>, value: Variable, shape: &[usize]| {
        // The dim that was added to a vector is removed before batches are summed.
        let has = b.shape(value).to_vec();
        if shape.len() > 1 {
            return b.fitted(value, shape);
        }
        let end = has.len();
        let own: Vec<usize> = has[end - 2..].iter().copied().filter(|&s| s != 1).collect();
        let flat = if own.is_empty() { vec![1] } else { own };
        let without = b.reshaped(value, &[&has[..end - 2], &flat[..]].concat())?;
        b.fitted(without, shape)
    };
    Ok(vec![Some(fit(b, dx, &shapes[0])?), Some(fit(b, dw, &shapes[1])?)])
}

/// `..i,oi,o->..o`.
fn linear(b: &mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error> {
    let shapes = b.forward().inputs().to_vec();
    let lead = batch(b, shapes[0].len() - 1)?;
    let (m, k, n) = (&lead[..], 'k', 'n');
    let (of_x, of_y) = ([m, &[k]].concat(), [m, &[n]].concat());
    let dx = einsum(b, [(b.dy(0), &of_y), (b.x(1), &[n, k])], &of_x)?;
    let dw = einsum(b, [(b.dy(0), &of_y), (b.x(0), &of_x)], &[n, k])?;
    let mut out = vec![Some(dx), Some(dw)];
    if let Some(bias) = shapes.get(2) {
        out.push(Some(b.fitted(b.dy(0), bias)?));
    }
    Ok(out)
}

/// Two halves of a dim.
fn halves(b: &mut GradientBuilder<'_>, value: Variable, dim: usize) -> Result<[Variable; 2], Error> {
    let half = b.shape(value)[dim] / 2;
    Ok([b.narrowed(value, dim, 0, half)?, b.narrowed(value, dim, half, half)?])
}

/// `y = x cos + turn(x) sin`, where `turn(a, b) = (-b, a)` for the halves of the last dim, whose transpose is its negative.
fn rotary(b: &mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error> {
    let shapes = b.forward().inputs().to_vec();
    let dim = shapes[0].len() - 1;
    let turn = |b: &mut GradientBuilder<'_>, value: Variable| {
        let [first, second] = halves(b, value, dim)?;
        let second = b.op("neg", &[second])?;
        b.along("cat", dim, &[second, first])
    };
    let by_cos = b.op("mul", &[b.dy(0), b.x(1)])?;
    let by_sin = b.op("mul", &[b.dy(0), b.x(2)])?;
    let back = turn(b, by_sin)?;
    let dx = b.op("sub", &[by_cos, back])?;
    let turned = turn(b, b.x(0))?;
    let (cos, sin) = (b.op("mul", &[b.dy(0), b.x(0)])?, b.op("mul", &[b.dy(0), turned])?);
    Ok(vec![Some(dx), Some(b.fitted(cos, &shapes[1])?), Some(b.fitted(sin, &shapes[2])?)])
}

/// `y = a sigmoid(b)` for the halves of a dim.
fn glu(b: &mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error> {
    let dim = b.argument(|r| r.dim("dim"))?;
    let [first, second] = halves(b, b.x(0), dim)?;
    let gate = b.op("sigmoid", &[second])?;
    let of_first = b.op("mul", &[b.dy(0), gate])?;
    // sigmoid' = s (1 - s)
    let rest = b.with_number("rsub_scalar", "value", 1.0, gate)?;
    let slope = b.op("mul", &[of_first, rest])?;
    let of_second = b.op("mul", &[first, slope])?;
    b.along("cat", dim, &[of_first, of_second]).map(|dx| vec![Some(dx)])
}

/// `beta c + alpha a b`, where `c` broadcasts.
fn added(b: &mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error> {
    let shapes = b.forward().inputs().to_vec();
    let lead = batch(b, shapes[1].len() - 2)?;
    let of_a = [&lead[..], &['m', 'k']].concat();
    let vector = shapes[2].len() + 1 == shapes[1].len();
    let of_b = if vector { [&lead[..], &['k']].concat() } else { [&lead[..], &['k', 'n']].concat() };
    let of_y = if vector { [&lead[..], &['m']].concat() } else { [&lead[..], &['m', 'n']].concat() };
    let (alpha, beta) = (b.real("alpha")?, b.real("beta")?);
    let dc = b.scaled(b.dy(0), beta)?;
    let dc = b.fitted(dc, &shapes[0])?;
    let dy = b.scaled(b.dy(0), alpha)?;
    let da = einsum(b, [(dy, &of_y), (b.x(2), &of_b)], &of_a)?;
    let db = einsum(b, [(b.x(1), &of_a), (dy, &of_y)], &of_b)?;
    Ok(vec![Some(dc), Some(da), Some(db)])
}
