"""Plans of transfers: equal inputs have equal plans, and a program that only reads the exported parts executes them."""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import pytest

from reshard import ReshardError, Transfer

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples/transfer_over_sockets.py"
TRAINER = {
    "mesh": "dp=2",
    "tensors": [
        {"name": "q", "dtype": "f32", "shape": [8, 3], "placements": "S(0)"},
        {"name": "k", "dtype": "f32", "shape": [4, 3], "placements": "S(0)"},
        {"name": "embed", "dtype": "i32", "shape": [5, 2], "placements": "R"},
    ],
}
SERVER = {
    "mesh": "kv=2,rep=2@1",
    "tensors": [
        {"name": "qk", "dtype": "bf16", "local_shape": [4, 3], "placements": "S(0),S(0) | S(0),R"},
        {"name": "embed", "dtype": "i32", "shape": [8, 2], "placements": "S(0),S(1)"},
    ],
}
RULES = "qk = q | k\nembed = pad(embed, 8)"


def planned(rules: str = RULES, **options: object) -> Transfer:
    return Transfer.plan(json.dumps(TRAINER), json.dumps(SERVER), rules, **{"cast": {"qk": "bf16"}, **options})  # type: ignore[arg-type]


def test_a_plan_has_its_bytes_and_its_proof() -> None:
    plan = planned()
    assert plan.hash == planned().hash != planned(ranks_per_node=2).hash
    assert plan.ranks == [0, 1, 2, 3, 4] and plan.targets == ["qk", "embed"]
    rows = plan.rank_bytes()
    assert all(row["received"] == row["lacking"] for row in rows) and sum(row["sent"] for row in rows) == sum(row["received"] for row in rows)
    assert "are written once" in plan.certificate()
    assert json.loads(plan.part(4))["rank"] == 4 and isinstance(plan.part_bytes(4), bytes)
    Transfer.agree([(0, plan.hash, plan.mapping), (3, plan.hash, plan.mapping)])


def test_what_does_not_fit_is_an_error_with_a_kind() -> None:
    plan = planned()
    with pytest.raises(ReshardError, match="rank 0 planned .* and rank 3 planned"):
        Transfer.agree([(0, plan.hash, plan.mapping), (3, "0" * 16, plan.mapping)])
    cases = {"dtype_mismatch": {"cast": {}}, "unused_rule": {"rules": RULES + "\nx = y"}, "mapping": {"rules": "qk ="}, "invalid": {"rules": RULES}}
    for kind, options in cases.items():
        with pytest.raises(ReshardError) as error:
            if kind == "invalid":
                Transfer.plan("{", json.dumps(SERVER))
            else:
                planned(**options)  # type: ignore[arg-type]
        assert getattr(error.value, "kind", None) == kind, error.value
    with pytest.raises(ReshardError, match="no `w`|has no"):
        side = '{"mesh": "a=2", "tensors": [{"name": "w", "dtype": "f32", "shape": [4], "placements": "S(0)"}]}'
        Transfer.merge([(0, side), (1, '{"tensors": []}')])


def bf16(number: float) -> bytes:
    """The upper half of the bits: exact for small integers."""
    return struct.pack("<f", number)[2:]


def test_a_program_that_knows_the_parts_alone_executes_them(tmp_path: pathlib.Path) -> None:
    plan = planned()
    q, k = ([[float(10 * row + column + start) for column in range(3)] for row in range(rows)] for rows, start in ((8, 0), (4, 100)))
    embed = [[7 * row + column for column in range(2)] for row in range(5)]
    floats = lambda rows: b"".join(struct.pack("<f", one) for row in rows for one in row)  # noqa: E731
    for folder in ("plan", "sources", "targets"):
        (tmp_path / folder).mkdir()
    for rank in plan.ranks:
        (tmp_path / "plan" / f"rank_{rank}.json").write_text(plan.part(rank))
    for rank in (0, 1):
        (tmp_path / f"sources/q.{rank}").write_bytes(floats(q[4 * rank : 4 * rank + 4]))
        (tmp_path / f"sources/k.{rank}").write_bytes(floats(k[2 * rank : 2 * rank + 2]))
        (tmp_path / f"sources/embed.{rank}").write_bytes(b"".join(struct.pack("<i", one) for row in embed for one in row))
    for rank in (1, 2, 3, 4):
        (tmp_path / f"targets/qk.{rank}").write_bytes(b"\xff" * 24)
        (tmp_path / f"targets/embed.{rank}").write_bytes(b"\xff" * 16)
    folders = [str(tmp_path / name) for name in ("sources", "targets")]
    # The path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory() as sockets:
        commands = [[sys.executable, "-I", str(EXAMPLE), str(tmp_path / f"plan/rank_{rank}.json"), *folders, sockets] for rank in plan.ranks]
        for process in [subprocess.Popen(command, text=True, stderr=subprocess.PIPE) for command in commands]:
            assert process.wait(60) == 0, process.communicate()[1]
    padded = [*embed, [0, 0], [0, 0], [0, 0]]
    for rank in (1, 2, 3, 4):
        kv, rep = divmod(rank - 1, 2)
        rows = [*q[4 * kv + 2 * rep : 4 * kv + 2 * rep + 2], *k[2 * kv : 2 * kv + 2]]
        assert (tmp_path / f"targets/qk.{rank}").read_bytes() == b"".join(bf16(one) for row in rows for one in row)
        column = [row[rep] for row in padded[4 * kv : 4 * kv + 4]]
        assert (tmp_path / f"targets/embed.{rank}").read_bytes() == b"".join(struct.pack("<i", one) for one in column)
