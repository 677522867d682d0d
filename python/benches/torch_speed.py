"""DTensor's redistributions by plans and by PyTorch, in turns: host time of a slice, and four gloo ranks.

    python python/benches/torch_speed.py

With RESHARD_WRITE=1 it writes benches/results/torch_speed.jsonl.
"""

import pathlib
import statistics
import sys
import time
from typing import Any

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent / "tests/with_torch")]

from results import header, measured, write

PAIRS = ["S0,S1 S1,S0", "R,S1 S0,S0", "S0,S0 R,R", "P,P R,R", "S0,R S1,R", "P,S0 S0,S0", "S0,S1 R,R", "S1,S0 S1,R"]


def placements(text: str) -> list[Any]:
    from torch.distributed.tensor import Partial, Replicate, Shard

    return [{"R": Replicate(), "P": Partial()}.get(word) or Shard(int(word[1])) for word in text.split(",")]


def timed(rank: int, side: int, repeats: int, between: int) -> list[tuple[float, float]]:
    """Returns the seconds of each pair, by PyTorch and by a plan.

    Each is the median of turns with `between` redistributions in sequence between two barriers.
    """
    import contextlib

    import torch
    import torch.distributed as dist

    from definition import device_mesh, dtensor
    from reshard.torch import planned

    mesh = device_mesh((2, 2), ("x", "y"))
    whole = torch.ones(side, side)
    plans = planned(strict=True)
    found = []
    for pair in PAIRS:
        before, after = map(placements, pair.split())
        given = dtensor(whole, before, mesh)
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(2 * repeats + 4):
            with plans if turn % 2 else contextlib.nullcontext():
                dist.barrier()
                start = time.perf_counter()
                for _ in range(between):
                    given.redistribute(placements=after)
                dist.barrier()
                if turn >= 4:
                    times[turn % 2].append((time.perf_counter() - start) / between)
        found.append((statistics.median(times[0]), statistics.median(times[1])))
    return found


def host(rank: int) -> tuple[float, float]:
    """Returns the processor seconds of a slice, which does not communicate, by PyTorch and by a plan."""
    import contextlib

    import torch

    from definition import device_mesh, dtensor
    from reshard.torch import planned

    mesh = device_mesh((2, 2), ("x", "y"))
    given = dtensor(torch.ones(64, 64), placements("R,R"), mesh)
    after = placements("S0,S1")
    best = []
    for context in (contextlib.nullcontext(), planned(strict=True)):
        with context, torch.no_grad():
            rounds = []
            for _ in range(20):
                start = time.process_time()
                for _ in range(100):
                    given.redistribute(placements=after)
                rounds.append((time.process_time() - start) / 100)
        best.append(min(rounds))
    return best[0], best[1]


def main() -> None:
    import torch
    from ranks import Ranks

    run = header("torch_speed", "python python/benches/torch_speed.py", "frameworks.md", PyTorch=torch.__version__)

    ranks = Ranks(4)
    own, ours = map(min, zip(*ranks.run(host), strict=True))
    print(f"host time of a slice: PyTorch {own * 1e6:.0f} us, by a plan {ours * 1e6:.0f} us")
    lines = [measured("host time of `R,R -> S(0),S(1)` of a DTensor", ours * 1e6, "us", ("PyTorch", own * 1e6))]
    # A barrier takes 2 to 3 ms where four processes share two cores, as long as a small redistribution.
    for title, side, repeats, between in [("16 KiB", 64, 20, 16), ("16 MiB", 2048, 5, 8)]:
        answers = ranks.run(timed, side, repeats, between)[0]
        for pair, (theirs, by_plan) in zip(PAIRS, answers, strict=True):
            print(f"{title} {pair.replace(' ', ' -> '):22} PyTorch {theirs * 1e3:8.2f} ms, by a plan {by_plan * 1e3:8.2f} ms, x{theirs / by_plan:.2f}")
            lines.append(measured(f"{title} of f32 on 2x2 over gloo, `{pair.replace(' ', ' -> ')}`", by_plan * 1e3, "ms", ("PyTorch", theirs * 1e3)))
        ratios = [a / b for a, b in answers]
        print(f"{title}: geometric mean x{statistics.geometric_mean(ratios):.2f}, mean x{statistics.mean(ratios):.2f}")
    ranks.close()
    write(run, lines)


if __name__ == "__main__":
    main()
