"""All that this package needs of PyTorch beyond its documented API, and what differs between PyTorch's versions.

Private names are imported here and nowhere else. The table `NEEDED` has them with their arguments, and the
private attributes that other modules use. It is compared with the installed PyTorch before plans run: if a
name is missing or takes other arguments, PyTorch's own code runs, with one warning.
"""

import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from reshard import Mesh, Sharding


class Part(Enum):
    """A part of the package that needs private names."""

    PLANS = "plans"
    CHECK = "check"
    RULES = "rules"
    AUDIT = "audit"
    NORMS = "norms"
    COMPILED = "compiled"
    FROM_LOCAL = "from_local"
    RUNS = "runs"
    FSDP = "fsdp"


@dataclass(frozen=True)
class Private:
    """A private name of PyTorch: its module, its path there, and the arguments that it takes in the supported versions.

    `takes` is None for attributes, and for classes of C++, which have no signature. A `..` accepts any further arguments.
    """

    module: str
    path: str
    takes: tuple[str, ...] | None = None
    part: Part = Part.PLANS


@dataclass(frozen=True)
class Supported:
    """A supported version: the release that the tests ran with, and how its names are reached where versions differ."""

    tested: str
    split_factor: Callable[[Any], int]


# The function through which all redistributions of DTensors pass, and the modules that have bound it by name.
REDISTRIBUTES = "redistribute_local_tensor"
REDISTRIBUTE_TAKES = ("local_tensor", "current_spec", "target_spec", "async_op", "use_graph_based_transform", "is_explicit")
_BOUND = (
    "torch.distributed.tensor._redistribute",
    "torch.distributed.tensor._dispatch",
    "torch.distributed.tensor._api",
    "torch.distributed.tensor.experimental._tp_transform",
)

_FUNCOL = "torch.distributed._functional_collectives"
_SPEC = "torch.distributed.tensor._dtensor_spec"
_MESH = "torch.distributed.device_mesh"
_CALLS = "ops._c10d_functional"
_COMPILER = "torch._dynamo.convert_frame"
_AOT = "torch._dynamo.backends.common"
_FSDP = "torch.distributed.fsdp._fully_shard"
FSDP_CALLS = ("foreach_all_gather", "foreach_reduce")
# The attribute of a compiled graph that is True if its arguments are one list.
BOXED = "_boxed_call"
AotCompile = Callable[..., Any]
_NORMS = "torch.distributed.tensor._ops._math_ops"

