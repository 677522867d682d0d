//! Gradients of what is looked up or written by an index: what was read is added to, what was written is read.

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
    ];
    list.iter().map(|&(names, f)| -> Alike { (names, Formula::new(f)) }).collect()
}

/// An op along the dim of this call.
fn by_dim(b: &mut GradientBuilder<'_>, name: &str, operands: &[Variable]) -> Result<Variable, Error> {
    let dim = b.argument(|r| r.dim("dim"))?;
    b.along(name, dim, operands)
}

/// The gradient with zeros where other values were written.
fn without(b: &mut GradientBuilder<'_>, name: &str) -> Result<Variable, Error> {
    let zeros = b.op("zeros_like", &[b.x(2)])?;
    by_dim(b, name, &[b.dy(0), b.x(1), zeros])
}
