"""Every example of the pages runs and prints the page's output; with `RESHARD_WRITE=1` this updates it."""

import pathlib
import re

import pytest

from page import ROOT, assert_examples

PAGES = ["README.md", "docs/calibrate.md", "docs/parallelize.md", "docs/python.md", "python/README.md"]


@pytest.mark.parametrize("name", PAGES)
def test_examples_run_and_print_what_is_said(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Blocks that begin with a name are files.
    for file, content in re.findall(r"```text\n# (\S+)\n(.*?)```", (ROOT / name).read_text(), re.DOTALL):
        (tmp_path / file).write_text(content)
    assert_examples(name)
