//! Calls of the ops of model layers: products, normalisations, attention, windows and losses.

use super::draw::{Draw, Numbers};
use super::ops::{dim, positive};

pub(super) fn product(d: &mut Draw) {
    let x = d.of_rank(2, 3);
    let shape = d.shape_of(x);
    let (k, n) = (shape[shape.len() - 1], d.size());
    let y = match (d.r.below(9), shape.len()) {
        (0, _) => {
            let w = d.input(&[n, k], Numbers::Any);
            let b = d.input(&[n], Numbers::Any);
            d.call("linear", &[x, w, b])
        }
        (1, 2) => {
            let w = d.of_shape(&[k, n]);
            d.call("mm", &[x, w])
        }
        (2, 2) => {
            let (w, b) = (d.of_shape(&[k, n]), d.of_shape(&[n]));
            d.call("addmm(alpha=0.5)", &[b, x, w])
        }
        (3, 2) => {
            let w = d.of_shape(&[k]);
            d.call("mv", &[x, w])
        }
        (4, 2) => d.call("mk,nk->mn", &[x, x]),
        (5 | 6, 2) => {
            let w = d.of_shape(&[k, n]);
            let rule = *d.r.pick(&["mk,kn->mn", "mk,kn->nm", "mk,kn->m", "mk,kn->mkn"]);
            d.call(rule, &[x, w])
        }
        // One more dim, broadcast.
        (7, 3) => {
            let w = d.of_shape(&[2, 1, k, n]);
            d.call("matmul", &[x, w])
        }
        (8, 3) => {
            let (w, b) = (d.of_shape(&[shape[0], k, n]), d.of_shape(&[shape[0], shape[1], n]));
            d.call("baddbmm(beta=0.5)", &[b, x, w])
        }
        (7 | 8, _) => {
            let (a, b) = (d.of_rank(1, 1), d.of_rank(1, 1));
            d.call("outer", &[a, b])
        }
        (1, _) => {
            let w = d.of_shape(&[shape[0], k, n]);
            d.call("bmm", &[x, w])
        }
        (2, _) => {
            let w = d.of_shape(&[n, shape[1]]);
            d.call("bsk,ns->bnk", &[x, w])
        }
        (3, _) => {
            let w = d.of_shape(&shape);
            d.call("bqk,bsk->bqs", &[x, w])
        }
        (4, _) => {
            let w = d.of_shape(&[k]);
            d.call("abk,k->ab", &[x, w])
        }
        _ => {
            let w = d.of_shape(&[k, n]);
            d.call("matmul", &[x, w])
        }
    };
    // Keeps the magnitude of the numbers.
    d.call("mul_scalar(value=0.5)", &y);
}

pub(super) fn normalisation(d: &mut Draw) {
    let x = d.of_rank(2, 4);
    let shape = d.shape_of(x);
    let (last, channels) = (shape[shape.len() - 1], shape[1]);
    let at = dim(d, &shape);
    match d.r.below(9) {
        0 => d.call(&format!("softmax(dim={at})"), &[x]),
        1 => d.call(&format!("log_softmax(dim={at})"), &[x]),
        2 => d.call(&format!("softmin(dim={at})"), &[x]),
        3 => d.call("layer_norm(eps=0.1)", &[x]),
        4 => {
            let (w, b) = (d.of_shape(&[last]), d.of_shape(&[last]));
            d.call("layer_norm(eps=0.1)", &[x, w, b])
        }
        5 => {
            let w = d.of_shape(&[last]);
            d.call("rms_norm(eps=0.1)", &[x, w])
        }
        6 if shape.len() > 2 => {
            let groups = if channels.is_multiple_of(2) { 2 } else { 1 };
            d.call(&format!("group_norm(groups={groups},eps=0.1)"), &[x])
        }
        7 => {
            let (w, b) = (d.of_shape(&[channels]), d.of_shape(&[channels]));
            d.call("batch_norm(eps=0.1)", &[x, w, b])
        }
        _ => {
            let x = positive(d, x);
            d.call(&format!("normalize(dim={at})"), &[x])
        }
    };
}

