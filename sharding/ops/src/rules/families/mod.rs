//! Families: ops whose rule depends on arguments or on shapes.

mod attention;
mod factory;
mod index;
mod loss;
mod normalize;
mod pieces;
mod product;
mod reduce;
mod reshape;
mod window;

use crate::Error;
use crate::rules::op::Op;
use crate::rules::request::Request;

/// A family: its name, the names of its arguments, and its rules.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) parameters: &'static [&'static str],
    pub(super) make: fn(&Request<'_>) -> Result<Op, Error>,
}

macro_rules! families {
    ($($name:literal ($($parameter:literal),*) => $make:expr;)*) => {
        /// All of them.
        #[rustfmt::skip]
        pub(super) const ALL: &[Family] = &[
            $(Family { name: $name, parameters: &[$($parameter),*], make: $make },)*
        ];
    };
}

families! {
    // Reductions: over all dims where none is given.
    "sum" ("dims", "keepdim") => |r| reduce::fold(r, "sum", "");
    "mean" ("dims", "keepdim") => |r| reduce::fold(r, "avg", "linear");
    "prod" ("dims", "keepdim") => |r| reduce::fold(r, "prod", "");
    "amax" ("dims", "keepdim") => |r| reduce::fold(r, "max", "");
    "amin" ("dims", "keepdim") => |r| reduce::fold(r, "min", "");
    "any" ("dims", "keepdim") => |r| reduce::fold(r, "max", "none");
    "all" ("dims", "keepdim") => |r| reduce::fold(r, "min", "none");
    "count_nonzero" ("dims", "keepdim") => |r| reduce::fold(r, "sum", "none");
    "var" ("dims", "keepdim") => |r| reduce::fold(r, "replicate", "none");
    "std" ("dims", "keepdim") => |r| reduce::fold(r, "replicate", "none");
    "logsumexp" ("dims", "keepdim") => |r| reduce::fold(r, "replicate", "none");
    "norm" ("p", "dims", "keepdim") => reduce::norm;
    "argmax" ("dim", "keepdim") => |r| reduce::one_dim(r, 1);
    "argmin" ("dim", "keepdim") => |r| reduce::one_dim(r, 1);
    "max" ("dim", "keepdim") => |r| reduce::one_dim(r, 2);
    "min" ("dim", "keepdim") => |r| reduce::one_dim(r, 2);
    "median" ("dim", "keepdim") => |r| reduce::one_dim(r, 1);
    // Along a dim in which everything depends on everything.
    "softmax" ("dim") => |r| normalize::along(r, 1, "none");
    "log_softmax" ("dim") => |r| normalize::along(r, 1, "none");
    "cumsum" ("dim") => |r| normalize::along(r, 1, "linear");
    "cumprod" ("dim") => |r| normalize::along(r, 1, "(P(prod) -> P(prod))");
    "cummax" ("dim") => |r| normalize::along(r, 1, "(P(max) -> P(max))");
    "cummin" ("dim") => |r| normalize::along(r, 1, "(P(min) -> P(min))");
    "logcumsumexp" ("dim") => |r| normalize::along(r, 1, "none");
    "normalize" ("dim") => |r| normalize::along(r, 1, "none");
    "sort" ("dim") => |r| normalize::along(r, 2, "none");
    "argsort" ("dim") => |r| normalize::along(r, 1, "none");
    "topk" ("k", "dim") => normalize::topk;
    "unique" ("count") => normalize::unique;
    "fft" ("dims") => normalize::fft;
    "clip_by_norm" () => normalize::clip;
    "layer_norm" ("dims") => |r| normalize::layer(r, &["linear(1,2)", "affine(2)", "increasing(2)", "(R,P(avg),R -> P(avg))"]);
    "native_layer_norm" ("dims") => normalize::native_layer;
    "rms_norm" ("dims") => |r| normalize::layer(r, &["multilinear(1)"]);
    "group_norm" ("groups") => normalize::group;
    "batch_norm" ("training") => normalize::batch;
    "instance_norm" () => normalize::instance;
    // Products.
    "matmul" () => product::matmul;
    "linear" () => product::linear;
    "addmm" () => |r| product::added(r, "", "mk", "kn", "mn");
    "baddbmm" () => |r| product::added(r, "b", "mk", "kn", "mn");
    "addmv" () => |r| product::added(r, "", "mk", "k", "m");
    // Windows.
    "conv1d" ("stride", "padding", "dilation", "groups") => |r| window::conv(r, Some(1));
    "conv2d" ("stride", "padding", "dilation", "groups") => |r| window::conv(r, Some(2));
    "conv3d" ("stride", "padding", "dilation", "groups") => |r| window::conv(r, Some(3));
    "convolution" ("stride", "padding", "dilation", "groups") => |r| window::conv(r, None);
    "conv_transpose1d" ("stride", "padding", "groups") => |r| window::conv_transpose(r, 1);
    "conv_transpose2d" ("stride", "padding", "groups") => |r| window::conv_transpose(r, 2);
    "conv_transpose3d" ("stride", "padding", "groups") => |r| window::conv_transpose(r, 3);
    "max_pool1d" ("kernel", "stride", "padding") => |r| window::pool(r, 1, 1, "(P(max) -> P(max))");
    "max_pool2d" ("kernel", "stride", "padding") => |r| window::pool(r, 2, 1, "(P(max) -> P(max))");
    "max_pool3d" ("kernel", "stride", "padding") => |r| window::pool(r, 3, 1, "(P(max) -> P(max))");
    "max_pool2d_with_indices" ("kernel", "stride", "padding") => |r| window::pool(r, 2, 2, "none");
    "avg_pool1d" ("kernel", "stride", "padding") => |r| window::pool(r, 1, 1, "linear");
    "avg_pool2d" ("kernel", "stride", "padding") => |r| window::pool(r, 2, 1, "linear");
    "avg_pool3d" ("kernel", "stride", "padding") => |r| window::pool(r, 3, 1, "linear");
    "interpolate" ("size", "mode") => window::interpolate;
    "pixel_shuffle" ("factor") => window::pixel_shuffle;
    // Indexing.
    "gather" ("dim") => index::gather;
    "take_along_dim" ("dim") => index::gather;
    "index_select" ("dim") => index::select;
    "scatter" ("dim") => |r| index::scatter(r, false, index::COPY);
    "scatter_add" ("dim") => |r| index::scatter(r, false, index::ADD);
    "scatter_amax" ("dim") => |r| index::scatter(r, false, index::MAX);
    "index_copy" ("dim") => |r| index::scatter(r, true, index::COPY);
    "index_add" ("dim") => |r| index::scatter(r, true, index::ADD);
    "index_put" ("accumulate") => index::put;
    "one_hot" ("classes") => |r| index::classes(r, "...->...c", "none");
    "bincount" ("classes") => |r| index::classes(r, "i->c", "none");
    "embedding_bag" ("mode") => index::bag;
    "masked_fill" ("value") => index::masked_fill;
    // Pieces.
    "cat" ("dim") => pieces::cat;
    "stack" ("dim") => pieces::stack;
    "split" ("size", "sizes", "dim") => pieces::split;
    "chunk" ("chunks", "dim") => pieces::chunk;
    "unbind" ("dim") => pieces::unbind;
    "select" ("dim", "index") => pieces::select;
    "slice" ("dim", "start", "end", "step") => pieces::slice;
    "narrow" ("dim", "start", "length") => pieces::narrow;
    "pad" ("pads", "value", "mode") => pieces::pad;
    "roll" ("shifts", "dims") => pieces::whole_dims;
    "flip" ("dims") => pieces::whole_dims;
    // Shapes.
    "permute" ("dims") => reshape::permute;
    "transpose" ("dim0", "dim1") => reshape::transpose;
    "expand" ("shape") => reshape::expand;
    "repeat" ("times") => reshape::repeat;
    "repeat_interleave" ("times", "dim") => reshape::repeat_interleave;
    "squeeze" ("dims") => reshape::squeeze;
    "unsqueeze" ("dim") => reshape::unsqueeze;
    "view" ("shape") => reshape::view;
    "reshape" ("shape") => reshape::view;
    "flatten" ("start", "end") => reshape::flatten;
    "unflatten" ("dim", "sizes") => reshape::unflatten;
    // Made of nothing.
    "zeros" ("shape") => factory::filled;
    "ones" ("shape") => factory::filled;
    "full" ("shape") => factory::filled;
    "rand" ("shape") => factory::filled;
    "randn" ("shape") => factory::filled;
    "arange" ("size") => factory::arange;
    "eye" ("size") => factory::eye;
    // Losses.
    "mse_loss" ("reduction") => |r| loss::pointwise(r, "none");
    "l1_loss" ("reduction") => |r| loss::pointwise(r, "none");
    "smooth_l1_loss" ("reduction") => |r| loss::pointwise(r, "none");
    "binary_cross_entropy" ("reduction") => |r| loss::pointwise(r, "affine(1)");
    "binary_cross_entropy_with_logits" ("reduction") => |r| loss::pointwise(r, "affine(1)");
    "kl_div" ("reduction") => |r| loss::pointwise(r, "affine(0)");
    "cross_entropy" ("reduction") => |r| loss::classes(r, "replicate", "none");
    "nll_loss" ("reduction") => |r| loss::classes(r, "sum", "multilinear(0)");
    // Attention.
    "scaled_dot_product_attention" ("causal") => attention::attention;
}
