"""Nested states: names are those of PyTorch's distributed checkpoint, and no tensor of a state is lost."""

import collections.abc
import dataclasses
import itertools
import pathlib
import random
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.tensor import DTensor, Partial, Shard

import reshard
from definition import R, device_mesh, dtensor, shard, whole_of
from ranks import Ranks
from reshard import ReshardError
from reshard.torch import Reader, Runner, load, redistribute_state, save
from reshard.torch.memory import overlaps
from reshard.torch.nested import copied, entries

KEYS: list[Any] = ["w", "b", "a.b", "", 0, 1, -1, True, None, (1, 2), 2.5, "0", "é"]


def nesting(draw: random.Random, tensor: Callable[[], Any], depth: int = 0) -> dict[Any, Any]:
    """Returns a random state."""

    def value(depth: int) -> Any:
        kind = draw.choice(["tensor", "number", "text", "none", "dict", "list", "tuple", "ordered", "proxy", "empty"])
        if depth > 4:
            kind = draw.choice(["tensor", "number"])
        match kind:
            case "tensor":
                return tensor()
            case "number":
                return draw.randrange(9)
            case "text":
                return "adamw"
            case "none":
                return None
            case "dict":
                return nesting(draw, tensor, depth + 1)
            case "ordered":
                return collections.OrderedDict(nesting(draw, tensor, depth + 1))
            case "proxy":
                return types.MappingProxyType(nesting(draw, tensor, depth + 1))
            case "empty":
                return draw.choice([{}, [], (), [[]], [{}]])
        items = [value(depth + 1) for _ in range(draw.randrange(4))]
        return items if kind == "list" else tuple(items)

    return {key: value(depth) for key in draw.sample(KEYS, draw.randrange(5))}


def test_names_are_those_of_pytorch(tmp_path: pathlib.Path) -> None:
    """Of 2,000 random nestings, exactly those in which PyTorch finds two entries of one name are rejected."""
    refused = tensors = lossy = 0
    for seed in range(2_000):
        state = nesting(random.Random(seed), lambda: torch.zeros(2))
        try:
            expected, _ = flatten_state_dict(state)
        except ValueError:
            refused += 1
            with pytest.raises(ReshardError, match="two entries") as error:
                list(entries(state))
            assert error.value.kind == "names"
            continue
        found = list(entries(state))
        assert [entry.name for entry in found] == list(expected)
        assert all(entry.value is expected[entry.name] for entry in found)
        copy, _ = copied(state)
        again, _ = flatten_state_dict(copy)
        assert list(again) == list(expected) and all(again[name] is expected[name] for name in expected)
        tensors += sum(isinstance(value, torch.Tensor) for value in expected.values())
        if seed < 200 and any(isinstance(value, torch.Tensor) for value in expected.values()):
            path = tmp_path / f"{seed}.safetensors"
            lost = [name for name, value in expected.items() if not isinstance(value, torch.Tensor) and within(value)]
            if lost:
                refusal(lambda path=path, state=state: save(path, state, only_tensors=True), "object", "would be lost", lost[0])
                lossy += 1
                continue
            save(path, state, only_tensors=True)
            names = {name for name, value in expected.items() if isinstance(value, torch.Tensor)}
            assert {tensor.name for tensor in reshard.open_checkpoint(path).tensors} == names
    assert refused > 30 and tensors > 1_000 and lossy > 5


def within(value: Any) -> bool:
    """Returns True if nested containers have a tensor."""
    if isinstance(value, collections.abc.Mapping):
        return any(map(within, value.values()))
    return isinstance(value, torch.Tensor) or isinstance(value, (list, tuple)) and any(map(within, value))


def test_states_that_hold_themselves_are_refused() -> None:
    held: dict[str, Any] = {}
    held["again"] = held
    lists: list[Any] = []
    lists.append(lists)
    doubled: list[Any] = [torch.zeros(1)]
    for _ in range(60):
        doubled = [doubled, doubled]
    for state in (held, {"a": lists}, {"a": doubled}):
        with pytest.raises(ReshardError, match="contain") as error:
            list(entries(state))
        assert error.value.kind == "names"
    shared: dict[str, Any] = {}
    for _ in range(60):
        shared = {"a": shared, "b": shared}
    for call in (lambda: list(entries(shared)), lambda: redistribute_state(shared, [])):
        refusal(call, "names", "contain each other")
    without: list[Any] = [1]
    for _ in range(60):
        without = [without, without]
    assert [entry.name for entry in entries({"a": without})] == ["a"]
    with pytest.raises(TypeError, match="not list"):
        list(entries([torch.zeros(1)]))  # type: ignore[arg-type]


