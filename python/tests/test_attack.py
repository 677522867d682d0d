"""No public function of the package panics, crashes, hangs or exhausts memory, whatever its arguments are.

Every callable is called with arguments of the types in its stub, of which one or more are replaced by other
values. Calls are drawn from a seed, in a separate process with 2 GiB of memory and 30 seconds for each call;
results are arguments of later calls. `RESHARD_ATTACK_CALLS` makes the run longer. `RESHARD_ATTACK_SEED`
selects another run: a number, or `random`. The message of a failure contains the command that repeats it.
"""

import os
import pathlib
import random
import subprocess
import sys

import numpy as np
import pytest
import reshard

HERE = pathlib.Path(__file__).parent
CALLS = int(os.environ.get("RESHARD_ATTACK_CALLS", "25000"))
ASKED = os.environ.get("RESHARD_ATTACK_SEED", "1")
SEED = random.SystemRandom().getrandbits(32) if ASKED == "random" else int(ASKED)
AGAIN = f"again: RESHARD_ATTACK_SEED={SEED} RESHARD_ATTACK_CALLS={CALLS}"


@pytest.mark.parametrize("part", range(2))
def test_nothing_panics_crashes_or_hangs(part: int, tmp_path: pathlib.Path) -> None:
    """Runs one process for each part of the classes; if it dies, a file has its last call."""
    note = tmp_path / "call"
    command = [sys.executable, str(HERE / "attack.py"), str(SEED + part), str(CALLS), str(note)]
    # Hash tables of texts have the same order in every run. A call that hangs ends after its 30 seconds; the
    # timeout ends a process that hangs outside of a call.
    same = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=same, timeout=600 + CALLS / 20)
    last = note.read_bytes().rstrip(b"\0").decode(errors="replace") if note.exists() else ""
    assert done.returncode == 0, f"exit {done.returncode} at {last}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}\n{AGAIN}"


def test_a_panic_is_found(tmp_path: pathlib.Path) -> None:
    """The judge of the attack itself: it reports the exceptions that must not occur."""
    sys.path.insert(0, str(HERE))
    import attack

    class PanicException(BaseException):
        pass

    assert attack.fault(PanicException("planted"))
    assert attack.fault(ValueError("Error { at: 3 }"))
    assert attack.fault(ValueError("no Some(3) here"))
    assert attack.fault(ValueError("x" * 5000))
    assert attack.fault(AttributeError("'reshard.Layout' object has no attribute"), known=True)
    assert attack.fault(OverflowError("can't convert negative int to unsigned"))
    assert attack.fault(ValueError("expected a sequence of length 4"))
    assert attack.fault(UnicodeEncodeError("utf-8", "a\ud800", 1, 2, "surrogates not allowed"))
    assert attack.fault(MemoryError("Unable to allocate 4.00 TiB"))
    bare = reshard.ReshardError("planted")
    assert not attack.fault(bare)
    bare.kind = None  # type: ignore[assignment]
    assert attack.fault(bare)


