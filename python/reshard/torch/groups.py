"""The process groups that are there: plans are called on them, and none is made unasked."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch.distributed as dist
from torch.distributed._mesh_layout import _MeshLayout
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._python_dispatch import _disable_current_modes

from reshard import GroupPattern, Offers, Plan, Planner, ProcessGroup, ReshardError, Sharding

from reshard.torch.specs import mesh


class Groups:
    """The groups that PyTorch has for a device mesh: of its axes, of the axes that were flattened, the default group, and those of
    further device meshes. They must be the same on all ranks, as device meshes are.

    No group is made, but by `make`.
    """

    def __init__(self, device_mesh: DeviceMesh, *extra: DeviceMesh) -> None:
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
        self.offers = Offers([("group", list(members)) for members in self._all])

    def _add_axes(self, device_mesh: DeviceMesh) -> None:
        for axis, layout in enumerate(device_mesh._layout):
            if device_mesh.get_coordinate() is None:
                group = None  # its members have made it
            else:
                try:
                    group = device_mesh.get_group(axis)
                except RuntimeError:
                    continue  # a device mesh without groups
            self._add(group, _MeshLayout([layout]).remap_to_tensor(device_mesh._rank_map).tolist())

    def _add(self, group: Any, all_members: list[list[int]]) -> None:
        mine = [] if group is None else dist.get_process_group_ranks(group)
        for members in all_members:
            # A group's order is its own, which is ascending, whatever the order along the mesh.
            key = tuple(mine) if set(members) == set(mine) else tuple(sorted(members))
            if self._within.issuperset(key):
                self._all.setdefault(key)
                if set(members) == set(mine):
                    self._names.setdefault(key, group.group_name)

    def name(self, members: list[int]) -> str:
        """What PyTorch calls the group of these members, of which this rank is one."""
        return self._names[tuple(members)]

    def patterns(self) -> list[GroupPattern]:
        """The patterns of the groups, for a planner that may use no others."""
        found: dict[GroupPattern, None] = {}
        for members in self._all:
            if len(members) > 1:
                found.setdefault(ProcessGroup(sorted(members)).pattern)
        return list(found)

    def lacking(self, plan: Plan) -> list[tuple[int, ...]]:
        """The members of the groups that a plan wants and that are not there, reductions and all others, each once."""
        exact = {tuple(sorted(members)) for members in self._all}
        return [members for members in wanted(plan) if members not in exact]

    def serves(self, plan: Plan) -> bool:
        """Whether the plan's own calls can be made: a reduction on exactly its members, any other on a group that holds them."""
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
        """The default group alone."""
        made = object.__new__(cls)
        made._within, made._names, made._all = frozenset(range(dist.get_world_size())), {}, {}
        made._add(dist.group.WORLD, [list(range(dist.get_world_size()))])
        made._finish()
        return made

    def only(self, wanted: Sequence[tuple[int, ...]]) -> "Groups":
        """Those of these groups that have exactly one of these lists of members, ascending."""
        chosen = set(wanted)
        made = object.__new__(Groups)
        made._within, made._names = self._within, self._names
        made._all = {members: None for members in self._all if tuple(sorted(members)) in chosen}
        made._finish()
        return made

    def make(self, plan: Plan) -> "Groups":
        """These groups and those that the plan lacks, which are made now: every rank of the default group calls it with the same plan."""
        return self.with_members(self.lacking(plan))

    def with_members(self, wanted: Sequence[tuple[int, ...]]) -> "Groups":
        """These groups and those with these members, ascending, that are not there: every rank of the default group calls it with the same."""
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
    """The planner's plan, or where the groups do not serve it, the one within the groups; None where they serve neither. It is the same on all
    ranks."""
    plan = planner.plan(before, after, dtype)
    if groups.serves(plan):
        return plan
    try:
        plan = _limited(planner, groups).plan(before, after, dtype)
    except ReshardError:
        return None
    return plan if groups.serves(plan) else None


@lru_cache(maxsize=64)
def _limited(planner: Planner, groups: Groups) -> Planner:
    """A planner like another, that uses no other groups; kept for its cache."""
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
    """Who talks to whom in a step, ascending."""
    before, after = step.before.mesh, step.after.mesh
    if before != after:
        return [tuple(sorted({*before.ranks, *after.ranks}))]
    return [tuple(sorted(members)) for members in before.groups(*step.axes).members()]


def wanted(plan: Plan) -> list[tuple[int, ...]]:
    """The members of the groups that a plan's steps are called on, each once."""
    return list(dict.fromkeys(members for step in plan.steps if step.communicates for members in _members(step)))


@lru_cache(maxsize=256)
def _groups(device_mesh: DeviceMesh, others: tuple[DeviceMesh, ...], world: int, flattened: int) -> Groups:
    return Groups(device_mesh, *others)


def groups_of(device_mesh: DeviceMesh, *others: DeviceMesh) -> Groups:
    """The groups of device meshes as they are now: axes that are flattened later are seen, and another default group is."""
    world = id(dist.group.WORLD)
    flattened = sum(len(one._get_root_mesh()._flatten_mapping) for one in (device_mesh, *others))
    return _groups(device_mesh, others, world, flattened)
