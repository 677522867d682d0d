"""The package: its exports, its documentation, and that its import loads no other modules."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import reshard


def test_everything_has_a_docstring() -> None:
    for name in reshard.__all__:
        item = getattr(reshard, name)
        if name.startswith("__"):
            continue
        assert item.__doc__, name
        if not inspect.isclass(item) or issubclass(item, Exception):
            continue
        for member, value in vars(item).items():
            if not member.startswith("_") and not isinstance(value, type):
                assert value.__doc__, f"{name}.{member}"


@pytest.mark.parametrize("module", ["reshard", "reshard.checkpoint", "reshard._trace"])
def test_every_exported_name_exists(module: str) -> None:
    exec(f"from {module} import *", {})


def test_importing_loads_nothing_else() -> None:
    code = "import sys, reshard; print([name for name in ('numpy', 'torch', 'jax', 'ml_dtypes') if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"


@pytest.mark.parametrize("name", ["Layout", "Mesh", "Sharding", "Plan", "Planner", "Region", "Step"])
def test_classes_are_frozen_and_final(name: str) -> None:
    made = getattr(reshard, name)
    with pytest.raises(TypeError):
        type("Derived", (made,), {})
    with pytest.raises((AttributeError, TypeError)):
        reshard.Mesh("x=2").size = 3  # type: ignore[misc]


def test_dtypes() -> None:
    for dtype in reshard.DType.all():
        assert reshard.DType(dtype.name) == reshard.DType(dtype) == eval(repr(dtype), vars(reshard))
    assert reshard.DType("float32") == reshard.DType("torch.float32") == reshard.DType("f32")
    with pytest.raises(reshard.ReshardError) as refused:
        reshard.DType("f99")
    assert refused.value.kind


def test_one_thing_is_counted_in_the_singular() -> None:
    from reshard._refusals import counted

    assert [counted(n, "dim") for n in (0, 1, 2)] == ["0 dims", "1 dim", "2 dims"]
    # A number with a plural noun in one of the package's texts would print "1 dims".
    plural = re.compile(r"\{(?:len\([^{}]*\)|[\w.]*\.(?:ndim|steps|nbytes)|ndim|calls|size)\} [a-z]+s\b")
    for path in sorted(Path(reshard.__file__).parent.rglob("*.py")):
        assert not plural.findall(path.read_text()), path
