"""Raw results of a benchmark program: `benches/results/NAME.jsonl`, from which `make figures` renders the table.

`scripts/figures.py` documents the fields. A program writes only if RESHARD_WRITE is set: a usual run must not change the
working tree.
"""

import datetime
import json
import os
import pathlib
import platform
import subprocess
from collections.abc import Iterable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]


def processor() -> str:
    """Returns the name of this machine's processor."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        return next((line.split(": ", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def header(program: str, command: str, page: str, **versions: str) -> dict[str, Any]:
    """Returns the first line of a run that begins now."""
    done = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    versions = {"commit": done.stdout.strip()} | versions
    return {
        "program": program, "command": command, "page": page, "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "machine": processor(),
        "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2), "versions": versions,
    }  # fmt: skip


def measured(what: str, ours: float | None, unit: str, peer: tuple[str, float] | None = None, limit: str | None = None) -> dict[str, Any]:
    """Returns the line of one measurement."""
    line: dict[str, Any] = {"what": what, "ours": ours if ours is None else float(f"{ours:.4g}"), "unit": unit}
    if peer is not None:
        line |= {"peer": float(f"{peer[1]:.4g}"), "peer_name": peer[0]}
    return line if limit is None else line | {"limit": limit}


def write(run: dict[str, Any], lines: Iterable[dict[str, Any]], also: bool = False) -> None:
    """Writes a run if RESHARD_WRITE is set: instead of the earlier runs of the program, or after them."""
    if "RESHARD_WRITE" in os.environ:
        with open(ROOT / f"benches/results/{run['program']}.jsonl", "a" if also else "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in [run, *lines])
