//! Norms, and distances between rows.

use super::{Defined, dim, list, others, real, word};

/// Norms that also return the moments by which they divided, which have gradients too.
#[rustfmt::skip]
pub(super) fn norms() -> Vec<Defined> {
    vec![
        (&["native_layer_norm"], |b| {
            let weights: Vec<String> = (0..b.forward().inputs().len()).map(|i| format!("x{i}")).collect();
            let inputs = if weights.len() == 1 { "x".to_owned() } else { weights.join(",") };
            let rank = b.forward().inputs()[0].len();
            let given = b.argument(|r| if r.has("dims")? { Ok(r.dims("dims")?.len()) } else { r.size("last") })?;
            let dims = list(rank.saturating_sub(given)..rank);
            let eps = real(b, "eps")?;
            let x = if weights.len() == 1 { "x" } else { "x0" };
            Ok(format!(
                "{inputs} -> y0,y1,y2: y0 = layer_norm({inputs},last={given},eps={eps}); y1 = mean({x},dims={dims},keepdim=true); \
                 v = var({x},dims={dims},keepdim=true,correction=0); e = add_scalar(v,value={eps}); y2 = rsqrt(e)"
            ))
        }),
        (&["fused_rms_norm"], |b| {
            let rank = b.forward().inputs()[0].len();
            let last = b.argument(|r| r.size("last"))?;
            let eps = b.argument(|r| if r.has("eps")? { r.real("eps").map(Some) } else { Ok(None) })?;
            let more = eps.map_or_else(|| "e = clone(m)".to_owned(), |eps| format!("e = add_scalar(m,value={eps})"));
            Ok(format!(
                "x0,x1 -> y0,y1: s = square(x0); m = mean(s,dims={},keepdim=true); {more}; y1 = rsqrt(e); n = mul(x0,y1); y0 = mul(n,x1)",
                list(rank.saturating_sub(last)..rank),
            ))
        }),
        (&["native_group_norm"], |b| {
            let (groups, eps) = (b.argument(|r| r.size("groups"))?, real(b, "eps")?);
            let n = b.forward().inputs()[0][0];
            Ok(format!(
                "x0,x1,x2 -> y0,y1,y2: y0 = group_norm(x0,x1,x2,groups={groups},eps={eps}); g = reshape(x0,shape=[{n},{groups},-1]); \
                 y1 = mean(g,dims=[2]); v = var(g,dims=[2],correction=0); e = add_scalar(v,value={eps}); y2 = rsqrt(e)"
            ))
        }),
        (&["native_batch_norm"], |b| {
            let (rank, eps) = (b.forward().inputs()[0].len(), real(b, "eps")?);
            let dims = list((0..rank).filter(|&d| d != 1));
            Ok(format!(
                "x0,x1,x2 -> y0,y1,y2: y0 = batch_norm(x0,x1,x2,eps={eps}); y1 = mean(x0,dims={dims}); v = var(x0,dims={dims},correction=0); \
                 e = add_scalar(v,value={eps}); y2 = rsqrt(e)"
            ))
        }),
    ]
}

#[rustfmt::skip]
pub(super) fn distances() -> Vec<Defined> {
    vec![
        (&["dist"], |b| Ok(format!("x0,x1 -> y: d = sub(x0,x1); y = linalg_vector_norm(d,p={})", word(b, "p")?))),
        (&["pairwise_distance"], |b| Ok(format!(
            "x0,x1 -> y: d = sub(x0,x1); e = add_scalar(d,value={}); y = linalg_vector_norm(e,p={},dims=[-1])",
            real(b, "eps")?, word(b, "p")?,
        ))),
        (&["cdist"], |b| Ok(format!(
            "x0,x1 -> y: i = unsqueeze(x0,dim=-2); j = unsqueeze(x1,dim=-3); d = sub(i,j); y = linalg_vector_norm(d,p={},dims=[-1])",
            word(b, "p")?,
        ))),
        (&["pdist"], |b| {
            // Each row with those after it: above the diagonal.
            let (n, k) = (b.forward().inputs()[0][0], b.forward().inputs()[0][1]);
            let pairs = b.forward().outputs()[0][0];
            Ok(format!(
                "x -> y: i = unsqueeze(x,dim=-2); j = unsqueeze(x,dim=-3); d = sub(i,j); o = ones(shape=[{n},{n}]); t = tril(o); m = logical_not(t); \
                 u = unsqueeze(m,dim=-1); e = expand(u,shape=[{n},{n},{k}]); s = masked_select(d,e,count={}); r = reshape(s,shape=[{pairs},{k}]); \
                 y = linalg_vector_norm(r,p={},dims=[-1])",
                pairs * k, word(b, "p")?,
            ))
        }),
        // A norm is clamped to at least eps, but its gradient is that of the unclamped norm.
        (&["cosine_similarity"], |b| {
            let (dim, eps) = (dim(b)?, real(b, "eps")?);
            Ok(format!(
                "x0,x1 -> y: p = mul(x0,x1); s = sum(p,dims=[{dim}]); a = linalg_vector_norm(x0,dims=[{dim}]); c = clamp_min(a,min={eps}); \
                 d = sub(c,a); e = detach(d); f = add(a,e); b = linalg_vector_norm(x1,dims=[{dim}]); g = clamp_min(b,min={eps}); h = sub(g,b); \
                 i = detach(h); j = add(b,i); q = mul(f,j); y = div(s,q)"
            ))
        }),
        (&["weight_norm"], |b| Ok(format!(
            "x0,x1 -> y: n = linalg_vector_norm(x0,dims={},keepdim=true); r = div(x1,n); y = mul(x0,r)", others(b, dim(b)?),
        ))),
        (&["renorm"], |b| Ok(format!(
            "x -> y: n = linalg_vector_norm(x,p={},dims={},keepdim=true); m = full(shape=[],fill_value={most}); g = gt(n,m); e = add_scalar(n,value=0.0000001); \
             r = reciprocal(e); s = mul_scalar(r,value={most}); o = ones_like(s); f = where(g,s,o); y = mul(x,f)",
            real(b, "p")?, others(b, dim(b)?), most = real(b, "maxnorm")?,
        ))),
        (&["clip_by_norm"], |b| Ok(format!(
            "x -> y: n = linalg_vector_norm(x); e = add_scalar(n,value={}); r = reciprocal(e); s = mul_scalar(r,value={}); f = clamp_max(s,max=1); y = mul(x,f)",
            real(b, "eps")?, real(b, "max_norm")?,
        ))),
        (&["scale_by_norm"], |b| Ok(format!(
            "x0,x1 -> y: e = add_scalar(x1,value={}); r = reciprocal(e); s = mul_scalar(r,value={}); f = clamp_max(s,max=1); y = mul(x0,f)",
            real(b, "eps")?, real(b, "max_norm")?,
        ))),
    ]
}
