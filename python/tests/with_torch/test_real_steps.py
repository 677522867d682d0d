"""The benchmark of real steps: one of them has equal results under `planned`, and the calls and bytes of the published table."""

import json
import pathlib
import sys
from typing import Any

from definition import device_mesh
from ranks import Ranks

ROOT = pathlib.Path(__file__).parents[3]
sys.path.append(str(ROOT / "python/benches"))


def measured(rank: int, name: str) -> dict[str, Any]:
    from real_steps import measured

    return measured(name, device_mesh((2, 2), ("a", "b")), 1, "lo")


def test_a_step_is_equal_with_the_published_bytes(four: Ranks) -> None:
    rows = four.run(measured, "mlp_stationary")
    lines = (ROOT / "benches/results/real_steps.jsonl").read_text().splitlines()
    # The table has the last run of a step.
    details = [row["details"] for row in map(json.loads, lines) if "details" in row]
    published = [row for row in details if (row["step"], row["mesh"], row["best"]) == ("mlp_stationary", [2, 2], False)][-1]
    for row in rows:
        assert row["worst_difference"] == 0 and row["by_pytorch"] == {}
        for of in ("pytorch_calls", "planned_calls", "pytorch_received", "planned_received"):
            assert row[of] == published[of], of
    assert published["planned_received"] < published["pytorch_received"]
