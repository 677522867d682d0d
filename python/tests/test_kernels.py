"""Every kernel over arrays of NumPy equals the reference, on whole tensors and on shards."""

import numpy as np
import pytest

import reshard
from reshard import Op, ReshardError, _kernels
from reshard._reshard import local_call

ARGUMENTS = [
    {}, {"dim": 1}, {"dim": -1}, {"dims": [0]}, {"dims": [0, -1], "keepdim": True}, {"dims": [1, 0]}, {"value": 1.5}, {"exponent": 3},
    {"shape": [4, 3]}, {"shape": [12]}, {"shape": [2, 3, 4]}, {"dim0": 0, "dim1": 1}, {"lr": 0.5}, {"dim": 0, "sizes": [3, 1]},
]
SHAPES = [[], [(3, 4)], [(3, 4), (3, 4)], [(3, 4), (4,)], [(3, 4)] * 3, [(3, 4), (4, 5)], [(2, 3, 4), (2, 4, 5)], [(3, 4), (4,)], [(4,), (4,)], [(4,), (5,)], [(1, 4)], [(3, 1)]]


def calls(name):
    """Yields the calls of the op among all combinations of shapes and arguments."""
    for shapes in SHAPES:
        for arguments in ARGUMENTS:
            try:
                yield Op(name, shapes, **arguments)
            except ReshardError:
                continue


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", sorted(_kernels.KERNELS))
def test_a_kernel_is_the_reference(name, dtype):
    rng, run, compared = np.random.default_rng(1), _kernels.runner(), 0
    for op in calls(name):
        arrays = [(rng.integers(-40, 40, size=s) / 16 + 1 / 64).astype(dtype) for s in op.inputs]
        if name == "where":
            arrays[0] = arrays[0] > 0
        call = local_call(str(op), [a.shape for a in arrays], [a.dtype for a in arrays])
        try:
            truth = call.reference(*arrays)
        except ReshardError:
            with pytest.raises((ReshardError, ValueError)):
                run(call, arrays)
            continue
        made = run(call, arrays)
        assert len(made) == len(truth)
        for mine, reference in zip(made, truth, strict=True):
            assert np.shape(mine) == reference.shape
            np.testing.assert_allclose(mine, reference, rtol=2e-6 if dtype == "f4" else 1e-12, atol=1e-6 if dtype == "f4" else 1e-12)
        compared += 1
    assert compared > 0, "no call of it was tried"


@pytest.mark.parametrize("placed", ["S(0)", "S(1)", "R"])
@pytest.mark.parametrize("name", sorted(_kernels.KERNELS))
def test_a_kernel_on_shards_is_the_kernel_on_the_whole(name, placed):
    rng = np.random.default_rng(1)
    for op in calls(name):
        if not op.inputs or name == "where":
            continue
        graph = reshard.Graph("tp=2")
        inputs = {}
        for n, shape in enumerate(op.inputs):
            at = placed if placed == "R" or int(placed[2]) < len(shape) else "R"
            graph.input(f"x{n}", "f64", shape, at)
            inputs[f"x{n}"] = rng.normal(size=shape) ** 2 + 0.1
        made = graph.apply(str(op), list(inputs))
        try:
            program = graph.solve()
            one = program.on_one_device(inputs)
        except ReshardError:
            continue
        ranks = program.on_ranks(inputs)
        for value in made:
            np.testing.assert_allclose(ranks.whole(value), one[value], rtol=1e-12, atol=1e-12, err_msg=str(op))
