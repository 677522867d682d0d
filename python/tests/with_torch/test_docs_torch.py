"""Every example of docs/torch.md and docs/audit.md runs on eight ranks and prints the page's output on rank 0.

So does docs/transfer.md, by itself.

With `RESHARD_WRITE=1` this updates the page.
"""

import contextlib
import io
import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

from ranks import Ranks

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"
TRANSFER = DOCS / "transfer.md"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)


def printed(rank: int, blocks: list[str]) -> list[str]:
    """Runs the blocks in one namespace, and returns the output of each."""
    names: dict[str, object] = {"__name__": "__main__"}
    made = []
    for code in blocks:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "example.py", "exec"), names)
        made.append("\n".join(line.rstrip() for line in out.getvalue().splitlines()))
    return made


@pytest.mark.parametrize(("name", "count", "first"), [("torch.md", 6, 5), ("audit.md", 2, 20)])
def test_examples_run_and_print_what_is_said(eight: Ranks, name: str, count: int, first: int) -> None:
    path = DOCS / name
    page = path.read_text()
    blocks = [code for code, _ in BLOCK.findall(page)]
    assert len(blocks) >= count and len(blocks[0].splitlines()) == first
    texts = iter(eight.run(printed, blocks)[0])

    def written(block: re.Match[str]) -> str:
        text = next(texts)
        return f"```python\n{block[1]}```\n" + (f"\n```text\n{text}\n```\n" if text else "")

    made = BLOCK.sub(written, page)
    if os.environ.get("RESHARD_WRITE"):
        path.write_text(made)
        page = made
    assert made == page, f"docs/{name} is out of date; RESHARD_WRITE=1 updates it"


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
