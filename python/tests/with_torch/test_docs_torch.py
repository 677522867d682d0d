"""Every example of docs/torch.md runs on eight ranks and prints the page's output on rank 0.

With `RESHARD_WRITE=1` this updates the page.
"""

import contextlib
import io
import os
import pathlib
import re

from ranks import Ranks

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/torch.md"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)


def printed(rank: int, blocks: list[str]) -> list[str]:
    """Runs the blocks in one namespace, and returns the output of each."""
    names: dict[str, object] = {"__name__": "__main__"}
    made = []
    for code in blocks:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "docs/torch.md", "exec"), names)
        made.append("\n".join(line.rstrip() for line in out.getvalue().splitlines()))
    return made


def test_examples_run_and_print_what_is_said(eight: Ranks) -> None:
    page = PAGE.read_text()
    blocks = [code for code, _ in BLOCK.findall(page)]
    assert len(blocks) > 5 and len(blocks[0].splitlines()) == 5
    texts = iter(eight.run(printed, blocks)[0])

    def written(block: re.Match[str]) -> str:
        text = next(texts)
        return f"```python\n{block[1]}```\n" + (f"\n```text\n{text}\n```\n" if text else "")

    made = BLOCK.sub(written, page)
    if os.environ.get("RESHARD_WRITE"):
        PAGE.write_text(made)
        page = made
    assert made == page, "docs/torch.md is out of date; RESHARD_WRITE=1 updates it"
