"""Arrays of any library, lent without a copy; arrays that cannot be lent are rejected with one message."""

import array
import collections
import ctypes
import gc
import mmap
import pathlib
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import reshard
from array_likes import ByArray, Endless
from reshard import Sharding, _buffers

FROM, TO = Sharding("x=2", (4, 6), "S(0)"), Sharding("x=2", (4, 6), "S(1)")
PLAN = reshard.plan(FROM, TO)
WHOLE = np.arange(24, dtype=np.float32).reshape(4, 6)


def shards() -> list[Any]:
    return FROM.shard_all(WHOLE)  # type: ignore[no-any-return]


def refused(kind: str, given: Any, **options: Any) -> str:
    with pytest.raises(reshard.PlanMismatch) as mismatch:
        PLAN.run(given, **options)
    assert mismatch.value.kind == kind
    assert "\n" not in str(mismatch.value)
    return str(mismatch.value)


def right(out: Any) -> None:
    np.testing.assert_array_equal(TO.assemble([np.asarray(shard).view(np.float32).reshape(4, 3) for shard in out]), WHOLE)


def test_buffers_of_the_standard_library() -> None:
    for like in (memoryview, lambda shard: array.array("f", shard.reshape(-1).tolist()), bytes, bytearray):
        out = PLAN.run([like(shard) for shard in shards()])
        assert all(isinstance(shard, memoryview) for shard in out)
        right(out)
    out = PLAN.run([memoryview(shard) for shard in shards()])
    assert (out[0].format, out[0].shape) == ("f", (4, 3))


def test_bytes_of_another_type_stay_bytes() -> None:
    out = PLAN.run([shard.view(np.uint8) for shard in shards()])
    assert (out[0].dtype, out[0].shape) == (np.uint8, (4, 3, 4))
    right(out)


def test_other_arrays_by_their_interfaces() -> None:
    class Interface:
        def __init__(self, inner: Any) -> None:
            self.inner = inner
            self.__array_interface__ = inner.__array_interface__

    class Dlpack:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __dlpack__(self, **options: Any) -> Any:
            return self.inner.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.inner.__dlpack_device__()  # type: ignore[no-any-return]

    for like in (Interface, Dlpack):
        right(PLAN.run([like(shard) for shard in shards()]))


def test_sources_are_read_where_they_are() -> None:
    given = shards()
    for shard in given:
        lent, _, _ = _buffers.lend(shard)
        assert np.shares_memory(np.asarray(lent), shard)
    right(PLAN.run(given))


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    for dtype, name in [(torch.float32, "f32"), (torch.bfloat16, "bf16"), (torch.int64, "i64"), (torch.bool, "bool")]:
        whole = torch.arange(24).reshape(4, 6).to(dtype)
        out = reshard.plan(FROM, TO, name).run(FROM.shard_all(whole))
        assert all(shard.dtype == dtype for shard in out)
        assert torch.equal(TO.assemble(out), whole)
        targets = [torch.zeros(4, 3, dtype=dtype) for _ in range(2)]
        reshard.plan(FROM, TO, name).run(FROM.shard_all(whole), out=targets)
        assert torch.equal(TO.assemble(targets), whole)
        with pytest.raises(reshard.PlanMismatch, match="share memory"):
            reshard.plan(TO, TO, name).run(targets, out=targets)
    with pytest.raises(reshard.PlanMismatch, match="strides"):
        PLAN.run([torch.ones(6, 2).T, torch.ones(2, 6)])
    with pytest.raises(reshard.PlanMismatch, match="device"):
        PLAN.run([torch.ones(2, 6, device="meta")] * 2)


def test_strides_are_refused() -> None:
    message = refused("strides", [np.asfortranarray(shard) for shard in shards()])
    assert "the shard of rank 0" in message and "contiguous copy" in message
    refused("strides", [np.zeros((2, 12), np.float32)[:, ::2]] * 2)
    refused("strides", [memoryview(array.array("f", range(24)))[::2]] * 2)


def test_other_types_are_refused() -> None:
    assert "f64" in refused("dtype", [shard.astype(np.float64) for shard in shards()])
    refused("dtype", [shard.astype(">f4") for shard in shards()])
    refused("dtype", [shard.astype(object) for shard in shards()])
    refused("dtype", [shard.astype("M8[s]") for shard in shards()])


def test_other_shapes_are_refused() -> None:
    assert "(3,6)" in refused("shape", [np.zeros((3, 6), np.float32)] * 2)
    assert "bytes" in refused("shape", [bytes(10)] * 2)
    refused("count", shards()[:1])
    refused("count", shards(), out=[np.zeros((4, 3), np.float32)])
    refused("shape", shards(), out=[np.zeros((3, 4), np.float32) for _ in range(2)])


