#!/usr/bin/env python3
"""Writes gradients as PyTorch computes them, in f64, for the test `reference/tests/laws/torch_gradients.rs`:

    pip install torch==2.15.0
    python scripts/torch_gradients.py > reference/tests/data/torch_gradients.jsonl

A line is a call of this library's op, its inputs x, the gradients dy of its outputs (null for one that has
none) and the gradients dx of its inputs (null for one that is not differentiated, "none" where PyTorch
reports no gradient). Inputs are short in binary, so that a text represents them exactly; results have 11
digits. Tensors are nested lists.
"""

import json
import math
import random
import sys

import torch
import torch.nn.functional as F

# The call in this library, the same in PyTorch of inputs a, b, .., their shapes (- for none, () for a
# scalar), and the kind of numbers of each, the last for all further ones:
#   r any, distinct and not 0   p positive   u between 0 and 1   g more than 1   s 1 or -1
#   m 0 or 1   iN indices below N   dN indices below N, each once along the last dim   or a list, as it is
# Ties, corners and ends of intervals are written as lists.
CASES = []


def case(call, torch_call, shapes, kinds="r"):
    CASES.append((call, torch_call, shapes, kinds))


def alike(names, shapes, kinds="r", of="torch.{}(a)"):
    """Adds ops that have the same name in PyTorch."""
    for name in names.split():
        case(name, of.format(name), shapes, kinds)


