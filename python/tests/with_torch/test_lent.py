"""Every function that takes memory rejects tensors whose memory is missing or does not hold their value."""

import gc
import pathlib
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import reshard
import torch
from reshard import Sharding, _buffers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

HALF, WHOLE = Sharding("x=2", (4, 6), "S(0)"), Sharding("x=1", (4, 6), "R")
ONE = torch.arange(24.0).reshape(4, 6)


class Scaled(torch.Tensor):
    """A class whose functions change the value of its memory."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(function, types, args, kwargs or {})


class Named(torch.Tensor):
    """A class that does not change the behaviour of tensors."""


class Wrapper(torch.Tensor):
    """A class whose tensors wrap another one, and have no memory."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Wrapper":
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.detach.default:
            return cls(args[0].inner)
        raise NotImplementedError(str(function))


def resized(size: int) -> Callable[[], torch.Tensor]:
    def make() -> torch.Tensor:
        made = torch.nn.Parameter(ONE.clone())
        made.untyped_storage().resize_(size)
        return made

    return make


def functional() -> Any:
    with FunctionalTensorMode():
        return FunctionalTensor.to_functional(ONE)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "freed": (resized(0), "storage"),
    "too short": (resized(92), "storage"),
    "zeros": (lambda: torch._efficientzerotensor((4, 6)), "storage"),
    "meta": (lambda: ONE.to("meta"), "device"),
    "fake": (lambda: FakeTensorMode().from_tensor(ONE), "subclass"),
    "functional": (lambda: torch._to_functional_tensor(ONE), "subclass"),
    "functional class": (functional, "subclass"),
    "wrapper": (lambda: Wrapper(ONE), "subclass"),
    "scaled": (lambda: ONE.as_subclass(Scaled), "subclass"),
    "parameter of a class": (lambda: torch.nn.Parameter(Wrapper(ONE), requires_grad=False), "subclass"),
    "uninitialized": (lambda: torch.nn.parameter.UninitializedParameter(), "subclass"),
    "masked": (lambda: torch.masked.masked_tensor(ONE, ONE > 3), "subclass"),
    "coo": (lambda: ONE.to_sparse(), "strides"),
    "csr": (lambda: ONE.to_sparse_csr(), "strides"),
    "nested": (lambda: torch.nested.nested_tensor([ONE]), "strides"),
    "jagged": (lambda: torch.nested.nested_tensor([ONE], layout=torch.jagged), "subclass"),
    "quantized": (lambda: torch.quantize_per_tensor(ONE, 0.1, 0, torch.quint8), "dtype"),
    "conjugate": (lambda: torch.ones(4, 6, dtype=torch.complex64).conj(), "strides"),
    "negative": (lambda: torch._neg_view(ONE), "strides"),
    "masked array": (lambda: np.ma.masked_array(ONE.numpy(), ONE.numpy() > 3), "masked"),
}

PROGRAM = reshard.Program("mesh x=1\nx: f32[4,6] R\ny: R = relu(x)\n")


def takers(folder: pathlib.Path) -> dict[str, Callable[[Any], Any]]:
    """Returns every function that takes memory, by its name."""
    sharded = Sharding("x=1", (4, 6), "R")
    plan = reshard.plan(sharded, sharded)

    def writer(given: Any) -> None:
        begun = reshard.checkpoint.CheckpointWriter.begin(folder / "w", "x=1", {"w": ("f32", sharded)}, force=True)
        begun.save(0, {"w": given})

    return {
        "save": lambda given: reshard.save(folder / "w.safetensors", {"w": given}, force=True),
        "save on a mesh": lambda given: reshard.save(folder / "f", {"w": given}, "S(0)", mesh="x=2", force=True),
        "Writer.save": writer,
        "Sharding.scatter": lambda given: HALF.shard_all(given),
        "Sharding.meaning": lambda given: WHOLE.assemble([given]),
        "Plan.run": lambda given: plan.run([given]),
        "Plan.run into": lambda given: plan.run([np.zeros((4, 6), "f4")], out=[given]),
        "on_ranks": lambda given: PROGRAM.on_ranks({"x": given}),
        "on_ranks, a list": lambda given: PROGRAM.on_ranks({"x": [given]}),
        "on_one_device": lambda given: PROGRAM.on_one_device({"x": given}),
        "a kernel": lambda given: PROGRAM.on_ranks({"x": np.zeros((4, 6), "f4")}, kernels={"relu": lambda call, x: given}),
        "reference": lambda given: reshard._reshard.local_call("relu", [[4, 6]], ["f32"]).reference(given),
    }