NEEDED = (
    *(Private(module, REDISTRIBUTES, REDISTRIBUTE_TAKES) for module in _BOUND),
    Private(_SPEC, "DTensorSpec", ("mesh", "placements", "tensor_meta", "shard_order", "use_strided_shard_as_shard_order")),
    Private(_SPEC, "DTensorSpec.is_default_device_order", ("shard_order",)),
    Private(_SPEC, "DTensorSpec.format_shard_order_str", ("placements", "shard_order")),
    Private(_SPEC, "ShardOrderEntry", ("tensor_dim", "mesh_dims")),
    Private(_SPEC, "TensorMeta", ("shape", "stride", "dtype")),
    Private("torch.distributed.tensor", "DTensor._spec"),
    Private("torch.distributed.tensor", "DTensor._local_tensor"),
    Private("torch.distributed.tensor.placement_types", "_StridedShard"),
    Private("torch.distributed.tensor.placement_types", "_StridedShard.split_factor"),
    Private(_MESH, "DeviceMesh._get_root_mesh", ("self",)),
    Private(_MESH, "DeviceMesh._is_current_rank_part_of_mesh", ("self",)),
    Private(_MESH, "DeviceMesh._flatten_mapping"),
    Private(_MESH, "DeviceMesh._layout"),
    Private(_MESH, "DeviceMesh._rank_map"),
    Private("torch.distributed._local_tensor", "local_tensor_mode", ()),
    Private("torch.utils._debug_mode", "get_active_debug_mode", ()),
    Private("torch.utils._debug_mode", "DebugMode.record_redistribute_calls", ("self", "arg", "src_placement", "dst_placement", "transform_info_str", "is_explicit")),
    Private("torch.utils._python_dispatch", "_disable_current_modes", ()),
    Private("torch.utils._python_dispatch", "TorchDispatchMode"),
    Private(_FUNCOL, "_are_we_tracing", ()),
    Private(_FUNCOL, "_maybe_wrap_tensor", ("self",)),
    Private(_FUNCOL, "AsyncCollectiveTensor", ("elem",)),
    Private("torch", f"{_CALLS}.all_reduce.default", ("input", "reduce_op", "group_name")),
    Private("torch", f"{_CALLS}.all_gather_into_tensor.default", ("input", "group_size", "group_name")),
    Private("torch", f"{_CALLS}.reduce_scatter_tensor.default", ("input", "reduce_op", "group_size", "group_name")),
    Private("torch", f"{_CALLS}.all_to_all_single.default", ("input", "output_split_sizes", "input_split_sizes", "group_name")),
    Private("torch", f"{_CALLS}.wait_tensor.default", ("tensor",)),
    Private("torch.distributed.distributed_c10d", "_resolve_process_group"),
    Private("torch.distributed.distributed_c10d", "_get_default_store", ()),
    Private("torch.distributed", "ProcessGroup._get_backend"),
    Private("torch.distributed", "ProcessGroup._device_types"),
    Private("torch", "ScriptObject._type"),
    Private("torch", "UntypedStorage._cdata"),
    Private("torch", "_foreach_copy_"),
    Private("torch._ops", "OpOverload"),
    Private("torch._subclasses.fake_tensor", "FakeTensor"),
    Private("torch.utils._python_dispatch", "is_traceable_wrapper_subclass_type", ("t",)),
    Private("torch", "ops.aten.add.Tensor._schema"),
    Private("torch.distributed.tensor._redistribute", "_gen_transform_infos", ("src_spec", "dst_spec", "use_graph_based_transform"), Part.CHECK),
    Private("torch.distributed.tensor._utils", "compute_local_shape_and_global_offset", ("global_shape", "mesh", "placements", ".."), Part.CHECK),
    Private("torch", "ops.aten._scaled_dot_product_flash_attention.default", ("query", "key", "value", "dropout_p", "is_causal", ".."), Part.CHECK),
    Private(_MESH, "DeviceMesh", ("device_type", "mesh", "mesh_dim_names", ".."), Part.CHECK),
    Private("torch", "ops.aten.add.Tensor._overloadname", None, Part.CHECK),
    Private("torch.nn", "Module._parameters", None, Part.CHECK),
    Private("torch.nn", "Module._buffers", None, Part.CHECK),
    Private("torch.nn", "Module._call_impl", None, Part.AUDIT),
    Private("torch", "Tensor._use_count", None, Part.AUDIT),
    Private("torch", "_C._current_autograd_node", None, Part.AUDIT),
    Private("torch", "_C._current_graph_task_id", None, Part.AUDIT),
    Private("torch", "_C._autograd._get_sequence_nr", None, Part.AUDIT),
    Private("torch.autograd.graph", "Node._sequence_nr", None, Part.AUDIT),
    Private("torch.distributed.tensor", "DTensor._op_dispatcher.sharding_propagator.op_to_rules", None, Part.RULES),
    Private("torch.distributed.tensor", "DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs", None, Part.RULES),
    Private("torch.distributed.tensor", "DTensor._op_dispatcher.sharding_propagator.op_single_dim_strategy_funcs", None, Part.RULES),
    Private(_NORMS, "_NormPartial", ("norm_type",), Part.NORMS),
    Private("torch.distributed.tensor._api", "_FromTorchTensor._backward_cls", None, Part.FROM_LOCAL),
    Private(_COMPILER, "output_codes", None, Part.COMPILED),
    Private(_COMPILER, "orig_code_map", None, Part.COMPILED),
    Private(_AOT, "aot_module_simplified", ("mod", "args", "fw_compiler", "bw_compiler", "..", "inference_compiler", ".."), Part.RUNS),
    Private("functorch.compile", "make_boxed_func", ("f",), Part.RUNS),
    Private("torch.fx.experimental.proxy_tensor", "get_proxy_mode", (), Part.RUNS),
    Private(f"{_FSDP}._fsdp_collectives", "AllGatherResult.all_gather_output", None, Part.FSDP),
    Private(f"{_FSDP}._fsdp_param_group", FSDP_CALLS[0], ("fsdp_params", "group", ".."), Part.FSDP),
    Private(
        f"{_FSDP}._fsdp_param_group", FSDP_CALLS[1], ("..", "reduce_scatter_group", "..", "all_reduce_group", "..", "all_reduce_grads", ".."), Part.FSDP
    ),
)

