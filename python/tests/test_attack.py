"""Nothing that the package offers panics, crashes, hangs or fills memory, whatever it is called with.

Every callable is called with arguments that its stub says, of which one or more are exchanged for something else. Calls are drawn
from a seed, in a process of their own with 2 GiB of memory and 5 seconds for each call; what is made is an argument of later calls.
`RESHARD_ATTACK_SECONDS` makes the run longer, `RESHARD_ATTACK_SEED` another one.
"""

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
SECONDS = float(os.environ.get("RESHARD_ATTACK_SECONDS", "16"))
SEED = int(os.environ.get("RESHARD_ATTACK_SEED", "1"))


@pytest.mark.parametrize("part", range(2))
def test_nothing_panics_crashes_or_hangs(part: int, tmp_path: pathlib.Path) -> None:
    """One process for each part of the classes; what it was at is in a file, if it dies."""
    note = tmp_path / "call"
    command = [sys.executable, str(HERE / "attack.py"), str(SEED + part), str(SECONDS / 2), str(note)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=SECONDS + 60)
    last = note.read_bytes().rstrip(b"\0").decode(errors="replace") if note.exists() else ""
    assert done.returncode == 0, f"exit {done.returncode} at {last}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"


def test_a_panic_is_found(tmp_path: pathlib.Path) -> None:
    """The judge of the attack itself: what it has to refuse is refused."""
    sys.path.insert(0, str(HERE))
    import attack

    class PanicException(BaseException):
        pass

    assert attack.fault(PanicException("planted"))
    assert attack.fault(ValueError("Error { at: 3 }"))
    assert attack.fault(ValueError("no Some(3) here"))
    assert attack.fault(ValueError("x" * 5000))
    assert attack.fault(AttributeError("'reshard.Layout' object has no attribute"), known=True)
    assert not attack.fault(ValueError("a tuple nested more than 64 deep"))
