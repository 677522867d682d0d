"""Memory of every kind against every function that takes memory: `python attack_buffers.py SEED ROUNDS NOTE [with_torch]`.

Each call either is rejected or reads the array's own bytes: files and tensors that it fills are compared with
them. The current call is written into the file NOTE, since an access to missing memory ends the process.
"""

import array
import collections
import ctypes
import mmap
import os
import pathlib
import random
import resource
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attack
import numpy as np
import reshard
from array_likes import ByArray, Endless

Make = Callable[[np.ndarray[Any, Any]], Any]


class Interface:
    """An array by `__array_interface__` over memory that it owns."""

    def __init__(self, whole: Any, **changed: Any) -> None:
        self.inner = whole.copy()
        self.__array_interface__ = {**self.inner.__array_interface__, **changed}


class Capsule:
    """An array by DLPack."""

    def __init__(self, whole: Any, device: Any = (1, 0)) -> None:
        self.inner, self.device = whole.copy(), device

    def __dlpack__(self, **options: Any) -> Any:
        return self.inner.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.device


class Raises:
    def __init__(self, attribute: str) -> None:
        self.attribute = attribute

    def __getattr__(self, name: str) -> Any:
        if name == self.attribute:
            raise RuntimeError("planted")
        raise AttributeError(name)


def released(whole: Any) -> Any:
    view = memoryview(bytearray(whole.tobytes()))
    view.release()
    return view


def mapped(whole: Any) -> Any:
    made = mmap.mmap(-1, max(whole.nbytes, 1))
    made[: whole.nbytes] = whole.tobytes()
    return made


def read_only(whole: Any) -> Any:
    made = whole.copy()
    made.flags.writeable = False
    return made


def in_ctypes(whole: Any) -> Any:
    kinds = {"float32": ctypes.c_float, "float64": ctypes.c_double, "int64": ctypes.c_int64, "uint8": ctypes.c_uint8}
    kind: Any = kinds[whole.dtype.name]
    for extent in reversed(whole.shape):
        kind = kind * extent
    return kind.from_buffer_copy(whole.tobytes())


def masked(whole: Any) -> Any:
    return np.ma.masked_array(whole, whole == whole)


def stretched(of: Any, whole: Any) -> Any:
    """Returns an array over a buffer with more elements than the buffer has bytes."""
    seen = np.frombuffer(of, whole.dtype)
    return np.lib.stride_tricks.as_strided(seen, (*whole.shape[:-1], 1 << 20), (*whole.strides[:-1], whole.itemsize))


def null(whole: Any) -> Any:
    return type(in_ctypes(whole)).from_address(0)


