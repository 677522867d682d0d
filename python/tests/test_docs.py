"""Every example of the pages runs, and prints what the page says: `RESHARD_WRITE=1 pytest tests/test_docs.py` writes that anew."""

import contextlib
import io
import os
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = ["docs/python.md", "python/README.md"]
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)


@pytest.mark.parametrize("name", PAGES)
def test_examples_run_and_print_what_is_said(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
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
            assert said is None, f"{name} says that this prints something:\n{code}"
        return whole

    made, found = BLOCK.subn(ran, page)
    assert found > 0, f"{name} has no example"
    if os.environ.get("RESHARD_WRITE"):
        (ROOT / name).write_text(made)
        page = made
    assert made == page, f"{name} says what is not so: RESHARD_WRITE=1 pytest python/tests/test_docs.py writes it"
