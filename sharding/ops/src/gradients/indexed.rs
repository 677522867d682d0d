//! Gradients of indexed reads and writes: a read is added to, and a write is read.

use super::Formula;
use super::builder::{GradientBuilder, Variable};
use super::pointwise::Alike;
use crate::Error;

type Many = fn(&mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error>;

pub(super) fn formulas() -> Vec<Alike> {
    let list: &[(&[&str], Many)] = &[
        (&["embedding"], |b| {
            // All indices in one dim, and a row for each.
            let (table, index) = (b.forward().inputs()[0].clone(), b.forward().inputs()[1].clone());
            let rows = index.iter().product();
            let index = b.reshaped(b.x(1), &[rows])?;
            let dy = b.reshaped(b.dy(0), &[rows, table[1]])?;
            Ok(vec![Some(b.written("index_add", 0, index, dy)?), None])
        }),
        (&["index_select"], |b| {
            let dim = b.argument(|r| r.dim("dim"))?;
            Ok(vec![Some(b.written("index_add", dim, b.x(1), b.dy(0))?), None])
        }),
        (&["scatter_add"], |b| {
            let read = by_dim(b, "gather", &[b.dy(0), b.x(1)])?;
            Ok(vec![Some(b.dy(0)), None, Some(read)])
        }),
        (&["index_add"], |b| {
            let read = by_dim(b, "index_select", &[b.dy(0), b.x(1)])?;
            Ok(vec![Some(b.dy(0)), None, Some(read)])
        }),
        (&["scatter"], |b| {
            let read = by_dim(b, "gather", &[b.dy(0), b.x(1)])?;
            let rest = without(b, "scatter")?;
            Ok(vec![Some(rest), None, Some(read)])
        }),
        (&["index_copy"], |b| {
            let read = by_dim(b, "index_select", &[b.dy(0), b.x(1)])?;
            let rest = without(b, "index_copy")?;
            Ok(vec![Some(rest), None, Some(read)])
        }),
        (&["index_put"], |b| {
            let read = b.op("index_select(dim=0)", &[b.dy(0), b.x(1)])?;
            let mut rest = b.dy(0);
            if !b.argument(|r| r.flag("accumulate"))? {
                let zeros = b.op("zeros_like", &[b.x(2)])?;
                rest = b.op("index_put", &[b.dy(0), b.x(1), zeros])?;
            }
            Ok(vec![Some(rest), None, Some(read)])
        }),
        (&["put"], |b| {
            let read = b.op("take", &[b.dy(0), b.x(1)])?;
            let mut rest = b.dy(0);
            if !b.argument(|r| r.flag("accumulate"))? {
                let zeros = b.op("zeros_like", &[b.x(2)])?;
                rest = b.op("put", &[b.dy(0), b.x(1), zeros])?;
            }
            Ok(vec![Some(rest), None, Some(read)])
        }),
        (&["take"], |b| {
            // The index as a flat list.
            let n = b.shape(b.x(1)).iter().product();
            let (index, dy) = (b.reshaped(b.x(1), &[n])?, b.reshaped(b.dy(0), &[n])?);
            let zeros = b.op("zeros_like", &[b.x(0)])?;
            Ok(vec![Some(b.op("put(accumulate=true)", &[zeros, index, dy])?), None])
        }),
        (&["scatter_reduce"], |b| reduced(b, "gather", "scatter_add")),
        (&["index_reduce"], |b| reduced(b, "index_select", "index_add")),
        (&["scatter_amax"], |b| greatest(b, "gather", "scatter_add")),
    ];
    list.iter().map(|&(names, f)| -> Alike { (names, Formula::new(f)) }).collect()
}

/// Calls an op along the dim of this call.
fn by_dim(b: &mut GradientBuilder<'_>, name: &str, operands: &[Variable]) -> Result<Variable, Error> {
    let dim = b.argument(|r| r.dim("dim"))?;
    b.along(name, dim, operands)
}

/// The gradient with zeros at the overwritten positions.
fn without(b: &mut GradientBuilder<'_>, name: &str) -> Result<Variable, Error> {
    let zeros = b.op("zeros_like", &[b.x(2)])?;
    by_dim(b, name, &[b.dy(0), b.x(1), zeros])
}

/// The gradients of a write that reduces with the existing elements.
///
/// `read` and `add` are the ops that read and that add by this index.
fn reduced(b: &mut GradientBuilder<'_>, read: &str, add: &str) -> Result<Vec<Option<Variable>>, Error> {
    match b.argument(|r| r.word("reduce"))?.as_str() {
        "amax" | "amin" => greatest(b, read, add),
        "mean" => {
            let (ones, each) = (b.op("ones_like", &[b.x(0)])?, b.op("ones_like", &[b.x(2)])?);
            let count = by_dim(b, add, &[ones, b.x(1), each])?;
            let share = b.op("div", &[b.dy(0), count])?;
            let own = by_dim(b, read, &[share, b.x(1)])?;
            Ok(vec![Some(share), None, Some(own)])
        }
        "prod" => multiplied(b, read, add),
        _ => {
            let own = by_dim(b, read, &[b.dy(0), b.x(1)])?;
            Ok(vec![Some(b.dy(0)), None, Some(own)])
        }
    }
}

/// Splits the gradient evenly among all elements that equal the extremum.
fn greatest(b: &mut GradientBuilder<'_>, read: &str, add: &str) -> Result<Vec<Option<Variable>>, Error> {
    let best = by_dim(b, read, &[b.y(0), b.x(1)])?;
    let (there, own) = (b.op("eq", &[b.x(0), b.y(0)])?, b.op("eq", &[b.x(2), best])?);
    let ties = by_dim(b, add, &[there, b.x(1), own])?;
    let share = b.op("div", &[b.dy(0), ties])?;
    let read = by_dim(b, read, &[share, b.x(1)])?;
    Ok(vec![Some(b.op("mul", &[there, share])?), None, Some(b.op("mul", &[own, read])?)])
}

/// The product of all other factors, robust against zeros.
///
/// With exactly one zero, that zero counts as one; with more, the product is zero.
fn multiplied(b: &mut GradientBuilder<'_>, read: &str, add: &str) -> Result<Vec<Option<Variable>>, Error> {
    let zeros = [b.op("logical_not", &[b.x(0)])?, b.op("logical_not", &[b.x(2)])?];
    let one = [
        b.op("masked_fill(value=1)", &[b.x(0), zeros[0]])?,
        b.op("masked_fill(value=1)", &[b.x(2), zeros[1]])?,
    ];
    let again = b.same_call();
    let product = b.call(&again, &[one[0], b.x(1), one[1]])?;
    let count = by_dim(b, add, &[zeros[0], b.x(1), zeros[1]])?;
    let (product_read, count_read) =
        (by_dim(b, read, &[product, b.x(1)])?, by_dim(b, read, &[count, b.x(1)])?);
    let dy = by_dim(b, read, &[b.dy(0), b.x(1)])?;
    let mut given = Vec::new();
    for (product, count, zero, value, dy) in
        [(product, count, zeros[0], one[0], b.dy(0)), (product_read, count_read, zeros[1], one[1], dy)]
    {
        let others = b.op("sub", &[count, zero])?;
        let some = b.op("logical_not", &[others])?;
        let rest = b.op("div", &[product, value])?;
        let slope = b.op("mul", &[rest, some])?;
        given.push(Some(b.op("mul", &[dy, slope])?));
    }
    Ok(vec![given[0], None, given[1]])
}
