//! Moments, orders, and differences along a dim.

use super::super::builder::GradientBuilder;
use super::{Defined, dim, list, real, reduction};
use crate::Error;

#[rustfmt::skip]
pub(super) fn statistics() -> Vec<Defined> {
    vec![
        (&["var_mean", "std_mean"], |b| {
            let spread = b.name().split('_').next().unwrap_or_default();
            let (dims, correction) = (reduction(b, "dims")?, b.argument(|r| r.size("correction"))?);
            Ok(format!("x -> y0,y1: y0 = {spread}(x,{dims},correction={correction}); y1 = mean(x,{dims})"))
        }),
        (&["aminmax"], |b| {
            let dims = reduction(b, "dim")?;
            Ok(format!("x -> y0,y1: y0 = amin(x,{dims}); y1 = amax(x,{dims})"))
        }),
        (&["nansum"], |b| Ok(format!("x -> y: k = isnan(x); m = masked_fill(x,k,value=0); y = sum(m,{})", reduction(b, "dims")?))),
        (&["nanmean"], |b| {
            let dims = reduction(b, "dims")?;
            Ok(format!(
                "x -> y: k = isnan(x); m = masked_fill(x,k,value=0); s = sum(m,{dims}); h = logical_not(k); n = sum(h,{dims}); y = div(s,n)"
            ))
        }),
        (&["cov"], |b| Ok(format!(
            "x -> y: m = mean(x,dims=[1],keepdim=true); c = sub(x,m); t = t(c); p = mm(c,t); y = div_scalar(p,value={})",
            b.forward().inputs()[0][1].max(2) - 1,
        ))),
        (&["corrcoef"], always!(
            "x -> y: m = mean(x,dims=[1],keepdim=true); c = sub(x,m); t = t(c); p = mm(c,t); v = diagonal(p); d = sqrt(v); \
             r = unsqueeze(d,dim=1); q = div(p,r); y = div(q,d)"
        )),
        (&["trace"], always!("x -> y: d = diagonal(x); y = sum(d)")),
        (&["gradient"], |b| {
            // One-sided at both ends, and half of the difference of both neighbours elsewhere.
            let dim = dim(b)?;
            let n = b.forward().inputs()[0][dim];
            let ends = format!("f = narrow(d,dim={dim},start=0,length=1); l = narrow(d,dim={dim},start={},length=1)", n.saturating_sub(2));
            let start = format!("x -> y: d = diff(x,dim={dim}); {ends}");
            if n < 3 {
                return Ok(format!("{start}; y = cat(f,l,dim={dim})"));
            }
            let m = n - 2;
            Ok(format!(
                "{start}; a = narrow(d,dim={dim},start=0,length={m}); b = narrow(d,dim={dim},start=1,length={m}); \
                 s = add(a,b); m = mul_scalar(s,value=0.5); y = cat(f,m,l,dim={dim})"
            ))
        }),
        (&["trapezoid", "cumulative_trapezoid"], |b| {
            let dim = dim(b)?;
            let n = b.forward().inputs()[0][dim].saturating_sub(1);
            let sum = if b.name() == "trapezoid" { format!("sum(m,dims=[{dim}])") } else { format!("cumsum(m,dim={dim})") };
            Ok(format!(
                "x -> y: a = narrow(x,dim={dim},start=0,length={n}); b = narrow(x,dim={dim},start=1,length={n}); s = add(a,b); \
                 m = mul_scalar(s,value=0.5); y = {sum}"
            ))
        }),
        (&["diff"], |b| {
            let (dim, order) = (dim(b)?, b.argument(|r| r.size("order"))?);
            let n = b.forward().inputs()[0][dim];
            let order = order.min(n);
            let steps = (0..order).map(|k| {
                let left = n - k - 1;
                format!(
                    "a{k} = narrow(d{k},dim={dim},start=0,length={left}); b{k} = narrow(d{k},dim={dim},start=1,length={left}); d{} = sub(b{k},a{k}); ",
                    k + 1
                )
            });
            Ok(format!("x -> y: d0 = clone(x); {}y = clone(d{order})", steps.collect::<String>()))
        }),
        (&["quantile"], |b| sorted(b, real(b, "q")?, false)),
        (&["nanquantile"], |b| sorted_numbers(b, real(b, "q")?, false)),
        (&["mvlgamma"], |b| Ok(format!(
            "x -> y: a = arange(size={}); h = mul_scalar(a,value=0.5); u = unsqueeze(x,dim=-1); s = sub(u,h); l = lgamma(s); y = sum(l,dims=[-1])",
            b.argument(|r| r.size("p"))?,
        ))),
    ]
}

/// The quantile `q` of sorted elements, interpolated between two neighbours, or the lower one of them.
pub(super) fn sorted(b: &GradientBuilder<'_>, q: f64, lower: bool) -> Result<String, Error> {
    let shape = b.forward().inputs()[0].clone();
    let all = !b.argument(|r| r.has("dim"))?;
    let dim = if all { 0 } else { b.argument(|r| r.dims("dim"))?[0] };
    let n = if all { shape.iter().product() } else { shape[dim] };
    let at = q * n.saturating_sub(1) as f64;
    let (low, high) = (at.floor(), at.ceil());
    let output = list(b.forward().outputs()[0].iter().copied());
    let flat = if all { "f = reshape(x,shape=[-1])" } else { "f = clone(x)" };
    let start = format!("x -> y: {flat}; s,_ = sort(f,dim={dim}); l = select(s,dim={dim},index={low})");
    if lower {
        return Ok(format!("{start}; y = reshape(l,shape={output})"));
    }
    let part = at - low;
    Ok(format!(
        "{start}; h = select(s,dim={dim},index={high}); d = sub(h,l); p = mul_scalar(d,value={part}); v = add(l,p); y = reshape(v,shape={output})"
    ))
}

/// The same quantile of the elements that are not NaN; these are sorted first, and they are counted.
pub(super) fn sorted_numbers(b: &GradientBuilder<'_>, q: f64, lower: bool) -> Result<String, Error> {
    let all = !b.argument(|r| r.has("dim"))?;
    let dim = if all { 0 } else { b.argument(|r| r.dims("dim"))?[0] };
    let output = list(b.forward().outputs()[0].iter().copied());
    let flat = if all { "f = reshape(x,shape=[-1])" } else { "f = clone(x)" };
    let start = format!(
        "x -> y: {flat}; s,_ = sort(f,dim={dim}); i = isnan(f); j = logical_not(i); c = sum(j,dims=[{dim}],keepdim=true); o = sub_scalar(c,value=1); \
         m = clamp_min(o,min=0); a = mul_scalar(m,value={q}); e = floor(a); u = cast(e,dtype=i64); l = gather(s,u,dim={dim})"
    );
    if lower {
        return Ok(format!("{start}; y = reshape(l,shape={output})"));
    }
    Ok(format!(
        "{start}; g = ceil(a); w = cast(g,dtype=i64); h = gather(s,w,dim={dim}); d = sub(h,l); t = sub(a,e); p = mul(d,t); v = add(l,p); y = reshape(v,shape={output})"
    ))
}
