"""The rules that are registered are tried by PyTorch's validator and by ours, and ops of DTensors go by them."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

from definition import device_mesh, dtensor, whole_of
from ranks import Ranks
from reshard import ReshardError, Table, Verifier
from reshard.torch import OPS, rules
from reshard.torch.rules import _overload, by_name, is_known, op_of, strategies


def numbers(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def indices(below: int, size: int) -> torch.Tensor:
    return torch.randperm(below, generator=torch.Generator().manual_seed(3))[:size]


# A call of each op: arguments in PyTorch's order, and those by name.
CALLS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "addbmm": [((numbers(4, 8), numbers(2, 4, 6), numbers(2, 6, 8)), {})],
    "addmv": [((numbers(4), numbers(4, 6), numbers(6)), {})],
    "addr": [((numbers(4, 6), numbers(4), numbers(6)), {})],
    "aminmax": [((numbers(4, 6),), {"dim": 1}), ((numbers(4, 6),), {})],
    "binary_cross_entropy": [((numbers(4, 6).sigmoid(), numbers(4, 6, seed=2).sigmoid(), None, how), {}) for how in (0, 1, 2)],
    "binary_cross_entropy_with_logits": [((numbers(4, 6), numbers(4, 6, seed=2).sigmoid(), None, None, how), {}) for how in (0, 1, 2)],
    "channel_shuffle": [((numbers(2, 8, 2, 2), 2), {})],
    "complex": [((numbers(4, 6), numbers(4, 6, seed=2)), {})],
    "count_nonzero.dim_IntList": [((numbers(4, 6).relu(), [1]), {})],
    "dist": [((numbers(4, 6), numbers(4, 6, seed=2)), {"p": 1})],
    "floor_divide": [((numbers(4, 6), numbers(4, 6, seed=2)), {})],
    "glu": [((numbers(4, 8), 1), {}), ((numbers(4, 8), 0), {})],
    "hardswish": [((numbers(4, 6),), {})],
    "huber_loss": [((numbers(4, 6), numbers(4, 6, seed=2), how), {}) for how in (0, 1, 2)],
    "index_add": [((numbers(4, 6), 1, indices(6, 2), numbers(4, 2, seed=2)), {})],
    "index_copy": [((numbers(4, 6), 1, indices(6, 2), numbers(4, 2, seed=2)), {})],
    "mse_loss": [((numbers(4, 6), numbers(4, 6, seed=2), how), {}) for how in (0, 1, 2)],
    "mv": [((numbers(4, 6), numbers(6)), {})],
    "pixel_shuffle": [((numbers(2, 8, 4, 4), 2), {})],
    "pixel_unshuffle": [((numbers(2, 2, 4, 4), 2), {})],
    "polar": [((numbers(4, 6), numbers(4, 6, seed=2)), {})],
    "smooth_l1_loss": [((numbers(4, 6), numbers(4, 6, seed=2), how), {}) for how in (0, 1, 2)],
    "soft_margin_loss": [((numbers(4, 6), numbers(4, 6, seed=2), how), {}) for how in (0, 1, 2)],
    "trace": [((numbers(4, 4),), {})],
    "vdot": [((numbers(6), numbers(6, seed=2)), {})],
}


def validated() -> None:
    """Every strategy of every call, by the validator that PyTorch has for its own rules; run by itself, for it wants groups of its own."""
    import torch.distributed as dist
    from torch.distributed._local_tensor import LocalTensorMode
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor._ops.strategy_validation import validate_aten_combination
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    mesh = init_device_mesh("cpu", (2,))
    tried = 0
    table = Table.standard()
    for name, calls in CALLS.items():
        overload = _overload(name)
        assert not is_known(overload), f"DTensor has a rule for {name} now: leave it out"
        sharded = 0
        for args, kwargs in calls:
            truth = overload(*args, **kwargs)
            found = strategies(overload, name.partition(".")[0], table, args, kwargs)
            for results, inputs in found:
                sharded += any(isinstance(one, Shard) for one in inputs)
                combination = (tuple(one for one in inputs if one is not None), tuple(results))
                with LocalTensorMode(frozenset(range(2))):
                    is_right, why = validate_aten_combination(
                        overload, args, kwargs, truth if isinstance(truth, torch.Tensor) else list(truth), combination, 2, mesh
                    )
                assert is_right, f"{name}: {combination}: {why}"
                tried += 1
        assert sharded, f"{name} is only replicated"
    print(tried)


def test_every_rule_is_tried_by_pytorchs_validator() -> None:
    assert set(CALLS) == set(OPS)
    made = subprocess.run([sys.executable, "-P", __file__], capture_output=True, text=True, timeout=280, check=False)
    assert made.returncode == 0, made.stderr[-3000:]
    assert int(made.stdout.split()[-1]) > 100


def test_every_rule_is_tried_by_ours() -> None:
    for name, calls in CALLS.items():
        if name in ("complex", "polar", "index_add", "index_copy", "binary_cross_entropy"):
            continue  # complex results, inputs that are indices or probabilities: the laws of the table try them
        overload, ours = _overload(name), name.partition(".")[0]
        for args, kwargs in calls:

            def kernel(*arrays: np.ndarray) -> Any:
                left = iter(arrays)
                made = overload(*(torch.tensor(next(left)) if isinstance(one, torch.Tensor) else one for one in args), **kwargs)
                return tuple(np.asarray(one) for one in made) if isinstance(made, tuple) else np.asarray(made)

            op = op_of(overload, ours, Table.standard(), by_name(overload, args, kwargs))
            assert op is not None, name
            assert Verifier(name, kernel, tolerance=1e-9).failing(op) == [], name


def by_rules(rank: int) -> list[str]:
    mesh = device_mesh((2, 4), ("dp", "tp"))
    matrix, vector = whole_of((16, 8)), whole_of((8,), seed=1)
    placed = dtensor(matrix, [Shard(0), Replicate()], mesh)
    replicated = dtensor(vector, [Replicate(), Replicate()], mesh)
    with pytest.raises(Exception, match="sharding strategy|mv"):
        torch.mv(placed, replicated)
    made = rules()
    assert {one.op for one in made} == {name.partition(".")[0] for name in OPS}
    assert rules() == []  # now they are known
    product = torch.mv(placed, replicated)
    assert isinstance(product, DTensor) and tuple(product.placements) == (Shard(0), Replicate())
    assert torch.equal(product.full_tensor(), torch.mv(matrix, vector))
    contracted = torch.mv(dtensor(matrix, [Replicate(), Shard(1)], mesh), dtensor(vector, [Replicate(), Shard(0)], mesh))
    assert contracted.placements[1].is_partial() and torch.equal(contracted.full_tensor(), torch.mv(matrix, vector))
    assert torch.equal(torch.nn.functional.hardswish(placed).full_tensor(), torch.nn.functional.hardswish(matrix))
    low, high = torch.aminmax(placed)
    assert (low.full_tensor(), high.full_tensor()) == (matrix.min(), matrix.max())
    loss = torch.nn.functional.mse_loss(placed, dtensor(matrix + 1, [Shard(0), Replicate()], mesh))
    assert loss.full_tensor() == 1
    with pytest.raises(ReshardError, match="PyTorch has no aten::nothing"):
        rules(names=["nothing"])
    with pytest.raises(ReshardError, match="the table has no op cholesky_ex|has no op"):
        rules(Table.empty(), ["mv"])
    return [one.op for one in made]


def test_ops_of_dtensors_go_by_them(eight: Ranks) -> None:
    eight.run(by_rules)


if __name__ == "__main__":
    validated()
