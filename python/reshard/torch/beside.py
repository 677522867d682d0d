"""Static comparison of a program's redistributions with DTensor's for the same module; needs no groups."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.experimental import implicit_replication

from reshard import Mesh, Program

from reshard.torch.dtensor_calls import dtensor_calls
from reshard.torch.hook import Hook
from reshard.torch.kernels import torch_dtype
from reshard.torch.specs import contiguous_strides, spec
from reshard.torch.version import DTensorSpec, Part, TensorMeta, TorchDispatchMode, compute_local_shape_and_global_offset, require

Pass = Literal["forward", "backward"]


@dataclass(frozen=True)
class Redistributed:
    """A redistribution: both shardings as text, the calls, and the bytes that the busiest rank receives."""

    what: str
    calls: tuple[str, ...]
    received_bytes: int


@dataclass(frozen=True)
class DTensorCost:
    """An op's redistributions by the program, their lower bound, and those of DTensor's dispatch.

    `theirs` is None if DTensor stopped before the op.
    """

    op: str
    of: Pass
    ours: tuple[Redistributed, ...]
    bound_bytes: int
    theirs: tuple[Redistributed, ...] | None


@dataclass(frozen=True)
class Comparison:
    """All ops with redistributions; `str` is a table. `stopped` is the error that ended DTensor's side, in the pass `stopped_in`."""

    rows: tuple[DTensorCost, ...]
    stopped: str | None = None
    stopped_in: Pass | None = None

    def received_bytes(self, of: Pass) -> tuple[int, int | None]:
        """Returns the bytes that the busiest rank receives in a pass: by the program, and by DTensor, None if it stopped."""
        rows = [row for row in self.rows if row.of == of]
        theirs = sum(one.received_bytes for row in rows for one in row.theirs or ())
        is_known = self.stopped_in is None or (of == "forward" and self.stopped_in == "backward")
        return sum(one.received_bytes for row in rows for one in row.ours), theirs if is_known else None

    def __str__(self) -> str:
        lines = [("", "ours", "bytes", "bound", "DTensor", "bytes")]
        for row in self.rows:
            name = row.op if row.of == "forward" else f"{row.op}, backward"
            theirs = row.theirs or ()
            for at in range(max(len(row.ours), len(theirs))):
                mine, other = (side[at] if at < len(side) else None for side in (row.ours, theirs))
                cells = _cells(other) if row.theirs is not None else ("-", "-")
                lines.append((name if at == 0 else "", *_cells(mine), str(row.bound_bytes) if at == 0 and row.ours else "", *cells))
        if len(lines) == 1:
            made = ["no redistributions, by our plans or by DTensor" if self.stopped is None else "no redistributions by our plans; DTensor -"]
        else:
            widths = [max(len(line[at]) for line in lines) for at in range(6)]
            made = ["  ".join(c.rjust(w) if at in (2, 3, 5) else c.ljust(w) for at, (c, w) in enumerate(zip(line, widths, strict=True))).rstrip() for line in lines]
            passes: tuple[Pass, ...] = ("forward", "backward")
            for of in passes:
                ours, received = self.received_bytes(of)
                if any(row.of == of for row in self.rows):
                    bound = sum(row.bound_bytes for row in self.rows if row.of == of)
                    made.append(f"{of}: ours {ours} B (bound {bound} B), DTensor {'-' if received is None else received} B")
        if self.stopped is not None:
            made.append(f"DTensor stopped: {self.stopped}")
        return "\n".join(made)


def _cells(one: Redistributed | None) -> tuple[str, str]:
    return ("", "") if one is None else (f"{one.what} by {', '.join(one.calls) or 'no call'}", str(one.received_bytes))


@dataclass(frozen=True)
class Ends:
    """Where a program begins and ends, by nodes of the exported graph: both sides have the same types there.

    `loss` is the node that is differentiated, or None; `gradients` are those of parameters.
    """

    inputs: Mapping[Any, str]
    results: Mapping[Any, str]
    loss: torch.fx.Node | None
    gradients: Mapping[Any, str]


