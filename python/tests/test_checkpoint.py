"""Checkpoints: written and verified by reading at 1, 3 and 8 ranks, and the answers of the command line."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from asked import ask

import reshard
from reshard import Mesh, ReshardError, Sharding, checkpoint

RNG = np.random.default_rng(9)
TENSORS = {
    "layer.0.q_proj.weight": RNG.normal(size=(13, 8)).astype("f4"),
    "layer.0.o_proj.weight": RNG.normal(size=(8, 13)).astype(ml_dtypes.bfloat16),
    "layer.0.norm": RNG.normal(size=(13,)).astype("f8"),
    "table": RNG.integers(-9, 9, size=(5, 3)),
    "half": RNG.normal(size=(4, 4)).astype("f2"),
    "tiny": RNG.normal(size=(7, 5)).astype(ml_dtypes.float8_e4m3fn),
    "mask": RNG.integers(0, 2, size=(6,)).astype(bool),
    "scale": np.float32(3.5).reshape(()),
    "empty": np.zeros((0, 4), "f4"),
}
TO = {"*.q_proj.weight": "S(0)", "*.o_proj.weight": "S(1)", "*": "R"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "model.safetensors"
    reshard.save(path, TENSORS, texts={"by": "a test"})
    return path


def same(a, b):
    assert a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def held(array, sharding, rank):
    """Returns a rank's shard under any sharding, by the indices of its elements."""
    numbers = np.arange(array.size, dtype="u8").reshape(array.shape)
    return array.reshape(-1)[shard_of(numbers, sharding, rank)].reshape(sharding.local_shape(rank))