BUFFERS: dict[str, Make] = {
    "array": lambda w: w.copy(),
    "read-only array": read_only,
    "Fortran order": lambda w: np.asfortranarray(w),
    "transposed": lambda w: np.ascontiguousarray(w.T).T,
    "reversed": lambda w: w[::-1],
    "every second": lambda w: np.repeat(w, 2, axis=-1)[..., ::2],
    "broadcast": lambda w: np.broadcast_to(w[:1], w.shape) if w.ndim else w,
    "swapped bytes": lambda w: w.astype(w.dtype.newbyteorder(">")),
    "matrix": lambda w: w.view(np.matrix) if w.ndim == 2 else w,
    "masked": masked,
    "objects": lambda w: w.astype(object),
    "texts": lambda w: w.astype("S3"),
    "records": lambda w: np.zeros(w.shape, [("a", "f4")]),
    "times": lambda w: w.astype("i8").astype("M8[s]"),
    "past its end": lambda w: np.lib.stride_tricks.as_strided(w[:1].copy(), (*w.shape[:-1], 1 << 40), w.strides),
    "before its start": lambda w: np.lib.stride_tricks.as_strided(w.copy(), w.shape, tuple(-s for s in w.strides)),
    "past a bytearray": lambda w: stretched(bytearray(w.tobytes()), w),
    "past bytes": lambda w: stretched(w.tobytes(), w),
    "past a memoryview": lambda w: stretched(memoryview(w.copy()).cast("B") if w.ndim == 1 else memoryview(bytearray(w.tobytes())), w),
    "past a part of a memoryview": lambda w: stretched(memoryview(bytearray(w.tobytes() * 2))[: w.nbytes], w),
    "past a map": lambda w: stretched(mapped(w), w),
    "past an array.array": lambda w: stretched(array.array("B", w.tobytes()), w),
    "past ctypes": lambda w: stretched(in_ctypes(w), w),
    "past a view of a view": lambda w: stretched(np.frombuffer(bytearray(w.tobytes()), "u1")[1:][:-1].view(np.matrix)[0].view("u1")[:1], np.zeros(1, "u1")),
    "a part of a buffer": lambda w: np.frombuffer(bytearray(bytes(8) + w.tobytes() + bytes(8)), w.dtype, w.size, 8).reshape(w.shape),
    "one number broadcast to a large shape": lambda w: np.broadcast_to(w.reshape(-1)[:1], (1 << 40,)),
    "bytes of another shape": lambda w: w.reshape(-1).view("u1")[:-1].copy(),
    "scalar": lambda w: w.reshape(-1)[:1].copy().reshape(())[()],
    "bytes": lambda w: w.tobytes(),
    "bytearray": lambda w: bytearray(w.tobytes()),
    "memoryview": lambda w: memoryview(w.copy()),
    "read-only memoryview": lambda w: memoryview(w.tobytes()),
    "strided memoryview": lambda w: memoryview(w.copy())[::2] if w.ndim == 1 else memoryview(w.T),
    "released memoryview": released,
    "array.array": lambda w: array.array(w.dtype.char if w.dtype.char in "fdB" else "q", w.reshape(-1).tolist()),
    "mmap": mapped,
    "ctypes": in_ctypes,
    "ctypes at null": null,
    "read-only ctypes at null": lambda w: memoryview(null(w)).toreadonly(),
    "list of ctypes at null": lambda w: [null(w)],
    "ctypes at null in a deque": lambda w: collections.deque([null(w)]),
    "ctypes pointer": lambda w: ctypes.pointer(ctypes.c_float(1)),
    "ctypes structure": lambda w: type("S", (ctypes.Structure,), {"_fields_": [("a", ctypes.c_float)]})(),
    "interface": lambda w: Interface(w),
    "interface at null": lambda w: Interface(w, data=(0, False)),
    "interface without data": lambda w: Interface(w, data=None),
    "interface of a shape below zero": lambda w: Interface(w, shape=(-1, 3)),
    "interface of any shape": lambda w: Interface(w, shape="x"),
    "interface with a mask": lambda w: Interface(w, mask=Interface(w == w)),
    "interface that is not a dict": lambda w: types.SimpleNamespace(__array_interface__=3),
    "DLPack": lambda w: Capsule(w),
    "DLPack on a device": lambda w: Capsule(w, (2, 0)),
    "DLPack on no device": lambda w: Capsule(w, "x"),
    "DLPack on a named device": lambda w: Capsule(w, ("cuda", 0)),
    "DLPack on a device of no number": lambda w: Capsule(w, (1, None)),
    "DLPack on three numbers": lambda w: Capsule(w, (1, 0, 0)),
    "DLPack without a capsule": lambda w: types.SimpleNamespace(__dlpack_device__=lambda: (1, 0), __dlpack__=lambda **_: 3),
    "CUDA": lambda w: types.SimpleNamespace(__cuda_array_interface__={"shape": w.shape}),
    "raises at its interface": lambda w: Raises("__array_interface__"),
    "raises at its device": lambda w: Raises("__dlpack_device__"),
    "list": lambda w: w.tolist(),
    "list of masked": lambda w: [masked(row) for row in w] if w.ndim else [masked(w)],
    "deque": lambda w: collections.deque(w.tolist()),
    "UserList": lambda w: collections.UserList(w.tolist()),
    "deque of arrays": lambda w: collections.deque(w),
    "deque of masked": lambda w: collections.deque([masked(w)]),
    "UserList of masked": lambda w: collections.UserList([masked(w)]),
    "list of deques of masked": lambda w: [collections.deque([masked(w)])],
    "by __array__": lambda w: ByArray(w),
    "masked by __array__": lambda w: ByArray(masked(w)),
    "list of masked by __array__": lambda w: [ByArray(masked(w))],
    "past its end by __array__": lambda w: ByArray(stretched(bytearray(w.tobytes()), w)),
    "range": lambda w: range(w.size),
    "long range": lambda w: range(10**9),
    "list of long ranges": lambda w: [range(10**9)] * 9,
    "endless": lambda w: Endless(),
    "list of endless": lambda w: [Endless()],
    "lists that contain each other": lambda w: attack.doubled(),
    "user dict": lambda w: collections.UserDict({0: 1}),
    "list in itself": lambda w: attack.itself(),
    "number": lambda w: 3,
    "huge number": lambda w: 1 << 70,
    "text": lambda w: "array",
    "None": lambda w: None,
    "dict": lambda w: {"a": w},
    "class": lambda w: np.ndarray,
}
"""The functions that make each kind of memory from an array of NumPy, by name."""


