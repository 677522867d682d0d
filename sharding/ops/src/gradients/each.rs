//! The gradient of a call on each slice: its formula on each slice.
//!
//! ```text
//! each[4:1,0] mm    x0[4,m,k], x1[k,n]      dx0 = each[4:1,0] mn,kn->mk(dy, x1)
//!                                           dx1 = sum(each[4:1,1] mk,mn->kn(x0, dy), dims=[0])      what all slices share
//! ```

use super::Saved;
use super::builder::{GradientBuilder, Variable};
use crate::Error;
use crate::rules::{Has, Vmapped, count};

/// Returns the gradients of the inputs of a call on each slice.
pub(super) fn gradient(b: &mut GradientBuilder<'_>, each: &Vmapped) -> Result<Vec<Option<Variable>>, Error> {
    let inputs: Vec<Vec<usize>> = b.forward().inputs().to_vec();
    let inputs: Vec<&[usize]> = inputs.iter().map(Vec::as_slice).collect();
    let slices = each.slices(&inputs)?;
    let slices: Vec<&[usize]> = slices.iter().map(Vec::as_slice).collect();
    let gradient = b.of_slice(each.call(), &slices)?;
    let Some(body) = gradient.body() else { return Ok(vec![None; inputs.len()]) };
    let all = each.union(each.has());
    let taken = gradient.inputs().iter().map(|saved| match *saved {
        Saved::Input(i) => (b.x(i), each.has()[i].clone()),
        Saved::Output(o) => (b.y(o), all.clone()),
        Saved::Gradient(o) => (b.dy(o), all.clone()),
    });
    let (taken, has): (Vec<Variable>, Vec<Has>) = taken.unzip();
    let (body, made) = each.body(body, &has);
    let outputs = b.spliced(&body, &taken)?;
    let given: Vec<Option<(Variable, Has)>> =
        gradient.input_gradients().iter().map(|gives| gives.map(|o| (outputs[o], made[o].clone()))).collect();
    let fitted = |(value, (i, wants)): (Option<(Variable, Has)>, (usize, &Has))| {
        let Some((value, has)) = value else { return Ok(None) };
        let more: Vec<usize> =
            (0..wants.len()).filter(|&d| has[d] && !wants[d]).map(|d| count(&has[..d])).collect();
        let sum = b.summed(value, &more, false)?;
        // An operand that does not depend on the slice is the same on each.
        let kept = (0..wants.len()).filter(|&d| wants[d]);
        let lead = kept.map(|d| if has[d] { each.sizes()[d] } else { 1 });
        let lead: Vec<usize> = lead.chain(slices[i].iter().copied()).collect();
        let one = b.reshaped(sum, &lead)?;
        b.expanded(one, inputs[i]).map(Some)
    };
    given.into_iter().zip(each.has().iter().enumerate()).map(fitted).collect()
}
