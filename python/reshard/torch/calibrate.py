"""Measured profiles: the collectives of a process group, timed on its ranks.

    a sampler on every rank: which collective, ranks, bytes, calls --> barrier, calls, the slowest rank's time --> ..
    after the last sample:   the same table on every rank --> a profile, equal on all ranks

The sampler has no clock and runs nothing. All ranks record the slowest rank's time, and so choose the same samples.
"""

import datetime
import json
import os
import pathlib
import socket
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from reshard import Topology
from reshard._refusals import counted, refused
from reshard._reshard import _Sampler

from reshard.torch.link import GroupLink, all_of

# The unsettled points that a warning lists.
_SHOWN = 3


@dataclass(frozen=True)
class Calibration:
    """A measured network.

    `report` is what `reshard calibrate --json` reports, with the points whose samples differ too much, or for which
    no time was left, in `unsettled`. `table` has the time of each sample as JSON lines, which that command reads.
    """

    topology: Topology
    report: Mapping[str, Any]
    table: str

    @property
    def is_settled(self) -> bool:
        """True if all points were measured, and none is unstable."""
        return not self.report["unsettled"]

    def __str__(self) -> str:
        return "\n".join([self.topology.origin, *_of_unsettled(self.report)])


def calibrate(
    group: Any = None,
    *,
    most_bytes: int = 64 << 20,
    seconds: float = 60.0,
    dtype: torch.dtype = torch.float32,
    ranks_per_node: int | None = None,
    name: str | None = None,
    write: str | os.PathLike[str] | None = None,
) -> Calibration:
    """Measures the collectives of a group by its backend, and returns the network that they take place on.

    All ranks of the group call it with the same arguments, and get equal results; default: all ranks. Times are those
    of all-gather, reduce-scatter, all-reduce and all-to-all on 2, 4, .. ranks of a node and of several nodes, for sizes
    up to `most_bytes`, on GPUs if the backend is NCCL. A group of some ranks is measured as a whole only: PyTorch makes
    groups within it with the other ranks. `seconds` limits the time of all samples. Nodes are the ranks
    with one host name, or `ranks_per_node` consecutive ranks. `write` is the file of the profile, which the first rank
    writes.

    The first rank warns if times are unstable, or if the nodes make no level.

    Errors: `ReshardError` on all ranks for an argument of one rank that does not fit; `EngineError` for a failed rank.
    """
    link = GroupLink(group)
    given = f"most_bytes={most_bytes!r}, seconds={seconds!r}, dtype={dtype}, ranks_per_node={ranks_per_node!r}"
    source = f"reshard.torch.calibrate, PyTorch {torch.__version__}, {_backend(group)}"
    refusal: Exception | None = None
    try:
        path = None if write is None else pathlib.Path(write)
        named = name if name is not None or path is None else path.stem
    except TypeError as error:
        refusal, named = error, None
    # The name, the source and the date are those of the first rank, so that profiles are equal.
    said = all_of(link, refusal, (given, socket.gethostname(), named, source, datetime.date.today().isoformat()), "beginning to measure")
    is_first = link.rank == link.ranks[0]
    sampler: _Sampler | None = None
    calls: _Calls | None = None
    try:
        for rank, (other, *_) in zip(link.ranks, said, strict=True):
            if other != said[0][0]:
                raise refused("disagrees", f"rank {rank} measures with {other}, but rank {link.ranks[0]} with {said[0][0]}")
        node_ranks, why_not = (ranks_per_node, None) if ranks_per_node is not None else ranks_of_a_node([host for _, host, *_ in said])
        if why_not is not None and is_first:
            warnings.warn(why_not, stacklevel=2)
        sampler = _Sampler(len(link.ranks), node_ranks, len(link.ranks) < dist.get_world_size(), most_bytes, dtype, seconds)
        calls = _Calls(link.device, dtype, most_bytes, len(link.ranks))
    except Exception as error:
        refusal = error
    all_of(link, refusal, None, "preparing to measure")
    assert sampler is not None and calls is not None
    _measure(link, dist.group.WORLD if group is None else group, sampler, calls)
    topology, report, table = sampler.finish(*said[0][2:])
    made = Calibration(topology, json.loads(report), table)
    try:
        if path is not None and is_first:
            path.write_text(topology.to_toml())
    except Exception as error:
        refusal = error
    all_of(link, refusal, None, "writing the profile")
    lines = _of_unsettled(made.report)
    if lines and is_first:
        warnings.warn("; ".join(lines), stacklevel=2)
    return made


