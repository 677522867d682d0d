//! Families: ops whose rule depends on arguments or on shapes.

macro_rules! families {
    ($($name:literal ($parameters:expr) => $make:expr;)*) => {
        /// The families, by file.
        #[rustfmt::skip]
        pub(super) const FAMILIES: &[Family] = &[
            $(Family { name: $name, parameters: $parameters, make: $make },)*
        ];
    };
}

mod attention;
mod combine;
mod distance;
mod factory;
mod index;
mod linalg;
mod loss;
mod margin;
mod moments;
mod moved;
mod normalize;
mod pieces;
mod pool;
mod product;
mod recurrent;
mod reduce;
mod reshape;
mod sampled;
mod scaled;
mod scatter;
mod sequence;
mod shards;
mod spectral;
mod statistics;
mod window;

use reduce::NONE;

use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::factor::FactorKind;
use crate::rules::op::Op;
use crate::rules::terms::{ALL, MAX, MIN, PROD, affine, linear, multilinear, row};
use reshard_sharding::ReduceOp;

/// A family: its name, the arguments it takes in the notation of [`Parameters`](crate::rules::Parameters), and its rules.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) parameters: &'static str,
    pub(super) make: fn(&BoundCall<'_>) -> Result<Op, Error>,
}

/// All of them.
pub(super) fn all() -> impl Iterator<Item = &'static Family> {
    let lists = [
        FAMILIES,
        combine::FAMILIES,
        distance::FAMILIES,
        linalg::FAMILIES,
        margin::FAMILIES,
        moments::FAMILIES,
        moved::FAMILIES,
        pool::FAMILIES,
        recurrent::FAMILIES,
        sampled::FAMILIES,
        scaled::FAMILIES,
        scatter::FAMILIES,
        sequence::FAMILIES,
        shards::FAMILIES,
        spectral::FAMILIES,
        statistics::FAMILIES,
    ];
    lists.into_iter().flatten()
}

// The parameters that several families share.
const FOLD: &str = "dims: dims = all, keepdim: flag = false";
const SPREAD: &str = "dims: dims = all, keepdim: flag = false, correction: number >= 0 = 1";
const NORM: &str = "p: any = 2, dims: dims = all, keepdim: flag = false";
const ARG: &str = "dim: dim = all, keepdim: flag = false";
const CONV: &str = "stride: spatial >= 1 = 1, padding: spatial >= 0 = 0, dilation: spatial >= 1 = 1, groups: number >= 1 = 1";
const TRANSPOSED: &str = "stride: spatial >= 1 = 1, padding: spatial >= 0 = 0, groups: number >= 1 = 1";
const POOL: &str = "kernel: spatial >= 1, stride: spatial >= 1 = kernel, padding: spatial >= 0 = 0";
const OF_CLASSES: &str =
    "reduction: mean|sum|none = mean, ignore_index: number = none, label_smoothing: real >= 0 = 0";
const NEGATIVE_LOG: &str = "reduction: mean|sum|none = mean, ignore_index: number = none";
const SMOOTH: &str = "reduction: mean|sum|none = mean, beta: real >= 0 = 1";
const DIVERGENCE: &str = "reduction: mean|sum|none = mean, log_target: flag = false";
const LOSS: &str = "reduction: mean|sum|none = mean";

