//! Ops along dims in which everything depends on everything.

use super::reduce::operand;
use crate::Error;
use crate::rules::op::Op;
use crate::rules::request::Request;

/// `ij->ij {j: replicate}`, with as many outputs as said.
pub(super) fn along(r: &Request<'_>, outputs: usize, terms: &str) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let rank = r.inputs[0].len();
    let dim = r.dim("dim", rank, -1)?;
    let letters = r.letters(rank)?;
    let all: String = letters.iter().collect();
    let output = vec![all.as_str(); outputs].join(",");
    r.op(&format!("{all}->{output} {{{}: replicate, {terms}}}", letters[dim]))
}

/// The `k` greatest along a dim and where they are.
pub(super) fn topk(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let rank = r.inputs[0].len();
    let dim = r.dim("dim", rank, -1)?;
    let k = r.required("k", 0)?;
    if k > r.inputs[0][dim] {
        return Err(r.error(format!("k is {k}, and dim {dim} has {}", r.inputs[0][dim])));
    }
    let mut letters = r.letters(rank)?;
    letters[dim] = '*';
    let all: String = letters.iter().collect();
    let mut shape = r.inputs[0].to_vec();
    shape[dim] = k;
    r.op_to(&format!("{all}->{all},{all} {{none}}"), &[&shape, &shape])
}

/// The different values of a tensor, of which the caller knows the number.
pub(super) fn unique(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let count = r.required("count", 0)?;
    let dims = "*".repeat(r.inputs[0].len());
    r.op_to(&format!("{}->* {{none}}", operand(&dims)), &[&[count]])
}

/// Complex numbers lie in a last dim of two.
pub(super) fn fft(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let shape = r.inputs[0];
    let Some((2, rest)) = shape.split_last().map(|(&n, rest)| (n, rest)) else {
        return Err(r.error("needs a last dim of 2, the real and the imaginary part"));
    };
    let dims = r.dims("dims", rest.len())?;
    let letters = r.letters(rest.len())?;
    let all: String = (0..rest.len()).map(|d| if dims.contains(&d) { '*' } else { letters[d] }).collect();
    r.op_to(&format!("{all}*->{all}* {{linear}}"), &[shape])
}

/// A tensor made shorter if its norm is too great: every dim is needed whole.
pub(super) fn clip(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let dims = "*".repeat(r.inputs[0].len());
    r.op_to(&format!("{0}->{0} {{none}}", operand(&dims)), &[r.inputs[0]])
}

/// The letters of an input, of which the last `dims` are normalised, and what is said of them.
fn layer_dims(r: &Request<'_>) -> Result<(String, String, String), Error> {
    let rank = r.input(0)?.len();
    let k = r.at_least("dims", 1, 1)?;
    if k > rank {
        return Err(r.error(format!("dims is {k}, and the input has {rank} dims")));
    }
    let letters = r.letters(rank)?;
    let all: String = letters.iter().collect();
    let last: String = letters[rank - k..].iter().collect();
    let items: Vec<String> = last.chars().map(|c| format!("{c}: replicate")).collect();
    Ok((all, last, items.join(", ")))
}

/// `...n,n,n->...n {n: replicate}`: normalised over the last dims, with a weight and perhaps a bias.
pub(super) fn layer(r: &Request<'_>, terms: &[&str]) -> Result<Op, Error> {
    let most = terms.len().min(2) + 1;
    let n = r.inputs_of(1..=most)?;
    let (all, last, whole) = layer_dims(r)?;
    let weights = format!(",{last}").repeat(n - 1);
    let terms = match n {
        1 => "none".to_owned(),
        2 => "multilinear(1)".to_owned(),
        _ => terms.join(", "),
    };
    r.op(&format!("{all}{weights}->{all} {{{whole}, {terms}}}"))
}

/// `layer_norm` that also gives mean and inverse deviation, of size 1 along what is normalised.
pub(super) fn native_layer(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(3..=3)?;
    let (all, last, whole) = layer_dims(r)?;
    let kept = &all[..all.len() - last.len()];
    let stats = format!("{kept}{}", "1".repeat(last.len()));
    r.op(&format!("{all},{last},{last}->{all},{stats},{stats} {{{whole}, (R,P,P -> P,R,R), (R,P(avg),P(avg) -> P(avg),R,R)}}"))
}

fn spatial(r: &Request<'_>, rank: usize) -> Result<(String, String), Error> {
    let letters: String =
        r.letters(26)?.into_iter().filter(|c| !"bcgi".contains(*c)).take(rank - 2).collect();
    let items: Vec<String> = letters.chars().map(|c| format!(", {c}: replicate")).collect();
    Ok((letters, items.concat()))
}

fn with_channels(r: &Request<'_>, least: usize, most: usize) -> Result<(usize, String, String), Error> {
    let n = r.inputs_of(least..=most)?;
    let rank = r.input(0)?.len();
    if rank < 2 {
        return Err(r.error("needs an input with dims for batch and channels"));
    }
    let (space, items) = spatial(r, rank)?;
    Ok((n, space, items))
}

fn affine_terms(n: usize) -> &'static str {
    match n {
        1 => "none",
        2 => "multilinear(1)",
        _ => "linear(1,2), affine(1,2), increasing(2)",
    }
}

/// `b(gc)hw,(gc),(gc)->b(gc)hw`: each group of channels is normalised for itself.
pub(super) fn group(r: &Request<'_>) -> Result<Op, Error> {
    let (n, space, whole) = with_channels(r, 1, 3)?;
    let groups = r.required("groups", 1)?;
    let weights = ",(gc)".repeat(n - 1);
    r.op(&format!(
        "b(gc){space}{weights}->b(gc){space} {{g: {groups}, c: replicate{whole}, {}}}",
        affine_terms(n)
    ))
}

/// Each channel is normalised over the batch; in evaluation by what is given.
pub(super) fn batch(r: &Request<'_>) -> Result<Op, Error> {
    if r.flag("training", true)? {
        let (n, space, whole) = with_channels(r, 1, 3)?;
        let weights = ",c".repeat(n - 1);
        return r.op(&format!("bc{space}{weights}->bc{space} {{b: replicate{whole}, {}}}", affine_terms(n)));
    }
    let (_, space, _) = with_channels(r, 5, 5)?;
    r.op(&format!("bc{space},c,c,c,c->bc{space} {{linear(1,2), affine(0,1,2), increasing(2)}}"))
}

/// Each channel of each image is normalised for itself.
pub(super) fn instance(r: &Request<'_>) -> Result<Op, Error> {
    let (n, space, whole) = with_channels(r, 1, 3)?;
    let weights = ",c".repeat(n - 1);
    r.op(&format!(
        "bc{space}{weights}->bc{space} {{{}, {}}}",
        whole.trim_start_matches(", "),
        affine_terms(n)
    ))
}
