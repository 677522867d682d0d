//! Gradients of ops that only permute elements; they are derived, without a written formula.
//!
//! If sums, products, maxima and minima of partial values all pass through an op, it puts one input element
//! or a zero at every output position. That follows from `max(a, b) = max(f)(a, b)` and
//! `f(a + b) = f(a) + f(b)` for all a and b. To find out which one, the op is run on the element numbers 1,
//! 2, .. . Its output has the number of an element at the positions of that element, and 0 for a zero. An
//! input element gets the gradients from its positions:
//!
//! ```text
//! i = f(1 .. n),  dx[k] = sum of dy[p] over all positions p with i[p] = k
//! ```

use super::builder::{GradientBuilder, Variable, numbers, whole};
use crate::Error;
use crate::rules::{Argument, OpCall, OperandPlacement, Strategy};
use reshard_sharding::ReduceOp;

/// Returns the gradients of the permuted inputs; `None` if the op does more than permute elements.
pub(super) fn gradient(b: &mut GradientBuilder<'_>) -> Result<Option<Vec<Option<Variable>>>, Error> {
    let rows = b.forward().strategies();
    let Some(data) = selected(&rows) else { return Ok(None) };
    moved(b, &data).map(Some)
}

/// Returns the inputs such that every output element is one of their elements, or zero.
fn selected(rows: &[Strategy]) -> Option<Vec<usize>> {
    let terms = |row: &Strategy, op: ReduceOp| -> Option<Vec<usize>> {
        let term = OperandPlacement::Partial(op);
        let plain = |p: &OperandPlacement| *p == term || *p == OperandPlacement::Replicate;
        let passes = row.outputs.iter().all(|p| *p == term) && row.inputs.iter().all(plain);
        let list: Vec<usize> = (0..row.inputs.len()).filter(|&i| row.inputs[i] == term).collect();
        (passes && !list.is_empty()).then_some(list)
    };
    let of = |op: ReduceOp| rows.iter().filter_map(move |row| terms(row, op));
    of(ReduceOp::Sum).find(|list| {
        [ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min]
            .into_iter()
            .all(|op| of(op).any(|other| other == *list))
    })
}

fn moved(b: &mut GradientBuilder<'_>, data: &[usize]) -> Result<Vec<Option<Variable>>, Error> {
    let inputs = b.forward().inputs().to_vec();
    let mut operands: Vec<Variable> = (0..inputs.len()).map(|i| b.x(i)).collect();
    let mut all = 1;
    for &i in data {
        let n: usize = inputs[i].iter().product();
        let call = OpCall::new("arange").with("size", whole(n)).with("start", whole(all));
        let list = b.call(&call, &[])?;
        operands[i] = b.reshaped(list, &inputs[i])?;
        all += n;
    }
    let call = b.same_call();
    let places = b.calls(&call, &operands)?;
    let flat = |b: &mut GradientBuilder<'_>, value: Variable| {
        let n = b.shape(value).iter().product();
        b.reshaped(value, &[n])
    };
    let zeros = OpCall::new("zeros").with("shape", numbers(&[all]));
    let mut sums = b.call(&zeros, &[])?;
    for (o, place) in places.into_iter().enumerate() {
        let (place, dy) = (flat(b, place)?, flat(b, b.dy(o))?);
        // The elements are counted in a real type, which every op takes; an index must be an integer.
        let place = b.op("cast(dtype=i64)", &[place])?;
        sums = b.along("index_add", 0, &[sums, place, dy])?;
    }
    let mut given = vec![None; inputs.len()];
    let mut start = 1;
    for &i in data {
        let n = inputs[i].iter().product();
        let own = b.narrowed(sums, 0, start, n)?;
        given[i] = Some(b.reshaped(own, &inputs[i])?);
        start += n;
    }
    Ok(given)
}

/// Repeats the call with a fill value of zero, so that the fill has no part in the gradient.
pub(super) fn unfilled(b: &mut GradientBuilder<'_>) -> Result<Vec<Option<Variable>>, Error> {
    let call = b.same_call().with("value", Argument::Number(0));
    let operands: Vec<Variable> = (1..b.forward().inputs().len()).map(|i| b.x(i)).collect();
    let dx = b.call(&call, &[&[b.dy(0)], &operands[..]].concat())?;
    let shape = b.forward().inputs()[0].clone();
    Ok([vec![Some(b.fitted(dx, &shape)?)], vec![None; operands.len()]].concat())
}