def shard_of(numbers, sharding, rank):
    """Returns plain chunks along every axis of the mesh in turn, by hand."""
    sizes = list(sharding.mesh.axes.values())
    for placement, size, at in zip(str(sharding).split(","), sizes, np.unravel_index(rank, sizes), strict=True):
        if placement != "R":
            dim = int(placement.removeprefix("S(").removesuffix(")"))
            step = -(-numbers.shape[dim] // size)
            numbers = np.take(numbers, range(min(at * step, numbers.shape[dim]), min((at + 1) * step, numbers.shape[dim])), dim)
    return numbers.reshape(-1)


@pytest.mark.parametrize("ranks", [1, 3, 8])
@pytest.mark.parametrize("format", ["rank_files", "dcp"])
def test_what_is_written_is_read_back_at_any_number_of_ranks(whole, tmp_path, ranks, format):
    out = tmp_path / "out"
    tensors = {name: array for name, array in TENSORS.items() if format == "rank_files" or array.size}
    reshard.save(out, tensors, TO, mesh=f"tp={ranks}", format=format)
    opened = reshard.open_checkpoint(out)
    assert set(opened.names) == set(tensors)
    for other in [1, 3, 8]:
        mesh = Mesh({"tp": other})
        for rank in range(other):
            loaded = reshard.load(out, mesh, TO, rank)
            assert set(loaded) == set(tensors)
            for name, array in tensors.items():
                placements = "S(0)" if "q_proj" in name else "S(1)" if "o_proj" in name else "R"
                same(loaded[name], held(array, Sharding(mesh, array.shape, placements), rank))
    for name, array in tensors.items():
        same(opened.read(name), array)
    if format == "rank_files":
        assert opened.verify() and opened.has_checksums and str(opened.mesh) == f"tp={ranks}"
        assert opened["layer.0.q_proj.weight"].sharding == Sharding({"tp": ranks}, (13, 8), "S(0)")


def test_headers_are_those_of_the_command_line(whole):
    opened = reshard.open_checkpoint(whole)
    answer = ask("inspect", str(whole))
    rows = [(t["name"], t["dtype"].lower(), t["shape"], t["bytes"]) for t in answer["tensors"]]
    assert rows == [(t.name, str(t.dtype), t.shape, t.bytes) for t in opened.tensors]
    assert opened.metadata == {"by": "a test"} == answer["texts"] and opened.non_tensors == [] and len(opened) == len(TENSORS)
    assert opened.mesh is None and "half" in opened and "none" not in opened and not opened.has_checksums
    assert checkpoint.inspect(whole)[0].name == opened.names[0]


def test_what_is_no_tensor_has_bytes():
    data = Path(__file__).parents[2] / "checkpoint" / "tests" / "data"
    opened = reshard.open_checkpoint(data / "dcp")
    assert "step" in opened.non_tensors
    assert opened.paths["step"] == ("step",) and opened.paths["model.cube"] == ("model", "cube")
    assert opened.paths["optimizer.state.0.name"] == ("optimizer", "state", 0, "name")
    assert set(opened.paths) == set(opened.names) | set(opened.non_tensors)
    assert reshard.open_checkpoint(data / "state.safetensors").paths == {}
    for name in opened.non_tensors:
        made = opened.object(name)
        assert type(made) is bytes and made.startswith(b"PK")
    with pytest.raises(ReshardError) as absent:
        opened.object("steps")
    assert absent.value.kind == "no_such_object"
    with pytest.raises(ReshardError) as part:
        reshard.open_checkpoint(data / "state.pt").object("epoch")
    assert part.value.kind == "object"
    with pytest.raises(TypeError):
        opened.object(7)


def test_no_byte_more_is_read(whole):
    opened = reshard.open_checkpoint(whole)
    assert opened.bytes_read == 0
    same(opened.read("layer.0.q_proj.weight", (slice(2, 5), slice(1, 4))), TENSORS["layer.0.q_proj.weight"][2:5, 1:4])
    assert opened.bytes_read == 3 * 3 * 4
    same(opened.read("layer.0.q_proj.weight", [(3, 3)]), TENSORS["layer.0.q_proj.weight"][3:3])
    same(opened.read("table", (slice(-2, None),)), TENSORS["table"][-2:])
    sharding = Sharding("tp=3", (13, 8), "S(0)")
    same(opened.shard("layer.0.q_proj.weight", sharding, 2), TENSORS["layer.0.q_proj.weight"][10:])


def test_the_offline_job_verifies_and_compares(whole, tmp_path):
    moved = []
    done = checkpoint.reshard(whole, "dp=2,tp=2", "S(0),S(1)", tmp_path / "four", progress=lambda now, all_: moved.append((now, all_)))
    assert done.verified and done.bytes == sum(a.nbytes for a in TENSORS.values()) and len(done.written) > 0
    assert moved[-1][0] == moved[-1][1] and "scale" in dict(done.replicated)
    assert {name: to for name, _, to in done.tensors}["half"] == "S(0),S(1)"
    assert checkpoint.verify(tmp_path / "four").problems == []
    assert checkpoint.diff(whole, tmp_path / "four").equal
    other = {**TENSORS, "half": TENSORS["half"] + 1, "more": np.ones(3)}
    del other["mask"]
    reshard.save(tmp_path / "other.safetensors", other)
    difference = checkpoint.diff(whole, tmp_path / "other.safetensors")
    assert not difference.equal and difference.only_first == ["mask"] and difference.only_second == ["more"]
    assert [(name, first) for name, _, first in difference.different] == [("half", [0, 0])]
    checkpoint.reshard(tmp_path / "four", "tp=1", "R", tmp_path / "back.safetensors")
    assert checkpoint.diff(whole, tmp_path / "back.safetensors").equal


def test_a_bit_that_is_flipped_is_found(whole, tmp_path):
    reshard.save(tmp_path / "out", TENSORS, "S(0)", mesh="tp=2")
    file = next(f for f in sorted((tmp_path / "out").iterdir()) if f.suffix == ".safetensors")
    bytes_ = bytearray(file.read_bytes())
    bytes_[-3] ^= 1
    file.write_bytes(bytes_)
    verified = checkpoint.verify(tmp_path / "out")
    assert not verified and len(verified.problems) >= 1 and verified.checksums


def test_what_is_refused_is_one_sentence_with_a_kind(whole, tmp_path):
    for call, kind in [
        (lambda: reshard.open_checkpoint(tmp_path / "nowhere"), "input"),
        (lambda: reshard.load(whole, "tp=2", {"*.q_proj.weight": "S(0)"}, 0), "spec"),
        (lambda: reshard.load(whole, "tp=2", {"*": "R", "table": "S(0)"}, 0), "spec"),
        (lambda: reshard.load(whole, "tp=2", "S(0)", 5), None),
        (lambda: reshard.load(whole, "tp=2", "nonsense", 0), None),
        (lambda: reshard.load(whole, "tp=2", {"*": "S(5)"}, 0), None),
        (lambda: reshard.load(whole, "tp=2", "R", 0, names=["none"]), "no_such_tensor"),
        (lambda: reshard.open_checkpoint(whole).read("none"), "no_such_tensor"),
        (lambda: reshard.open_checkpoint(whole).read("table", [(0, 99)]), "usage"),
        (lambda: reshard.open_checkpoint(whole).read("table", [slice(0, 4, 2)]), "usage"),
        (lambda: reshard.save(whole, TENSORS), "output"),
        (lambda: reshard.save(tmp_path / "folder", TENSORS), "usage"),
        (lambda: reshard.save(tmp_path / "folder", TENSORS, "S(0)"), "usage"),
        (lambda: checkpoint.reshard(whole, "tp=2", "S(0)", tmp_path / "x", format="zip"), "usage"),
        (lambda: checkpoint.reshard(whole, "tp=2", "P", tmp_path / "x"), None),
    ]:
        with pytest.raises(ReshardError) as refused:
            call()
        assert refused.value.kind and (kind is None or refused.value.kind == kind), refused.value
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "folder").exists() and not (tmp_path / "x").exists()


