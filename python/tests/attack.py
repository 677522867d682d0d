"""Calls everything with anything: `python attack.py SEED CALLS NOTE`; NOTE is a file for the current call."""

import ast
import builtins
import copy
import inspect
import os
import pathlib
import pickle
import random
import reprlib
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import reshard
import reshard.checkpoint

# Texts that must not be in an error for users: the debug notation of Rust's values.
RUSTS = ("Some(", "Error {", "Err(", "Ok(", "called `", "unwrap", "panicked", "PyErr {", "PoisonError", "src/")


# Errors that Python and NumPy raise themselves if an argument is compared, printed or called.
PYTHONS = ("truth value", "planted", "integer string conversion", "repr()", "NumPy boolean", "not supported by signature")


def fault(error: BaseException, known: bool = False) -> str | None:
    """Returns the reason if an exception must not reach a user, or None."""
    name, text = type(error).__name__, str(error)
    if name in ("PanicException", "OverflowError", "SystemError", "AssertionError", "UnboundLocalError", "NameError", "AttributeError" if known else ""):
        return f"{name}: {text[:300]}"
    if isinstance(error, (reshard.ReshardError, reshard.EngineError)) and not isinstance(error.kind, str):
        return f"no kind in {name}: {text[:300]}"
    if isinstance(error, (ValueError, MemoryError)) and not isinstance(error, reshard.ReshardError):
        if not known and text and not any(word in text for word in PYTHONS):
            return f"a {name} instead of a ReshardError: {text[:300]}"
    if any(word in text for word in RUSTS):
        return f"Rust's notation in {name}: {text[:300]}"
    if len(text) > 4000:
        return f"a message of {len(text)} characters in {name}: {text[:200]}"
    return None


# The kind, the name and the annotation of a parameter, and whether it is optional.
Parameter = tuple[str, str, str, bool]


class Lying(list[Any]):
    def __len__(self) -> int:
        return 2**62


class Short(list[Any]):
    def __len__(self) -> int:
        return 0


class Raising:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("planted")

    def __iter__(self) -> Any:
        raise RuntimeError("planted")

    def __len__(self) -> int:
        raise RuntimeError("planted")

    def __str__(self) -> str:
        raise RuntimeError("planted")

    __repr__ = __str__

    def __index__(self) -> int:
        raise RuntimeError("planted")

    def __hash__(self) -> int:
        raise RuntimeError("planted")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("planted")


class Endless:
    def __iter__(self) -> Iterator[int]:
        return builtins.iter(int, 1)


class NoText:
    def __str__(self) -> Any:
        return 3


class Device:
    def __dlpack_device__(self) -> Any:
        return (2, 0)


class FalseInterface:
    __array_interface__ = {"shape": (2**40,), "typestr": "<f4", "data": (0, False), "version": 3}


def itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(10_000):
        found = [found]
    return found


def doubled() -> Any:
    found: Any = [1, 1]
    for _ in range(60):
        found = [found, found]
    return found


GARBAGE: list[Callable[[], Any]] = [
    *[
        (lambda value=value: value)  # type: ignore[misc]
        for value in (
            None, True, -1, 0, 1, 2, 7, 63, 64, 65, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**30,
            0.0, -0.5, 1e308, float("nan"), float("inf"), 1j, "", " ", "\0", "é☃𝕊\u202e", "x" * (1 << 20), "(" * 100_000, "1," * 100_000,
            "R", "S(0)", "x=2", "2:1", "f32", "sum", "-", "(4,2):(1,4)", "{}", "[", "null", "\ud800", b"", b"abc", (), [], {}, set(), [[]], [None],
            (2**40, 2**40), (0, 3), (1,) * 70, (2**62, 4), [-1], [2**64], ["a"], [("x", 2)], {"x": 2**30}, {"x": 0}, {1: 2}, {"x": -1}, {"x": "y"},
            "x=1073741824", "a=2,b=1073741824", range(2**40), slice(None), slice(2**63), int, object(), Ellipsis, NotImplemented,
            reshard, reshard.Layout, print,
        )
    ],
    lambda: Lying([4, 2]), lambda: Lying(["x"]), lambda: Short([4, 2]), Raising, Endless, NoText, Device, FalseInterface, itself, deep, doubled,
    lambda: (n for n in range(3)), lambda: np.zeros((2, 3)), lambda: np.zeros((3, 4), "f4").T, lambda: np.zeros((0, 3)), lambda: np.float32(3),
    lambda: np.array(5), lambda: np.array(["a"]), lambda: np.array([None]), lambda: np.zeros(4, ">f4"), lambda: np.zeros(8)[::2], lambda: np.int64(2),
    lambda: np.lib.stride_tricks.as_strided(np.zeros(1), (1 << 20, 1 << 20), (0, 0)), lambda: memoryview(b"abcd"), lambda: bytearray(16),
    lambda: np.zeros(3, [("a", "i4")]), lambda: np.datetime64("2020"), lambda: lambda *a, **k: None, lambda: lambda *a, **k: a[1:],
    lambda: lambda *a, **k: 1 / 0,
]  # fmt: skip

