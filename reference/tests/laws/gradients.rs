//! Formulas of gradients against central differences, once and twice, in f64.

use std::fmt::Write as _;

use ndarray::{ArrayD, IxDyn};
use reshard_ops::gradients::{Gradient, Saved};
use reshard_ops::rules::{Composite, OpCall, OpTable, Vmapped};
use reshard_reference::run;
use reshard_test_support::{Random, Sweep};

type A = ArrayD<f64>;

/// A call, the shapes of its inputs, and the numbers of each, the last for all further ones:
///
/// ```text
/// r  any, not near 0 or each other           p  positive   u  between 0 and 1   g  greater than 1
/// t  with ties: a few small whole numbers    m  0 or 1     s  1 or -1
/// i5 indices below 5                         d5 indices below 5, each at most once   o5 indices below 5 in order
/// ```
///
/// Second derivatives are compared too if `twice` is set.
struct Case {
    call: &'static str,
    shapes: &'static str,
    numbers: &'static str,
    twice: bool,
}

const fn case(call: &'static str, shapes: &'static str, numbers: &'static str) -> Case {
    Case { call, shapes, numbers, twice: true }
}

/// A case whose formula has a corner, or calls an op without a gradient.
const fn once(call: &'static str, shapes: &'static str, numbers: &'static str) -> Case {
    Case { call, shapes, numbers, twice: false }
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    // Rules.
    case("mk,kn->mn", "3,4 4,2", "r"), case("ij->i", "3,4", "r"), case("ij->j", "3,4", "r"), case("ij->ji", "3,4", "r"),
    case("bik,bkj,j->bi", "2,3,4 2,4,5 5", "r"), case("i,j->ij", "3 4", "r"), case("ij->", "3,4", "r"),
    // Pointwise.
    case("clone", "3,4", "r"), case("neg", "3,4", "r"), case("deg2rad", "3,4", "r"), case("rad2deg", "3,4", "r"),
    case("add", "3,4 4", "r"), case("add", "3,1 2,3,4", "r"), case("sub", "3,4 3,1", "r"), case("lerp", "3,4 3,4 4", "r"),
    case("mul", "3,4 4", "r"), case("div", "3,4 4", "r p"), case("fma", "3,4 4 1", "r"), case("square", "3,4", "r"),
    case("reciprocal", "3,4", "p"), case("exp", "3,4", "r"), case("exp2", "3,4", "r"), case("expm1", "3,4", "r"),
    case("log", "3,4", "p"), case("log2", "3,4", "p"), case("log10", "3,4", "p"), case("log1p", "3,4", "p"),
    case("sqrt", "3,4", "p"), case("rsqrt", "3,4", "p"), case("logaddexp", "3,4 4", "r"), case("pow", "3,4 4", "p"),
    case("xlogy", "3,4 4", "p"), case("sin", "3,4", "r"), case("cos", "3,4", "r"), case("tan", "3,4", "u"),
    case("asin", "3,4", "u"), case("acos", "3,4", "u"), case("atan", "3,4", "r"), case("sinh", "3,4", "r"),
    case("cosh", "3,4", "r"), case("tanh", "3,4", "r"), case("asinh", "3,4", "r"), case("acosh", "3,4", "g"),
    case("atanh", "3,4", "u"), case("atan2", "3,4 4", "p"), case("hypot", "3,4 4", "p"), case("sigmoid", "3,4", "r"),
    case("log_sigmoid", "3,4", "r"), case("silu", "3,4", "r"), case("mish", "3,4", "r"), case("tanhshrink", "3,4", "r"),
    case("softsign", "3,4", "r"), case("erf", "3,4", "r"), case("erfc", "3,4", "r"), case("erfinv", "3,4", "u"),
    case("logit", "3,4", "u"), once("lgamma", "3,4", "p"), case("abs", "3,4", "r"), case("relu", "3,4", "r"),
    case("relu6", "3,4", "r"), case("clamp(min=-1,max=1.5)", "3,4", "r"), case("hardtanh", "3,4", "r"),
    case("hardshrink", "3,4", "r"), case("softshrink", "3,4", "r"), case("hardsigmoid", "3,4", "r"),
    case("hardswish", "3,4", "r"), case("maximum", "3,4 4", "r"), case("minimum", "3,4 4", "r"), case("fmax", "3,4 4", "r"),
    case("fmod", "3,4 4", "p"), case("remainder", "3,4 4", "p"), case("where", "3,4 3,4 4", "m r"),
    case("masked_fill(value=7)", "3,4 4", "r m"), case("add_scalar(value=2)", "3,4", "r"),
    case("rsub_scalar(value=2)", "3,4", "r"), case("mul_scalar(value=2.5)", "3,4", "r"),
    case("div_scalar(value=2.5)", "3,4", "r"), case("pow_scalar(exponent=3)", "3,4", "p"),
    case("pow_scalar(exponent=-0.5)", "3,4", "p"), case("leaky_relu", "3,4", "r"),
    case("leaky_relu(negative_slope=0.3)", "3,4", "r"), case("elu(alpha=1.5)", "3,4", "r"), case("celu(alpha=1.5)", "3,4", "r"),
    case("selu", "3,4", "r"), case("softplus(beta=2)", "3,4", "r"), case("gelu", "3,4", "r"),
    case("gelu(approximate=tanh)", "3,4", "r"),
    case("clamp_min(min=0.2)", "3,4", "r"), case("clamp_max(max=0.2)", "3,4", "r"), case("threshold(threshold=0.3,value=-1)", "3,4", "r"),
    case("fmin", "3,4 4", "r"), case("cast", "3,4", "r"), case("contiguous", "3,4", "r"), case("copy", "3,4", "r"),
    case("positive", "3,4", "r"), case("sub_scalar(value=2)", "3,4", "r"), case("conj", "3,2", "r"),
    case("matrix_transpose", "2,3,4", "r"), case("dropout", "3,4", "r"),
    // Steps: the derivative is zero except at their edges.
    once("all", "3,4", "r"), once("any", "3,4", "r"), once("argmax(dim=1)", "3,4", "r"), once("argmin", "3,4", "r"),
    once("argsort(dim=1)", "3,4", "r"), once("bucketize", "3,4 5", "r"), once("searchsorted", "5 3,4", "r"), once("ceil", "3,4", "r"),
    once("count_nonzero", "3,4", "r"), once("eq", "3,4 4", "r"), once("ne", "3,4 4", "r"), once("floor", "3,4", "r"),
    once("floor_divide", "3,4 4", "p"), once("full_like(fill_value=2)", "3,4", "r"), once("ge", "3,4 4", "r"), once("gt", "3,4 4", "r"),
    once("le", "3,4 4", "r"), once("lt", "3,4 4", "r"), once("isclose", "3,4 4", "r"), once("isfinite", "3,4", "r"),
    once("isinf", "3,4", "r"), once("isnan", "3,4", "r"), once("isneginf", "3,4", "r"), once("isposinf", "3,4", "r"),
    once("logical_and", "3,4 4", "r"), once("logical_or", "3,4 4", "r"), once("logical_xor", "3,4 4", "r"),
    once("logical_not", "3,4", "r"), once("ones_like", "3,4", "r"), once("zeros_like", "3,4", "r"), once("rand_like", "3,4", "r"),
    once("randn_like", "3,4", "r"), once("round", "3,4", "r"), once("sign", "3,4", "r"), once("signbit", "3,4", "r"),
    once("trunc", "3,4", "r"),
    // Linear.
    case("view(shape=[-1])", "3,4", "r"), case("unflatten(dim=1,sizes=[2,2])", "3,4", "r"),
    case("tensor_split(sections=2,dim=1)", "3,5", "r"),
    case("reshape(shape=[4,3])", "3,4", "r"), case("flatten", "3,4", "r"), case("squeeze", "3,1,4", "r"),
    case("unsqueeze(dim=1)", "3,4", "r"), case("permute(dims=[2,0,1])", "2,3,4", "r"), case("t", "3,4", "r"),
    case("transpose(dim0=0,dim1=2)", "2,3,4", "r"), case("tril", "4,4", "r"), case("triu", "4,4", "r"),
    case("flip(dims=[1])", "3,4", "r"), case("roll(shifts=[2],dims=[1])", "3,4", "r"),
    case("split_shards(parts=2,dim=1,at=2)", "2,8,1", "r"), case("join_shards(cut=strided,tiles=2,at=1)", "4,3,2", "r"),
    case("split_shards(parts=2,cut=counts,counts=[1,0,2,1],room=4)", "4,2", "r"), case("join_shards(cut=ragged,counts=[2,0,1],at=1)", "3,3,2", "r"),
    case("expand(shape=[2,3,4])", "3,1", "r"),
    case("sum", "3,4", "r"), case("sum(dims=[0],keepdim=true)", "3,4", "r"), case("sum(dims=[1])", "3,4", "r"),
    case("mean", "3,4", "r"), case("mean(dims=[1])", "3,4", "r"), case("cumsum(dim=0)", "3,4", "r"),
    case("select(dim=1,index=-1)", "3,4", "r"), case("slice(dim=1,start=1,end=4,step=2)", "3,5", "r"),
    case("slice(dim=0,start=-2)", "3,5", "r"), case("narrow(dim=1,start=1,length=2)", "3,4", "r"),
    case("select_scatter(dim=1,index=2)", "3,4 3", "r"), case("slice_scatter(dim=1,start=1,end=3)", "3,4 3,2", "r"),
    case("diagonal", "2,3,3", "r"), case("diag_embed", "2,3", "r"), case("repeat(times=[2,3,1])", "3,4", "r"),
    case("tile(times=[2])", "3,4", "r"), case("pad(pads=[1,2])", "3,4", "r"), case("pad(pads=[-1,2,1,0])", "3,4", "r"),
    case("cat(dim=1)", "3,4 3,2 3,1", "r"), case("stack(dim=1)", "3,4 3,4", "r"), case("split(size=2,dim=1)", "3,5", "r"),
    case("chunk(chunks=2,dim=1)", "3,5", "r"), case("unbind(dim=1)", "3,2", "r"),
    // Products.
    case("mm", "3,4 4,2", "r"), case("bmm", "2,3,4 2,4,2", "r"), case("mv", "3,4 4", "r"), case("dot", "4 4", "r"),
    case("outer", "3 4", "r"), case("matmul", "3,4 4,2", "r"), case("matmul", "2,3,4 4,2", "r"), case("matmul", "4 4,2", "r"),
    case("matmul", "3,4 4", "r"), case("matmul", "2,1,3,4 5,4,2", "r"), case("matmul", "4 2,4,3", "r"),
    case("matmul", "2,3,4 4", "r"), case("matmul", "4 4", "r"), case("linear", "2,3,4 5,4", "r"), case("linear", "3,4 5,4 5", "r"),
    case("addmm", "2 3,4 4,2", "r"), case("baddbmm", "2,3,2 2,3,4 2,4,2", "r"), case("addmv", "3 3,4 4", "r"),
    case("addmm(beta=0.5,alpha=2)", "2 3,4 4,2", "r"),
    // Reductions.
    case("amax(dims=[1])", "3,4", "r"), case("amin", "3,4", "r"), once("amax(dims=[1])", "3,4", "t"),
    case("max(dim=1)", "3,4", "r"), case("min(dim=0,keepdim=true)", "3,4", "r"), case("max", "3,4", "r"),
    case("prod(dims=[1])", "3,4", "r"), case("logsumexp(dims=[1])", "3,4", "r"), case("var(dims=[1])", "3,4", "r"),
    case("var(dims=[0],correction=0)", "3,4", "r"), case("std(dims=[1])", "3,4", "r"), case("sort(dim=1)", "3,4", "r"),
    case("topk(k=2,dim=1)", "3,4", "r"), case("gather(dim=1)", "3,4 3,2", "r i4"), case("take_along_dim(dim=0)", "3,4 2,4", "r i3"),
    // Normalised.
    case("softmax(dim=1)", "3,4", "r"), case("softmin(dim=0)", "3,4", "r"), case("log_softmax(dim=1)", "3,4", "r"),
    case("layer_norm", "3,4", "r"), case("layer_norm(eps=0.1)", "3,4 4 4", "r"), case("layer_norm(last=2)", "2,3,4 3,4", "r"),
    case("rms_norm", "3,4 4", "r"), case("rms_norm(eps=0.1,last=2)", "2,3,4", "r"),
    case("group_norm(groups=2)", "2,4,3", "r"), case("group_norm(groups=2,eps=0.1)", "2,4,3 4 4", "r"),
    case("instance_norm", "2,3,4", "r"), case("batch_norm", "4,3", "r"), case("batch_norm(eps=0.1)", "4,3,2 3 3", "r"),
    case("batch_norm(training=false)", "4,3,2 3 3 3 3", "r r r r p"),
    case("frac", "3,4", "r"), case("prelu", "2,3,4 3", "r"), case("addcmul(value=0.5)", "3,4 4 3,1", "r"),
    case("addcdiv(value=0.5)", "3,4 4 3,1", "p"), case("movedim(source=[0],destination=[2])", "2,3,4", "r"),
    case("repeat_interleave(times=3,dim=1)", "2,3", "r"), case("norm(dims=[1])", "3,4", "r"), case("norm(p=3,dims=[1])", "3,4", "r"),
    case("norm(p=1,dims=[1])", "3,4", "r"), case("linalg_vector_norm(p=inf,dims=[1])", "3,4", "r"),
    case("normalize(dim=1)", "3,4", "r"), case("normalize(dim=0,eps=100)", "3,4", "r"), case("rotary", "2,3,4 3,4 3,4", "r"),
    case("glu(dim=1)", "3,4", "r"),
    // Windows.
    case("conv1d", "2,3,5 4,3,2", "r"), case("conv1d(stride=2,padding=1)", "2,3,6 4,3,2 4", "r"),
    case("conv1d(stride=2,padding=2,dilation=3)", "1,2,9 3,2,3", "r"), case("conv1d(groups=2,stride=3)", "2,4,7 6,2,2", "r"),
    case("conv2d(stride=[1,2],padding=[1,0],dilation=[2,1])", "1,2,5,4 3,2,2,2", "r"), case("conv3d", "1,1,3,2,3 2,1,2,1,2", "r"),
    case("convolution(groups=3,padding=1)", "2,3,4 3,1,3 3", "r"), case("conv_transpose1d", "2,3,4 3,2,2", "r"),
    case("conv_transpose1d(stride=2,padding=1,groups=2)", "2,4,3 4,2,3 4", "r"), case("conv_transpose2d(stride=2)", "1,2,2,3 2,1,2,2", "r"),
    case("conv_transpose3d", "1,1,2,2,2 1,2,1,2,2", "r"), case("avg_pool1d(kernel=2)", "2,2,5", "r"),
    case("avg_pool2d(kernel=[2,3],stride=1,padding=1)", "1,2,4,4", "r"), case("avg_pool3d(kernel=2)", "1,1,4,2,3", "r"),
    case("max_pool1d(kernel=2)", "2,2,5", "r"), case("max_pool2d(kernel=3,stride=2,padding=1)", "1,2,5,5", "r"),
    case("max_pool2d_with_indices(kernel=2,stride=1)", "1,2,3,3", "r"),
    case("max_pool3d(kernel=2)", "1,1,2,3,2", "r"), case("pixel_shuffle(factor=2)", "1,8,2,3", "r"),
    case("pixel_unshuffle(factor=2)", "1,2,4,2", "r"),
    // Indexed.
    case("embedding", "5,3 2,4", "r i5"), case("index_select(dim=1)", "3,4 5", "r i4"),
    case("scatter_add(dim=1)", "3,4 3,2 3,2", "r i4 r"), case("index_add(dim=1)", "3,4 2 3,2", "r i4 r"),
    case("scatter(dim=1)", "3,4 3,2 3,2", "r d4 r"), case("index_copy(dim=1)", "3,4 2 3,2", "r d4 r"),
    // Losses.
    case("mse_loss", "3,4 3,4", "r"), case("mse_loss(reduction=sum)", "3,4 3,4", "r"), case("mse_loss(reduction=none)", "3,4 3,4", "r"),
    case("l1_loss", "3,4 3,4", "r"), case("smooth_l1_loss(beta=0.7)", "3,4 3,4", "r"), case("huber_loss(delta=0.7)", "3,4 3,4", "r"),
    case("binary_cross_entropy", "3,4 3,4", "u"), case("binary_cross_entropy_with_logits", "3,4 3,4", "r u"),
    case("kl_div", "3,4 3,4", "r p"), case("kl_div(log_target=true,reduction=sum)", "3,4 3,4", "r"),
    case("cross_entropy", "3,4 3", "r i4"), case("cross_entropy(reduction=none)", "3,4,2 3,2", "r i4"),
    case("cross_entropy(reduction=sum,label_smoothing=0.1)", "3,4 3", "r i4"),
    case("cross_entropy(ignore_index=1)", "7,4 7", "r i4"), case("cross_entropy(ignore_index=1,reduction=none)", "3,4,2 3,2", "r i4"),
    case("nll_loss", "3,4 3", "r i4"), case("nll_loss(ignore_index=0)", "7,4 7", "r i4"),
    case("cross_entropy", "3,4 3 4", "r i4 p"), case("cross_entropy(ignore_index=1,label_smoothing=0.1)", "7,4 7 4", "r i4 p"),
    case("nll_loss(reduction=none)", "2,3,2 2,2 3", "r i3 p"), case("nll_loss(ignore_index=0)", "7,4 7 4", "r i4 p"),
    case("soft_margin_loss", "3,4 3,4", "r s"), case("hinge_embedding_loss", "3,4 3,4", "r s"), case("poisson_nll_loss", "3,4 3,4", "r p"),
    case("poisson_nll_loss(log_input=false,full=true,reduction=none)", "3,4 3,4", "g"), case("gaussian_nll_loss", "3,4 3,4 3,4", "r r p"),
    case("margin_ranking_loss(margin=0.5)", "6 6 6", "r r s"), case("triplet_margin_loss", "3,4 3,4 3,4", "r"),
    case("cosine_embedding_loss(margin=-0.5)", "4,3 4,3 4", "r r s"), case("multi_margin_loss(p=2)", "3,4 3", "r i4"),
    case("multi_margin_loss", "3,4 3", "r i4"), case("multilabel_margin_loss", "3,4 3,4", "r m"), case("multilabel_soft_margin_loss", "3,4 3,4", "r u"),
    // More element by element.
    case("cbrt", "3,4", "p"), once("digamma", "3,4", "p"), once("polygamma(n=2)", "3,4", "p"), once("mvlgamma(p=3)", "3,4", "g"), case("entr", "3,4", "p"),
    case("erfcx", "3,4", "r"), case("ndtr", "3,4", "r"), once("ndtri", "3,4", "u"), case("log_ndtr", "3,4", "r"), case("i0", "3,4", "r"),
    case("i0e", "3,4", "r"), case("i1", "3,4", "r"), case("i1e", "3,4", "r"), case("bessel_j0", "3,4", "p"), case("bessel_j1", "3,4", "p"),
    case("bessel_y0", "3,4", "p"), case("bessel_y1", "3,4", "p"), case("modified_bessel_k0", "3,4", "p"), case("modified_bessel_k1", "3,4", "p"),
    case("scaled_modified_bessel_k0", "3,4", "p"), case("scaled_modified_bessel_k1", "3,4", "p"), case("spherical_bessel_j0", "3,4", "r"),
    case("sinc", "3,4", "r"), case("logaddexp2", "3,4 4", "r"), case("xlog1py", "3,4 4", "p"), case("copysign", "3,4 4", "r"), case("ldexp", "3,4 4", "r"),
    case("nan_to_num", "3,4", "r"), case("clamp_tensor", "3,4 4 4", "r r g"), case("frexp", "3,4", "r"), case("angle", "3,4", "r"), case("polar", "3 3", "p"),
    case("alpha_dropout", "3,4", "r"), case("feature_dropout", "3,4,2", "r"), case("feature_alpha_dropout", "3,4,2", "r"), case("native_dropout", "3,4", "r"),
    case("rrelu", "3,4", "r"), case("gumbel_softmax(dim=1,tau=0.5)", "3,4", "r"), case("logit(eps=0.3)", "3,4", "u"),
    // Transforms and sums.
    case("fft", "3,4,2", "r"), case("ifft(dims=[1])", "3,4,2", "r"), case("rfft", "3,4", "r"), case("rfft(dims=[1])", "3,5", "r"), case("ihfft", "3,4", "r"),
    case("irfft(dims=[0])", "3,2", "r"), case("irfft(dims=[1,0],size=5)", "3,2,2", "r"), case("hfft(dims=[0])", "3,2", "r"),
    case("stft(window=4,hop=2)", "2,8", "r"), case("fftshift", "3,4", "r"), case("ifftshift", "3,5", "r"), case("diff(order=2)", "3,5", "r"),
    case("trapezoid", "3,5", "r"), case("cumulative_trapezoid", "3,5", "r"), case("gradient", "3,5", "r"), case("gradient", "3,2", "r"), case("trace", "3,3", "r"),
    case("nansum", "3,4", "r"), case("nanmean(dims=[1])", "3,4", "r"), case("cumprod", "3,5", "r"), case("logcumsumexp(dim=0)", "4,3", "r"),
    case("cummax(dim=1)", "3,5", "r"), case("cummin(dim=1)", "3,5", "r"), case("prod", "3,5", "r"),
    // Selecting.
    case("median(dim=1)", "3,5", "r"), case("median", "3,4", "r"), case("kthvalue(k=2,dim=1)", "3,4", "r"), once("mode(dim=1)", "3,1", "r"),
    case("quantile(q=0.3,dim=1)", "3,4", "r"), case("quantile(q=0.75,keepdim=true)", "3,4", "r"), case("aminmax(dim=1)", "3,4", "r"),
    case("var_mean(dims=[1])", "3,4", "r"), case("std_mean(dims=[0],correction=0)", "3,4", "r"), case("adaptive_max_pool1d(size=3)", "1,2,7", "r"),
    case("adaptive_max_pool2d(size=2)", "1,2,5,4", "r"), case("adaptive_max_pool3d(size=2)", "1,1,3,2,4", "r"),
    case("adaptive_max_pool1d_with_indices(size=3)", "1,2,7", "r"), case("adaptive_max_pool2d_with_indices(size=2)", "1,2,5,4", "r"),
    case("adaptive_max_pool3d_with_indices(size=2)", "1,1,3,2,4", "r"), case("max_pool1d_with_indices(kernel=2)", "2,2,5", "r"),
    case("max_pool2d_with_indices(kernel=2)", "1,2,4,4", "r"), case("max_pool3d_with_indices(kernel=2)", "1,1,2,3,2", "r"),
    once("fractional_max_pool2d(size=2,kernel=2)", "1,1,5,6 1,1,2", "r u"), once("fractional_max_pool3d(size=2,kernel=2)", "1,1,3,4,4 1,1,3", "r u"),
    once("fractional_max_pool2d_with_indices(size=2,kernel=2)", "1,1,5,6 1,1,2", "r u"),
    once("fractional_max_pool3d_with_indices(size=2,kernel=2)", "1,1,3,4,4 1,1,3", "r u"), case("lp_pool1d(kernel=2,norm_type=3)", "1,2,6", "p"),
    case("lp_pool2d(kernel=2)", "1,2,4,4", "p"), case("lp_pool3d(kernel=2)", "1,1,2,2,4", "p"), case("local_response_norm(size=2,alpha=1.5)", "1,5,2", "r"),
    case("adaptive_avg_pool1d(size=3)", "2,2,7", "r"), case("adaptive_avg_pool2d(size=[2,3])", "1,2,5,4", "r"), case("adaptive_avg_pool3d(size=2)", "1,1,3,2,4", "r"),
    case("interpolate(size=[5,2],mode=linear)", "1,2,3,4", "r"), case("interpolate(size=[5,4],mode=cubic)", "1,1,3,3", "r"),
    case("interpolate(size=[2,3],mode=area)", "1,1,5,4", "r"), case("interpolate(size=[4,5])", "1,1,3,2", "r"),
    case("interpolate(size=[5],mode=linear,align_corners=true)", "1,2,3", "r"), case("grid_sample", "1,2,2,3 1,2,2,2", "r u"), once("grid_sample(mode=nearest)", "1,2,2,3 1,2,2,2", "r u"),
    case("nanmedian(dim=1)", "3,5", "r"), case("nanquantile(q=0.3,dim=1)", "3,4", "r"), case("nanquantile(q=0.3)", "3,4", "r"), case("affine_grid(size=[2,3])", "2,2,3", "r"),
    case("im2col(kernel=2,padding=1,dilation=2)", "1,2,3,3", "r"), case("col2im(size=[3,4],kernel=2,padding=1)", "1,4,20", "r"),
    // Norms with their moments, distances.
    case("native_layer_norm(eps=0.1)", "3,4 4 4", "r"), case("native_layer_norm(last=2,eps=0.1)", "2,3,4 3,4 3,4", "r"), case("native_group_norm(groups=2,eps=0.1)", "2,4,3 4 4", "r"),
    case("native_batch_norm(eps=0.1)", "3,4,2 4 4", "r"), case("fused_rms_norm(eps=0.1)", "3,4 4", "r"), case("weight_norm", "3,4 3,1", "r"),
    case("renorm(dim=0,maxnorm=1.5)", "3,4", "r"), case("clip_by_norm(max_norm=1)", "3,4", "r"), case("scale_by_norm(max_norm=1)", "3,4 ()", "r g"),
    case("cdist", "3,4 2,4", "r"), case("cdist(p=1)", "3,4 2,4", "r"), case("dist", "3,4 3,4", "r"), case("pairwise_distance", "3,4 3,4", "r"),
    case("pdist", "4,3", "r"), case("cosine_similarity", "3,4 3,4", "r"), case("norm(p=0.5,dims=[1])", "3,4", "r"), case("norm(p=-inf,dims=[1])", "3,4", "r"),
    // More products.
    case("vdot", "4 4", "r"), case("vecdot", "3,4 3,4", "r"), case("addbmm(beta=0.5,alpha=2)", "3,2 2,3,4 2,4,2", "r"), case("addr(beta=0.5,alpha=2)", "3,2 3 2", "r"),
    case("cross", "2,3 2,3", "r"), case("kron", "2,3 3,2", "r"), case("multi_dot", "2,3 3,4 4,2", "r"), case("bilinear", "2,3,2 2,3,3 4,2,3", "r"),
    case("tensordot(dims=2)", "2,3,2 3,2,4", "r"), case("tensordot(dims=0)", "2 3", "r"), case("vander(columns=3)", "3", "r"), case("scaled_mm", "3,4 4,2 () ()", "r"),
    case("grouped_mm", "5,3 3,3,2 3", "r r o6"), case("rnn_tanh_cell", "2,3 2,2 2,3 2,2 2 2", "r"), case("rnn_relu_cell", "2,3 2,2 2,3 2,2 2 2", "r"),
    case("lstm_cell", "2,3 2,2 2,2 8,3 8,2 8 8", "r"), case("gru_cell", "2,3 2,2 6,3 6,2 6 6", "r"), case("meshgrid", "2 3", "r"),
    // More indexed.
    case("embedding_bag", "5,3 2,4", "r i5"), case("embedding_bag(mode=mean)", "5,3 2,4", "r i5"), case("index_put", "4,3 2 2,3", "r d4 r"),
    case("index_put(accumulate=true)", "4,3 3 3,3", "r i3 r"), case("put", "2,3 4 4", "r d6 r"), case("put(accumulate=true)", "2,3 4 4", "r i3 r"),
    case("take", "2,3 4", "r i6"), case("index_fill(dim=1,value=7)", "2,4 2", "r i4"), case("scatter_amax(dim=1)", "3,4 3,3 3,3", "r i3 r"),
    case("scatter_reduce(dim=1,reduce=sum)", "3,4 3,3 3,3", "r i3 r"), case("scatter_reduce(dim=1,reduce=mean)", "3,4 3,3 3,3", "r i3 r"),
    case("scatter_reduce(dim=1,reduce=amin)", "3,4 3,3 3,3", "r i3 r"), once("scatter_reduce(dim=1,reduce=prod)", "3,4 3,3 3,3", "r i3 r"),
    case("index_reduce(dim=1,reduce=amax)", "3,4 3 3,3", "r i3 r"), case("index_reduce(dim=1,reduce=mean)", "3,4 3 3,3", "r i3 r"),
    // Permutations, with derived gradients.
    case("unfold_dim(dim=1,size=3,step=2)", "2,6", "r"), case("channel_shuffle(groups=2)", "1,4,2,2", "r"), case("rot90(times=3)", "2,3", "r"),
    case("cartesian_prod", "2 3", "r"), case("block_diag", "2,3 1,2", "r"), case("diagonal_scatter", "3,3 3", "r"), case("complex", "3 3", "r"),
    case("real", "3,2", "r"), case("imag", "3,2", "r"), case("pad(pads=[1,2],mode=reflect)", "2,4", "r"),
    // Attention.
    case("scaled_dot_product_attention", "2,2,3,4 2,2,5,4 2,2,5,2", "r"),
    case("scaled_dot_product_attention(causal=true,scale=0.3)", "1,2,3,4 1,2,3,4 1,2,3,4", "r"),
    case("scaled_dot_product_attention", "1,4,3,2 1,2,3,2 1,2,3,2 3,3", "r"),
    case("scaled_dot_product_attention", "1,4,3,2 1,2,3,2 1,2,3,2 4,3,3", "r"),
];

