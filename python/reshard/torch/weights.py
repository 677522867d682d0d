"""Weights of a trainer into the tensors of a server: planned once, then sent as often as wanted.

    source: cast, pack into one half of a buffer -> exchange -> target: keep all bytes, or unpack a bucket
    all:    one reduction of (epoch, failed ranks)           -> target: unpack all bytes, or exchange two sets

Both sides plan the same plan without talking. Each bucket of tensors is one exchange of exactly the bytes that the
ranks of the target lack; a bucket is packed while the one before it is sent.
"""

import ctypes
import datetime
import json
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from reshard import EngineError, Mesh, ReshardError, Transfer
from reshard._refusals import refused
from reshard._refusals import said as said_of

from reshard.torch.boxes import Box, Bucket, Views, in_buckets, view
from reshard.torch.described import check_targets, described, joined, local_of, overlapping, span, tensors_of
from reshard.torch.layouts import check_layouts, is_dense, kind, layout
from reshard.torch.link import GroupLink, Link, StoreLink, all_of
from reshard.torch.weight_plan import WeightHandle, WeightPlan

_COMMITS = ("all", "swap", "bucket")
# No rank has failed.
_NONE = 1 << 40


class WeightSync:
    """Sends the weights of a trainer into the tensors of a server, in place, over the ranks of both.

    Each rank passes its tensors: `source`, DTensors or plain tensors, nested or not; `target`, plain tensors that are
    this rank's buffers, or DTensors; both, if it is on both sides. Other entries of a state are not sent. `target_mesh`
    are the ranks of the target, as `tp=4@[4,5,6,7]`, and `placements` those of its plain tensors, by name patterns.
    `mapping` are the rules that make tensors of the target, and `cast` the types by name patterns: `"bf16"`, or None to
    keep a type. Types do not change without one.

    `commit` is `"all"`: a rank receives all bytes before it writes any; `"swap"`: bytes are written into `spare`, a
    second set of buffers, which becomes the target; or `"bucket"`: a bucket is written when it arrives, and the weights
    are invalid until the end. With the first two, all ranks have either the weights before the call or those after it.

    `group` is a group of both sides; default: all ranks. Worlds without one give `store=(store, rank, size)`, with ranks
    of both sides from 0 on. `checksum` compares a checksum of each message.

    Errors: `ReshardError` on all ranks for an argument of one rank that does not fit; `EngineError` for a failed rank.
    """

    def __init__(
        self,
        *,
        source: Mapping[str, Any] | None = None,
        target: Mapping[str, Any] | None = None,
        target_mesh: str | Mesh | None = None,
        placements: Mapping[str, str] | None = None,
        mapping: str = "",
        cast: Mapping[str, str | None] | None = None,
        group: Any = None,
        store: tuple[dist.Store, int, int] | None = None,
        max_bytes: int = 256 << 20,
        commit: str = "all",
        spare: Mapping[str, Any] | None = None,
        checksum: bool = False,
        ranks_per_node: int | None = None,
        timeout: datetime.timedelta = datetime.timedelta(minutes=10),
    ) -> None:
        self._link: Link = GroupLink(group) if store is None else StoreLink(*store, timeout)
        self._commit, self._checksum = commit, checksum
        self.epoch: int | None = 0
        self._number = 0
        sides: tuple[str | None, str | None] = (None, None)
        refusal: Exception | None = None
        try:
            if commit not in _COMMITS:
                raise refused("commit", f"commit is {commit!r}, not one of {', '.join(_COMMITS)}")
            if (commit == "swap") != (spare is not None) and target is not None:
                raise refused("spare", "commit='swap' needs spare, a second set of the tensors of target, and others take none")
            if any(line.strip().startswith("drop ") and "==" in line for line in mapping.splitlines()):
                raise refused("mapping", "`drop .. ==` is not compared between ranks; write `drop` alone if the tensors are equal")
            if not isinstance(max_bytes, int) or max_bytes < 1:
                raise refused("max_bytes", f"max_bytes must be a number of at least 1, not {max_bytes!r}")
            self._source, self._target, self._spare = tensors_of(source), tensors_of(target), tensors_of(spare)
            sides = self._described(source is not None, target is not None, target_mesh)
        except Exception as error:
            refusal = error
        said = all_of(self._link, refusal, sides, "describing the weights")
        made: Transfer | None = None
        try:
            texts = [joined({rank: one[side] for rank, one in zip(self._link.ranks, said, strict=True) if one[side]}) for side in (0, 1)]
            before, after = Transfer.merge(texts[0]), Transfer.merge(texts[1])
            made = Transfer.plan(before, after, mapping, cast=cast, placements=placements, ranks_per_node=ranks_per_node)
        except Exception as error:
            refusal = error
        options = {"commit": commit, "max_bytes": max_bytes, "checksum": checksum}
        own = ((self._link.rank, made.hash, made.mapping), options) if made else None
        said = all_of(self._link, refusal, own, "planning the transfer")
        assert made is not None
        Transfer.agree([plan for plan, _ in said])
        for rank, (_, others) in zip(self._link.ranks, said, strict=True):
            for name, value in others.items():
                if value != said[0][1][name]:
                    raise refused("hash_differs", f"{name} is {value!r} on rank {rank}, and {said[0][1][name]!r} on rank {self._link.ranks[0]}")
        self._transfer = made
        try:
            self._prepare(max_bytes)
        except Exception as error:
            refusal = error
        all_of(self._link, refusal, None, "preparing the transfer")
        self._thread: ThreadPoolExecutor | None = None

    def _described(self, trains: bool, serves: bool, target_mesh: str | Mesh | None) -> tuple[str | None, str | None]:
        """Returns the descriptions of this rank as a source and as a target; None where it is none."""
        shift = self._link.rank - dist.get_rank() if dist.is_initialized() else 0
        over = Mesh(target_mesh) if isinstance(target_mesh, str) else target_mesh
        plain = [name for name, tensor in self._target.items() if not isinstance(tensor, DTensor)]
        if plain and (over is None or self._link.rank not in over):
            where = "there is none" if over is None else f"it is {over}"
            raise refused("target_mesh", f"{plain[0]} is on rank {self._link.rank}, which must be in target_mesh; {where}")
        if plain and over is not None and (outside := sorted(set(over.ranks) - set(self._link.ranks))):
            raise refused("target_mesh", f"target_mesh is {over}, but the ranks {outside} are not in the group of {self._link.ranks}")
        check_targets(self._target)
        check_targets(self._spare)
        for name, tensor in self._target.items():
            other = self._spare.get(name)
            if self._commit == "swap" and (other is None or kind(other) != kind(tensor)):
                raise refused("spare", f"spare has no {name} of {kind(tensor)}")
        for one, other in overlapping(self._spare, self._target):
            raise refused("spare", f"{one} and {other} share memory, of spare and of target")
        source = described(self._source, None, shift) if trains else None
        return source, described(self._target, over, shift) if serves else None

    def plan(self) -> WeightPlan:
        """Returns the plan: bytes by rank with their bounds, calls, boxes, and the parts for other transports."""
        return WeightPlan(self._transfer, self._link.rank, len(self._buckets), self._staging_bytes)

    @property
    def target(self) -> dict[str, torch.Tensor]:
        """The tensors that hold the weights, by name; with `commit="swap"` they change with every call."""
        return dict(self._target)

    def _prepare(self, max_bytes: int) -> None:
        """Sorts the boxes of this rank into buckets, which are equal on all ranks, and makes the buffers."""
        part = json.loads(self._transfer.part(self._link.rank))
        sends, receives = [Box.of(one, "to") for one in part["sends"]], [Box.of(one, "from") for one in part["receives"]]
        dtypes = {one["name"]: one["dtype"] for one in part["sources"]}
        for box in (*sends, *receives):
            box.cast = box.cast or [dtypes[box.source]]
        # A copy within this rank is a message to itself, so that it is staged like the others.
        sends += [replace(box) for box in receives if box.peer == self._link.rank]
        self._fills = part["fills"]
        names = self._transfer.targets
        most = torch.zeros(len(names), dtype=torch.int64, device=self._link.device)
        numbers = {name: at for at, name in enumerate(names)}
        for way in (sends, receives):
            size = torch.zeros(len(names), dtype=torch.int64)
            for box in way:
                size[numbers[box.target]] += box.bytes
            most = torch.maximum(most, size.to(most.device))
        most.neg_()
        self._link.least(most)
        of_target = in_buckets(dict(zip(names, most.neg().tolist(), strict=True)), max_bytes)
        self._buckets = [Bucket() for _ in range(max(of_target.values(), default=-1) + 1)]
        for box in sends:
            self._buckets[of_target[box.target]].sends.append(box)
        for box in receives:
            self._buckets[of_target[box.target]].receives.append(box)
        for bucket in self._buckets:
            bucket.assign_offsets(self._link.ranks)
        device = self._link.device
        out = max((sum(bucket.send_bytes) for bucket in self._buckets), default=0)
        into = [sum(bucket.receive_bytes) for bucket in self._buckets]
        self._out = [torch.empty(out, dtype=torch.uint8, device=device) for _ in range(min(2, len(self._buckets)))]
        halves: list[torch.Tensor] = []
        if self._commit == "all":
            whole = torch.empty(sum(into), dtype=torch.uint8, device=device)
            self._into = list(whole.split(into))
        else:
            halves = [torch.empty(max(into, default=0), dtype=torch.uint8, device=device) for _ in range(min(2, len(into)))]
            self._into = [halves[at % 2][:size] for at, size in enumerate(into)]
        self._staging_bytes = sum(one.numel() for one in (*self._out, *(self._into if self._commit == "all" else halves)))
        self._check_memory(receives)
        sets = (self._source, self._target, self._spare)
        self._layouts = [{name: layout(tensor) for name, tensor in tensors.items()} for tensors in sets]
        # Sources that are not contiguous, or are conjugated, are copied before each transfer.
        self._dense = {name: local_of(tensor).contiguous().clone() for name, tensor in self._source.items() if not is_dense(tensor)}
        # Of a bucket and a direction, for the two sets of tensors that `swap` has.
        self._views: dict[tuple[int, str], list[Views]] = {}

    def _check_memory(self, receives: list[Box]) -> None:
        """Raises an error for tensors that share memory which more than one of them would write, or one write and one read."""
        boxes: dict[str, list[Any]] = {}
        for box in receives:
            boxes.setdefault(box.target, []).append(replace(box, target="", at=0))
        for one, other in overlapping(self._target):
            tied = span(self._target[one]) == span(self._target[other]) and self._target[one].dtype == self._target[other].dtype
            if not tied or boxes.get(one) != boxes.get(other):
                raise refused("written_twice", f"{one} and {other} share memory, and are made of different tensors")
        for one, other in overlapping(self._source, {**self._target, **self._spare}) if self._commit != "all" else []:
            raise refused("shared_memory", f"{one} and {other} share memory, of source and of target; pass commit='all'")

    def __call__(self, async_op: bool = False) -> "WeightHandle | int":
        """Sends the weights; returns their epoch, or with `async_op` a handle whose `wait` returns it.

        All ranks call it. Errors: an `EngineError` on all ranks that are alive, with the rank that failed; unless
        `commit` is `"bucket"`, the target is unchanged then.
        """
        if not async_op:
            # After a call that is in progress.
            if self._thread:
                self._thread.submit(int).result()
            return self._run()
        self._thread = self._thread or ThreadPoolExecutor(1, "reshard-weights")
        inference = torch.is_inference_mode_enabled()

        def run() -> int:
            with torch.inference_mode(inference):
                return self._run()

        return WeightHandle(self._thread.submit(run))

    def _run(self) -> int:
        refusal: Exception | None = None
        before = self._number
        if self._commit == "bucket":
            self.epoch = None
        written = self._spare if self._commit == "swap" else self._target
        sending: list[tuple[int, Any, Any]] = []
        with torch.no_grad():
            try:
                refusal = self._read_sources()
                for at, bucket in enumerate(self._buckets):
                    out = self._out[at % 2][: sum(bucket.send_bytes)]
                    if refusal is None:
                        try:
                            self._views_of(at, "out", bucket.sends, self._held, out).copy()
                        except Exception as error:
                            refusal = error
                    work = self._link.exchange(self._into[at], out, bucket.receive_bytes, bucket.send_bytes)
                    sums = self._exchange_sums(bucket, out) if self._checksum else None
                    sending.append((at, work, sums))
                    if len(sending) == 2:
                        refusal = self._arrived(*sending.pop(0), written) or refusal
                while sending:
                    refusal = self._arrived(*sending.pop(0), written) or refusal
                refusal = refusal or self._cannot_write(written)
                epoch = self._agreed(before, refusal)
            except RuntimeError as error:
                if isinstance(error, EngineError):
                    raise
                failed = self._link.failed(error, f"sending the weights of epoch {before + 1}")
                kept = "the weights are invalid" if self._commit == "bucket" else f"epoch {before} stays"
                made = EngineError(f"{failed}; {kept}")
                made.kind, made.rank, made.step, made.group = failed.kind, failed.rank, failed.step, failed.group
                raise made from error
            self._write(written)
        self.epoch = self._number = epoch
        return epoch

    def _arrived(self, at: int, work: Any, sums: Any, written: Mapping[str, torch.Tensor]) -> Exception | None:
        """Waits for a bucket, and unpacks it unless all buckets are staged; returns an error of this rank."""
        work.wait()
        try:
            if sums is not None:
                self._compare_sums(at, sums)
            if self._commit != "all":
                self._views_of(at, "into", self._buckets[at].receives, written, self._into[at]).copy()
        except Exception as error:
            return error
        return None

    def _cannot_write(self, written: Mapping[str, torch.Tensor]) -> Exception | None:
        """Returns an error if a tensor cannot be written, before the ranks agree; nothing is left that can fail after."""
        try:
            check_layouts(written, self._layouts[2 if written is self._spare else 1])
            check_targets(written)
            if self._commit == "all":
                for at, bucket in enumerate(self._buckets):
                    self._views_of(at, "into", bucket.receives, written, self._into[at])
            for fill in self._fills:
                self._zeros(fill, written)
        except Exception as error:
            return error
        return None

    def _zeros(self, fill: dict[str, Any], written: Mapping[str, torch.Tensor]) -> torch.Tensor:
        loops = fill.get("loops") or [[fill["count"], 1]]
        extents, strides = ([loop[at] for loop in loops] for at in range(2))
        return view(written[fill["target"]], fill["offset"], extents, strides)

    def _write(self, written: Mapping[str, torch.Tensor]) -> None:
        """Writes zeros, and with `all` the received bytes; then exchanges the sets."""
        if self._commit == "all":
            for at, bucket in enumerate(self._buckets):
                self._views_of(at, "into", bucket.receives, written, self._into[at]).copy()
        for fill in self._fills:
            self._zeros(fill, written).zero_()
        if self._commit == "swap":
            self._target, self._spare = self._spare, self._target
            self._layouts[1:] = self._layouts[:0:-1]

    def _read_sources(self) -> Exception | None:
        """Copies the sources that are not contiguous; returns an error for one that has another layout than planned."""
        try:
            check_layouts(self._source, self._layouts[0])
            for name, copy in self._dense.items():
                copy.copy_(local_of(self._source[name]))
        except Exception as error:
            return error
        self._held = {**self._source, **self._dense}
        return None

    def _views_of(self, at: int, way: str, boxes: list["Box"], held: Mapping[str, torch.Tensor], staging: torch.Tensor) -> "Views":
        """Returns the views of a bucket's boxes, new ones only if a tensor has another address."""
        names = sorted({box.source if way == "out" else box.target for box in boxes})
        addresses = [local_of(held[name]).data_ptr() for name in names]
        known = self._views.setdefault((at, way), [])
        found = next((one for one in known if one.addresses == addresses), None)
        if found is None:
            found = Views.of(addresses, boxes, way == "out", held, staging)
            known[:] = [*known[-1:], found]
        return found

    def _exchange_sums(self, bucket: "Bucket", out: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor]:
        """Begins to exchange a checksum of each message."""
        own = torch.tensor([_crc(part) for part in out.split(bucket.send_bytes)], dtype=torch.int64).view(torch.uint8)
        own = own.to(self._link.device)
        theirs, sizes = torch.empty_like(own), [8] * len(self._link.ranks)
        return self._link.exchange(theirs, own, sizes, sizes), theirs, own

    def _compare_sums(self, at: int, sums: tuple[Any, torch.Tensor, torch.Tensor]) -> None:
        work, theirs, _ = sums
        work.wait()
        messages = self._into[at].split(self._buckets[at].receive_bytes)
        for rank, message, said in zip(self._link.ranks, messages, theirs.cpu().view(torch.int64).tolist(), strict=True):
            found = _crc(message)
            if found != said:
                raise refused("checksum", f"{message.numel()} bytes from rank {rank} have the checksum {found:08x}, not {said:08x}")

    def _agreed(self, before: int, refusal: Exception | None) -> int:
        """Returns the next epoch if all ranks have all bytes; else raises an error that names a rank."""
        me = self._link.rank
        numbers = torch.tensor([-before, _NONE if refusal is None else me], dtype=torch.int64, device=self._link.device)
        self._link.least(numbers)
        epoch, failed = -int(numbers[0]), int(numbers[1])
        if failed == _NONE:
            return epoch + 1
        said = self._link.gather(None if refusal is None else said_of(refusal))
        if refusal is not None:
            raise refusal if isinstance(refusal, ReshardError) else refused("raised", said[self._link.ranks.index(me)]) from refusal
        kept = "the weights are invalid" if self._commit == "bucket" else f"epoch {before} stays"
        error = EngineError(f"rank {failed} has failed: {said[self._link.ranks.index(failed)]}; {kept}")
        error.kind, error.rank, error.step, error.group = "lost", failed, None, list(self._link.ranks)
        raise error


def _crc(message: torch.Tensor) -> int:
    """Returns the CRC-32 of bytes."""
    message = message.cpu()
    if not message.numel():
        return 0
    return zlib.crc32((ctypes.c_char * message.numel()).from_address(message.data_ptr()))
