"""Round trips of PyTorch's specs and this library's shardings."""

import itertools
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Placement, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta
from torch.distributed.tensor._ops._math_ops import _NormPartial
from torch.distributed.tensor.placement_types import _MaskPartial, _StridedShard

from definition import R, device_mesh, dtensor, shard, whole_of
from ranks import Ranks
from reshard import Mesh, NotRepresentable, ReshardError, Sharding
from reshard.torch import mesh, sharding, spec


def meta(shape: tuple[int, ...]) -> TensorMeta:
    return TensorMeta(torch.Size(shape), torch.empty(shape, device="meta").stride(), torch.float32)


def shards_are_what_pytorch_holds(rank: int) -> int:
    seen = 0
    over = device_mesh((2, 4), ("dp", "tp"))
    kinds: list[Placement] = [R, Shard(0), Shard(1), _StridedShard(0, split_factor=2), _StridedShard(0, split_factor=4), Partial()]
    for shape in [(16, 8), (13, 7), (1, 3), (0, 5)]:
        whole = whole_of(shape)
        for placements in itertools.product(kinds, repeat=2):
            if len({p for p in placements if isinstance(p, Partial)}) and shape[0] < 2:
                continue
            of = DTensorSpec(over, placements, tensor_meta=meta(shape), use_strided_shard_as_shard_order=False)
            ours = sharding(of)
            assert ours.local_shape(rank) == tuple(shard(whole, placements, over).shape), (placements, shape)
            held = whole.flatten()[torch.tensor(ours.global_indices(rank), dtype=torch.int64)]
            if not any(isinstance(p, Partial) for p in placements):
                assert torch.equal(held.reshape(ours.local_shape(rank)), shard(whole, placements, over)), (placements, shape)
            again = spec(ours, over, of.tensor_meta)
            assert sharding(again) == ours, (placements, shape)
            seen += 1
    return seen


def test_shards_are_what_pytorch_holds(eight: Ranks) -> None:
    assert min(eight.run(shards_are_what_pytorch_holds)) > 100


def orders_are_orders_of_axes(rank: int) -> None:
    over = device_mesh((2, 2, 2), ("a", "b", "c"))
    whole = whole_of((17, 5))
    for order in itertools.permutations(range(3)):
        entry = (ShardOrderEntry(tensor_dim=0, mesh_dims=order),)
        of = DTensorSpec(over, (Shard(0),) * 3, tensor_meta=meta((17, 5)), shard_order=entry)
        ours = sharding(of)
        assert ours.local_shape(rank) == tuple(shard(whole, of.placements, over, order).shape)
        assert spec(ours, over, of.tensor_meta) == of
    both = (ShardOrderEntry(0, (2, 0)), ShardOrderEntry(1, (1,)))
    of = DTensorSpec(over, (Shard(0), Shard(1), Shard(0)), tensor_meta=meta((17, 5)), shard_order=both)
    assert spec(sharding(of), over, of.tensor_meta) == of
    # PyTorch interprets strided shards as the order that they encode.
    strided = DTensorSpec(over, DTensorSpec._convert_shard_order_to_StridedShard(both, of.placements, over), tensor_meta=meta((17, 5)))
    assert sharding(strided) == sharding(of)


def test_orders_are_orders_of_axes(eight: Ranks) -> None:
    eight.run(orders_are_orders_of_axes)


def meshes(rank: int) -> None:
    assert mesh(device_mesh((2, 4), ("dp", "tp"))) == Mesh("dp=2,tp=4")
    assert mesh(device_mesh((8,))) == Mesh("d0=8")
    order = torch.tensor([[5, 1, 3, 0], [2, 7, 4, 6]])
    shuffled = DeviceMesh("cpu", order, mesh_dim_names=("dp", "tp"))
    assert mesh(shuffled).ranks == order.flatten().tolist()
    assert mesh(shuffled).coordinate(4) == (1, 2)
    row = device_mesh((2, 4), ("dp", "tp"))["tp"]
    assert mesh(row).ranks == [rank // 4 * 4 + i for i in range(4)]
    placed = dtensor(whole_of((16, 8)), [Shard(0), Shard(1)], device_mesh((2, 4), ("dp", "tp")))
    assert sharding(placed) == Sharding("dp=2,tp=4", (16, 8), "S(0),S(1)")


def test_meshes(eight: Ranks) -> None:
    eight.run(meshes)


def every_class(rank: int) -> None:
    """Every placement that both have is translated in both directions."""
    over = device_mesh((8,), ("x",))
    both: list[tuple[Placement, str]] = [
        (R, "R"),
        (Shard(1), "S(1)"),
        (_StridedShard(0, split_factor=2), "SS(0,2)"),
        *((Partial(theirs), f"P({ours})") for theirs, ours in [("sum", "sum"), ("avg", "avg"), ("product", "prod"), ("min", "min"), ("max", "max")]),
        *((_NormPartial(of), f"P(norm{text})") for of, text in [(1, "1"), (2.0, "2"), (2.5, "2.5"), (float("inf"), "inf")]),
    ]
    for theirs, text in both:
        of = DTensorSpec(over, (theirs,), tensor_meta=meta((16, 8)), use_strided_shard_as_shard_order=False)
        assert sharding(of) == Sharding("x=8", (16, 8), text), text
        made = spec(Sharding("x=8", (16, 8), text), over, of.tensor_meta)
        assert made.placements == (theirs,) and type(made.placements[0]) is type(theirs), text


def test_every_placement_of_both_is_translated(eight: Ranks) -> None:
    eight.run(every_class)


def refusals(rank: int) -> None:
    over = device_mesh((8,))

    def refused(kind: type[Exception], what: str, call: Any) -> None:
        with pytest.raises(kind, match=what):
            call()

    refused(NotRepresentable, "MaskPartial|MaskP", lambda: sharding(DTensorSpec(over, (_MaskPartial(),), tensor_meta=meta((8,)))))
    refused(NotRepresentable, "bor", lambda: sharding(DTensorSpec(over, (Partial("bor"),), tensor_meta=meta((8,)))))
    for exponent in (0, -1, 1e-9, 66.5, 2.00001, float("nan"), float("-inf")):
        of = DTensorSpec(over, (_NormPartial(exponent),), tensor_meta=meta((8,)))
        refused(NotRepresentable, "NormP", lambda of=of: sharding(of))
    refused(ReshardError, "no tensor_meta", lambda: sharding(DTensorSpec(over, (R,))))
    refused(ReshardError, "both need the same ranks", lambda: spec(Sharding("x=4", (8,), "S(0)"), over))
    refused(NotRepresentable, "no PyTorch placements", lambda: spec(Sharding("x=8", (16,), "Z(0)"), over))
    refused(ReshardError, "for the shape", lambda: spec(Sharding("x=8", (16,), "S(0)"), over, meta((8,))))


def test_refusals(eight: Ranks) -> None:
    eight.run(refusals)