/// Ops that are not compared with differences.
///
/// They take no numbers or integers, are random, or have a zero derivative by definition. `copy_` overwrites
/// its first input. The others are missing in the reference, and PyTorch's numbers check them.
#[rustfmt::skip]
const WITHOUT_NUMBERS: &[&str] = &[
    "arange", "bartlett_window", "bernoulli", "bincount", "binomial", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "blackman_window", "cauchy", "copy_", "corrcoef", "cov", "detach", "exponential",
    "eye", "fftfreq", "full", "gcd", "geometric", "hamming_window", "hann_window", "isin", "kaiser_window",
    "lcm", "linspace", "log_normal", "logspace", "multinomial", "nonzero", "normal", "one_hot", "ones",
    "poisson", "rand", "randint", "randint_like", "randn", "random", "randperm", "rfftfreq", "tril_indices",
    "triu_indices", "uniform", "zeros",
];

fn numbers(kind: &str, shape: &[usize], r: &mut Random) -> A {
    let n: usize = shape.iter().product();
    let (letter, below) = kind.split_at(1);
    let mut unit = || r.below(1 << 20) as f64 / f64::from(1 << 20);
    let list: Vec<f64> = match letter {
        // Distances from each other and from 0 are larger than a difference's step.
        "r" => {
            let mut list: Vec<f64> =
                (0..n).map(|i| (i as f64 + 0.6 + 0.3 * unit()) * 4.4 / n as f64 - 2.2).collect();
            for i in (1..n).rev() {
                list.swap(i, r.below(i + 1));
            }
            list.iter().map(|x| if x.abs() < 0.02 { x + 0.05 } else { *x }).collect()
        }
        "p" => (0..n).map(|_| 0.3 + 2.0 * unit()).collect(),
        "u" => (0..n).map(|_| 0.1 + 0.8 * unit()).collect(),
        "g" => (0..n).map(|_| 1.2 + unit()).collect(),
        "t" => (0..n).map(|_| r.below(3) as f64).collect(),
        "s" => (0..n).map(|_| 2.0 * r.below(2) as f64 - 1.0).collect(),
        "m" => (0..n).map(|_| r.below(2) as f64).collect(),
        "i" => (0..n).map(|_| r.below(below.parse().unwrap()) as f64).collect(),
        "o" => {
            let mut list: Vec<usize> = (0..n).map(|_| r.below(below.parse().unwrap())).collect();
            list.sort_unstable();
            list.into_iter().map(|i| i as f64).collect()
        }
        // Each once along the last dim.
        "d" => {
            let (last, below) = (shape[shape.len() - 1], below.parse::<usize>().unwrap());
            (0..n).map(|i| ((i % last + i / last) % below) as f64).collect()
        }
        other => panic!("{other}"),
    };
    A::from_shape_vec(IxDyn(shape), list).unwrap()
}

