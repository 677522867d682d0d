"""Objects that are like arrays or sequences, and should not be taken for granted."""

import collections
import itertools
from collections.abc import Iterator
from typing import Any


class ByArray:
    """An array by `__array__`."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def __array__(self, *args: Any, **options: Any) -> Any:
        return self.made


class Endless(collections.UserList[Any]):
    """A sequence that says it has few items, and has no end."""

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(0.0)