def test_who_is_told_of_progress_can_be_called(tmp_path):
    reshard.save(tmp_path / "whole.safetensors", {"x": np.arange(8.0)})
    with pytest.raises(TypeError, match="`progress` must be a callable"):
        reshard.open_checkpoint(tmp_path / "whole.safetensors").verify(progress=3)
    with pytest.raises(ReshardError) as refused:
        reshard.save("x" * 10_000, {"x": np.arange(8.0)})
    assert len(str(refused.value)) < 2_200 and refused.value.kind == "usage"


def test_other_names_other_pieces_and_other_types(whole, tmp_path):
    opened = reshard.open_checkpoint(whole)
    named = opened.filter("layer.*", r"/^table$/").renamed(r"s/^layer\.(\d+)/decoder.$1/")
    assert set(named.names) == {"decoder.0.q_proj.weight", "decoder.0.o_proj.weight", "decoder.0.norm", "table"}
    same(named.read("decoder.0.norm"), TENSORS["layer.0.norm"])
    rounded = named.cast("bf16")
    same(rounded.read("decoder.0.norm"), TENSORS["layer.0.norm"].astype("f4").astype(ml_dtypes.bfloat16))
    same(rounded.read("table"), TENSORS["table"])
    q, k = RNG.normal(size=(8, 3)).astype("f4"), RNG.normal(size=(4, 3)).astype("f4")
    reshard.save(tmp_path / "parts.safetensors", {"a.q": q, "a.k": k})
    parts = reshard.open_checkpoint(tmp_path / "parts.safetensors")
    rule = "*.qk = 2 *.q + *.k by 4"
    fused = parts.mapped(rule)
    expected = np.concatenate([q.reshape(4, 2, 3), k.reshape(4, 1, 3)], axis=1).reshape(12, 3)
    same(fused.read("a.qk"), expected)
    same(fused.mapped(rule, inverse=True).read("a.q"), q)
    checkpoint.reshard(fused, "tp=2", "S(0)", tmp_path / "out", resume=True)
    same(reshard.open_checkpoint(tmp_path / "out").read("a.qk"), expected)
    for refused in (lambda: opened.filter("absent"), lambda: parts.mapped("a"), lambda: opened.cast("i8")):
        with pytest.raises(ReshardError):
            refused()


def test_rules_make_tensors_of_tensors(whole):
    opened = reshard.open_checkpoint(whole)
    rules = "*.gates.# = unstack(rearrange(*.q_proj.weight, 'a (g d) -> g d a', g=$g))\nw = pad(half, 6 on 1)[1:]"
    made = opened.mapped(rules, numbers={"g": 4})
    gates = TENSORS["layer.0.q_proj.weight"].reshape(13, 4, 2).transpose(1, 2, 0)
    for gate in range(4):
        same(made.read(f"layer.0.gates.{gate}"), np.ascontiguousarray(gates[gate]))
    same(made.read("w"), np.pad(TENSORS["half"], ((0, 0), (0, 2)))[1:].copy())
    assert "half" not in made and "table" in made
    same(opened.mapped("one = table[1:3]").read("one"), TENSORS["table"][1:3])
    whole_again = opened.mapped("x.# = unstack(table)").mapped("x.# = unstack(table)", inverse=True)
    same(whole_again.read("table"), TENSORS["table"])
    with pytest.raises(ReshardError, match=r"rule `x = nothing`") as refused:
        opened.mapped("x = nothing")
    assert refused.value.kind == "mapping"