def compared(exported: Any, program: Program, ranks: Mesh, made: Mapping[Any, Any], ends: Ends) -> Comparison:
    """Compares the redistributions of an exported module's program with DTensor's, between the same types.

    `made` maps nodes to the program's names.
    """
    require(Part.CHECK)
    ours = _ours(program, ranks)
    theirs, reached, stopped, stopped_in = _theirs(exported, program, ranks, made, ends)
    rows: list[DTensorCost] = []
    for node in exported.graph.nodes:
        if node.op != "call_function":
            continue
        names = made[node] if isinstance(made.get(node), list) else [made.get(node)]
        mine = [pair for name in names for pair in ours.pop(("forward", str(name)), [])]
        other = theirs.pop(("forward", node.name), [])
        if mine or other:
            known = tuple(other) if node.name in reached else None
            rows.append(DTensorCost(node.name, "forward", tuple(one for one, _ in mine), sum(bound for _, bound in mine), known))
    for side in (ours, theirs):
        for key in list(side):
            of, name = key
            mine, other = ours.pop(key, []), theirs.pop(key, [])
            known = tuple(other) if stopped is None or (of == "forward" and stopped_in == "backward") else None
            rows.append(DTensorCost(name, of, tuple(one for one, _ in mine), sum(bound for _, bound in mine), known))
    return Comparison(tuple(sorted(rows, key=lambda row: row.of == "backward")), stopped, stopped_in)


def _ours(program: Program, ranks: Mesh) -> dict[tuple[Pass, str], list[tuple[Redistributed, int]]]:
    """Returns the program's redistributions that communicate, and their bounds.

    Forward they are keyed by the result of the op that needs them, backward by the op's call.
    """
    plans = iter(program.compile(min(ranks.ranks)).plans)
    found: dict[tuple[Pass, str], list[tuple[Redistributed, int]]] = {}
    waiting: dict[str, tuple[Redistributed, int]] = {}
    passes: dict[str, Pass] = {}
    for at, item in enumerate(program.statements):
        of: Pass = "forward" if at < program.forward else "backward"
        if item.kind == "move":
            plan = next(plans)
            calls = tuple(step.op for step in plan.steps if step.communicates)
            if calls:
                bound = plan.lower_bound_bytes
                moved = Redistributed(f"{item.inputs[0]} {plan.from_} -> {plan.to}", calls, plan.received_bytes)
                passes[item.outputs[0]] = of
                waiting[item.outputs[0]] = (moved, plan.received_bytes if bound is None else bound)
        elif item.kind == "op":
            for name in item.inputs:
                if name in waiting:
                    key = item.outputs[0] if of == "forward" else str(item.call).partition("(")[0]
                    found.setdefault((of, key), []).append(waiting.pop(name))
    for name, pair in waiting.items():
        found.setdefault((passes[name], f"{name}, a result"), []).append(pair)
    return found


_ATTENTION = torch.ops.aten.scaled_dot_product_attention.default


def _attention(q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, **options: Any) -> Any:
    """Runs attention as on GPUs, by one kernel, if that supports the arguments."""
    if attn_mask is None and not options.get("enable_gqa"):
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, scale=options.get("scale"))[0]
    return _ATTENTION(q, k, v, attn_mask, dropout_p, is_causal, **options)


# Ops that run on tensors without elements in the form that they have on GPUs: the strides of attention differ
# from those of the traced one, so that a view may have to copy.
_INSTEAD: dict[Any, Callable[..., Any]] = {_ATTENTION: _attention, torch.ops.aten.view.default: torch.ops.aten.reshape.default}


class _Ops(TorchDispatchMode):
    """Records the op that is dispatched."""

    name = ""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(one, DTensor) for one in types):
            self.name = function._schema.name.partition("::")[2]
            return NotImplemented
        return function(*args, **(kwargs or {}))


