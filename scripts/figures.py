#!/usr/bin/env python3
"""Renders the table of results in docs/reference/benchmarks/README.md from the raw results in benches/results/*.jsonl.

    scripts/figures.py             write the table (`make figures`)
    scripts/figures.py --check     fail if the committed table is another one

A file has one or more runs of a program. A run is a header and then one line per measurement. Fields of a header:

    program, command    the program and the command that runs it
    page                the page of docs/reference/benchmarks that describes the measurement
    date, machine, cores, load, versions
    transcribed         true: the numbers were copied from a page or from printed output, not written by the program

Fields of a measurement, of which `what`, `ours` and `unit` are required:

    what        the measured operation
    ours, peer  the values of this library and of the peer in the same run; `ours` is null where only `ratio` is known
    peer_name   the peer
    unit        of both values: a time, instructions, GB/s, or "" for a number
    ratio       of the first to the second, if not of these two values, such as a median of ratios
    limit       the promise: "ratio >= 0.5", "ratio <= 1.2", "ours <= 5"
    load        if it is not that of the header
    details     all else; never in the table

The table has the measurements with a peer or a limit. Of several runs with the same `what` and `peer_name` it has the
last one, and of several peers the one against which this library does worst.
"""

import argparse
import collections
import datetime
import json
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS, PAGE = ROOT / "benches/results", ROOT / "docs/reference/benchmarks/README.md"
BEGIN, END = "<!-- make figures: begin -->\n", "<!-- make figures: end -->\n"
HEADER = {"program", "command", "page", "date", "machine", "cores", "load", "versions", "transcribed"}
LINE = {"what", "ours", "peer", "peer_name", "unit", "ratio", "limit", "load", "details"}
MORE_IS_BETTER = {"GB/s"}
LIMIT = re.compile(r"(ratio|ours) (<=|>=) ([0-9.]+)")


class Wrong(Exception):
    """A raw result that is not as the head of this file describes."""


def number(value: float) -> str:
    """Returns a number with at most four significant digits."""
    if value and abs(value) < 0.01:
        return f"{value:.2g}"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


class Row:
    """A measurement and its run."""

    def __init__(self, line: dict, run: dict):
        if unknown := line.keys() - LINE or {"what", "ours", "unit"} - line.keys():
            raise Wrong(f"unknown or lacking: {', '.join(sorted(unknown))}")
        self.run, self.what, self.unit, self.ours = run, line["what"], line["unit"], line["ours"]
        self.peer, self.peer_name, self.limit = line.get("peer"), line.get("peer_name"), line.get("limit")
        self.ratio = line.get("ratio")
        if self.ratio is None and self.peer is not None and self.ours is not None:
            self.ratio = self.ours / self.peer
        if (self.ratio is not None) != (self.peer_name is not None):
            raise Wrong("a peer needs a name and a value or a ratio")
        self.reached = None
        if self.limit is not None:
            if not (found := LIMIT.fullmatch(self.limit)):
                raise Wrong(f"unknown limit `{self.limit}`")
            value = self.ratio if found[1] == "ratio" else self.ours
            if value is None:
                raise Wrong(f"`{self.limit}` has no value to compare")
            self.reached = value <= float(found[3]) if found[2] == "<=" else value >= float(found[3])

    def loss(self) -> float:
        """Returns how many times the peer is better."""
        if self.ratio is None:
            return 0
        return 1 / self.ratio if self.unit in MORE_IS_BETTER else self.ratio

    def value(self, value: float | None) -> str:
        return "" if value is None else f"{number(value)} {self.unit}".strip()

    def text(self) -> str:
        """Returns the row of the table."""
        limit = ""
        if self.limit is not None:
            name, sign, most = self.limit.split()
            limit = f"{'≤' if sign == '<=' else '≥'} {self.value(float(most)) if name == 'ours' else most}"
            limit += "" if self.reached else ", **missed**"
        peer = f"{self.peer_name}: {self.value(self.peer)}".removesuffix(": ") if self.peer_name else ""
        ratio = "" if self.ratio is None else number(self.ratio)
        return f"| {self.what} | {self.value(self.ours)} | {peer} | {ratio} | {limit} | {self.run['program']} |"


