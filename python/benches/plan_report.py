"""The tables of a run of plan_bench.py: who is quickest, and how near and in which order predictions are."""

import collections
import itertools
import json
import statistics
from collections.abc import Sequence
from typing import Any

from results import measured

NEAR = 1.10
"""A plan within a tenth of the quickest counts as quick; plans nearer to each other have no order."""
BOUND = 0.4
"""The links bound a pair if its quickest plan uses this part of the rate of the busiest one, or more, in one direction.

An exchange of gloo that sends first and receives afterwards cannot use more than half."""
OWN = "DTensor"
COLUMNS = [
    ("ours", "ours"), ("axis_by_axis", "axis by axis"), ("least_bytes", "least bytes"), ("whole", "whole"), ("torch", "torch"),
    ("torch_graph", "torch's search"), ("shardy", "Shardy"), ("xla", "XLA"), (OWN, "DTensor"),
]  # fmt: skip


def share_of_link(plan: dict[str, Any], mbit: float) -> float:
    """Returns the part of the time that the busiest link needs for its bytes in one direction."""
    return float(plan["link_bytes"]) * 8 / (mbit * 1e3) / float(plan["ms"])


def engine(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the plans of a pair that ran by our engine."""
    return [plan for plan in row["plans"] if OWN not in plan["by"]]


def by(row: dict[str, Any], name: str) -> dict[str, Any] | None:
    return next((plan for plan in row["plans"] if name in plan["by"]), None)


def is_judged(row: dict[str, Any]) -> bool:
    """Returns True if plans differ, and the links bound the time of the quickest."""
    plans = engine(row)
    return len(plans) > 1 and share_of_link(min(plans, key=lambda plan: plan["ms"]), row["mbit"]) >= BOUND


def others_differ(row: dict[str, Any]) -> bool:
    """Returns True if ours differs from the plan of another planner."""
    return any("ours" not in plan["by"] and {*plan["by"]} - {"whole", "least_bytes"} for plan in engine(row))


def ordered(row: dict[str, Any]) -> tuple[int, int]:
    """Returns how many pairs of plans have different times, and in how many of them predictions have the same order."""
    right = found = 0
    for one, other in itertools.combinations([plan for plan in engine(row) if plan["predicted_ms"] is not None], 2):
        if max(one["ms"], other["ms"]) > NEAR * min(one["ms"], other["ms"]):
            found += 1
            right += (one["ms"] - other["ms"]) * (one["predicted_ms"] - other["predicted_ms"]) > 0
    return right, found


def errors(rows: Sequence[dict[str, Any]], kinds: frozenset[str] | None = None) -> list[float]:
    """Returns the relative errors of predictions; with kinds those of plans that have only steps of these."""
    return [
        plan["predicted_ms"] / plan["ms"] - 1
        for row in rows
        for plan in engine(row)
        if plan["predicted_ms"] is not None and (kinds is None or {step[0] for step in plan["steps"]} <= kinds)
    ]


def slower(row: dict[str, Any], others: bool = False) -> float:
    """Returns the time of our plan, relative to the quickest by the same engine; with `others` without that of the least bytes."""
    ours = by(row, "ours")
    assert ours is not None
    return float(ours["ms"]) / min(float(plan["ms"]) for plan in engine(row) if not (others and plan["by"] == ["least_bytes"]))


def cell(plan: dict[str, Any] | None) -> str:
    """Returns measured and predicted milliseconds."""
    if plan is None:
        return ""
    predicted = plan["predicted_ms"]
    return f"{plan['ms']:.0f}" if predicted is None else f"{plan['ms']:.0f} ({predicted:.0f})"


def shape_of(row: dict[str, Any]) -> str:
    return "x".join(map(str, row["shape"]))


def percent(part: int, of: int) -> str:
    return f"{part} of {of} ({100 * part / max(of, 1):.0f} %)"


def summary(name: str, rows: Sequence[dict[str, Any]]) -> str:
    quick = sum(slower(row, others=True) <= NEAR for row in rows)
    quickest = sum(slower(row) <= NEAR for row in rows)
    right, found = (sum(column) for column in zip(*map(ordered, rows), strict=True))
    off = [abs(error) for error in errors(rows)]
    deciles = statistics.quantiles(off, n=10)
    error = f"{100 * statistics.median(off):.0f} %, {100 * deciles[8]:.0f} %"
    return f"| {name} | {len(rows)} | {percent(quick, len(rows))} | {percent(quickest, len(rows))} | {error} | {percent(right, found)} |"


def report(path: str) -> str:
    """Returns the tables of a stored run, as Markdown."""
    with open(path, encoding="utf-8") as lines:
        everything = [json.loads(line) for line in lines]
    return tables([line["details"] for line in everything if "pair" in line.get("details", {})])


def promises(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the lines of a run's goals, for `make figures`."""
    judged = [row for row in rows if is_judged(row)]
    right, found = (sum(column) for column in zip(*map(ordered, judged), strict=True))
    quick = [sum(slower(row, others) <= NEAR for row in judged) / len(judged) for others in (True, False)]
    of = f"of {len(judged)} pairs over limited links"
    return [
        measured(f"share {of} in which the plan is the quickest, or within 10 %, of all planners", quick[0], "", limit="ours >= 0.9"),
        measured(f"the same, with the plan of the least bytes, share {of}", quick[1], "", limit="ours >= 0.9"),
        measured(f"median error of the predicted times {of}", statistics.median(map(abs, errors(judged))), "", limit="ours <= 0.25"),
        measured(f"share of {found} pairs of plans over limited links whose predicted order is right", right / found, "", limit="ours >= 0.85"),
    ]


def tables(rows: Sequence[dict[str, Any]]) -> str:
    """Returns the tables of the measured pairs, as Markdown."""
    judged = [row for row in rows if is_judged(row)]
    by_layout = collections.defaultdict(list)
    for row in judged:
        by_layout[f"{row['nodes']} nodes of {row['per_node']}"].append(row)
    out = [
        f"{len(rows)} pairs; in {sum(map(others_differ, rows))} ours differs from the plan of another planner; {len(judged)} are bound by the links",
        "",
        "| pairs | judged | ours is quickest or within 10 %: of other planners | of all plans | prediction off: median, p90 | order right |",
        "|---|---|---|---|---|---|",
        *(summary(name, of) for name, of in by_layout.items()),
        summary("all", judged),
        summary("those where planners differ", [row for row in judged if others_differ(row)]),
        "",
        "| by | pairs | time relative to ours: geometric mean | least | most |",
        "|---|---|---|---|---|",
    ]
    for name in ("axis_by_axis", "least_bytes", "whole", "torch", "torch_graph", "shardy", "xla", OWN):
        ratios = [theirs["ms"] / ours["ms"] for row in judged if (theirs := by(row, name)) and (ours := by(row, "ours"))]
        if ratios:
            out.append(f"| {name} | {len(ratios)} | {statistics.geometric_mean(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} |")
    out += ["", "| plans of | plans | prediction off: median | predicted relative to measured: median |", "|---|---|---|---|"]
    for kind in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "exchange"):
        of = errors(judged, frozenset({kind}))
        if of:
            out.append(f"| {kind} alone | {len(of)} | {100 * statistics.median(map(abs, of)):.0f} % | {1 + statistics.median(of):.2f} |")
    out += ["", "| ratio | pair | shape | ours | the quickest |", "|---|---|---|---|---|"]
    for row in sorted(judged, key=slower, reverse=True):
        if slower(row) > NEAR:
            ours, best = by(row, "ours"), min(engine(row), key=lambda plan: plan["ms"])
            assert ours is not None
            steps = "; ".join(f"{step[0]} {','.join(map(str, step[1:-1]))}" for step in ours["steps"])
            others = "; ".join(f"{step[0]} {','.join(map(str, step[1:-1]))}" for step in best["steps"])
            out.append(
                f"| x{slower(row):.2f} | {row['nodes']}x{row['per_node']} `{row['pair']}` | {shape_of(row)} | {steps}: {cell(ours)} | "
                f"{', '.join(best['by'])}: {others}: {cell(best)} |"
            )
    out += ["", "| " + " | ".join(["pair", "shape", *(title for _, title in COLUMNS)]) + " |", "|---" * (2 + len(COLUMNS)) + "|"]
    for row in rows:
        cells = [cell(by(row, name)) for name, _ in COLUMNS]
        out.append("| " + " | ".join([f"{row['nodes']}x{row['per_node']} `{row['pair']}`{'' if is_judged(row) else ' *'}", shape_of(row), *cells]) + " |")
    return "\n".join(out)
