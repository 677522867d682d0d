"""The package and the command line give equal answers: 2,000 lines of plans and of shardings, as JSON."""

import json
import random
import subprocess
import sys

import reshard
from reshard import Sharding

MESHES = ["x=4", "dp=2,tp=4", "a=2,b=2,c=2", "dp=3,tp=2"]
WORDS = ["R", "S(0)", "S(1)", "S(2)", "P", "SS(0,2)", "Z(1)"]


def questions(count: int) -> list[tuple[str, list[int], str, str]]:
    """Returns meshes, shapes and two lists of placements, some of them invalid."""
    drawn = random.Random(5)
    made = []
    for _ in range(count):
        mesh = drawn.choice(MESHES)
        placed = [",".join(drawn.choice(WORDS) for _ in mesh.split(",")) for _ in range(2)]
        made.append((mesh, [drawn.choice([1, 3, 4, 8, 12, 17]) for _ in range(drawn.choice([2, 2, 3]))], *placed))
    return made


def command_line(subcommand: str, lines: list[dict[str, object]]) -> list[dict[str, object]]:
    """Returns the answers of one process to many lines."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "reshard", subcommand, "--batch"], input=text, capture_output=True, text=True, timeout=300
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_plans_are_those_of_the_command_line() -> None:
    asked = questions(2_000)
    lines: list[dict[str, object]] = [
        {"mesh": mesh, "shape": shape, "from": before, "to": after} for mesh, shape, before, after in asked
    ]
    answers = command_line("plan", lines)
    assert len(answers) == len(asked)
    refused = 0
    for (mesh, shape, before, after), answer in zip(asked, answers, strict=True):
        try:
            plan = reshard.plan(Sharding(mesh, shape, before), Sharding(mesh, shape, after), "f32")
        except reshard.ReshardError as error:
            refused += 1
            assert answer["error"] == {"kind": error.kind, "message": str(error)}
            continue
        assert "error" not in answer, (mesh, shape, before, after, answer)
        assert answer["received_bytes"] == plan.received_bytes
        assert answer["lower_bound_bytes"] == plan.lower_bound_bytes
        assert answer["cost_us"] == plan.cost_us
        assert len(answer["steps"]) == len(plan.steps)  # type: ignore[arg-type]
    assert 0 < refused < 1_800
