"""The examples of a page: they run, and print the page's output."""

import contextlib
import io
import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)


def assert_examples(name: str) -> None:
    """Runs every example of a page of the repository, in order; RESHARD_WRITE updates the page's output."""
    page = (ROOT / name).read_text()
    names: dict[str, object] = {"__name__": "__main__"}

    def ran(block: re.Match[str]) -> str:
        code, said = block.groups()
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, name, "exec"), names)
        printed = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
        whole = f"```python\n{code}```\n"
        if printed:
            whole += f"\n```text\n{printed}\n```\n"
        else:
            assert said is None, f"{name} shows an output of code that prints nothing:\n{code}"
        return whole

    made, found = BLOCK.subn(ran, page)
    assert found > 0, f"{name} has no example"
    if os.environ.get("RESHARD_WRITE"):
        (ROOT / name).write_text(made)
        page = made
    assert made == page, f"{name} is out of date; RESHARD_WRITE=1 and the same test update it"