TEXTS = {
    "Layout": ["(4,2):(1,4)", "8:1", "(2,(2,3)):(6,(1,2))", "(4,4):(0,1)", "(1099511627776,):(3,)", "(3,5):(5,-1)"],
    "ComposedLayout": ["Sw<2,0,3> o 0 o (8,4):(1,8)"],
    "Mesh": ["x=2", "dp=2,tp=4", "x=2,y=2@[3,1,0,2]", "b=2:1,a=2:4", "x=1"],
    "Placement": ["R", "S(0)", "S(1)", "SS(0,2)", "P(sum)", "P(avg)", "Z(0)", "RG(0,[3,5])", "BL(0,2)", "RO(0,1)"],
    "Placements": ["R,S(1)", "S(0),R", "S(0),S(0)", "P,R", "R", "S(0)", "P(max)", "SS(0,2),S(0)", "Z(0),R"],
    "DType": ["f32", "f64", "i8", "bf16", "bool", "f4", "c64", "f6_e2m3"],
    "Op": ["relu", "mm", "softmax", "sum", "mk,kn->mn", "add", "reshape", "expand", "topk", "dropout", "cat", "sgd", "conv2d", "ones", "narrow"],
}
STEP = "mesh dp=2,tp=2\nx: f32[8,4] S(0),R\nw: f32[4,6] R,S(1)\ny = mm(x, w)\nz = relu(y)\nloss = sum(z)\ngradient loss wrt w\n"
OPEN = STEP.replace("R,S(1)", "?")


def seeds() -> dict[str, list[Any]]:
    """Returns objects of every class, from which others are made."""
    r = reshard
    mesh = r.Mesh("dp=2,tp=2")
    one, two = r.Sharding(mesh, (8, 6), "S(0),R"), r.Sharding(mesh, (8, 6), "P,S(1)")
    plan = r.plan(two, one, "f32")
    graph = r.Graph("dp=2,tp=2")
    graph.input("x", "f32", [8, 4], "S(0),R")
    program = graph.solve()
    trained = r.program("mesh dp=2,tp=2\nx: f32[8,4] S(0),R\nw: f32[4,6] R,S(1)\ny = mm(x, w)\nz = relu(y)\nloss = sum(z)\n")
    given = {"x": np.ones((8, 4), "f4"), "w": np.ones((4, 6), "f4")}
    schedules = [trained.compile(rank) for rank in range(4)]
    folder = tempfile.mkdtemp(prefix="attack")
    path = os.path.join(folder, "m.safetensors")
    r.save(path, {"w": np.ones((8, 6), "f4"), "b": np.zeros((0,), "f4")})
    op = r.Op("mm", [(8, 4), (4, 6)])
    rows = r.Sharding(mesh, (8, 4), "S(0),R")
    cols = r.Sharding(mesh, (4, 6), "R,S(1)")
    calls = plan.calls(0)
    made: list[Any] = [
        mesh, one, two, rows, cols, plan, plan.steps, plan.phases(0), [m[2] for m in plan.messages(0)], calls, plan.spmd(), plan.spmd().calls,
        list(calls), graph, program, trained, schedules, trained.on_ranks(given), trained.report(), trained.report().redistributions, trained.statements,
        trained.values, r.Timeline(schedules), schedules[0].buffers, schedules[0].calls, trained.trace(0), op, r.Op("softmax", [(8, 6)], dim=1),
        r.Op("relu", [(8, 6)]), r.open_checkpoint(path), r.open_checkpoint(path).tensors, r.open_checkpoint(path).verify(), r.Key(1), r.ComputeRates.h100(),
        r.Topology.h100(), r.OpTable(), r.Propagator(), r.ShardingSolver(), r.propagate(op, [rows, cols]), r.Operand("f32", rows), r.Planner(),
        r.ShardingType(mesh, (8, 6), "S(0),R"), r.View(0, [(4, 1)]), r.FrameworkGroups([("x", [0, 1])]), r.GroupPattern("2:1"), r.ProcessGroup([0, 1]), mesh.groups("dp"),
        r.GroupRegistry(mesh), r.Recipe("fsdp") if "fsdp" in r.Recipe.kinds() else r.Recipe(next(iter(r.Recipe.kinds()))), r.S(0), r.SS(0, 2), r.P("sum"),
        r.Counts([[1, 2], [3, 4]]), one.region(0), r.Swizzle(2, 0, 3), r.DType("f32"), one.digits, r.Layout("(4,2):(1,4)"),
        r.Verifier("f", lambda x: x), r.Planner().explain(two, one), r.parallelize(OPEN),
        [r.Layout(text) for text in TEXTS["Layout"]], r.ComposedLayout("Sw<2,0,3>", 0, r.Layout("(8,4):(1,8)")),
    ]  # fmt: skip
    pool: dict[str, list[Any]] = {"path": [path, folder, os.path.join(folder, "new")]}
    for each in made:
        for item in each if isinstance(each, (list, tuple)) else [each]:
            pool.setdefault(type(item).__name__, []).append(item)
    return pool


