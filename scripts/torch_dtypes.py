#!/usr/bin/env python3
"""The element types that PyTorch's results have, for the ops of the table that PyTorch has too.

It prints sharding/ops/tests/data/torch_dtypes.txt, with PyTorch 2.15.0 on the CPU. A line has an op, and the types of
its operands with those of its results, for all operands that PyTorch accepts: `eq: f32,i64 -> bool; ..`.
"""

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

NAMES = {torch.bool: "bool", torch.uint8: "u8", torch.int32: "i32", torch.int64: "i64", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64"}
# The types of operands.
GIVEN = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.bfloat16, torch.float32]
Shapes = list[tuple[int, ...]]
L, S, special = torch.linalg, (4,), torch.special
M, V, IMAGE = (2, 2), (2,), (1, 2, 4)


def named(names: str) -> dict[str, Callable[..., Any]]:
    """Returns PyTorch's functions of these names."""
    modules = [F, torch, special, L, torch.fft, torch.Tensor]
    return {name: next(getattr(module, name) for module in modules if hasattr(module, name)) for name in names.split()}


UNARY = named(
    "abs acos acosh angle asin asinh atan atanh bernoulli bitwise_not ceil celu clone cos cosh deg2rad detach digamma elu entr erf erfc "
    "erfcx erfinv exp exp2 expm1 floor frac frexp gelu hardshrink hardsigmoid hardswish hardtanh i0 i0e i1 i1e isfinite isinf isnan "
    "isneginf isposinf leaky_relu lgamma log log10 log1p log2 log_ndtr logical_not mish modified_bessel_k0 modified_bessel_k1 "
    "nan_to_num ndtr ndtri neg ones_like poisson positive rad2deg rand_like randn_like reciprocal relu relu6 round rrelu rsqrt "
    "scaled_modified_bessel_k0 scaled_modified_bessel_k1 selu sigmoid sign signbit silu sin sinc sinh softplus softshrink softsign "
    "spherical_bessel_j0 sqrt square tan tanh tanhshrink trunc zeros_like bessel_j0 bessel_j1 bessel_y0 bessel_y1 airy_ai dropout "
    "alpha_dropout all any amax amin aminmax argmax argmin argsort count_nonzero mean median nanmean nanmedian nansum prod sum "
    "sort unique unique_consecutive var std var_mean std_mean cov corrcoef"
)
BINARY = named(
    "add sub mul div pow atan2 copysign fmod remainder floor_divide maximum minimum fmax fmin hypot logaddexp logaddexp2 nextafter eq ne lt "
    "le gt ge isclose isin logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift "
    "gcd lcm heaviside ldexp xlogy xlog1py zeta igamma igammac chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v "
    "chebyshev_polynomial_w shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
    "shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p dot vdot "
    "outer meshgrid cartesian_prod mse_loss l1_loss smooth_l1_loss huber_loss kl_div soft_margin_loss hinge_embedding_loss "
    "poisson_nll_loss binary_cross_entropy binary_cross_entropy_with_logits dist"
)
LISTS = {"cat": torch.cat, "stack": torch.stack, "block_diag": torch.block_diag}
# Ops with arguments or with shapes: the shapes of the operands, and the call.
OTHERS: dict[str, tuple[Shapes, Callable[..., Any]]] = {
    "log_sigmoid": ([S], F.logsigmoid),
    "square": ([S], torch.square),
    "cbrt": ([S], lambda x: x.pow(1 / 3)),
    "logit": ([S], lambda x: torch.logit(x, 0.1)),
    "polygamma": ([S], lambda x: torch.polygamma(1, x)),
    "mvlgamma": ([S], lambda x: torch.mvlgamma(x + 4, 2)),
    "threshold": ([S], lambda x: F.threshold(x, 1, 0)),
    "full_like": ([S], lambda x: torch.full_like(x, 1)),
    "randint_like": ([S], lambda x: torch.randint_like(x, 2)),
    "copy_": ([S, S], lambda x, y: x.clone().copy_(y)),
    "masked_fill": ([S, S], lambda x, m: x.masked_fill(m, 0)),
    "masked_select": ([S, S], torch.masked_select),
    "masked_scatter": ([S, S, S], torch.masked_scatter),
    "where": ([S, S, S], torch.where),
    "lerp": ([S, S, S], torch.lerp),
    "addcmul": ([S, S, S], torch.addcmul),
    "addcdiv": ([S, S, S], torch.addcdiv),
    "clamp_tensor": ([S, S, S], torch.clamp),
    "prelu": ([M, V], F.prelu),
    "normal": ([S, S], torch.normal),
    "binomial": ([S, S], torch.binomial),
    "mm": ([M, M], torch.mm),
    "bmm": ([(1, 2, 2), (1, 2, 2)], torch.bmm),
    "mv": ([M, V], torch.mv),
    "matmul": ([M, M], torch.matmul),
    "linear": ([M, M], F.linear),
    "addmm": ([M, M, M], torch.addmm),
    "addmv": ([V, M, V], torch.addmv),
    "addr": ([M, V, V], torch.addr),
    "baddbmm": ([(1, 2, 2), (1, 2, 2), (1, 2, 2)], torch.baddbmm),
    "addbmm": ([M, (1, 2, 2), (1, 2, 2)], torch.addbmm),
    "vecdot": ([M, M], L.vecdot),
    "bilinear": ([M, M, (2, 2, 2)], F.bilinear),
    "kron": ([M, M], torch.kron),
    "cross": ([(3,), (3,)], L.cross),
    "tensordot": ([M, M], torch.tensordot),
    "multi_dot": ([M, M, M], lambda a, b, c: L.multi_dot([a, b, c])),
    "embedding": ([M, V], lambda w, i: F.embedding(i, w)),
    "embedding_bag": ([M, M], lambda w, i: F.embedding_bag(i, w)),
    "gather": ([M, M], lambda x, i: x.gather(1, i)),
    "take_along_dim": ([M, M], lambda x, i: x.take_along_dim(i, 1)),
    "index_select": ([M, V], lambda x, i: x.index_select(0, i)),
    "take": ([M, V], torch.take),
    "index_fill": ([M, V], lambda x, i: x.index_fill(0, i, 0)),
    "scatter": ([M, M, M], lambda x, i, y: x.scatter(0, i, y)),
    "scatter_add": ([M, M, M], lambda x, i, y: x.scatter_add(0, i, y)),
    "scatter_amax": ([M, M, M], lambda x, i, y: x.scatter_reduce(0, i, y, "amax")),
    "scatter_reduce": ([M, M, M], lambda x, i, y: x.scatter_reduce(0, i, y, "sum")),
    "index_reduce": ([M, V, M], lambda x, i, y: x.index_reduce(0, i, y, "amax")),
    "index_copy": ([M, V, M], lambda x, i, y: x.index_copy(0, i, y)),
    "index_add": ([M, V, M], lambda x, i, y: x.index_add(0, i, y)),
    "index_put": ([M, V, M], lambda x, i, y: x.index_put((i,), y)),
    "put": ([M, V, V], torch.Tensor.put),
    "one_hot": ([S], lambda i: F.one_hot(i, 4)),
    "bincount": ([S], torch.bincount),
    "searchsorted": ([S, S], torch.searchsorted),
    "bucketize": ([S, S], torch.bucketize),
    "nonzero": ([S], torch.nonzero),
    "multinomial": ([S], lambda x: torch.multinomial(x, 1)),
    "max": ([M], lambda x: torch.max(x, 0)),
    "min": ([M], lambda x: torch.min(x, 0)),
    "topk": ([S], lambda x: torch.topk(x, 2)),
    "kthvalue": ([S], lambda x: torch.kthvalue(x, 2)),
    "mode": ([S], torch.mode),
    "cummax": ([S], lambda x: torch.cummax(x, 0)[0]),
    "cummin": ([S], lambda x: torch.cummin(x, 0)[0]),
    "cumsum": ([S], lambda x: torch.cumsum(x, 0)),
    "cumprod": ([S], lambda x: torch.cumprod(x, 0)),
    "logcumsumexp": ([S], lambda x: torch.logcumsumexp(x, 0)),
    "logsumexp": ([S], lambda x: torch.logsumexp(x, 0)),
    "softmax": ([S], lambda x: torch.softmax(x, 0)),
    "log_softmax": ([S], lambda x: torch.log_softmax(x, 0)),
    "softmin": ([S], lambda x: F.softmin(x, 0)),
    "normalize": ([M], F.normalize),
    "gumbel_softmax": ([S], F.gumbel_softmax),
    "quantile": ([S], lambda x: torch.quantile(x, 0.5)),
    "nanquantile": ([S], lambda x: torch.nanquantile(x, 0.5)),
    "norm": ([S], L.norm),
    "linalg_vector_norm": ([S], L.vector_norm),
    "histc": ([S], lambda x: torch.histc(x, 4, 0, 4)),
    "histogram": ([S], lambda x: torch.histogram(x, 4)),
    "diff": ([S], torch.diff),
    "gradient": ([S], lambda x: torch.gradient(x)[0]),
    "trapezoid": ([S], torch.trapezoid),
    "cumulative_trapezoid": ([S], torch.cumulative_trapezoid),
    "layer_norm": ([M, V, V], lambda x, w, b: F.layer_norm(x, (2,), w, b)),
    "rms_norm": ([M, V], lambda x, w: F.rms_norm(x, (2,), w)),
    "group_norm": ([M, V, V], lambda x, w, b: F.group_norm(x, 2, w, b) if x.dim() > 2 else F.group_norm(x[..., None], 1, w, b)),
    "batch_norm": ([(4, 2), V, V], lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True)),
    "instance_norm": ([(1, 2, 4), V, V], lambda x, w, b: F.instance_norm(x, weight=w, bias=b)),
    "native_dropout": ([S], lambda x: torch.native_dropout(x, 0.5, True)),
    "feature_dropout": ([IMAGE], lambda x: torch.feature_dropout(x, 0.5, True)),
    "feature_alpha_dropout": ([IMAGE], lambda x: torch.feature_alpha_dropout(x, 0.5, True)),
    "local_response_norm": ([IMAGE], lambda x: F.local_response_norm(x, 2)),
    "avg_pool1d": ([IMAGE], lambda x: F.avg_pool1d(x, 2)),
    "adaptive_avg_pool1d": ([IMAGE], lambda x: F.adaptive_avg_pool1d(x, 2)),
    "adaptive_max_pool1d_with_indices": ([IMAGE], lambda x: F.adaptive_max_pool1d(x, 2, True)),
    "adaptive_max_pool1d": ([IMAGE], lambda x: F.adaptive_max_pool1d(x, 2)),
    "max_pool1d": ([IMAGE], lambda x: F.max_pool1d(x, 2)),
    "max_pool1d_with_indices": ([IMAGE], lambda x: F.max_pool1d(x, 2, return_indices=True)),
    "max_pool2d": ([(1, 1, 4, 4)], lambda x: F.max_pool2d(x, 2)),
    "max_pool2d_with_indices": ([(1, 1, 4, 4)], lambda x: F.max_pool2d(x, 2, return_indices=True)),
    "avg_pool2d": ([(1, 1, 4, 4)], lambda x: F.avg_pool2d(x, 2)),
    "lp_pool1d": ([IMAGE], lambda x: F.lp_pool1d(x, 2.0, 2)),
    "max_unpool1d": ([(1, 1, 2), (1, 1, 2)], lambda x, i: F.max_unpool1d(x, i, 2)),
    "conv1d": ([IMAGE, (2, 2, 2)], F.conv1d),
    "conv2d": ([(1, 1, 4, 4), (1, 1, 2, 2)], F.conv2d),
    "conv_transpose1d": ([IMAGE, (2, 2, 2)], F.conv_transpose1d),
    "interpolate": ([IMAGE], lambda x: F.interpolate(x, 8)),
    "pixel_shuffle": ([(1, 4, 2, 2)], lambda x: F.pixel_shuffle(x, 2)),
    "pixel_unshuffle": ([(1, 1, 4, 4)], lambda x: F.pixel_unshuffle(x, 2)),
    "channel_shuffle": ([(1, 2, 2, 2)], lambda x: F.channel_shuffle(x, 2)),
    "grid_sample": ([(1, 1, 4, 4), (1, 2, 2, 2)], lambda x, g: F.grid_sample(x, g, align_corners=False)),
    "affine_grid": ([(1, 2, 3)], lambda x: F.affine_grid(x, [1, 1, 2, 2], align_corners=False)),
    "im2col": ([(1, 1, 4, 4)], lambda x: F.unfold(x, 2)),
    "col2im": ([(1, 4, 9)], lambda x: F.fold(x, 4, 2)),
    "glu": ([S], F.glu),
    "cosine_similarity": ([M, M], F.cosine_similarity),
    "cdist": ([M, M], torch.cdist),
    "pdist": ([M], torch.pdist),
    "pairwise_distance": ([M, M], F.pairwise_distance),
    "renorm": ([M], lambda x: torch.renorm(x, 2, 0, 1)),
    "scaled_dot_product_attention": ([(1, 1, 2, 2)] * 3, F.scaled_dot_product_attention),
    "cross_entropy": ([M, V], F.cross_entropy),
    "nll_loss": ([M, V], F.nll_loss),
    "multi_margin_loss": ([M, V], F.multi_margin_loss),
    "multilabel_margin_loss": ([M, M], F.multilabel_margin_loss),
    "multilabel_soft_margin_loss": ([M, M], F.multilabel_soft_margin_loss),
    "gaussian_nll_loss": ([M, M, M], F.gaussian_nll_loss),
    "margin_ranking_loss": ([V, V, V], F.margin_ranking_loss),
    "triplet_margin_loss": ([M, M, M], F.triplet_margin_loss),
    "cosine_embedding_loss": ([M, M, V], F.cosine_embedding_loss),
    "complex": ([S, S], lambda x, y: torch.view_as_real(torch.complex(x, y))),
    "polar": ([S, S], lambda x, y: torch.view_as_real(torch.polar(x, y))),
    "rfft": ([S], lambda x: torch.view_as_real(torch.fft.rfft(x))),
    "ihfft": ([S], lambda x: torch.view_as_real(torch.fft.ihfft(x).resolve_conj())),
    "fftshift": ([S], torch.fft.fftshift),
    "ifftshift": ([S], torch.fft.ifftshift),
    "vander": ([S], torch.vander),
    "trace": ([M], torch.trace),
    "t": ([M], torch.t),
    "tril": ([M], torch.tril),
    "triu": ([M], torch.triu),
    "diagonal": ([M], torch.diagonal),
    "diag_embed": ([V], torch.diag_embed),
    "diagonal_scatter": ([M, V], torch.diagonal_scatter),
    "slice_scatter": ([M, M], torch.slice_scatter),
    "select_scatter": ([M, V], lambda x, y: torch.select_scatter(x, y, 0, 0)),
    "add_scalar": ([S], lambda x: x + 2),
    "sub_scalar": ([S], lambda x: x - 2),
    "rsub_scalar": ([S], lambda x: 2 - x),
    "mul_scalar": ([S], lambda x: x * 2),
    "div_scalar": ([S], lambda x: x / 2),
    "pow_scalar": ([S], lambda x: x**2),
    "clamp": ([S], lambda x: x.clamp(0, 1)),
    "clamp_min": ([S], lambda x: x.clamp_min(0)),
    "clamp_max": ([S], lambda x: x.clamp_max(1)),
    # The same with a number that is not an integer.
    "add_scalar(value=0.5)": ([S], lambda x: x + 0.5),
    "sub_scalar(value=0.5)": ([S], lambda x: x - 0.5),
    "rsub_scalar(value=0.5)": ([S], lambda x: 0.5 - x),
    "mul_scalar(value=0.5)": ([S], lambda x: x * 0.5),
    "div_scalar(value=0.5)": ([S], lambda x: x / 0.5),
    "pow_scalar(exponent=0.5)": ([S], lambda x: x**0.5),
    "clamp(min=0.5)": ([S], lambda x: x.clamp(0.5)),
    "clamp_min(min=0.5)": ([S], lambda x: x.clamp_min(0.5)),
    "clamp_max(max=0.5)": ([S], lambda x: x.clamp_max(0.5)),
    "cast(dtype=bf16)": ([S], lambda x: x.to(torch.bfloat16)),
    "cast(dtype=bool)": ([S], lambda x: x.to(torch.bool)),
    # Shapes.
    "split": ([S], lambda x: torch.split(x, 2)),
    "chunk": ([S], lambda x: torch.chunk(x, 2)),
    "tensor_split": ([S], lambda x: torch.tensor_split(x, 2)),
    "unbind": ([V], torch.unbind),
    "select": ([S], lambda x: x.select(0, 0)),
    "slice": ([S], lambda x: x[1:3]),
    "narrow": ([S], lambda x: x.narrow(0, 0, 2)),
    "pad": ([S], lambda x: F.pad(x, (1, 1))),
    "roll": ([S], lambda x: x.roll(1)),
    "flip": ([S], lambda x: x.flip(0)),
    "rot90": ([M], torch.rot90),
    "permute": ([M], lambda x: x.permute(1, 0)),
    "transpose": ([M], lambda x: x.transpose(0, 1)),
    "matrix_transpose": ([M], lambda x: x.mT),
    "movedim": ([M], lambda x: x.movedim(0, 1)),
    "expand": ([S], lambda x: x.expand(2, 4)),
    "repeat": ([S], lambda x: x.repeat(2)),
    "tile": ([S], lambda x: x.tile(2)),
    "repeat_interleave": ([S], lambda x: x.repeat_interleave(2)),
    "squeeze": ([S], torch.squeeze),
    "unsqueeze": ([S], lambda x: x.unsqueeze(0)),
    "view": ([S], lambda x: x.view(2, 2)),
    "reshape": ([S], lambda x: x.reshape(2, 2)),
    "flatten": ([M], torch.flatten),
    "unflatten": ([S], lambda x: x.unflatten(0, (2, 2))),
    "unfold_dim": ([S], lambda x: x.unfold(0, 2, 1)),
    "contiguous": ([S], torch.Tensor.contiguous),
    # Matrices, which are identities.
    "cholesky": ([M], L.cholesky),
    "cholesky_inverse": ([M], torch.cholesky_inverse),
    "cholesky_solve": ([M, M], torch.cholesky_solve),
    "inv": ([M], L.inv),
    "matrix_exp": ([M], L.matrix_exp),
    "matrix_power": ([M], lambda x: L.matrix_power(x, 2)),
    "matrix_rank": ([M], L.matrix_rank),
    "det": ([M], L.det),
    "logdet": ([M], torch.logdet),
    "slogdet": ([M], L.slogdet),
    "cond": ([M], L.cond),
    "eigvalsh": ([M], L.eigvalsh),
    "eigh": ([M], L.eigh),
    "eigvals": ([M], lambda x: torch.view_as_real(L.eigvals(x))),
    "eig": ([M], lambda x: tuple(map(torch.view_as_real, L.eig(x)))),
    "pinv": ([M], L.pinv),
    "solve": ([M, M], L.solve),
    "solve_triangular": ([M, M], lambda a, b: L.solve_triangular(a, b, upper=True)),
    "lstsq": ([M, M], lambda a, b: L.lstsq(a, b)[0]),
    "householder_product": ([M, V], L.householder_product),
    "ormqr": ([M, V, M], torch.ormqr),
    "qr": ([M], L.qr),
    "svd": ([M], L.svd),
    "svdvals": ([M], L.svdvals),
    "lu": ([M], L.lu),
    "geqrf": ([M], torch.geqrf),
    "lu_factor": ([M], L.lu_factor),
    "ldl_factor": ([M], L.ldl_factor),
    "lu_unpack": ([M, V], torch.lu_unpack),
    "lu_solve": ([M, V, M], L.lu_solve),
    "ldl_solve": ([M, V, M], L.ldl_solve),
}


