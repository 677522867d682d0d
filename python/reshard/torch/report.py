"""The report of `planned`: the redistributions that ran, by a plan or by PyTorch, and FSDP2's own collectives."""

from collections import Counter
from dataclasses import dataclass, field, replace

from reshard._refusals import counted


@dataclass
class RedistributionRow:
    """The count of redistributions between two specs, and how they were done.

    `pytorch_kinds` and `pytorch_bytes` are the collectives of PyTorch's own redistribution and the minimum
    bytes that a rank receives by them; None if they are not known. `traced` is True if the redistribution
    is also in a graph whose runs are not counted.
    """

    calls: int = 0
    received_bytes: int = 0
    kinds: tuple[str, ...] = ()
    fallback: str | None = None
    pytorch_kinds: tuple[str, ...] | None = None
    pytorch_bytes: int | None = None
    traced: bool = False


@dataclass
class FsdpRow:
    """The count of FSDP2's own collectives of one kind, and the bytes that this rank received by them."""

    calls: int = 0
    received_bytes: int = 0


@dataclass
class Report:
    """The redistributions that ran, by a plan or by PyTorch, and FSDP2's own collectives; `str` is a table.

    `fsdp` has FSDP2's collectives by kind. They are not redistributions, so no plan replaces them.
    `fsdp_unknown` is the reason why they are not counted, and `unsupported` the reason why nothing was
    replaced, if the installed PyTorch does not have the names for it.
    """

    lines: dict[str, RedistributionRow] = field(default_factory=dict)
    unsupported: str | None = None
    fsdp: dict[str, FsdpRow] = field(default_factory=dict)
    fsdp_unknown: str | None = None

    @property
    def plans(self) -> int:
        """The number of redistributions by a plan."""
        return sum(line.calls for line in self._planned)

    @property
    def collectives(self) -> int:
        """The number of collective calls that this rank made for them."""
        return sum(line.calls * len(line.kinds) for line in self._planned)

    @property
    def received_bytes(self) -> int:
        """The bytes that this rank received by them."""
        return sum(line.calls * line.received_bytes for line in self._planned)

    @property
    def pytorch_collectives(self) -> int:
        """The number of collective calls by which PyTorch would have done what plans did."""
        return sum(line.calls * len(line.pytorch_kinds or ()) for line in self._planned)

    @property
    def pytorch_bytes(self) -> int:
        """The bytes that a rank would have received by those calls."""
        return sum(line.calls * (line.pytorch_bytes or 0) for line in self._planned)

    @property
    def fallbacks(self) -> dict[str, int]:
        """The number of redistributions that were left to PyTorch, by reason."""
        found: Counter[str] = Counter()
        for line in self.lines.values():
            if line.fallback is not None and line.calls:
                found[line.fallback] += line.calls
        return dict(found)

    @property
    def all_received_bytes(self) -> int:
        """The bytes that this rank received by plans, by PyTorch's redistributions and by FSDP2, as far as known."""
        left = sum(line.calls * (line.pytorch_bytes or 0) for line in self.lines.values() if line.fallback is not None)
        return self.received_bytes + left + sum(row.received_bytes for row in self.fsdp.values())

    @property
    def _planned(self) -> list[RedistributionRow]:
        return [line for line in self.lines.values() if line.fallback is None]

    def row(self, name: str, like: RedistributionRow) -> RedistributionRow:
        """Returns the row of a name; a new one has all of another row but its counts."""
        found = self.lines.get(name)
        if found is None:
            found = self.lines[name] = replace(like, calls=0, traced=False)
        return found

    def add_fsdp(self, kind: str, received_bytes: int) -> None:
        """Counts a collective of FSDP2."""
        row = self.fsdp.setdefault(kind, FsdpRow())
        row.calls += 1
        row.received_bytes += received_bytes

    def __str__(self) -> str:
        rows = [("times", "bytes each", "redistribution", "by", "PyTorch", "bytes each")]
        shown = {name: line for name, line in self.lines.items() if line.calls or line.traced}
        for name, line in shown.items():
            how = ", ".join(line.kinds) or "no call" if line.fallback is None else f"PyTorch: {line.fallback}"
            theirs = ("?", "") if line.pytorch_kinds is None else (counted(len(line.pytorch_kinds), "call"), str(line.pytorch_bytes))
            times = f"{line.calls}+?" if line.traced else str(line.calls)
            rows.append((times, str(line.received_bytes) if line.fallback is None else "", name, how, *theirs))
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        made = ["  ".join(c.ljust(w) if at in (2, 3) else c.rjust(w) for at, (c, w) in enumerate(zip(row, widths, strict=True))).rstrip() for row in rows]
        unknown = any(line.pytorch_kinds is None for line in shown.values() if line.fallback is None)
        made.append(f"{self.plans} by plans, {counted(self.collectives, 'call')}, {self.received_bytes} B received; by PyTorch: {sum(self.fallbacks.values())}")
        made.append(f"PyTorch instead of plans: {counted(self.pytorch_collectives, 'call')}, {self.pytorch_bytes} B" + (", without rows of ?" if unknown else ""))
        if any(line.traced for line in shown.values()):
            made.append("+?: also in graphs whose runs are not counted")
        made += self._about_fsdp()
        if self.unsupported is not None:
            made.append(f"nothing was replaced: {self.unsupported}")
        return "\n".join(made)

    def _about_fsdp(self) -> list[str]:
        if self.fsdp_unknown is not None:
            return [f"FSDP2's own calls are not known: {self.fsdp_unknown}"]
        if not self.fsdp:
            return []
        calls = ", ".join(f"{kind} {counted(row.calls, 'call')} {row.received_bytes} B" for kind, row in self.fsdp.items())
        everything = self.all_received_bytes
        share = f" ({100 * self.received_bytes / everything:.1f} %)" if everything else ""
        left = any(line.fallback is not None and line.calls and line.pytorch_kinds is None for line in self.lines.values())
        note = ", without PyTorch's rows of ?" if left else ""
        return [f"FSDP2 itself, no plans: {calls}", f"share of plans: {self.received_bytes} of {everything} B received{share}{note}"]


# The reports of the entered owners of plans, the innermost last.
_entered: list[Report] = []


def innermost() -> Report | None:
    """Returns the report of the innermost entered owner of plans: runs are counted there."""
    return _entered[-1] if _entered else None


def push(report: Report) -> None:
    """Enters a report."""
    _entered.append(report)


def pop(report: Report) -> bool:
    """Leaves a report; returns False if it was not entered."""
    for at in reversed(range(len(_entered))):
        if _entered[at] is report:
            del _entered[at]
            return True
    return False
