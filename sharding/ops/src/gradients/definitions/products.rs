//! Products, cells of recurrent networks, and sums of neighbours.

use super::{Defined, dim, list, real, word};

#[rustfmt::skip]
pub(super) fn products() -> Vec<Defined> {
    vec![
        (&["addbmm", "addr"], |b| {
            let product = if b.name() == "addr" { "p = outer(x1,x2)" } else { "q = bmm(x1,x2); p = sum(q,dims=[0])" };
            Ok(format!(
                "x0,x1,x2 -> y: {product}; a = mul_scalar(p,value={}); b = mul_scalar(x0,value={}); y = add(b,a)",
                real(b, "alpha")?, real(b, "beta")?,
            ))
        }),
        (&["vecdot"], always!("x0,x1 -> y: p = mul(x0,x1); y = sum(p,dims=[-1])")),
        (&["cross"], |b| {
            let d = dim(b)?;
            Ok(format!(
                "x0,x1 -> y: a = roll(x0,shifts=[-1],dims=[{d}]); b = roll(x1,shifts=[-2],dims=[{d}]); p = mul(a,b); \
                 c = roll(x0,shifts=[-2],dims=[{d}]); d = roll(x1,shifts=[-1],dims=[{d}]); q = mul(c,d); y = sub(p,q)"
            ))
        }),
        (&["kron"], |b| Ok(format!(
            "x0,x1 -> y: p = ij,kl->ikjl(x0,x1); y = reshape(p,shape={})", list(b.forward().outputs()[0].iter().copied()),
        ))),
        (&["multi_dot"], |b| {
            let n = b.forward().inputs().len();
            let names: Vec<String> = (0..n).map(|i| format!("x{i}")).collect();
            let steps: Vec<String> = (1..n)
                .map(|i| {
                    let (left, made) = (if i == 1 { "x0".to_owned() } else { format!("p{i}") }, if i + 1 == n { "y".to_owned() } else { format!("p{}", i + 1) });
                    format!("{made} = mm({left},x{i})")
                })
                .collect();
            Ok(format!("{} -> y: {}", names.join(","), steps.join("; ")))
        }),
        (&["bilinear"], |b| {
            let shapes = b.forward().inputs();
            let (i, j) = (shapes[2][1], shapes[2][2]);
            Ok(format!(
                "x0,x1,x2 -> y: a = reshape(x0,shape=[-1,{i}]); b = reshape(x1,shape=[-1,{j}]); p = bi,bj,oij->bo(a,b,x2); y = reshape(p,shape={})",
                list(b.forward().outputs()[0].iter().copied()),
            ))
        }),
        (&["tensordot"], |b| {
            // The contracted dims as one.
            let (shapes, n) = (b.forward().inputs(), b.argument(|r| r.size("dims"))?);
            let size = |dims: &[usize]| dims.iter().product::<usize>();
            let (left, right) = shapes[0].split_at(shapes[0].len() - n);
            let k = size(right);
            Ok(format!(
                "x0,x1 -> y: a = reshape(x0,shape=[{},{k}]); b = reshape(x1,shape=[{k},{}]); p = mm(a,b); y = reshape(p,shape={})",
                size(left), size(&shapes[1][n..]), list(b.forward().outputs()[0].iter().copied()),
            ))
        }),
        (&["vander"], |b| {
            let n = b.argument(|r| r.size("columns"))?;
            Ok(format!("x -> y: u = unsqueeze(x,dim=1); a = arange(size={n}); e = flip(a); y = pow(u,e)"))
        }),
        (&["scaled_mm"], always!("x0,x1,x2,x3 -> y: p = mm(x0,x1); q = mul(p,x2); y = mul(q,x3)")),
        // Each row with the matrix of its group, which is the number of groups that ended before it.
        (&["grouped_mm"], |b| {
            let (rows, groups) = (b.forward().inputs()[0][0], b.forward().inputs()[1][0]);
            Ok(format!(
                "x0,x1,x2 -> y: a = arange(size={rows},start=1); g = searchsorted(x2,a); h = one_hot(g,classes={groups}); y = rg,rk,gkn->rn(h,x0,x1)"
            ))
        }),
        (&["polar"], always!("x0,x1 -> y: c = cos(x1); a = mul(x0,c); s = sin(x1); b = mul(x0,s); y = complex(a,b)")),
        (&["clamp_tensor"], always!("x0,x1,x2 -> y: m = maximum(x0,x1); y = minimum(m,x2)")),
        (&["ldexp"], always!("x0,x1 -> y: e = exp2(x1); y = mul(x0,e)")),
        (&["local_response_norm"], |b| {
            let (size, alpha, beta, k) = (b.argument(|r| r.size("size"))?, real(b, "alpha")?, real(b, "beta")?, real(b, "k")?);
            let zeros = "0,".repeat(2 * b.forward().inputs()[0].len().saturating_sub(2));
            Ok(format!(
                "x -> y: s = square(x); p = pad(s,pads=[{zeros}{},{}]); w = unfold_dim(p,dim=1,size={size}); m = mean(w,dims=[-1]); \
                 a = mul_scalar(m,value={alpha}); b = add_scalar(a,value={k}); d = pow_scalar(b,exponent={beta}); y = div(x,d)",
                size / 2, size.div_ceil(2) - 1,
            ))
        }),
        (&["lp_pool1d", "lp_pool2d", "lp_pool3d"], |b| {
            let n = b.forward().inputs()[0].len() - 2;
            let p = real(b, "norm_type")?;
            let [kernel, stride, padding] = ["kernel", "stride", "padding"].map(|key| b.argument(|r| r.spatial(key, n)));
            let kernel = kernel?;
            Ok(format!(
                "x -> y: a = abs(x); b = pow_scalar(a,exponent={p}); c = avg_pool{n}d(b,kernel={},stride={},padding={}); d = mul_scalar(c,value={}); \
                 y = pow_scalar(d,exponent={})",
                list(kernel.iter().copied()), list(stride?.into_iter()), list(padding?.into_iter()), kernel.iter().product::<usize>(), 1.0 / p,
            ))
        }),
        (&["embedding_bag"], |b| Ok(format!("x0,x1 -> y: r = embedding(x0,x1); y = {}(r,dims=[1])", word(b, "mode")?))),
        (&["meshgrid"], |b| {
            let sizes: Vec<usize> = b.forward().inputs().iter().map(|s| s.iter().product()).collect();
            let n = sizes.len();
            let [of_x, of_y] = ["x", "y"].map(|letter| (0..n).map(|i| format!("{letter}{i}")).collect::<Vec<_>>().join(","));
            let of_x = if n == 1 { "x".to_owned() } else { of_x };
            let all = list(sizes.iter().copied());
            let steps: Vec<String> = (0..n)
                .map(|i| {
                    let own = list((0..n).map(|j| if i == j { sizes[i] } else { 1 }));
                    let x = if n == 1 { "x".to_owned() } else { format!("x{i}") };
                    format!("a{i} = reshape({x},shape={own}); y{i} = expand(a{i},shape={all})")
                })
                .collect();
            Ok(format!("{of_x} -> {of_y}: {}", steps.join("; ")))
        }),
    ]
}

