"""Memory and nested states of every kind, with PyTorch: no crash, and only the documented errors."""

import os
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).parent.parent / "attack_buffers.py"
ROUNDS = max(1, int(os.environ.get("RESHARD_ATTACK_CALLS", "0")) // 12_500)
SEED = os.environ.get("RESHARD_ATTACK_SEED", "1")


def test_memory_and_states_of_every_kind(tmp_path: pathlib.Path) -> None:
    note = tmp_path / "call"
    command = [sys.executable, str(SCRIPT), SEED if SEED.isdigit() else "1", str(ROUNDS), str(note), "with_torch"]
    same = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=same, timeout=600)
    last = note.read_bytes().rstrip(b"\0").decode(errors="replace") if note.exists() else ""
    assert done.returncode == 0, f"exit {done.returncode} at {last}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
