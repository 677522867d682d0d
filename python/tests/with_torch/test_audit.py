"""An audit sees the calls, and compares them with their bounds."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Shard

from definition import R, device_mesh, dtensor, whole_of
from ranks import Ranks
from reshard.torch import audit, planned


def seen(rank: int) -> str:
    mesh = device_mesh((2, 4), ("dp", "tp"))
    whole = whole_of((64, 32))
    with audit() as found:
        x = dtensor(whole, [Shard(0), Shard(0)], mesh)
        for _ in range(2):
            x.redistribute(placements=[Shard(1), Shard(1)])
        dtensor(whole, [Partial(), Partial()], mesh).redistribute(placements=[R, R])
        own = torch.ones(16)
        dist.all_reduce(own)
        gathered = torch.empty(8 * 16)
        dist.all_gather_into_tensor(gathered, own)
    changed, summed, plain, gather = found.moved
    assert changed.times == 2 and changed.better is not None
    # On CPUs PyTorch gathers along both axes; 7/8 of a shard would be enough.
    assert changed.bound_bytes == 64 * 32 * 4 // 8 * 7 // 8 < changed.received_bytes
    assert [call.kind for call in summed.calls] == ["all_reduce", "all_reduce"] and summed.better is not None
    assert (plain.title, plain.received_bytes) == ("all_reduce among 8", 2 * (64 // 8 * 7))
    assert (gather.title, gather.received_bytes) == ("all_gather among 8", 7 * 64)
    assert found.received_bytes > found.bound_bytes
    with audit() as by_plans, planned(strict=True):
        x.redistribute(placements=[Shard(1), Shard(1)])
    (one,) = by_plans.moved
    assert one.better is None and one.received_bytes == one.bound_bytes
    return str(found)


def test_what_is_called_beside_its_bound(eight: Ranks) -> None:
    tables = eight.run(seen)
    assert "all_reduce among 8" in tables[0]
    print(tables[0])


def training(rank: int) -> None:
    mesh = device_mesh((8,))
    model = torch.nn.Linear(64, 64, bias=False)
    fully_shard(model, mesh=mesh)
    with audit() as found:
        model(torch.randn(4, 64)).sum().backward()
    kinds = [call.kind for one in found.moved for call in one.calls]
    assert kinds.count("all_gather") >= 1 and kinds.count("reduce_scatter") == 1, kinds
    assert found.received_bytes >= 2 * 64 * 64 * 4 // 8 * 7


def test_fsdp2_is_seen(eight: Ranks) -> None:
    eight.run(training)


def of_an_op(rank: int) -> None:
    """A product with a sharded contraction, and a function of its partial result, which DTensor reduces."""
    mesh = device_mesh((8,))
    x, w = (dtensor(whole_of((16, 16)), [Shard(dim)], mesh).requires_grad_() for dim in (1, 0))
    with audit() as found:
        torch.relu(x @ w).to_local().sum().backward()
    (one,) = found.moved
    assert [call.kind for call in one.calls] == ["all_reduce"] and one.plan is not None
    assert one.title.endswith("P(sum) -> R") and one.received_bytes == 2 * (16 * 16 * 4 // 8 * 7)


def test_what_is_redistributed_for_an_op_is_seen(eight: Ranks) -> None:
    eight.run(of_an_op)


def without_groups(rank: int) -> None:
    """An op on a device mesh that has no groups, and needs none."""
    mesh = DeviceMesh("cpu", torch.arange(8).reshape(2, 4), mesh_dim_names=("a", "b"), _init_backend=False, _rank=rank)
    x = DTensor.from_local(torch.ones(4, 4), mesh, [R, Shard(0)], run_check=False)
    with audit() as found:
        y = x @ DTensor.from_local(torch.ones(4, 4), mesh, [R, R], run_check=False)
    assert y.to_local().sum() == 64 and not found.moved and not found.findings


def test_a_mesh_without_groups_is_audited(eight: Ranks) -> None:
    eight.run(without_groups)


def unusual() -> list[torch.Tensor]:
    """Tensors without strides, changed in place, resized, of transforms, and of second derivatives."""
    numbers = torch.Generator().manual_seed(0)
    x = torch.randn(4, 4, generator=numbers)
    parts = [torch.ones(2, 3), torch.ones(4, 3)]
    made = [x.to_sparse() @ x, (torch.nested.nested_tensor(parts) * 2).to_padded_tensor(0.0)]
    made.append((torch.nested.nested_tensor(parts, layout=torch.jagged) * 2).values())
    made.append(torch.vmap(lambda row: row.sin() @ row)(x))
    made.append(torch.func.jvp(torch.sin, (x,), (x,))[1])
    y = x.clone().t_().unsqueeze_(0)
    y[0, :2].zero_()
    made.append(y.add_(1))
    z = torch.ones(10)
    z.untyped_storage().resize_(0)
    z.untyped_storage().resize_(40)
    made.append(z.fill_(3))
    w = x[0].clone().requires_grad_()
    (slope,) = torch.autograd.grad((w**3).sum(), w, create_graph=True)
    slope.sum().backward()
    assert w.grad is not None
    with torch.inference_mode():
        made.append(x @ x)
    return [*made, w.grad]


def test_an_audit_changes_no_result() -> None:
    expected = unusual()
    with audit() as found:
        seen = unusual()
    assert all(torch.equal(a, b) for a, b in zip(expected, seen, strict=True))
    assert not found.moved and not found.findings
