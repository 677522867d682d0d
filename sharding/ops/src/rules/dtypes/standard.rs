//! The element types of the standard ops, in groups of similar ops.
//!
//! They are PyTorch's, with three exceptions. Sums of integers keep the integer type, as in JAX; a tensor without dims
//! counts like any other; and an op of integers that PyTorch rejects on some devices only is not rejected.

/// Op names, and the element types that all of them have.
#[rustfmt::skip]
pub(in crate::rules) const STANDARD_DTYPES: &[(&[&str], &str)] = &[
    // The elements of an operand, or numbers like them.
    (&[
        "abs", "neg", "sign", "positive", "relu", "relu6", "hardtanh", "threshold", "floor", "ceil", "round", "trunc",
        "frac", "nan_to_num", "copy", "clone", "detach", "contiguous", "zeros_like", "ones_like", "full_like",
        "rand_like", "randn_like", "randint_like", "uniform", "exponential", "geometric", "log_normal", "cauchy",
        "random", "bernoulli", "t", "tril", "triu", "diagonal", "diag_embed", "matrix_transpose", "real", "imag",
        "conj", "amax", "amin", "aminmax", "median", "nanmedian", "cummax", "cummin", "diff", "histc", "unique",
        "unique_consecutive", "split", "chunk", "unbind", "tensor_split", "select", "slice", "narrow", "pad", "roll",
        "flip", "rot90", "permute", "transpose", "movedim", "expand", "repeat", "repeat_interleave", "tile",
        "squeeze", "unsqueeze", "view", "reshape", "flatten", "unflatten", "unfold_dim", "interpolate",
        "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "max_pool1d", "max_pool2d", "max_pool3d",
        "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "im2col", "col2im", "fftshift",
        "ifftshift", "split_shards", "join_shards", "copy_", "slice_scatter", "select_scatter", "diagonal_scatter",
    ], "any -> same(0)"),
    (&["clamp"], "any -> with(min,max)"),
    (&["clamp_min"], "any -> with(min)"),
    (&["clamp_max"], "any -> with(max)"),
    (&["add_scalar", "sub_scalar", "rsub_scalar", "mul_scalar"], "any -> with(value)"),
    (&["pow_scalar"], "any -> with(exponent)"),
    (&["cast"], "any -> argument(dtype)"),
    // Sums and products, in which truth values are counted.
    (&["sum", "nansum", "prod", "cumsum", "cumprod", "trace", "square", "vander"], "any -> counted(0)"),
    // Of several operands, the type that has the elements of all.
    (&[
        "add", "sub", "mul", "pow", "fmod", "remainder", "floor_divide", "maximum", "minimum", "fmax", "fmin", "lerp",
        "addcmul", "fma", "clamp_tensor", "addr", "outer", "kron", "cross", "cat", "stack", "block_diag",
        "cartesian_prod",
    ], "any -> promoted"),
    (&["heaviside"], "any, like(0) -> promoted"),
    (&["where"], "bool, any -> promoted(1,2)"),
    (&["meshgrid"], "any, like(0) -> same(0)"),
    // Real functions of numbers, which give f32 for integers.
    (&[
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "cbrt", "sin", "cos",
        "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv",
        "erfcx", "sigmoid", "log_sigmoid", "leaky_relu", "elu", "selu", "celu", "softplus", "hardsigmoid",
        "hardshrink", "softshrink", "tanhshrink", "gelu", "silu", "mish", "hardswish", "softsign", "deg2rad",
        "rad2deg", "angle", "ndtr", "log_ndtr", "ndtri", "i0", "i0e", "i1", "i1e", "modified_bessel_k0",
        "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "bessel_j0", "bessel_j1",
        "bessel_y0", "bessel_y1", "spherical_bessel_j0", "airy_ai", "digamma", "lgamma", "polygamma", "mvlgamma",
        "entr", "logit", "sinc", "div_scalar", "logsumexp", "logcumsumexp", "cov", "corrcoef", "gradient",
        "trapezoid", "cumulative_trapezoid", "local_response_norm", "lp_pool1d", "lp_pool2d", "lp_pool3d", "normal",
        "fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "stft", "istft",
    ], "any -> floating(0)"),
    (&[
        "div", "atan2", "xlogy", "xlog1py", "copysign", "ldexp", "addcdiv", "zeta", "chebyshev_polynomial_t",
        "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
        "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
        "shifted_chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l",
        "legendre_polynomial_p", "logaddexp", "logaddexp2", "hypot", "igamma", "igammac", "nextafter",
        "cosine_similarity", "dist", "pairwise_distance", "mse_loss", "l1_loss", "smooth_l1_loss",
        "gaussian_nll_loss", "poisson_nll_loss", "margin_ranking_loss",
    ], "any -> floating"),
    // Truth values.
    (&[
        "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "isneginf", "isposinf", "isclose", "isin",
        "signbit", "logical_and", "logical_or", "logical_not", "logical_xor", "any", "all",
    ], "any -> bool"),
    // Bits and whole numbers.
    (&[
        "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "gcd", "lcm",
    ], "integer or bool -> promoted"),
    (&["bitwise_not"], "integer or bool -> same(0)"),
    // Indices and counts.
    (&["argmax", "argmin", "argsort", "searchsorted", "bucketize", "count_nonzero", "nonzero"], "any -> i64"),
    (&[
        "max", "min", "sort", "topk", "kthvalue", "mode", "max_pool1d_with_indices", "max_pool2d_with_indices",
        "max_pool3d_with_indices", "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices",
        "adaptive_max_pool3d_with_indices",
    ], "any -> same(0), i64"),
    (&["fractional_max_pool2d", "fractional_max_pool3d"], "any, float -> same(0)"),
    (&["fractional_max_pool2d_with_indices", "fractional_max_pool3d_with_indices"], "any, float -> same(0), i64"),
    (&["one_hot", "bincount"], "integer -> i64"),
    (&["multinomial", "matrix_rank"], "float -> i64"),
    // Operands that are indices or masks.
    (&[
        "embedding", "embedding_bag", "gather", "take_along_dim", "index_select", "take", "index_fill",
        "max_unpool1d", "max_unpool2d", "max_unpool3d",
    ], "any, integer -> same(0)"),
    (&[
        "scatter", "scatter_add", "scatter_amax", "scatter_reduce", "index_copy", "index_add", "index_put",
        "index_reduce", "put",
    ], "any, integer, like(0) -> same(0)"),
    (&["masked_fill", "masked_select"], "any, bool -> same(0)"),
    (&["masked_scatter"], "any, bool, like(0) -> same(0)"),
    // Products: of integers, or of real numbers.
    (&[
        "mm", "bmm", "dot", "vdot", "mv", "vecdot", "bilinear", "matmul", "linear", "addmm", "baddbmm", "addmv",
        "addbmm", "multi_dot", "tensordot", "conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d",
        "conv_transpose2d", "conv_transpose3d",
    ], "any, like(0) -> same(0)"),
    (&["scaled_mm"], "float -> same(0)"),
    (&["grouped_mm"], "float, float, integer -> same(0)"),
    // Without operands.
    (&[
        "zeros", "ones", "full", "rand", "randn", "eye", "arange", "linspace", "logspace", "bartlett_window",
        "blackman_window", "hamming_window", "hann_window", "kaiser_window", "fftfreq", "rfftfreq",
    ], "-> default(f32)"),
    (&["randint", "randperm", "tril_indices", "triu_indices"], "-> default(i64)"),
    // Of real numbers alone: means, normalisations, dropouts and cells.
    (&[
        "mean", "nanmean", "var", "std", "var_mean", "std_mean", "quantile", "nanquantile", "norm",
        "linalg_vector_norm", "softmax", "log_softmax", "softmin", "gumbel_softmax", "normalize", "clip_by_norm",
        "scale_by_norm", "renorm", "weight_norm", "layer_norm", "native_layer_norm", "fused_rms_norm", "group_norm",
        "batch_norm", "instance_norm", "native_batch_norm", "native_group_norm", "avg_pool1d", "avg_pool2d",
        "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "grid_sample",
        "affine_grid", "glu", "histogram", "prelu", "rotary", "dropout", "alpha_dropout", "feature_dropout",
        "feature_alpha_dropout", "rrelu", "poisson", "binomial", "rnn_tanh_cell", "rnn_relu_cell", "gru_cell",
    ], "float -> same(0)"),
    (&["native_dropout"], "float -> same(0), bool"),
    (&["frexp"], "float -> same(0), i32"),
    (&["complex", "polar", "cdist", "pdist"], "float -> promoted"),
    // A mask of attention is one of truth values, or is added.
    (&["scaled_dot_product_attention"], "float, float, float, any -> same(0)"),
    (&["lstm_cell"], "float -> same(1), same(2)"),
    // Losses, of which others are above, and a norm with a weight of any type.
    (&["rms_norm", "huber_loss", "soft_margin_loss", "hinge_embedding_loss"], "float, any -> same(0)"),
    (&["multilabel_soft_margin_loss"], "float, any -> promoted"),
    (&[
        "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "triplet_margin_loss",
    ], "float -> promoted"),
    (&["cosine_embedding_loss"], "any -> floating(0,1)"),
    (&["cross_entropy", "nll_loss"], "float, integer, float -> same(0)"),
    (&["multi_margin_loss", "multilabel_margin_loss", "ctc_loss"], "float, integer -> same(0)"),
    // Matrices.
    (&[
        "cholesky", "cholesky_inverse", "cholesky_solve", "inv", "matrix_exp", "matrix_sqrth", "det", "logdet",
        "slogdet", "cond", "eigvalsh", "eigh", "eigvals", "eig", "polar_decomposition", "pinv", "solve",
        "solve_triangular", "lstsq", "householder_product", "ormqr", "qr", "svd", "svdvals", "lu", "geqrf",
    ], "float -> same(0)"),
    (&["matrix_power"], "any -> same(0)"),
    (&["lu_factor", "ldl_factor"], "float -> same(0), i32"),
    (&["lu_solve", "ldl_solve"], "float, integer, float -> same(0)"),
    (&["lu_unpack"], "any, integer -> same(0)"),
    // Steps of optimizers: the parameter, and the states after the gradient.
    (&["sgd"], "float -> same(0)"),
    (&["sgd_momentum", "adagrad", "rmsprop", "lion"], "float -> same(0), same(2)"),
    (&["adam", "adamw", "adamax", "nadam", "radam", "adadelta", "rprop"], "float -> same(0), same(2), same(3)"),
    (&["adam_amsgrad"], "float -> same(0), same(2), same(3), same(4)"),
    (&["check_and_unscale"], "float -> same(0), same(1)"),
];
