"""A training step as a function of tensors: the costs of two shardings, and that their results are equal.

    python python/examples/mlp.py
"""

from typing import Any

import numpy as np

import reshard

SHAPES = {"x": (64, 32), "w1": (32, 128), "w2": (128, 32)}
DATA_PARALLEL = {"x": "S(0),S(0)", "w1": "I,I", "w2": "I,I"}
TENSOR_PARALLEL = {"x": "S(0),R", "w1": "I,S(1)", "w2": "I,S(0)"}


def step(x: Any, w1: Any, w2: Any) -> Any:
    """Returns the loss of a small MLP, and the gradients of its weights in their optimizer's types."""
    y = reshard.relu(x @ w1) @ w2
    loss = (y * y).sum()
    return loss, *reshard.gradient(loss, [w1, w2])


def main() -> None:
    """Prints bytes and peak memory of both, and compares their results."""
    rng = np.random.default_rng(0)
    given = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    found = []
    for name, sharded in [("data parallel", DATA_PARALLEL), ("tensor parallel", TENSOR_PARALLEL)]:
        inputs = {key: ("f64", SHAPES[key], text) for key, text in sharded.items()}
        program = reshard.program(step, "dp=2,tp=2", **inputs)  # type: ignore[arg-type]
        ranks = program.on_ranks(given, kernels="numpy")
        found.append([ranks.whole(value) for value in ranks.names])
        print(f"{name:16} peak {program.report().peak_bytes:7} B, received {ranks.received_bytes:6} B")
    for one, other in zip(*found, strict=True):
        assert np.allclose(one, other)


if __name__ == "__main__":
    main()