def torch_buffers() -> dict[str, Make]:
    import torch

    def resized(size: int) -> Make:
        def make(whole: Any) -> Any:
            tensor = torch.nn.Parameter(torch.from_numpy(whole.copy()), requires_grad=False)
            tensor.untyped_storage().resize_(size)
            return tensor

        return make

    def tensor(whole: Any) -> Any:
        return torch.from_numpy(whole.copy())

    from torch._subclasses.fake_tensor import FakeTensorMode

    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner: Any) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise NotImplementedError(str(function))

    return {
        "tensor": tensor,
        "parameter": lambda w: torch.nn.Parameter(tensor(w), requires_grad=False),
        "bf16": lambda w: tensor(w).bfloat16(),
        "strided tensor": lambda w: tensor(np.ascontiguousarray(w.T)).T,
        "expanded tensor": lambda w: torch.ones(1, dtype=tensor(w).dtype).expand(w.shape),
        "offset": lambda w: torch.cat([tensor(w).reshape(-1)] * 2)[w.size :].view(w.shape),
        "freed": resized(0),
        "too short": resized(3),
        "meta": lambda w: tensor(w).to("meta"),
        "fake": lambda w: FakeTensorMode().from_tensor(tensor(w)),
        "functional": lambda w: torch._to_functional_tensor(tensor(w)),
        "wrapper": lambda w: Wrapper(tensor(w)),
        "sparse": lambda w: tensor(w).to_sparse(),
        "nested": lambda w: torch.nested.nested_tensor([tensor(w)]),
        "jagged": lambda w: torch.nested.nested_tensor([tensor(w.reshape(-1, 1))], layout=torch.jagged),
        "quantized": lambda w: torch.quantize_per_tensor(tensor(w).float(), 0.1, 0, torch.qint8),
        "conjugate": lambda w: tensor(w).to(torch.complex64).conj(),
        "negative": lambda w: torch._neg_view(tensor(w)),
        "zeros": lambda w: torch._efficientzerotensor(w.shape),
        "list of freed": lambda w: [resized(0)(w)],
        "deque of freed": lambda w: collections.deque([resized(0)(w)]),
        "imaginary of a conjugate": lambda w: tensor(w).to(torch.complex64).conj().imag,
        "array of a tensor": lambda w: tensor(w).numpy(),
        "past a tensor": lambda w: stretched(tensor(w).numpy().reshape(-1).view("u1"), np.zeros(1, "u1")),
        "one place": lambda w: torch.empty(64, dtype=tensor(w).dtype).as_strided(w.shape, (1,) * w.ndim),
        "uninitialized": lambda w: torch.nn.parameter.UninitializedParameter(),
    }