# Einsums.
case("mk,kn->mn", "a @ b", "3,4 4,2")
case("ij->i", "a.sum(1)", "3,4")
case("ij->ji", "a.t()", "3,4")
case("bik,bkj,j->bi", "torch.einsum('bik,bkj,j->bi', a, b, c)", "2,3,4 2,4,5 5")
case("i,j->ij", "torch.outer(a, b)", "3 4")
case("ij->", "a.sum()", "3,4")
# Element by element.
alike("neg deg2rad rad2deg square exp exp2 expm1 sin cos tanh sinh cosh atan asinh sigmoid erf erfc clone abs frac positive", "3,4")
alike("log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma", "3,4", "p")
alike("asin acos atanh erfinv logit tan", "3,4", "u")
alike("acosh", "3,4", "g")
alike("silu mish tanhshrink softsign relu relu6 hardtanh hardshrink softshrink hardsigmoid hardswish selu", "3,4", "r", "F.{}(a)")
case("log_sigmoid", "F.logsigmoid(a)", "3,4")
alike("add sub mul maximum minimum fmax fmin logaddexp", "3,4 4", "r", "torch.{}(a, b)")
alike("add mul", "3,1 2,3,4", "r", "torch.{}(a, b)")
alike("div pow xlogy atan2 hypot fmod remainder", "3,4 4", "p", "torch.{}(a, b)")
case("lerp", "torch.lerp(a, b, c)", "3,4 3,4 4")
case("fma", "a * b + c", "3,4 4 1")
case("where", "torch.where(bool(a), b, c)", "3,4 3,4 4", "m r")
case("masked_fill(value=7)", "a.masked_fill(bool(b), 7)", "3,4 4", "r m")
case("add_scalar(value=2)", "a + 2", "3,4")
case("sub_scalar(value=2)", "a - 2", "3,4")
case("rsub_scalar(value=2)", "2 - a", "3,4")
case("mul_scalar(value=2.5)", "a * 2.5", "3,4")
case("div_scalar(value=2.5)", "a / 2.5", "3,4")
case("pow_scalar(exponent=3)", "a ** 3", "3,4")
case("pow_scalar(exponent=-0.5)", "a ** -0.5", "3,4", "p")
case("leaky_relu", "F.leaky_relu(a)", "3,4")
case("elu(alpha=1.5)", "F.elu(a, 1.5)", "3,4")
case("celu(alpha=1.5)", "F.celu(a, 1.5)", "3,4")
case("softplus(beta=2)", "F.softplus(a, 2)", "3,4")
case("gelu", "F.gelu(a)", "3,4")
case("gelu(approximate=tanh)", "F.gelu(a, approximate='tanh')", "3,4")
case("threshold(threshold=0.3,value=-1)", "F.threshold(a, 0.3, -1)", "3,4")
case("clamp(min=-1,max=1.5)", "a.clamp(-1, 1.5)", "3,4")
case("clamp_min(min=0.2)", "a.clamp_min(0.2)", "3,4")
case("clamp_max(max=0.2)", "a.clamp_max(0.2)", "3,4")
case("prelu", "F.prelu(a, b)", "2,3,4 3")
case("addcmul(value=0.5)", "torch.addcmul(a, b, c, value=0.5)", "3,4 4 3,1")
case("addcdiv(value=0.5)", "torch.addcdiv(a, b, c, value=0.5)", "3,4 4 3,1", "p")
case("cast", "a * 1", "3,4")
case("contiguous", "a.contiguous()", "3,4")
case("conj", "torch.view_as_real(torch.view_as_complex(a).conj().resolve_conj())", "3,2")
# Step functions, and functions without a gradient in PyTorch.
alike("sign floor ceil round trunc", "3,4")
case("floor_divide", "torch.div(a, b, rounding_mode='floor')", "3,4 4", "p")
case("zeros_like", "torch.zeros_like(a)", "3,4")
case("ones_like", "torch.ones_like(a)", "3,4")
case("detach", "a.detach()", "3,4")
alike("eq ne lt le gt ge", "3,4 4", "r", "torch.{}(a, b)")
alike("argmax argmin", "3,4", "r", "a.{}()")
case("argmax(dim=1)", "a.argmax(1)", "3,4")
case("argsort(dim=1)", "a.argsort(1)", "3,4")
alike("isnan isinf isfinite isneginf isposinf signbit logical_not any all count_nonzero", "4")
alike("logical_and logical_or logical_xor isclose isin", "4 4", "r", "torch.{}(a, b)")
alike("bitwise_and bitwise_or bitwise_xor gcd lcm bitwise_left_shift bitwise_right_shift", "4 4", "i5", "torch.{}(long(a), long(b))")
case("bitwise_not", "torch.bitwise_not(long(a))", "4", "i5")
case("searchsorted", "torch.searchsorted(a, b)", "- -", "[1,2,3] [0.5,2.5]")
case("bucketize", "torch.bucketize(a, b)", "- -", "[0.5,2.5] [1,2,3]")
case("one_hot(classes=4)", "F.one_hot(long(a), 4)", "3", "i4")
case("bincount(classes=4)", "torch.bincount(long(a), minlength=4)", "3", "i4")
case("nonzero(count=4)", "a.nonzero()", "4")
case("full_like(fill_value=2)", "torch.full_like(a, 2)", "4")
alike("rand_like randn_like", "4")
case("copy", "torch.empty_like(a).copy_(a)", "4")
# Corners.
CORNERS = "[-3,-1,-0.5,0,0.5,1,1.5,3,6]"
alike("relu relu6 hardtanh hardshrink softshrink hardsigmoid hardswish softsign selu silu", "-", CORNERS, "F.{}(a)")
alike("abs sign sqrt rsqrt reciprocal log erf sinh asinh", "-", "[0,0.25,1,4]")
case("leaky_relu(negative_slope=0.25)", "F.leaky_relu(a, 0.25)", "-", CORNERS)
case("elu", "F.elu(a)", "-", CORNERS)
case("celu", "F.celu(a)", "-", CORNERS)
case("gelu", "F.gelu(a)", "-", CORNERS)
case("log_sigmoid", "F.logsigmoid(a)", "-", "[-40,-1,0,1,40]")
case("softplus", "F.softplus(a)", "-", "[-40,-1,0,1,19,20,21,40]")
case("softplus(beta=2)", "F.softplus(a, 2)", "-", "[-40,0,9,10,11,40]")
case("mish", "F.mish(a)", "-", "[-30,-1,0,1,30]")
case("threshold(threshold=0.5,value=0.5)", "F.threshold(a, 0.5, 0.5)", "-", CORNERS)
case("threshold(threshold=1,value=3)", "F.threshold(a, 1, 3)", "-", CORNERS)
case("clamp(min=-1,max=1.5)", "a.clamp(-1, 1.5)", "-", CORNERS)
case("clamp_min(min=0.5)", "a.clamp_min(0.5)", "-", CORNERS)
case("clamp_max(max=0.5)", "a.clamp_max(0.5)", "-", CORNERS)
case("prelu", "F.prelu(a, b)", "-", "[[-1,0,0.5],[0,2,-2]] [0.5,0.25,2]")
alike("maximum minimum fmax fmin", "-", "[1,2,3,0,-1] [1,3,2,0,-1]", "torch.{}(a, b)")
alike("hypot atan2", "-", "[0,0,3,-3] [0,2,0,4]", "torch.{}(a, b)")
case("pow", "torch.pow(a, b)", "-", "[0,0,0,2,-2,-2,1] [0,1,2,0,2,3,-1]")
case("pow_scalar(exponent=0)", "a ** 0", "-", "[0,1,-2]")
case("pow_scalar(exponent=1)", "a ** 1", "-", "[0,1,-2]")
case("pow_scalar(exponent=2)", "a ** 2", "-", "[0,1,-2]")
case("xlogy", "torch.xlogy(a, b)", "-", "[0,0,1,2] [0,2,1,0.5]")
case("logaddexp", "torch.logaddexp(a, b)", "-", "[0,1,-inf,800,-800] [0,1,2,1,-900]")
case("fmod", "torch.fmod(a, b)", "-", "[-5,5,-4.5,4] [3,-3,2,2]")
case("remainder", "torch.remainder(a, b)", "-", "[-5,5,-4.5,4] [3,-3,2,2]")
case("logit(eps=0.25)", "torch.logit(a, 0.25)", "-", "[0,0.125,0.25,0.5,0.75,0.9,1]")
case("frac", "torch.frac(a)", "-", "[-1.5,-1,0,1,2.25]")
# The same elements at other positions.
case("reshape(shape=[4,3])", "a.reshape(4, 3)", "3,4")
case("view(shape=[-1])", "a.view(-1)", "3,4")
case("flatten", "a.flatten()", "3,4")
case("unflatten(dim=1,sizes=[2,2])", "a.unflatten(1, (2, 2))", "3,4")
case("squeeze", "a.squeeze()", "3,1,4")
case("unsqueeze(dim=1)", "a.unsqueeze(1)", "3,4")
case("permute(dims=[2,0,1])", "a.permute(2, 0, 1)", "2,3,2")
case("movedim(source=[0],destination=[2])", "a.movedim(0, 2)", "2,3,2")
case("t", "a.t()", "3,4")
case("transpose(dim0=0,dim1=2)", "a.transpose(0, 2)", "2,3,2")
case("matrix_transpose", "a.mT", "2,3,2")
case("tril", "a.tril()", "4,4")
case("triu", "a.triu()", "4,4")
case("flip(dims=[1])", "a.flip(1)", "3,4")
case("roll(shifts=[2],dims=[1])", "a.roll(2, 1)", "3,4")
case("roll(shifts=[2])", "a.roll(2)", "3,4")
case("expand(shape=[2,3,4])", "a.expand(2, 3, 4)", "3,1")
case("select(dim=1,index=-1)", "a.select(1, -1)", "3,4")
case("slice(dim=1,start=1,end=4,step=2)", "a[:, 1:4:2]", "3,5")
case("narrow(dim=1,start=1,length=2)", "a.narrow(1, 1, 2)", "3,4")
case("select_scatter(dim=1,index=2)", "a.select_scatter(b, 1, 2)", "3,4 3")
case("slice_scatter(dim=1,start=1,end=3)", "a.slice_scatter(b, 1, 1, 3)", "3,4 3,2")
case("diagonal", "torch.diagonal(a, dim1=-2, dim2=-1)", "2,3,3")
case("diag_embed", "torch.diag_embed(a)", "2,3")
case("repeat(times=[2,3,1])", "a.repeat(2, 3, 1)", "2,3")
case("tile(times=[2])", "a.tile(2)", "2,3")
case("repeat_interleave(times=3,dim=1)", "a.repeat_interleave(3, 1)", "2,3")
case("pad(pads=[1,2])", "F.pad(a, (1, 2))", "3,4")
case("pad(pads=[-1,2,1,0])", "F.pad(a, (-1, 2, 1, 0))", "3,4")
case("cat(dim=1)", "torch.cat((a, b, c), 1)", "3,4 3,2 3,1")
case("stack(dim=1)", "torch.stack((a, b), 1)", "3,4 3,4")
case("split(size=2,dim=1)", "a.split(2, 1)", "3,5")
case("split(sizes=[1,3],dim=1)", "a.split([1, 3], 1)", "3,4")
case("chunk(chunks=2,dim=1)", "a.chunk(2, 1)", "3,5")
case("tensor_split(sections=2,dim=1)", "a.tensor_split(2, 1)", "3,5")
case("unbind(dim=1)", "a.unbind(1)", "3,2")
case("pixel_shuffle(factor=2)", "F.pixel_shuffle(a, 2)", "1,8,2,3")
case("pixel_unshuffle(factor=2)", "F.pixel_unshuffle(a, 2)", "1,2,4,2")
# Reductions.
case("sum", "a.sum()", "3,4")
case("sum(dims=[0],keepdim=true)", "a.sum(0, True)", "3,4")
case("mean(dims=[1])", "a.mean(1)", "3,4")
case("cumsum(dim=0)", "a.cumsum(0)", "3,4")
TIES = "[[1,3,3,0],[2,2,2,2],[5,1,0,5]]"
for name in ["amax", "amin"]:
    case(f"{name}(dims=[1])", f"a.{name}(1)", "3,4")
    case(f"{name}(dims=[1])", f"a.{name}(1)", "-", TIES)
    case(f"{name}(dims=[0,1],keepdim=true)", f"a.{name}((0, 1), True)", "-", TIES)