def test_memory_that_is_gone_is_refused() -> None:
    views = [memoryview(shard) for shard in shards()]
    views[1].release()
    assert "rank 1" in refused("closed", views)
    mapped = mmap.mmap(-1, 48)
    mapped.close()
    refused("closed", [mapped, mapped])


def test_arrays_on_a_device_are_refused() -> None:
    class OnDevice:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

        def __dlpack__(self, **options: Any) -> Any:
            raise AssertionError("not asked")

    class Cuda:
        __cuda_array_interface__ = {"shape": (2, 6)}

    assert "device 2:0" in refused("device", [OnDevice(), OnDevice()])
    refused("device", [Cuda(), Cuda()])


def test_what_is_no_array_is_refused() -> None:
    refused("buffer", [3, 4])
    refused("buffer", [None, None])
    with pytest.raises(TypeError):
        PLAN.run(3)  # type: ignore[arg-type]


def test_memory_that_is_not_the_value_is_refused(tmp_path: pathlib.Path) -> None:
    program = reshard.Program("mesh x=1\nx: f32[2,6] R\ny: R = relu(x)\n")
    one = Sharding("x=1", (2, 6), "R")
    plan, rows = reshard.plan(one, one), Sharding("x=2", (2, 6), "S(0)")
    writer = reshard.checkpoint.CheckpointWriter.begin(tmp_path / "w", "x=1", {"w": ("f32", one)})
    whole = np.zeros((2, 6), np.float32)
    takers: list[Callable[[Any], Any]] = [
        lambda given: reshard.save(tmp_path / "w.safetensors", {"w": given}),
        lambda given: reshard.save(tmp_path / "f", {"w": given}, "R", mesh="x=1"),
        lambda given: writer.save(0, {"w": given}),
        lambda given: rows.shard_all(given),
        lambda given: one.assemble([given]),
        lambda given: plan.run([given]),
        lambda given: plan.run([whole], out=[given]),
        lambda given: program.on_ranks({"x": given}),
        lambda given: program.on_ranks({"x": [given[0], given[1]]} if isinstance(given, np.ma.MaskedArray) else {"x": given}),
        lambda given: program.on_one_device({"x": given}),
        lambda given: program.on_ranks({"x": whole}, kernels={"relu": lambda call, x: given}),
    ]
    past_the_end = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (2, 6), (24, 4))
    before_the_start = np.lib.stride_tricks.as_strided(np.zeros(12, np.float32), (2, 6), (-24, 4))
    nowhere = ((ctypes.c_float * 6) * 2).from_address(0)
    masked = np.ma.masked_array(whole, whole == 0)
    for kind, given in [("masked", masked), ("storage", past_the_end), ("storage", before_the_start), ("storage", nowhere)]:
        for number, taker in enumerate(takers):
            with pytest.raises(reshard.ReshardError) as error:
                taker(given)
            assert error.value.kind == kind, (number, error.value)
    for number, taker in enumerate(takers[:7]):
        for wrong in (whole.tolist(), None, "text", 3, {"a": 1}, object()):
            with pytest.raises(reshard.PlanMismatch) as mismatch:
                taker(wrong)
            assert mismatch.value.kind == "buffer", (number, wrong)
            assert type(wrong).__name__ in str(mismatch.value)


def test_owners_of_memory_are_held() -> None:
    """The owner of lent memory stays alive after the caller has dropped it."""

    class Owner:
        def __init__(self) -> None:
            self.inner = np.arange(12, dtype=np.float32)
            self.__array_interface__ = self.inner.__array_interface__

    class Capsule(Owner):
        def __init__(self) -> None:
            self.inner = np.arange(12, dtype=np.float32)

        def __dlpack__(self, **options: Any) -> Any:
            return self.inner.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.inner.__dlpack_device__()  # type: ignore[no-any-return]

    for make in (Owner, Capsule, lambda: np.arange(12, dtype=np.float32), lambda: (ctypes.c_float * 12)(*range(12)), lambda: array.array("f", range(12))):
        given: Any = make()
        memory = weakref.ref(given.inner if hasattr(given, "inner") else given)
        view, _, _ = _buffers.lend(given)
        del given
        gc.collect()
        assert memory() is not None
        assert np.frombuffer(bytes(view), np.float32).tolist() == list(range(12))
        del view
        gc.collect()
        assert memory() is None


