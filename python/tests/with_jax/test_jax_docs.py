"""Every example of docs/jax.md runs and prints the page's output; `RESHARD_WRITE=1` updates it."""

import pathlib

import pytest
from page import assert_examples


def test_examples_run_and_print_what_is_said(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert_examples("docs/jax.md")
