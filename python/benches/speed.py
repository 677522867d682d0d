"""The duration of calls that frameworks make often, from Python: the minimum of many rounds, in microseconds.

    python python/benches/speed.py

With RESHARD_WRITE=1 it writes benches/results/speed.jsonl.
"""

import pathlib
import platform
import subprocess
import sys
import timeit

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from results import header, measured, write

import reshard


def least_us(what: object, number: int = 2_000) -> float:
    """Returns the minimum duration of one call over 15 rounds."""
    return min(timeit.repeat(what, number=number, repeat=15)) / number * 1e6  # type: ignore[arg-type]


def import_ms() -> float:
    """Returns the milliseconds that `import reshard` adds to a start of Python, by Python's import times."""
    took = []
    for _ in range(15):
        done = subprocess.run([sys.executable, "-I", "-X", "importtime", "-c", "import reshard"], capture_output=True, text=True, check=True)
        took.append(int(done.stderr.strip().splitlines()[-1].split("|")[1]) / 1e3)
    return min(took)


def main() -> None:
    """Prints a line for each bench."""
    lines = []

    def row(what: str, value: float, most: float | None, unit: str = "us") -> None:
        print(f"{what:60} {value:8.2f} {unit}")
        lines.append(measured(what, value, unit, limit=None if most is None else f"ours <= {most:g}"))

    run = header("speed", "python python/benches/speed.py", "frameworks.md", Python=platform.python_version())
    row("`import reshard`", import_ms(), 10, "ms")
    mesh = reshard.Mesh("dp=2,tp=4")
    from_ = reshard.Sharding(mesh, (64, 32), "S(0),R")
    to = reshard.Sharding(mesh, (64, 32), "R,S(1)")
    planner = reshard.Planner()
    row("Python: a cached plan", least_us(lambda: planner.plan(from_, to, "f32")), 5)
    never = iter([[reshard.Sharding(mesh, (64 * i, 32), text) for text in ("S(0),R", "R,S(1)")] for i in range(1, 15_001)])
    row("Python: a plan in closed form, uncached", least_us(lambda: planner.plan(*next(never), "f32"), 1_000), 5)
    row("Python: `Sharding(..)` on an existing mesh", least_us(lambda: reshard.Sharding(mesh, (64, 32), "S(0),R")), None)
    layout = reshard.Layout("((4,2),8):((1,16),2)")
    row("Python: `layout(i)`", least_us(lambda: layout(5)), None)
    plan = planner.plan(from_, to, "f32")
    row("Python: `plan.calls(rank)`, 8 ranks", least_us(lambda: plan.calls(3), 500), 15)
    mesh = reshard.Mesh("dp=8,tp=64")
    plan = planner.plan(reshard.Sharding(mesh, (4096, 4096), "S(0),R"), reshard.Sharding(mesh, (4096, 4096), "R,S(1)"), "bf16")
    row("Python: `plan.calls(rank)`, 512 ranks", least_us(lambda: plan.calls(3), 200), 40)
    plan = planner.plan(reshard.Sharding(mesh, (4096, 4096), "S(0),S(0)"), reshard.Sharding(mesh, (4096, 4096), "S(1),S(1)"), "bf16")
    offers = reshard.FrameworkGroups({"all": list(range(512))})
    row("Python: `plan.calls(rank, offers)`, one all-to-all of 512 ranks", least_us(lambda: plan.calls(3, offers), 200), 40)
    row("Python: the same as 1,023 messages", least_us(lambda: plan.calls(3), 200), None)
    write(run, lines)


if __name__ == "__main__":
    main()
