"""The supported versions of PyTorch: the table of the page, the table of private names, and PyTorch without one of them."""

import ast
import pathlib
import subprocess
import sys
import warnings

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard
from torch.utils import _debug_mode

import reshard.torch
from definition import R, device_mesh, dtensor, shard, whole_of
from ranks import Ranks
from reshard.torch import Groups, check, planned, redistribute, redistribute_state, version
from torch_versions import PAGE, row, written

PACKAGE = pathlib.Path(reshard.torch.__file__).parent


def test_the_page_has_the_row_of_the_installed_version(eight: Ranks) -> None:
    made = row(eight)
    page = PAGE.read_text()
    assert made in page.splitlines(), f"torch_versions.py --write updates docs/torch.md: {made}"
    assert written(page, made) == page
    releases = {one.tested for one in version.SUPPORTED.values()}
    assert releases == {line.split()[1] for line in page.splitlines() if line.startswith("| 2.") and line.count("|") == made.count("|")}


def test_private_names_are_in_one_file_and_in_its_table() -> None:
    known = {part for one in version.NEEDED for part in one.path.split(".")}
    used: set[str] = set()
    defined: set[str] = set()
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch" and path.name != "version.py":
                private = [name for name in [*(node.module or "").split("."), *(one.name for one in node.names)] if name.startswith("_")]
                assert not private, f"{path.name}:{node.lineno} imports {private}: import it in version.py"
            if isinstance(node, ast.Import) and path.name != "version.py":
                assert not [one.name for one in node.names if one.name.startswith("torch.") and "._" in one.name], f"{path.name}:{node.lineno}"
            if isinstance(node, ast.ImportFrom) and path.name == "version.py" and (node.module or "").startswith("torch") and node.col_offset:
                for one in node.names:
                    assert one.name in known or one.name == "Shard", f"{one.name} is not in the table"
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                # An attribute of a class of this package is set there by its own methods.
                is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "made", "cls")
                (defined if is_own else used).add(node.attr)
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                defined.add(node.name)
    # `_split_factor_int` is the one name that not all versions have, and the others are of `Checkpoint` and `sys`.
    assert used - defined - known - {"_split_factor_int", "_objects_with_bytes", "_getframe"} == set()


def along(rank: int) -> None:
    mesh = device_mesh((2, 2, 2), ("x", "y", "z"))
    flat = mesh["x", "z"]._flatten("x_z")
    tensor = torch.arange(8).reshape(2, 2, 2)
    for of, axis, wanted in [
        (mesh, 0, tensor.permute(1, 2, 0)),
        (mesh, 2, tensor),
        (mesh["y"], 0, tensor.permute(0, 2, 1)),
        (flat, 0, tensor.permute(1, 0, 2)),
    ]:
        size = of.size(axis)
        found = version.groups_along(of, axis)
        assert sorted(found) == sorted(wanted.reshape(-1, size).tolist()), (of, found)
        assert sorted(dist.get_process_group_ranks(of.get_group(axis))) in [sorted(members) for members in found]
    # Other orders of ranks, and a rank that is not in the device mesh.
    part = DeviceMesh("cpu", torch.tensor([[5, 1], [3, 2]]), mesh_dim_names=("a", "b"))
    assert version.groups_along(part, 0) == [[5, 3], [1, 2]] and version.groups_along(part, 1) == [[5, 1], [3, 2]]


def test_groups_are_those_of_pytorch(eight: Ranks) -> None:
    eight.run(along)


def without(rank: int) -> None:
    """A private name is missing: PyTorch's own code runs, with one warning, and its results are right."""
    mesh, whole = device_mesh((2, 4), ("dp", "tp")), whole_of((16, 8))
    x = dtensor(whole, [Shard(0), Shard(1)], mesh)
    # PyTorch's modules have bound it by its name, and do not miss it.
    own = _debug_mode.get_active_debug_mode
    del _debug_mode.get_active_debug_mode
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with planned() as plans:
                by_planned = x.redistribute(placements=[Shard(1), Shard(0)])
            made = redistribute(x, placements=[Shard(1), Shard(0)])
            state = redistribute_state({"a": {"w": x}, "step": 3}, lambda name, of: [R, Shard(1)])
        (text,) = {str(one.message) for one in caught if "reshard" in str(one.message)}
        assert "torch.utils._debug_mode.get_active_debug_mode is missing" in text and len([one for one in caught if "reshard" in str(one.message)]) == 1
        for of in (by_planned, made):
            assert torch.equal(of.to_local(), shard(whole, [Shard(1), Shard(0)], mesh))
        assert torch.equal(state["a"]["w"].to_local(), shard(whole, [R, Shard(1)], mesh)) and state["step"] == 3
        assert plans.report().plans == 0 and "nothing was replaced" in str(plans.report())
        for refused in (lambda: planned(strict=True).enable(), lambda: Groups(mesh), reshard.torch.rules, lambda: reshard.torch.audit().__enter__()):
            with pytest.raises(RuntimeError, match="get_active_debug_mode is missing"):
                refused()
        with pytest.raises(RuntimeError, match="get_active_debug_mode is missing"):
            str(check(torch.nn.Linear(4, 4), [torch.ones(2, 4)], "a=2", {}).beside)
    finally:
        _debug_mode.get_active_debug_mode = own
        version.again()
    with planned(strict=True) as plans:
        x.redistribute(placements=[Shard(1), Shard(0)])
    assert plans.report().plans == 1 and "nothing was replaced" not in str(plans.report())


def test_without_a_private_name_pytorchs_own_code_runs(eight: Ranks) -> None:
    eight.run(without)


def run(code: str) -> str:
    made = subprocess.run([sys.executable, "-P", "-W", "always", "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert made.returncode == 0, made.stderr
    return made.stdout + made.stderr


def test_the_package_is_imported_without_private_names() -> None:
    text = run("""
import torch.distributed.tensor.experimental._tp_transform, torch.distributed.tensor.parallel, torch.distributed.checkpoint
import torch.distributed.tensor._dtensor_spec as specs, torch.distributed._functional_collectives as funcol
del specs.TensorMeta, funcol.AsyncCollectiveTensor, funcol._maybe_wrap_tensor, funcol._are_we_tracing
from reshard.torch import planned, version
planned().enable()
try:
    version.TensorMeta((), (), None)
except RuntimeError as error:
    print("raised:", error)
""")
    assert "_dtensor_spec.TensorMeta is missing; torch.distributed._functional_collectives._are_we_tracing is missing; and 2 more" in text
    assert "has no torch.distributed.tensor._dtensor_spec.TensorMeta, and reshard.torch needs it; use PyTorch 2.12, 2.13, 2.14, 2.15" in text


UNKNOWN = """
import torch
torch.__version__ = "2.16.0a0+git"
from reshard.torch import planned, version
"""


def test_an_unknown_version_warns_once_and_plans_run() -> None:
    text = run(UNKNOWN + "print(planned().enable().report().unsupported)\nplanned().enable()\nassert version.problem() is None")
    assert text.count("RuntimeWarning") == 1 and "PyTorch 2.16.0a0+git is not among the tested versions" in text, text


def test_an_unknown_version_that_splits_otherwise_is_not_used() -> None:
    text = run(UNKNOWN + "version.compute_local_shape_and_global_offset = lambda *of: ((1, 1), (0, 0))\nprint(planned().enable().report().unsupported)")
    assert text.count("RuntimeWarning") == 1 and "rank 0 of a=2,b=3 has [1, 1] of [13, 7] as S(0),S(0), which differs" in text, text
