"""Entries that are not tensors: `load` and `Reader` replace them as PyTorch's distributed checkpoint does."""

import collections
import os
import pathlib
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.metadata import BytesStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard

import reshard
from definition import R, device_mesh, dtensor, whole_of
from ranks import Ranks
from reshard import ReshardError
from reshard.torch import Reader, load, redistribute_state


def refusal(call: Callable[[], Any], kind: str, *texts: str) -> str:
    with pytest.raises(ReshardError) as error:
        call()
    assert error.value.kind == kind, error.value
    assert all(text in str(error.value) for text in texts), error.value
    return str(error.value)


def saved_state(mesh: DeviceMesh) -> dict[str, Any]:
    """Returns the state of a training run after some steps."""
    return {
        "model": {"w": dtensor(whole_of((8, 4), seed=1), [Shard(0)], mesh), "b": dtensor(whole_of((6,), seed=2), [R], mesh)},
        "optim": {
            "state": {0: {"exp_avg": dtensor(whole_of((8, 4), seed=3), [Shard(1)], mesh), "step": torch.tensor(7.0)}},
            "groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0, 1], "foreach": None}],
        },
        "step": 7,
        "scheduler": collections.OrderedDict(last_epoch=3, milestones=[1, 2], base_lrs=[0.1, 0.2], name="cosine"),
        "rng": {f"rank_{rank}": {"python": random.Random(rank).getstate(), "torch": torch.Generator().get_state()} for rank in range(2)},
        "dataloader": [{"seen": 128, "order": [[2, 0], [1]]}, [{"worker": b"\x80state"}]],
        "pair": (torch.arange(3), {"note": "é"}),
        "none": None,
        "empty": {},
    }


def new_state(mesh: DeviceMesh) -> dict[str, Any]:
    """Returns the state of the same names before its first step."""
    return {
        "model": {"w": dtensor(torch.zeros(8, 4), [Shard(1)], mesh), "b": dtensor(torch.zeros(6), [Shard(0)], mesh)},
        "optim": {
            "state": {"0": {"exp_avg": dtensor(torch.zeros(8, 4), [R], mesh), "step": torch.tensor(0.0)}},
            "groups": [{"lr": 0.5, "betas": (0.0, 0.0), "params": [], "foreach": True}],
        },
        "step": 0,
        "scheduler": {"last_epoch": -1, "milestones": None, "base_lrs": (), "name": ""},
        "rng": {f"rank_{rank}": {"python": None, "torch": torch.zeros_like(torch.Generator().get_state())} for rank in range(2)},
        "dataloader": [{"seen": 0, "order": []}, [{"worker": b""}]],
        "pair": None,
        "none": 1,
        "empty": {},
    }


def plain(value: Any) -> Any:
    """Returns a nesting with the tensors of this rank as texts, so that nestings compare by `==`."""
    if isinstance(value, torch.Tensor):
        local = value.to_local() if hasattr(value, "to_local") else value
        return ("tensor", str(local.dtype), tuple(local.shape), local.reshape(-1).tolist())
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return type(value)(map(plain, value)) if isinstance(value, (list, tuple)) else value


def run(folder: str) -> None:
    """The code of a hostile pickle: makes a folder."""
    os.makedirs(folder, exist_ok=True)