class OnDemand(Mapping[str, Any]):
    """A mapping that makes all of its arrays in the same memory."""

    def __init__(self, make: Make, whole: Any) -> None:
        self.make, self.whole = make, whole

    def __getitem__(self, name: str) -> Any:
        return self.make(self.whole)

    def __iter__(self) -> Iterator[str]:
        return iter(("a", "b"))

    def __len__(self) -> int:
        return 2


def takers(folder: pathlib.Path, whole: Any) -> dict[str, Callable[[Any], Any]]:
    """Returns every function that takes memory; most return the bytes that they have read."""
    dtype, shape = reshard.DType(whole.dtype), whole.shape
    one, two = reshard.Sharding("x=1", shape, "R"), reshard.Sharding("x=2", shape, "S(0)" if shape else "R")
    plan = reshard.plan(one, one, dtype)
    path = folder / "w.safetensors"
    extents = ",".join(map(str, shape))
    # Programs take the types that multiply; the others are copied.
    program = reshard.Program(f"mesh x=1\nx: {dtype}[{extents}] R\ny: R = clone(x)\n")

    def saved(given: Any) -> bytes:
        reshard.save(path, {"w": given}, force=True)
        return np.asarray(reshard.open_checkpoint(path).read("w")).tobytes()

    def written(given: Any) -> None:
        writer = reshard.checkpoint.CheckpointWriter.begin(folder / "ranks", "x=1", {"w": (dtype, one)}, force=True)
        writer.save(0, {"w": given})

    return {
        "save": saved,
        "save, sharded": lambda given: reshard.save(folder / "sharded", {"w": given}, "R", mesh="x=2", force=True),
        "save, on demand": lambda given: reshard.save(path, OnDemand(lambda _: given, whole), force=True),
        "Writer.save": written,
        "Sharding.shard_all": lambda given: two.shard_all(given),
        "Sharding.shard_all, a rank": lambda given: two.shard_all(given, 1, dtype=dtype),
        "Sharding.assemble": lambda given: np.asarray(one.assemble([given], dtype=dtype)).tobytes(),
        "Plan.run": lambda given: plan.run([given]),
        "Plan.run into": lambda given: plan.run([whole], out=[given]),
        "Plan.run onto itself": lambda given: plan.run([given], out=[given]),
        "RankCalls.interpret": lambda given: reshard.RankCalls.interpret([plan.calls(0)], [given]),
        "Program.on_ranks": lambda given: program.on_ranks({"x": given}).whole("y"),
        "Program.on_one_device": lambda given: program.on_one_device({"x": given}),
        "a kernel": lambda given: program.on_ranks({"x": whole}, kernels={"clone": lambda call, x: given}),
        "LocalCall.reference": lambda given: reshard._reshard.local_call("clone", [list(shape)], [dtype]).reference(given),
        "ops": lambda given: reshard.ops.add(given, given),
        "Verifier": lambda given: reshard.Verifier("relu", lambda x: given).failing(reshard.Op("relu", [(2, 2)])),
    }


