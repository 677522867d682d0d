"""Measured profiles: read from files, compared by their costs, and whole in pickles of all that have one."""

import copy
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import reshard
from reshard import Plan, Planner, Propagator, ReshardError, Sharding, ShardingSolver, Topology

PROFILE = """\
name = "mine"
launch_us = 4.8
message_us = 0.2

[[levels]]
ranks = 8
latency_us = 2.35
gbytes_per_s = 284.0

[[levels]]
latency_us = 71.5
gbytes_per_s = 7.61

[measured]
from = "table.jsonl"
dtype = "f16"
median_error_percent = 7.3
p90_error_percent = 22.4

[[curves]]
collective = "all_gather"
spread = [8]
bytes = [16384, 1048576, 4194304]
us = [11.2, 17.1, 33.4]
"""

BEFORE, AFTER = Sharding("x=8", (1024, 1024), "S(0)"), Sharding("x=8", (1024, 1024), "R")


def load(folder: Path, text: str = PROFILE) -> Topology:
    path = folder / "mine.toml"
    path.write_text(text)
    return Topology.load(path)


def again(value: Any) -> list[Any]:
    return [pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy([value])[0]]


def test_a_profile_is_read_from_its_file(tmp_path: Path) -> None:
    mine = load(tmp_path)
    assert mine.levels == [(8, 2.35, 284.0), (None, 71.5, 7.61)]
    assert mine.origin == "mine: measured by table.jsonl, f16; expected error 7.3 % (median), 22.4 % (p90)"
    assert Topology.from_toml(mine.to_toml()) == Topology.load(str(tmp_path / "mine.toml")) == mine
    assert reshard.plan(BEFORE, AFTER, topology=mine).cost_us == 33.4
    lines = mine.lines()
    assert lines == Topology.of(4.8, 0.2, mine.levels) == Topology(str(lines)) != mine
    assert lines.origin == f"{lines}: nominal" and ";curves=" in str(mine).removeprefix(str(lines))
    assert reshard.plan(BEFORE, AFTER, topology=lines).cost_us != 33.4
    assert Topology.from_toml(Topology("uniform").to_toml()) == Topology.uniform()


def test_networks_are_equal_if_their_costs_are(tmp_path: Path) -> None:
    mine = load(tmp_path)
    renamed = load(tmp_path, PROFILE.replace('"mine"', '"other"').replace("7.3", "7.4"))
    assert renamed == mine and hash(renamed) == hash(mine) and str(renamed) == str(mine) and renamed.origin != mine.origin
    for change in (("33.4", "33.5"), ("4194304", "4194308"), ("284.0", "285.0"), ("all_gather", "all_to_all")):
        assert load(tmp_path, PROFILE.replace(*change)) != mine, change


def test_pickles_keep_the_whole_profile(tmp_path: Path) -> None:
    mine = load(tmp_path)
    for other in again(mine):
        assert other == mine and other.to_toml() == mine.to_toml() and other.origin == mine.origin
    # A name and a source without curves are not in the notation either.
    named = load(tmp_path, PROFILE[: PROFILE.index("[[curves]]")])
    assert named == Topology(str(named))
    for other in again(named):
        assert other == named and other.origin == named.origin != named.lines().origin
    # Names that the library knows are enough, unless the profile has another.
    h100 = Topology("h100")
    assert len(pickle.dumps(h100)) < 200
    other = Topology.from_toml(h100.to_toml().replace('"h100"', '"ours"'))
    assert other == h100 and str(other) == "h100" and other.origin.startswith("ours: ")
    for one in again(other):
        assert one == h100 and one.origin == other.origin


def test_planners_keep_it_too(tmp_path: Path) -> None:
    mine = load(tmp_path)
    planner = Planner(topology=mine, objective="bytes", max_peak_bytes=1 << 30, groups=["8:1"], deterministic=True, budget=1000)
    for one in (planner, *again(planner)):
        assert one == planner and str(one) == str(planner) and hash(one) == hash(planner)
        assert one.topology == mine and one.topology.to_toml() == mine.to_toml()
    assert Planner(topology=mine) != Planner(topology=mine.lines())
    for name in ("uniform", "h100", "a100", "b200", "h100-lines"):
        assert all(one == Planner(topology=name) and one.topology == Topology(name) for one in again(Planner(topology=name)))
    assert ShardingSolver(topology=mine).solve(reshard.Graph.parse("mesh x=8\nx: f32[1024,1024] S(0)\ny: R = x\n")) is not None
    assert Propagator(mine) != Propagator(mine.lines())