SUPPORTED = {
    (2, 12): Supported("2.12.1", lambda of: int(of.split_factor)),
    (2, 13): Supported("2.13.0", lambda of: of._split_factor_int()),
    (2, 14): Supported("2.14.1", lambda of: of._split_factor_int()),
    (2, 15): Supported("2.15.0", lambda of: of._split_factor_int()),
}
_LISTED = ", ".join(f"{major}.{minor}" for major, minor in SUPPORTED)


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _found(module: str, name: str) -> Any:
    """Returns a name of PyTorch, or else a class whose objects cannot be created: the package can be imported with any version."""

    def missing(_: type, *args: object, **options: object) -> None:
        raise RuntimeError(f"PyTorch {torch.__version__} has no {module}.{name}, and reshard.torch needs it; use PyTorch {_LISTED}")

    return getattr(_module(module), name, None) or type(name, (), {"__new__": missing})


if TYPE_CHECKING:
    from torch._ops import OpOverload as OpOverload
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch.distributed._functional_collectives import AsyncCollectiveTensor as AsyncCollectiveTensor
    from torch.distributed._functional_collectives import _are_we_tracing as _are_we_tracing
    from torch.distributed._functional_collectives import _maybe_wrap_tensor as _maybe_wrap_tensor
    from torch.distributed._local_tensor import local_tensor_mode as local_tensor_mode
    from torch.distributed.tensor._dtensor_spec import DTensorSpec as DTensorSpec
    from torch.distributed.tensor._dtensor_spec import ShardOrderEntry as ShardOrderEntry
    from torch.distributed.tensor._dtensor_spec import TensorMeta as TensorMeta
    from torch.distributed.tensor._ops._math_ops import _NormPartial as _NormPartial
    from torch.distributed.tensor._redistribute import _gen_transform_infos as _gen_transform_infos
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset as compute_local_shape_and_global_offset
    from torch.distributed.tensor.placement_types import _StridedShard as _StridedShard
    from torch.utils._debug_mode import get_active_debug_mode as get_active_debug_mode
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
    from torch.utils._python_dispatch import _disable_current_modes as _disable_current_modes
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass_type as is_traceable_wrapper_subclass_type
else:
    OpOverload = _found("torch._ops", "OpOverload")
    FakeTensor = _found("torch._subclasses.fake_tensor", "FakeTensor")
    AsyncCollectiveTensor = _found(_FUNCOL, "AsyncCollectiveTensor")
    _are_we_tracing = _found(_FUNCOL, "_are_we_tracing")
    _maybe_wrap_tensor = _found(_FUNCOL, "_maybe_wrap_tensor")
    local_tensor_mode = _found("torch.distributed._local_tensor", "local_tensor_mode")
    DTensorSpec = _found(_SPEC, "DTensorSpec")
    ShardOrderEntry = _found(_SPEC, "ShardOrderEntry")
    TensorMeta = _found(_SPEC, "TensorMeta")
    _gen_transform_infos = _found("torch.distributed.tensor._redistribute", "_gen_transform_infos")
    compute_local_shape_and_global_offset = _found("torch.distributed.tensor._utils", "compute_local_shape_and_global_offset")
    _NormPartial = _found(_NORMS, "_NormPartial")
    _StridedShard = _found("torch.distributed.tensor.placement_types", "_StridedShard")
    get_active_debug_mode = _found("torch.utils._debug_mode", "get_active_debug_mode")
    TorchDispatchMode = _found("torch.utils._python_dispatch", "TorchDispatchMode")
    _disable_current_modes = _found("torch.utils._python_dispatch", "_disable_current_modes")
    is_traceable_wrapper_subclass_type = _found("torch.utils._python_dispatch", "is_traceable_wrapper_subclass_type")


