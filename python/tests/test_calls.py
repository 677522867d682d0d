"""A plan as a framework's calls: an interpreter of the calls gives the result of the plan."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reshard
from reshard import Mesh, FrameworkGroups, RankCalls, ReshardError, Sharding, View, plan
from values import round_trips

PLACED = ["S(0),S(1)", "S(1),S(0)", "S(0),R", "R,S(1)", "S(0),S(0)", "R,R", "P,S(0)", "P,P", "SS(0,2),R"]


def shards(sharding: Sharding, dtype: str = "float32") -> list[np.ndarray]:
    """Returns the shards of a tensor of distinct numbers."""
    whole = np.arange(np.prod(sharding.shape), dtype=dtype).reshape(sharding.shape)
    return list(sharding.shard_all(whole))


@given(st.sampled_from(PLACED), st.sampled_from(PLACED), st.sampled_from([(8, 4), (7, 5)]), st.sampled_from(["none", "axes", "world"]))
def test_calls_are_what_the_plan_does(before: str, after: str, shape: tuple[int, int], offered: str) -> None:
    mesh = Mesh("dp=2,tp=2")
    if shape == (7, 5) and "SS" in before + after:
        return
    if "P" in after:
        return
    made = plan(Sharding(mesh, shape, before), Sharding(mesh, shape, after), "f32")
    groups = {
        "none": [],
        "axes": [("dp", [0, 2]), ("dp", [1, 3]), ("tp", [0, 1]), ("tp", [2, 3])],
        "world": [("world", [0, 1, 2, 3])],
    }
    offers = FrameworkGroups(groups[offered])
    sources = shards(made.from_)
    calls = [made.calls(rank, offers) for rank in range(4)]
    for of_rank in calls:
        for call in of_rank:
            assert call.group is None or call.group in offers.groups
            assert sum(len(view) for view in call.pack) == call.packed_len
    targets = RankCalls.interpret(calls, [source.tobytes() for source in sources])
    for target, expected in zip(targets, made.run(sources), strict=True):
        assert bytes(target) == expected.tobytes()


def test_one_program_is_every_ranks_calls() -> None:
    mesh = Mesh("dp=2,tp=4")
    made = plan(Sharding(mesh, (64, 32), "S(0),S(1)"), Sharding(mesh, (64, 32), "S(1),S(0)"), "f32")
    program = made.spmd()
    assert program.ranks == list(range(8)) and program == made.spmd()
    assert all(len(call.source_offsets) == len(call.arrival_order) == 8 for call in program.calls)
    sources = shards(made.from_)
    targets = RankCalls.interpret([program.at(rank) for rank in range(8)], [source.tobytes() for source in sources])
    assert [bytes(target) for target in targets] == [expected.tobytes() for expected in made.run(sources)]


def test_what_is_not_alike_is_refused() -> None:
    made = plan(Sharding("x=2", (5,), "S(0)"), Sharding("x=2", (5,), "R"), "f32")
    with pytest.raises(ReshardError) as refused:
        made.spmd()
    assert refused.value.kind == "plan_mismatch", refused.value.kind
    with pytest.raises(ReshardError, match="is listed twice"):
        FrameworkGroups([("tp", [0, 1, 0])])
    with pytest.raises(ReshardError, match="is listed twice"):
        made.calls(0, {"tp": [0, 1, 0]})
    assert str(made.calls(0, {"x": [0, 1]})) == str(made.calls(0, FrameworkGroups({"x": [0, 1]})))
    with pytest.raises(ReshardError):
        made.calls(7)
    with pytest.raises(IndexError):
        made.calls(0)[99]


def test_views_are_values() -> None:
    view = View("3+(2:8,4:1)")
    assert view == View(3, [(2, 8), (4, 1)])
    round_trips(view)
    assert hash(view) == hash(View(str(view))) and view != View("0+(8:1)")
    assert (view.offset, view.loops, view.shape, view.strides) == (3, [(2, 8), (4, 1)], (2, 4), (8, 1))
    buffer = np.arange(16)
    strided = np.lib.stride_tricks.as_strided(buffer[view.offset :], view.shape, [s * buffer.itemsize for s in view.strides])
    assert strided.reshape(-1).tolist() == view.elements() == [3, 4, 5, 6, 11, 12, 13, 14]
    assert view.range is None and View("3+(8:1)").range == (3, 11) and view.end == 15
    assert repr(FrameworkGroups([("tp", [0, 1])])) == 'FrameworkGroups([("tp", [0, 1])])'
    assert FrameworkGroups({"tp": [1, 0]}) == FrameworkGroups([("tp", [1, 0])])
    round_trips(FrameworkGroups({"tp": [1, 0]}))
