"""Audits find planted waste with the bytes that are counted by hand, and nothing in programs without any."""

import pathlib

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh

from definition import device_mesh
from llama_block import decoder
from planted_waste import CLEAN, PLANTED
from ranks import Ranks
from reshard.torch import Finding, audit

HERE = pathlib.Path(__file__).parent


def all_findings(rank: int) -> dict[str, tuple[list[Finding], str]]:
    """Runs all programs on this rank; returns what their audits found and printed."""
    made = {}
    for program in (*PLANTED, *CLEAN):
        with audit() as seen:
            program(rank)
        made[program.__name__] = (list(seen.findings), str(seen))
    return made


@pytest.fixture(scope="module")
def found() -> list[dict[str, tuple[list[Finding], str]]]:
    from conftest import _ranks

    return _ranks(4).run(all_findings)


@pytest.mark.parametrize("program", PLANTED, ids=lambda program: program.__name__)
def test_planted_waste_is_found_with_its_bytes(found: list[dict[str, tuple[list[Finding], str]]], program: object) -> None:
    for rank, of_rank in enumerate(found):
        findings, text = of_rank[program.__name__]
        by_kind: dict[str, int] = {}
        for one in findings:
            by_kind[one.kind.value] = by_kind.get(one.kind.value, 0) + one.saved_bytes
        assert list(by_kind.items()) == PLANTED[program](rank), f"rank {rank}\n{text}"
        code = program.__code__
        for one in findings:
            assert one.line is not None and pathlib.Path(one.line[0]).name == "planted_waste.py", one
            if one.module is None:
                assert code.co_firstlineno < one.line[1] < code.co_firstlineno + 16, one
            assert one.message and one.code


@pytest.mark.parametrize("program", CLEAN, ids=lambda program: program.__name__)
def test_nothing_is_invented(found: list[dict[str, tuple[list[Finding], str]]], program: object) -> None:
    for rank, of_rank in enumerate(found):
        findings, text = of_rank[program.__name__]
        assert not findings, f"rank {rank}\n{text}"
