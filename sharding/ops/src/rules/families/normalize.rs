//! Ops along dims in which every element depends on all others.

use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::{Dim, FactorKind};
use crate::rules::op::Op;
use crate::rules::partial_rule::PartialRule;
use crate::rules::terms::{AVG, P, R, affine, increasing, linear, multilinear, row};

/// `ij->ij {j: replicate}`, with the given number of outputs.
pub(super) fn along(r: &BoundCall<'_>, outputs: usize, terms: Option<PartialRule>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let rank = r.inputs[0].len();
    let dim = r.dim("dim")?;
    let letters = r.letters(rank)?;
    let rule = RuleBuilder::new().input(letters.iter().copied()).outputs(outputs, letters.iter().copied());
    r.op(&rule.role(letters[dim], FactorKind::NeedReplication).passings(terms).build()?)
}

/// The `k` greatest elements along a dim and their indices.
pub(super) fn topk(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let rank = r.inputs[0].len();
    let dim = r.dim("dim")?;
    let k = r.size("k")?;
    if k > r.inputs[0][dim] {
        return Err(r.error(format!("k is {k}, and dim {dim} has {}", r.inputs[0][dim])));
    }
    let dims = r.dims_whole(rank, &[dim])?;
    let mut shape = r.inputs[0].to_vec();
    shape[dim] = k;
    let rule = RuleBuilder::new().input(dims.clone()).outputs(2, dims).passings([]);
    r.op_to(&rule.build()?, &[&shape, &shape])
}

/// The distinct values of a tensor, whose number the caller knows.
pub(super) fn unique(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let count = r.size("count")?;
    let rule = RuleBuilder::new().input(vec![Dim::Whole; r.inputs[0].len()]).output([Dim::Whole]);
    r.op_to(&rule.passings([]).build()?, &[&[count]])
}

/// Complex numbers are stored in a last dim of two.
pub(super) fn fft(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let shape = r.inputs[0];
    let Some((2, rest)) = shape.split_last().map(|(&n, rest)| (n, rest)) else {
        return Err(r.error("needs a last dim of 2, the real and the imaginary part"));
    };
    let mut dims = r.dims_whole(rest.len(), &r.dims("dims")?)?;
    dims.push(Dim::Whole);
    let rule = RuleBuilder::new().input(dims.clone()).output(dims);
    r.op_to(&rule.passing(linear(crate::rules::terms::ALL)).build()?, &[shape])
}

/// Scales down a tensor whose norm is too large: every dim is needed whole.
pub(super) fn clip(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let dims = vec![Dim::Whole; r.inputs[0].len()];
    r.op_to(&RuleBuilder::new().input(dims.clone()).output(dims).passings([]).build()?, &[r.inputs[0]])
}

/// Returns the letters of an input, and the number of last dims that are normalised: `last`, or these dims.
fn layer_dims(r: &BoundCall<'_>) -> Result<(Vec<char>, usize), Error> {
    let rank = r.input(0)?.len();
    let letters = r.letters(rank)?;
    if r.call.argument("dims").is_none() {
        return Ok((letters, r.count("last")?));
    }
    let mut dims = r.dims("dims")?;
    dims.sort_unstable();
    let k = dims.len();
    if k == 0 || !dims.iter().copied().eq(rank - k..rank) {
        return Err(r.error(format!("dims are {dims:?}, not the last of {rank}; permute them there first")));
    }
    if r.call.argument("last").is_some() && r.count("last")? != k {
        return Err(r.error("last and dims disagree; give one of them"));
    }
    Ok((letters, k))
}

/// `...n,n,n->...n {n: replicate}`: normalised over the last dims, with a weight and perhaps a bias.
fn layer(r: &BoundCall<'_>, most: usize, terms: impl FnOnce(usize) -> Vec<PartialRule>) -> Result<Op, Error> {
    let n = r.inputs_of(1..=most)?;
    let (all, k) = layer_dims(r)?;
    let last = &all[all.len() - k..];
    let rule = RuleBuilder::new()
        .input(all.iter().copied())
        .inputs(n - 1, last.iter().copied())
        .output(all.iter().copied())
        .roles(last.iter().copied(), FactorKind::NeedReplication)
        .passings(terms(n));
    r.op(&rule.build()?)
}

