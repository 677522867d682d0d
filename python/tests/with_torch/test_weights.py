"""Weights of a trainer arrive in the tensors of a server: every element, in place, or none."""

import functools
import json
import os
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from definition import R, dtensor, shard, whole_of
from ranks import Ranks
from reshard import EngineError, ReshardError
from reshard.torch import WeightSync

LAYERS = 2
RULES = """
model.layers.*.qkv_proj.weight = layers.*.q_proj.weight | layers.*.k_proj.weight | layers.*.v_proj.weight
model.layers.*.gate_up.weight = layers.*.gate.weight | layers.*.up.weight
model.layers.*.experts.w2 = stack(layers.*.experts.#.down)
model.layers.*.norm.weight = layers.*.norm.weight
model.layers.*.router.bias = layers.*.router.bias
model.head.weight = pad(embed.weight, 32)
model.embed.weight = embed.weight
model.rows = rearrange(transposed, 'o i -> i o')
"""
CAST = {"*.router.bias": None, "*": "bf16"}
PLACEMENTS = {
    "*.qkv_proj.weight": "S(0),S(0) | S(0),R | S(0),R",
    "*.gate_up.weight": "S(0),S(0)",
    "*.w2": "S(0),S(1)",
    "model.head.weight": "S(0),S(0)",
    "model.embed.weight": "S(0),S(0)",
    "*": "R,R",
}
TARGET_MESH = "kv=2,rep=2@[4,5,6,7]"


def wholes(version: int) -> dict[str, torch.Tensor]:
    """The weights of a version, with values that bf16 has."""
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (30, 8), "transposed": (6, 4)}
    for layer in range(LAYERS):
        shapes |= {f"layers.{layer}.{name}.weight": (16, 8) for name in ("q_proj", "gate", "up")}
        shapes |= {f"layers.{layer}.{name}.weight": (4, 8) for name in ("k_proj", "v_proj")}
        shapes |= {f"layers.{layer}.experts.{expert}.down": (8, 6) for expert in range(4)}
        shapes |= {f"layers.{layer}.norm.weight": (8,), f"layers.{layer}.router.bias": (4,)}
    made = {name: whole_of(shape, seed=100 * version + at) % 251 for at, (name, shape) in enumerate(shapes.items())}
    for name in made:
        if name.endswith("bias"):
            made[name] = made[name] + 1 / 3 + version
    return made


@functools.lru_cache(maxsize=None)
def trainer() -> DeviceMesh:
    return DeviceMesh("cpu", torch.arange(4).view(2, 2), mesh_dim_names=("dp", "tp"))


def source(rank: int, version: int) -> dict[str, Any] | None:
    """The nested state of a trainer: DTensors on its mesh, norms on a submesh, and an entry that is not a tensor."""
    mesh = trainer()
    if rank >= 4:
        return None
    layers: dict[str, Any] = {}
    state: dict[str, Any] = {"layers": layers, "step": version, "embed": {}}
    for name, whole in wholes(version).items():
        *path, last = name.split(".")
        at: Any = state
        for key in path:
            at = at.setdefault(key, {})
        if "norm" in name:
            at[last] = dtensor(whole, [Shard(0)], mesh["dp"])
        elif "bias" in name:
            at[last] = whole.clone()
        elif "transposed" in name:
            at[last] = dtensor(whole, [Shard(1), R], mesh)
        else:
            at[last] = dtensor(whole, [Shard(0), Shard(0)], mesh)
    return state


def chunk(whole: torch.Tensor, dim: int, count: int, at: int) -> torch.Tensor:
    return whole.chunk(count, dim)[at]