def test_plans_keep_it_too(tmp_path: Path) -> None:
    planner = Planner(topology=load(tmp_path))
    plan = planner.plan(BEFORE, AFTER)
    greedy = planner.axis_by_axis(BEFORE, AFTER)
    assert greedy is not None
    for one in (plan, plan.transposed(), greedy, greedy.transposed().transposed()):
        for other in again(one):
            assert other == one and str(other) == str(one) and other.cost_us == one.cost_us
            assert other.planner == planner and other.planner.topology.to_toml() == planner.topology.to_toml()
    assert "mine: measured by table.jsonl" in pickle.loads(pickle.dumps(plan)).explain()


def test_stored_plans_have_the_whole_profile(tmp_path: Path) -> None:
    mine = load(tmp_path)
    plan = reshard.plan(BEFORE, AFTER, topology=mine)
    read = Plan.from_json(plan.to_json())
    assert read == plan and read.cost_us == 33.4 and read.planner.topology.to_toml() == mine.to_toml()


def test_numbers_are_not_rounded() -> None:
    drawn = random.Random(5)
    for _ in range(300):
        numbers = [drawn.uniform(0, 10) * 10.0 ** drawn.randint(-3, 3) for _ in range(4)]
        network = Topology.of(numbers[0], numbers[1], [(None, numbers[2], numbers[3] + 1e-3)])
        plan = reshard.plan(BEFORE, AFTER, topology=network)
        assert Topology.from_toml(network.to_toml()) == network == Plan.from_json(plan.to_json()).planner.topology


def test_pictures_of_plans_have_levels_under_curves(tmp_path: Path) -> None:
    two = Sharding("x=16", (1024, 1024), "S(0)")
    plan = reshard.plan(two, Sharding("x=16", (1024, 1024), "R"), topology=load(tmp_path))
    assert "bytes of the worst rank by level of the network" in plan.draw()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("launch_us = 4.8", "launch_us = -1"), "launch -1 us and message 0.2 us must be numbers from 0"),
        (("ranks = 8", "ranks = 8\nnodes = 2"), "unknown field `nodes`, expected one of `ranks`"),
        (("spread = [8]", "spread = [1]"), "the curve of all_gather over [1] has no spread of at least 2 ranks"),
        (("11.2, 17.1", "11.2"), "3 sizes and 2 times"),
        (("16384, 1048576", "1048576, 16384"), "has 1048576 bytes before 16384; sizes must ascend"),
        (('"all_gather"', '"gather"'), "cannot read the step `gather`: expected slice, all_gather, reduce_scatter"),
        (("[measured]", "[measured"), "line 14"),
    ],
)
def test_a_file_that_is_not_a_profile_is_rejected(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert change[0] in PROFILE
    for read in (lambda text: load(tmp_path, text), Topology.from_toml):
        with pytest.raises(ReshardError) as error:
            read(PROFILE.replace(*change))
        assert error.value.kind == "topology" and message in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReshardError, match=f"the profile `{tmp_path}/none.toml` cannot be read: ") as error:
        Topology.load(tmp_path / "none.toml")
    assert error.value.kind == "io"
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(ReshardError, match="it is not UTF-8 at byte 0"):
        Topology.load(tmp_path / "bytes.toml")


def test_the_text_of_curves_asks_for_the_file(tmp_path: Path) -> None:
    mine = load(tmp_path)
    with pytest.raises(ReshardError, match="of which this text has a digest only; give the file"):
        eval(repr(mine), vars(reshard))
    with pytest.raises(ReshardError, match="of which this text has a digest only; give the file"):
        Planner.parse(str(Planner(topology=mine)))
