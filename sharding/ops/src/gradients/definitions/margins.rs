//! Losses of pairs, margins and several classes.

use super::super::builder::GradientBuilder;
use super::{Defined, flag, real, word};
use crate::Error;

#[rustfmt::skip]
pub(super) fn margins() -> Vec<Defined> {
    vec![
        (&["soft_margin_loss"], |b| Ok(format!("x0,x1 -> y: p = mul(x0,x1); n = neg(p); l = softplus(n); {}", reduced(b)?))),
        (&["hinge_embedding_loss"], |b| Ok(format!(
            "x0,x1 -> y: r = rsub_scalar(x0,value={}); h = relu(r); s = sign(x1); p = relu(s); t = cast(p,dtype=bool); l = where(t,x0,h); {}",
            real(b, "margin")?, reduced(b)?,
        ))),
        (&["poisson_nll_loss"], |b| {
            let eps = real(b, "eps")?;
            let own = if flag(b, "log_input")? {
                "e = exp(x0); p = mul(x1,x0); a = sub(e,p)".to_owned()
            } else {
                format!("e = add_scalar(x0,value={eps}); g = log(e); p = mul(x1,g); a = sub(x0,p)")
            };
            // Stirling's x1 log x1 - x1 + log(2 pi x1) / 2, for elements greater than 1.
            let rest = if flag(b, "full")? {
                "; i = log(x1); j = mul(x1,i); k = sub(j,x1); t = mul_scalar(x1,value=6.283185307179586); u = log(t); v = mul_scalar(u,value=0.5); \
                 w = add(k,v); o = ones_like(x1); c = gt(x1,o); z = zeros_like(w); s = where(c,w,z); l = add(a,s)"
            } else {
                "; l = clone(a)"
            };
            Ok(format!("x0,x1 -> y: {own}{rest}; {}", reduced(b)?))
        }),
        // The variance is clamped to at least eps, but its gradient is that of the unclamped variance.
        (&["gaussian_nll_loss"], |b| Ok(format!(
            "x0,x1,x2 -> y: c = clamp_min(x2,min={}); d = sub(c,x2); e = detach(d); v = add(x2,e); g = log(v); m = sub(x0,x1); s = square(m); q = div(s,v); \
             a = add(g,q); l = mul_scalar(a,value=0.5); {}",
            real(b, "eps")?, reduced(b)?,
        ))),
        (&["margin_ranking_loss"], |b| Ok(format!(
            "x0,x1,x2 -> y: d = sub(x0,x1); p = mul(x2,d); r = rsub_scalar(p,value={}); l = relu(r); {}", real(b, "margin")?, reduced(b)?,
        ))),
        (&["triplet_margin_loss"], |b| {
            let (eps, p) = (real(b, "eps")?, real(b, "p")?);
            Ok(format!(
                "x0,x1,x2 -> y: a = sub(x0,x1); b = add_scalar(a,value={eps}); c = linalg_vector_norm(b,p={p},dims=[1]); d = sub(x0,x2); \
                 e = add_scalar(d,value={eps}); f = linalg_vector_norm(e,p={p},dims=[1]); g = sub(c,f); h = add_scalar(g,value={}); l = relu(h); {}",
                real(b, "margin")?, reduced(b)?,
            ))
        }),
        (&["cosine_embedding_loss"], |b| Ok(format!(
            "x0,x1,x2 -> y: p = mul(x0,x1); s = sum(p,dims=[1]); a = square(x0); b = sum(a,dims=[1]); c = add_scalar(b,value=0.000000000001); \
             d = square(x1); e = sum(d,dims=[1]); f = add_scalar(e,value=0.000000000001); g = mul(c,f); h = sqrt(g); i = div(s,h); \
             j = rsub_scalar(i,value=1); k = sub_scalar(i,value={}); m = relu(k); n = sign(x2); o = relu(n); t = cast(o,dtype=bool); l = where(t,j,m); {}",
            real(b, "margin")?, reduced(b)?,
        ))),
        (&["multi_margin_loss"], |b| {
            let n = b.forward().inputs()[0][1];
            let p = b.argument(|r| r.size("p"))?;
            let power = if p == 1 { "m = clone(k)".to_owned() } else { format!("m = pow_scalar(k,exponent={p})") };
            Ok(format!(
                "x0,x1 -> y: a = one_hot(x1,classes={n}); b = mul(x0,a); c = sum(b,dims=[1],keepdim=true); d = sub(x0,c); e = add_scalar(d,value={}); \
                 f = relu(e); g = rsub_scalar(a,value=1); k = mul(f,g); {power}; s = sum(m,dims=[1]); l = div_scalar(s,value={n}); {}",
                real(b, "margin")?, reduced(b)?,
            ))
        }),
        // Each target class with each other class.
        (&["multilabel_margin_loss"], |b| Ok(format!(
            "x0,x1 -> y: h = full(shape=[],fill_value=0.5); i = gt(x1,h); n = logical_not(i); a = unsqueeze(x0,dim=2); b = unsqueeze(x0,dim=1); \
             c = sub(b,a); d = add_scalar(c,value=1); e = relu(d); p = unsqueeze(i,dim=2); q = unsqueeze(n,dim=1); f = mul(e,p); g = mul(f,q); \
             s = sum(g,dims=[1,2]); l = div_scalar(s,value={}); {}",
            b.forward().inputs()[0][1].max(1), reduced(b)?,
        ))),
        (&["multilabel_soft_margin_loss"], |b| Ok(format!(
            "x0,x1 -> y: e = binary_cross_entropy_with_logits(x0,x1,reduction=none); l = mean(e,dims=[1]); {}", reduced(b)?,
        ))),
    ]
}

/// Returns the reduction of the losses `l`: their mean, their sum or all of them.
fn reduced(b: &GradientBuilder<'_>) -> Result<&'static str, Error> {
    Ok(match word(b, "reduction")?.as_str() {
        "mean" => "y = mean(l)",
        "sum" => "y = sum(l)",
        _ => "y = clone(l)",
    })
}