for name in ["max", "min"]:
    case(f"{name}(dim=1)", f"a.{name}(1)", "3,4")
    case(f"{name}(dim=1)", f"a.{name}(1)", "-", TIES)
    case(f"{name}(dim=0,keepdim=true)", f"a.{name}(0, True)", "-", TIES)
    case(f"{name}", f"(a.{name}(), None)", "-", TIES)
case("prod(dims=[1])", "a.prod(1)", "3,4")
case("prod(dims=[1])", "a.prod(1)", "-", "[[1,0,2,3],[0,2,0,1],[2,3,4,5]]")
case("prod", "a.prod()", "-", "[[1,0,2],[3,2,4]]")
case("logsumexp(dims=[1])", "a.logsumexp(1)", "3,4")
case("logsumexp(dims=[1])", "a.logsumexp(1)", "-", "[[-inf,1,2],[800,1,-800]]")
case("var(dims=[1])", "a.var(1)", "3,4")
case("var(dims=[0],correction=0)", "a.var(0, correction=0)", "3,4")
case("std(dims=[1])", "a.std(1)", "3,4")
case("std(dims=[1])", "a.std(1)", "-", "[[2,2,2],[1,2,4]]")
for name, of in [("norm", "torch.linalg.vector_norm"), ("linalg_vector_norm", "torch.linalg.vector_norm")]:
    for p in ["1", "2", "3", "1.5", "inf"]:
        case(f"{name}(p={p},dims=[1])", f"{of}(a, float('{p}'), 1)", "3,4")
        case(f"{name}(p={p},dims=[1])", f"{of}(a, float('{p}'), 1)", "-", "[[0,0,0],[3,0,-4],[-2,2,1]]")
for p in ["0", "0.5", "-inf", "-1"]:
    case(f"norm(p={p},dims=[1])", f"torch.linalg.vector_norm(a, float('{p}'), 1)", "3,4")
case("norm", "torch.linalg.vector_norm(a)", "-", "[0,0]")
case("sort(dim=1)", "torch.sort(a, 1)", "3,4")
case("sort(dim=1,descending=true)", "torch.sort(a, 1, True)", "3,4")
case("topk(k=2,dim=1)", "a.topk(2, 1)", "3,4")
case("topk(k=3,dim=0,largest=false)", "a.topk(3, 0, False)", "4,2")
# Normalised.
case("softmax(dim=1)", "a.softmax(1)", "3,4")
case("softmax(dim=1)", "a.softmax(1)", "-", "[[-inf,0,1],[800,1,-800]]")
case("softmin(dim=0)", "F.softmin(a, 0)", "3,4")
case("log_softmax(dim=1)", "a.log_softmax(1)", "3,4")
case("log_softmax(dim=1)", "a.log_softmax(1)", "-", "[[3,0,1],[800,1,-800]]")
case("normalize(dim=1)", "F.normalize(a, dim=1)", "3,4")
case("normalize(dim=1)", "F.normalize(a, dim=1)", "-", "[[0,0,0],[3,0,-4]]")
case("normalize(dim=0,eps=100)", "F.normalize(a, dim=0, eps=100)", "3,4")
case("normalize(dim=1,p=1)", "F.normalize(a, 1, 1)", "3,4")
case("normalize(dim=1,p=3)", "F.normalize(a, 3, 1)", "3,4")
case("layer_norm", "F.layer_norm(a, (4,))", "3,4")
case("layer_norm(eps=0.1)", "F.layer_norm(a, (4,), b, c, 0.1)", "3,4 4 4")
case("layer_norm(last=2)", "F.layer_norm(a, (3, 4), b)", "2,3,4 3,4")
case("rms_norm", "F.rms_norm(a, (4,), b)", "3,4 4")
case("rms_norm(eps=0.1,last=2)", "F.rms_norm(a, (3, 4), None, 0.1)", "2,3,4")
case("rms_norm(eps=0.1)", "F.rms_norm(a, (4,), b, 0.1)", "2,3,4 4")
case("group_norm(groups=2,eps=0.1)", "F.group_norm(a, 2, b, c, 0.1)", "2,4,3 4 4")
case("group_norm(groups=2)", "F.group_norm(a, 2)", "2,4,3")
case("instance_norm", "F.instance_norm(a)", "2,3,4")
case("instance_norm(eps=0.1)", "F.instance_norm(a, weight=b, bias=c, eps=0.1)", "2,3,4 3 3")
case("batch_norm(eps=0.1)", "F.batch_norm(a, None, None, b, c, True, eps=0.1)", "4,3,2 3 3")
case("batch_norm(training=false)", "F.batch_norm(a, d, e, b, c)", "4,3,2 3 3 =3 =3", "r r r =r =p")
# Products.
alike("mm matmul", "3,4 4,2", "r", "torch.{}(a, b)")
case("bmm", "torch.bmm(a, b)", "2,3,2 2,2,2")
case("mv", "torch.mv(a, b)", "3,4 4")
case("dot", "torch.dot(a, b)", "4 4")
case("outer", "torch.outer(a, b)", "3 4")
for shapes in ["2,3,4 4,2", "4 4,2", "3,4 4", "2,1,3,2 2,2,2", "4 2,4,3", "2,3,4 4", "4 4"]:
    case("matmul", "torch.matmul(a, b)", shapes)
