"""Objects that resemble arrays or sequences, and violate common assumptions about them."""

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
    """A sequence that reports a short length, and never ends."""

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(0.0)