class Hostile:
    """An object whose pickle runs code when it is loaded."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return run, (self.folder,)


def on_ranks(rank: int, folder: str) -> None:
    mesh = device_mesh((2,), ("dp",))
    path, saved = f"{folder}/dcp", saved_state(mesh)
    dcp.save(saved, checkpoint_id=path)

    # The same values as PyTorch's own loader gives, in the same dicts, lists and tensors.
    expected = new_state(mesh)
    dcp.load(expected, checkpoint_id=path)
    assert expected["step"] == 7 and expected["dataloader"] == saved["dataloader"] and expected["none"] is None
    state = new_state(mesh)
    containers = [state["optim"]["groups"], state["optim"]["groups"][0], state["scheduler"], state["dataloader"][1][0]]
    tensors = [value for value in flatten_state_dict(state)[0].values() if isinstance(value, torch.Tensor)]
    assert load(path, state) > 0
    assert plain(state) == plain(expected)
    now = [state["optim"]["groups"], state["optim"]["groups"][0], state["scheduler"], state["dataloader"][1][0]]
    assert all(one is other for one, other in zip(containers, now, strict=True))
    assert all(state_of is one for state_of, one in zip([v for v in flatten_state_dict(state)[0].values() if isinstance(v, torch.Tensor)], tensors, strict=True))
    # Keys that are not texts keep their type.
    integers = {"optim": {"state": {0: {"exp_avg": dtensor(torch.zeros(8, 4), [R], mesh)}}}, "rng": {"rank_1": collections.UserDict(python=0)}}
    load(path, integers)
    assert list(integers["optim"]["state"]) == [0] and integers["rng"]["rank_1"]["python"] == random.Random(1).getstate()
    # An object of one rank only.
    own = {"model": {"w": dtensor(torch.zeros(8, 4), [R], mesh)}, "rng": {f"rank_{rank}": {"python": None}}}
    load(path, own)
    assert own["rng"][f"rank_{rank}"]["python"] == random.Random(rank).getstate()

    # PyTorch's loader with the reader, and a state that PyTorch makes of the metadata.
    state = new_state(mesh)
    dcp.load(state, storage_reader=Reader(path))
    assert plain(state) == plain(expected)
    made: list[dict[str, Any]] = [{}, {}]
    for one, reader in zip(made, (Reader(path), dcp.FileSystemReader(path)), strict=True):
        _load_state_dict(one, storage_reader=reader, planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    assert plain(made[0]) == plain(made[1])
    assert made[0]["optim"]["groups"] == saved["optim"]["groups"] and torch.equal(made[0]["model"]["w"], whole_of((8, 4), seed=1))
    metadata, theirs = Reader(path).read_metadata(), dcp.FileSystemReader(path).read_metadata()
    assert metadata.planner_data == theirs.planner_data and set(metadata.state_dict_metadata) == set(theirs.state_dict_metadata)
    for name, entry in theirs.state_dict_metadata.items():
        assert isinstance(entry, BytesStorageMetadata) == isinstance(metadata.state_dict_metadata[name], BytesStorageMetadata)
    some: dict[str, Any] = {}
    _load_state_dict(some, storage_reader=Reader(path), planner=_EmptyStateDictLoadPlanner(keys={"scheduler", "step"}), no_dist=True)
    assert plain(some) == {"scheduler": dict(saved["scheduler"]), "step": 7}
    dist.barrier()

    # The same from a checkpoint of this package.
    files = f"{folder}/files"
    if rank == 0:
        reshard.open_checkpoint(path).reshard("dp=2", "R", files)
    dist.barrier()
    for call in (load, lambda files, state: dcp.load(state, storage_reader=Reader(files))):
        state = new_state(mesh)
        call(files, state)
        assert plain(state) == plain(expected)

    # Every problem is an error on both ranks, and nothing is changed.
    def unchanged(more: dict[str, Any], kind: str, *texts: str, path: str = path, **options: Any) -> str:
        state = new_state(mesh) | more
        before = plain(state)
        text = refusal(lambda: load(path, state, **options), kind, *texts)
        assert plain(state) == before
        dist.barrier()
        return text

    on_rank_1 = (lambda more: more) if rank == 1 else lambda _: {}
    missing = {"more": {str(number): number for number in range(13)}}
    unchanged(missing, "no_such_object", "has no 13 objects: more.0, more.1", "more.9 and 3 more; only_tensors=True")
    unchanged({"epoch": 1}, "no_such_object", "the checkpoint has no object epoch; only_tensors=True")
    unchanged({"epoch": 1, "ema": {"w": torch.zeros(2)}}, "no_such_tensor", "the checkpoint has no 2 names: epoch, ema.w; only_tensors=True")
    unchanged({"more": (1, 2)}, "no_such_object", "the checkpoint has no object more;")
    unchanged({"model": {"w": 3}}, "object", "objects in the state but tensors in the checkpoint: model.w")
    unchanged({"step": torch.zeros(())}, "object", "tensors in the state but objects in the checkpoint: step")
    unchanged({"scheduler": types.MappingProxyType({"name": "linear"})}, "object", "cannot be changed: scheduler.name")
    unchanged({"model": {"w": torch.zeros(4, 8), "b": 3}, "epoch": 1}, "no_such_object", "epoch", "model.b", "model.w is [4, 8]")
    unchanged(on_rank_1({"epoch": 1}), "no_such_object", "rank 1: the checkpoint has no object epoch")

    # Pickles that may run code are rejected before anything is changed, and run with `trusted`.
    ran = pathlib.Path(folder) / f"ran_{rank}"
    numpy_state = np.random.RandomState(1).get_state()
    numbered = {f"h{number:02}": Hostile(str(ran)) for number in range(12)}
    hostile = f"{folder}/hostile_{rank}"
    for each in range(2):
        # The pickles of both ranks are in separate checkpoints, as rank 0 writes all objects of a state.
        objects = saved | {"rng_numpy": numpy_state, "evil": {"x": [{"y": Hostile(f"{folder}/ran_{each}")}]}, **numbered}
        dcp.save(objects, checkpoint_id=f"{folder}/hostile_{each}")
    nested = {"evil": {"x": [{"y": 1}]}}
    text = unchanged(nested, "pickle", "evil.x.0.y (", "test_objects.run", "trusted=True", path=hostile)
    assert text.count("\n") == 0 and "Check the documentation" not in text
    unchanged({"rng_numpy": ()}, "pickle", "rng_numpy (Unsupported global: GLOBAL numpy", "trusted=True", path=hostile)
    unchanged({name: 0 for name in numbered}, "pickle", "h00 (", "h09 (", "and 2 more; trusted=True", path=hostile)
    unchanged(on_rank_1(nested), "pickle", "rank 1: ", "evil.x.0.y", path=hostile)
    unchanged(missing | nested, "no_such_object", "more.0", path=hostile, trusted=True)
    assert not ran.exists()
    with torch.serialization.safe_globals([run]):
        load(hostile, state := new_state(mesh) | {"evil": {"x": [{"y": 1}]}})
    assert ran.exists() and state["evil"]["x"][0]["y"] is None and state["step"] == 7
    ran.rmdir()
    state = new_state(mesh) | {"rng_numpy": (), "evil": {"x": [{"y": 1}]}}
    load(hostile, state, trusted=True)
    assert ran.exists() and state["evil"] == {"x": [{"y": None}]} and (state["rng_numpy"][1] == numpy_state[1]).all()
    assert plain({key: state[key] for key in expected}) == plain(expected)

    # `only_tensors` fills the same tensors, and leaves objects as they are.
    state = new_state(mesh)
    load(path, state, only_tensors=True)
    before = flatten_state_dict(new_state(mesh))[0]
    for name, value in flatten_state_dict(state)[0].items():
        wanted = flatten_state_dict(expected)[0] if isinstance(value, torch.Tensor) else before
        assert plain(value) == plain(wanted[name]), name
    moved = redistribute_state(saved, [R])
    assert moved["scheduler"] is not saved["scheduler"] and list(moved["scheduler"].items()) == list(saved["scheduler"].items())
    assert moved["pair"] is saved["pair"] and moved["dataloader"] == saved["dataloader"] and moved["dataloader"][0] is not saved["dataloader"][0]
    dist.barrier()


def test_objects_on_ranks(two: Ranks, tmp_path: pathlib.Path) -> None:
    two.run(on_ranks, str(tmp_path), seconds=120)


def test_one_process(tmp_path: pathlib.Path) -> None:
    """Objects alone, archives that are damaged, and objects that have no bytes."""
    path = tmp_path / "dcp"
    dcp.save({"w": torch.ones(2), "step": 7, "text": "a rare text"}, checkpoint_id=path, no_dist=True)
    alone: dict[str, Any] = {"step": 0}
    load(path, alone)
    assert alone == {"step": 7}
    refusal(lambda: load(path, {"step": 0}, only_tensors=True), "no_tensor")

    (file,) = path.glob("*.distcp")
    whole = file.read_bytes()
    archive = reshard.open_checkpoint(path).object("text")
    for damaged in (bytes(len(archive)), archive[: len(archive) // 2] + bytes(len(archive) - len(archive) // 2), archive[:4] + b"\xff" * (len(archive) - 4)):
        file.write_bytes(whole.replace(archive, damaged))
        state: dict[str, Any] = {"w": torch.zeros(2), "step": 0, "text": ""}
        refusal(lambda state=state: load(path, state), "pickle", "text (")
        assert not state["w"].any() and state["step"] == 0 and state["text"] == ""
    file.write_bytes(whole)
    load(path, state)
    assert state["w"].all() and state["step"] == 7 and state["text"] == "a rare text"


def test_parts_of_a_file_of_torch_save_are_not_offered(tmp_path: pathlib.Path) -> None:
    """They have no separate bytes, so a state that PyTorch makes of the metadata has only the tensors."""
    torch.save({"w": torch.arange(3.0), "step": 3}, tmp_path / "state.pt")
    assert set(Reader(tmp_path / "state.pt").read_metadata().state_dict_metadata) == {"w"}