case("linear", "F.linear(a, b)", "2,3,4 5,4")
case("linear", "F.linear(a, b, c)", "3,4 5,4 5")
case("addmm(beta=0.5,alpha=2)", "torch.addmm(a, b, c, beta=0.5, alpha=2)", "2 3,4 4,2")
case("baddbmm", "torch.baddbmm(a, b, c)", "2,3,2 2,3,2 2,2,2")
case("addmv", "torch.addmv(a, b, c)", "3 3,4 4")
case("glu(dim=1)", "F.glu(a, 1)", "3,4")
case("rotary", "a * b + torch.cat((-a[..., 2:], a[..., :2]), -1) * c", "2,3,4 3,4 3,4")
# Attention.
QKV = "1,2,3,4 1,2,5,4 1,2,5,2"
case("scaled_dot_product_attention", "F.scaled_dot_product_attention(a, b, c)", QKV)
case(
    "scaled_dot_product_attention(causal=true,scale=0.3)",
    "F.scaled_dot_product_attention(a, b, c, is_causal=True, scale=0.3)",
    "1,2,3,2 1,2,3,2 1,2,3,2",
)
case(
    "scaled_dot_product_attention",
    "F.scaled_dot_product_attention(a, b, c, d, enable_gqa=True)",
    "1,4,3,2 1,2,3,2 1,2,3,2 3,3",
)
case(
    "scaled_dot_product_attention",
    "F.scaled_dot_product_attention(a, b, c, d, enable_gqa=True)",
    "1,4,2,2 1,2,3,2 1,2,3,2 1,4,2,3",
)
# Windows.
case("conv1d(stride=2,padding=1)", "F.conv1d(a, b, c, 2, 1)", "2,3,6 4,3,2 4")
case("conv1d(stride=2,padding=2,dilation=3)", "F.conv1d(a, b, None, 2, 2, 3)", "1,2,9 3,2,3")
case("conv1d(groups=2,stride=3)", "F.conv1d(a, b, None, 3, groups=2)", "2,4,7 6,2,2")
case(
    "conv2d(stride=[1,2],padding=[1,0],dilation=[2,1])",
    "F.conv2d(a, b, None, (1, 2), (1, 0), (2, 1))",
    "1,2,5,4 3,2,2,2",
)
case("conv3d", "F.conv3d(a, b)", "1,1,3,2,3 2,1,2,1,2")
case("convolution(groups=3,padding=1)", "F.conv1d(a, b, c, 1, 1, groups=3)", "2,3,4 3,1,3 3")
case(
    "conv_transpose1d(stride=2,padding=1,groups=2)",
    "F.conv_transpose1d(a, b, c, 2, 1, groups=2)",
    "2,4,3 4,2,3 4",
)
case("conv_transpose2d(stride=2)", "F.conv_transpose2d(a, b, None, 2)", "1,2,2,3 2,1,2,2")
case("conv_transpose3d", "F.conv_transpose3d(a, b)", "1,1,2,2,2 1,2,1,2,2")
case("avg_pool1d(kernel=2)", "F.avg_pool1d(a, 2)", "2,2,5")
case("avg_pool2d(kernel=[2,3],stride=1,padding=1)", "F.avg_pool2d(a, (2, 3), 1, 1)", "1,2,4,4")
case("avg_pool3d(kernel=2)", "F.avg_pool3d(a, 2)", "1,1,4,2,3")
case("max_pool1d(kernel=2)", "F.max_pool1d(a, 2)", "2,2,5")
case("max_pool2d(kernel=3,stride=2,padding=1)", "F.max_pool2d(a, 3, 2, 1)", "1,2,5,5")
case("max_pool3d(kernel=2)", "F.max_pool3d(a, 2)", "1,1,2,3,2")
case("max_pool2d(kernel=2,stride=1)", "F.max_pool2d(a, 2, 1)", "-", "[[[[1,1,0],[1,2,2],[3,2,0]]]]")
# Indexed.
case("embedding", "F.embedding(long(b), a)", "5,3 2,4", "r i5")
case("index_select(dim=1)", "a.index_select(1, long(b))", "3,4 5", "r i4")
case("gather(dim=1)", "a.gather(1, long(b))", "3,4 3,2", "r i4")
case("take_along_dim(dim=0)", "a.take_along_dim(long(b), 0)", "3,4 2,4", "r i3")
case("scatter_add(dim=1)", "a.scatter_add(1, long(b), c)", "3,4 3,2 3,2", "r i4 r")
case("index_add(dim=1)", "a.index_add(1, long(b), c)", "3,4 2 3,2", "r i4 r")
case("scatter(dim=1)", "a.scatter(1, long(b), c)", "3,4 3,2 3,2", "r d4 r")
case("index_copy(dim=1)", "a.index_copy(1, long(b), c)", "3,4 2 3,2", "r d4 r")
# Losses.
for reduction in ["mean", "sum", "none"]:
    of = f"reduction='{reduction}'"
    for name, more, theirs, kinds in [
        ("mse_loss", "", "", "r"),
        ("l1_loss", "", "", "r"),
        ("smooth_l1_loss", ",beta=0.7", "beta=0.7", "r"),
        ("huber_loss", ",delta=0.7", "delta=0.7", "r"),
        ("binary_cross_entropy", "", "", "u"),
        ("binary_cross_entropy_with_logits", "", "", "r u"),
        ("kl_div", "", "", "r p"),
        ("kl_div", ",log_target=true", "log_target=True", "r"),
    ]:
        case(f"{name}(reduction={reduction}{more})", f"F.{name}(a, b, {of}, {theirs})", "3,4 3,4", kinds)
    for name, numbers in [("cross_entropy", "r"), ("nll_loss", "r")]:
        for shapes in ["3,4 3", "2,3,2 2,2", "1,3,2,2 1,2,2"]:
            case(f"{name}(reduction={reduction})", f"F.{name}(a, long(b), {of})", shapes, f"{numbers} i3")
            case(
                f"{name}(reduction={reduction},ignore_index=1)",
                f"F.{name}(a, long(b), {of}, ignore_index=1)",
                shapes,
                f"{numbers} i3",
            )
    case(
        f"cross_entropy(reduction={reduction},label_smoothing=0.1)",
        f"F.cross_entropy(a, long(b), {of}, label_smoothing=0.1)",
        "3,4 3",
        "r i4",
    )
    case(
        f"cross_entropy(reduction={reduction},label_smoothing=0.1,ignore_index=2)",
        f"F.cross_entropy(a, long(b), {of}, label_smoothing=0.1, ignore_index=2)",
        "5,4,2 5,2",
        "r i4",
    )
    for name in ["cross_entropy", "nll_loss"]:
        case(f"{name}(reduction={reduction})", f"F.{name}(a, long(b), c.detach(), {of})", "2,3,2 2,2 =3", "r i3 =p")
        case(
            f"{name}(reduction={reduction},ignore_index=1)",
            f"F.{name}(a, long(b), c.detach(), {of}, ignore_index=1)",
            "5,3 5 =3",
            "r i3 =p",
        )
    case(
        f"cross_entropy(reduction={reduction},label_smoothing=0.1,ignore_index=2)",
        f"F.cross_entropy(a, long(b), c.detach(), {of}, label_smoothing=0.1, ignore_index=2)",
        "5,4 5 =4",
        "r i4 =p",
    )
case("cross_entropy(ignore_index=-100)", "F.cross_entropy(a, long(b))", "-", "[[1,2,0.5],[0,-1,1],[2,2,2]] [0,-100,2]")
case("l1_loss", "F.l1_loss(a, b)", "-", "[1,2,3] [1,3,2]")
case("smooth_l1_loss", "F.smooth_l1_loss(a, b)", "-", "[1,2,3,5] [1,3,2,5.5]")
case("smooth_l1_loss(beta=0)", "F.smooth_l1_loss(a, b, beta=0)", "-", "[1,2,3] [1,3,2]")
case("huber_loss", "F.huber_loss(a, b)", "-", "[1,2,3,5] [1,3,2,5.5]")
case("binary_cross_entropy", "F.binary_cross_entropy(a, b)", "-", "[0.25,0.5,0.75,0.5] =[0,1,1,0]")
case("binary_cross_entropy_with_logits", "F.binary_cross_entropy_with_logits(a, b)", "-", "[-800,800,0,1] [0,1,1,0]")
case("kl_div(reduction=sum)", "F.kl_div(a, b, reduction='sum')", "-", "[1,2,-1] =[0,0.5,0.5]")