def operand(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Returns ones, or an identity, which every op takes as numbers, as indices and as masks."""
    return torch.eye(2).to(dtype) if shape == (2, 2) else torch.ones(shape).to(dtype)


def made(call: Callable[..., Any], shapes: Shapes, dtypes: tuple[torch.dtype, ...], as_list: bool) -> str | None:
    """Returns the types of the results, or None if PyTorch rejects the operands."""
    operands = [operand(*one) for one in zip(shapes, dtypes, strict=True)]
    try:
        results = call(operands) if as_list else call(*operands)
    except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError):
        return None
    tensors = [results] if isinstance(results, torch.Tensor) else [one for one in results if isinstance(one, torch.Tensor)]
    return ",".join(NAMES.get(one.dtype, "other") for one in tensors)


def line(op: str, call: Callable[..., Any], shapes: Shapes, as_list: bool = False) -> str:
    """Returns the line of an op."""
    # Of three operands, the last one has a few types only.
    lists = [GIVEN if i < 2 else (torch.bool, torch.int64, torch.bfloat16, torch.float32) for i in range(len(shapes))]
    cases = ((dtypes, made(call, shapes, dtypes, as_list)) for dtypes in itertools.product(*lists))
    shown = [f"{','.join(NAMES[one] for one in dtypes)} -> {results}" for dtypes, results in cases if results is not None]
    return f"{op}: {'; '.join(shown)}"


def main() -> None:
    """Prints the file."""
    lines = [line(name, call, [S]) for name, call in UNARY.items()]
    lines += [line(name, call, [S, S]) for name, call in BINARY.items()]
    lines += [line(name, call, [M, M] if name == "block_diag" else [S, S], name != "block_diag") for name, call in LISTS.items()]
    lines += [line(name, call, shapes) for name, (shapes, call) in OTHERS.items() if name not in UNARY]
    print("\n".join(sorted(lines)))


if __name__ == "__main__":
    main()
