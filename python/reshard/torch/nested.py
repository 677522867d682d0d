"""The entries of a nested state and their names, which are those of `torch.distributed.checkpoint`.

    {"model": {"w": tensor}, "groups": [{"lr": 0.1}], "betas": (0.9, 0.99), "ids": [1, 2]}
    model.w     groups.0.lr     betas     ids

A dict is always entered, and an empty one has no entry. A list is entered if a tensor or a dict is in it, at any depth of lists. A tuple is
never entered: it is one object, with all that is in it.
"""

from collections.abc import Iterator, Mapping, MutableSequence
from dataclasses import dataclass
from typing import Any

import torch

from reshard import ReshardError
from reshard._refusals import refused

# States that people have are nested less than ten deep; one that holds itself is found here.
_DEEPEST = 100
_MOST_ENTRIES = 1 << 20
# The most names that an error lists.
_MOST_NAMES = 10


@dataclass
class Entry:
    """A value of a state: its dotted name, and its position in a copy of the nesting."""

    name: str
    value: Any
    container: dict[Any, Any] | list[Any]
    key: Any

    def put(self, value: Any) -> None:
        """Puts a value at this position in the copy."""
        self.container[self.key] = value


def entries(state: Mapping[Any, Any]) -> Iterator[Entry]:
    """The entries of a state, one at a time: mappings may make their values on demand.

    Errors: `ReshardError` for two entries of one name, for a state that holds itself and for more than 2^20 entries.
    """
    return _named(state, {})


def copied(state: Mapping[Any, Any]) -> tuple[dict[Any, Any], list[Entry]]:
    """The same nesting in new dicts and lists, and its entries.

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
        raise TypeError(f"a state is a dict from names to tensors, not {type(state).__qualname__}")
    paths: dict[str, tuple[str | int, ...]] = {}
    for path, entry in _walked(state, (), copy):
        if entry.name in paths:
            raise refused("names", f"two entries of the state have the name {entry.name}: {paths[entry.name]} and {path}")
        if len(paths) == _MOST_ENTRIES:
            raise refused("names", f"the state has more than {_MOST_ENTRIES} entries, or lists that hold each other")
        paths[entry.name] = path
        yield entry


def _walked(state: Mapping[Any, Any] | list[Any], path: tuple[str | int, ...], copy: Any) -> Iterator[tuple[tuple[str | int, ...], Entry]]:
    if len(path) > _DEEPEST:
        raise _too_deep()
    is_list = isinstance(state, list)
    for key, value in enumerate(state) if is_list else state.items():  # type: ignore[union-attr]
        below = (*path, key if is_list else str(key))
        if isinstance(copy, MutableSequence):
            copy.append(None)
        if isinstance(value, Mapping):
            copy[key] = {}
            yield from _walked(value, below, copy[key])
        elif isinstance(value, list) and _is_entered(value, {}, len(below)):
            copy[key] = []
            yield from _walked(value, below, copy[key])
        else:
            yield below, Entry(".".join(map(str, below)), value, copy, key)


def _is_entered(items: list[Any], known: dict[int, bool], depth: int) -> bool:
    """Whether a tensor or a dict is in a list, or in lists in it."""
    if depth > _DEEPEST:
        raise _too_deep()
    if id(items) not in known:
        known[id(items)] = any(
            isinstance(item, Mapping | torch.Tensor) or isinstance(item, list) and _is_entered(item, known, depth + 1) for item in items
        )
    return known[id(items)]


def _too_deep() -> ReshardError:
    return refused("names", f"the state is nested more than {_DEEPEST} deep, or holds itself")


def listed(names: list[str]) -> str:
    """The first ten names, and how many there are beyond."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