def torch_takers(whole: Any) -> dict[str, Callable[[Any], Any]]:
    """Returns every function of `reshard.torch` that takes a tensor; most return the bytes they read."""
    import torch
    from reshard.torch import Groups, Runner, redistribute, redistribute_local, redistribute_state
    from reshard.torch.run import cut
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Replicate, Shard

    dtype, shape = reshard.DType(whole.dtype), whole.shape
    one, terms = reshard.Sharding("x=1", shape, "R"), reshard.Sharding("x=1", shape, "P")
    rows = reshard.Sharding("x=1", shape, "S(0)")
    mesh = DeviceMesh("cpu", [0], mesh_dim_names=("x",))
    groups = Groups(mesh)
    extents = ",".join(map(str, shape))
    program = reshard.Program(f"mesh x=1\nx: {dtype}[{extents}] R\ny: R = clone(x)\n")
    tensor = torch.from_numpy(whole.copy())

    def read(made: torch.Tensor) -> bytes:
        return bytes(made.detach().contiguous().resolve_neg().view(-1).view(torch.uint8).numpy().tobytes())

    def own(given: Any) -> Any:
        """Rejects a tensor whose class has custom functions, since they could transfer anything."""
        if isinstance(given, torch.Tensor) and "__torch_dispatch__" in vars(type(given)):
            raise TypeError("a tensor subclass with custom functions")
        return given

    def placed(given: Any) -> DTensor:
        if not isinstance(given, torch.Tensor):
            raise TypeError("PyTorch makes no DTensor of it")
        return DTensor.from_local(own(given), mesh, [Shard(0)], run_check=False)

    return {
        "redistribute_local": lambda given: read(redistribute_local(own(given), one, rows, groups=groups)),
        "redistribute_local, nothing moves": lambda given: read(redistribute_local(own(given), one, one, groups=groups)),
        "redistribute_local into": lambda given: read(redistribute_local(tensor, one, rows, groups=groups, out=own(given))) and None,
        "redistribute": lambda given: read(redistribute(placed(given), placements=[Replicate()]).to_local()),
        "redistribute_state": lambda given: read(redistribute_state({"a": placed(given)}, [Replicate()])["a"].to_local()),
        "Runner.shard": lambda given: read(Runner(program).shard("x", given)),
        "cut": lambda given: read(cut(rows, given, 0)),
        "cut of terms": lambda given: read(cut(terms, given, 0)),
        "Runner": lambda given: read(Runner(program)({"x": given})["y"]),
        "a function of Runner": lambda given: read(Runner(program, kernels={"clone": lambda call, x: own(given)})({"x": tensor})["y"]),
    }


def state_takers(folder: pathlib.Path) -> dict[str, Callable[[Any], Any]]:
    """Returns functions that take nested states."""
    from reshard.torch import load, redistribute_state, save

    path = folder / "state.safetensors"
    reshard.save(folder / "one.safetensors", {"a.0": np.zeros((2, 3), "f4")}, force=True)
    return {
        "torch.save": lambda state: save(path, state, force=True),
        "torch.save, tensors": lambda state: save(path, state, force=True, only_tensors=True),
        "torch.load": lambda state: load(folder / "one.safetensors", state),
        "torch.load, tensors": lambda state: load(folder / "one.safetensors", state, only_tensors=True),
        "redistribute_state": lambda state: redistribute_state(state, lambda name, tensor: None),
    }


def why_wrong(error: BaseException) -> str | None:
    """Returns the reason if an exception must not reach a user, or None."""
    if "planted" in str(error):
        return None
    if not isinstance(error, (reshard.ReshardError, reshard.EngineError, TypeError)):
        return f"{type(error).__name__}: {str(error)[:300]}"
    if not isinstance(error, TypeError) and not isinstance(getattr(error, "kind", None), str):
        return f"no kind: {error}"
    return attack.fault(error)


def value_of(given: Any) -> bytes | None:
    """Returns the bytes of the elements of a tensor, or None if it has none."""
    import torch

    try:
        plain = given.detach().resolve_conj().resolve_neg().contiguous()
        return bytes(plain.view(-1).view(torch.uint8).numpy().tobytes()) if type(plain) is torch.Tensor and given.untyped_storage().nbytes() > 3 else None
    except (RuntimeError, AttributeError, NotImplementedError, TypeError):
        return None


