"""Losses of classes: the mean over the elements that count is a sum, divided by their number."""

from typing import TYPE_CHECKING, Any

import torch

from reshard.torch.overloads import REDUCTIONS

if TYPE_CHECKING:
    from reshard.torch.call import Call
    from reshard.torch.forms import Form


def of_classes(call: "Call") -> Any:
    """`cross_entropy_loss` and `nll_loss`."""
    op = "cross_entropy" if call.op == "cross_entropy_loss" else "nll_loss"
    given, graph = call.given, call.graph
    if isinstance(call.result, list | tuple):
        raise call.rejected("returns the weight of all elements too; use torch.nn.functional.nll_loss")
    reduction = REDUCTIONS[given["reduction"]]
    scores, target, weight = call.operand("self"), call.operand("target"), call.maybe("weight")
    shape = list(graph.shape(scores))
    if len(shape) == 1:
        # A single element has no dim of the batch.
        scores, shape = call.call("reshape", [scores], shape=[1, *shape]), [1, *shape]
        target = call.call("reshape", [target], shape=[1, *graph.shape(target)])
    if given["target"].meta["val"].dtype.is_floating_point:
        return _shaped_loss(call, _of_chances(call, scores, target, weight, reduction))
    options: dict[str, Any] = {}
    if (smoothing := given.get("label_smoothing", 0.0)) != 0:
        options["label_smoothing"] = smoothing
    target = call.cast(target, torch.int64)
    ignored = given["ignore_index"]
    operands = [scores, target] + ([] if weight is None else [weight])
    if reduction != "mean" or weight is not None:
        # With weights, the mean is over the weights of the classes, which the table's op has.
        return _shaped_loss(call, call.call(op, operands, reduction=reduction, ignore_index=ignored, **options))
    # A mean of the elements that count needs all of them on one rank; a sum and a number do not.
    total = call.call(op, operands, reduction="sum", ignore_index=ignored, **options)
    counts = call.call("ne", [target, call.number(ignored, torch.int64)])
    number = call.call("sum", [call.cast(counts, call.result.dtype)])
    return call.call("div", [total, number])


def _of_chances(call: "Call", scores: str, target: str, weight: str | None, reduction: str) -> str:
    """Returns the loss for a target that has a probability for each class."""
    classes = call.graph.shape(scores)[1]
    if (smoothing := call.given.get("label_smoothing", 0.0)) != 0:
        target = call.call("add_scalar", [call.call("mul_scalar", [target], value=1 - smoothing)], value=smoothing / classes)
    products = call.call("mul", [call.call("log_softmax", [scores], dim=1), target])
    if weight is not None:
        rank = len(call.graph.shape(scores))
        products = call.call("mul", [products, call.call("reshape", [weight], shape=[classes] + [1] * (rank - 2))])
    losses = call.call("neg", [call.call("sum", [products], dims=[1])])
    return losses if reduction == "none" else call.call(reduction, [losses])


def _shaped_loss(call: "Call", made: str) -> str:
    shape = list(call.result.shape)
    return made if list(call.graph.shape(made)) == shape else call.call("reshape", [made], shape=shape)


FORMS: "dict[str, Form]" = {
    **dict.fromkeys(("cross_entropy_loss", "nll_loss", "nll_loss_nd", "nll_loss2d"), of_classes),
}
