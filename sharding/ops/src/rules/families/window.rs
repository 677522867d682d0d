//! Windows over space: space stays whole, batch and channels may be sharded.

use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::builder::RuleBuilder;
use crate::rules::factor::{Dim, FactorKind};
use crate::rules::op::Op;
use crate::rules::partial_rule::PartialRule;
use crate::rules::rule::Rule;
use crate::rules::terms::{ALL, P, affine, increasing, linear, multilinear, row, s, selecting};

/// The size of an output dim.
pub(super) fn extent(
    r: &BoundCall<'_>,
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
) -> Result<usize, Error> {
    let span = kernel.checked_sub(1).and_then(|k| k.checked_mul(dilation)).and_then(|k| k.checked_add(1));
    let padded = padding.checked_mul(2).and_then(|p| p.checked_add(size));
    match (padded, span) {
        (Some(padded), Some(span)) if padded >= span => Ok((padded - span) / stride + 1),
        _ => Err(r.error(format!(
            "a window of {kernel} with dilation {dilation} does not fit into {size} padded by {padding}"
        ))),
    }
}

/// A dim of channels and dims of space, which stay whole, after a first dim.
pub(super) fn with_space(first: Dim, channels: Dim, spatial: usize) -> Vec<Dim> {
    [first, channels].into_iter().chain(std::iter::repeat_n(Dim::Whole, spatial)).collect()
}

/// Returns a factor within each of `groups` groups; a single group is not a factor.
fn grouped(groups: usize, factor: char) -> Dim {
    if groups == 1 { factor.into() } else { Dim::compound(['g', factor]) }
}

/// `bi**` or `b(gi)**`, this weight, and perhaps a bias of the output's channels.
///
/// Each rank adds a partial value of the bias where the product is partial.
fn convolved(
    rule: RuleBuilder,
    groups: usize,
    weight: Vec<Dim>,
    bias: bool,
    spatial: usize,
) -> Result<Rule, Error> {
    let out = grouped(groups, 'o');
    let mut rule = rule
        .input(with_space('b'.into(), grouped(groups, 'i'), spatial))
        .input(weight)
        .output(with_space('b'.into(), out.clone(), spatial));
    if groups != 1 {
        rule = rule.size('g', groups);
    }
    if bias {
        rule = rule.input([out]).role('i', FactorKind::NeedReplication).passings([
            row([s('i'), s('i'), P], [P]),
            linear([0, 2]),
            linear([1, 2]),
            affine(ALL),
            increasing([2]),
        ]);
    } else {
        rule = rule.passing(multilinear(ALL));
    }
    rule.build()
}

/// The shapes of input and weight.
type Pair<'a> = (&'a [usize], &'a [usize]);

/// Input and weight, whether there is a bias, and the number of spatial dims.
fn operands<'a>(r: &'a BoundCall<'_>, spatial: Option<usize>) -> Result<(Pair<'a>, bool, usize), Error> {
    let bias = r.inputs_of(2..=3)? == 3;
    let (x, w) = (r.inputs[0], r.inputs[1]);
    let n = spatial.unwrap_or(x.len().saturating_sub(2));
    if x.len() != n + 2 || w.len() != n + 2 || n == 0 {
        return Err(r.error(format!(
            "needs an input and a weight with two dims and {} spatial dims each",
            spatial.map_or("as many".to_owned(), |n| n.to_string())
        )));
    }
    Ok(((x, w), bias, n))
}

/// `b(gi)**,(go)i**->b(go)**`, without `g` where there is one group.
pub(super) fn conv(r: &BoundCall<'_>, spatial: Option<usize>) -> Result<Op, Error> {
    let ((x, w), bias, n) = operands(r, spatial)?;
    let groups = r.size("groups")?;
    let (stride, padding, dilation) =
        (r.spatial("stride", n)?, r.spatial("padding", n)?, r.spatial("dilation", n)?);
    let mut out = vec![x[0], w[0]];
    for d in 0..n {
        out.push(extent(r, x[d + 2], w[d + 2], stride[d], padding[d], dilation[d])?);
    }
    let weight = with_space(grouped(groups, 'o'), 'i'.into(), n);
    r.op_to(&convolved(RuleBuilder::new(), groups, weight, bias, n)?, &[&out])
}