def test_arrays_that_are_made_on_demand_are_saved_each(tmp_path: pathlib.Path) -> None:
    class OneBuffer(dict[str, Any]):
        buffer = np.zeros(4, np.float32)

        def items(self) -> Any:
            for name, value in super().items():
                self.buffer[:] = value
                yield name, self.buffer

    class Made(dict[str, Any]):
        def items(self) -> Any:
            for name, value in super().items():
                yield name, np.full(100_000, value, np.float32)

    for of in (OneBuffer, Made):
        for options in ({}, {"sharding": "S(0)", "mesh": "x=2"}):
            path = tmp_path / ("w.safetensors" if not options else "folder")
            reshard.save(path, of(a=1, b=2, c=3), force=True, **options)  # type: ignore[arg-type]
            read = reshard.open_checkpoint(path)
            assert [set(read.read(name).tolist()) for name in "abc"] == [{1}, {2}, {3}]

    class Twice(dict[str, Any]):
        def items(self) -> Any:
            return [("a", np.zeros(1)), ("a", np.ones(1))]

    with pytest.raises(reshard.ReshardError, match="two tensors have the name `a`"):
        reshard.save(tmp_path / "t.safetensors", Twice())
    with pytest.raises(TypeError, match="mapping"):
        reshard.save(tmp_path / "t.safetensors", [np.zeros(1)])  # type: ignore[arg-type]
    reshard.save(tmp_path / "t.safetensors", {"view": memoryview(b"abcd"), "c": (ctypes.c_int16 * 2)(1, 2), "array": array.array("d", [1.5])})
    read = reshard.open_checkpoint(tmp_path / "t.safetensors")
    assert [read.read(name).tolist() for name in ("view", "c", "array")] == [[97, 98, 99, 100], [1, 2], [1.5]]


def test_read_only_targets_are_refused() -> None:
    targets = [np.zeros((4, 3), np.float32) for _ in range(2)]
    targets[1].flags.writeable = False
    assert "the target of rank 1" in refused("read_only", shards(), out=targets)
    refused("read_only", shards(), out=[bytes(48), bytes(48)])


def test_targets_that_share_memory_are_refused() -> None:
    given = shards()
    assert "share memory" in refused("aliasing", given, out=[given[0].reshape(4, 3), np.zeros((4, 3), np.float32)])
    one = np.zeros((4, 3), np.float32)
    refused("aliasing", given, out=[one, one])
    memory = np.zeros(48, np.float32)
    refused("aliasing", [memory[0:12].reshape(2, 6), memory[12:24].reshape(2, 6)], out=[memory[23:35].reshape(4, 3), memory[36:48].reshape(4, 3)])
    # Adjacent outputs do not overlap; sources may share memory.
    out = PLAN.run([memory[0:12].reshape(2, 6)] * 2, out=[memory[12:24].reshape(4, 3), memory[24:36].reshape(4, 3)])
    assert len(out) == 2


def test_memory_is_held_for_the_call_alone() -> None:
    buffers = [bytearray(48), bytearray(48)]
    PLAN.run(buffers)
    for buffer in buffers:
        buffer.extend(b"it may grow again")


def test_tensors_of_nothing_and_of_one() -> None:
    empty = Sharding("x=2", (0, 3), "S(0)")
    out = reshard.plan(empty, Sharding("x=2", (0, 3), "R")).run(empty.shard_all(np.zeros((0, 3), np.float32)))
    assert [shard.shape for shard in out] == [(0, 3), (0, 3)]
    one = Sharding("x=2", (), "P")
    (total, again) = reshard.plan(one, Sharding("x=2", (), "R")).run([np.float32(3), np.array(4, np.float32)])
    assert total == again == 7
    views = reshard.plan(one, Sharding("x=2", (), "R")).run([memoryview(array.array("f", [each])) for each in (3, 4)])
    assert views[0].tolist() == 7


def takers_of_numbers() -> list[Callable[[Any], Any]]:
    program = reshard.Program("mesh x=1\nx: f32[2,3] R\ny: R = relu(x)\n")
    whole = np.zeros((2, 3), np.float32)
    return [
        lambda given: reshard.ops.relu(given),
        lambda given: program.on_ranks({"x": given}).whole("y"),
        lambda given: program.on_one_device({"x": given})["y"],
        lambda given: program.on_ranks({"x": whole}, kernels={"relu": lambda call, x: given}).whole("y"),
        lambda given: reshard._reshard.local_call("relu", [[2, 3]], ["f32"]).reference(given)[0],
    ]