# Scans.
for name, of in [("cumprod", "a.cumprod(1)"), ("logcumsumexp", "a.logcumsumexp(1)"), ("cummax", "a.cummax(1)[0]"), ("cummin", "a.cummin(1)[0]")]:
    case(f"{name}(dim=1)", of, "3,5")
    case(f"{name}(dim=1)", of, "-", "[[1,0,2,0,3],[0,0,1,2,2],[3,3,2,2,5]]")
case("cumprod(dim=0)", "a.cumprod(0)", "4,2")
case("logcumsumexp(dim=1)", "a.logcumsumexp(1)", "-", "[[-800,1,800],[800,1,-800]]")
case("pad(pads=[1,2],mode=reflect)", "F.pad(a, (1, 2), mode='reflect')", "2,4")
case("pad(pads=[1,2],mode=replicate)", "F.pad(a, (1, 2), mode='replicate')", "2,4")
case("pad(pads=[1,2],mode=circular)", "F.pad(a, (1, 2), mode='circular')", "2,4")
case("pad(pads=[1,2],value=3)", "F.pad(a, (1, 2), value=3)", "2,4")
# Rearrangements.
case("unfold_dim(dim=1,size=3,step=2)", "a.unfold(1, 3, 2)", "2,6")
case("im2col(kernel=2,padding=1,dilation=2)", "F.unfold(a, 2, 2, 1)", "1,2,3,3")
case("channel_shuffle(groups=2)", "F.channel_shuffle(a, 2)", "1,4,2,2")
case("rot90(times=3)", "a.rot90(3)", "2,3")
case("meshgrid", "torch.meshgrid(a, b, indexing='ij')", "2 3")
case("cartesian_prod", "torch.cartesian_prod(a, b)", "2 3")
case("block_diag", "torch.block_diag(a, b)", "2,3 1,2")
case("diagonal_scatter", "a.diagonal_scatter(b)", "3,3 3")
case("masked_scatter", "a.masked_scatter(bool(b), c)", "2,3 2,3 6", "r m r")
case("fftshift(dims=[1])", "torch.fft.fftshift(a, 1)", "2,5")
case("ifftshift", "torch.fft.ifftshift(a)", "2,5")
case("index_fill(dim=1,value=7)", "a.index_fill(1, long(b), 7)", "2,4 2", "r i4")
case("max_unpool2d(size=4)", "F.max_unpool2d(a, long(b), 2, output_size=(4, 4))", "1,1,2,2 -", "[[[[1,2],[3,4]]]] =[[[[0,3],[9,14]]]]")
case("take", "a.take(long(b))", "2,3 4", "r i6")
case("interpolate(size=[4,5])", "F.interpolate(a, (4, 5))", "1,2,2,3")
case("complex", "torch.view_as_real(torch.complex(a, b))", "3 3")
case("real", "torch.view_as_complex(a).real", "3,2")
case("imag", "torch.view_as_complex(a).imag", "3,2")
# More element by element.
alike("digamma entr", "3,4", "p", "torch.special.{}(a)")
case("cbrt", "a ** (1 / 3)", "3,4", "p")
alike("erfcx ndtr log_ndtr i0 i0e i1 i1e sinc", "3,4", "r", "torch.special.{}(a)")
case("ndtri", "torch.special.ndtri(a)", "3,4", "u")
alike("i0 i0e i1 i1e sinc", "-", "[0,0.5,-0.5]", "torch.special.{}(a)")
case("polygamma(n=2)", "torch.polygamma(2, a)", "3,4", "p")
case("mvlgamma(p=3)", "torch.mvlgamma(a, 3)", "3,4", "g")
case("logaddexp2", "torch.logaddexp2(a, b)", "3,4 4")
case("xlog1py", "torch.special.xlog1py(a, b)", "3,4 4", "p")
case("xlog1py", "torch.special.xlog1py(a, b)", "-", "[0,0,1] [0,-1,2]")
case("copysign", "torch.copysign(a, b)", "-", "[1,-1,2,-2,0] [1,1,-2,-3,1]")
case("ldexp", "torch.ldexp(a, b)", "3,4 4")
case("nan_to_num", "torch.nan_to_num(a)", "-", "[1,inf,-inf,2]")
case("clamp_tensor", "torch.clamp(a, b, c)", "-", "[0,1,2,3,4,5,2] [1,1,1,1,1,1,3] [4,4,4,4,4,4,2]")
case("frexp", "torch.frexp(a)", "3,4")
case("angle", "torch.angle(a)", "3,4")
case("polar", "torch.view_as_real(torch.polar(a, b))", "3 3", "p")
# Draws, which have no gradient.
case("bernoulli", "a.bernoulli()", "4", "u")
case("poisson", "torch.poisson(a)", "4", "p")
case("normal", "torch.normal(a, b)", "4 4", "p")
case("multinomial(samples=2)", "torch.multinomial(a, 2)", "2,3", "p")
for name in ["uniform", "exponential", "cauchy", "log_normal"]:
    case(name, f"(a * 1).{name}_()", "4")
