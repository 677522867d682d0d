//! Transforms into frequencies and back.
//!
//! They are linear; the transformed dims stay whole, and complex numbers are stored in a last dim of two.

use super::Family;
use super::normalize::fft;
use super::pieces::whole_dims;
use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::Dim;
use crate::rules::op::Op;
use crate::rules::terms::{ALL, linear};

const REAL: &str = "dims: dims = all";
const HALF: &str = "dims: complex dims = all, size: number >= 1 = none";

families! {
    "ifft" ("dims: complex dims = all") => fft;
    "rfft" (REAL) => from_real;
    "ihfft" (REAL) => from_real;
    "irfft" (HALF) => to_real;
    "hfft" (HALF) => to_real;
    "fftshift" (REAL) => whole_dims;
    "ifftshift" (REAL) => whole_dims;
    "stft" ("window: number >= 1, hop: number >= 1 = 1") => stft;
    "istft" ("window: number >= 1, hop: number >= 1 = 1") => istft;
}

fn transformed(r: &BoundCall<'_>, input: Vec<Dim>, output: Vec<Dim>, shape: &[usize]) -> Result<Op, Error> {
    r.op_to(&RuleBuilder::new().input(input).output(output).passing(linear(ALL)).build()?, &[shape])
}

/// The last of the dims has half the frequencies, which determine the others.
fn from_real(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let (dims, mut shape) = (r.dims("dims")?, r.inputs[0].to_vec());
    let Some(&last) = dims.last() else { return Err(r.error("dims has to name a dim")) };
    shape[last] = shape[last] / 2 + 1;
    shape.push(2);
    let input = r.dims_whole(shape.len() - 1, &dims)?;
    transformed(r, input.clone(), [input, vec![Dim::Whole]].concat(), &shape)
}

/// The shape of complex numbers without their dim of two.
fn of_complex<'a>(r: &BoundCall<'a>) -> Result<&'a [usize], Error> {
    match r.inputs {
        [[rest @ .., 2]] => Ok(rest),
        _ => Err(r.error("needs one input with a last dim of 2, the real and the imaginary part")),
    }
}

/// Half the frequencies become `size` numbers; by default `2 (n - 1)` of `n`.
fn to_real(r: &BoundCall<'_>) -> Result<Op, Error> {
    let (dims, mut shape) = (r.dims("dims")?, of_complex(r)?.to_vec());
    let Some(&last) = dims.last() else { return Err(r.error("dims has to name a dim")) };
    shape[last] = if r.has("size")? { r.size("size")? } else { shape[last].saturating_sub(1) * 2 };
    let output = r.dims_whole(shape.len(), &dims)?;
    transformed(r, [output.clone(), vec![Dim::Whole]].concat(), output, &shape)
}

/// `b*->b***`: frequencies of windows, adjacent or overlapping.
fn stft(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let Some((&length, batch)) = r.inputs[0].split_last() else { return Err(r.error("needs a dim of time")) };
    let (window, hop) = (r.size("window")?, r.size("hop")?);
    let Some(left) = length.checked_sub(window) else {
        return Err(r.error(format!("a window of {window} does not fit into {length}")));
    };
    let shape = [batch, &[window / 2 + 1, left / hop + 1, 2]].concat();
    let kept = r.dims_whole(batch.len(), &[])?;
    transformed(r, [kept.clone(), vec![Dim::Whole]].concat(), [kept, vec![Dim::Whole; 3]].concat(), &shape)
}

/// `b***->b*`.
fn istft(r: &BoundCall<'_>) -> Result<Op, Error> {
    let [batch @ .., _, frames] = of_complex(r)? else {
        return Err(r.error("needs dims of frequencies and of windows"));
    };
    let (window, hop) = (r.size("window")?, r.size("hop")?);
    let length = frames.saturating_sub(1).checked_mul(hop).and_then(|n| n.checked_add(window));
    let length = length.ok_or_else(|| Error::overflow("the length of a signal".to_owned()))?;
    let kept = r.dims_whole(batch.len(), &[])?;
    let shape = [batch, &[length]].concat();
    transformed(r, [kept.clone(), vec![Dim::Whole; 3]].concat(), [kept, vec![Dim::Whole]].concat(), &shape)
}
