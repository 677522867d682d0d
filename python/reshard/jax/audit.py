"""An audit of a compiled function's communication.

Reports for each collective its bytes, a lower bound of them, and a better plan if there is one.

    print(reshard.jax.audit(step, params, batch))
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from reshard import Mesh, Plan, Planner, ReshardError, Sharding
from reshard._finding import Finding, FindingKind
from reshard.jax.forgotten import confirmed, suspects
from reshard.jax.hlo import Computation, Instruction, Module
from reshard.jax.numbering import Numbering, parts
from reshard.jax.report import Audit, RedistributionRow
from reshard.jax.specs import mesh as our_mesh

_PLANNER = Planner(objective="bytes")
_REMOVE = "# remove the call: its operand is its result"

# Opcodes that only rearrange, convert or forward the elements of their operand.
_PASSES = {"copy", "bitcast", "reshape", "transpose", "convert", "opt-barrier", "optimization-barrier"}


def audit(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Audit:
    """Compiles a function for these arguments; reports the traffic of each collective and its lower bound.

    Arguments are arrays, or shapes with shardings, `jax.ShapeDtypeStruct(shape, dtype, sharding=..)`. The
    function is run only if results that are declared as replicas may differ. Their shards are then compared,
    with random inputs where shapes were given.
    """
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    compiled = jitted.lower(*args, **kwargs).compile()
    auditor = _Auditor(Module(compiled.as_text()), _mesh_of(jax.tree.leaves((args, kwargs, compiled.output_shardings))))
    found = suspects(auditor.module, auditor.numbering, compiled)
    return Audit(tuple(auditor.lines()), confirmed(found, compiled, args, kwargs) if found else ())


def audit_text(text: str, mesh: Mesh | None = None) -> Audit:
    """Audits a compiled module's text, `compiled.as_text()`, without a run or a check for wrong replicas.

    The ranks of `mesh` are the module's partitions; it provides the names of the axes.
    """
    return Audit(tuple(_Auditor(Module(text), mesh).lines()), ())


def _mesh_of(leaves: Sequence[Any]) -> Mesh | None:
    """Returns the mesh of the arguments or results, or None."""
    for leaf in leaves:
        of = leaf if isinstance(leaf, jax.sharding.Sharding) else getattr(leaf, "sharding", None)
        if isinstance(of, NamedSharding) and of.mesh.size > 1:
            return our_mesh(of.mesh)
    return None


def _held(module: Module) -> list[list[Any]]:
    """Returns each rank's region of each parameter, by XLA's sharding annotation."""
    ranks = range(module.devices)
    found: list[list[Any]] = []
    for one in module.entry.parameters:
        text = one.attributes.get("sharding", "")
        dims = one.shapes[0].dims if one.shapes else ()
        found.append(_regions(text, dims, module.devices) or list(ranks))
    return found


def _regions(text: str, local: Sequence[int], devices: int) -> list[Any] | None:
    """Returns each rank's region under an XLA sharding; None if no equal regions are known."""
    if text == "{replicated}":
        return [None] * devices
    if "unreduced" in text or "manual" in text or not text.startswith("{devices=["):
        return None
    tiles = [int(n) for n in text.removeprefix("{devices=[").split("]", 1)[0].split(",")]
    shape = [extent * tile for extent, tile in zip(local, tiles, strict=False)]
    try:
        placed = Sharding(f"d={devices}", shape, text)
        return [repr(placed.region(rank).intervals) for rank in range(devices)]
    except ReshardError:
        return None


@dataclasses.dataclass(frozen=True)
class _Slice:
    """The part of a value that ranks take: its share and dim, and its begin on each rank if begins differ."""

    share: float
    dim: int | None
    begins: tuple[int, ...] | None


@dataclasses.dataclass(frozen=True)
class _Waste:
    """A finding of one collective: the bytes that suffice in one run, and the better plan if there is one."""

    kind: FindingKind
    bound: float
    message: str
    code: str
    plan: Plan | None = None