/// The transpose of a convolution: `bi**,io**->bo**`.
pub(super) fn conv_transpose(r: &BoundCall<'_>, n: usize) -> Result<Op, Error> {
    let ((x, w), bias, n) = operands(r, Some(n))?;
    let groups = r.size("groups")?;
    let (stride, padding) = (r.spatial("stride", n)?, r.spatial("padding", n)?);
    let channels = w[1]
        .checked_mul(groups)
        .ok_or_else(|| Error::overflow("the channels of a convolution".to_owned()))?;
    let mut out = vec![x[0], channels];
    for d in 0..n {
        let reach = x[d + 2]
            .checked_sub(1)
            .and_then(|k| k.checked_mul(stride[d]))
            .and_then(|k| k.checked_add(w[d + 2]));
        let size = reach.and_then(|k| k.checked_sub(padding[d].checked_mul(2)?));
        out.push(size.ok_or_else(|| r.error(format!("the size of spatial dim {d} would be negative")))?);
    }
    let weight = with_space(grouped(groups, 'i'), 'o'.into(), n);
    // The channels of neither operand determine how many groups a rank has.
    let rule = RuleBuilder::new().regions((groups != 1).then_some('g'));
    r.op_to(&convolved(rule, groups, weight, bias, n)?, &[&out])
}

/// `bc**->bc**`.
pub(super) fn pool(
    r: &BoundCall<'_>,
    n: usize,
    outputs: usize,
    terms: Option<PartialRule>,
) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let x = r.inputs[0];
    if x.len() != n + 2 {
        return Err(r.error(format!("needs an input with batch, channels and {n} spatial dims")));
    }
    let (kernel, stride, padding) =
        (r.spatial("kernel", n)?, r.spatial("stride", n)?, r.spatial("padding", n)?);
    let mut out = vec![x[0], x[1]];
    for d in 0..n {
        out.push(extent(r, x[d + 2], kernel[d], stride[d], padding[d], 1)?);
    }
    let dims = with_space('b'.into(), 'c'.into(), n);
    let rule = RuleBuilder::new().input(dims.clone()).outputs(outputs, dims).passings(terms);
    r.op_to(&rule.build()?, &vec![out.as_slice(); outputs])
}

/// Resizes space, by nearest or interpolated values.
pub(super) fn interpolate(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let x = r.inputs[0];
    if x.len() < 3 {
        return Err(r.error("needs an input with batch, channels and space"));
    }
    let size = r.spatial("size", x.len() - 2)?;
    let terms = match r.word("mode")?.as_str() {
        "nearest" | "nearest_exact" => selecting(ALL),
        _ => linear(ALL),
    };
    let dims = with_space('b'.into(), 'c'.into(), size.len());
    let rule = RuleBuilder::new().input(dims.clone()).output(dims).passing(terms);
    r.op_to(&rule.build()?, &[&[&x[..2], &size[..]].concat()])
}

/// `b(crs)hw->bc(hr)(ws)`.
pub(super) fn pixel_shuffle(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let f = r.size("factor")?;
    let rule = RuleBuilder::new()
        .input(['b'.into(), Dim::compound(['c', 'r', 's']), 'h'.into(), 'w'.into()])
        .output(['b'.into(), 'c'.into(), Dim::compound(['h', 'r']), Dim::compound(['w', 's'])])
        .size('r', f)
        .size('s', f)
        .roles(['r', 's'], FactorKind::NeedReplication)
        .passing(selecting(ALL));
    r.op(&rule.build()?)
}
