"""Execution of programs by PyTorch: calls are ops, exchanges are plans over c10d, memory is one arena."""

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from reshard import EngineError, Instruction, Plan, Program, Schedule, Sharding
from reshard._refusals import counted, refused

from reshard.torch.execute import Executor
from reshard.torch.groups import Groups
from reshard.torch.kernels import Kernel, kernel_of, torch_dtype
from reshard.torch.lost import lost, named_ranks
from reshard.torch.memory import check_is_there, resolved, settled, why_not_plain
from reshard.torch.specs import sharding
from reshard.torch.state import Moving, run_together

# Runners have equal numbers on all ranks, because all ranks make every runner.
_numbers = itertools.count()


@dataclass(frozen=True)
class RankEvent:
    """An event of a step: a call on tensors of these shapes, or an exchange and its received bytes."""

    what: str
    takes: tuple[tuple[str, tuple[int, ...]], ...]
    makes: tuple[tuple[str, tuple[int, ...]], ...]
    received_bytes: int = 0


class Runner:
    """This rank's prepared step of a program; call it with inputs, any number of times.

    Ranks are those of the default group. Every rank of it makes the runner, because missing groups of plans
    are made here; those of `groups` are used where they fit. `kernels` are functions `(call, *tensors) ->
    tensor` by the names of ops or the texts of calls. They replace or extend PyTorch's ops. The other options
    are those of `Program.compile`. A rank outside of the program's mesh does nothing and gets an empty
    result.

    Errors: `ReshardError` for a call without a function; `EngineError` on all ranks if one of them has
    another program or options, or raised an error.
    """

    def __init__(
        self,
        program: Program,
        *,
        device: torch.device | str = "cpu",
        groups: Groups | None = None,
        kernels: Mapping[str, Kernel] | None = None,
        liveness: bool = True,
        in_flight_bytes: int = 0,
        bucket_bytes: int = 0,
        order: Literal["program", "1f1b"] = "program",
    ) -> None:
        self.program, self.device, self.rank = program, torch.device(device), dist.get_rank()
        self._number, self._runs = next(_numbers), 0
        self.trace: list[RankEvent] = []
        self._steps: list[Callable[[], None]] = []
        self._tensors: dict[str, torch.Tensor] = {}
        self._failed: Exception | None = None
        self._has_run = False
        ranks = tuple(sorted(program.mesh.ranks))
        self.schedule: Schedule | None = None
        refused: Exception | None = None
        try:
            if self.rank in program.mesh:
                self.schedule = program.compile(self.rank, liveness=liveness, in_flight_bytes=in_flight_bytes, bucket_bytes=bucket_bytes, order=order)
            called = self._called(kernels or {})
        except Exception as error:
            refused = error
        text = f"{program}\n{liveness} {in_flight_bytes} {bucket_bytes} {order}"
        self._agree_on(text, refused)
        if refused is not None:
            raise refused
        known = Groups.world() if groups is None else groups
        of_all = self.schedule or program.compile(ranks[0])
        exact = {plan: _exact(plan) for plan in of_all.plans}
        known = known.with_members([ranks, *(members for of in exact.values() for members in of)] if len(ranks) > 1 else [])
        self._group = known.name(list(ranks)) if self.schedule is not None and len(ranks) > 1 else None
        self.received_bytes = 0
        if self.schedule is None:
            return
        self.arena = torch.zeros(self.schedule.arena_bytes, dtype=torch.uint8, device=self.device)
        for local in self.schedule.buffers:
            place = self.arena.narrow(0, local.offset, local.bytes) if local.bytes else self.arena.new_empty(0)
            self._tensors[local.name] = place.view(torch_dtype(local.dtype.name)).view(local.shape)
        pending: dict[tuple[str, ...], list[Moving]] = {}
        for number, step in enumerate(self.schedule.steps):
            if step.kind == "call":
                self._steps.append(self._call(step, called[number]))
            elif step.kind == "post":
                self._steps.append(self._post(step, known, exact, pending))
            else:
                self._steps.append(self._wait(step, pending))

    def shard(self, name: str, whole: torch.Tensor) -> torch.Tensor:
        """Returns this rank's shard of an input, given the whole tensor."""
        value = self.program[name]
        whole = _tensor_of(name, whole)
        if tuple(whole.shape) != value.shape:
            raise refused("shape", f"{name} is {list(value.shape)} in the program, but {list(whole.shape)} is given")
        return cut(value.sharding, whole, self.rank)

    def __call__(self, inputs: Mapping[str, torch.Tensor | DTensor] | None = None) -> dict[str, torch.Tensor]:
        """Runs a step on this rank's shards of the inputs, and returns the rank's results by name.

        Every rank of the program's mesh calls it. Inputs are tensors of the rank's shape, or DTensors of the
        program's sharding. After the first step, an input that is not given has its value from the previous
        step: `w'` if the program makes `w'` of `w`, or its unchanged value if its buffer is live at the end.

        A rank whose function raises continues its exchanges, so that no rank waits for it, and raises that
        error at the end. All others raise an `EngineError` with its rank. The results of such a step are
        invalid; all ranks can run another step.

        Errors: that, and the same for inputs that do not fit the rank; an `EngineError` for a call that
        fails, with the failed ranks.
        """
        if self.schedule is None:
            return {}
        self.trace, self._failed = [], None
        with torch.no_grad():
            try:
                self._given(inputs or {})
            except Exception as error:
                self._failed = error
            for step in self._steps:
                step()
            self._agree()
            made = {local.name: self._tensors[local.name].clone() for local in self.schedule.buffers if local.is_live_out}
            for offset, size, onto in self.schedule.loop_carried_copies:
                self.arena.narrow(0, onto, size).copy_(self.arena.narrow(0, offset, size))
        self._has_run = True
        return made

    def _called(self, kernels: Mapping[str, Kernel]) -> dict[int, Callable[[Sequence[torch.Tensor]], tuple[torch.Tensor, ...]]]:
        """Returns the functions of all calls, by their indices among the steps."""
        if self.schedule is None:
            return {}
        return {number: kernel_of(step.call, self.device, kernels) for number, step in enumerate(self.schedule.steps) if step.call is not None}

    def _given(self, inputs: Mapping[str, torch.Tensor | DTensor]) -> None:
        assert self.schedule is not None
        for name in inputs:
            if name not in self.program.inputs:
                raise refused("program", f"the program has no input {name}; it has the inputs {', '.join(self.program.inputs)}")
        for local in self.schedule.buffers:
            if not local.is_input:
                continue
            given = inputs.get(local.name)
            if given is None:
                if not self._has_run:
                    raise refused("program", f"the input {local.name} is missing; the first step needs all inputs")
                if not local.is_live_out and f"{local.name}'" not in self.program:
                    raise refused("program", f"the input {local.name} is missing; the previous step left no value of it")
                continue
            if isinstance(given, DTensor):
                has, wanted = sharding(given), self.program[local.name].sharding
                if (str(has), has.shape, has.mesh.shape, has.mesh.ranks) != (str(wanted), wanted.shape, wanted.mesh.shape, wanted.mesh.ranks):
                    raise refused(
                        "sharding", f"{local.name} is {wanted} on {wanted.mesh} in the program, but {has} on {has.mesh} is given; redistribute it first"
                    )
                given = given._local_tensor
            here = self._tensors[local.name]
            given = _tensor_of(local.name, given)
            if given.shape != here.shape or given.dtype != here.dtype:
                raise refused(
                    "dtype" if given.shape == here.shape else "shape",
                    f"{local.name} is {here.dtype}{list(here.shape)} on rank {self.rank}, but {given.dtype}{list(given.shape)} is given; "
                    f"Runner.shard returns the shard of a whole tensor",
                )
            here.copy_(given)

    def _call(self, step: Instruction, kernel: Callable[[Sequence[torch.Tensor]], tuple[torch.Tensor, ...]]) -> Callable[[], None]:
        takes, makes = ([(name, self._tensors[name]) for name in names] for names in (step.inputs, step.outputs))
        text = str(step.call)

        def call() -> None:
            if self._failed is not None:
                return
            try:
                made = kernel([tensor for _, tensor in takes])
                if len(made) != len(makes):
                    raise refused("calls", f"{text} has {counted(len(makes), 'output')}, but its function returned {counted(len(made), 'tensor')}")
                for (name, place), tensor in zip(makes, made, strict=True):
                    _check_made(text, tensor, place)
                    if tensor.shape != place.shape:
                        raise refused(
                            "shape", f"the output {name} of {text} has the shape {list(place.shape)} on rank {self.rank}, but its function returned {list(tensor.shape)}"
                        )
                    place.copy_(tensor)
            except Exception as error:
                self._failed = error
                return
            self.trace.append(RankEvent(text, tuple((n, tuple(t.shape)) for n, t in takes), tuple((n, tuple(t.shape)) for n, t in zip(step.outputs, made, strict=True))))

        return call

    def _post(
        self, step: Instruction, groups: Groups, exact: Mapping[Plan, list[tuple[int, ...]]], pending: dict[tuple[str, ...], list[Moving]]
    ) -> Callable[[], None]:
        ready: list[tuple[str, Executor, Groups]] = []
        for taken, plan in zip(step.inputs, step.plans, strict=True):
            chosen = groups.only(exact[plan])
            dtype = torch_dtype(plan.dtype.name)
            ready.append((taken, Executor(plan, self.rank, chosen, dtype), chosen))
            self.received_bytes += ready[-1][1].received_bytes
        names = tuple(step.outputs)

        def post() -> None:
            moving = []
            for taken, executor, chosen in ready:
                source = self._tensors.get(taken)
                flat = self.arena.new_empty(0).view(executor.dtype) if source is None else source.reshape(-1)
                moving.append(Moving(taken, executor, chosen, flat))
            if len(moving) == 1:
                moving[0].flat = moving[0].executor(moving[0].flat, async_op=True)
            else:
                run_together(moving)
            pending[names] = moving

        return post

    def _wait(self, step: Instruction, pending: dict[tuple[str, ...], list[Moving]]) -> Callable[[], None]:
        names = tuple(step.outputs)

        def wait() -> None:
            moving = pending.pop(names)
            received = 0
            for name, moved in zip(names, moving, strict=True):
                place = self._tensors.get(name)
                if place is not None:
                    try:
                        place.copy_(moved.flat.view(place.shape))
                    except RuntimeError as error:  # from a call without its wait
                        call = moved.executor.calls[len(moved.executor.calls) - 1]
                        raise lost(error, f"{call.kind} of {moved.name}", moved.executor.members(call), call.step) from error
                received += moved.executor.received_bytes
            shapes = [() if (t := self._tensors.get(name)) is None else tuple(t.shape) for name in names]
            self.trace.append(RankEvent("exchange", tuple((taken, ()) for taken in step.inputs), tuple(zip(names, shapes, strict=True)), received))

        return wait

    def _agree_on(self, text: str, refused: Exception | None) -> None:
        """Raises on all ranks if one rank of the default group has another text, or raised an error."""
        world = dist.get_world_size()
        if world == 1:
            return
        own = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") + 1
        mine = torch.tensor([own if refused is None else 0], dtype=torch.int64, device=self.device)
        if refused is not None:
            self._say(refused)
        name = Groups.world().name(list(range(world)))
        try:
            all_of = torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_gather_into_tensor(mine, world, name)).tolist()
        except RuntimeError as error:
            raise lost(error, "agreeing on a program", list(range(world)), 0) from error
        bad = [rank for rank, said in enumerate(all_of) if said == 0]
        if bad:
            if refused is None:
                raise self._raised(bad, "cannot run the program")
            return
        most = max(all_of, key=all_of.count)
        others = [rank for rank, said in enumerate(all_of) if said != most]
        if others:
            named = named_ranks(others)
            has = "have" if len(others) > 1 else "has"
            disagrees = EngineError(f"{named} {has} another program, or other options, than the {counted(world - len(others), 'other')}: nothing ran")
            disagrees.kind, disagrees.rank, disagrees.step, disagrees.group = "disagrees", others[0], None, list(range(world))
            raise disagrees

    def _agree(self) -> None:
        """Raises the error of this rank's function, and on others an error that names the failed ranks."""
        failed, ranks = self._failed, sorted(self.program.mesh.ranks)
        self._runs += 1
        if self._group is not None:
            ops = torch.ops._c10d_functional
            if failed is not None:
                self._say(failed)
            mine = torch.tensor([rank == self.rank and failed is not None for rank in ranks], dtype=torch.int32, device=self.device)
            try:
                flags = ops.wait_tensor(ops.all_reduce(mine, "max", self._group)).tolist()
            except RuntimeError as error:
                raise lost(error, "the end of a step", ranks, 0) from error
            bad = [rank for rank, flag in zip(ranks, flags, strict=True) if flag]
            if bad and failed is None:
                raise self._raised(bad, "raised in a step")
        if failed is not None:
            raise failed

    def _key(self, rank: int) -> str:
        return f"reshard/raised/{self._number}/{self._runs}/{rank}"

    def _say(self, error: Exception) -> None:
        """Publishes an error to the other ranks, by the store of the default group."""
        dist.distributed_c10d._get_default_store().set(self._key(self.rank), f"{type(error).__name__}: {error}"[:500])

    def _raised(self, ranks: list[int], what: str) -> EngineError:
        text = dist.distributed_c10d._get_default_store().get(self._key(ranks[0])).decode()
        more = f" (and ranks {', '.join(map(str, ranks[1:]))})" if len(ranks) > 1 else ""
        error = EngineError(f"rank {ranks[0]}{more} {what}: {text}")
        error.kind, error.rank, error.step, error.group = "raised", ranks[0], None, sorted(self.program.mesh.ranks)
        return error