def test_any_sequence_of_numbers_is_read() -> None:
    rows = [[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]]
    array = np.array(rows, np.float32)
    for number, taker in enumerate(takers_of_numbers()):
        want = array if number == 3 else np.maximum(array, 0)
        for given in (
            rows, tuple(rows), collections.deque(rows), collections.UserList(rows), [collections.deque(row) for row in rows], ByArray(array),
            [ByArray(row) for row in array], [memoryview(row) for row in array], collections.deque(array),
        ):  # fmt: skip
            if number < 2 and isinstance(given, (list, tuple)) or number == 3 and isinstance(given, tuple):
                continue  # Here the sequence is the op's operands, the ranks' shards, or several results.
            assert np.array_equal(np.asarray(taker(given)).reshape(2, 3), want), (number, given)
    assert reshard.ops.relu(range(-2, 3)).tolist() == [0, 0, 0, 1, 2]
    for wide in (range(3, -4, -2), range(2**62, 2**62 + 2), range(-(2**63), -(2**63) + 3, 2), range(2**64 - 2, 2**64), range(0), range(5, 5)):
        assert np.array_equal(_buffers.numbers(wide), np.asarray(list(wide))), wide
    assert reshard.ops.relu(range(1 << 20)).sum() == (1 << 19) * ((1 << 20) - 1)


def test_masks_and_memory_within_sequences_are_seen() -> None:
    masked = np.ma.masked_array(np.zeros((2, 3), np.float32), [[1, 0, 0]] * 2)
    past = np.lib.stride_tricks.as_strided(np.frombuffer(bytearray(4), np.float32), (2, 3))
    nowhere = ((ctypes.c_float * 3) * 2).from_address(0)

    class Interface:
        def __init__(self, **more: Any) -> None:
            self.inner = np.zeros((2, 3), np.float32)
            self.__array_interface__ = {**self.inner.__array_interface__, **more}

    doubled: Any = [1.0]
    for _ in range(60):
        doubled = [doubled, doubled]
    wrong: list[tuple[str, Any]] = [
        ("masked", masked), ("masked", collections.deque(masked)), ("masked", collections.UserList([masked[0], masked[1]])), ("masked", [ByArray(masked)]),
        ("masked", ByArray(masked)), ("masked", Interface(mask=Interface())), ("storage", past), ("storage", collections.deque([past])), ("storage", ByArray(past)),
        ("storage", nowhere), ("storage", [nowhere]), ("storage", collections.deque([nowhere])), ("storage", memoryview(nowhere).toreadonly()),
        ("memory", range(10**9)), ("memory", [range(10**9)]), ("memory", Endless()), ("memory", [Endless()]), ("memory", doubled),
        ("buffer", collections.UserDict({0: 1})),
    ]  # fmt: skip
    for number, taker in enumerate(takers_of_numbers()):
        for kind, given in wrong:
            with pytest.raises(reshard.ReshardError) as error:
                taker(given)
            assert error.value.kind == kind, (number, kind, error.value)


def test_arrays_end_where_what_they_hold_does(tmp_path: pathlib.Path) -> None:
    """An array over memory of any owner is read up to its end, and no further."""
    data = np.arange(16, dtype=np.uint8)
    mapped = mmap.mmap(-1, 16)
    mapped[:] = data.tobytes()
    owners = [bytearray(data), bytes(data), memoryview(bytearray(data)), array.array("B", data.tobytes()), mapped, (ctypes.c_uint8 * 16)(*data), data.copy()]
    for number, owner in enumerate(owners):
        seen = np.frombuffer(owner, np.uint8)
        for part, start in [(seen, 0), (seen[8:], 8), (np.frombuffer(owner, np.uint8, 8, 8), 8), (np.frombuffer(memoryview(owner)[8:], np.uint8), 8), (seen.view(np.matrix)[0, 8:], 8)]:
            for length in (16 - start, 17 - start):
                given = np.lib.stride_tricks.as_strided(part, (length,), (1,))
                path = tmp_path / "w.safetensors"
                if length + start == 16:
                    reshard.save(path, {"w": given}, force=True)
                    assert np.array_equal(reshard.open_checkpoint(path).read("w"), data[start:]), number
                else:
                    with pytest.raises(reshard.ReshardError) as error:
                        reshard.save(path, {"w": given}, force=True)
                    assert error.value.kind == "storage", number


def test_memory_and_devices_that_are_none(tmp_path: pathlib.Path) -> None:
    large = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (2**40,), (0,))
    program = reshard.Program(f"mesh x=1\nx: f64[{2**40}] R\ny: R = relu(x)\n")
    for call in (
        lambda: reshard.save(tmp_path / "w.safetensors", {"w": large}),
        lambda: reshard.save(tmp_path / "w.safetensors", {"w": large.view(">f4")}),
        lambda: program.on_one_device({"x": large}),
        lambda: reshard.ops.relu(large),
    ):
        with pytest.raises(reshard.ReshardError) as error:
            call()
        assert error.value.kind == "memory", error.value
    for at in (("cuda", 0), (1, None), (1, 0, 0), "x", 3):
        given = types.SimpleNamespace(__dlpack_device__=lambda at=at: at)
        assert "DLPack requires a pair" in refused("device", [given, given])