class _Auditor:
    def __init__(self, module: Module, mesh: Mesh | None) -> None:
        self.module = module
        self.numbering = Numbering(module, _held(module))
        self.mesh = mesh if mesh is not None and len(mesh) == module.devices else None
        self._done: dict[tuple[Any, ...], str] = {}

    def lines(self) -> Iterator[RedistributionRow]:
        """Yields the report of each collective, in the order in which they run."""
        return (self.line(*found) for found in self.module.collectives())

    def line(self, one: Instruction, computation: Computation, times: int) -> RedistributionRow:
        """Reports one collective: its bytes, the bound, and the findings."""
        moved = one.received_bytes(self.module.devices)
        bound: float = moved
        findings: list[Finding] = []
        plan: Plan | None = None
        source = self._source(one, computation)
        for waste in self._findings(one, computation, times, moved):
            saved = moved * times - math.ceil(waste.bound * times)
            findings.append(Finding(waste.kind, waste.message, waste.code, max(saved, 0), line=source, times=times))
            if waste.bound < bound:
                bound, plan = waste.bound, waste.plan
        op_name = _quoted(one.attributes.get("metadata", ""), "op_name")
        return RedistributionRow(one.kind, self.over(one), source, op_name, times, moved * times, math.ceil(bound * times), tuple(findings), plan)

    def over(self, one: Instruction) -> str:
        """Returns the axes over which the groups communicate, or the groups themselves."""
        groups = one.groups(self.module.devices)
        if one.kind == "collective-permute":
            pairs = [(group[0], group[1]) for group in groups if group[0] != group[1]]
            axes = self._axes_between(pairs)
            return ",".join(axes) if axes else "pairs"
        axes = self._axes(groups)
        return ",".join(axes) if axes else " ".join("{" + ",".join(map(str, group)) + "}" for group in groups)

    def _source(self, one: Instruction, computation: Computation) -> tuple[str, int] | None:
        """Returns the source line of an instruction, or if it has none that of an operand or a user."""
        found = self.module.source(one)
        for name in one.operands:
            found = found or self.module.source(computation.instructions[name])
        for user in computation.users[one.name]:
            found = found or self.module.source(user)
        return found

    def _axes(self, groups: list[list[int]]) -> tuple[str, ...]:
        """Returns the axes whose groups these are, or an empty tuple."""
        wanted = {frozenset(group) for group in groups}
        if self.mesh is None:
            return ()
        for count in range(1, len(self.mesh.names) + 1):
            for names in itertools.combinations(self.mesh.names, count):
                if {frozenset(group) for group in self.mesh.groups(*names).members()} == wanted:
                    return names
        return ()

    def _axes_between(self, pairs: list[tuple[int, int]]) -> tuple[str, ...]:
        """Returns the axes along which the ranks of a pair differ."""
        if self.mesh is None:
            return ()
        differ = set()
        for a, b in pairs:
            both = zip(self.mesh.names, self.mesh.coordinate(a), self.mesh.coordinate(b), strict=True)
            differ |= {name for name, x, y in both if x != y}
        return tuple(name for name in self.mesh.names if name in differ)

    def _varies_over(self, numbers: Sequence[int]) -> tuple[str, ...]:
        """Returns the axes along which these numbers, one per rank, vary."""
        if self.mesh is None:
            return ()
        box = np.asarray(numbers).reshape(self.mesh.shape)
        return tuple(
            name for at, name in enumerate(self.mesh.names) if (box != box.take([0], axis=at)).any()
        )

    def _findings(
        self, one: Instruction, computation: Computation, times: int, moved: int
    ) -> Iterator[_Waste]:
        """Yields each waste: the bytes that suffice in one run, a message, and the better plan."""
        groups = one.groups(self.module.devices)
        over = self.over(one)
        operands = [self.numbering.of(computation, name) for name in one.operands]
        members = max(len(group) for group in groups)
        if one.kind != "collective-permute" and members > 1:
            copies = min(_copies([part[rank] for rank in group]) for value in operands for part in parts(value) for group in groups)
            if copies > 1 and (copies == members or one.kind in ("all-reduce", "reduce-scatter")):
                yield self._doubled(one, over, members, copies)
                return
        result = self.numbering.of(computation, one.name)
        key = (one.kind, repr(result))
        if key in self._done:
            yield _Waste(FindingKind.REPEATED, 0.0, f"repeated: {self._done[key]} already transfers the same data", "# use the first result again")
        else:
            source = self._source(one, computation)
            self._done[key] = "an earlier collective" if source is None else f"line {source[1]}"
        loops = frozenset().union(*(self.numbering.changes_in(value) for value in operands))
        if times > 1 and computation is not self.module.entry and not loops:
            message = f"the same in each of {times} iterations: run it once before the loop"
            yield _Waste(FindingKind.SAME_IN_LOOP, moved / times, message, "# call it before jax.lax.scan, and pass its result to the body")
        if len(one.operands) == 1:
            yield from self._sliced(one, computation, moved, groups, over, members)
        yield from self._widened(one, computation, moved)
        yield from self._in_two(one, computation, moved, over, members)

    def _doubled(self, one: Instruction, over: str, members: int, copies: int) -> _Waste:
        others = members // copies
        if one.kind not in ("all-reduce", "reduce-scatter"):
            return _Waste(FindingKind.NEEDLESS, 0.0, f"needless: all {members} ranks over {over} have the same already", _REMOVE)
        whole = one.result_bytes * (members if one.kind == "reduce-scatter" else 1)
        bound = 2 * whole * (others - 1) / others
        if self._reduction(one) != "add":
            return _Waste(FindingKind.NEEDLESS, bound, f"needless: of {members} ranks over {over} each {copies} give the same", _REMOVE)
        which = f"all {members} ranks over {over} give the same partial value" if others == 1 else f"of {members} ranks over {over} each {copies} give the same partial value"
        code = "jax.lax.psum(x, axes)  # only over the axes that shard the contraction"
        return _Waste(FindingKind.DOUBLED_REDUCTION, bound, f"doubled reduction: {which}, so the sum is {copies} times it", code)

    def _reduction(self, one: Instruction) -> str:
        called = [self.module.computations[name] for name in one.called() if name in self.module.computations]
        return called[0].root.opcode if called else ""

    def _sliced(
        self, one: Instruction, computation: Computation, moved: int, groups: list[list[int]], over: str, members: int
    ) -> Iterator[_Waste]:
        """Finds collectives that bring the whole value to all ranks, which then take only a part of it."""
        if one.kind not in ("all-reduce", "all-gather"):
            return
        taken = self._used(computation, one.name, None, 0)
        if taken.share >= 1.0:
            return
        plan = self._better(one, computation, taken, groups)
        if one.kind == "all-reduce":
            whole = one.result_bytes
            bound = plan.received_bytes if plan else whole * ((members - 1) / members + max(taken.share - 1 / members, 0.0))
            what, kind = "a reduce-scatter is enough", FindingKind.REDUCED_THEN_SLICED
            code = "jax.lax.psum_scatter(x, axis, scatter_dimension=dim, tiled=True)"
        else:
            own = one.result_bytes / members
            bound = plan.received_bytes if plan else max(taken.share * one.result_bytes - own, 0.0)
            what, kind = "only that has to be received", FindingKind.GATHERED_THEN_SLICED
            code = "# take the slice before the all_gather"
        if bound < moved:
            said = f": {plan.from_} -> {plan.to} on {plan.from_.mesh} is {_calls(plan)}" if plan else f": {what}"
            code = f'reshard.jax.local(x, reshard.plan(..))  # {plan.from_} -> {plan.to}' if plan else code
            yield _Waste(kind, bound, f"each rank uses {taken.share:.3g} of the received data{said}", code, plan)

    def _better(
        self, one: Instruction, computation: Computation, taken: _Slice, groups: list[list[int]]
    ) -> Plan | None:
        """Returns the plan from the ranks' operand to the parts that they take, if both are shardings."""
        axes = self._axes(groups)
        if self.mesh is None or not axes or taken.dim is None or taken.begins is None:
            return None
        onto = self._varies_over(taken.begins)
        if not onto or not one.shapes[0].dims:
            return None
        operand = self.numbering.of(computation, one.operands[0])
        if not isinstance(operand, tuple) or set(self._varies_over(operand)) & (set(onto) - set(axes)):
            return None
        mesh = self.mesh.slice(*(name for name in self.mesh.names if name in {*axes, *onto}))
        shape = one.shapes[0].dims
        placed = {"all-reduce": "P", "all-gather": f"S({_dim(one)})"}[one.kind]
        try:
            from_ = Sharding(mesh, shape, ",".join(placed if name in axes else "R" for name in mesh.names))
            to = Sharding(mesh, shape, ",".join(f"S({taken.dim})" if name in onto else "R" for name in mesh.names))
            made = _PLANNER.plan(from_, to, f"u{8 * width}" if one.kind == "all-gather" else _dtype(one)) if (width := _width(one)) else None
        except ReshardError:
            return None
        share = math.prod(mesh.axes[name] for name in onto)
        return made if made is not None and math.isclose(taken.share, 1 / share) else None

    def _widened(self, one: Instruction, computation: Computation, moved: int) -> Iterator[_Waste]:
        """Finds collectives in a wide type whose operand was converted from a narrow one just before."""
        if one.kind in ("all-reduce", "reduce-scatter"):
            return
        for name in one.operands:
            wide = computation.instructions[name]
            narrow = self._converted_from(computation, wide)
            if narrow is not None and narrow.bytes < sum(shape.bytes for shape in wide.shapes):
                factor = narrow.bytes / wide.shapes[0].bytes
                message = f"sent as {wide.shapes[0].dtype}, and converted from {narrow.dtype} just before: send it first, then convert it"
                yield _Waste(FindingKind.SENT_WIDE, moved * factor, message, "x = jax.lax.all_gather(x, axis).astype(wide)")
                return

    def _converted_from(self, computation: Computation, one: Instruction) -> Any:
        """Returns the array that an instruction only converts, or None."""
        if one.opcode == "fusion":
            inner = next((self.module.computations[name] for name in one.called() if name in self.module.computations), None)
            return None if inner is None else self._converted_from(inner, inner.root)
        if one.opcode == "convert":
            return computation.instructions[one.operands[0]].shapes[0]
        if one.opcode in ("copy", "bitcast", "reshape", "transpose"):
            return self._converted_from(computation, computation.instructions[one.operands[0]])
        return None

    def _in_two(
        self, one: Instruction, computation: Computation, moved: int, over: str, members: int
    ) -> Iterator[_Waste]:
        """Finds an all-reduce over some axes directly after one over others."""
        if one.kind != "all-reduce" or len(one.operands) != 1:
            return
        first = computation.instructions[one.operands[0]]
        while first.opcode in _PASSES and first.operands:
            first = computation.instructions[first.operands[0]]
        if first.kind != "all-reduce" or self._reduction(first) != self._reduction(one) or len(first.operands) != 1:
            return
        before = max(len(group) for group in first.groups(self.module.devices))
        both = 2 * one.result_bytes * (before * members - 1) / (before * members)
        rest = both - first.received_bytes(self.module.devices)
        if rest < moved:
            message = f"a sum over {over} of a sum over {self.over(first)}: one over both receives {both:,.0f} B"
            yield _Waste(FindingKind.REDUCED_AXIS_BY_AXIS, rest, message, f'jax.lax.psum(x, ("{self.over(first)}", "{over}"))')

    def _used(self, computation: Computation, name: str, up: tuple[Computation, str, Any] | None, depth: int) -> _Slice:
        """Returns the share of a value that each rank uses, if that part depends on the rank."""
        whole = _Slice(1.0, None, None)
        one = computation.instructions[name]
        if depth > 60:
            return whole
        found: list[_Slice] = []
        if one.is_root:
            found.append(whole if up is None else self._used(up[0], up[1], up[2], depth + 1))
        for user in computation.users[name]:
            if user.opcode in _PASSES:
                taken = self._used(computation, user.name, up, depth + 1)
                # The instruction changes the dims, so the dim of the part is unknown.
                found.append(taken if user.opcode in ("copy", "convert") else dataclasses.replace(taken, dim=None))
            elif user.opcode == "dynamic-slice" and user.operands[0] == name:
                found.append(self._slice(computation, one, user))
            elif user.opcode in ("fusion", "call"):
                inner = self.module.computations[user.called()[0]]
                for at, operand in enumerate(user.operands):
                    if operand == name:
                        found.append(self._used(inner, inner.parameters[at].name, (computation, user.name, up), depth + 1))
            else:
                return whole
        if not found:
            return whole
        if len(found) == 1:
            return found[0]
        return _Slice(min(sum(taken.share for taken in found), 1.0), None, None)

    def _slice(self, computation: Computation, one: Instruction, user: Instruction) -> _Slice:
        """Returns the part that a slice takes, if its begin differs among ranks."""
        begins = [self.numbering.of(computation, name) for name in user.operands[1:]]
        shorter = [at for at, (a, b) in enumerate(zip(one.shapes[0].dims, user.shapes[0].dims, strict=True)) if a != b]
        differ = [value for value in begins if isinstance(value, tuple) and len(set(value)) > 1]
        if not differ or not shorter:
            return _Slice(1.0, None, None)
        share = math.prod(user.shapes[0].dims) / math.prod(one.shapes[0].dims)
        only = begins[shorter[0]] if len(shorter) == 1 else None
        return _Slice(share, shorter[0] if len(shorter) == 1 else None, only if isinstance(only, tuple) else None)


def _copies(numbers: Sequence[int]) -> int:
    """Returns how often every number occurs if all occur equally often, else 1."""
    counts = set(Counter(numbers).values())
    return counts.pop() if len(counts) == 1 else 1


def _calls(plan: Plan) -> str:
    calls = [step.op for step in plan.steps if step.communicates]
    return f"{' and '.join(calls) or 'no call'} of {plan.received_bytes:,} B"


def _dim(one: Instruction) -> int:
    return int(one.attributes.get("dimensions", "{0}").strip("{}").split(",")[0])


def _width(one: Instruction) -> int:
    shape = one.shapes[0]
    return shape.bytes // max(math.prod(shape.dims), 1)


def _dtype(one: Instruction) -> str:
    name = one.shapes[0].dtype
    return {"s8": "i8", "s16": "i16", "s32": "i32", "s64": "i64"}.get(name, name)


def _quoted(text: str, key: str) -> str:
    _, _, after = text.partition(f'{key}="')
    return after.partition('"')[0]