case("geometric(p=0.5)", "(a * 1).geometric_(0.5)", "4")
# More linear.
case("fft(dims=[0])", "torch.view_as_real(torch.fft.fft(torch.view_as_complex(a), dim=0))", "5,2,2")
case("ifft(dims=[0,1])", "torch.view_as_real(torch.fft.ifftn(torch.view_as_complex(a), dim=(0, 1)))", "3,2,2")
case("rfft(dims=[1])", "torch.view_as_real(torch.fft.rfft(a, dim=1))", "2,6")
case("rfft(dims=[0,1])", "torch.view_as_real(torch.fft.rfftn(a, dim=(0, 1)))", "3,5")
case("ihfft(dims=[1])", "torch.view_as_real(torch.fft.ihfft(a, dim=1).resolve_conj())", "2,5")
case("irfft(dims=[0])", "torch.fft.irfft(torch.view_as_complex(a), dim=0)", "4,2")
case("irfft(dims=[0],size=5)", "torch.fft.irfft(torch.view_as_complex(a), 5, dim=0)", "3,2")
case("irfft(dims=[1,0],size=4)", "torch.fft.irfftn(torch.view_as_complex(a), (2, 4), dim=(1, 0))", "3,2,2")
case("hfft(dims=[0])", "torch.fft.hfft(torch.view_as_complex(a), dim=0)", "4,2")
case("irfft(dims=[0],size=8)", "torch.fft.irfft(torch.view_as_complex(a), 8, dim=0)", "3,2")
case(
    "stft(window=4,hop=2)",
    "torch.view_as_real(torch.stft(a, 4, 2, 4, torch.ones(4, dtype=torch.float64), False, return_complex=True))",
    "2,8",
)
case("diff(order=2,dim=1)", "a.diff(2, 1)", "2,5")
case("trapezoid(dim=1)", "torch.trapezoid(a, dim=1)", "2,5")
case("cumulative_trapezoid(dim=1)", "torch.cumulative_trapezoid(a, dim=1)", "2,5")
case("gradient(dim=1)", "torch.gradient(a, dim=1)[0]", "2,5")
case("trace", "a.trace()", "3,3")
case("nanmedian(dim=1)", "a.nanmedian(1)[0]", "-", "[[1,nan,2,5],[nan,nan,3,nan]]")
case("nanmedian", "a.nanmedian()", "-", "[[1,nan,2],[nan,2,3]]")
case("nanquantile(q=0.3,dim=1)", "a.nanquantile(0.3, 1)", "-", "[[1,nan,2,5],[nan,nan,3,nan]]")
case("nansum(dims=[1])", "a.nansum(1)", "-", "[[1,nan,2],[nan,nan,3]]")
case("nanmean(dims=[1])", "a.nanmean(1)", "-", "[[1,nan,2],[nan,nan,3]]")
case("col2im(size=[3,4],kernel=2,padding=1)", "F.fold(a, (3, 4), 2, padding=1)", "1,4,20")
case("adaptive_avg_pool1d(size=3)", "F.adaptive_avg_pool1d(a, 3)", "2,2,7")
case("adaptive_avg_pool2d(size=[2,3])", "F.adaptive_avg_pool2d(a, (2, 3))", "1,2,5,4")
case("adaptive_avg_pool3d(size=2)", "F.adaptive_avg_pool3d(a, 2)", "1,1,3,2,4")
case("grid_sample", "F.grid_sample(a, b, align_corners=False)", "1,2,2,3 1,2,2,2", "r r")
case("grid_sample", "F.grid_sample(a, b, align_corners=False)", "1,1,2,2,2 1,1,2,1,3", "r u")
case("grid_sample(mode=nearest)", "F.grid_sample(a, b, 'nearest', align_corners=False)", "1,2,2,3 1,2,2,2", "r u")
case("interpolate(size=[5],mode=linear)", "F.interpolate(a, 5, mode='linear')", "1,2,3")
case("interpolate(size=[5,2],mode=linear)", "F.interpolate(a, (5, 2), mode='bilinear')", "1,2,3,4")
case("interpolate(size=[5,4],mode=linear,align_corners=true)", "F.interpolate(a, (5, 4), mode='bilinear', align_corners=True)", "1,2,3,3")
case("interpolate(size=[5,4],mode=cubic)", "F.interpolate(a, (5, 4), mode='bicubic')", "1,1,3,3")
case("interpolate(size=[2,3],mode=area)", "F.interpolate(a, (2, 3), mode='area')", "1,1,5,4")
case("interpolate(size=[4,5],mode=nearest_exact)", "F.interpolate(a, (4, 5), mode='nearest-exact')", "1,1,3,2")
case("interpolate(size=3,mode=linear)", "F.interpolate(a, (3, 3, 3), mode='trilinear')", "1,1,2,2,2")
case("affine_grid(size=[2,3])", "F.affine_grid(a, (2, 1, 2, 3), align_corners=False)", "2,2,3")
case("affine_grid(size=[2,1,2])", "F.affine_grid(a, (1, 1, 2, 1, 2), align_corners=False)", "1,3,4")
# Selecting.
case("median(dim=1)", "a.median(1)[0]", "3,5")
case("median", "a.median()", "-", "[[1,2,2],[3,2,0]]")
case("median(dim=1)", "a.median(1)[0]", "-", "[[1,2,2,3,2],[2,2,2,2,1]]")
case("kthvalue(k=2,dim=1,keepdim=true)", "a.kthvalue(2, 1, True)", "-", "[[1,2,3],[3,1,0]]")
case("kthvalue(k=2,dim=1)", "a.kthvalue(2, 1)", "3,4")
case("mode(dim=1)", "a.mode(1)", "3,4")
case("quantile(q=0.3,dim=1)", "a.quantile(0.3, 1)", "3,4")
case("quantile(q=0.75)", "a.quantile(0.75)", "3,4")
case("aminmax(dim=1)", "torch.aminmax(a, dim=1)", "-", TIES)
case("var_mean(dims=[1])", "torch.var_mean(a, 1)", "3,4")
case("std_mean(dims=[0],correction=0)", "torch.std_mean(a, 0, correction=0)", "3,4")
case("adaptive_max_pool1d(size=3)", "F.adaptive_max_pool1d(a, 3)", "2,2,7")
case("adaptive_max_pool2d_with_indices(size=2)", "F.adaptive_max_pool2d(a, 2, return_indices=True)", "1,2,5,4")
case("adaptive_max_pool2d(size=2)", "F.adaptive_max_pool2d(a, 2)", "1,2,5,4")
case("adaptive_max_pool3d(size=2)", "F.adaptive_max_pool3d(a, 2)", "1,1,3,2,4")
case("max_pool1d_with_indices(kernel=2)", "F.max_pool1d(a, 2, return_indices=True)", "2,2,5")
case("max_pool2d_with_indices(kernel=3,stride=2,padding=1)", "F.max_pool2d(a, 3, 2, 1, return_indices=True)", "1,2,5,5")
case("max_pool3d_with_indices(kernel=2)", "F.max_pool3d(a, 2, return_indices=True)", "1,1,2,3,2")
case("fractional_max_pool2d(size=2,kernel=2)", "F.fractional_max_pool2d(a, 2, 2, _random_samples=b)", "1,1,5,6 =1,1,2", "r =u")
case("lp_pool1d(kernel=2,norm_type=3)", "F.lp_pool1d(a, 3, 2)", "1,2,6", "p")
case("lp_pool3d(kernel=2)", "F.lp_pool3d(a, 2, 2)", "1,1,2,2,4")
case("adaptive_max_pool1d_with_indices(size=3)", "F.adaptive_max_pool1d(a, 3, return_indices=True)", "1,2,7")
case("adaptive_max_pool3d_with_indices(size=2)", "F.adaptive_max_pool3d(a, 2, return_indices=True)", "1,1,3,2,4")
for n, space in [(2, "5,6"), (3, "4,4,5")]:
    case(
        f"fractional_max_pool{n}d_with_indices(size=2,kernel=2)",
        f"F.fractional_max_pool{n}d(a, 2, 2, _random_samples=b, return_indices=True)",
        f"1,1,{space} =1,1,{n}",
        "r =u",
    )
