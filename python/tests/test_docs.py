"""Every example of the pages runs and prints the page's output; with `RESHARD_WRITE=1` this updates it."""

import pathlib

import pytest

from page import assert_examples

PAGES = ["README.md", "docs/python.md", "python/README.md"]


@pytest.mark.parametrize("name", PAGES)
def test_examples_run_and_print_what_is_said(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert_examples(name)