def state_of(make: Callable[[str, torch.Tensor], Any]) -> dict[str, Any]:
    """Returns a nested state with tensors of fixed names."""
    return {
        "model": {"w": make("model.w", whole_of((8, 4), seed=1)), "b": make("model.b", whole_of((8,), seed=2))},
        "layers": [{"w": make("layers.0.w", whole_of((4, 4), seed=3))}, [make("layers.1.0", whole_of((16,), seed=4))]],
    }


NAMES = ["model.w", "model.b", "layers.0.w", "layers.1.0"]


def flat(state: dict[str, Any]) -> dict[str, Any]:
    return dict(flatten_state_dict(state)[0])


def test_plain_tensors_are_saved_and_filled(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "w.safetensors"
    save(path, state_of(lambda _, whole: whole))
    assert {tensor.name for tensor in reshard.open_checkpoint(path).tensors} == set(NAMES)
    state = state_of(lambda _, whole: torch.nn.Parameter(torch.zeros_like(whole)))
    tensors = flat(state)
    load(path, state)
    for name, whole in flat(state_of(lambda _, whole: whole)).items():
        assert flat(state)[name] is tensors[name] and torch.equal(tensors[name], whole)
    # Any order and any nesting that gives the same names is the same state.
    other = {"model.w": torch.zeros(8, 4), "layers": {"1": {0: torch.zeros(16)}}}
    load(path, other)
    assert torch.equal(other["model.w"], tensors["model.w"]) and torch.equal(other["layers"]["1"][0], tensors["layers.1.0"])  # type: ignore[index, call-overload]


def refusal(call: Callable[[], Any], kind: str, *texts: str) -> None:
    with pytest.raises(ReshardError) as error:
        call()
    assert error.value.kind == kind, error.value
    assert all(text in str(error.value) for text in texts), error.value


def test_all_that_is_missing_is_listed_and_nothing_is_filled(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "w.safetensors"
    save(path, state_of(lambda _, whole: whole))

    def unchanged(state: dict[str, Any], kind: str, *texts: str, **options: Any) -> None:
        before = {name: value.clone() for name, value in flat(state).items() if isinstance(value, torch.Tensor) and value.device.type == "cpu"}
        refusal(lambda: load(path, state, **options), kind, *texts)
        assert all(torch.equal(flat(state)[name], value) for name, value in before.items())

    zeros = state_of(lambda _, whole: torch.zeros_like(whole))
    unchanged(zeros | {"more": {str(i): torch.zeros(1) for i in range(13)}}, "no_such_tensor", "13 tensors: more.0, more.1", "more.9 and 3 more")
    unchanged(zeros | {"one": [torch.zeros(1)]}, "no_such_tensor", "has no tensor one.0")
    unchanged(zeros | {"model": {"w": torch.zeros(4, 8)}}, "shape", "model.w is [4, 8], but [8, 4]")
    unchanged(zeros | {"model": {"w": torch.zeros(8, 4, dtype=torch.float64)}}, "dtype", "model.w is torch.float64, but f32")
    unchanged(zeros | {"model": {"w": torch.zeros(8, 4, device="meta")}}, "device", "model.w cannot be filled", "meta")
    unchanged(zeros | {"model": {"w": torch.zeros(8, 1).expand(8, 4)}}, "strides", "model.w cannot be filled")
    unchanged(zeros | {"step": 3, "betas": (torch.zeros(1), 2)}, "no_such_object", "2 objects: step, betas", "only_tensors=True")
    unchanged(zeros | {"step": 3, "betas": (torch.zeros(1), 2)}, "object", "would be lost: betas;", only_tensors=True)
    unchanged(zeros | {"model": {"w": torch.zeros(16).as_strided((8, 4), (1, 1))}}, "strides", "model.w cannot be filled", "share memory")
    unchanged(zeros | {"model": {"w": torch.zeros(64).as_strided((8, 4), (3, 5))}}, "strides", "model.w cannot be filled", "share memory")
    unchanged({"step": 3}, "no_tensor", "no tensor to fill", only_tensors=True)
    unchanged({"model": {}}, "no_tensor", "no tensor to fill")
    unchanged({}, "no_tensor", "no tensor to fill")
    freed = torch.zeros(8, 4)
    freed.untyped_storage().resize_(0)
    refusal(lambda: load(path, {"model": {"w": freed}}), "storage", "model.w cannot be filled: its memory was freed")
    load(path, zeros | {"step": 3}, only_tensors=True)
    # Strides without an overlap, though no dim steps over the other.
    apart = torch.zeros(64).as_strided((8, 4), (4, 7))
    load(path, zeros | {"model": {"w": apart}})
    assert torch.equal(apart, whole_of((8, 4), seed=1))


def test_what_overlaps_is_found() -> None:
    """A strided tensor overlaps exactly if two elements share a location."""
    draw, found = random.Random(1), 0
    for _ in range(2_000):
        shape = [draw.randrange(4) for _ in range(draw.randrange(4))]
        strides = [draw.randrange(7) for _ in shape]
        places = [sum(i * step for i, step in zip(index, strides, strict=True)) for index in itertools.product(*map(range, shape))]
        expected = len(set(places)) < len(places)
        assert overlaps(torch.empty(64).as_strided(shape, strides)) == expected, (shape, strides)
        found += expected
    assert 100 < found < 1_900


class Row(NamedTuple):
    w: torch.Tensor


@dataclasses.dataclass
class Pair:
    w: torch.Tensor


def test_tensors_within_other_collections_are_not_lost(tmp_path: pathlib.Path) -> None:
    path, one = tmp_path / "w.safetensors", torch.ones(2)
    array = np.empty(1, object)
    array[0] = one
    deep: Any = (one,)
    for _ in range(5_000):
        deep = (deep, 1)
    held: list[Any] = [1]
    held.append((held, one))
    for value in (
        (one,), {one}, frozenset([one]), collections.deque([one]), collections.UserList([one]), [(one,)], ({"a": one},), ([one],), Row(one), Pair(one),
        (torch.nn.Linear(1, 1),), torch.nn.Linear(1, 1), types.SimpleNamespace(w=one), array, deep, (held,), (types.MappingProxyType({"a": (one,)}),),
    ):  # fmt: skip
        state = {"w": torch.ones(1), "other": value}
        refusal(lambda state=state: save(path, state, only_tensors=True), "object", "would be lost: other;")
    assert not path.exists()
    doubled: Any = (1,)
    for _ in range(60):
        doubled = (doubled, doubled)
    fine = {"t": (1, "x", None), "r": range(2**40), "d": doubled, "b": b"abc", "l": list(range(3 << 20)), "n": np.zeros(3), "c": Pair, "f": {1, 2}}
    save(path, {"w": one, **fine}, only_tensors=True)
    load(path, {"w": one, **fine}, only_tensors=True)


def test_what_is_no_tensor_is_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "w.safetensors"
    state = {"model": {"w": torch.ones(2)}, "optim": {"step": 3, "betas": (0.9, 0.99), "ids": [1, 2]}, "none": None}
    refusal(lambda: save(path, state), "object", "optim.step, optim.betas, optim.ids, none", "only_tensors=True")
    assert not path.exists()
    save(path, state, only_tensors=True)
    assert reshard.open_checkpoint(path).names == ["model.w"]
    for empty in ({}, {"model": {}}):
        refusal(lambda empty=empty: save(tmp_path / "e.safetensors", empty), "no_tensor")
    refusal(lambda: save(tmp_path / "e.safetensors", {"step": 3}, only_tensors=True), "no_tensor")
    refusal(lambda: save(tmp_path / "e.safetensors", {"m": torch.ones(2, device="meta")}), "device", "m cannot be read")
    refusal(lambda: save(tmp_path / "e.safetensors", {"a": {"b": torch.ones(2)}, "a.b": torch.ones(2)}), "names", "a.b")
    assert not (tmp_path / "e.safetensors").exists()


class OneBuffer(dict[str, Any]):
    """A state that makes every tensor on access in the same memory."""

    buffer = torch.zeros(4)

    def items(self) -> Any:
        for name, value in super().items():
            self.buffer.fill_(value)
            yield name, self.buffer


def test_tensors_that_are_made_on_demand(tmp_path: pathlib.Path) -> None:
    for write in (save, reshard.save):
        path = tmp_path / f"{write.__module__}.safetensors"
        write(path, OneBuffer(a=1.0, b=2.0, c=3.0))
        read = reshard.open_checkpoint(path)
        assert [read.read(name)[0] for name in "abc"] == [1, 2, 3]


def on_ranks(rank: int, folder: str) -> None:
    mesh = device_mesh((2, 4), ("dp", "tp"))
    path = pathlib.Path(folder) / "nested.safetensors"

    def split(_: str, whole: torch.Tensor) -> DTensor:
        return dtensor(whole, [Shard(0), R], mesh)

    save(path, state_of(split))
    assert {tensor.name for tensor in reshard.open_checkpoint(path).tensors} == set(NAMES)
    wholes = flat(state_of(lambda _, whole: whole))
    state = state_of(lambda _, whole: dtensor(torch.zeros_like(whole), [R, Shard(0)], mesh))
    load(path, state)
    for name, whole in wholes.items():
        assert torch.equal(flat(state)[name].to_local(), shard(whole, [R, Shard(0)], mesh)), name

    nested = state_of(split) | {"step": 7, "tuple": (1, 2)}
    called: list[str] = []
    made = redistribute_state(nested, lambda name, _: called.append(name) or [R, Shard(0)])
    assert called == NAMES and made["step"] == 7 and made["tuple"] is nested["tuple"]
    assert isinstance(made["layers"], list) and isinstance(made["layers"][1], list) and list(made["model"]) == ["w", "b"]
    for name, whole in wholes.items():
        assert torch.equal(flat(made)[name].to_local(), shard(whole, [R, Shard(0)], mesh)), name
        assert tuple(flat(nested)[name].placements) == (Shard(0), R)
    made = redistribute_state(nested, [R, R])
    assert all(tuple(flat(made)[name].placements) == (R, R) for name in NAMES)

    # PyTorch reads nested states through the reader, and writes the states that the library reads.
    state = state_of(lambda _, whole: dtensor(torch.zeros_like(whole), [R, Shard(0)], mesh))
    dcp.load(state, storage_reader=Reader(path))
    assert torch.equal(flat(state)["layers.1.0"].to_local(), shard(wholes["layers.1.0"], [R, Shard(0)], mesh))
    dcp.save(state_of(split) | {"step": 7}, checkpoint_id=f"{folder}/dcp")
    state = state_of(lambda _, whole: dtensor(torch.zeros_like(whole), [R, Shard(0)], mesh))
    load(f"{folder}/dcp", state)
    for name, whole in wholes.items():
        assert torch.equal(flat(state)[name].to_local(), shard(whole, [R, Shard(0)], mesh)), name
    refusal(lambda: load(f"{folder}/dcp", {"step": torch.zeros(())}), "object", "step")

    # All ranks raise the same, and none of them waits.
    partial = {"model": {"w": dtensor(whole_of((8, 4)), [Partial(), R], mesh)}}
    refusal(lambda: load(path, partial), "partial", "model.w has partial values")
    refusal(lambda: save(path, state_of(split)), "output", "already exists")
    refusal(lambda: save(f"{folder}/no.txt", state_of(split)), "usage")
    refusal(lambda: save(f"{folder}/x.safetensors", state_of(split) | {"step": 7}), "object", "step")
    freed = dtensor(whole_of((8, 4)), [Shard(0), R], mesh)
    freed._local_tensor.untyped_storage().resize_(0)
    refusal(lambda: save(f"{folder}/x.safetensors", {"a": {"w": freed}, "b": split("", whole_of((8,)))}), "storage", "a.w cannot be read")
    refusal(lambda: redistribute_state({"a": {"w": freed}}, [R, R]), "storage", "a.w: its shard on this rank")
    for call in (
        lambda: reshard.save(f"{folder}/x.safetensors", {"w": split("", whole_of((8, 4)))}),
        lambda: reshard.Sharding("x=2", (8, 4), "R").shard_all(split("", whole_of((8, 4)))),
    ):
        refusal(call, "subclass", "DTensor", "reshard.torch.save")
    assert not pathlib.Path(f"{folder}/x.safetensors").exists()
    runner = Runner(reshard.Program("mesh dp=2,tp=4\nx: f32[8,4] S(0),R\ny: S(0),R = relu(x)\n"))
    refusal(lambda: runner({"x": freed}), "storage", "x cannot be read: its memory was freed")
    refusal(lambda: runner({"x": torch.zeros(4, 4, device="meta")}), "device", "x cannot be read")
    assert torch.equal(runner({"x": torch.ones(4, 4)})["y"], torch.ones(4, 4))
    dist.barrier()


def test_nested_states_on_ranks(eight: Ranks, tmp_path: pathlib.Path) -> None:
    eight.run(on_ranks, str(tmp_path))