case("fractional_max_pool3d(size=2,kernel=2)", "F.fractional_max_pool3d(a, 2, 2, _random_samples=b)", "1,1,4,4,5 =1,1,3", "r =u")
case("lp_pool2d(kernel=2)", "F.lp_pool2d(a, 2, 2)", "1,2,4,4")
case("local_response_norm(size=3)", "F.local_response_norm(a, 3)", "1,5,2")
case("local_response_norm(size=2,alpha=1.5,beta=0.5,k=2)", "F.local_response_norm(a, 2, 1.5, 0.5, 2)", "1,5,2")
# Norms with their moments.
case("native_layer_norm(eps=0.1)", "torch.native_layer_norm(a, (4,), b, c, 0.1)[0:1]", "3,4 4 4")
case("native_group_norm(groups=2,eps=0.1)", "torch.native_group_norm(a, b, c, 2, 4, 3, 2, 0.1)", "2,4,3 4 4")
case("native_batch_norm(eps=0.1)", "torch.native_batch_norm(a, b, c, None, None, True, 0.1, 0.1)[0:1]", "3,4,2 4 4")
case("fused_rms_norm(eps=0.1)", "F.rms_norm(a, (4,), b, 0.1)", "3,4 4")
case("weight_norm(dim=0)", "torch._weight_norm(a, b, 0)", "3,4 3,1")
case("renorm(dim=0,p=2,maxnorm=1.5)", "torch.renorm(a, 2, 0, 1.5)", "3,4")
# Distances.
for p in ["1", "2", "inf"]:
    case(f"cdist(p={p})", f"torch.cdist(a, b, float('{p}'))", "3,4 2,4")
    case(f"dist(p={p})", f"torch.dist(a, b, float('{p}'))", "3,4 3,4")
    case(f"pairwise_distance(p={p})", f"F.pairwise_distance(a, b, float('{p}'))", "3,4 3,4")
    case(f"pdist(p={p})", f"F.pdist(a, float('{p}'))", "4,3")
case("cdist", "torch.cdist(a, b)", "-", "[[1,2],[3,4]] [[1,2],[0,0]]")
case("dist", "torch.dist(a, b)", "-", "[1,2] [1,2]")
case("cosine_similarity(dim=1)", "F.cosine_similarity(a, b)", "3,4 3,4")
case("cosine_similarity(dim=1)", "F.cosine_similarity(a, b)", "-", "[[0,0],[3,4]] [[1,2],[0,1]]")
case("cosine_similarity(dim=1,eps=3)", "F.cosine_similarity(a, b, 1, 3)", "3,4 3,4")
case("cov", "torch.cov(a)", "3,4")
case("corrcoef", "torch.corrcoef(a)", "3,4")
# More losses.
for reduction in ["mean", "sum", "none"]:
    of, ours = f"reduction='{reduction}'", f"reduction={reduction}"
    case(f"soft_margin_loss({ours})", f"F.soft_margin_loss(a, b, {of})", "3,4 =3,4", "r =s")
    case(f"hinge_embedding_loss({ours})", f"F.hinge_embedding_loss(a, b, {of})", "3,4 =3,4", "r =s")
    case(f"poisson_nll_loss({ours})", f"F.poisson_nll_loss(a, b, {of})", "3,4 3,4", "r p")
    case(f"poisson_nll_loss({ours},log_input=false,full=true)", f"F.poisson_nll_loss(a, b, False, True, {of})", "3,4 3,4", "p")
    case(f"gaussian_nll_loss({ours})", f"F.gaussian_nll_loss(a, b, c, {of})", "3,4 3,4 3,4", "r r p")
    case(f"gaussian_nll_loss({ours},eps=1)", f"F.gaussian_nll_loss(a, b, c, eps=1., {of})", "3,4 3,4 3,4", "r r p")
    case(f"margin_ranking_loss({ours},margin=0.5)", f"F.margin_ranking_loss(a, b, c, 0.5, {of})", "6 6 =6", "r r =s")
    case(f"triplet_margin_loss({ours})", f"F.triplet_margin_loss(a, b, c, {of})", "3,4 3,4 3,4")
    case(f"triplet_margin_loss({ours},p=1,margin=4)", f"F.triplet_margin_loss(a, b, c, 4, 1, {of})", "3,4 3,4 3,4")
    case(f"cosine_embedding_loss({ours},margin=-0.5)", f"F.cosine_embedding_loss(a, b, c, -0.5, {of})", "4,3 4,3 =4", "r r =s")
    case(f"multi_margin_loss({ours})", f"F.multi_margin_loss(a, long(b), {of})", "3,4 3", "r i4")
    case(f"multi_margin_loss({ours},p=2,margin=0.5)", f"F.multi_margin_loss(a, long(b), 2, 0.5, {of})", "3,4 3", "r i4")
    case(f"multilabel_margin_loss({ours})", f"F.multilabel_margin_loss(a, listed_labels(b), {of})", "3,4 3,4", "r m")
    case(f"multilabel_soft_margin_loss({ours})", f"F.multilabel_soft_margin_loss(a, b, {of})", "3,4 =3,4", "r =m")
case("hinge_embedding_loss", "F.hinge_embedding_loss(a, b)", "-", "[1,0.5,2,1] =[-1,-1,-1,1]")
case("margin_ranking_loss(margin=1)", "F.margin_ranking_loss(a, b, c, 1)", "-", "[1,2,3] [2,2,3] =[-1,1,1]")
# More products.
case("vdot", "torch.vdot(a, b)", "4 4")
case("vecdot", "torch.linalg.vecdot(a, b)", "3,4 3,4")
case("addbmm(beta=0.5,alpha=2)", "torch.addbmm(a, b, c, beta=0.5, alpha=2)", "3,2 2,3,4 2,4,2")
case("addr(beta=0.5,alpha=2)", "torch.addr(a, b, c, beta=0.5, alpha=2)", "3,2 3 2")
case("cross(dim=1)", "torch.linalg.cross(a, b, dim=1)", "2,3 2,3")
case("kron", "torch.kron(a, b)", "2,3 3,2")
case("multi_dot", "torch.linalg.multi_dot((a, b, c))", "2,3 3,4 4,2")
case("bilinear", "F.bilinear(a, b, c)", "2,3,2 2,3,3 4,2,3")
case("tensordot(dims=2)", "torch.tensordot(a, b, 2)", "2,3,2 3,2,4")
case("tensordot(dims=0)", "torch.tensordot(a, b, 0)", "2 3")
case("vander(columns=3)", "torch.stack((a**2, a, a**0), 1)", "3")
case("vander(columns=3)", "torch.stack((a**2, a, a**0), 1)", "-", "[0,1,-2]")
case("scaled_mm", "a @ b * c * d", "3,4 4,2 () ()")
case("grouped_mm", "torch.cat((a[:2] @ b[0], a[2:2] @ b[1], a[2:5] @ b[2]))", "5,3 3,3,2 -", "[[1,2,3],[0,1,-1],[2,2,1],[3,-1,0],[1,1,1]] "
     "[[[1,2],[3,4],[5,6]],[[1,0],[0,1],[1,1]],[[2,-1],[1,3],[0,1]]] =[2,2,5]")
