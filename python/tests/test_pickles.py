"""Every public class pickles and copies to an equal object, or raises an error with the reason."""

import copy
import pathlib
import pickle
import sys
from typing import Any

import pytest
import reshard

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import attack

PARTS = {"Message", "Phase", "Propagator", "RankCall", "RankCalls", "SpmdProgram", "CommCost"}
"""Classes of values that are parts of others, which are pickled instead."""


def values() -> dict[str, Any]:
    """Returns an object of each class that compares by value."""
    pool = attack.seeds()
    report = pool["Program"][1].report()
    pool["CommCost"] = [next(iter(report.traffic.values()))]
    pool["PairsLayout"] = [reshard.PairsLayout("8:(1,1)")]
    pool["NamedPoint"] = [pool["NamedLayout"][0].stride]
    classes = [name for name in reshard.__all__ if isinstance(getattr(reshard, name), type) and "__eq__" in vars(getattr(reshard, name))]
    return {name: pool[name][0] for name in classes}


def test_values_pickle_and_copy() -> None:
    all_of = values()
    assert PARTS | {"Counts", "Graph", "Plan", "Program", "Sharding"} <= set(all_of)
    for name, value in all_of.items():
        if name in PARTS:
            with pytest.raises(TypeError, match=f"a {name} cannot be pickled; pickle "):
                pickle.dumps(value)
            assert copy.copy(value) is value and copy.deepcopy([value])[0] is value
        else:
            for other in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
                assert other == value, name


def test_other_objects_say_that_they_do_not() -> None:
    pool = attack.seeds()
    for name in reshard.__all__:
        found = pool.get(name, [])
        if found and isinstance(getattr(reshard, name), type):
            try:
                pickle.dumps(found[0])
            except TypeError as error:
                assert name in str(error)


def test_counts_and_graphs() -> None:
    counts = reshard.Counts([[3, 1], [0, 2]], 4)
    assert pickle.loads(pickle.dumps(counts)) == counts == copy.deepcopy(counts)
    assert counts != reshard.Counts([[3, 1], [0, 1]], 4)
    graph = reshard.Graph.parse("mesh x=2\nx: f32[4] S(0)\ny = relu(x)\n")
    other = copy.copy(graph)
    assert other == graph == pickle.loads(pickle.dumps(graph))
    other.constrain("y", "R")
    assert other != graph
    table = reshard.OpTable()
    table.add("mine", "a->a")
    with pytest.raises(reshard.ReshardError, match="custom op table") as error:
        pickle.dumps(reshard.Graph("x=2", table=table))
    assert error.value.kind == "pickle"