/// With a weight and a bias.
pub(super) fn layer_norm(r: &BoundCall<'_>) -> Result<Op, Error> {
    layer(r, 3, |n| match n {
        1 => vec![],
        2 => vec![multilinear([1])],
        _ => vec![linear([1, 2]), affine([2]), increasing([2]), row([R, AVG, R], [AVG])],
    })
}

/// With a weight.
pub(super) fn rms_norm(r: &BoundCall<'_>) -> Result<Op, Error> {
    layer(r, 2, |n| if n == 1 { vec![] } else { vec![multilinear([1])] })
}

/// `layer_norm` that also gives mean and inverse deviation, of size 1 along the normalised dims.
pub(super) fn native_layer(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(3..=3)?;
    let (all, k) = layer_dims(r)?;
    let (kept, last) = all.split_at(all.len() - k);
    let stats = kept.iter().map(|&c| Dim::from(c)).chain(std::iter::repeat_n(Dim::ONE, k));
    let rule = RuleBuilder::new()
        .input(all.iter().copied())
        .inputs(2, last.iter().copied())
        .output(all.iter().copied())
        .outputs(2, stats)
        .roles(last.iter().copied(), FactorKind::NeedReplication)
        .passings([row([R, P, P], [P, R, R]), row([R, AVG, AVG], [AVG, R, R])]);
    r.op(&rule.build()?)
}

/// Batch and channels, and spatial dims, to which a rule refers by letters that are not theirs.
struct Channels {
    inputs: usize,
    space: Vec<char>,
}

impl Channels {
    fn of(r: &BoundCall<'_>, least: usize, most: usize) -> Result<Channels, Error> {
        let inputs = r.inputs_of(least..=most)?;
        let Some(n) = r.input(0)?.len().checked_sub(2) else {
            return Err(r.error("needs an input with dims for batch and channels"));
        };
        let space = r.letters(26)?.into_iter().filter(|c| !"bcgi".contains(*c)).take(n).collect();
        Ok(Channels { inputs, space })
    }

    /// Returns the rule of input and output with these channels; all other inputs have only channels.
    fn rule(&self, channels: &Dim) -> RuleBuilder {
        let all = || ['b'.into(), channels.clone()].into_iter().chain(self.space.iter().map(|&c| c.into()));
        RuleBuilder::new().input(all()).inputs(self.inputs - 1, [channels.clone()]).output(all())
    }

    /// Returns the same rule, normalised over space, with the passings of weight and bias.
    fn normalised(&self, channels: &Dim) -> RuleBuilder {
        self.rule(channels).roles(self.space.iter().copied(), FactorKind::NeedReplication).passings(
            match self.inputs {
                1 => vec![],
                2 => vec![multilinear([1])],
                _ => vec![linear([1, 2]), affine([1, 2]), increasing([2])],
            },
        )
    }
}

/// `b(gc)hw,(gc),(gc)->b(gc)hw`: each group of channels is normalised separately.
pub(super) fn group(r: &BoundCall<'_>) -> Result<Op, Error> {
    let channels = Channels::of(r, 1, 3)?;
    let groups = r.size("groups")?;
    let rule = channels.normalised(&Dim::compound(['g', 'c']));
    r.op(&rule.size('g', groups).role('c', FactorKind::NeedReplication).build()?)
}

/// Each channel is normalised over the batch; in evaluation by the given statistics.
pub(super) fn batch(r: &BoundCall<'_>) -> Result<Op, Error> {
    if r.flag("training")? {
        let rule = Channels::of(r, 1, 3)?.normalised(&'c'.into());
        return r.op(&rule.role('b', FactorKind::NeedReplication).build()?);
    }
    let rule = Channels::of(r, 5, 5)?.rule(&'c'.into());
    r.op(&rule.passings([linear([1, 2]), affine([0, 1, 2]), increasing([2])]).build()?)
}

/// Each channel of each image is normalised separately.
pub(super) fn instance(r: &BoundCall<'_>) -> Result<Op, Error> {
    let channels = Channels::of(r, 1, 3)?;
    if channels.space.is_empty() {
        return Err(r.error("needs an input with batch, channels and space"));
    }
    r.op(&channels.normalised(&'c'.into()).build()?)
}