def installed() -> tuple[int, int]:
    """Returns the major and minor version of the installed PyTorch."""
    found = re.match(r"(\d+)\.(\d+)", torch.__version__)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def hooked() -> list[ModuleType]:
    """Returns the modules that have bound the function through which redistributions pass."""
    return [module for name in _BOUND if (module := _module(name)) is not None]


def compiled_codes() -> list[tuple[CodeType, CodeType]]:
    """Returns the code of each compiled graph that is cached, and the function that it was compiled from."""
    # Loading the compiler takes seconds; until something else loads it, nothing is compiled.
    compiler: Any = sys.modules.get(_COMPILER)
    if compiler is None or problem(Part.COMPILED) is not None:
        return []
    made = [code for one in list(compiler.output_codes.seen) if (code := one()) is not None]
    return [(code, compiler.orig_code_map.get(code, code)) for code in made]


def is_from_local(x: DTensor) -> bool:
    """Returns True for the result of `DTensor.from_local` of a tensor that requires a gradient."""
    if problem(Part.FROM_LOCAL) is not None:
        return False
    api: Any = _module("torch.distributed.tensor._api")
    return isinstance(x.grad_fn, api._FromTorchTensor._backward_cls)


def counts_runs() -> bool:
    """Returns True if PyTorch's compiler has the names by which runs of its graphs are counted."""
    # This loads the compiler, as the first DTensor does.
    if problem(Part.RUNS) is not None:
        return False
    boxed: Any = _module("functorch.compile")
    return bool(getattr(boxed.make_boxed_func(len), BOXED, False))


def aot_compile() -> AotCompile:
    """Returns the function by which Dynamo's backends compile a graph with AOTAutograd."""
    found: AotCompile = getattr(_module(_AOT), "aot_module_simplified")
    return found


def bind_aot_compile(function: AotCompile) -> None:
    """Puts a function in place of that function."""
    setattr(sys.modules[_AOT], "aot_module_simplified", function)


def traced_graph() -> Any:
    """Returns the graph to which ops are added now; None if no graph is traced, or if that is not known."""
    mode: Any = getattr(_module("torch.fx.experimental.proxy_tensor"), "get_proxy_mode", lambda: None)()
    return None if mode is None else mode.tracer.graph


def fsdp_module() -> ModuleType | None:
    """Returns the module whose functions make FSDP2's collectives."""
    return _module(f"{_FSDP}._fsdp_param_group")


def split_factor(of: Any) -> int:
    """Returns the split factor of a strided shard."""
    known = SUPPORTED.get(installed())
    return known.split_factor(of) if known else int(of.split_factor)


def groups_along(device_mesh: DeviceMesh, axis: int) -> list[list[int]]:
    """Returns the ranks of all groups along an axis of a device mesh, those of the other slices of its root included.

    An axis is its sizes and strides over the root's ranks, which are read here: the class that has them, its
    constructor and its methods differ between versions. Every rank gets the same list, in the mesh or not.
    """
    ranks = device_mesh._rank_map.tolist()
    offsets = [0]
    for size, stride in device_mesh._layout[axis].sizes_and_strides:
        offsets = [first + at * stride for first in offsets for at in range(size)]
    left = dict.fromkeys(range(len(ranks)))
    groups = []
    while left:
        # The groups are copies of the one with rank 0, shifted: the first rank that is left begins another one.
        first = next(iter(left))
        members = [first + offset for offset in offsets]
        for member in members:
            del left[member]
        groups.append([ranks[member] for member in members])
    return groups


_problems: dict[Part, str | None] = {}
_warned: set[str] = set()


