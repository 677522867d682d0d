"""Measured profiles of process groups: equal on all ranks, with a curve for each group, and used by plans.

Most tests make up the times, so that no result depends on this machine.
"""

import json
import os
import pathlib
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

from definition import device_mesh, dtensor, whole_of
from ranks import Ranks
from reshard import EngineError, Planner, ReshardError, Sharding, Topology
from reshard.torch import Calibration, calibrate, planned
from reshard.torch.calibrate import ranks_of_a_node

COLLECTIVES = {"all_gather", "all_reduce", "all_to_all", "reduce_scatter"}

Time = Callable[[str, int, int], float]


def network(collective: str, ranks: int, size: int) -> float:
    """Returns the time of a call on a made-up network: 20 us, and 1 GB/s."""
    return 20.0 + ranks + size / 1000


@contextmanager
def made_up(time: Time, host: str = "one") -> Iterator[None]:
    """Replaces the times of calls, which still run, and the name of this rank's host."""
    module = sys.modules["reshard.torch.calibrate"]
    real = module._Calls.us

    def us(self: Any, collective: str, group: Any, ranks: int, size: int, calls: int) -> float:
        assert dist.get_world_size(group) == ranks
        real(self, collective, group, ranks, size, 1)
        return calls * time(collective, ranks, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module._Calls, "us", us)
        patch.setattr(module.socket, "gethostname", lambda: host)
        yield


def described(made: Calibration) -> tuple[str, str, str]:
    return made.topology.to_toml(), json.dumps(made.report), made.table


