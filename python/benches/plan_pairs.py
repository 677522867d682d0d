"""The pairs of shardings of plan_bench.py, and the routes that other planners take between them.

Half of the pairs are listed here. The others are drawn at equal distances from those pairs of
`peer_plans.jsonl` for which a peer needs more than one collective or more bytes than the bound.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from reshard import Mesh, Plan, Planner, Sharding

PEERS = pathlib.Path(__file__).parents[2] / "sharding/planner/tests/data/peer_plans.jsonl"
# Extents of about 1, 4 and 16 MiB.
SIDES = {1: 512, 4: 1024, 16: 2048}


@dataclasses.dataclass(frozen=True)
class Pair:
    """One redistribution of f32 on nodes of equal size, whose ranks are numbered node by node."""

    nodes: int
    per_node: int
    mesh: str
    shape: tuple[int, ...]
    before: str
    after: str
    ranks: tuple[int, ...] | None = None
    """The ranks of the mesh, if they are not 0, 1, .."""
    to_mesh: str | None = None
    to_ranks: tuple[int, ...] | None = None
    peers: tuple[tuple[str, int, int], ...] = ()
    """Collectives and received bytes of peers, by name."""

    def source(self) -> Sharding:
        return Sharding(_mesh(self.mesh, self.ranks), self.shape, self.before)

    def target(self) -> Sharding:
        mesh, ranks = (self.mesh, self.ranks) if self.to_mesh is None else (self.to_mesh, self.to_ranks)
        return Sharding(_mesh(mesh, ranks), self.shape, self.after)

    @property
    def has_two_meshes(self) -> bool:
        return self.to_mesh is not None

    def __str__(self) -> str:
        onto = "" if self.to_mesh is None else f" on {self.to_mesh}{_of(self.to_ranks)}"
        return f"{self.before} on {self.mesh}{_of(self.ranks)} -> {self.after}{onto}"


def _of(ranks: tuple[int, ...] | None) -> str:
    return "" if ranks is None else " of ranks " + " ".join(map(str, ranks))


def _mesh(axes: str, ranks: tuple[int, ...] | None) -> Mesh:
    if ranks is None:
        return Mesh(axes)
    return Mesh.from_ranks([(name, int(size)) for name, size in (axis.split("=") for axis in axes.split(","))], list(ranks))


def _listed() -> Iterator[Pair]:
    square = {mib: (side, side) for mib, side in SIDES.items()}
    two = lambda shape, before, after, **more: Pair(2, 1, "a=2", shape, before, after, **more)
    yield two(square[4], "P", "R")
    yield two(square[4], "P", "S(0)")
    yield two(square[16], "S(0)", "S(1)")
    yield two((1023, 1025), "S(0)", "S(1)")
    yield two((1023, 1025), "P", "S(1)")
    yield two(square[16], "SS(0,4)", "S(0)")
    yield two((1030, 1024), "SS(0,3)", "S(1)")
    yield two(square[4], "S(0)", "S(1)", to_mesh="b=2", to_ranks=(1, 0))
    four = lambda shape, before, after, mesh="a=2,b=2", **more: Pair(2, 2, mesh, shape, before, after, **more)
    yield four(square[4], "P,P", "R,R")
    yield four(square[4], "P,P", "S(0),S(1)")
    yield four(square[4], "P,S(0)", "S(0),R")
    yield four(square[4], "S(1),P", "R,S(1)")
    yield four(square[16], "S(0),S(1)", "S(1),S(0)")
    yield four(square[1], "S(0),S(1)", "S(1),S(0)")
    yield four((1023, 1025), "S(0),S(1)", "S(1),S(0)")
    yield four((1021, 1030), "S(0),S(0)", "S(1),S(1)")
    yield four((1021, 1030), "S(0),S(1)", "R,S(0)")
    yield four((5, 200_000), "S(0),R", "R,S(0)")
    yield four(square[4], "SS(0,2),S(0)", "S(0),S(0)")
    yield four(square[4], "SS(0,4),S(1)", "S(1),S(0)")
    yield four((1030, 1024), "SS(0,3),R", "S(1),S(0)")
    yield four(square[4], "S(0),S(1)", "S(0),S(1)", to_mesh="c=2,d=2", to_ranks=(0, 2, 1, 3))
    yield four(square[4], "S(0),S(1)", "S(0)", to_mesh="c=4", to_ranks=(3, 2, 1, 0))
    yield four(square[4], "S(0)", "S(1)", mesh="a=2", to_mesh="b=2", to_ranks=(2, 3))
    eight = lambda shape, before, after, mesh="x=2,y=2,z=2", **more: Pair(4, 2, mesh, shape, before, after, **more)
    yield eight(square[4], "P,S(0),P", "S(0),S(1),R")
    yield eight(square[4], "P,P,P", "R,S(0),R")
    yield eight((1023, 1025), "S(0),S(1),S(0)", "S(1),S(0),S(1)")
    yield eight((1023, 1025), "S(0),S(1)", "S(1),S(0)", mesh="x=2,y=4")
    yield eight(square[4], "SS(0,4),S(0)", "S(1),S(0)", mesh="x=2,y=4")
    yield eight(square[4], "S(0),S(1)", "S(0)", mesh="x=2,y=2", to_mesh="w=4", to_ranks=(4, 5, 6, 7))
    yield eight(square[4], "S(0),S(1)", "S(1),S(0)", mesh="x=2,y=4", to_mesh="v=4,w=2", to_ranks=tuple(range(8)))
    yield eight(square[16], "S(0),S(1)", "S(1),S(0)", mesh="x=2,y=4")


# Mesh, nodes and ranks of each, and the pairs that are drawn.
_DRAWN = [("a=2,b=2", 2, 2, 9), ("x=2,y=2,z=2", 4, 2, 7), ("x=2,y=4", 4, 2, 6), ("a=2,b=2,c=2", 4, 2, 5)]
_NAMES = {"torch_greedy": "torch", "torch_graph": "torch_graph", "shardy": "shardy", "xla": "xla"}


def _drawn() -> Iterator[Pair]:
    with open(PEERS, encoding="utf-8") as lines:
        rows = [row for row in map(json.loads, lines) if "mesh" in row]
    for mesh, nodes, per_node, count in _DRAWN:
        asked = [row for row in rows if row["mesh"] == mesh and "P" not in row["to"] and _is_harder(row)]
        for i in range(count):
            row = asked[(2 * i + 1) * len(asked) // (2 * count)]
            # Every sixth is larger, and every third smaller.
            side = SIDES[16 if i % 6 == 5 else 1 if i % 3 == 2 else 4]
            rows_, columns = row["shape"]
            scale = side * side // (rows_ * columns)
            peers = tuple(
                (name, int(row[f"{key}_collectives"]), int(row[f"{key}_bytes"]) * scale)
                for key, name in _NAMES.items()
                if row.get(f"{key}_collectives") is not None
            )
            yield Pair(nodes, per_node, mesh, (side, side), row["from"], row["to"], peers=peers)


def _is_harder(row: dict[str, Any]) -> bool:
    """Returns True if a peer needs more than one collective, or more bytes than the bound."""
    least = row["lower_bound_bytes"]
    found = [(row[f"{key}_collectives"], row[f"{key}_bytes"]) for key in _NAMES if row.get(f"{key}_collectives") is not None]
    return any(calls > 0 and (calls > 1 or (least or received) < received) for calls, received in found)


def pairs() -> list[Pair]:
    """Returns all pairs; those of the same nodes are neighbours."""
    return sorted([*_listed(), *_drawn()], key=lambda pair: (pair.nodes, pair.per_node))


def signature(chain: list[Plan]) -> tuple[Any, ...]:
    """Returns what makes plans different: the communicating steps, their groups and their shardings."""
    steps = [step for plan in chain for step in plan.steps if step.communicates]
    return tuple((step.op, str(step.group), tuple(step.axes), step.received_bytes, str(step.before), str(step.after)) for step in steps)


# A launch so dear that a plan has as few collectives as possible, among those of the least bytes: what peers call one collective is one.
PLAIN = Planner(objective="bytes", arithmetic="framework", topology="launch=1000000;message=1;level=*:1:0.02")


def route(pair: Pair, collectives: int, received: int, priced: Planner) -> list[Sharding] | None:
    """Returns the shardings of a route with this number of collectives and of received bytes, the cheapest for `priced` if there are several.

    Peers publish no more than these two numbers. Every leg has one collective at most.
    """
    source, target = pair.source(), pair.target()
    between = list(dict.fromkeys([source, *_states(source), target]))
    legs: dict[tuple[Sharding, Sharding], tuple[int, int, float]] = {}

    def leg(one: Sharding, other: Sharding) -> tuple[int, int, float]:
        if (one, other) not in legs:
            plan = PLAIN.plan(one, other)
            legs[one, other] = plan.communicating_steps, plan.received_bytes, priced.cost_us(one, other) if plan.communicating_steps else 0.0
        return legs[one, other]

    def free(one: Sharding, other: Sharding) -> bool:
        return one == other or leg(one, other)[0] == 0

    # Slices, which communicate nothing, may come first and last.
    best: dict[tuple[Sharding, int], tuple[float, list[Sharding]]] = {(to, 0): (0.0, [source, to][to == source :]) for to in between if free(source, to)}
    for _ in range(collectives):
        after: dict[tuple[Sharding, int], tuple[float, list[Sharding]]] = {}
        for (at, spent), (cost, way) in best.items():
            for to in between:
                calls, more, us = leg(at, to)
                key = to, spent + more
                if calls == 1 and spent + more <= received and (key not in after or cost + us < after[key][0]):
                    after[key] = cost + us, [*way, to]
        best = after
    found = [(cost, [*way, target][: len(way) + (at != target)]) for (at, spent), (cost, way) in best.items() if spent == received and free(at, target)]
    return min(found, key=lambda one: one[0])[1] if found else None


def _states(source: Sharding) -> list[Sharding]:
    """Returns the shardings of a mesh that shard dims by its axes in any order, without partial values."""
    names, dims = source.mesh.names, len(source.shape)
    found: list[list[list[str]]] = [[[] for _ in range(dims)]]
    for name in names:
        # Each axis is left out, or put at any position of any dim.
        found = [
            [*([*dim[:at], name, *dim[at:]] if d == chosen else dim for d, dim in enumerate(state))]
            for state in found
            for chosen in range(-1, dims)
            for at in range(1 if chosen < 0 else len(state[chosen]) + 1)
        ]
    texts = ["[" + ",".join("{" + ",".join(dim) + "}" for dim in state) + "]" for state in found]
    return [Sharding(source.mesh, source.shape, text) for text in texts]


def chains(pair: Pair, planner: Planner, routes: dict[str, list[Sharding]]) -> dict[str, list[Plan]]:
    """Returns plans by who makes them, each in legs: ours, axis by axis, the least bytes, through the whole tensor, and given routes."""
    source, target = pair.source(), pair.target()
    made = {"ours": [planner.plan(source, target)]}
    if not pair.has_two_meshes:
        greedy = planner.axis_by_axis(source, target)
        if greedy is not None:
            made["axis_by_axis"] = [greedy]
    made["least_bytes"] = [PLAIN.plan(source, target)]
    whole = Sharding.replicated(source.mesh, source.shape)
    made["whole"] = [PLAIN.plan(one, other) for one, other in ((source, whole), (whole, target)) if one != other]
    for name, way in routes.items():
        made[name] = [PLAIN.plan(one, other) for one, other in zip(way, way[1:], strict=False)]
    return made
