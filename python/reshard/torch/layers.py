"""Attention, normalizations and dropout: layers whose arguments the table has otherwise."""

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from reshard.torch.call import Call
    from reshard.torch.forms import Form


def attention(call: "Call") -> Any:
    """`scaled_dot_product_attention`; fewer keys than queries are repeated, and dropout is written out."""
    given = call.given
    q, k, v = (call.operand(key) for key in ("query", "key", "value"))
    if given["enable_gqa"]:
        heads = call.graph.shape(q)[-3]
        k, v = (_repeated(call, name, heads) for name in (k, v))
    mask = None if given["attn_mask"] is None else call.mask(given["attn_mask"])
    options: dict[str, Any] = {} if given["scale"] is None else {"scale": given["scale"]}
    operands = [q, k, v] + ([] if mask is None else [mask])
    if given["dropout_p"] == 0:
        made = call.call("scaled_dot_product_attention", operands, causal=given["is_causal"], **options)
    else:
        made = _dropped(call, q, k, v, mask)
    return made if call.nothing is None else call.call("masked_fill", [made, call.nothing], value=0)


def _repeated(call: "Call", name: str, heads: int) -> str:
    shape = call.graph.shape(name)
    return name if shape[-3] == heads else call.call("repeat_interleave", [name], times=heads // shape[-3], dim=len(shape) - 3)


def _dropped(call: "Call", q: str, k: str, v: str, mask: str | None) -> str:
    """Attention of which some weights are dropped."""
    given, shape = call.given, call.graph.shape(q)
    scale = shape[-1] ** -0.5 if given["scale"] is None else given["scale"]
    scores = call.call("matmul", [call.call("mul_scalar", [q], value=scale), call.call("transpose", [k], dim0=-2, dim1=-1)])
    if given["is_causal"]:
        hidden = torch.ones(call.graph.shape(scores)[-2:], dtype=torch.bool).triu(1)
        scores = call.call("masked_fill", [scores, call.lowering.constant(f"{call.node.name}_hidden", hidden)], value="-inf")
    if mask is not None:
        scores = call.call("add", [scores, mask])
    return call.call("matmul", [call.call("dropout", [call.call("softmax", [scores], dim=-1)], p=given["dropout_p"]), v])


def dropped(call: "Call") -> Any:
    """Dropout by the program's stream; each call has another key."""
    given, name = call.given, call.operand("input")
    made = name
    if given["train"] is not False and given["p"] == 1:
        made = call.ignored(name)
    elif given["train"] is not False and given["p"] > 0:
        made = call.call(call.op.removeprefix("native_"), [name], p=given["p"])
    return [made, None] if call.op == "native_dropout" else made


def normalized(call: "Call") -> Any:
    """`layer_norm`, `rms_norm` and `group_norm`, whose weight and bias may be missing."""
    given = call.given
    name, weight, bias = call.operand("input"), call.maybe("weight"), call.maybe("bias")
    chosen: dict[str, Any] = {"groups": given["num_groups"]} if call.op == "group_norm" else {"last": len(given["normalized_shape"])}
    if given["eps"] is not None:
        chosen["eps"] = given["eps"]
    operands = [name]
    if weight is None and bias is not None:
        shape = list(call.graph.shape(bias))
        weight = call.filled("ones", shape, call.result.dtype)
    operands += [one for one in (weight, bias) if one is not None]
    return call.call(call.op, operands, **chosen)


def of_norm(call: "Call") -> Any:
    """`_weight_norm`: directions times lengths, along all dims but one."""
    direction, length = call.operand("v"), call.operand("g")
    rank = len(call.graph.shape(direction))
    kept = call.given["dim"]
    dims = [dim for dim in range(rank) if kept == -1 or dim != kept % rank]
    norm = call.call("linalg_vector_norm", [direction], dims=dims, keepdim=True)
    # As in `divided`: the gradient of the length has to be a result.
    return call.call("mul", [direction, call.call("div", [call.call("clone", [length]), norm])])


def normalized_by_image(call: "Call") -> Any:
    """`instance_norm`: each channel of each image by its own statistics."""
    given = call.given
    if not given["use_input_stats"]:
        raise call.rejected("takes running statistics, but instance_norm of the table computes them; use batch_norm")
    if given["running_mean"] is not None:
        raise call.rejected("writes running statistics, but instance_norm of the table has none; use track_running_stats=False")
    given.get("momentum")
    operands = [call.operand(key) for key in ("input", "weight", "bias") if given[key] is not None]
    return call.call("instance_norm", operands, eps=given["eps"])


def normalized_by_batch(call: "Call") -> Any:
    """`batch_norm`: by the given statistics in evaluation, and by those of the batch in training."""
    given = call.given
    # A step's momentum changes the running statistics alone.
    given.get("momentum")
    name = call.operand("input")
    dtype = given["input"].meta["val"].dtype
    channels = call.graph.shape(name)[1]
    weight, bias = (
        call.filled(of, [channels], dtype) if call.given[key] is None else call.operand(key) for of, key in (("ones", "weight"), ("zeros", "bias"))
    )
    is_evaluated = call.op == "_native_batch_norm_legit_no_training" or given.get("training") is False
    if not is_evaluated or given.get("running_mean") is None:
        return call.call("batch_norm", [name, weight, bias], training=True, eps=given["eps"])
    return call.call("batch_norm", [name, weight, bias, call.operand("running_mean"), call.operand("running_var")], training=False, eps=given["eps"])


def normalized_with_statistics(call: "Call") -> Any:
    """`batch_norm` of a functional graph: the running statistics after a step in training are results."""
    given = call.given
    made = normalized_by_batch(call)
    others: list[str | None] = [None] * (len(call.result) - 1)
    if len(call.result) == 5:
        name, momentum = call.operand("input"), given["momentum"]
        dims = [dim for dim in range(len(call.graph.shape(name))) if dim != 1]
        name = call.call("detach", [name])
        new = (call.call("mean", [name], dims=dims), call.call("var", [name], dims=dims, correction=1))
        for n, (key, one) in enumerate(zip(("running_mean", "running_var"), new, strict=True)):
            old = call.call("mul_scalar", [call.operand(key)], value=1 - momentum)
            others[n + 2] = call.call("add", [old, call.call("mul_scalar", [one], value=momentum)])
    return [made, *others]


FORMS: "dict[str, Form]" = {
    "scaled_dot_product_attention": attention,
    **dict.fromkeys(("dropout", "native_dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"), dropped),
    **dict.fromkeys(("layer_norm", "rms_norm", "group_norm"), normalized),
    "_weight_norm": of_norm,
    "instance_norm": normalized_by_image,
    "batch_norm": normalized_by_batch,
    **dict.fromkeys(
        ("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training"),
        normalized_with_statistics,
    ),
}
