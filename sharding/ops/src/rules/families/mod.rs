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

use reduce::NONE;

use crate::Error;
use crate::rules::factor::Role;
use crate::rules::op::Op;
use crate::rules::request::Request;
use crate::rules::terms::{ALL, MAX, MIN, PROD, affine, linear, multilinear, row};
use reshard_sharding::ReduceOp;

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
        pub(super) const FAMILIES: &[Family] = &[
            $(Family { name: $name, parameters: &[$($parameter),*], make: $make },)*
        ];
    };
}

families! {
    // Reductions: over all dims where none is given.
    "sum" ("dims", "keepdim") => |r| reduce::fold(r, Role::Reduce(ReduceOp::Sum), None);
    "mean" ("dims", "keepdim") => |r| reduce::fold(r, Role::Reduce(ReduceOp::Avg), Some(vec![linear(ALL)]));
    "prod" ("dims", "keepdim") => |r| reduce::fold(r, Role::Reduce(ReduceOp::Prod), None);
    "amax" ("dims", "keepdim") => |r| reduce::fold(r, Role::Reduce(ReduceOp::Max), None);
    "amin" ("dims", "keepdim") => |r| reduce::fold(r, Role::Reduce(ReduceOp::Min), None);
    "any" ("dims", "keepdim") => |r| reduce::fold(r, Role::Reduce(ReduceOp::Max), NONE);
    "all" ("dims", "keepdim") => |r| reduce::fold(r, Role::Reduce(ReduceOp::Min), NONE);
    "count_nonzero" ("dims", "keepdim") => |r| reduce::fold(r, Role::Reduce(ReduceOp::Sum), NONE);
    "var" ("dims", "keepdim") => |r| reduce::fold(r, Role::Replicate, NONE);
    "std" ("dims", "keepdim") => |r| reduce::fold(r, Role::Replicate, NONE);
    "logsumexp" ("dims", "keepdim") => |r| reduce::fold(r, Role::Replicate, NONE);
    "norm" ("p", "dims", "keepdim") => reduce::norm;
    "linalg_vector_norm" ("p", "dims", "keepdim") => reduce::norm;
    "argmax" ("dim", "keepdim") => |r| reduce::one_dim(r, 1);
    "argmin" ("dim", "keepdim") => |r| reduce::one_dim(r, 1);
    "max" ("dim", "keepdim") => |r| reduce::one_dim(r, 2);
    "min" ("dim", "keepdim") => |r| reduce::one_dim(r, 2);
    "median" ("dim", "keepdim") => |r| reduce::one_dim(r, 1);
    // Along a dim in which everything depends on everything.
    "softmax" ("dim") => |r| normalize::along(r, 1, None);
    "log_softmax" ("dim") => |r| normalize::along(r, 1, None);
    "cumsum" ("dim") => |r| normalize::along(r, 1, Some(linear(ALL)));
    "cumprod" ("dim") => |r| normalize::along(r, 1, Some(row([PROD], [PROD])));
    "cummax" ("dim") => |r| normalize::along(r, 1, Some(row([MAX], [MAX])));
    "cummin" ("dim") => |r| normalize::along(r, 1, Some(row([MIN], [MIN])));
    "logcumsumexp" ("dim") => |r| normalize::along(r, 1, None);
    "normalize" ("dim") => |r| normalize::along(r, 1, None);
    "sort" ("dim") => |r| normalize::along(r, 2, None);
    "argsort" ("dim") => |r| normalize::along(r, 1, None);
    "topk" ("k", "dim") => normalize::topk;
    "unique" ("count") => normalize::unique;
    "fft" ("dims") => normalize::fft;
    "clip_by_norm" () => normalize::clip;
    "layer_norm" ("dims") => normalize::layer_norm;
    "native_layer_norm" ("dims") => normalize::native_layer;
    "rms_norm" ("dims") => normalize::rms_norm;
    "group_norm" ("groups") => normalize::group;
    "batch_norm" ("training") => normalize::batch;
    "instance_norm" () => normalize::instance;
    // Products.
    "matmul" () => product::matmul;
    "linear" () => product::linear;
    "addmm" () => |r| product::added(r, &[], &['m', 'k'], &['k', 'n'], &['m', 'n']);
    "baddbmm" () => |r| product::added(r, &['b'], &['m', 'k'], &['k', 'n'], &['m', 'n']);
    "addmv" () => |r| product::added(r, &[], &['m', 'k'], &['k'], &['m']);
    // Windows.
    "conv1d" ("stride", "padding", "dilation", "groups") => |r| window::conv(r, Some(1));
    "conv2d" ("stride", "padding", "dilation", "groups") => |r| window::conv(r, Some(2));
    "conv3d" ("stride", "padding", "dilation", "groups") => |r| window::conv(r, Some(3));
    "convolution" ("stride", "padding", "dilation", "groups") => |r| window::conv(r, None);
    "conv_transpose1d" ("stride", "padding", "groups") => |r| window::conv_transpose(r, 1);
    "conv_transpose2d" ("stride", "padding", "groups") => |r| window::conv_transpose(r, 2);
    "conv_transpose3d" ("stride", "padding", "groups") => |r| window::conv_transpose(r, 3);
    "max_pool1d" ("kernel", "stride", "padding") => |r| window::pool(r, 1, 1, Some(row([MAX], [MAX])));
    "max_pool2d" ("kernel", "stride", "padding") => |r| window::pool(r, 2, 1, Some(row([MAX], [MAX])));
    "max_pool3d" ("kernel", "stride", "padding") => |r| window::pool(r, 3, 1, Some(row([MAX], [MAX])));
    "max_pool2d_with_indices" ("kernel", "stride", "padding") => |r| window::pool(r, 2, 2, None);
    "avg_pool1d" ("kernel", "stride", "padding") => |r| window::pool(r, 1, 1, Some(linear(ALL)));
    "avg_pool2d" ("kernel", "stride", "padding") => |r| window::pool(r, 2, 1, Some(linear(ALL)));
    "avg_pool3d" ("kernel", "stride", "padding") => |r| window::pool(r, 3, 1, Some(linear(ALL)));
    "interpolate" ("size", "mode") => window::interpolate;
    "pixel_shuffle" ("factor") => window::pixel_shuffle;
    // Indexing.
    "gather" ("dim") => index::gather;
    "take_along_dim" ("dim") => index::gather;
    "index_select" ("dim") => index::select;
    "scatter" ("dim") => |r| index::scatter(r, false, index::copied());
    "scatter_add" ("dim") => |r| index::scatter(r, false, index::added());
    "scatter_amax" ("dim") => |r| index::scatter(r, false, index::raised());
    "index_copy" ("dim") => |r| index::scatter(r, true, index::copied());
    "index_add" ("dim") => |r| index::scatter(r, true, index::added());
    "index_put" ("accumulate") => index::put;
    "one_hot" ("classes") => index::one_hot;
    "bincount" ("classes") => index::bincount;
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
    "mse_loss" ("reduction") => |r| loss::pointwise(r, vec![]);
    "l1_loss" ("reduction") => |r| loss::pointwise(r, vec![]);
    "smooth_l1_loss" ("reduction") => |r| loss::pointwise(r, vec![]);
    "binary_cross_entropy" ("reduction") => |r| loss::pointwise(r, vec![affine([1])]);
    "binary_cross_entropy_with_logits" ("reduction") => |r| loss::pointwise(r, vec![affine([1])]);
    "kl_div" ("reduction") => |r| loss::pointwise(r, vec![affine([0])]);
    "cross_entropy" ("reduction") => |r| loss::classes(r, Role::Replicate, vec![]);
    "nll_loss" ("reduction") => |r| loss::classes(r, Role::Reduce(ReduceOp::Sum), vec![multilinear([0])]);
    // Attention.
    "scaled_dot_product_attention" ("causal") => attention::attention;
}