pub(super) fn attention(d: &mut Draw) {
    let q = d.value(|s| s.len() == 4 && s.iter().product::<usize>() <= 200).unwrap_or_else(|| {
        let shape = [2, *d.r.pick(&[2, 4]), d.size(), 2];
        d.input(&shape, Numbers::Any)
    });
    let shape = d.shape_of(q);
    let heads = if shape[1].is_multiple_of(2) && d.r.below(3) == 0 { shape[1] / 2 } else { shape[1] };
    match d.r.below(4) {
        0 if shape[3].is_multiple_of(2) => {
            let side = [shape[2], shape[3]];
            let (a, b) = (d.of_shape(&side), d.of_shape(&side));
            d.call("rotary", &[q, a, b])
        }
        1 => {
            let kv = [shape[0], heads, shape[2], shape[3]];
            let (k, v) = (d.of_shape(&kv), d.of_shape(&kv));
            d.call("scaled_dot_product_attention(causal=true)", &[q, k, v])
        }
        _ => {
            let s = d.size();
            let (k, v) = (d.of_shape(&[shape[0], heads, s, shape[3]]), d.of_shape(&[shape[0], heads, s, 3]));
            d.call("scaled_dot_product_attention", &[q, k, v])
        }
    };
}

pub(super) fn window(d: &mut Draw) {
    let x = d.of_rank(3, 4);
    let shape = d.shape_of(x);
    let (c, o) = (shape[1], *d.r.pick(&[2, 4]));
    let wide = shape[2..].iter().all(|&n| n >= 3);
    match (d.r.below(6), shape.len()) {
        (0, 3) => {
            let (w, b) = (d.input(&[o, c, 2], Numbers::Any), d.of_shape(&[o]));
            d.call("conv1d(padding=1)", &[x, w, b])
        }
        (1, 3) => {
            let w = d.input(&[c, o, 2], Numbers::Any);
            d.call("conv_transpose1d(stride=2)", &[x, w])
        }
        (2, 3) if wide => d.call("avg_pool1d(kernel=2)", &[x]),
        (_, 3) if wide => d.call("max_pool1d(kernel=2)", &[x]),
        (0, 4) if wide => {
            let w = d.input(&[o, c, 3, 2], Numbers::Any);
            d.call("conv2d(stride=[1,2],padding=[1,0])", &[x, w])
        }
        (1, 4) if c.is_multiple_of(2) && wide => {
            let w = d.input(&[o, c / 2, 2, 2], Numbers::Any);
            d.call("conv2d(groups=2,padding=1)", &[x, w])
        }
        (2, 4) if wide => d.call("avg_pool2d(kernel=2)", &[x]),
        (3, 4) if wide => d.call("max_pool2d(kernel=2,stride=1)", &[x]),
        (4, 4) if c.is_multiple_of(4) => d.call("pixel_shuffle(factor=2)", &[x]),
        (5, 4) if shape[2].is_multiple_of(2) && shape[3].is_multiple_of(2) => {
            d.call("pixel_unshuffle(factor=2)", &[x])
        }
        _ => return,
    };
}

pub(super) fn loss(d: &mut Draw) {
    let x = d.of_rank(2, 3);
    let shape = d.shape_of(x);
    let reduction = *d.r.pick(&["mean", "sum", "none"]);
    match d.r.below(8) {
        0 | 1 => {
            let mut ids = shape.clone();
            let classes = ids.remove(1);
            let i = d.input(&ids, Numbers::Below(classes));
            let smooth = *d.r.pick(&["", ",label_smoothing=0.1", ",ignore_index=0"]);
            let smooth = if reduction == "mean" && smooth.contains("ignore") { "" } else { smooth };
            d.call(&format!("cross_entropy(reduction={reduction}{smooth})"), &[x, i])
        }
        2 => {
            let mut ids = shape.clone();
            let classes = ids.remove(1);
            let i = d.input(&ids, Numbers::Below(classes));
            d.call(&format!("nll_loss(reduction={reduction})"), &[x, i])
        }
        3 => {
            let t = d.input(&shape, Numbers::Unit);
            d.call(&format!("binary_cross_entropy_with_logits(reduction={reduction})"), &[x, t])
        }
        4 => {
            let (p, t) = (d.call("sigmoid", &[x])[0], d.input(&shape, Numbers::Unit));
            d.call(&format!("binary_cross_entropy(reduction={reduction})"), &[p, t])
        }
        5 => {
            let t = d.input(&shape, Numbers::Unit);
            d.call(&format!("kl_div(reduction={reduction})"), &[x, t])
        }
        _ => {
            let t = d.of_shape(&shape);
            let op = *d.r.pick(&["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"]);
            d.call(&format!("{op}(reduction={reduction})"), &[x, t])
        }
    };
}