def _theirs(
    exported: Any, program: Program, ranks: Mesh, made: Mapping[Any, Any], ends: Ends
) -> tuple[dict[tuple[Pass, str], list[Redistributed]], set[str], str | None, Pass | None]:
    """Returns the redistributions of DTensor's dispatch without elements, the nodes that ran, and the error that ended it with its pass.

    Redistributions are keyed forward by node, backward by op, and at the end by the program's name of the result.
    """
    # PyTorch caches specs by equal meshes. With the user's names it would use this mesh, which has no groups,
    # for later ops of DTensors on the same ranks.
    names = tuple(f"{name} of check" for name in ranks.names)
    device_mesh = DeviceMesh("cpu", torch.tensor(ranks.ranks).reshape(ranks.shape), mesh_dim_names=names, _init_backend=False, _rank=ranks.ranks[0])
    found: dict[tuple[Pass, str], list[Redistributed]] = {}
    key: list[tuple[Pass, str] | None] = [None]
    ops = _Ops()

    def seen(own: Callable[..., torch.Tensor], local: torch.Tensor, current: DTensorSpec, target: DTensorSpec, **options: Any) -> torch.Tensor:
        calls, received = dtensor_calls(current, target, local.itemsize)
        if calls:
            what = Redistributed(" -> ".join(DTensorSpec.format_shard_order_str(one.placements, one.shard_order) for one in (current, target)), calls, received)
            found.setdefault(key[0] or ("backward", ops.name), []).append(what)
        return local.new_empty(compute_local_shape_and_global_offset(target.shape, target.mesh, target.placements)[0])

    values: dict[Any, Any] = {}
    reached: set[str] = set()

    def end(of: Pass, name: str, value: Any) -> None:
        """Adds the redistribution of a result to the type that it has in the program."""
        if not isinstance(value, DTensor):
            return
        target = spec(program[name].sharding, device_mesh, dtype=value.dtype)
        calls, received = dtensor_calls(value._spec, target, value.dtype.itemsize)
        if calls:
            what = " -> ".join(DTensorSpec.format_shard_order_str(one.placements, one.shard_order) for one in (value._spec, target))
            found.setdefault((of, f"{name}, a result"), []).append(Redistributed(what, calls, received))

    def taken(node: Any) -> Any:
        # A constant of which only the shape matters is not a part of the program.
        return values[node] if node in values else _replicated(node.meta["val"], device_mesh)

    hook = Hook(seen)
    hook.enter()
    node: Any = None
    try:
        for node in exported.graph.nodes:
            if node in ends.inputs:
                values[node] = _empty(program, ends.inputs[node], device_mesh, node.name in exported.graph_signature.inputs_to_parameters)
            elif node.op == "call_function" and made.get(node) is not None:
                key[0] = ("forward", node.name)
                args, kwargs = (torch.fx.node.map_arg(given, taken) for given in (node.args, node.kwargs))
                with implicit_replication():
                    result = _INSTEAD.get(node.target, node.target)(*args, **kwargs)
                # A result of plain tensors is replicated.
                plain = isinstance(result, torch.Tensor) and not isinstance(result, DTensor)
                values[node] = _replicated(result, device_mesh) if plain else result
                reached.add(node.name)
            elif node.op == "output":
                for result, name in ends.results.items():
                    end("forward", name, values.get(result))
                if ends.loss is not None:
                    key[0] = None
                    with ops, implicit_replication():
                        values[ends.loss].backward()
                for parameter, name in ends.gradients.items():
                    end("backward", name, values[parameter].grad)
    except Exception as error:
        stopped_in: Pass = "backward" if node is None or node.op == "output" else "forward"
        where = "the backward pass" if stopped_in == "backward" else node.name
        return found, reached, f"{where}: {type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')[:160]}", stopped_in
    finally:
        hook.leave()
    return found, reached, None, None


def _replicated(made: torch.Tensor, device_mesh: DeviceMesh) -> DTensor:
    meta = TensorMeta(made.shape, contiguous_strides(tuple(made.shape)), made.dtype)
    return DTensor(made.to("meta"), DTensorSpec(device_mesh, (Replicate(),) * device_mesh.ndim, tensor_meta=meta), requires_grad=False)


def _empty(program: Program, name: str, device_mesh: DeviceMesh, trained: bool) -> DTensor:
    """Returns a DTensor with an input's sharding, without elements."""
    value = program[name]
    dtype = torch_dtype(value.dtype.name)
    of = spec(value.sharding, device_mesh, dtype=dtype)
    local = torch.empty(compute_local_shape_and_global_offset(of.shape, device_mesh, of.placements)[0], dtype=dtype, device="meta")
    return DTensor(local, of, requires_grad=trained and dtype.is_floating_point)
