"""Registered rules pass PyTorch's validator and this library's, and ops of DTensors use them."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

from definition import device_mesh, dtensor, whole_of
from ranks import Ranks
from reshard import ReshardError, OpTable, Verifier
from reshard.torch import OPS, rules
from reshard.torch.rules import _overload, by_name, is_known, op_of, strategies


def numbers(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def indices(below: int, size: int) -> torch.Tensor:
    return torch.randperm(below, generator=torch.Generator().manual_seed(3))[:size]


# Calls of each op: positional arguments in PyTorch's order, and keyword arguments.
CALLS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "_cdist_forward": [((numbers(2, 4, 6), numbers(2, 6, 6, seed=2), p, None), {}) for p in (1.0, 2.0)],
    "addbmm": [((numbers(4, 8), numbers(2, 4, 6), numbers(2, 6, 8)), {})],
    "col2im": [((numbers(2, 16, 9), [6, 6], [2, 2], [1, 1], [0, 0], [2, 2]), {})],
    "im2col": [((numbers(2, 4, 6, 6), [2, 2], [1, 1], [0, 0], [2, 2]), {})],
    "renorm": [((numbers(4, 6), 2, 0, 1.0), {})],
    "scatter_reduce.two": [((numbers(4, 6), 1, torch.zeros(4, 6, dtype=torch.int64), numbers(4, 6, seed=2), how), {}) for how in ("sum", "amax")],
    "searchsorted.Tensor": [((numbers(8).sort().values, numbers(4, 6)), {})],
    "unfold": [((numbers(4, 6), 1, 2, 2), {})],
}
# Ops whose inputs are indices or sorted, which the validator does not know. The property tests of the table
# cover their rules.
OF_THEIR_OWN = {"scatter_reduce.two", "searchsorted.Tensor"}


def validated() -> None:
    """Validates every strategy of every call by PyTorch's own validator, in a process with its own groups."""
    import torch.distributed as dist
    from torch.distributed._local_tensor import LocalTensorMode
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor._ops.strategy_validation import validate_aten_combination
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    mesh = init_device_mesh("cpu", (2,))
    tried = 0
    table = OpTable.standard()
    for name, calls in CALLS.items():
        overload = _overload(name)
        assert not is_known(overload), f"DTensor has a rule for {name} now: leave it out"
        sharded = 0
        for args, kwargs in calls:
            truth = overload(*args, **kwargs)
            found = strategies(overload, OPS[name], table, args, kwargs)
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
    assert list(CALLS) == list(OPS)
    made = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=900, check=False)
    assert made.returncode == 0, made.stderr[-3000:]
    assert int(made.stdout.split()[-1]) > 25


def test_every_rule_is_tried_by_ours() -> None:
    for name, calls in CALLS.items():
        if name in OF_THEIR_OWN:
            continue
        overload, ours = _overload(name), OPS[name]
        for args, kwargs in calls:

            def kernel(*arrays: np.ndarray) -> Any:
                left = iter(arrays)
                made = overload(*(torch.tensor(next(left)) if isinstance(one, torch.Tensor) else one for one in args), **kwargs)
                return tuple(np.asarray(one) for one in made) if isinstance(made, tuple) else np.asarray(made)

            op = op_of(overload, ours, OpTable.standard(), by_name(overload, args, kwargs))
            assert op is not None, name
            assert Verifier(name, kernel, tolerance=1e-9).failing(op) == [], name


def by_rules(rank: int) -> list[str]:
    mesh = device_mesh((2, 4), ("dp", "tp"))
    matrix = whole_of((16, 8))
    rows = dtensor(matrix, [Shard(0), Replicate()], mesh)
    for call in (lambda: rows.unfold(1, 2, 2), lambda: torch.renorm(rows, 2, 0, 1.0)):
        with pytest.raises(NotImplementedError, match="does not have a sharding strategy"):
            call()
    made = rules()
    assert [one.op for one in made] == list(OPS.values())
    assert rules() == []  # they are registered by now
    windows = rows.unfold(1, 2, 2)
    assert isinstance(windows, DTensor) and tuple(windows.placements) == (Shard(0), Replicate())
    assert torch.equal(windows.full_tensor(), matrix.unfold(1, 2, 2))
    normed = torch.renorm(rows, 2, 0, 1.0)
    assert tuple(normed.placements) == (Shard(0), Replicate())
    torch.testing.assert_close(normed.full_tensor(), torch.renorm(matrix, 2, 0, 1.0))
    batch = whole_of((8, 4, 4)) / 128
    cut = dtensor(batch, [Shard(0), Replicate()], mesh)
    sums = torch.addbmm(dtensor(torch.zeros(4, 4), [Replicate(), Replicate()], mesh), cut, cut)
    torch.testing.assert_close(sums.full_tensor(), torch.addbmm(torch.zeros(4, 4), batch, batch))
    return [one.op for one in made]


def rejected(rank: int) -> None:
    """An op that cannot have a rule is an error, and then no other name is registered either."""
    table = OpTable.standard()
    for name in ["nonzero", "masked_select", "unique_consecutive", "bincount", "repeat_interleave.Tensor"]:
        assert name.partition(".")[0] in table, "the table has its rule, so that only its shape is the reason"
        with pytest.raises(ReshardError, match=f"the shape of aten::{name}'s result depends on data"):
            rules(names=["renorm", name])
    assert not is_known(_overload("renorm"))
    with pytest.raises(ReshardError, match="PyTorch has no aten::nothing"):
        rules(names=["nothing"])
    with pytest.raises(ReshardError, match="the table has no op renorm"):
        rules(OpTable.empty(), ["renorm"])


def test_ops_of_dtensors_go_by_them() -> None:
    # Registered rules stay, so this test has separate ranks.
    ranks = Ranks(8)
    try:
        ranks.run(rejected)
        ranks.run(by_rules)
    finally:
        ranks.close()


if __name__ == "__main__":
    validated()
