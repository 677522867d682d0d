"""Runs of compiled graphs: each run counts the redistributions that are in its graph.

A redistribution marks the nodes that it adds to a graph while the graph is traced. The compilers that
AOTAutograd calls for the forward and the backward graph are wrapped: they find the marks, and the compiled
graph counts them in the report that is entered when it runs. Nothing is added to the graph.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch.fx import GraphModule, Node

from reshard.torch.report import RedistributionRow, Report, innermost
from reshard.torch.traffic import is_collective
from reshard.torch.version import BOXED, AotCompile, FakeTensor, OpOverload, _are_we_tracing, aot_compile, bind_aot_compile, counts_runs, traced_graph

_MARK = "reshard_redistribution"

_own: AotCompile | None = None
# The number of compilations that run now and whose graphs will be counted.
_counting = 0


@dataclass(frozen=True, eq=False)
class Traced:
    """One redistribution of a graph, and True if it has a collective."""

    name: str
    row: RedistributionRow
    communicates: bool


def bind() -> None:
    """Wraps the compilers of graphs from now on, if the installed PyTorch has the names for it."""
    global _own
    if _own is None and counts_runs():
        _own = aot_compile()
        bind_aot_compile(_compile)


def unbind() -> None:
    """Restores PyTorch's function; graphs that were compiled until now are counted further."""
    global _own
    # If other code has wrapped it since, it calls this one further.
    if _own is not None and aot_compile() is _compile:
        bind_aot_compile(_own)
        _own = None


def is_traced(local: torch.Tensor) -> bool:
    """Returns True if a redistribution of this tensor does not run now: it is traced, or its tensors are fake."""
    return _are_we_tracing() or isinstance(local, FakeTensor)


@contextmanager
def marked(name: str, row: RedistributionRow) -> Iterator[None]:
    """Marks the nodes that are added to a traced graph as those of one redistribution."""
    graph = traced_graph()
    if graph is None:
        # Shapes are propagated here; the graph is traced in another pass, or its nodes are redistributions that run later.
        yield
        return
    last = next(iter(reversed(graph.nodes)), None)
    yield
    added = list(takewhile(lambda node: node is not last, reversed(graph.nodes)))
    mark = Traced(name, row, any(map(_is_call, added)))
    for node in added:
        node.meta.setdefault(_MARK, mark)
    if not _counting:
        row.traced = True


def _compile(*args: Any, **options: Any) -> Any:
    """Replaces the function that compiles a graph of Dynamo by AOTAutograd."""
    global _counting
    own = _own or aot_compile()
    given = inspect.signature(own).bind(*args, **options)
    compilers, forward = given.arguments, given.arguments["fw_compiler"]
    seen: Counter[Traced] = Counter()
    # PyTorch looks for a compiled pair of graphs in its cache only if their compilers are its own objects. A cached
    # pair may have been compiled without plans, and it has no marks.
    compilers["bw_compiler"] = _counts(compilers.get("bw_compiler") or forward, seen, is_backward=True)
    compilers["inference_compiler"] = _counts(compilers.get("inference_compiler") or forward, seen)
    compilers["fw_compiler"] = _counts(forward, seen)
    _counting += 1
    try:
        return own(*given.args, **given.kwargs)
    finally:
        _counting -= 1


def _counts(compiler: Callable[..., Any], seen: Counter[Traced], *, is_backward: bool = False) -> Callable[..., Any]:
    """Returns a compiler of graphs that count their runs; `seen` are the calls of the forward graph."""

    def compile_(graph: GraphModule, *args: Any, **options: Any) -> Any:
        runs = _runs(graph, seen, is_backward)
        compiled = compiler(graph, *args, **options)
        if not runs:
            return compiled
        count = _Count(runs)

        def run(*args: Any) -> Any:
            count()
            return compiled(*args)

        setattr(run, BOXED, getattr(compiled, BOXED, False))
        # Dynamo must not trace the backward graph's caller, nor this.
        return torch.compiler.disable(run) if is_backward else run

    return compile_


def _runs(graph: GraphModule, seen: Counter[Traced], is_backward: bool) -> list[Traced]:
    """Returns the redistributions that a run of a graph does."""
    calls: Counter[Traced] = Counter()
    for node, mark in _marks(graph):
        calls[mark] += _is_call(node)
    for part in graph.modules():
        # The runs of a part are not known, such as those of a branch.
        if isinstance(part, GraphModule) and part is not graph:
            for _, mark in _marks(part):
                (innermost() or Report()).row(mark.name, mark.row).traced = True
    if not is_backward:
        seen.update(calls)
        # If PyTorch has merged the collective with an equal one, other nodes may be left.
        return [mark for mark, count in calls.items() if count or not mark.communicates]
    # Recomputed copies of the forward pass are the same redistribution, and recomputed collectives are another one.
    return [mark for mark, count in calls.items() if (0 < count >= seen[mark] if mark.communicates else mark not in seen)]


def _marks(graph: GraphModule) -> Iterator[tuple[Node, Traced]]:
    for node in graph.graph.nodes:
        if (mark := node.meta.get(_MARK)) is not None:
            yield node, mark


def _is_call(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and is_collective(node.target)


class _Count:
    """Counts a run of a graph in the report that is entered."""

    def __init__(self, runs: list[Traced]) -> None:
        self._runs, self._report = runs, Report()
        self._rows: list[tuple[RedistributionRow, int]] = []

    def __call__(self) -> None:
        report = innermost()
        if report is None:
            return
        if report is not self._report:
            of = {one.name: one.row for one in self._runs}
            self._report = report
            self._rows = [(report.row(name, of[name]), times) for name, times in Counter(one.name for one in self._runs).items()]
        for row, times in self._rows:
            row.calls += times
