"""Calls every public function with each wrong value for each argument: `python walk_arguments.py NOTE`.

The other arguments have the types in the stub. It prints the number of calls, and every exception that must
not reach users. Users may see `ReshardError` and `EngineError` with a kind, `TypeError`, and the exceptions
of Python's protocols.
"""

import os
import pathlib
import resource
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import attack
import numpy as np
import reshard

LONE = "a\ud800"
ONE = reshard.Sharding("x=1", (2,), "R")


def broadcast() -> Any:
    return np.lib.stride_tricks.as_strided(np.zeros(1, "f4"), (2**40,), (0,))


WRONG: list[Callable[[], Any]] = [
    *[
        (lambda value=value: value)  # type: ignore[misc]
        for value in (
            LONE, [LONE], (LONE, LONE), {LONE: 2}, {LONE: "R"}, {"w": LONE}, [(LONE, 2)], [("x", LONE)], [[LONE]], pathlib.Path(LONE), {LONE: [0, 1]},
            [("x", 2, 3)], [("x",)], [()], (1, 2, 3), ("f32", ONE, 3), {"w": ("f32", ONE, 3)}, {"w": ("f32",)}, {"w": 3}, {"w": ()}, [("f32", ONE, 3)],
            {LONE: ("f32", ONE)}, {"w": (LONE, ONE)}, 127, 128, 255, 256, 1000, -1, -129, -1000, 2**31, 2**63, -(2**63) - 1, 2**70, 10**5000,
            [1000, -1000], [2**70], [[2**70]], {"x": 2**70}, float("nan"), 1e308, 1j, b"\xff", b"abc", "\0", "f32\0",
        )
    ],
    lambda: types.SimpleNamespace(__dlpack_device__=lambda: ("cuda", 0)), lambda: types.SimpleNamespace(__dlpack_device__=lambda: (1, None)),
    lambda: types.SimpleNamespace(__dlpack_device__=lambda: (1,)), broadcast, lambda: {"x": broadcast()}, lambda: [broadcast()],
    lambda: np.zeros(3)[:0], lambda: range(10**9), lambda: [range(10**9)], lambda: {"x": range(10**9)},
]  # fmt: skip


def main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    walk = attack.Attack(1, os.open(sys.argv[1], os.O_RDWR | os.O_CREAT))
    for owner, name, parameters in walk.targets:
        # Once for each declared argument, and once for an unexpected one.
        for at, (_, asked, _, _) in enumerate(parameters):
            for make in WRONG:
                walk.with_wrong(owner, name, parameters, at, make())
        if any(kind == "double" for kind, _, _, _ in parameters):
            walk.with_wrong(owner, name, parameters, None, None, {LONE: 1})
        if len(walk.faults) > 200:
            break
    print(f"{walk.count} calls, {walk.accepted} accepted")
    print("\n".join(walk.faults))
    return 1 if walk.faults or walk.count < 20_000 else 0


if __name__ == "__main__":
    sys.exit(main())
