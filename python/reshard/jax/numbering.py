"""Value numbering across ranks: a number for each value on each rank; equal numbers imply equal values.

Every rank runs one program, so all differences originate in the ranks' shards and in their rank numbers. A
value's number is determined by its operation and by the numbers of its operands. A reduction over a group has
the number of its partial values in any order, a gather that of its parts in their order. Small integers are
computed, so that offsets that are indexed by the rank differ only where their values do. Different numbers
may still be equal values: a conclusion from them is only a suspicion, and a conclusion from equal numbers is
certain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np

from reshard.jax.hlo import Computation, Instruction, Module, meaning

# A number for each rank, or a value for each element of a tuple.
Value: TypeAlias = "tuple[int, ...] | list[Value]"

_SAME = {"copy", "opt-barrier", "optimization-barrier", "after-all", "add-dependency"}
_MOST = 4096  # maximum number of elements of integer arrays that are computed

_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "negate": np.negative,
    "select": np.where, "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "divide": lambda a, b: np.where(b == 0, -1, (np.abs(a) // np.maximum(np.abs(b), 1)) * np.sign(a) * np.sign(b)),
    "remainder": lambda a, b: np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b))),
}
_COMPARE: dict[str, Callable[..., Any]] = {
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
}
_INTEGERS = {"pred": np.bool_, **{f"{kind}{bits}": np.dtype(f"{name}{bits}").type
                                  for kind, name in (("s", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)}}


class Numbering:
    """The values of a module on every rank."""

    def __init__(self, module: Module, held: Sequence[Sequence[Hashable]]) -> None:
        """`held` identifies every rank's region of each parameter: equal entries are equal regions."""
        self.module = module
        self.ranks = module.devices
        self._numbers: dict[Hashable, int] = {}
        self._loops: list[frozenset[str]] = []  # the loops in which a value changes, by its number
        self._known: dict[int, Any] = {}
        self.values: dict[str, dict[str, Value]] = {}  # of each computation, from its last evaluation
        given: list[Value] = [
            tuple(self._number(("held", number, what)) for what in of) for number, of in enumerate(held)
        ]
        self.result = self._run(module.entry, given)

    def of(self, computation: Computation, name: str) -> Value:
        """Returns the value of an instruction."""
        return self.values[computation.name][name]

    def changes_in(self, value: Value) -> frozenset[str]:
        """Returns the loops in which a value may differ between iterations."""
        return frozenset().union(*(self._loops[number] for numbers in parts(value) for number in numbers))

    def _number(self, of: Hashable, *, loops: frozenset[str] = frozenset(), parts: Sequence[int] = ()) -> int:
        found = self._numbers.get(of)
        if found is None:
            found = self._numbers[of] = len(self._loops)
            self._loops.append(loops.union(*(self._loops[part] for part in parts)))
        return found

    def _concrete(self, array: Any) -> int:
        number = self._number(("int", array.dtype.str, array.shape, array.tobytes()))
        self._known[number] = array
        return number

    def _run(self, computation: Computation, given: Sequence[Value]) -> Value:
        values: dict[str, Value] = {}
        self.values[computation.name] = values
        for one in computation.instructions.values():
            values[one.name] = self._one(one, [values[name] for name in one.operands], given)
        return values[computation.root.name]

    def _one(self, one: Instruction, operands: list[Value], given: Sequence[Value]) -> Value:
        match one.opcode:
            case "parameter":
                at = int(one.literal)
                return given[at] if at < len(given) else self._each(one, operands)
            case "tuple":
                return list(operands)
            case "get-tuple-element":
                whole = operands[0]
                return whole[int(one.attributes["index"])] if isinstance(whole, list) else whole
            case "partition-id" | "replica-id":
                return tuple(self._concrete(np.asarray(rank, np.uint32)) for rank in range(self.ranks))
            case "constant":
                return (self._constant(one),) * self.ranks
            case "fusion" | "call":
                return self._run(self._called(one)[0], operands)
            case "while":
                return self._loop(one, operands[0])
        if one.opcode in _SAME or one.opcode.endswith("-done"):
            return operands[0]
        if one.is_collective:
            return self._collective(one, operands)
        return self._each(one, operands)

    def _called(self, one: Instruction) -> list[Computation]:
        return [self.module.computations[name] for name in one.called() if name in self.module.computations]

    def _constant(self, one: Instruction) -> int:
        shape = one.shapes[0]
        kind = _INTEGERS.get(shape.dtype)
        if kind is not None and np.prod(shape.dims) <= _MOST:
            words = re.findall(r"-?\d+|true|false", one.literal)
            if len(words) == int(np.prod(shape.dims)):
                flat = [word == "true" if word in ("true", "false") else int(word) for word in words]
                return self._concrete(np.asarray(flat).astype(kind).reshape(shape.dims))
        return self._number(("constant", shape, one.literal if "..." not in one.literal else one.name))

    def _each(self, one: Instruction, operands: list[Value]) -> Value:
        """Numbers an operation that every rank computes by itself."""
        ranks = [[_flat_at(value, rank) for value in operands] for rank in range(self.ranks)]
        computed = self._computed(one, ranks) if operands and not one.is_tuple else None
        if computed is not None:
            return computed
        what = (one.opcode, tuple(one.shapes), meaning(one), tuple(c.text for c in self._called(one)))
        # Numbers drawn from a device's own state differ on every rank.
        own = one.opcode == "rng"

        def number(rank: int, part: int) -> int:
            flat = [n for value in ranks[rank] for n in value]
            return self._number((what, tuple(flat), part, rank if own else 0), parts=flat)

        made = [tuple(number(rank, part) for rank in range(self.ranks)) for part in range(max(len(one.shapes), 1))]
        return list(made) if one.is_tuple else made[0]

    def _computed(self, one: Instruction, ranks: list[list[list[int]]]) -> Value | None:
        """Computes an operation on known integers; None for other operations."""
        shape = one.shapes[0]
        if shape.dtype not in _INTEGERS or np.prod(shape.dims) > _MOST:
            return None
        made = []
        for values in ranks:
            known = [self._known.get(value[0]) if len(value) == 1 else None for value in values]
            if any(array is None for array in known):
                return None
            array = _computed(one, known)
            if array is None or array.shape != shape.dims:
                return None
            made.append(self._concrete(np.ascontiguousarray(array.astype(_INTEGERS[shape.dtype]))))
        return tuple(made)

    def _collective(self, one: Instruction, operands: list[Value]) -> Value:
        groups = one.groups(self.ranks)
        flat = [[_flat_at(value, rank) for rank in range(self.ranks)] for value in operands]
        what = (one.kind, tuple(c.text for c in self._called(one)), one.attributes.get("dimensions"))
        if one.kind == "collective-permute":
            nothing = self._number(("zeros", tuple(one.shapes)))
            came = {to: from_ for from_, to in groups}
            made = [tuple(of[came[rank]][0] if rank in came else nothing for rank in range(self.ranks)) for of in flat]
            return list(made) if one.is_tuple and len(made) > 1 else made[0]
        rows: list[list[int]] = []
        for part in range(max(len(operands), 1)):
            row = [0] * self.ranks
            for group in groups:
                for place, rank in enumerate(group):
                    if one.kind == "all-to-all" and len(operands) == len(group) and one.is_tuple:
                        # Result `part` is the operand of member `part` at this rank's position in the group.
                        terms: tuple[int, ...] = (flat[place][group[part]][0],)
                        row[rank] = terms[0]
                        continue
                    terms = tuple(flat[part][member][0] for member in group)
                    if one.kind in ("all-reduce", "reduce-scatter"):
                        terms = tuple(sorted(terms))
                    mine = place if one.kind in ("reduce-scatter", "all-to-all") else 0
                    row[rank] = self._number((what, terms, mine), parts=terms)
            rows.append(row)
        made = [tuple(row) for row in rows]
        return list(made) if one.is_tuple and len(made) > 1 else made[0]

    def _loop(self, one: Instruction, start: Value) -> Value:
        """Numbers the results of a loop.

        A value that no iteration changes is the initial one. For others, two ranks have equal values if they
        began with equal values and each iteration preserves that.
        """
        body = self.module.computations[one.attributes["body"].lstrip("%")]
        begun = start if isinstance(start, list) else [start]
        state: list[Value] = list(begun)
        classes: list[list[Hashable] | None] = [None] * len(begun)
        while True:
            made = self._run(body, [state])
            after = made if isinstance(made, list) else [made]
            changed = False
            for at, (value, before) in enumerate(zip(after, state, strict=True)):
                if isinstance(value, list) or isinstance(before, list) or value == before:
                    continue
                joint: list[Hashable] = [(a, b, c) for a, b, c in zip(before, value, begun[at], strict=True)]
                # Compare equivalence classes of ranks, not value numbers, which change with each iteration.
                first = {what: joint.index(what) for what in joint}
                now: list[Hashable] = [first[what] for what in joint]
                if classes[at] != now:
                    classes[at] = now
                    changed = True
                    state[at] = tuple(
                        self._number(("turn", one.name, at, c, tuple(first.values())), loops=frozenset([one.name])) for c in now
                    )
            if not changed:
                return list(after) if isinstance(start, list) else after[0]