#[rustfmt::skip]
pub(super) fn cells() -> Vec<Defined> {
    vec![
        (&["rnn_tanh_cell"], always!("x0,x1,x2,x3,x4,x5 -> y: a = linear(x0,x2,x4); b = linear(x1,x3,x5); c = add(a,b); y = tanh(c)")),
        (&["rnn_relu_cell"], always!("x0,x1,x2,x3,x4,x5 -> y: a = linear(x0,x2,x4); b = linear(x1,x3,x5); c = add(a,b); y = relu(c)")),
        (&["lstm_cell"], always!(
            "x0,x1,x2,x3,x4,x5,x6 -> y0,y1: a = linear(x0,x3,x5); b = linear(x1,x4,x6); c = add(a,b); d,e,f,g = tensor_split(c,sections=4,dim=1); \
             i = sigmoid(d); h = sigmoid(e); j = tanh(f); o = sigmoid(g); p = mul(h,x2); q = mul(i,j); y1 = add(p,q); t = tanh(y1); y0 = mul(o,t)"
        )),
        (&["gru_cell"], always!(
            "x0,x1,x2,x3,x4,x5 -> y: a = linear(x0,x2,x4); b = linear(x1,x3,x5); c,d,e = tensor_split(a,sections=3,dim=1); \
             f,g,h = tensor_split(b,sections=3,dim=1); i = add(c,f); r = sigmoid(i); j = add(d,g); z = sigmoid(j); k = mul(r,h); l = add(e,k); n = tanh(l); \
             m = sub(x1,n); p = mul(z,m); y = add(n,p)"
        )),
    ]
}
