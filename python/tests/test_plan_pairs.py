"""The pairs of the benchmark that judges plans by the clock, the routes of peers, and the published tables; nothing is timed."""

import json
import pathlib
import sys

from reshard import Planner

BENCHES = pathlib.Path(__file__).parents[1] / "benches"
PAGE = pathlib.Path(__file__).parents[2] / "docs/reference/benchmarks/clock.md"
sys.path.append(str(BENCHES))

from plan_pairs import PLAIN, chains, pairs, route, signature
from plan_report import report

MIB = 1 << 20
NETWORK = "launch=1000;message=50;level=2:50:0.5;level=*:300:0.023"


def test_pairs_are_of_every_kind_and_size() -> None:
    made = pairs()
    assert len(made) >= 40
    assert len(set(made)) == len(made)
    for pair in made:
        source, target = pair.source(), pair.target()
        assert 0.9 * MIB < 4 * source.numel <= 16 * MIB
        assert max(*source.mesh.ranks, *target.mesh.ranks) < pair.nodes * pair.per_node <= 8
        assert not target.is_partial
    kinds = {
        "uneven": [pair for pair in made if pair.source().common_local_shape is None or pair.target().common_local_shape is None],
        "strided": [pair for pair in made if "SS(" in pair.before],
        "partial": [pair for pair in made if pair.source().is_partial],
        "two meshes": [pair for pair in made if pair.has_two_meshes],
    }
    assert all(len(of) >= 3 for of in kinds.values()), kinds


def test_plans_of_half_the_pairs_differ() -> None:
    planner = Planner(arithmetic="framework", topology=NETWORK)
    differ = 0
    for pair in pairs():
        made = chains(pair, planner, {})
        assert {plan.to for plan in (made["ours"][-1], made["whole"][-1])} == {pair.target()}
        differ += "axis_by_axis" in made and signature(made["ours"]) != signature(made["axis_by_axis"])
    assert differ >= 20


def test_routes_of_peers_have_their_collectives_and_bytes() -> None:
    planner = Planner(objective="bytes", arithmetic="framework", topology=NETWORK)
    found = 0
    for pair in pairs():
        for name, collectives, received in pair.peers:
            way = route(pair, collectives, received, planner) if name in ("xla", "shardy") else None
            if way is not None:
                legs = [PLAIN.plan(one, other) for one, other in zip(way, way[1:], strict=False)]
                assert (way[0], way[-1]) == (pair.source(), pair.target())
                assert (sum(leg.communicating_steps for leg in legs), sum(leg.received_bytes for leg in legs)) == (collectives, received)
                found += 1
    assert found >= 20


def test_the_page_has_the_tables_of_the_stored_run() -> None:
    stored = BENCHES.parents[1] / "benches/results/plan_bench.jsonl"
    page = PAGE.read_text(encoding="utf-8")
    for line in report(str(stored)).splitlines():
        assert line in page, line
