"""The entries of a nested state, with the names that `torch.distributed.checkpoint` gives them.

    {"model": {"w": tensor}, "groups": [{"lr": 0.1}], "betas": (0.9, 0.99), "ids": [1, 2]}
    model.w     groups.0.lr     betas     ids

A dict is always entered, and an empty one has no entry. A list is entered if it contains a tensor or a dict,
at any depth of lists. A tuple is never entered: it is one object, with all of its elements.
"""

import array
import collections
import itertools
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch

from reshard import ReshardError
from reshard._refusals import refused

# Real states are nested less than ten deep; this limit detects a state that contains itself.
_DEEPEST = 100
_MOST_ENTRIES = 1 << 20
# Dicts and lists that contain each other may have no end, and no entries either.
_MOST_COLLECTIONS = 1 << 20
# The maximum number of names that an error lists.
_MOST_NAMES = 10


@dataclass
class Entry:
    """A value of a state: its dotted name, and its position in the state and in a copy of the nesting."""

    name: str
    value: Any
    container: dict[Any, Any] | list[Any]
    key: Any
    origin: Mapping[Any, Any] | list[Any]

    def put(self, value: Any) -> None:
        """Puts a value at this position in the copy."""
        self.container[self.key] = value

    @property
    def is_replaceable(self) -> bool:
        """True if the state itself accepts another value at this position."""
        return isinstance(self.origin, MutableMapping | MutableSequence)

    def replace(self, value: Any) -> None:
        """Puts a value at this position of the state itself."""
        assert isinstance(self.origin, MutableMapping | MutableSequence)
        self.origin[self.key] = value


def entries(state: Mapping[Any, Any]) -> Iterator[Entry]:
    """Yields the entries of a state, one at a time: mappings may make their values on demand.

    Errors: `ReshardError` for two entries of one name, for a state that contains itself, for more than 2^20
    entries, dicts or lists.
    """
    return _named(state, {})


def copied(state: Mapping[Any, Any]) -> tuple[dict[Any, Any], list[Entry]]:
    """Returns a copy of the nesting in new dicts and lists, and its entries.

    Errors: as `entries`.
    """
    copy: dict[Any, Any] = {}
    found = []
    for entry in _named(state, copy):
        entry.put(entry.value)
        found.append(entry)
    return copy, found


def _named(state: Mapping[Any, Any], copy: dict[Any, Any]) -> Iterator[Entry]:
    if not isinstance(state, Mapping):
        raise TypeError(f"a state must be a dict from names to tensors, not {type(state).__qualname__}")
    paths: dict[str, tuple[str | int, ...]] = {}
    for path, entry in _walked(state, (), copy, _Visits()):
        if entry.name in paths:
            raise refused("names", f"two entries of the state have the name {entry.name}: {paths[entry.name]} and {path}")
        if len(paths) == _MOST_ENTRIES:
            raise refused("names", f"the state has more than {_MOST_ENTRIES} entries, or lists that contain each other")
        paths[entry.name] = path
        yield entry


class _Visits:
    """A counter of visited dicts and lists of a state, with a limit."""

    def __init__(self) -> None:
        self.count = 0

    def one(self) -> None:
        self.count += 1
        if self.count > _MOST_COLLECTIONS:
            raise refused("names", f"the state has more than {_MOST_COLLECTIONS} dicts and lists, or some that contain each other")


def _walked(
    state: Mapping[Any, Any] | list[Any], path: tuple[str | int, ...], copy: Any, visits: _Visits
) -> Iterator[tuple[tuple[str | int, ...], Entry]]:
    if len(path) > _DEEPEST:
        raise _too_deep()
    visits.one()
    is_list = isinstance(state, list)
    for key, value in enumerate(state) if is_list else state.items():  # type: ignore[union-attr]
        below = (*path, key if is_list else str(key))
        if isinstance(copy, MutableSequence):
            copy.append(None)
        if isinstance(value, Mapping):
            copy[key] = {}
            yield from _walked(value, below, copy[key], visits)
        elif isinstance(value, list) and _is_entered(value, {}, len(below)):
            copy[key] = []
            yield from _walked(value, below, copy[key], visits)
        else:
            yield below, Entry(".".join(map(str, below)), value, copy, key, state)


def _is_entered(items: list[Any], known: dict[int, bool], depth: int) -> bool:
    """Returns True if a list contains a tensor or a dict, directly or in nested lists."""
    if depth > _DEEPEST:
        raise _too_deep()
    if id(items) not in known:
        known[id(items)] = any(
            isinstance(item, Mapping | torch.Tensor) or isinstance(item, list) and _is_entered(item, known, depth + 1) for item in items
        )
    return known[id(items)]


# Sequences of numbers and texts, which contain nothing else, at any length.
_PLAIN = (str, bytes, bytearray, memoryview, range, array.array)
# Collections that store their elements, so that all of them fit in memory.
_BUILT_IN = (list, tuple, set, frozenset, dict, collections.deque)


def _inner(value: Any) -> Iterable[Any] | None:
    """Returns the elements of a collection; None for an object that is not a collection."""
    if isinstance(value, Mapping):
        return itertools.chain.from_iterable(value.items())
    if isinstance(value, torch.nn.Module):
        return itertools.chain(value.parameters(), value.buffers())
    if isinstance(value, types.SimpleNamespace):
        return vars(value).values()
    if is_dataclass(value) and not isinstance(value, type):
        return (getattr(value, field.name, None) for field in fields(value))
    if isinstance(value, Sequence | Set) and not isinstance(value, _PLAIN):
        return value
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.hasobject:
        return value.flat
    return None


def holds_tensors(value: Any) -> bool:
    """Returns True if an entry that is not a tensor contains one, at any depth of collections.

    Collections are tuples, sets, dataclasses, modules and others.

    Errors: `ReshardError` for more than 2^20 elements that are made on demand.
    """
    visits, seen, left = _Visits(), {id(value): value}, [value]
    while left:
        one = left.pop()
        for item in _inner(one) or ():
            if isinstance(item, torch.Tensor):
                return True
            if not isinstance(one, _BUILT_IN):
                visits.one()
            # Hold the object: the address of an object that was made on demand could be reused by another
            # one.
            if id(item) not in seen and _inner(item) is not None:
                seen[id(item)] = item
                left.append(item)
    return False


def _too_deep() -> ReshardError:
    return refused("names", f"the state is nested more than {_DEEPEST} deep, or contains itself")


def listed(names: list[str]) -> str:
    """Returns the first ten names, and the number of the others."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
