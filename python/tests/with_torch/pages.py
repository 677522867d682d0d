"""The examples of a page of the repository, run on ranks, and the output that the page has for them."""

import contextlib
import io
import os
import pathlib
import re

from ranks import Ranks

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"
# An example, and its output if it has one.
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


def blocks_of(name: str) -> list[str]:
    """Returns the examples of a page."""
    return [code for code, _ in BLOCK.findall((DOCS / name).read_text())]


def check_page(ranks: Ranks, name: str) -> None:
    """Compares rank 0's output of all examples with the page; RESHARD_WRITE updates the page."""
    path = DOCS / name
    page = path.read_text()
    texts = iter(ranks.run(printed, blocks_of(name))[0])

    def written(block: re.Match[str]) -> str:
        text = next(texts)
        return f"```python\n{block[1]}```\n" + (f"\n```text\n{text}\n```\n" if text else "")

    made = BLOCK.sub(written, page)
    if os.environ.get("RESHARD_WRITE"):
        path.write_text(made)
        page = made
    assert made == page, f"docs/{name} is out of date; RESHARD_WRITE=1 updates it"