impl Case {
    fn inputs(&self, r: &mut Random) -> Vec<A> {
        let kinds: Vec<&str> = self.numbers.split(' ').collect();
        let shapes = self.shapes.split(' ').enumerate();
        shapes
            .map(|(i, shape)| {
                let shape: Vec<usize> = shape
                    .split(',')
                    .filter(|s| !s.is_empty() && *s != "()")
                    .map(|s| s.parse().unwrap())
                    .collect();
                numbers(kinds[i.min(kinds.len() - 1)], &shape, r)
            })
            .collect()
    }

    /// Returns `true` if an input is a number that may change.
    fn smooth(&self, input: usize) -> bool {
        let kinds: Vec<&str> = self.numbers.split(' ').collect();
        !kinds[input.min(kinds.len() - 1)].starts_with(['i', 'd', 'm', 'o', 's'])
    }
}

/// Returns the results of a formula for these inputs, outputs and gradients of outputs.
pub(crate) fn backward(table: &OpTable, gradient: &Gradient, x: &[A], y: &[A], dy: &[A]) -> Vec<Option<A>> {
    let Some(body) = gradient.body() else { return vec![None; x.len()] };
    let mut table = table.clone();
    table.add_composite("formula", body.clone()).unwrap();
    let given: Vec<A> = gradient
        .inputs()
        .iter()
        .map(|saved| match *saved {
            Saved::Input(i) => x[i].clone(),
            Saved::Output(o) => y[o].clone(),
            Saved::Gradient(o) => dy[o].clone(),
        })
        .collect();
    let made = run(&table, &OpCall::new("formula"), &given).unwrap_or_else(|e| panic!("{gradient}: {e}"));
    gradient.input_gradients().iter().map(|g| g.map(|g| made[g].clone())).collect()
}