def main() -> int:
    seed, rounds, note = int(sys.argv[1]), int(sys.argv[2]), os.open(sys.argv[3], os.O_RDWR | os.O_CREAT)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with_torch = sys.argv[4:] == ["with_torch"]
    if not with_torch:
        # PyTorch maps more memory than that.
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    warnings.simplefilter("ignore")
    draw = random.Random(seed)
    buffers = BUFFERS | (torch_buffers() if with_torch else {})
    faults, calls, accepted = [], 0, 0
    if with_torch:
        import torch.distributed as dist

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def call(said: str, taker: Callable[[Any], Any], given: Any, right: bytes | None) -> None:
            nonlocal calls, accepted
            os.pwrite(note, said.encode()[:4000].ljust(4000, b"\0"), 0)
            calls += 1
            try:
                read = taker(given)
                accepted += 1
                if right is not None and isinstance(read, bytes) and read != right:
                    faults.append(f"{said}: other bytes")
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                if why := why_wrong(error):
                    faults.append(f"{said}: {why}")

        for turn in range(rounds):
            shape = draw.choice([(4, 6), (2, 3), (8,), (1, 1), (2, 2, 2), (16, 1)])
            whole = np.arange(np.prod(shape)).reshape(shape).astype(draw.choice(["f4", "f8", "i8", "u1"]))
            all_takers = takers(folder, whole) | (torch_takers(whole) if with_torch else {})
            for taken, taker in all_takers.items():
                for kind, make in buffers.items():
                    try:
                        given = make(whole)
                        right = np.asarray(make(whole)).tobytes() if isinstance(given, np.ndarray) and given.nbytes < 1 << 20 else None
                        # A tensor has to be read as the value that PyTorch reports for it.
                        right = value_of(given) if with_torch and right is None else right
                    except (RuntimeError, ValueError, TypeError, KeyError):
                        continue  # This kind of memory does not exist for these elements.
                    if kind == "bf16":
                        right = None  # A function may convert the elements.
                    if kind.startswith("past"):
                        right = b"none of it"
                    if kind in ("swapped bytes", "past its end", "before its start"):
                        right = None
                    call(f"{turn}: {taken} of {kind}, {whole.dtype}{shape}", taker, given, right)
        if with_torch:
            for turn in range(rounds):
                for taken, taker in state_takers(folder).items():
                    for _ in range(40):
                        call(f"{turn}: {taken} of a state", taker, nested_state(draw, buffers), None)
    print(f"{calls} calls, {accepted} accepted")
    print("\n".join(faults[:30]))
    return 1 if faults or accepted * 20 < calls else 0


def nested_state(draw: random.Random, buffers: Mapping[str, Make], depth: int = 0) -> Any:
    """Returns a state of dicts, lists and tuples with arbitrary contents."""
    whole = np.ones((2, 3), "f4")
    kinds = ["dict", "dict", "list", "tuple", "tensor", "tensor", "buffer", "garbage", "itself"]
    match draw.choice(kinds if 0 < depth < 4 else ["dict", "dict", "garbage"] if depth == 0 else ["tensor"]):
        case "dict":
            return {draw.choice(["a", "b", 0, "0", "a.0", None, ""]): nested_state(draw, buffers, depth + 1) for _ in range(draw.randrange(4))}
        case "list":
            return [nested_state(draw, buffers, depth + 1) for _ in range(draw.randrange(3))]
        case "tuple":
            return tuple(nested_state(draw, buffers, depth + 1) for _ in range(draw.randrange(3)))
        case "tensor":
            return buffers["tensor"](whole)
        case "buffer":
            try:
                return buffers[draw.choice(sorted(buffers))](whole)
            except (RuntimeError, ValueError, TypeError):
                return None
        case "garbage":
            return draw.choice([None, 3, "x", [], {}, (), attack.itself(), attack.doubled(), range(2**40), np.zeros(3)])
    held: dict[str, Any] = {"w": buffers["tensor"](whole)}
    held["again"] = held
    return held


if __name__ == "__main__":
    sys.exit(main())
