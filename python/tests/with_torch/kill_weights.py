"""Kills or stops a rank at a random time of repeated transfers of weights, and compares the weights of all servers.

    python kill_weights.py [SEED SECONDS]

After each fault every other rank has raised an error that names the failed one, and every server has the weights of
one epoch, whole. Prints the number of faults by signal, and of those after which ranks are at different epochs: the
fault was within the agreement.
"""

import os
import random
import signal
import sys
import threading
import time
from collections import Counter

from ranks import Ranks


def updated(rank: int, commit: str, victim: int, milliseconds: int, fault: signal.Signals) -> tuple[int | None, int | None]:
    """Sends weights until a rank has gone; returns the epoch of this rank's weights, and the rank that the error names."""
    import test_weights

    from reshard import EngineError

    state, held = test_weights.source(rank, 1), test_weights.target(rank)
    spare = test_weights.target(rank) if commit == "swap" else None
    sync = test_weights.synced(rank, source=state, target=held, spare=spare, commit=commit, max_bytes=700)
    sync()

    def end() -> None:
        time.sleep(milliseconds / 1000)
        os.kill(os.getpid(), fault)

    if rank == victim:
        threading.Thread(target=end, daemon=True).start()
    try:
        while True:
            # The weights of epoch 1, 2, 3, .. are those of version 1, 3, 1, ..
            test_weights.update(rank, state, _version((sync.epoch or 0) + 1))
            sync()
    except EngineError as error:
        if rank >= 4:
            test_weights.check(rank, sync.target, _version(sync.epoch or 0))
        return sync.epoch, error.rank


def _version(epoch: int) -> int:
    return 1 if epoch == 1 else 1 + epoch % 3


def main(seed: int = 1, seconds: float = 60) -> None:
    import kill_weights

    drawn, end, differ = random.Random(seed), time.monotonic() + seconds, 0
    runs: Counter[signal.Signals] = Counter()
    while time.monotonic() < end:
        commit, victim, milliseconds = drawn.choice(["all", "swap"]), drawn.randrange(8), drawn.randrange(300)
        # A stopped rank takes the group's timeout.
        fault = signal.SIGSTOP if drawn.randrange(5) == 0 else signal.SIGKILL
        ranks = Ranks(8, timeout_seconds=5)
        ended = threading.Timer(40, ranks.processes[victim].kill) if fault is signal.SIGSTOP else None
        if ended is not None:
            ended.start()
        try:
            ranks.run(kill_weights.updated, commit, victim, milliseconds, fault, seconds=120)
        except AssertionError:
            pass  # the failed rank
        finally:
            ranks.close()
        alive = {rank: answer for rank, (_, answer) in ranks.answers.items() if rank != victim}
        wrong = {rank: answer for rank, answer in alive.items() if not ranks.answers[rank][0] or answer[1] != victim}
        assert not wrong, f"seed {seed}, run {runs.total()}: {commit}, {fault.name} of rank {victim} after {milliseconds} ms: {wrong}"
        runs[fault] += 1
        differ += len({epoch for epoch, _ in alive.values()}) > 1
    counts = ", ".join(f"{fault.name} {number}" for fault, number in sorted(runs.items()))
    print(f"{runs.total()} faults ({counts}), at different epochs after {differ} of them")


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, float), sys.argv[1:], strict=False)))
