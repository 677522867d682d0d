"""Every example of docs/jax.md runs, and prints what the page says: with `RESHARD_WRITE=1` this writes that anew."""

import pathlib

import pytest
from page import assert_examples


def test_examples_run_and_print_what_is_said(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert_examples("docs/jax.md")
