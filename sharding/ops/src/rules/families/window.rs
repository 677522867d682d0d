//! Windows over space: space stays whole, batch and channels may be sharded.

use crate::Error;
use crate::rules::op::Op;
use crate::rules::request::Request;

/// The size of an output dim.
fn extent(
    r: &Request<'_>,
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

/// Terms of a convolution with and without a bias, of which each rank adds a term where the product is in terms.
fn terms(bias: bool) -> &'static str {
    if bias {
        "i: replicate, (S(i),S(i),P -> P), linear(0,2), linear(1,2), affine, increasing(2)"
    } else {
        "multilinear"
    }
}

/// The shapes of input and weight.
type Pair<'a> = (&'a [usize], &'a [usize]);

/// Input and weight, whether there is a bias, and the number of spatial dims.
fn operands<'a>(r: &'a Request<'_>, spatial: Option<usize>) -> Result<(Pair<'a>, bool, usize), Error> {
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
pub(super) fn conv(r: &Request<'_>, spatial: Option<usize>) -> Result<Op, Error> {
    let ((x, w), bias, n) = operands(r, spatial)?;
    let groups = r.at_least("groups", 1, 1)?;
    let (stride, padding, dilation) =
        (r.spatial("stride", n, 1, 1)?, r.spatial("padding", n, 0, 0)?, r.spatial("dilation", n, 1, 1)?);
    let mut out = vec![x[0], w[0]];
    for d in 0..n {
        out.push(extent(r, x[d + 2], w[d + 2], stride[d], padding[d], dilation[d])?);
    }
    let space = "*".repeat(n);
    let terms = terms(bias);
    let rule = match (groups, bias) {
        (1, false) => format!("bi{space},oi{space}->bo{space} {{{terms}}}"),
        (1, true) => format!("bi{space},oi{space},o->bo{space} {{{terms}}}"),
        (_, false) => format!("b(gi){space},(go)i{space}->b(go){space} {{g: {groups}, {terms}}}"),
        (_, true) => format!("b(gi){space},(go)i{space},(go)->b(go){space} {{g: {groups}, {terms}}}"),
    };
    r.op_to(&rule, &[&out])
}

/// The transpose of a convolution: `bi**,io**->bo**`.
pub(super) fn conv_transpose(r: &Request<'_>, n: usize) -> Result<Op, Error> {
    let ((x, w), bias, n) = operands(r, Some(n))?;
    let groups = r.at_least("groups", 1, 1)?;
    let (stride, padding) = (r.spatial("stride", n, 1, 1)?, r.spatial("padding", n, 0, 0)?);
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
        out.push(size.ok_or_else(|| r.error(format!("spatial dim {d} would be less than nothing")))?);
    }
    let space = "*".repeat(n);
    let terms = terms(bias);
    let rule = match (groups, bias) {
        (1, false) => format!("bi{space},io{space}->bo{space} {{{terms}}}"),
        (1, true) => format!("bi{space},io{space},o->bo{space} {{{terms}}}"),
        (_, false) => format!("b(gi){space},(gi)o{space}->b(go){space} {{g: {groups}, {terms}}}"),
        (_, true) => format!("b(gi){space},(gi)o{space},(go)->b(go){space} {{g: {groups}, {terms}}}"),
    };
    r.op_to(&rule, &[&out])
}

/// `bc**->bc**`.
pub(super) fn pool(r: &Request<'_>, n: usize, outputs: usize, terms: &str) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let x = r.inputs[0];
    if x.len() != n + 2 {
        return Err(r.error(format!("needs an input with batch, channels and {n} spatial dims")));
    }
    if r.call.argument("kernel").is_none() {
        return Err(r.error("needs kernel: write kernel=2"));
    }
    let kernel = r.spatial("kernel", n, 1, 1)?;
    let padding = r.spatial("padding", n, 0, 0)?;
    let stride =
        if r.call.argument("stride").is_some() { r.spatial("stride", n, 1, 1)? } else { kernel.clone() };
    let mut out = vec![x[0], x[1]];
    for d in 0..n {
        out.push(extent(r, x[d + 2], kernel[d], stride[d], padding[d], 1)?);
    }
    let dims = format!("bc{}", "*".repeat(n));
    let rule = format!("{dims}->{} {{{terms}}}", vec![dims.as_str(); outputs].join(","));
    r.op_to(&rule, &vec![out.as_slice(); outputs])
}

/// Another size of space: the nearest values, or weighted ones.
pub(super) fn interpolate(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let x = r.inputs[0];
    if x.len() < 3 {
        return Err(r.error("needs an input with batch, channels and space"));
    }
    if r.call.argument("size").is_none() {
        return Err(r.error("needs size: write size=[8,8]"));
    }
    let size = r.spatial("size", x.len() - 2, 1, 1)?;
    let terms = match r.word("mode", &["nearest", "linear"])? {
        "nearest" => "selecting",
        _ => "linear",
    };
    let dims = format!("bc{}", "*".repeat(size.len()));
    r.op_to(&format!("{dims}->{dims} {{{terms}}}"), &[&[&x[..2], &size[..]].concat()])
}

/// `b(crs)hw->bc(hr)(ws)`.
pub(super) fn pixel_shuffle(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let f = r.required("factor", 1)?;
    r.op(&format!("b(crs)hw->bc(hr)(ws) {{r: {f} replicate, s: {f} replicate, selecting}}"))
}