def _computed(one: Instruction, known: list[Any]) -> Any:
    match one.opcode:
        case name if name in _ARITHMETIC:
            return _ARITHMETIC[name](*known)
        case "compare":
            return _COMPARE[one.attributes["direction"]](*known)
        case "convert" | "copy":
            return known[0]
        case "reshape" | "bitcast":
            return known[0].reshape(one.shapes[0].dims) if known[0].size == np.prod(one.shapes[0].dims) else None
        case "broadcast":
            dims = [int(n) for n in re.findall(r"\d+", one.attributes.get("dimensions", ""))]
            placed = [1] * len(one.shapes[0].dims)
            for dim, extent in zip(dims, known[0].shape, strict=True):
                placed[dim] = extent
            return np.broadcast_to(known[0].reshape(placed), one.shapes[0].dims)
        case "dynamic-slice":
            taken = one.shapes[0].dims
            begin = [min(max(int(b), 0), n - t) for b, n, t in zip(known[1:], known[0].shape, taken, strict=True)]
            return known[0][tuple(slice(b, b + t) for b, t in zip(begin, taken, strict=True))]
    return None


def _flat_at(value: Value, rank: int) -> list[int]:
    return [numbers[rank] for numbers in parts(value)]


def parts(value: Value) -> list[tuple[int, ...]]:
    """Returns the numbers of a value on all ranks, for each element of a tuple."""
    return [value] if isinstance(value, tuple) else [numbers for part in value for numbers in parts(part)]
