"""Ranks as processes over gloo, started once for all tests: a test is a function that every rank runs."""

import importlib
import multiprocessing
import os
import pathlib
import socket
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

HERE = str(pathlib.Path(__file__).parent)


class Ranks:
    """`size` processes that have initialised gloo, and run the given functions."""

    def __init__(self, size: int, timeout_seconds: float = 60) -> None:
        self.size, self.broken = size, False
        self.answers: dict[int, Any] = {}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        # Slow imports are done once, in a process that has no threads yet.
        start = multiprocessing.get_context("forkserver")
        start.set_forkserver_preload(["torch", "torch.distributed.fsdp", "torch.distributed.checkpoint", "torch._dynamo", "reshard.torch"])
        self.pipes, self.processes = [], []
        for rank in range(size):
            ours, theirs = start.Pipe()
            process = start.Process(target=_serve, args=(rank, size, port, theirs, timeout_seconds), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def run(self, function: Callable[..., Any], *arguments: Any, seconds: float = 300) -> list[Any]:
        """Runs `function(rank, *arguments)` on all ranks; returns the results, or raises the first error."""
        assert not self.broken, "ranks have failed before, and their groups may be out of step"
        for pipe in self.pipes:
            pipe.send((function.__module__, function.__qualname__, arguments))
        answers: dict[int, Any] = {}
        while len(answers) < self.size:
            ready = wait([pipe for rank, pipe in enumerate(self.pipes) if rank not in answers], timeout=seconds)
            assert ready, f"ranks {sorted(set(range(self.size)) - set(answers))} have not answered in {seconds} s"
            for pipe in ready:
                try:
                    answer = pipe.recv()  # type: ignore[union-attr]
                except EOFError:
                    answer = (False, "it has died")
                answers[self.pipes.index(pipe)] = answer  # type: ignore[arg-type]
        self.answers = answers
        self.broken = not all(answer[0] for answer in answers.values())
        failed = [rank for rank in range(self.size) if not answers[rank][0]]
        # A rank whose peer has failed is not the cause of the failure.
        failed.sort(key=lambda rank: any(word in answers[rank][1] for word in ("closed by peer", "Timed out", "pair closure")))
        assert not failed, f"ranks {failed} failed, rank {failed[0]} with {answers[failed[0]][1]}"
        return [answers[rank][1] for rank in range(self.size)]

    def close(self) -> None:
        """Ends the processes."""
        for pipe in self.pipes:
            try:
                pipe.send(None)
            except OSError:
                pass  # it has died
        for process in self.processes:
            process.join(1 if self.broken else 20)
            if process.is_alive():
                process.kill()


def _serve(rank: int, size: int, port: int, pipe: Any, timeout_seconds: float) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    sys.path.insert(0, HERE)
    import datetime
    import logging
    import warnings

    import torch
    import torch.distributed as dist

    warnings.filterwarnings("ignore")
    logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size, timeout=datetime.timedelta(seconds=timeout_seconds))
    try:
        while (asked := pipe.recv()) is not None:
            module, name, arguments = asked
            try:
                function = importlib.import_module(module)
                for part in name.split("."):
                    function = getattr(function, part)
                pipe.send((True, function(rank, *arguments)))
            except BaseException:
                pipe.send((False, traceback.format_exc()))
    finally:
        dist.destroy_process_group()
