"""Calls every function that returns a list on objects of 2^40 elements or ranks, with huge numbers: `python walk_lists.py NOTE`.

It prints the names of the functions that answered or raised an error, one a line, and the problems; it ends
if memory does.
"""

import ast
import itertools
import os
import pathlib
import resource
import signal
import sys
from collections.abc import Iterator
from typing import Any

import attack
import reshard

MOST = 1 << 22
HUGE = 1 << 40


def huge() -> dict[str, list[Any]]:
    """Returns objects with short descriptions and 2^40 elements or ranks, next to the attack's small ones."""
    r = reshard
    large = r.Mesh({"x": 1 << 20, "y": 1 << 20})
    wide = r.Sharding("x=2", (HUGE, 4), "S(0)")
    long = r.Sharding("x=2", (HUGE,), "R")
    over_many = r.Sharding({"x": 1 << 20}, (HUGE,), "S(0)")
    plan = r.plan(wide, r.Sharding("x=2", (HUGE, 4), "S(1)"))
    program = r.Program(f"mesh x=2\nx: f32[{HUGE},4] S(0)\ny: S(0) = relu(x)\n")
    schedule = program.compile(0)
    layout = r.Layout(f"({HUGE},4):(4,1)")
    made: list[Any] = [
        large, large.group("x"), large.group_of_all(), large.groups("x"), large.members(0, "x"), r.Mesh({"x": HUGE}), wide, long, over_many,
        wide.region(0), long.region(0), over_many.region(5), r.Region([[range(HUGE)], [range(3), range(4, HUGE)]]), plan, plan.steps, plan.phases(0),
        [message for _, _, message in plan.messages(0)], plan.calls(0), list(plan.calls(0)), plan.spmd(), plan.spmd().calls,
        r.View(0, [(HUGE, 1)]), r.View(3, [(1 << 20, 1 << 22), (1 << 20, 2)]), r.Layout(f"{HUGE}:3"), layout,
        r.ComposedLayout(r.Swizzle(2, 0, 3), 0, r.Layout(f"{HUGE}:1")), r.GroupPattern(f"{HUGE}:1"), r.ProcessGroup(f"{HUGE}:1@0"), program,
        program.values, program.statements, schedule, schedule.calls, schedule.buffers, schedule.calls[0].inputs, program.trace(0), program.report(),
        r.Key(0), r.Op("relu", [(HUGE,)]), r.Timeline([schedule]), r.OpTable(), r.Planner(), r.Propagator(),
        r.GroupRegistry(large), r.ShardingType("x=2", (HUGE,), "S(0)"), r.Placement("S(0)"),
    ]  # fmt: skip
    pool = attack.seeds()
    for each in made:
        for item in each if isinstance(each, (list, tuple)) else [each]:
            pool.setdefault(type(item).__name__, []).append(item)
    return pool


def values(annotation: str, name: str, pool: dict[str, list[Any]]) -> list[Any]:
    """Returns some arguments of a parameter, the largest first."""
    words = annotation.replace("|", " ").replace("[", " ").replace("]", " ").replace(",", " ").split()
    for word in words:
        if word in pool and word != "path":
            return [*reversed(pool[word])][:2]
    if "_PlacementsLike" in annotation:
        return ["S(0)"]
    if "_MeshLike" in annotation:
        return [f"x={HUGE}", "x=2"]
    if "_Shape" in annotation or "_Ints" in annotation or "_Pattern" in annotation:
        return [(HUGE,), (HUGE, 4), HUGE, (1 << 20, 1 << 20)]
    if "Sequence[Sequence" in annotation:
        return [[[HUGE]], [[HUGE, HUGE]]]
    if "Sequence[int]" in annotation:
        return [[HUGE], [0, HUGE]]
    if "Sequence" in annotation or "dict" in annotation.lower():
        return [[], {}]
    if "int" in annotation or "float" in annotation:
        return [HUGE, 0, 1, 3, (1 << 63) - 1, -1, 1 << 64]
    if "bool" in annotation:
        return [True]
    return {"draw": ["normal"], "op": ["relu"], "axis": ["x"], "name": ["x", "relu"], "key": ["dim"]}.get(name, ["x"])


def items(made: Any) -> int:
    """Returns the number of elements of a list, nested ones included."""
    if not isinstance(made, (list, tuple)):
        return 1
    return len(made) + sum(items(one) for one in made[:4])


def calls() -> Iterator[tuple[str, ast.FunctionDef, bool]]:
    """Yields (class, function, whether it makes an object) for functions that return lists or objects."""
    stub = pathlib.Path(reshard.__file__).parent / "_reshard.pyi"
    for node in ast.parse(stub.read_text()).body:
        if not isinstance(node, ast.ClassDef) or not hasattr(reshard, node.name):
            continue
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and member.returns is not None:
                returns, words = ast.unparse(member.returns), {ast.unparse(each) for each in member.decorator_list}
                makes = member.name == "__new__" or "staticmethod" in words
                if "list[" in returns or "tuple[" in returns or member.name == "__iter__" or makes:
                    yield node.name, member, makes


def walk(name: str, member: ast.FunctionDef, makes: bool, pool: dict[str, list[Any]], note: int) -> list[str]:
    """Returns the problems of a function of a class."""
    faults = []
    is_property = any(ast.unparse(each) == "property" for each in member.decorator_list)
    listed = attack.parameters(member, not makes or member.name == "__new__")
    wanted = [p for p in listed if not p[3] and p[0] in ("positional", "named")]
    for owner in [getattr(reshard, name)] if makes else pool.get(name, [])[-6:]:
        for given in itertools.islice(itertools.product(*[values(p[2], p[1], pool) for p in wanted]), 40):
            said = f"{name}.{member.name} of {attack.short(owner)}: {attack.short(given)}"
            os.pwrite(note, said.encode()[:4000].ljust(4000, b"\0"), 0)
            try:
                if is_property:
                    made = getattr(owner, member.name)
                elif member.name == "__new__":
                    made = owner(*given)
                elif member.name == "__iter__":
                    made = list(itertools.islice(iter(owner), 10))
                else:
                    named = {p[1]: value for p, value in zip(wanted, given, strict=True) if p[0] == "named"}
                    made = getattr(owner, member.name)(*given[: len(given) - len(named)], **named)
                if items(made) > 2 * MOST:
                    faults.append(f"{said}: {items(made)} items")
            except (reshard.ReshardError, reshard.EngineError, TypeError) as error:
                if not isinstance(error, TypeError) and not isinstance(error.kind, str):
                    faults.append(f"{said}: no kind")
            except BaseException as error:
                faults.append(f"{said}: {type(error).__name__} {str(error)[:200]}")
    return faults


def main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    note = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
    pool, all_faults = huge(), 0
    for name, member, makes in calls():
        # A function that aborts ends only its child process, and the others are still called.
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            faults = walk(name, member, makes, pool, note)
            print("".join(f"WRONG {fault}\n" for fault in faults[:3]), end="")
            sys.stdout.flush()
            os._exit(bool(faults))
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) not in (0, 1):
            at = os.pread(note, 4000, 0).rstrip(b"\0").decode(errors="replace")
            print(f"WRONG {at}: ended with {os.waitstatus_to_exitcode(status)}")
        all_faults += status != 0
        print(f"{name}.{member.name}")
    return 1 if all_faults else 0


if __name__ == "__main__":
    sys.exit(main())