def problem(part: Part = Part.PLANS) -> str | None:
    """Returns the reason why the installed PyTorch cannot be used for a part of this package, or None."""
    if part not in _problems:
        _problems[part] = _compared(part)
    return _problems[part]


def again() -> None:
    """Forgets the comparison: code that replaces PyTorch's functions may have run since."""
    _problems.clear()


def _compared(part: Part) -> str | None:
    wrong = [text for one in NEEDED if one.part in (Part.PLANS, part) and (text := _wrong(one)) is not None]
    bound = {module.__name__: getattr(module, REDISTRIBUTES, None) for module in hooked()}
    if not wrong and len(set(bound.values())) > 1:
        wrong.append(f"{REDISTRIBUTES} is not the same function in {', '.join(bound)}")
    if not wrong and installed() not in SUPPORTED and (text := _shards_differ()) is not None:
        wrong.append(text)
    if not wrong:
        return None
    # One name or two are enough to see that a version is another one; 2.10 differs in seven.
    listed = "; ".join(wrong[:2]) + (f"; and {len(wrong) - 2} more" if len(wrong) > 2 else "")
    return f"PyTorch {torch.__version__}: {listed}; reshard.torch supports PyTorch {_LISTED}"


def usable(part: Part = Part.PLANS) -> bool:
    """Returns True if the installed PyTorch can be used; otherwise, and for an unknown version, warns once."""
    found = problem(part)
    if found is not None:
        _warn(f"{found}. PyTorch's own code runs instead of plans")
    elif installed() not in SUPPORTED:
        _warn(
            f"PyTorch {torch.__version__} is not among the tested versions {_LISTED}. All private names that reshard.torch needs "
            f"exist with the known arguments, and its shards are the expected ones, so plans run. To have PyTorch's own code run, do not "
            f"enter planned()"
        )
    return found is None


def require(part: Part = Part.PLANS) -> None:
    """Raises a RuntimeError if the installed PyTorch cannot be used for a part that PyTorch's own code cannot replace."""
    found = problem(part)
    if found is not None:
        raise RuntimeError(found)
    usable(part)


def _warn(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=4)


def _wrong(one: Private) -> str | None:
    """Returns a text if a name is missing, or takes other arguments than in the table."""
    found: Any = _module(one.module)
    for part in one.path.split("."):
        # Attributes that objects get when they are made are in the annotations of their class.
        found = getattr(found, part, getattr(found, "__annotations__", {}).get(part))
        if found is None:
            return f"{one.module}.{one.path} is missing"
    if one.takes is None:
        return None
    takes = _arguments(found)
    known = "".join(r"(\S+ )*" if name == ".." else f"{name} " for name in one.takes)
    same = re.fullmatch(known, "".join(f"{name} " for name in takes)) is not None
    return None if same else f"{one.module}.{one.path} takes ({', '.join(takes)}) instead of ({', '.join(one.takes)})"


def _arguments(of: Any) -> tuple[str, ...]:
    schema = getattr(of, "_schema", None)
    if schema is not None:
        return tuple(one.name for one in schema.arguments)
    try:
        return tuple(inspect.signature(of).parameters)
    except (TypeError, ValueError):
        return ("?",)


def _shards_differ() -> str | None:
    """Returns a text if an unknown version splits a tensor unlike shardings do; needs no group."""
    from torch.distributed.tensor import Shard

    ours = Mesh("a=2,b=3")
    for rank in ours.ranks:
        theirs = DeviceMesh("cpu", torch.arange(6).reshape(2, 3), mesh_dim_names=("a", "b"), _init_backend=False, _rank=rank)
        for placements, text in (((Shard(0), Shard(0)), "S(0),S(0)"), ((Shard(1), Shard(0)), "S(1),S(0)")):
            shape = tuple(compute_local_shape_and_global_offset(torch.Size((13, 7)), theirs, placements)[0])
            if shape != tuple(Sharding(ours, (13, 7), text).local_shape(rank)):
                return f"rank {rank} of {ours} has {list(shape)} of [13, 7] as {text}, which differs"
    return None