def run(program: Program, inputs: Mapping[str, torch.Tensor | DTensor], **options: Any) -> dict[str, torch.Tensor]:
    """Runs one step of a program on this rank, by PyTorch's ops: `Runner(program, **options)(inputs)`."""
    return Runner(program, **options)(inputs)


def cut(of: Sharding, whole: torch.Tensor, rank: int) -> torch.Tensor:
    """Returns a rank's shard of a whole tensor; for partial values, a decomposition of the whole."""
    whole = _tensor_of("the whole", whole)
    if tuple(whole.shape) != of.shape:
        raise refused("shape", f"the sharding is for {list(of.shape)}, but {list(whole.shape)} is given")
    if rank not in of.mesh:
        return whole.new_empty(0)
    if "P" in str(of):
        return of.shard_all(whole.detach().cpu(), rank).to(whole.device)
    made = whole.detach()
    for dim, ranges in enumerate(of.region(rank).intervals):
        made = torch.cat([made.narrow(dim, one.start, len(one)) for one in ranges] or [made.narrow(dim, 0, 0)], dim)
    return made.contiguous()


def _tensor_of(name: str, given: Any) -> torch.Tensor:
    """Returns a tensor whose memory is its value; rejects other objects, and tensors without memory."""
    if not isinstance(given, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, not {type(given).__qualname__}")
    made = resolved(settled(given))
    if (why := why_not_plain(made)) is not None:
        raise refused(why.kind, f"{name} cannot be read: {why}")
    return made


def _check_made(call: str, given: Any, place: torch.Tensor) -> None:
    """Rejects a function's result that is not a tensor, has no memory, or is complex for a real output."""
    if not isinstance(given, torch.Tensor) or isinstance(given, DTensor):
        raise TypeError(f"the function of {call} must return a torch.Tensor, not {type(given).__qualname__}")
    if type(given).__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        _tensor_of(f"the result of the function of {call}", given)
    else:
        check_is_there(f"the result of the function of {call}", given)
    if given.is_complex() and not place.is_complex():
        raise refused("dtype", f"the function of {call} returned {given.dtype}, which {place.dtype} cannot represent")


def _exact(plan: Plan) -> list[tuple[int, ...]]:
    """Returns the groups of a plan's collectives that all members participate in; others use messages."""
    found: dict[tuple[int, ...], bool] = {}
    for step in plan.steps:
        if not step.communicates or step.before.mesh != step.after.mesh:
            continue
        for members in step.before.mesh.groups(*step.axes).members():
            key = tuple(sorted(members))
            found[key] = found.get(key, True) and all(step.phases(rank) for rank in members)
    return [members for members, all_have in found.items() if all_have]