def caught(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Returns a result and the texts of its warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        made = call()
    return made, [str(one.message) for one in found if one.category is UserWarning]


def of_made_up_times(rank: int, folder: str) -> tuple[str, str, str]:
    """The slowest rank is the last one; the others take half of its time."""
    world = dist.get_world_size()
    path = f"{folder}/mine.toml"
    slow = 1.0 if rank == world - 1 else 0.5
    with made_up(lambda *of: slow * network(*of)):
        made, texts = caught(lambda: calibrate(most_bytes=8192, seconds=1e6, write=path))
    assert texts == [] and made.is_settled and made.report["unsettled"] == []
    origin = f"mine: measured by reshard.torch.calibrate, PyTorch {torch.__version__}, gloo, f32, "
    assert made.topology.origin.startswith(origin) and str(made) == made.topology.origin
    profile = tomllib.loads(made.topology.to_toml())
    groups = [[2], [4]][: world // 2]
    assert {(one["collective"], *one["spread"]) for one in profile["curves"]} == {(op, *spread) for op in COLLECTIVES for spread in groups}
    for curve in profile["curves"]:
        (ranks,) = curve["spread"]
        assert curve["bytes"] == [512, 2048, 8192]
        # Members that are quicker than the slowest do not count.
        share = 1.0 if ranks == world else 0.5
        assert curve["us"] == pytest.approx([share * network("", ranks, size) for size in curve["bytes"]], rel=1e-6)
    assert len(made.table.splitlines()) == made.report["measurements"] == 15 * 3 * len(profile["curves"])
    assert Topology.load(path) == made.topology
    # Plans take the measured times, and run.
    planner = Planner(topology=made.topology, arithmetic="framework")
    mesh = device_mesh((world,))
    plan = planner.plan(Sharding(f"d={world}", (8, 64), "S(0)"), "R", "f32")
    assert plan.cost_us == pytest.approx(network("", world, 2048), rel=1e-6)
    whole = whole_of((8, 64))
    with planned(planner, strict=True) as plans:
        gathered = dtensor(whole, [Shard(0)], mesh).redistribute(placements=[Replicate()])
    assert torch.equal(gathered.to_local(), whole) and plans.report().plans == 1
    return described(made)


def equal(answers: list[Any]) -> None:
    assert all(answer == answers[0] for answer in answers)


def test_two_ranks(two: Ranks, tmp_path: pathlib.Path) -> None:
    equal(two.run(of_made_up_times, str(tmp_path)))


def test_four_ranks(four: Ranks, tmp_path: pathlib.Path) -> None:
    equal(four.run(of_made_up_times, str(tmp_path)))


def on_two_nodes(rank: int, hosts: list[str], given: int | None) -> tuple[Any, list[str]]:
    with made_up(network, hosts[rank]):
        made, texts = caught(lambda: calibrate(most_bytes=512, seconds=1e6, ranks_per_node=given))
    spreads = sorted({tuple(one["spread"]) for one in made.report["curves"]})
    return (made.topology.levels[0][0], spreads, described(made)), texts


def test_nodes_are_the_ranks_of_a_host(four: Ranks) -> None:
    nodes = (2, [(1, 2), (2,), (2, 2)])
    for hosts, given in ((["a", "a", "b", "b"], None), (["a"] * 4, 2)):
        answers = four.run(on_two_nodes, hosts, given)
        equal([made for made, _ in answers])
        assert answers[0][0][:2] == nodes and all(texts == [] for _, texts in answers)
    answers = four.run(on_two_nodes, ["a", "b", "a", "b"], None)
    equal([made for made, _ in answers])
    text = "all ranks are measured as one node: the ranks of a, [0, 2], are not consecutive; start ranks node by node"
    assert answers[0][0][:2] == (None, [(2,), (4,)]) and [texts for _, texts in answers] == [[text], [], [], []]


def test_hosts_that_make_no_level_are_named() -> None:
    assert ranks_of_a_node(["a"] * 3) == (3, None)
    assert ranks_of_a_node(["a", "a", "b", "b", "c", "c"]) == (2, None)
    assert ranks_of_a_node(["a", "b"]) == (1, None)
    assert ranks_of_a_node(["a", "b", "b"]) == (3, "all ranks are measured as one node: nodes have different numbers of ranks, {'a': 1, 'b': 2}")
    assert ranks_of_a_node(["b", "a", "a", "b"])[1] is not None


def of_real_times(rank: int) -> tuple[str, str, str]:
    made = calibrate(most_bytes=1024, seconds=2.0, dtype=torch.bfloat16)
    assert all(knots["spread"] in ([2], [4]) and min(knots["us"]) > 0 for knots in tomllib.loads(made.topology.to_toml())["curves"])
    assert "gloo, bf16" in made.topology.origin
    planner = Planner(topology=made.topology)
    plan = planner.plan(Sharding(f"d={dist.get_world_size()}", (8, 8), "S(0)"), "R")
    assert plan.cost_us >= plan.lower_bound_us > 0
    return described(made)


def test_real_times_on_two_ranks(two: Ranks) -> None:
    equal(two.run(of_real_times))


def test_real_times_on_four_ranks(four: Ranks) -> None:
    equal(four.run(of_real_times))


def of_a_part(rank: int) -> list[tuple[str, str, str]] | str:
    """Ranks 3 and 1 measure twice, and the others take no part."""
    group = dist.new_group([3, 1])
    if rank not in (1, 3):
        with pytest.raises(ReshardError) as error:
            calibrate(group, most_bytes=512)
        return str(error.value)
    with made_up(network):
        return [described(calibrate(group, most_bytes=512, seconds=1e6)) for _ in range(2)]


def test_a_group_of_some_ranks(four: Ranks) -> None:
    outside, first, other, second = four.run(of_a_part)
    assert first == second and first[0] == first[1]
    assert outside == "rank 0 is not in the group; only its ranks take part" and other == outside.replace("0", "2")


def three_of_six(rank: int) -> tuple[str, str, str] | None:
    """No group is made without the ranks outside of the measured group: their next one would not match."""
    group = dist.new_group([1, 2, 5])
    made = None
    if rank in (1, 2, 5):
        with made_up(network):
            made = calibrate(group, most_bytes=512, seconds=1e6)
    dist.barrier(dist.new_group(range(8)))
    if made is None:
        return None
    assert {tuple(one["spread"]) for one in made.report["curves"]} == {(3,)}
    return described(made)


def test_a_part_is_measured_as_a_whole(eight: Ranks) -> None:
    answers = eight.run(three_of_six)
    equal([answers[rank] for rank in (1, 2, 5)])


def noisy(rank: int) -> tuple[tuple[str, str, str], list[str], str]:
    """Every second sample takes twice as long."""
    count = 0

    def time(collective: str, ranks: int, size: int) -> float:
        nonlocal count
        count += 1
        return network(collective, ranks, size) * (1 + count % 2)

    with made_up(time):
        made, texts = caught(lambda: calibrate(most_bytes=2048, seconds=1e6))
    assert not made.is_settled and {point["cause"] for point in made.report["unsettled"]} == {"unstable"}
    return described(made), texts, str(made)


def test_unstable_times_are_named(two: Ranks) -> None:
    answers = two.run(noisy)
    equal([made for made, _, _ in answers])
    (_, (text,), shown), (_, others, _) = answers
    assert others == [] and text in shown.splitlines()
    assert text.startswith("8 measured times are unstable; the machine is busy, or its network is noisy: ") and text.endswith(" and 5 more")
    assert "all_gather over 2 ranks of 512 B (interquartile range 66.7 % of the median)" in text, text


def short(rank: int) -> tuple[tuple[str, str, str], list[str]]:
    with made_up(network):
        made, texts = caught(lambda: calibrate(most_bytes=512, seconds=1e-9))
    return described(made), texts


def test_sizes_for_which_no_time_is_left_are_named(two: Ranks) -> None:
    answers = two.run(short)
    equal([made for made, _ in answers])
    text = "3 sizes were not measured; `seconds` is too short: reduce_scatter over 2 ranks of 512 B, all_reduce over 2 ranks of 512 B, "
    assert [texts for _, texts in answers] == [[text + "all_to_all over 2 ranks of 512 B"], []]


def refused(rank: int, folder: str) -> None:
    """All ranks raise the error of one."""

    def refusal(kind: str, text: str, **options: Any) -> None:
        with made_up(network), pytest.raises(ReshardError) as error:
            calibrate(**{"most_bytes": 512, "seconds": 1e6, **options})
        assert error.value.kind == kind and text in str(error.value), error.value

    theirs = "seconds=1000000.0, dtype=torch.float32, ranks_per_node=None"
    refusal("disagrees", f"rank 1 measures with most_bytes=1024, {theirs}, but rank 0 with most_bytes=512, {theirs}", most_bytes=512 * (1 + rank))
    refusal("samples", "the greatest size is 0 B; expected 1 B to 1 TiB", most_bytes=0)
    refusal("samples", "the world has 2 ranks, which are not a multiple of 3 in a node", ranks_per_node=3)
    refusal("samples", "times and tolerances must be positive numbers", seconds=float("nan"))
    if rank == 0:
        with pytest.raises(TypeError):
            calibrate(most_bytes=512, write=3)  # type: ignore[arg-type]
    else:
        refusal("raised", "rank 0: ")
    path = f"{folder}/none/mine.toml"
    if rank == 1:
        refusal("raised", f"rank 0: [Errno 2] No such file or directory: '{path}'", write=path)
    else:
        with made_up(network), pytest.raises(FileNotFoundError):
            calibrate(most_bytes=512, seconds=1e6, write=path)


def test_an_error_of_one_rank_is_raised_on_all(two: Ranks, tmp_path: pathlib.Path) -> None:
    two.run(refused, str(tmp_path))


def one_dies(rank: int) -> tuple[str, str, int | None]:
    count = 0

    def time(collective: str, ranks: int, size: int) -> float:
        nonlocal count
        count += 1
        if rank == 1 and count == 7:
            os._exit(3)
        return network(collective, ranks, size)

    with made_up(time), pytest.raises(EngineError) as error:
        calibrate(most_bytes=512, seconds=1e6)
    return str(error.value), error.value.kind, error.value.rank


def test_a_rank_that_dies_is_named(tmp_path: pathlib.Path) -> None:
    ranks = Ranks(3, timeout_seconds=10)
    try:
        with pytest.raises(AssertionError, match="ranks \\[1\\] failed"):
            ranks.run(one_dies, seconds=90)
        for rank in (0, 2):
            text, kind, named = ranks.answers[rank][1]
            assert (kind, named) == ("lost", 1) and "measuring all_gather of 5" in text and "rank 1 has failed" in text, text
    finally:
        ranks.close()