@pytest.mark.parametrize("taker", list(takers(pathlib.Path())))
def test_what_has_no_memory_of_its_value_is_refused(taker: str, tmp_path: pathlib.Path) -> None:
    for name, (make, kind) in REFUSED.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = make()
            with pytest.raises(reshard.ReshardError) as error:
                takers(tmp_path)[taker](given)
        assert error.value.kind == kind, (name, error.value)
        assert "\n" not in str(error.value) and len(str(error.value)) < 500, name


def test_tensors_within_transforms_are_refused(tmp_path: pathlib.Path) -> None:
    taken = []

    def within(x: torch.Tensor) -> torch.Tensor:
        for name, taker in takers(tmp_path).items():
            with pytest.raises(reshard.ReshardError, match=r"torch\.func"):
                taker(x)
            taken.append(name)
        return x.sum()

    torch.vmap(within)(torch.ones(2, 4, 6))
    torch.func.grad(within)(ONE)
    assert len(taken) == 2 * len(takers(tmp_path))


def test_what_has_memory_is_read(tmp_path: pathlib.Path) -> None:
    given = [ONE, torch.nn.Parameter(ONE), ONE.clone().requires_grad_() * 1, ONE.as_subclass(Named), torch.nn.Buffer(ONE)]
    with torch.inference_mode():
        given.append(ONE.clone())
    for each in given:
        for name, taker in takers(tmp_path).items():
            if name not in ("Plan.run into", "on_ranks, a list"):
                taker(each)
        assert np.array_equal(reshard.open_checkpoint(tmp_path / "w.safetensors").read("w"), ONE.numpy())
    strided = torch.arange(48.0).reshape(6, 8)[:, 1:5].T
    reshard.save(tmp_path / "s.safetensors", {"w": strided, "e": torch.ones(1).expand(3, 3), "n": np.arange(6, dtype=">i4")[::2]})
    read = reshard.open_checkpoint(tmp_path / "s.safetensors")
    assert np.array_equal(read.read("w"), strided.numpy())
    assert np.array_equal(read.read("e"), np.ones((3, 3))) and read.read("n").tolist() == [0, 2, 4]


def test_what_is_lent_holds_its_memory() -> None:
    """A view holds the tensor and its storage, even if the tensor gets another storage."""
    tensor = ONE.clone()
    view, _, _ = _buffers.lend(tensor)
    gone = weakref.ref(tensor)
    tensor.data = torch.zeros(1)
    del tensor
    gc.collect()
    assert gone() is not None
    assert bytes(view) == ONE.numpy().tobytes()
    del view
    gc.collect()
    assert gone() is None


class Gathered(Mapping[str, Any]):
    """Parameters that are gathered on access into one buffer, which is freed before the next one."""

    def __init__(self) -> None:
        self.buffer = torch.zeros(1000)

    def __getitem__(self, name: str) -> torch.Tensor:
        self.buffer.untyped_storage().resize_(0)
        self.buffer.untyped_storage().resize_(4000)
        return self.buffer.fill_(int(name))

    def __iter__(self) -> Iterator[str]:
        return map(str, range(20))

    def __len__(self) -> int:
        return 20


def test_a_mapping_that_makes_its_tensors_on_demand(tmp_path: pathlib.Path) -> None:
    class Made(Gathered):
        def __getitem__(self, name: str) -> torch.Tensor:
            return torch.full((1000,), float(name))

    for state in (Gathered(), Made()):
        reshard.save(tmp_path / "w.safetensors", state, force=True)
        read = reshard.open_checkpoint(tmp_path / "w.safetensors")
        assert all(np.array_equal(read.read(name), np.full(1000, float(name))) for name in state)
        reshard.save(tmp_path / "folder", state, "S(0)", mesh="x=2", force=True)
        read = reshard.open_checkpoint(tmp_path / "folder")
        assert all(np.array_equal(read.read(name), np.full(1000, float(name))) for name in state)


def test_new_tensors_are_on_the_cpu() -> None:
    with torch.device("meta"):
        shards = HALF.shard_all(ONE)
    assert all(shard.device.type == "cpu" for shard in shards)
    assert torch.equal(HALF.assemble(shards), ONE)
