"""Strategies for tests: meshes, shardings and layouts, small and of every kind."""

import copy
import pickle
from typing import Any

import reshard
from hypothesis import strategies as st

MESHES = ["x=1", "x=2", "x=3", "x=4", "dp=2,tp=2", "dp=2,tp=4", "a=2,b=3", "a=2,b=2,c=2", "x=2,y=2@[3,1,0,2]", "x=3@5", "b=2:1,a=2:4"]


def shapes(most: int = 3) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of up to `most` dims, zeros and ones among the sizes."""
    return st.lists(st.integers(0, 9), min_size=1, max_size=most).map(tuple)


@st.composite
def shardings(draw: st.DrawFn, mesh: str | None = None, shape: tuple[int, ...] | None = None, terms: bool = True) -> reshard.Sharding:
    """Shardings of every kind: uneven, strided and, with `terms`, partial ones."""
    mesh = draw(st.sampled_from(MESHES)) if mesh is None else mesh
    shape = draw(shapes()) if shape is None else shape
    words = [st.just("R"), st.integers(0, len(shape) - 1).map(lambda dim: f"S({dim})")]
    words.append(st.tuples(st.integers(0, len(shape) - 1), st.integers(1, 3)).map(lambda pair: f"SS({pair[0]},{pair[1]})"))
    words.append(st.integers(0, len(shape) - 1).map(lambda dim: f"Z({dim})"))
    if terms:
        words.append(st.just("P"))
    axes = len(reshard.Mesh(mesh).axes)
    text = ",".join(draw(st.lists(st.one_of(words), min_size=axes, max_size=axes)))
    try:
        return reshard.Sharding(mesh, shape, text)
    except reshard.ReshardError:
        return reshard.Sharding(mesh, shape, ",".join(["R"] * axes))


@st.composite
def layouts(draw: st.DrawFn) -> reshard.Layout:
    """Layouts of up to four modes, with small strides."""
    modes = draw(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 12)), min_size=1, max_size=4))
    return reshard.Layout(tuple(extent for extent, _ in modes), tuple(stride for _, stride in modes))


def round_trips(value: Any) -> None:
    """Asserts that a value equals its evaluated repr, its pickled copy, and its copies."""
    assert eval(repr(value), vars(reshard)) == value
    for other in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert other == value
        assert hash(other) == hash(value)
        assert str(other) == str(value)
    assert value != object()