/// Compares a formula with differences of its call; only the first output where the others are indices.
fn compare(table: &OpTable, name: &str, call: &OpCall, x: &[A], smooth: &[bool], r: &mut Random) -> Gradient {
    let shapes: Vec<&[usize]> = x.iter().map(ArrayD::shape).collect();
    let gradient = table.gradient(call, &shapes).unwrap_or_else(|e| panic!("{name}: {e}"));
    let y = run(table, call, x).unwrap_or_else(|e| panic!("{name}: {e}"));
    let indices = ["max(dim", "min(dim", "sort", "topk", "_with_indices"].iter().any(|op| name.contains(op));
    let dy: Vec<A> = (y.iter().enumerate())
        .map(|(o, y)| if indices && o > 0 { A::zeros(y.raw_dim()) } else { numbers("r", y.shape(), r) })
        .collect();
    let loss = |x: &[A]| -> f64 {
        let y = run(table, call, x).unwrap();
        y.iter().zip(&dy).map(|(y, dy)| (y * dy).sum()).sum()
    };
    let dx = backward(table, &gradient, x, &y, &dy);
    for (i, dx) in dx.iter().enumerate() {
        if !smooth[i] {
            continue;
        }
        let mut at: Vec<A> = x.to_vec();
        for e in 0..x[i].len() {
            let step = 1e-5;
            let here = x[i].as_slice().unwrap()[e];
            let mut moved = |to: f64| {
                at[i].as_slice_mut().unwrap()[e] = to;
                let loss = loss(&at);
                at[i].as_slice_mut().unwrap()[e] = here;
                loss
            };
            let difference = (moved(here + step) - moved(here - step)) / (2.0 * step);
            let formula = dx.as_ref().map_or(0.0, |dx| dx.as_slice().unwrap()[e]);
            assert!(
                (formula - difference).abs() <= 1e-6 * (1.0 + difference.abs()),
                "{name}: element {e} of the gradient of input {i} is {formula}, and by differences {difference}: {gradient}"
            );
        }
    }
    gradient
}