case("rnn_tanh_cell", "torch.rnn_tanh_cell(a, b, c, d, e, f)", "2,3 2,2 2,3 2,2 2 2")
case("rnn_relu_cell", "torch.rnn_relu_cell(a, b, c, d, e, f)", "2,3 2,2 2,3 2,2 2 2")
case("lstm_cell", "torch.lstm_cell(a, (b, c), d, e, f, g)", "2,3 2,2 2,2 8,3 8,2 8 8")
case("gru_cell", "torch.gru_cell(a, b, c, d, e, f)", "2,3 2,2 6,3 6,2 6 6")
# More indexed.
case("embedding_bag", "F.embedding_bag(long(b), a, mode='sum')", "5,3 2,4", "r i5")
case("embedding_bag(mode=mean)", "F.embedding_bag(long(b), a, mode='mean')", "5,3 2,4", "r i5")
case("index_put", "a.index_put((long(b),), c)", "4,3 2 2,3", "r d4 r")
case("index_put(accumulate=true)", "a.index_put((long(b),), c, True)", "4,3 3 3,3", "r i3 r")
case("put", "a.put(long(b), c)", "2,3 4 4", "r d6 r")
case("put(accumulate=true)", "a.put(long(b), c, True)", "2,3 4 4", "r i3 r")
for reduce in ["sum", "prod", "mean", "amax", "amin"]:
    case(f"scatter_reduce(dim=1,reduce={reduce})", f"a.scatter_reduce(1, long(b), c, '{reduce}')", "3,4 3,3 3,3", "r i3 r")
    case(
        f"scatter_reduce(dim=0,reduce={reduce})",
        f"a.scatter_reduce(0, long(b), c, '{reduce}')",
        "-",
        "[0,2,0,3,4] =[0,0,1,1,2,2,3,3] [2,0,2,2,0,3,3,0]",
    )
    if reduce != "sum":
        case(f"index_reduce(dim=1,reduce={reduce})", f"a.index_reduce(1, long(b), c, '{reduce}')", "3,4 3 3,3", "r i3 r")
case("scatter_amax(dim=1)", "a.scatter_reduce(1, long(b), c, 'amax')", "3,4 3,3 3,3", "r i3 r")

NAMES = "abcdefghij"


def listed_labels(x):
    """Returns the indices of each row's true classes in order, padded with -1."""
    rows = [[j for j, v in enumerate(row) if v] for row in x.detach().tolist()]
    return torch.tensor([row + [-1] * (x.shape[1] - len(row)) for row in rows])


def long(x):
    return x.detach().long()


def bool(x):
    return x.detach() != 0


def sixteenths(rng, low, high):
    return rng.randint(int(low * 16), int(high * 16)) / 16


def numbers(kind, shape, rng):
    n = math.prod(shape)
    letter, below = kind[0], kind[1:]
    if letter == "r":
        # Distinct, and not 0.
        choice = [k / 32 for k in range(-70, 71) if k % 32]
        return rng.sample(choice, n) if n <= len(choice) else [rng.choice(choice) for _ in range(n)]
    if letter in "pug":
        low, high = {"p": (0.25, 2.5), "u": (0.1, 0.9), "g": (1.25, 3)}[letter]
        return [math.floor(rng.uniform(low, high) * 64) / 64 for _ in range(n)]
    if letter == "m":
        return [rng.randint(0, 1) for _ in range(n)]
    if letter == "s":
        return [rng.choice([-1, 1]) for _ in range(n)]
    if letter == "i":
        return [rng.randrange(int(below)) for _ in range(n)]
    if letter == "d":
        return [(i % shape[-1] + i // shape[-1]) % int(below) for i in range(n)]
    raise ValueError(kind)


def inputs(shapes, kinds, rng):
    """Returns tensors, each with True if it is differentiated; = before a shape or a kind excludes it."""
    kinds = kinds.split()
    lists = [k for k in kinds if "[" in k]
    made = []
    if lists:
        for kind in kinds:
            fixed, text = kind.startswith("="), kind.lstrip("=").replace("inf", "Infinity").replace("nan", "NaN")
            made.append((torch.tensor(json.loads(text), dtype=torch.float64), not fixed))
        return made
    for i, text in enumerate(shapes.split()):
        if text == "-":
            continue
        kind = kinds[min(i, len(kinds) - 1)]
        shape = [] if text.lstrip("=") == "()" else [int(n) for n in text.lstrip("=").split(",")]
        smooth = not (kind.startswith("=") or kind[0] in "idms")
        data = numbers(kind.lstrip("="), shape, rng)
        made.append((torch.tensor(data, dtype=torch.float64).reshape(shape), smooth))
    return made


def texts(x):
    """Replaces numbers that are not finite by texts, in nested lists."""
    if isinstance(x, list):
        return [texts(v) for v in x]
    if not math.isfinite(x):
        return "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"
    short = float(f"{x:.11g}")
    return int(short) if short == int(short) and abs(short) < 1e9 else short


def listed(x):
    return None if x is None else texts(x.tolist())


def line(call, torch_call, shapes, kinds):
    rng = random.Random(f"{call} {shapes} {kinds}")
    given = inputs(shapes, kinds, rng)
    x = [t.clone().requires_grad_(smooth) for t, smooth in given]
    scope = {"torch": torch, "F": F, "long": long, "bool": bool, "listed_labels": listed_labels, **dict(zip(NAMES, x))}
    y = eval(torch_call, scope)
    y = [y] if isinstance(y, torch.Tensor) else list(y)
    dy = [
        torch.tensor([sixteenths(rng, -2, 2) or 0.5 for _ in range(o.numel())], dtype=torch.float64).reshape(o.shape)
        if o is not None and o.requires_grad
        else None
        for o in y
    ]
    pairs = [(o, d) for o, d in zip(y, dy) if d is not None]
    wanted = [i for i, t in enumerate(x) if t.requires_grad]
    dx = ["none" if i in wanted else None for i in range(len(x))]
    if pairs:
        outputs, gradients = zip(*pairs)
        found = torch.autograd.grad(outputs, [x[i] for i in wanted], gradients, allow_unused=True)
        for i, gradient in zip(wanted, found):
            dx[i] = "none" if gradient is None else listed(gradient)
    return {
        "call": call,
        "torch": torch_call,
        "x": [listed(t.detach()) for t in x],
        "dy": [listed(d) for d in dy],
        "dx": dx,
    }


def main():
    torch.manual_seed(0)
    version = torch.__version__.split("+")[0]
    head = f"gradients of torch {version} in f64: inputs x, gradients of outputs dy, and of inputs dx"
    print(json.dumps({"what": head}))
    failed = False
    for row in CASES:
        try:
            print(json.dumps(line(*row), separators=(",", ":")))
        except Exception as error:
            failed = True
            print(f"{row}: {error}", file=sys.stderr)
    sys.exit(failed)


main()
