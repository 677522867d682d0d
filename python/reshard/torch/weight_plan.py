"""The plan of a `WeightSync`, for people and for other transports, and a transfer in progress."""

from concurrent.futures import Future
from dataclasses import dataclass

from reshard import Transfer
from reshard._refusals import counted


@dataclass
class WeightPlan:
    """The plan of a `WeightSync` for all ranks, and the part of this rank."""

    transfer: Transfer
    rank: int
    buckets: int
    staging_bytes: int

    def to_json(self) -> str:
        """Returns this rank's part for other transports, as JSON."""
        return self.transfer.part(self.rank)

    def to_bytes(self) -> bytes:
        """Returns this rank's part for other transports, in the binary form."""
        return self.transfer.part_bytes(self.rank)

    def __str__(self) -> str:
        """Returns the proved plan as a table: bytes by rank, received and sent, with their bounds."""
        calls = f"{counted(self.buckets, 'exchange')} and 1 agreement, {self.staging_bytes} bytes of staging on rank {self.rank}"
        return f"{self.transfer.certificate().rstrip()}\n{calls}"


@dataclass
class WeightHandle:
    """A transfer in progress."""

    _done: "Future[int]"

    def wait(self) -> int:
        """Waits for its end on this rank; returns the epoch of the weights, or raises its error."""
        return self._done.result()
