"""Sharding rules for ops that DTensor has none for, by PyTorch's public registration."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from reshard import Op, ReshardError, OpTable
from reshard._refusals import refused

from reshard.torch.overloads import Use, arguments, by_name, taken, value_of, with_defaults
from reshard.torch.specs import OURS_TO_TORCH
from reshard.torch.version import DTensorSpec, OpOverload, Part, require

# The PyTorch ops that DTensor rejects, for which it has neither a rule nor a decomposition, and their names
# in the table. Their rules were tested by PyTorch's validator and by this library's.
OPS = {
    "_cdist_forward": "cdist",
    "addbmm": "addbmm",
    "col2im": "col2im",
    "im2col": "im2col",
    "renorm": "renorm",
    "scatter_reduce.two": "scatter_reduce",
    "searchsorted.Tensor": "searchsorted",
    "unfold": "unfold_dim",
}

Strategy = tuple[list[Placement], list[Placement | None]]


@dataclass(frozen=True)
class Registered:
    """An op with a newly registered rule: PyTorch's overload, and the op of the table whose rule it is."""

    overload: OpOverload
    op: str


def rules(table: OpTable | None = None, names: Iterable[str] | None = None) -> list[Registered]:
    """Registers the rules of a table for ops that DTensor has none for, and returns the registered ops.

    It uses `torch.distributed.tensor.experimental.register_sharding`; DTensor's dispatch is left alone.
    `names` are overloads of `aten`, such as `"unfold"` or `"scatter_reduce.two"`; the default is all of
    `OPS`. A name that is not in `OPS` is the op of that name in the table. An op that DTensor has a rule for
    is left out. A dim is sharded if the number of ranks divides it. An argument that the table does not know
    makes the op run on replicas.

    Errors: `ReshardError` for a name that is missing in PyTorch or in the table, and for an op whose result has a
    shape that depends on data; no op is registered then.
    """
    require(Part.RULES)
    chosen = OpTable.standard() if table is None else table
    made = []
    for name in dict.fromkeys(names if names is not None else OPS):
        overload = _overload(name)
        ours = OPS.get(name, name.partition(".")[0])
        if ours not in chosen:
            raise refused("op", f"the table has no op {ours}")
        if torch.Tag.dynamic_output_shape in overload.tags:
            # A rule has shapes alone, and a shard of such a result has a size that no rank can compute from them.
            raise refused("op", f"the shape of aten::{name}'s result depends on data, so it has no sharding rule; call it on a tensor from full_tensor()")
        if is_known(overload):
            continue
        made.append(Registered(overload, ours))
    for one in made:
        register_sharding(one.overload)(_rule(one.overload, one.op, chosen))
    return made


def is_known(overload: OpOverload) -> bool:
    """Returns True if DTensor has a rule for an op."""
    known = DTensor._op_dispatcher.sharding_propagator
    return overload in known.op_to_rules or overload in known.op_strategy_funcs or overload in known.op_single_dim_strategy_funcs


def _overload(name: str) -> OpOverload:
    packet, _, overload = name.partition(".")
    try:
        return getattr(getattr(torch.ops.aten, packet), overload or "default")
    except AttributeError:
        raise refused("op", f"PyTorch has no aten::{name}") from None


def _rule(overload: OpOverload, ours: str, table: OpTable) -> Callable[..., list[Strategy]]:
    def rule(*args: Any, **kwargs: Any) -> list[Strategy]:
        return strategies(overload, ours, table, args, kwargs)

    return rule


def op_of(overload: OpOverload, ours: str, table: OpTable, given: Mapping[str, Any]) -> Op | None:
    """Converts a PyTorch call to an op of the table; None for arguments that the table does not take."""
    parameters = table.parameters(ours) or {}
    uses = arguments(overload, ours, parameters)
    whole = with_defaults(overload, (), given)
    for argument in overload._schema.arguments:
        value = whole.get(argument.name)
        known = uses[argument.name].use in (Use.PARAMETER, Use.LEFT_OUT)
        if not known and not _is_tensor(value) and value != argument.default_value:
            return None
    chosen = {uses[key].called: value_of(uses[key], value, parameters) for key, value in taken(ours, whole, uses).items()}
    try:
        return Op(ours, [tuple(one.shape) for one in given.values() if _is_tensor(one)], table=table, **chosen)
    except (ReshardError, TypeError):
        return None


def strategies(overload: OpOverload, ours: str, table: OpTable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Strategy]:
    """Returns a rule's strategies for a call, for one axis, as PyTorch placements.

    A strategy lists outputs and inputs, with None for those that are not tensors. Tensors are specs, or
    objects with a shape.
    """
    given = by_name(overload, args, kwargs)
    tensors = [one for one in given.values() if _is_tensor(one)]
    outputs = len(overload._schema.returns)

    def made(inputs: Sequence[Placement], results: Sequence[Placement]) -> Strategy:
        left = iter(inputs)
        return list(results), [next(left) if _is_tensor(one) else None for one in given.values()]

    everywhere = made([Replicate()] * len(tensors), [Replicate()] * outputs)
    op = op_of(overload, ours, table, given)
    if op is None:
        return [everywhere]
    ranks = next((one.mesh.size() for one in tensors if isinstance(one, DTensorSpec)), 1)
    found = [everywhere]
    for text, needs_region in zip(op.strategies, op.regions, strict=True):
        inputs, results = (_placements(side) for side in text.split(" -> "))
        if needs_region or inputs is None or results is None or len(results) != outputs or len(inputs) != len(tensors):
            continue
        cut = [(one, tensor.shape) for one, tensor in zip(inputs, tensors, strict=True)] + list(zip(results, op.outputs, strict=True))
        if all(not isinstance(one, Shard) or shape[one.dim] % ranks == 0 for one, shape in cut):
            found.append(made(inputs, results))
    # DTensor cannot express partial values with different ops on different axes.
    ops = {one.reduce_op for results, _ in found for one in results if isinstance(one, Partial)}
    if len(ops) > 1:
        found = [one for one in found if not any(isinstance(p, Partial) for p in one[1] if p is not None)]
    return found


def _is_tensor(one: Any) -> bool:
    return isinstance(one, DTensorSpec | torch.Tensor)


_WORD = re.compile(r"(?:S\([A-Za-z_]+|\?)(\d+)\)?$")


def _placements(side: str) -> list[Placement] | None:
    """Returns the placements of one side of a strategy; None if PyTorch has none for one of them."""
    found: list[Placement] = []
    for word in side.split(","):
        if word == "R":
            found.append(Replicate())
        elif word == "P":
            found.append(Partial())
        elif word.startswith("P(") and word[2:-1] in OURS_TO_TORCH:
            found.append(Partial(OURS_TO_TORCH[word[2:-1]]))
        elif (cut := _WORD.match(word)) is not None:
            found.append(Shard(int(cut[1])))
        else:
            return None
    return found