def expected(rank: int, version: int) -> dict[str, torch.Tensor]:
    """The tensors of a server's rank, sliced by hand."""
    all_of = wholes(version)
    kv, rep = divmod(rank - 4, 2)
    made = {}
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        q, k, v = (all_of[f"{at}{name}_proj.weight"] for name in "qkv")
        made[f"model.{at}qkv_proj.weight"] = torch.cat([chunk(chunk(q, 0, 2, kv), 0, 2, rep), chunk(k, 0, 2, kv), chunk(v, 0, 2, kv)])
        both = [chunk(chunk(all_of[f"{at}{name}.weight"], 0, 2, kv), 0, 2, rep) for name in ("gate", "up")]
        made[f"model.{at}gate_up.weight"] = torch.cat(both)
        experts = torch.stack([all_of[f"{at}experts.{expert}.down"] for expert in range(4)])
        made[f"model.{at}experts.w2"] = chunk(chunk(experts, 0, 2, kv), 1, 2, rep)
        made[f"model.{at}norm.weight"] = all_of[f"{at}norm.weight"]
        made[f"model.{at}router.bias"] = all_of[f"{at}router.bias"]
    padded = torch.cat([all_of["embed.weight"], torch.zeros(2, 8)])
    made["model.head.weight"] = chunk(chunk(padded, 0, 2, kv), 0, 2, rep)
    # 30 rows over two ranks, then 15 over two: the split of `torch.chunk`.
    made["model.embed.weight"] = chunk(chunk(all_of["embed.weight"], 0, 2, kv), 0, 2, rep)
    made["model.rows"] = all_of["transposed"].T
    return {name: one if name.endswith("bias") else one.bfloat16() for name, one in made.items()}


def target(rank: int) -> dict[str, torch.Tensor] | None:
    return {name: torch.full_like(one.contiguous(), 7) for name, one in expected(rank, 0).items()} if rank >= 4 else None


def synced(rank: int, **options: Any) -> WeightSync:
    options = {"mapping": RULES, "cast": CAST, "placements": PLACEMENTS, "target_mesh": TARGET_MESH} | options
    options = {"source": source(rank, 1), "target": target(rank)} | options
    return WeightSync(**options)


def check(rank: int, held: dict[str, torch.Tensor], version: int) -> None:
    for name, one in expected(rank, version).items():
        assert torch.equal(held[name], one), (name, version, held[name], one)


def update(rank: int, state: dict[str, Any] | None, version: int) -> None:
    """Writes the weights of a version into the state of a trainer, in place."""
    for name, one in _leaves(source(rank, version) or {}):
        found: Any = state
        for key in name:
            found = found[key]
        if isinstance(one, torch.Tensor):
            (found._local_tensor if hasattr(found, "_local_tensor") else found).copy_(getattr(one, "_local_tensor", one))


