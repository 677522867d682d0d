"""Audits find planted waste with the bytes that are counted by hand, and nothing in programs without any."""

import pathlib

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh

from definition import device_mesh
from llama_block import decoder
from planted_waste import CLEAN, PLANTED
from ranks import Ranks
from reshard import Mesh, Planner, Sharding
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


_found: list[dict[str, tuple[list[Finding], str]]] = []


@pytest.fixture
def found(four: Ranks) -> list[dict[str, tuple[list[Finding], str]]]:
    """The findings of all programs by rank; they run once for all tests."""
    if not _found:
        _found.extend(four.run(all_findings))
    return _found


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


def test_savings_in_time_and_work(found: list[dict[str, tuple[list[Finding], str]]]) -> None:
    planner = Planner(arithmetic="framework")
    mesh = Mesh.from_ranks([("all", 4)], [0, 1, 2, 3])
    cost = [planner.cost_us(Sharding(mesh, [n], "P(sum)"), Sharding(mesh, [n], "R"), "f32") for n in (4, 12)]
    (small,), (work,) = (found[0][name][0] for name in ("small_reductions", "replicated_work"))
    assert small.saved_us == pytest.approx(3 * cost[0] - cost[1]) and small.saved_us > 10
    # Of 8 x 16 by 16 x 4 a rank would compute a quarter.
    assert work.saved_operations == 2 * 8 * 16 * 4 * 3 // 4 and work.saved_us is None


@pytest.mark.parametrize("program", CLEAN, ids=lambda program: program.__name__)
def test_nothing_is_invented(found: list[dict[str, tuple[list[Finding], str]]], program: object) -> None:
    for rank, of_rank in enumerate(found):
        findings, text = of_rank[program.__name__]
        assert not findings, f"rank {rank}\n{text}"


def of_the_decoder(rank: int, shares_inputs: bool, keeps_last: bool) -> tuple[int, int, float, list[Finding], list[tuple[object, ...]], str]:
    mesh: DeviceMesh = device_mesh((2, 2), ("dp", "tp"))
    model = decoder(mesh, shares_inputs=shares_inputs, keeps_last=keeps_last)
    words = torch.randint(0, 96, (2, 16), generator=torch.Generator().manual_seed(rank // 2))
    with audit() as seen:
        loss = model(words)
        loss.backward()
    rows = [(one.where.during.value, one.where.axis, one.where.module, one.received_bytes, [call.kind.value for call in one.calls]) for one in seen.moved]
    return seen.received_bytes, seen.bound_bytes, float(loss), list(seen.findings), rows, str(seen)


# Bytes of a rank: an all_reduce among two of [2, 16, 64]; the other half of a layer, and of the rest.
REDUCED, LAYER, REST = 2 * 16 * 64 * 4, (4 * 64 * 48 + 3 * 64 * 128 + 2 * 2 * 64) // 2 * 4 // 2, (2 * 96 * 64 + 64) * 4 // 2


def test_a_decoder_has_the_waste_that_an_expert_sees(four: Ranks) -> None:
    for received, bound, _, findings, rows, text in four.run(of_the_decoder, False, False):
        assert received == 2 * REST + 6 * LAYER + 14 * REDUCED == 386_816, text
        saved = {(one.kind.value, one.module): one.saved_bytes for one in findings}
        expected = {("regathered", "layers.1"): LAYER}
        for layer in ("layers.1", "layers.0"):
            expected["reduced before added", f"{layer}.mlp.up, {layer}.mlp.gate"] = REDUCED
            expected["reduced before added", f"{layer}.attention.v, {layer}.attention.k, {layer}.attention.q"] = 2 * REDUCED
        assert saved == expected, text
        assert sum(saved.values()) == 6 * 8192 + 37_120 and bound == received - sum(saved.values())
        assert [row for row in rows if row[2] == "layers.0.attention.o"] == [("forward", "tp", "layers.0.attention.o", REDUCED, ["all_reduce"])]
        assert [row[:2] for row in rows if row[2] == "layers.0"] == [("forward", "dp"), ("backward", "dp"), ("backward", "dp")], text
        lines = {one.module: one.line for one in findings if one.line is not None}
        assert pathlib.Path(lines["layers.1.mlp.up, layers.1.mlp.gate"][0]).name == "llama_block.py"


def test_the_proposed_code_saves_the_bytes(four: Ranks) -> None:
    """Each repair alone, and both: no finding is left of it, and the loss is the same."""
    losses = set()
    for shares_inputs in (False, True):
        for keeps_last in (False, True):
            for rank, (received, bound, loss, findings, _, text) in enumerate(four.run(of_the_decoder, shares_inputs, keeps_last)):
                assert received == 386_816 - 6 * REDUCED * shares_inputs - LAYER * keeps_last, text
                assert len(findings) == 4 * (not shares_inputs) + (not keeps_last), text
                assert bound == 386_816 - 6 * REDUCED - LAYER, text
                losses.add((rank // 2, round(loss, 5)))
    assert len(losses) == 2
