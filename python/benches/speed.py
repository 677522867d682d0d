"""The duration of calls that frameworks make often, from Python: the minimum of many rounds, in microseconds.

    python python/benches/speed.py
"""

import subprocess
import sys
import timeit

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
    print(f"{'import reshard':45} {import_ms():8.2f} ms")
    mesh = reshard.Mesh("dp=2,tp=4")
    from_ = reshard.Sharding(mesh, (64, 32), "S(0),R")
    to = reshard.Sharding(mesh, (64, 32), "R,S(1)")
    planner = reshard.Planner()
    print(f"{'plan, asked for before':45} {least_us(lambda: planner.plan(from_, to, 'f32')):8.2f} us")
    never = iter([[reshard.Sharding(mesh, (64 * i, 32), text) for text in ("S(0),R", "R,S(1)")] for i in range(1, 15_001)])
    print(f"{'plan, closed form, never asked for':45} {least_us(lambda: planner.plan(*next(never), 'f32'), 1_000):8.2f} us")
    print(f"{'Sharding(...)':45} {least_us(lambda: reshard.Sharding(mesh, (64, 32), 'S(0),R')):8.2f} us")
    layout = reshard.Layout("((4,2),8):((1,16),2)")
    print(f"{'L(i)':45} {least_us(lambda: layout(5)):8.2f} us")
    plan = planner.plan(from_, to, "f32")
    print(f"{'calls of one rank, 8 ranks':45} {least_us(lambda: plan.calls(3), 500):8.2f} us")
    mesh = reshard.Mesh("dp=8,tp=64")
    plan = planner.plan(reshard.Sharding(mesh, (4096, 4096), "S(0),R"), reshard.Sharding(mesh, (4096, 4096), "R,S(1)"), "bf16")
    print(f"{'calls of one rank, 512 ranks':45} {least_us(lambda: plan.calls(3), 200):8.2f} us")
    plan = planner.plan(reshard.Sharding(mesh, (4096, 4096), "S(0),S(0)"), reshard.Sharding(mesh, (4096, 4096), "S(1),S(1)"), "bf16")
    offers = reshard.FrameworkGroups({"all": list(range(512))})
    print(f"{'calls of one rank, all-to-all of all 512':45} {least_us(lambda: plan.calls(3, offers), 200):8.2f} us")
    print(f"{'the same as messages, where no group is there':45} {least_us(lambda: plan.calls(3), 200):8.2f} us")


if __name__ == "__main__":
    main()
