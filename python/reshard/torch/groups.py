"""The existing process groups, on which plans run their calls; none is made without a request."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from reshard import GroupPattern, FrameworkGroups, Plan, Planner, ProcessGroup, ReshardError, Sharding

from reshard.torch.specs import mesh
from reshard.torch.version import _disable_current_modes, groups_along, require


class Groups:
    """PyTorch's groups for a device mesh: of its axes, flattened axes, further meshes, and the default one.

    They must be the same on all ranks, as device meshes are.

    No group is made, except by `make`.
    """

    def __init__(self, device_mesh: DeviceMesh, *extra: DeviceMesh) -> None:
        require()
        self._within = frozenset(mesh(device_mesh).ranks).union(*(mesh(other).ranks for other in extra))
        self._names: dict[tuple[int, ...], str] = {}
        self._all: dict[tuple[int, ...], None] = {}
        with _disable_current_modes():
            for one in (device_mesh, *extra):
                root = one._get_root_mesh()
                self._add_axes(one)
                if root is not one:
                    self._add_axes(root)
                for flattened in root._flatten_mapping.values():
                    self._add_axes(flattened)
            self._add(dist.group.WORLD, [list(range(dist.get_world_size()))])
        self._finish()

    def _finish(self) -> None:
        self.offers = FrameworkGroups([("group", list(members)) for members in self._all])

    def _add_axes(self, device_mesh: DeviceMesh) -> None:
        for axis in range(device_mesh.ndim):
            if device_mesh.get_coordinate() is None:
                group = None  # other ranks have made it
            else:
                try:
                    group = device_mesh.get_group(axis)
                except RuntimeError:
                    continue  # a device mesh without groups
            self._add(group, groups_along(device_mesh, axis))

    def _add(self, group: Any, all_members: list[list[int]]) -> None:
        mine = [] if group is None else dist.get_process_group_ranks(group)
        for members in all_members:
            # A group's own order is ascending, whatever the order along the mesh is.
            key = tuple(mine) if set(members) == set(mine) else tuple(sorted(members))
            if self._within.issuperset(key):
                self._all.setdefault(key)
                if set(members) == set(mine):
                    self._names.setdefault(key, group.group_name)

    def name(self, members: list[int]) -> str:
        """Returns PyTorch's name of the group of these members, which include this rank."""
        return self._names[tuple(members)]

    def patterns(self) -> list[GroupPattern]:
        """Returns the patterns of the groups, for a planner that is limited to them."""
        found: dict[GroupPattern, None] = {}
        for members in self._all:
            if len(members) > 1:
                found.setdefault(ProcessGroup(sorted(members)).pattern)
        return list(found)

    def missing(self, plan: Plan) -> list[tuple[int, ...]]:
        """Returns the members of the groups that a plan needs and that do not exist, each once."""
        exact = {tuple(sorted(members)) for members in self._all}
        return [members for members in wanted(plan) if members not in exact]

    def covers(self, plan: Plan) -> bool:
        """Returns True if a plan can run: reductions need groups of exactly their ranks, others supersets."""
        exact = {tuple(sorted(members)) for members in self._all}
        for step in plan.steps:
            if not step.communicates:
                continue
            for members in _members(step):
                if members in exact:
                    continue
                if step.op in ("all_reduce", "reduce_scatter") or not any(exact_one >= set(members) for exact_one in map(set, exact)):
                    return False
        return True

    @classmethod
    def world(cls) -> "Groups":
        """Returns the default group alone."""
        made = object.__new__(cls)
        made._within, made._names, made._all = frozenset(range(dist.get_world_size())), {}, {}
        made._add(dist.group.WORLD, [list(range(dist.get_world_size()))])
        made._finish()
        return made

    def only(self, wanted: Sequence[tuple[int, ...]]) -> "Groups":
        """Returns those of these groups that have exactly one of these lists of members, ascending."""
        chosen = set(wanted)
        made = object.__new__(Groups)
        made._within, made._names = self._within, self._names
        made._all = {members: None for members in self._all if tuple(sorted(members)) in chosen}
        made._finish()
        return made

    def make(self, plan: Plan) -> "Groups":
        """Returns these groups and the missing ones of a plan, which are made now.

        Every rank of the default group calls it with the same plan.
        """
        return self.with_members(self.missing(plan))

    def with_members(self, wanted: Sequence[tuple[int, ...]]) -> "Groups":
        """Returns these groups and the missing ones with these members, ascending, which are made now.

        Every rank of the default group calls it with the same members.
        """
        made = object.__new__(Groups)
        made._within, made._names, made._all = self._within, dict(self._names), dict(self._all)
        me = dist.get_rank()
        exact = {tuple(sorted(members)) for members in self._all}
        for members in dict.fromkeys(wanted):
            if members in exact:
                continue
            group = dist.new_group(list(members))
            made._all.setdefault(members)
            if me in members:
                made._names[members] = group.group_name
        made._finish()
        return made

    def __len__(self) -> int:
        return len(self._all)

    def __repr__(self) -> str:
        return f"Groups({[list(members) for members in self._all]})"


def plan_within(groups: Groups, planner: Planner, before: Sharding, after: Sharding, dtype: Any) -> Plan | None:
    """Returns the planner's plan, or else one that the groups cover; None if there is none.

    The result is the same on all ranks.
    """
    plan = planner.plan(before, after, dtype)
    if groups.covers(plan):
        return plan
    try:
        plan = _limited(planner, groups).plan(before, after, dtype)
    except ReshardError:
        return None
    return plan if groups.covers(plan) else None


@lru_cache(maxsize=64)
def _limited(planner: Planner, groups: Groups) -> Planner:
    """Returns a copy of a planner that is limited to these groups; memoized to reuse its plan cache."""
    return Planner(
        topology=planner.topology,
        objective=planner.objective,
        max_peak_bytes=planner.max_peak_bytes,
        groups=groups.patterns(),
        deterministic=planner.deterministic,
        arithmetic=planner.arithmetic,
        budget=planner.budget,
    )


def _members(step: Any) -> list[tuple[int, ...]]:
    """Returns the sets of ranks that communicate in a step, ascending."""
    before, after = step.before.mesh, step.after.mesh
    if before != after:
        return [tuple(sorted({*before.ranks, *after.ranks}))]
    return [tuple(sorted(members)) for members in before.groups(*step.axes).members()]


def wanted(plan: Plan) -> list[tuple[int, ...]]:
    """Returns the members of the groups on which a plan's steps are called, each once."""
    return list(dict.fromkeys(members for step in plan.steps if step.communicates for members in _members(step)))


@lru_cache(maxsize=256)
def _groups(device_mesh: DeviceMesh, others: tuple[DeviceMesh, ...], world: int, flattened: int) -> Groups:
    return Groups(device_mesh, *others)


def groups_of(device_mesh: DeviceMesh, *others: DeviceMesh) -> Groups:
    """Returns the groups of device meshes as of now; sees later flattened axes and a new default group."""
    world = id(dist.group.WORLD)
    flattened = sum(len(one._get_root_mesh()._flatten_mapping) for one in (device_mesh, *others))
    return _groups(device_mesh, others, world, flattened)