def run(script: str, tmp_path: pathlib.Path, *arguments: str) -> str:
    """Returns the output of a script of this folder; fails if the script does, with its last call."""
    note = tmp_path / "call"
    command = [sys.executable, str(HERE / script), *arguments, str(note)]
    same = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=same, timeout=600)
    last = note.read_bytes().rstrip(b"\0").decode(errors="replace") if note.exists() else ""
    assert done.returncode == 0, f"exit {done.returncode} at {last}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def test_memory_of_every_kind(tmp_path: pathlib.Path) -> None:
    """Every function that takes memory, with memory of every kind, rejects it or reads its own bytes."""
    rounds = max(2, CALLS // 12_500)
    assert " accepted" in run("attack_buffers.py", tmp_path, str(SEED), str(rounds))


def test_every_argument_with_every_wrong_value(tmp_path: pathlib.Path) -> None:
    """Every public function, with each of a table of wrong values for each of its arguments."""
    assert " accepted" in run("walk_arguments.py", tmp_path)


def test_no_list_is_without_end(tmp_path: pathlib.Path) -> None:
    """Every function that returns a list, on objects of 2^40 elements and ranks, in 2 GiB of memory."""
    called = run("walk_lists.py", tmp_path).split()
    assert len(called) > 200
    assert {"Region.indices", "View.elements", "Sharding.global_indices", "ComposedLayout.values", "LocalTensor.indices", "Mesh.ranks", "Key.split"} <= set(called)


def test_lists_have_a_limit() -> None:
    long = reshard.Sharding("x=2", (2**40,), "R")
    for call in (
        lambda: long.region(0).indices(0),
        lambda: long.global_indices(0),
        lambda: reshard.View(0, [(2**40, 1)]).elements(),
        lambda: reshard.Key(0).split(2**40),
        lambda: reshard.Verifier("relu", lambda x: x).failing(reshard.Op("relu", [(2**40,)])),
    ):
        with pytest.raises(reshard.ReshardError):
            call()
    assert len(reshard.View(0, [(1 << 20, 1)]).elements()) == 1 << 20


def test_numbers_out_of_range_are_refused() -> None:
    one = reshard.Sharding("x=2", (4, 6), "S(0)")
    plan = reshard.plan(one, one)
    for wrong in (-1, 2**64, 10**5000):
        for call in (
            lambda wrong=wrong: one.local_shape(wrong),
            lambda wrong=wrong: one.region(0).indices(wrong),
            lambda wrong=wrong: one.narrow(0, wrong, 3),
            lambda wrong=wrong: one.permute([0, wrong]),
            lambda wrong=wrong: reshard.S(wrong),
            lambda wrong=wrong: reshard.Key(0).fold_in(wrong),
            lambda wrong=wrong: reshard.Key(0).normal((4,), sharding=None, rank=wrong),
            lambda wrong=wrong: reshard.Planner(max_peak_bytes=wrong),
            lambda wrong=wrong: reshard.GroupPattern("2:1").members(wrong),
            lambda wrong=wrong: reshard.Mesh({"x": wrong}),
            lambda wrong=wrong: reshard.Sharding("x=2", wrong, "R"),
            lambda wrong=wrong: reshard.Sharding("x=2", (4, wrong), "R"),
            lambda wrong=wrong: reshard.ProcessGroup([0, wrong]),
            lambda wrong=wrong: plan.calls(0)[wrong] if wrong > 0 else reshard.S(wrong),
        ):
            with pytest.raises(reshard.ReshardError) as error:
                call()
            assert isinstance(error.value.kind, str)
        assert wrong not in reshard.Mesh("x=2") and wrong not in reshard.ProcessGroup([0, 1])
    for kind in (reshard.ReshardError, reshard.EngineError, reshard.NotRepresentable, reshard.PlanMismatch):
        assert isinstance(kind("by hand").kind, str)


class Lying(list[int]):
    def __len__(self) -> int:
        return 2**62


def test_a_length_is_not_believed() -> None:
    assert reshard.Sharding("x=2", Lying([4, 2]), "R").shape == (4, 2)
    assert reshard.Key(0).normal(Lying([4, 2])).shape == (4, 2)
    for endless in (iter(int, 1), range(2**40)):
        with pytest.raises(ValueError, match="more than"):
            reshard.Sharding("x=2", endless, "R")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="more than"):
            reshard.Layout(endless)  # type: ignore[arg-type]


def test_a_graph_is_compared_with_itself() -> None:
    graph = reshard.Graph("x=2")
    assert graph == graph


def test_memory_that_is_not_there_is_refused() -> None:
    program = reshard.Program("mesh x=1\nx: f32[4] R\ny: R = expand(x,shape=[1099511627776,4])\n")
    with pytest.raises(reshard.ReshardError, match="no memory"):
        program.on_ranks({"x": np.zeros(4, "f4")})


def test_sets_of_a_verifier_are_limited() -> None:
    for sets in (0, 2**62):
        with pytest.raises(reshard.ReshardError, match="1 to 1024"):
            reshard.Verifier("relu", lambda x: x, sets=sets)


def test_objects_are_no_numbers() -> None:
    program = reshard.Program("mesh x=2\nx: f32[4] S(0)\ny: S(0) = relu(x)\n")
    for wrong in ([None] * 4, ["1"] * 4, [1j] * 4):
        with pytest.raises(reshard.ReshardError, match="cannot be converted"):
            program.on_ranks({"x": np.array(wrong)})
        with pytest.raises(reshard.ReshardError, match="cannot be converted"):
            program.on_ranks({"x": np.zeros(4, "f4")}, kernels={"relu": lambda call, x, wrong=wrong: np.array(wrong[:2])})


def test_sentences_are_short() -> None:
    with pytest.raises(reshard.ReshardError) as refused:
        reshard.Graph("x=2").shape("x" * (1 << 20))
    assert len(str(refused.value)) < 3000


def test_sequences_that_hold_each_other_are_refused() -> None:
    for item in (1, None):
        held: object = [item, item]
        for _ in range(55):
            held = [held, held]
        for call in (
            lambda held=held: reshard.Layout(held),
            lambda held=held: reshard.Layout("8:1").slice(held),
            lambda held=held: reshard.Layout("8:1").logical_divide(held),
            lambda held=held: reshard.Placement(held),
            lambda held=held: reshard.DType(held),
            lambda held=held: reshard.Mesh.from_nested(["x"], held),
        ):
            with pytest.raises((ValueError, TypeError)):
                call()