/// Returns the op and then its formula as one composite of inputs and gradients, and its inputs.
fn op_and_formula(call: &OpCall, gradient: &Gradient) -> Option<(Composite, Vec<Saved>)> {
    let body = gradient.body()?;
    let outputs = 1 + gradient
        .inputs()
        .iter()
        .map(|s| if let Saved::Output(o) = s { *o } else { 0 })
        .max()
        .unwrap_or(0);
    let uses_outputs = gradient.inputs().iter().any(|s| matches!(s, Saved::Output(_)));
    let inputs = gradient.input_gradients().len();
    let mut takes: Vec<Saved> = gradient.inputs().to_vec();
    if uses_outputs {
        takes.extend((0..inputs).map(Saved::Input));
    }
    takes.retain(|s| !matches!(s, Saved::Output(_)));
    takes.sort_unstable();
    takes.dedup();
    // By the names of the formula, where it has them.
    let name = |saved: &Saved| {
        let known = gradient.inputs().iter().position(|s| s == saved);
        known.map_or_else(|| format!("in{saved:?}").replace(['(', ')'], ""), |at| body.inputs()[at].clone())
    };
    let mut text = takes.iter().map(name).collect::<Vec<_>>().join(",");
    let outputs_of_it: Vec<&str> = body.outputs().collect();
    let _ = write!(text, " -> {}:", outputs_of_it.join(","));
    if uses_outputs {
        let operands: Vec<String> = (0..inputs).map(|i| name(&Saved::Input(i))).collect();
        let results: Vec<String> = (0..outputs).map(|o| name(&Saved::Output(o))).collect();
        let spelled = call.to_string();
        let (op, arguments) = spelled
            .split_once('(')
            .map_or((spelled.as_str(), ""), |(op, rest)| (op, rest.trim_end_matches(')')));
        let arguments = if arguments.is_empty() { String::new() } else { format!(",{arguments}") };
        let _ = write!(text, " {} = {op}({}{arguments});", results.join(","), operands.join(","));
    }
    text += &gradient.lines().join("; ");
    Some((text.parse().unwrap_or_else(|e| panic!("{text}: {e}")), takes))
}