def read(path: pathlib.Path) -> tuple[list[dict], list[Row]]:
    """Returns the runs of a file and all its measurements."""
    runs: list[dict] = []
    rows: list[Row] = []
    for at, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            line = json.loads(text)
            if "program" in line:
                if unknown := line.keys() ^ HEADER:
                    if unknown != {"transcribed"}:
                        raise Wrong(f"unknown or lacking in the header: {', '.join(sorted(unknown))}")
                datetime.date.fromisoformat(line["date"])
                if not (PAGE.parent / line["page"]).is_file():
                    raise Wrong(f"there is no page {line['page']}")
                if line["program"] != path.stem:
                    raise Wrong(f"the program is {line['program']}")
                runs.append(line)
            elif not runs:
                raise Wrong("the first line is not a header")
            else:
                rows.append(Row(line, runs[-1]))
                runs[-1].setdefault("loads", []).append(line.get("load", runs[-1]["load"]))
        except (ValueError, Wrong) as error:
            raise Wrong(f"{path.relative_to(ROOT)}, line {at}: {error}") from error
    return runs, rows


def chosen(rows: list[Row]) -> list[Row]:
    """Returns the rows of the table: the last one of each peer, and then the worst peer."""
    last = {(row.what, row.peer_name): row for row in rows if row.peer_name or row.limit}
    worst: dict[str, Row] = {}
    for row in last.values():
        if row.what not in worst or row.loss() > worst[row.what].loss():
            worst[row.what] = row
    return list(worst.values())


def load_of(run: dict) -> str:
    loads = run.get("loads") or [run["load"]]
    if all(isinstance(load, int | float) for load in loads):
        least, most = min(loads), max(loads)
        return number(least) if least == most else f"{number(least)} to {number(most)}"
    return "unknown" if loads[0] is None else str(loads[0])


def described(run: dict) -> str:
    """Returns the row of a run in the second table."""
    versions = ", ".join(f"{of} {version}" for of, version in run["versions"].items())
    cores = f", {run['cores']} cores" if run["cores"] else ""
    raw = f"[{'transcribed' if run.get('transcribed') else 'raw'}](../../../benches/results/{run['program']}.jsonl)"
    page = f"[{run['page'].removesuffix('.md')}]({run['page']})"
    return f"| {run['program']} | {page} | {run['date']} | {run['machine']}{cores} | {load_of(run)} | {versions} | `{run['command']}` | {raw} |"


def by_run(rows: list[Row]) -> str:
    """Returns the number of rows of each run, in parentheses."""
    counts = collections.Counter(row.run["program"] for row in rows)
    return f" ({', '.join(f'{run} {count}' for run, count in counts.items())})" if counts else ""


def rendered() -> str:
    """Returns the text between the markers."""
    table: list[Row] = []
    runs: list[dict] = []
    for path in sorted(RESULTS.glob("*.jsonl")):
        of_file, rows = read(path)
        shown = chosen(rows)
        table += shown
        runs += of_file
    promised = [row for row in table if row.reached is not None]
    missed = [row for row in promised if not row.reached]
    compared = [row for row in table if row.ratio is not None]
    worse = [row for row in compared if row.loss() > 1]
    counts = [
        f"{len(promised)} lines have a limit, of which {len(missed)} are missed{by_run(missed)}.",
        f"{len(compared)} lines have a peer, which is better in {len(worse)}{by_run(worse)}.",
    ]
    lines = [
        textwrap.fill(" ".join(counts), 118),
        "",
        "| what | ours | best peer in the same run | ours / peer | limit | run |",
        "|---|---|---|---|---|---|",
        *(row.text() for row in table),
        "",
        "The runs:",
        "",
        "| run | page | date | machine | load | versions | command | results |",
        "|---|---|---|---|---|---|---|---|",
        *(described(run) for run in runs),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Renders the table of results in docs/reference/benchmarks/README.md.")
    parser.add_argument("--check", action="store_true", help="fail if the committed table is another one; write nothing")
    check = parser.parse_args().check
    text = PAGE.read_text(encoding="utf-8")
    before, began, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not began or not ended:
        print(f"{PAGE.relative_to(ROOT)} has no lines `{BEGIN.strip()}` and `{END.strip()}`", file=sys.stderr)
        return 1
    try:
        made = before + BEGIN + rendered() + END + after
    except Wrong as error:
        print(error, file=sys.stderr)
        return 1
    if made == text:
        return 0
    if check:
        print(f"{PAGE.relative_to(ROOT)} is not the table of benches/results: run `make figures`", file=sys.stderr)
        return 1
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