def _leaves(state: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if isinstance(state, dict):
        return [leaf for key, value in state.items() for leaf in _leaves(value, (*path, key))]
    return [(path, state)]


def three_updates(rank: int, commit: str, max_bytes: int, checksum: bool) -> tuple[int, list[dict[str, int]]]:
    state, held = source(rank, 1), target(rank)
    spare = target(rank) if commit == "swap" else None
    sync = synced(rank, source=state, target=held, spare=spare, commit=commit, max_bytes=max_bytes, checksum=checksum)
    staging = [one.data_ptr() for one in (*sync._out, *sync._into)]
    for version in (1, 2, 3):
        update(rank, state, version)
        if version == 2:
            handle = sync(async_op=True)
            assert handle.wait() == version  # type: ignore[union-attr]
        else:
            assert sync() == version == sync.epoch
        if held is not None:
            check(rank, sync.target, version)
            places = {id(one) for one in held.values()} | {id(one) for one in (spare or {}).values()}
            assert {id(one) for one in sync.target.values()} <= places, "written in place"
    assert staging == [one.data_ptr() for one in (*sync._out, *sync._into)]
    assert "are written once" in str(sync.plan()) and f"{len(sync._buckets)} exchange" in str(sync.plan())
    return len(sync._buckets), sync.plan().transfer.rank_bytes()


@pytest.mark.parametrize("commit", ["all", "swap", "bucket"])
@pytest.mark.parametrize("max_bytes", [1, 700, 256 << 20])
def test_every_element_arrives_in_place(eight: Ranks, commit: str, max_bytes: int) -> None:
    answers = eight.run(three_updates, commit, max_bytes, max_bytes == 700)
    buckets, rows = answers[0]
    assert all(answer == answers[0] for answer in answers)
    assert buckets == {1: len(expected(4, 0)), 256 << 20: 1}.get(max_bytes, buckets) and buckets > 0
    for row in rows:
        assert row["received"] == row["lacking"] and (row["rank"] < 4 or row["received"] > 0)
        assert row["sent"] <= 1.02 * row["share"] + 64, row


REFUSALS: dict[str, tuple[int, dict[str, Any], str]] = {
    "source_lacks": (0, {"source": "without"}, "source_lacks"),
    "sides_differ": (3, {"source": "f64"}, "sides_differ"),
    "unwritten": (0, {"mapping": RULES.replace("pad(embed.weight, 32)", "embed.weight")}, "local_shape"),
    "dtype_mismatch": (9, {"cast": {}}, "dtype_mismatch"),
    "target_lacks": (9, {"mapping": RULES + "model.extra = embed.weight\n"}, "target_lacks"),
    "unused_rule": (9, {"mapping": RULES + "model.extra = nothing.weight\n"}, "unused_rule"),
    "cast_order": (5, {"cast": {"*": "bf16", "*.router.bias": None}}, "dtype_mismatch"),
    "hash_differs": (5, {"ranks_per_node": 4}, "hash_differs"),
    "max_bytes": (6, {"max_bytes": 100}, "hash_differs"),
    "checksum": (1, {"checksum": True}, "hash_differs"),
    "no_number": (1, {"max_bytes": "1GB"}, "max_bytes"),
    "shared_spare": (5, {"commit": "swap", "spare": "target"}, "spare"),
    "outside": (5, {"target_mesh": "kv=2,rep=2@[5,6,7,8]"}, "target_mesh"),
    "commit": (2, {"commit": "none"}, "commit"),
    "strides": (6, {"target": "strided"}, "strides"),
    "target_mesh": (6, {"target_mesh": "a=4@[0,1,2,3]"}, "target_mesh"),
}


def refused_everywhere(rank: int, case: str) -> str:
    who, options, _ = REFUSALS[case]
    options = dict(options) if who in (rank, 9) or case in ("unwritten",) else {}
    if options.get("source") == "without":
        state = source(rank, 1)
        del state["layers"]["1"]["norm"]  # type: ignore[index]
        options["source"] = state
    if options.get("source") == "f64":
        state = source(rank, 1)
        state["layers"]["0"]["q_proj"]["weight"] = state["layers"]["0"]["q_proj"]["weight"].double()  # type: ignore[index]
        options["source"] = state
    if options.get("spare") == "target":
        options["spare"] = options["target"] = target(rank)
    if options.get("target") == "strided":
        held = target(rank)
        held["model.rows"] = held["model.rows"].T.contiguous().T  # type: ignore[index]
        options["target"] = held
    with pytest.raises(ReshardError) as error:
        synced(rank, **options)
    return str(error.value.kind)


@pytest.mark.parametrize("case", REFUSALS)
def test_what_one_rank_gives_wrong_is_refused_on_all(eight: Ranks, case: str) -> None:
    kinds = eight.run(refused_everywhere, case)
    assert set(kinds) <= set(REFUSALS[case][2].split("|")), kinds


def failing(rank: int, commit: str) -> None:
    """A source that changes its layout fails on its own rank; the others name it, and the next call repairs it."""
    state, held = source(rank, 1), target(rank)
    spare = target(rank) if commit == "swap" else None
    sync = synced(rank, source=state, target=held, spare=spare, commit=commit)
    sync()
    kept = {name: one.clone() for name, one in sync.target.items()}
    if rank == 1:
        bias = sync._source["layers.0.router.bias"]
        sync._source["layers.0.router.bias"] = bias.double()
    with pytest.raises(ReshardError if rank == 1 else EngineError, match="router.bias is now torch.float64" if rank == 1 else "rank 1 has failed: .*router.bias"):
        sync()
    assert commit == "bucket" or all(torch.equal(one, kept[name]) for name, one in sync.target.items())
    assert sync.epoch == (None if commit == "bucket" else 1)
    if rank == 1:
        sync._source["layers.0.router.bias"] = bias
    update(rank, state, 2)
    assert sync() == 2 == sync.epoch
    if rank >= 4:
        check(rank, sync.target, 2)


@pytest.mark.parametrize("commit", ["all", "swap", "bucket"])
def test_a_rank_that_fails_leaves_all_servers_with_the_old_weights(eight: Ranks, commit: str) -> None:
    eight.run(failing, commit)


def dying(rank: int, commit: str, phase: str) -> tuple[Any, ...]:
    state, held = source(rank, 1), target(rank)
    spare = target(rank) if commit == "swap" else None
    sync = synced(rank, source=state, target=held, spare=spare, commit=commit, max_bytes=700)
    sync()
    before = {name: one.clone() for name, one in sync.target.items()}
    update(rank, state, 2)
    if rank == 2:
        at = {"first": 0, "middle": len(sync._buckets) // 2, "agreement": len(sync._buckets)}[phase]
        exchange, calls = sync._link.exchange, [0]

        def counting(*arguments: Any) -> Any:
            if calls[0] == at:
                os._exit(3)
            calls[0] += 1
            return exchange(*arguments)

        sync._link.exchange = counting  # type: ignore[method-assign]
        if phase == "agreement":
            sync._link.least = lambda numbers: os._exit(3)  # type: ignore[method-assign]
    start = time.monotonic()
    with pytest.raises(EngineError) as error:
        sync()
    same = all(torch.equal(one, before[name]) for name, one in sync.target.items())
    return same, getattr(error.value, "rank", None), str(error.value), time.monotonic() - start, sync.epoch


@pytest.mark.parametrize("commit", ["all", "swap"])
@pytest.mark.parametrize("phase", ["first", "middle", "agreement"])
def test_a_trainer_that_dies_leaves_every_server_whole(commit: str, phase: str) -> None:
    ranks = Ranks(8, timeout_seconds=10)
    try:
        with pytest.raises(AssertionError, match="ranks \\[2\\] failed"):
            ranks.run(dying, commit, phase, seconds=120)
        for rank in set(range(8)) - {2}:
            same, named, text, _, epoch = ranks.answers[rank][1]
            assert same and named == 2 and epoch == 1 and "epoch 1 stays" in text, (rank, text)
    finally:
        ranks.close()


def executed_by_an_independent_reader(rank: int) -> None:
    """The exported parts, executed element by element by a reader of the JSON alone."""
    state, held = source(rank, 1), target(rank)
    sync = synced(rank, source=state, target=held)
    sync()
    part = json.loads(sync.plan().to_json())
    parts: list[Any] = [None] * 8
    dist.all_gather_object(parts, (part, {name: one.clone() for name, one in sync._held.items()} if rank < 4 else None))
    if held is None:
        return
    made = {name: torch.full_like(one, 9) for name, one in held.items()}
    for box in part["receives"]:
        values = parts[box["from"]][1][box["source"]]
        flat = getattr(values, "_local_tensor", values).contiguous().view(-1)
        places = [(box["source_offset"], box["target_offset"])]
        for extent, of, to in box["loops"]:
            places = [(a + at * of, b + at * to) for a, b in places for at in range(extent)]
        for a, b in places:
            made[box["target"]].view(-1)[b] = flat[a].to(made[box["target"]].dtype)
    for fill in part["fills"]:
        made[fill["target"]].view(-1)[fill["offset"] : fill["offset"] + fill["count"]] = 0
    check(rank, made, 1)


def test_exported_parts_are_executed_by_another_reader(eight: Ranks) -> None:
    eight.run(executed_by_an_independent_reader)


def by_a_store(rank: int) -> None:
    """Two worlds share a store: here ranks of one world that use no group."""
    store = dist.distributed_c10d._get_default_store()
    for _ in range(2):
        sync = synced(rank, store=(dist.PrefixStore("meeting", store), rank, 8), max_bytes=700, checksum=True)
        assert sync() == 1
        if rank >= 4:
            check(rank, sync.target, 1)


def test_two_worlds_share_a_store(eight: Ranks) -> None:
    eight.run(by_a_store)


def in_larger_memory(rank: int) -> None:
    """Sources and targets within larger tensors: nothing outside of them is read or written."""
    whole = whole_of((5, 3), seed=5)
    state, held, around = None, None, torch.full((9, 4), -1.0)
    if rank == 0:
        wide = torch.full((9, 3), 8.0)
        wide[2:7] = whole
        state = {"w": wide[2:7], "t": torch.stack([whole[:3], whole[:3] + 1], 2)[:, :, 1].T}
    if rank == 1:
        held = {"w": around.view(-1)[5:23].view(6, 3), "t": around.view(-1)[24:33].view(3, 3)}
    sync = WeightSync(source=state, target=held, target_mesh="a=1@1", placements={"*": "R"}, mapping="w = pad(w, 6)\nt = t")
    for _ in range(2):
        around.fill_(-1)
        sync()
        if held is not None:
            assert torch.equal(held["w"], torch.cat([whole, torch.zeros(1, 3)])) and torch.equal(held["t"], (whole[:3] + 1).T)
            outside = [*range(5), 23, *range(33, 36)]
            assert all(around.view(-1)[at] == -1 for at in outside), around


def test_memory_around_the_tensors_is_not_touched(two: Ranks) -> None:
    two.run(in_larger_memory)


def replaced_target(rank: int, how: str) -> None:
    """A tensor of the target that is replaced between calls: all ranks keep the old weights."""
    state = {"a": torch.full((4,), 1.0), "w": torch.full((2, 3), 1.0)} if rank == 0 else None
    held = {"a": torch.zeros(4), "w": torch.zeros(2, 3)} if rank else None
    sync = WeightSync(source=state, target=held, target_mesh="a=1@1", placements={"*": "R"})
    assert sync() == 1
    if state is not None:
        state["a"].fill_(2), state["w"].fill_(2)
    else:
        assert held is not None
        held["w"].data = {"smaller": torch.ones(1, 3), "dtype": torch.ones(2, 3).double(), "strides": torch.ones(3, 2).T}[how]
    with pytest.raises(ReshardError if rank else EngineError, match="w is now"):
        sync()
    assert sync.epoch == 1 and (held is None or bool((held["a"] == 1).all() and (held["w"] == 1).all()))


@pytest.mark.parametrize("how", ["smaller", "dtype", "strides"])
def test_a_replaced_target_fails_before_anything_is_written(two: Ranks, how: str) -> None:
    two.run(replaced_target, how)


def in_the_same_memory(rank: int) -> None:
    """Ranks that are on both sides, whose target is the memory of their source: rows change ranks, and columns come."""
    mesh = DeviceMesh("cpu", torch.arange(2))
    whole = whole_of((4, 4), seed=9)
    memory = shard(whole, [Shard(0)], mesh).reshape(-1).clone()
    given = DTensor.from_local(memory.view(2, 4), mesh, [Shard(0)], run_check=False)
    into = DTensor.from_local(memory.view(4, 2), mesh, [Shard(1)], run_check=False)
    assert WeightSync(source={"w": given}, target={"w": into})() == 1
    assert torch.equal(into.to_local(), shard(whole, [Shard(1)], mesh))
    with pytest.raises(ReshardError, match="share memory, of source and of target"):
        WeightSync(source={"w": given}, target={"w": into}, commit="bucket")


def test_a_target_in_the_memory_of_the_source(two: Ranks) -> None:
    two.run(in_the_same_memory)


def of_dtensors(rank: int) -> None:
    """Targets that are DTensors, with a second set; shards of another shape than their placements are errors."""
    mesh = DeviceMesh("cpu", torch.arange(2))
    whole = whole_of((4, 6), seed=2)
    given = {"w": dtensor(whole, [Shard(0)], mesh)}
    first, second = ({"w": dtensor(torch.zeros(4, 6), [Shard(1)], mesh)} for _ in range(2))
    sync = WeightSync(source=given, target=first, spare=second, commit="swap")
    for _ in range(3):
        sync()
        assert torch.equal(sync.target["w"].to_local(), shard(whole, [Shard(1)], mesh))  # type: ignore[attr-defined]
    with pytest.raises(ReshardError, match="spare has no w"):
        WeightSync(source=given, target=first, spare={"w": dtensor(whole, [Shard(0)], mesh)}, commit="swap")
    wrong = DTensor.from_local(torch.zeros(1, 6), mesh, [Shard(0)], run_check=False, shape=torch.Size((4, 6)), stride=(6, 1))
    for options in ({"source": given, "target": {"w": wrong}}, {"source": {"w": wrong}, "target": first}):
        with pytest.raises(ReshardError, match="its placements S\\(0\\) make"):
            WeightSync(**options)  # type: ignore[arg-type]


def test_targets_that_are_dtensors(two: Ranks) -> None:
    two.run(of_dtensors)


def of_shared_targets(rank: int) -> None:
    """Two names of one tensor have one source; others are errors on all ranks."""
    state = {"a": torch.ones(4), "b": torch.full((4,), 2.0)} if rank == 0 else None
    memory = torch.zeros(6)
    held = {"x": memory[:4], "y": memory[:4]} if rank else None
    options: dict[str, Any] = {"source": state, "target": held, "target_mesh": "a=1@1", "placements": {"*": "R"}}
    WeightSync(**options, mapping="x = a\ny = a\ndrop b")()
    assert rank == 0 or bool((memory[:4] == 1).all())
    with pytest.raises(ReshardError, match="x and y share memory"):
        WeightSync(**options, mapping="x = a\ny = b")
    options["target"] = {"x": memory[:4], "y": memory[2:]} if rank else None
    with pytest.raises(ReshardError, match="x and y share memory"):
        WeightSync(**options, mapping="x = a\ny = a\ndrop b")
    with pytest.raises(ReshardError, match="is not compared"):
        WeightSync(**options, mapping="x = a\ny = a\ndrop b == a")


def test_targets_that_share_memory(two: Ranks) -> None:
    two.run(of_shared_targets)


def within_a_group(rank: int) -> None:
    """Two of four ranks; the others are not in the group."""
    group = dist.new_group([1, 3])
    if rank not in (1, 3):
        with pytest.raises(ReshardError, match="is not in the group"):
            WeightSync(group=group)
        return
    held = {"w": torch.zeros(3)} if rank == 3 else None
    WeightSync(source={"w": torch.arange(3.0)} if rank == 1 else None, target=held, target_mesh="a=1@3", placements={"*": "R"}, group=group)()
    assert held is None or torch.equal(held["w"], torch.arange(3.0))


def test_a_group_of_some_ranks(four: Ranks) -> None:
    four.run(within_a_group)


def elastic(rank: int) -> None:
    """The same call sends a state from four ranks to three of them."""
    whole = whole_of((12, 6), seed=3)
    before = DeviceMesh("cpu", torch.arange(4))
    after = DeviceMesh("cpu", torch.tensor([3, 0, 1]))
    given = {"w": dtensor(whole, [Shard(0)], before)} if rank < 4 else None
    into = {"w": dtensor(torch.zeros_like(whole), [Shard(1)], after)} if rank in (0, 1, 3) else None
    WeightSync(source=given, target=into)()
    if into is not None:
        assert torch.equal(into["w"].to_local(), shard(whole, [Shard(1)], after))


def test_a_state_moves_to_other_ranks(eight: Ranks) -> None:
    eight.run(elastic)