/// The gradient of a call on each slice, for operands that have one additional dim, two, or none.
#[test]
fn formulas_on_each_slice_are_what_differences_say() {
    let table = OpTable::standard();
    let mut tried = 0;
    for (number, case) in CASES.iter().enumerate() {
        let mut r = Random(number as u64 * 131 + 7);
        let call: OpCall = case.call.parse().unwrap();
        let slice = case.inputs(&mut r);
        if case.numbers == "t" || slice.is_empty() || !Sweep::asked().takes_one_in(3, number) {
            continue;
        }
        let sizes = if number % 2 == 0 { vec![2] } else { vec![2, 1] };
        let mut has: Vec<Vec<bool>> =
            slice.iter().map(|_| sizes.iter().map(|_| r.below(2) == 1).collect()).collect();
        let some = r.below(slice.len());
        has[some] = vec![true; sizes.len()];
        let each = OpCall::Each(Vmapped::new(&sizes, &has, &call).unwrap());
        assert_eq!(each.to_string().parse::<OpCall>().unwrap(), each);
        // Other numbers for each slice, from the same case.
        let mut slices: Vec<Vec<A>> = vec![slice];
        slices.resize_with(2, || case.inputs(&mut r));
        let stacked = |(i, has): (usize, &Vec<bool>)| {
            let views: Vec<_> = slices.iter().map(|x| x[i].view()).collect();
            let mut x =
                if has[0] { ndarray::stack(ndarray::Axis(0), &views).unwrap() } else { views[0].to_owned() };
            if has.get(1) == Some(&true) {
                x.insert_axis_inplace(ndarray::Axis(usize::from(has[0])));
            }
            x
        };
        let x: Vec<A> = has.iter().enumerate().map(stacked).collect();
        let smooth: Vec<bool> = (0..x.len()).map(|i| case.smooth(i)).collect();
        compare(&table, &format!("{each} on {}", case.shapes), &each, &x, &smooth, &mut r);
        tried += 1;
    }
    assert!(tried > 50, "{tried} calls");
    println!("{tried} calls on each slice against differences");
}