def test_a_source_describes_files_of_ranks(tmp_path):
    rows = RNG.normal(size=(7, 3)).astype("f4")
    for rank, part in enumerate(np.split(rows, [4])):
        reshard.save(tmp_path / f"part-{rank:02}.safetensors", {"model.w": part, "model.b": rows[0], "step": rows[1]})
    source = tmp_path / "source.toml"
    source.write_text('[source]\nfiles = "part-{r:02}.safetensors"\nmesh = "r=2"\nunder = "model"\nplacements = { w = "S(0)", b = "R" }')
    opened = reshard.open_checkpoint(tmp_path, source=source)
    same(opened.read("w"), rows)
    same(opened.read("b"), rows[0])
    assert list(opened.non_tensors) == ["step"]
    with pytest.raises(ReshardError, match="`source` describes files"):
        reshard.open_checkpoint(tmp_path, source=source, dead=[1])


def test_ranks_save_what_they_hold(tmp_path):
    mesh, out = Mesh("dp=2,tp=2"), tmp_path / "step"
    tensors = {"w": RNG.normal(size=(6, 4)).astype("f4"), "b": RNG.normal(size=(4,)).astype(ml_dtypes.bfloat16)}
    shardings = {"w": Sharding(mesh, (6, 4), "R,S(0)"), "b": Sharding(mesh, (4,), "R,R")}
    said = {name: (array.dtype, shardings[name]) for name, array in tensors.items()}
    writer = checkpoint.CheckpointWriter.begin(out, mesh, said, texts={"step": "7"})
    other = checkpoint.CheckpointWriter.join(out, writer.token)
    assert writer.expects("w", 1) == ("f32", [3, 4])
    for rank in range(4):
        shards = {name: held(array, shardings[name], rank) for name, array in tensors.items()}
        with pytest.raises(ReshardError, match="have not saved"):
            writer.commit()
        with pytest.raises(ReshardError, match="f64"):
            writer.save(rank, shards | {"w": shards["w"].astype("f8")})
        (writer, other)[rank % 2].save(rank, shards)
    assert other.commit_if_last() and not writer.commit_if_last()
    saved = reshard.open_checkpoint(out)
    assert saved.metadata == {"step": "7"} and saved.verify()
    for name, array in tensors.items():
        same(saved.read(name), array)
    (out / "rank-00001-of-00004.safetensors").unlink()
    (out / "rank-00002-of-00004.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ReshardError, match="--missing-ranks 1"):
        reshard.open_checkpoint(out)
    same(reshard.open_checkpoint(out, dead=[1, 2]).read("w"), tensors["w"])
    with pytest.raises(ReshardError, match="of rank 0, 2"):
        reshard.open_checkpoint(out, dead=[0, 1, 2])
    older = {name: np.zeros_like(array) for name, array in tensors.items()}
    reshard.save(tmp_path / "older.safetensors", older)
    filled = reshard.open_checkpoint(out, dead=[0, 1, 2], fill_from=tmp_path / "older.safetensors")
    same(filled.read("w"), np.concatenate([older["w"][:3], tensors["w"][3:]]))


def test_what_is_no_exception_ends_the_job_and_comes_out(whole, tmp_path):
    def stops(now, all_):
        raise KeyboardInterrupt

    for call in [
        lambda: checkpoint.reshard(whole, "dp=2,tp=2", "S(0),S(1)", tmp_path / "four", progress=stops),
        lambda: reshard.open_checkpoint(whole).verify(progress=stops),
        lambda: reshard.open_checkpoint(whole).diff(reshard.open_checkpoint(whole), progress=stops),
    ]:
        with pytest.raises(KeyboardInterrupt):
            call()
    assert not (tmp_path / "four").exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_who_only_watches_stops_nothing_by_an_exception(whole, tmp_path):
    def fails(now, all_):
        raise ValueError("boom")

    assert checkpoint.reshard(whole, "dp=2,tp=2", "S(0),S(1)", tmp_path / "four", progress=fails).verified
