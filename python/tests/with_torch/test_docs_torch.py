"""Every example of docs/torch.md, docs/torch_report.md, docs/torch_parallelize.md and docs/audit.md runs on eight ranks.

It prints the page's output on rank 0.

So does docs/transfer.md, by itself.

With `RESHARD_WRITE=1` this updates the page.
"""

import pathlib
import socket
import subprocess
import sys

import pytest

from pages import BLOCK, DOCS, blocks_of, check_page
from ranks import Ranks

TRANSFER = DOCS / "transfer.md"


@pytest.mark.parametrize(("name", "count", "first"), [("torch.md", 6, 5), ("torch_report.md", 2, 20), ("torch_parallelize.md", 3, 19), ("audit.md", 2, 20)])
def test_examples_run_and_print_what_is_said(name: str, count: int, first: int) -> None:
    blocks = blocks_of(name)
    assert len(blocks) >= count and len(blocks[0].splitlines()) == first
    # New ranks: PyTorch's cached specs may have an equal device mesh of another test, with which inductor fails.
    ranks = Ranks(8)
    try:
        check_page(ranks, name)
    finally:
        ranks.close()


def test_the_program_of_the_page_on_transfers_prints_what_is_said(tmp_path: pathlib.Path) -> None:
    code, text = BLOCK.findall(TRANSFER.read_text())[0]
    assert len(code.splitlines()) < 30
    program = tmp_path / "weights.py"
    program.write_text(code.replace("29517", str(_free_port())))
    run = subprocess.run([sys.executable, "-P", str(program)], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    assert [line.rstrip() for line in run.stdout.splitlines()] == text.splitlines(), run.stdout


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