#[test]
fn formulas_are_what_differences_say_once_and_twice() {
    let table = OpTable::standard();
    let (mut tried, mut again) = (0, 0);
    let mut names: Vec<&str> = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        let mut r = Random(number as u64 * 77 + 5);
        let x = case.inputs(&mut r);
        let call: OpCall = case.call.parse().unwrap();
        let smooth: Vec<bool> = (0..x.len()).map(|i| case.smooth(i)).collect();
        let once = format!("{} on {}", case.call, case.shapes);
        if case.numbers == "t" {
            ties(&table, &call, &x);
            continue;
        }
        let gradient = compare(&table, &once, &call, &x, &smooth, &mut r);
        tried += 1;
        names.push(case.call.split('(').next().unwrap());
        if !case.twice || !Sweep::asked().takes_one_in(3, number) {
            continue;
        }
        // An op of several outputs has to be called for all of them, even if the formula uses some.
        let shapes: Vec<&[usize]> = x.iter().map(ArrayD::shape).collect();
        let op = table.op(&call, &shapes).unwrap();
        if op.outputs().len() > 1 && gradient.inputs().iter().any(|s| matches!(s, Saved::Output(_))) {
            continue;
        }
        let Some((body, takes)) = op_and_formula(&call, &gradient) else { continue };
        let mut table = table.clone();
        table.add_composite("once", body).unwrap();
        let of = |saved: &Saved, r: &mut Random| match *saved {
            Saved::Input(i) => x[i].clone(),
            Saved::Output(o) | Saved::Gradient(o) => numbers("r", &op.outputs()[o], r),
        };
        let given: Vec<A> = takes.iter().map(|s| of(s, &mut r)).collect();
        let smooth: Vec<bool> =
            takes.iter().map(|s| if let Saved::Input(i) = s { smooth[*i] } else { true }).collect();
        compare(&table, &format!("twice {once}"), &OpCall::new("once"), &given, &smooth, &mut r);
        again += 1;
    }
    println!("{tried} calls against differences, {again} of them twice");
    let idle: Vec<&str> = table.gradients().filter(|name| !names.contains(name)).collect();
    assert_eq!(idle, WITHOUT_NUMBERS);
}

#[allow(clippy::float_cmp, reason = "halves and thirds of one, and whole numbers")]
/// Several greatest elements share the gradient evenly.
fn ties(table: &OpTable, call: &OpCall, x: &[A]) {
    let shapes: Vec<&[usize]> = x.iter().map(ArrayD::shape).collect();
    let gradient = table.gradient(call, &shapes).unwrap();
    let y = run(table, call, x).unwrap();
    let dy: Vec<A> = y.iter().map(|y| A::ones(y.raw_dim())).collect();
    let dx = backward(table, &gradient, x, &y, &dy).remove(0).unwrap();
    for (row, (x, dx)) in x[0].outer_iter().zip(dx.outer_iter()).enumerate() {
        let best = x.fold(f64::MIN, |a, &b| a.max(b));
        let many = x.iter().filter(|&&v| v == best).count() as f64;
        for (&x, &dx) in x.iter().zip(dx.iter()) {
            assert_eq!(dx, if x == best { 1.0 / many } else { 0.0 }, "row {row}");
        }
    }
}