def ranks_of_a_node(hosts: Sequence[str]) -> tuple[int, str | None]:
    """Returns the ranks of a node by the host names of all ranks; with a reason, all ranks if the nodes make no level."""
    by_host: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        by_host.setdefault(host, []).append(rank)
    for host, ranks in by_host.items():
        if ranks[-1] - ranks[0] >= len(ranks):
            return len(hosts), f"all ranks are measured as one node: the ranks of {host}, {ranks}, are not consecutive; start ranks node by node"
    lengths = {host: len(ranks) for host, ranks in by_host.items()}
    if len(set(lengths.values())) > 1:
        return len(hosts), f"all ranks are measured as one node: nodes have different numbers of ranks, {lengths}"
    return len(hosts) // len(by_host), None


class _Calls:
    """The calls of samples, on buffers of this rank."""

    def __init__(self, device: torch.device, dtype: torch.dtype, most_bytes: int, ranks: int) -> None:
        self.device, self._item = device, dtype.itemsize
        # A size is rounded up to an element for each rank.
        elements = most_bytes // dtype.itemsize + 1 + ranks
        # Sums of zeros are zeros, whatever the number of calls. They are written: pages of `torch.zeros` that never were
        # are one page of memory, which is read from the cache.
        self._whole, self._other = (torch.empty(elements, dtype=dtype, device=device).zero_() for _ in range(2))

    def us(self, collective: str, group: Any, ranks: int, size: int, calls: int) -> float:
        """Returns the microseconds of this rank's calls of a collective; `size` is that of the whole tensor."""
        whole, other = self._whole[: size // self._item], self._other[: size // self._item]
        shard = other[: other.numel() // ranks]
        run: dict[str, Callable[[], Any]] = {
            "all_gather": lambda: dist.all_gather_into_tensor(whole, shard, group=group),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(shard, whole, group=group),
            "all_reduce": lambda: dist.all_reduce(whole, group=group),
            "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
        }
        return timed_us(run[collective], calls, self.device)


def timed_us(run: Callable[[], Any], calls: int, device: torch.device) -> float:
    """Returns the microseconds of a number of calls, by events of the stream on a GPU."""
    if device.type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) * 1e6


def _measure(link: GroupLink, group: Any, sampler: _Sampler, calls: _Calls) -> None:
    """Takes all samples, in groups that exist for this time."""
    groups: dict[tuple[int, ...], Any] = {tuple(range(len(link.ranks))): group}
    me = link.ranks.index(link.rank)
    while (sample := sampler.next_sample()) is not None:
        collective, members, size, times = sample
        what = f"measuring {collective} of {size} B among ranks {members} of the group"
        try:
            if tuple(members) not in groups:
                ranks = [link.ranks[member] for member in members]
                groups[tuple(members)] = dist.new_group(ranks)
            # An all-reduce of one number is a barrier on every backend.
            number = torch.zeros(1, dtype=torch.float64, device=link.device)
            link.least(number)
            if me in members:
                number[0] = -calls.us(collective, groups[tuple(members)], len(members), size, times)
            link.least(number)
        except RuntimeError as error:
            raise link.failed(error, what) from error
        sampler.record(-number.item())
    for of_group, made in groups.items():
        if made is not group and me in of_group:
            dist.destroy_process_group(made)


def _backend(group: Any) -> str:
    backend = str(dist.get_backend(group))
    return f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}" if backend == "nccl" else backend


def _of_unsettled(report: Mapping[str, Any]) -> list[str]:
    """Returns a line for the unstable points, and one for those that were not measured."""
    points = report["unsettled"]
    unstable = [point for point in points if point["cause"] == "unstable"]
    skipped = [point for point in points if point["cause"] == "not_measured"]
    lines = []
    if unstable:
        worst = sorted(unstable, key=lambda point: -float(point["range_percent"]))
        named = [f"{_named(point)} (interquartile range {point['range_percent']:.1f} % of the median)" for point in worst]
        verb = "is" if len(unstable) == 1 else "are"
        lines.append(f"{counted(len(unstable), 'measured time')} {verb} unstable; the machine is busy, or its network is noisy: {_listed(named)}")
    if skipped:
        verb = "was" if len(skipped) == 1 else "were"
        lines.append(f"{counted(len(skipped), 'size')} {verb} not measured; `seconds` is too short: {_listed([_named(point) for point in skipped])}")
    return lines


def _named(point: Mapping[str, Any]) -> str:
    nodes = f" of {point['nodes']} nodes" if point["nodes"] > 1 else ""
    return f"{point['collective']} over {point['ranks']} ranks{nodes} of {point['bytes']} B"


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