class Attack:
    def __init__(self, seed: int, note: int) -> None:
        self.random = random.Random(seed)
        self.note = note
        self.pool = seeds()
        self.faults: list[str] = []
        self.count = 0
        self.accepted = 0
        self.targets = targets()

    def integer(self) -> int:
        return self.random.choice([0, 0, 1, 1, 2, 3, 4, 6, 8, 16])

    def valid(self, annotation: str, name: str) -> Any:
        """Returns a value that usually fits the stub's annotation of a parameter."""
        choice = self.random.choice
        for word in ("Sequence[Sequence", "_Sequence[_Sizes]"):
            if word in annotation:
                return [tuple(self.integer() for _ in range(self.random.randint(0, 3))) for _ in range(self.random.randint(0, 3))]
        if name == "source" and "Graph" in annotation:
            return choice([STEP, OPEN, *self.pool["Graph"]])
        if name in ("path", "out", "source", "first", "second") and "Array" not in annotation and "int" not in annotation:
            return choice(self.pool["path"])
        if "_MeshLike" in annotation or "_Meshes" in annotation or name == "mesh":
            return choice([*self.pool["Mesh"], *TEXTS["Mesh"], {"x": 2, "y": 2}])
        if "_PlacementsLike" in annotation or name in ("to", "type") and "Sharding" not in annotation:
            return choice([*TEXTS["Placements"], {"*": "R"}, ["R", "S(0)"]])
        if "_DTypeLike" in annotation or name in ("dtype",):
            return choice([*TEXTS["DType"], np.float32])
        if name == "op" and "str" in annotation:
            return choice(TEXTS["Op"])
        if "_Array" in annotation or name in ("arrays", "tensors", "shards", "inputs") and "Any" in annotation:
            arrays = [np.ones(choice([(8, 6), (4, 6), (8, 4), (4, 3), (8, 3)]), "f4") for _ in range(4)]
            return {"x": np.ones((8, 4), "f4"), "w": np.ones((4, 6), "f4")} if "dict" in annotation else arrays if "Seq" in annotation else arrays[0]
        if "_Operands" in annotation:
            return [choice(self.pool["Sharding"]) for _ in range(2)]
        if "_Operand" in annotation or "_LayoutLike" in annotation:
            return choice([*self.pool["Layout"], *TEXTS["Layout"], 2, 4, (2, 2), None])
        if "_Axes" in annotation:
            return choice([{"x": 2, "y": 2}, [("x", 2)], {"dp": 1}])
        if "_Shape" in annotation or "_Sizes" in annotation:
            return choice([(8, 6), (8,), (4, 3), (0, 3), (), (8, 4), (48,)])
        if "_Ints" in annotation or "_Pattern" in annotation and "_PatternLike" not in annotation:
            return choice([(4, 2), 8, ((2, 2), 2), "(4,2)", (1, 4)])
        classes = [word for word in self.pool if word in annotation.replace("|", " ").replace("[", " ").replace("]", " ").replace(",", " ").split()]
        if classes:
            one = choice(self.pool[choice(classes)])
            return [one, choice(self.pool[type(one).__name__])] if "Sequence" in annotation else one
        if "Callable" in annotation or name in ("kernel", "body", "progress"):
            return choice([lambda *a, **k: a[-1], lambda *a, **k: None])
        if "Sequence[int]" in annotation:
            return [self.integer() for _ in range(self.random.randint(0, 4))]
        if "Sequence[str]" in annotation:
            return [choice(["x", "w", "y", "dp", "tp", "f32"]) for _ in range(self.random.randint(0, 2))]
        if "Sequence" in annotation:
            return [(choice(["x", "dp"]), self.integer())]
        if "bool" in annotation:
            return choice([True, False])
        if "float" in annotation:
            return choice([0.5, 1.0, 3])
        if "int" in annotation:
            return self.integer()
        if "str" in annotation or name == "text":
            texts = [text for list_ in TEXTS.values() for text in list_]
            texts += [STEP, "x", "w", "y", "dp", "tp", "normal", "mm", "relu", "any", "threefry"]
            printed = [str(item) for item in self.random.sample(sorted(self.pool), 2) for item in self.pool[item][:1] if item != "path"]
            return self.mutated(choice([*texts, *printed]))
        return choice([0, "x", None, (2, 2)])

    def mutated(self, text: str) -> str:
        """Returns a text unchanged, or with one character or a part of it replaced."""
        if self.random.random() < 0.5 or not text:
            return text
        at = self.random.randrange(len(text))
        new = self.random.choice(["", "0", "9999999999999999999", ",", "(", ")", "-1", "=", ":", "é", "\n", " ", "[", "]", "4611686018427387904", "\0"])
        return text[:at] + new + text[at + self.random.randint(0, 2) :]

    def value(self, annotation: str, name: str, wild: float) -> Any:
        if self.random.random() >= wild:
            return self.valid(annotation, name)
        if self.random.random() < 0.25:
            return self.random.choice(self.pool[self.random.choice(sorted(self.pool))])
        made = self.random.choice(GARBAGE)
        if made is doubled and ("_Array" in annotation or "Any" in annotation):
            made = itself  # NumPy would not finish with the other one
        return made()

    def one(self) -> None:
        owner, name, parameters = self.random.choice(self.targets)
        wild = self.random.choice([0.0, 0.3, 0.3, 1.0])
        arguments, named = [], {}
        for kind, parameter, annotation, optional in parameters:
            if optional and self.random.random() < 0.5:
                if kind == "positional":
                    break
                continue
            if kind == "star":
                arguments += [self.value(annotation, parameter, wild) for _ in range(self.random.randint(0, 2))]
            elif kind == "named":
                named[parameter] = self.value(annotation, parameter, wild)
            elif kind == "double":
                for key in self.random.sample(["dim", "dims", "shape", "keepdim", "value", "k", "start", "length", "lr", "size", "p"], self.random.randint(0, 2)):
                    named[key] = self.value(self.random.choice(["int", "Sequence[int]", "float"]), key, wild)
            else:
                arguments.append(self.value(annotation, parameter, wild))
        target = self.target(owner)
        if target is not None:
            self.call(target, name, arguments, named)

    def target(self, owner: Any) -> Any:
        """Returns an object of a class that is given by its name; None if there is none."""
        if isinstance(owner, str):
            return self.random.choice(self.pool[owner]) if owner in self.pool else None
        return owner

    def with_wrong(self, owner: Any, name: str, parameters: list[Parameter], at: int | None, wrong: Any, more: dict[str, Any] | None = None) -> None:
        """Makes one call with valid arguments, except for one."""
        arguments, named = [], dict(more or {})
        for index, (kind, parameter, annotation, _) in enumerate(parameters):
            if kind == "double":
                named |= {"dim": wrong} if index == at else {}
                continue
            value = wrong if index == at else self.valid(annotation, parameter)
            if kind == "named":
                named[parameter] = value
            else:
                arguments.append(value)
        target = self.target(owner)
        if target is not None:
            self.call(target, name, arguments, named)

    def call(self, target: Any, name: str, arguments: list[Any], named: dict[str, Any]) -> None:
        said = f"{self.count}: {short(target)}.{name}({', '.join(map(short, arguments))}, **{short(named)})"
        os.pwrite(self.note, said.encode(errors="replace")[:4000].ljust(4000, b"\0"), 0)
        self.count += 1
        signal.setitimer(signal.ITIMER_REAL, 30)
        try:
            made = operate(target, name, arguments, named)
            for item in list(made)[:3] if isinstance(made, (list, tuple)) else [made]:
                self.keep(item)
            self.accepted += 1
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # NumPy itself compares arrays, and may run out of memory.
            why = None if name == "eq" and isinstance(error, MemoryError) else fault(error)
            if why:
                self.faults.append(f"{said}\n    {why}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def keep(self, item: Any) -> None:
        name = type(item).__name__
        if getattr(reshard, name, None) is not type(item) or name in dir(builtins):
            return
        kept = self.pool.setdefault(name, [])
        if len(str(item)) > 100_000:
            return
        if len(kept) < 24:
            kept.append(item)
        else:
            kept[self.random.randrange(8, 24)] = item


def operate(target: Any, name: str, arguments: list[Any], named: dict[str, Any]) -> Any:
    """Makes a call, or uses a protocol of Python on an object."""
    match name:
        case "repr":
            return eval(repr(target), vars(reshard.checkpoint) | vars(reshard)) if repr(target)[0] != "<" else None
        case "str":
            return (str(target), bool(target))
        case "pickle":
            return pickle.loads(pickle.dumps(target))
        case "copy":
            return (copy.copy(target), copy.deepcopy(target))
        case "eq":
            return (target == arguments[0], target != arguments[0], hash(target))
        case "new":
            return target(*arguments, **named)
    found = getattr(target, name)
    return found(*arguments, **named) if callable(found) else found


def short(value: Any) -> str:
    try:
        text = reprlib.repr(value) if isinstance(value, (list, tuple, dict, str)) else repr(value)
    except BaseException:
        text = f"<{type(value).__name__}>"
    return text if len(text) < 300 else f"{text[:150]}..<{len(text)}>"


def parameters(function: ast.FunctionDef, method: bool) -> list[Parameter]:
    found = []
    listed = [*function.args.posonlyargs, *function.args.args]
    first_default = len(listed) - len(function.args.defaults)
    for index, arg in enumerate(listed):
        if not (method and index == 0):
            found.append(("positional", arg.arg, ast.unparse(arg.annotation) if arg.annotation else "", index >= first_default))
    if function.args.vararg:
        found.append(("star", function.args.vararg.arg, ast.unparse(function.args.vararg.annotation or ast.Constant("")), False))
    for arg, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        found.append(("named", arg.arg, ast.unparse(arg.annotation) if arg.annotation else "", default is not None))
    if function.args.kwarg:
        found.append(("double", "", "", False))
    return found


def targets() -> list[tuple[Any, str, list[Parameter]]]:
    """Returns every callable of the stubs as (owner, name, parameters); the owner may be a class's name."""
    found: list[tuple[Any, str, list[Parameter]]] = []
    native = sys.modules["reshard._reshard"]
    stub = pathlib.Path(reshard.__file__).parent / "_reshard.pyi"
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.append((native, node.name, parameters(node, False)))
        if not isinstance(node, ast.ClassDef) or not hasattr(native, node.name) or node.name.endswith(("Error", "Mismatch")):
            continue
        made = getattr(native, node.name)
        for protocol in ("repr", "str", "pickle", "copy"):
            found.append((node.name, protocol, []))
        found.append((node.name, "eq", [("positional", "other", node.name, False)]))
        for member in node.body:
            if not isinstance(member, ast.FunctionDef) or member.name in ("__hash__", "__eq__"):
                continue
            words = {ast.unparse(decorator) for decorator in member.decorator_list}
            if member.name == "__new__":
                found.append((made, "new", parameters(member, True)))
            elif "staticmethod" in words:
                found.append((made, member.name, parameters(member, False)))
            else:
                found.append((node.name, member.name, parameters(member, True)))
    for module in (reshard, reshard.checkpoint):
        for name in dir(module) if module is reshard.checkpoint else ("trace", "program", "gradient", "shard_map", "constrain", "redistribute", "strategy", "no_grad"):
            function = getattr(module, name)
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            listed = []
            for p in inspect.signature(function).parameters.values():
                kind = {p.KEYWORD_ONLY: "named", p.VAR_POSITIONAL: "star", p.VAR_KEYWORD: "double"}.get(p.kind, "positional")
                listed.append((kind, p.name, str(p.annotation), p.default is not p.empty))
            found.append((module, name, listed))
    arrays = ("star", "tensors", "_Array", False)
    found += [(reshard.ops, name, [arrays, ("double", "", "", False)]) for name in dir(reshard.ops)[:: 4]]
    return found


def main() -> int:
    seed, calls, note = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    attack = Attack(seed, os.open(note, os.O_RDWR | os.O_CREAT))
    while attack.count < calls and len(attack.faults) < 30:
        attack.one()
    print(f"{attack.count} calls, {attack.accepted} accepted")
    print("\n".join(attack.faults))
    return 1 if attack.faults or attack.accepted * 20 < attack.count else 0


if __name__ == "__main__":
    sys.exit(main())