families! {
    // The dtype of the result; none if the operand's dtype stays.
    "cast" ("dtype: f64|f32|f16|bf16|i64|i32|i16|i8|u8|bool = none") => cast;
    // Reductions: over all dims where none is given.
    "sum" (FOLD) => |r| reduce::fold(r, FactorKind::Reduction(ReduceOp::Sum), None);
    "mean" (FOLD) => |r| reduce::fold(r, FactorKind::Reduction(ReduceOp::Avg), Some(vec![linear(ALL)]));
    "prod" (FOLD) => |r| reduce::fold(r, FactorKind::Reduction(ReduceOp::Prod), None);
    "amax" (FOLD) => |r| reduce::fold(r, FactorKind::Reduction(ReduceOp::Max), None);
    "amin" (FOLD) => |r| reduce::fold(r, FactorKind::Reduction(ReduceOp::Min), None);
    "any" (FOLD) => |r| reduce::fold(r, FactorKind::Reduction(ReduceOp::Max), NONE);
    "all" (FOLD) => |r| reduce::fold(r, FactorKind::Reduction(ReduceOp::Min), NONE);
    "count_nonzero" (FOLD) => |r| reduce::fold(r, FactorKind::Reduction(ReduceOp::Sum), NONE);
    "var" (SPREAD) => |r| reduce::fold(r, FactorKind::NeedReplication, NONE);
    "std" (SPREAD) => |r| reduce::fold(r, FactorKind::NeedReplication, NONE);
    "logsumexp" (FOLD) => |r| reduce::fold(r, FactorKind::NeedReplication, NONE);
    "norm" (NORM) => reduce::norm;
    "linalg_vector_norm" (NORM) => reduce::norm;
    "argmax" (ARG) => |r| reduce::one_dim(r, 1);
    "argmin" (ARG) => |r| reduce::one_dim(r, 1);
    "max" (ARG) => |r| reduce::one_dim(r, 2);
    "min" (ARG) => |r| reduce::one_dim(r, 2);
    "median" (ARG) => |r| reduce::one_dim(r, 1);
    // Along a dim in which every element depends on all others.
    "softmax" ("dim: dim = -1") => |r| normalize::along(r, 1, None);
    "log_softmax" ("dim: dim = -1") => |r| normalize::along(r, 1, None);
    "cumsum" ("dim: dim = -1") => |r| normalize::along(r, 1, Some(linear(ALL)));
    "cumprod" ("dim: dim = -1") => |r| normalize::along(r, 1, Some(row([PROD], [PROD])));
    "cummax" ("dim: dim = -1") => |r| normalize::along(r, 1, Some(row([MAX], [MAX])));
    "cummin" ("dim: dim = -1") => |r| normalize::along(r, 1, Some(row([MIN], [MIN])));
    "logcumsumexp" ("dim: dim = -1") => |r| normalize::along(r, 1, None);
    "normalize" ("dim: dim = -1, p: real = 2, eps: real >= 0 = 0.000000000001") => |r| normalize::along(r, 1, None);
    "sort" ("dim: dim = -1, descending: flag = false") => |r| normalize::along(r, 2, None);
    "argsort" ("dim: dim = -1, descending: flag = false") => |r| normalize::along(r, 1, None);
    "topk" ("k: number >= 0, dim: dim = -1, largest: flag = true") => normalize::topk;
    "unique" ("count: number >= 0") => normalize::unique;
    "fft" ("dims: complex dims = all") => normalize::fft;
    "clip_by_norm" ("max_norm: real = none, eps: real >= 0 = 0.000001") => normalize::clip;
    "layer_norm" ("last: number of dims = 1, dims: dims = none, eps: real >= 0 = 0.00001") => normalize::layer_norm;
    "native_layer_norm" ("last: number of dims = 1, dims: dims = none, eps: real >= 0 = 0.00001") => normalize::native_layer;
    "rms_norm" ("last: number of dims = 1, dims: dims = none, eps: real >= 0 = none") => normalize::rms_norm;
    "group_norm" ("groups: number >= 1, eps: real >= 0 = 0.00001") => normalize::group;
    "batch_norm" ("training: flag = true, eps: real >= 0 = 0.00001") => normalize::batch;
    "instance_norm" ("eps: real >= 0 = 0.00001") => normalize::instance;
    // Products.
    "matmul" ("") => product::matmul;
    "linear" ("") => product::linear;
    "addmm" ("beta: real >= 0 = 1, alpha: real = 1") => |r| product::added(r, &[], &['m', 'k'], &['k', 'n'], &['m', 'n']);
    "baddbmm" ("beta: real >= 0 = 1, alpha: real = 1") => |r| product::added(r, &['b'], &['m', 'k'], &['k', 'n'], &['m', 'n']);
    "addmv" ("beta: real >= 0 = 1, alpha: real = 1") => |r| product::added(r, &[], &['m', 'k'], &['k'], &['m']);
    // Windows.
    "conv1d" (CONV) => |r| window::conv(r, Some(1));
    "conv2d" (CONV) => |r| window::conv(r, Some(2));
    "conv3d" (CONV) => |r| window::conv(r, Some(3));
    "convolution" (CONV) => |r| window::conv(r, None);
    "conv_transpose1d" (TRANSPOSED) => |r| window::conv_transpose(r, 1);
    "conv_transpose2d" (TRANSPOSED) => |r| window::conv_transpose(r, 2);
    "conv_transpose3d" (TRANSPOSED) => |r| window::conv_transpose(r, 3);
    "max_pool1d" (POOL) => |r| window::pool(r, 1, 1, Some(row([MAX], [MAX])));
    "max_pool2d" (POOL) => |r| window::pool(r, 2, 1, Some(row([MAX], [MAX])));
    "max_pool3d" (POOL) => |r| window::pool(r, 3, 1, Some(row([MAX], [MAX])));
    "max_pool2d_with_indices" (POOL) => |r| window::pool(r, 2, 2, None);
    "avg_pool1d" (POOL) => |r| window::pool(r, 1, 1, Some(linear(ALL)));
    "avg_pool2d" (POOL) => |r| window::pool(r, 2, 1, Some(linear(ALL)));
    "avg_pool3d" (POOL) => |r| window::pool(r, 3, 1, Some(linear(ALL)));
    "interpolate" ("size: spatial >= 1, mode: nearest|nearest_exact|linear|cubic|area = nearest, align_corners: flag = false") => window::interpolate;
    "pixel_shuffle" ("factor: number >= 1") => window::pixel_shuffle;
    // Indexing.
    "gather" ("dim: dim = -1") => index::gather;
    "take_along_dim" ("dim: dim = -1") => index::gather;
    "index_select" ("dim: dim = 0") => index::select;
    "scatter" ("dim: dim = 0") => |r| index::scatter(r, false, index::copied());
    "scatter_add" ("dim: dim = 0") => |r| index::scatter(r, false, index::added());
    "scatter_amax" ("dim: dim = 0") => |r| index::scatter(r, false, index::raised());
    "index_copy" ("dim: dim = 0") => |r| index::scatter(r, true, index::copied());
    "index_add" ("dim: dim = 0") => |r| index::scatter(r, true, index::added());
    "index_put" ("accumulate: flag = false") => index::put;
    "one_hot" ("classes: number >= 1") => index::one_hot;
    "bincount" ("classes: number >= 1") => index::bincount;
    "embedding_bag" ("mode: sum|mean = sum") => index::bag;
    "masked_fill" ("value: any = none") => index::masked_fill;
    // Splitting, joining and selecting.
    "cat" ("dim: dim = 0") => pieces::cat;
    "stack" ("dim: new dim = 0") => pieces::stack;
    "split" ("size: number >= 1 = none, sizes: numbers >= 0 = none, dim: dim = 0") => pieces::split;
    "chunk" ("chunks: number >= 1, dim: dim = 0") => pieces::chunk;
    "unbind" ("dim: dim = 0") => pieces::unbind;
    "select" ("dim: dim = 0, index: number = 0") => pieces::select;
    "slice" ("dim: dim = 0, start: number = 0, end: number = none, step: number >= 1 = 1") => pieces::slice;
    "narrow" ("dim: dim = 0, start: number >= 0 = 0, length: number >= 0") => pieces::narrow;
    "pad" ("pads: numbers, value: real = 0, mode: constant|reflect|replicate|circular = constant") => pieces::pad;
    "roll" ("shifts: numbers = 1, dims: dims = all") => pieces::rolled;
    "flip" ("dims: dims = all") => pieces::whole_dims;
    // Shapes.
    "permute" ("dims: dims") => reshape::permute;
    "transpose" ("dim0: dim = -2, dim1: dim = -1") => reshape::transpose;
    "expand" ("shape: numbers >= -1") => reshape::expand;
    "repeat" ("times: numbers >= 1") => reshape::repeat;
    "repeat_interleave" ("times: number >= 1, dim: dim = 0") => reshape::repeat_interleave;
    "squeeze" ("dims: dims = all") => reshape::squeeze;
    "unsqueeze" ("dim: new dim = 0") => reshape::unsqueeze;
    "view" ("shape: numbers >= -1") => reshape::view;
    "reshape" ("shape: numbers >= -1") => reshape::view;
    "flatten" ("start: dim = 0, end: dim = -1") => reshape::flatten;
    "unflatten" ("dim: dim = 0, sizes: numbers >= -1") => reshape::unflatten;
    // Without inputs.
    "zeros" ("shape: numbers >= 0") => factory::filled;
    "ones" ("shape: numbers >= 0") => factory::filled;
    "full" ("shape: numbers >= 0, fill_value: real = none") => factory::filled;
    "rand" ("shape: numbers >= 0, key: numbers >= 0 = none") => factory::drawn;
    "randn" ("shape: numbers >= 0, key: numbers >= 0 = none") => factory::drawn;
    "arange" ("size: number >= 0, start: real = 0, step: real = 1") => factory::arange;
    "eye" ("size: number >= 0") => factory::eye;
    // Losses.
    "mse_loss" (LOSS) => |r| loss::pointwise(r, vec![]);
    "l1_loss" (LOSS) => |r| loss::pointwise(r, vec![]);
    "smooth_l1_loss" (SMOOTH) => |r| loss::pointwise(r, vec![]);
    "binary_cross_entropy" (LOSS) => |r| loss::pointwise(r, vec![affine([1])]);
    "binary_cross_entropy_with_logits" (LOSS) => |r| loss::pointwise(r, vec![affine([1])]);
    "kl_div" (DIVERGENCE) => |r| loss::pointwise(r, vec![affine([0])]);
    "cross_entropy" (OF_CLASSES) => |r| loss::classes(r, FactorKind::NeedReplication, vec![]);
    "nll_loss" (NEGATIVE_LOG) => |r| loss::classes(r, FactorKind::Reduction(ReduceOp::Sum), vec![multilinear([0])]);
    // Attention.
    "scaled_dot_product_attention" ("causal: flag = false, scale: real = none") => attention::attention;
}

/// Partial values pass to floating-point types only: integers round, and booleans are 1 for any number but 0.
fn cast(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let terms = if is_cast_to_integral(r)? { "none" } else { "selecting" };
    r.op(&format!("...->... {{{terms}}}").parse()?)
}

/// Returns `true` if a call of `cast` makes integers or booleans.
pub(crate) fn is_cast_to_integral(r: &BoundCall<'_>) -> Result<bool, Error> {
    Ok(r.has("dtype")? && matches!(r.word("dtype")?.as_str(), "i64" | "i32" | "i16" | "i8" | "u8" | "bool"))
}
