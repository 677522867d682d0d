"""Times torch's DTensor sharding work per operator call, with the yardstick of `benches/sharding.rs`.

    python3 -m venv venv
    venv/bin/pip install torch
    venv/bin/python benches/peers/sharding_torch.py

One process stands for a mesh (dp=4, cp=2, tp=8) by the fake process group. Figures are medians of repeated
runs on one thread, in microseconds; nothing communicates.
"""

import statistics
import timeit
import warnings

warnings.filterwarnings("ignore")

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema
from torch.distributed.tensor._ops._view_ops import propagate_shape_and_sharding, view_groups
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

SHAPE = (4096, 1024, 8192)
CASES = {
    "plain": (Shard(0), Shard(1), Shard(2)),
    "fsdp_tp": (_StridedShard(0, split_factor=8), Shard(1), Shard(0)),
    "one axis": (Shard(0), Replicate(), Replicate()),
}
VIEWS = {"flatten": (4096 * 1024, 8192), "split": (4096, 1024, 64, 128)}


def median_us(function, seconds=0.2):
    try:
        function()
    except Exception as error:  # the error of a failed case is printed instead of its time
        return f"refused: {type(error).__name__}"
    number, taken = timeit.Timer(function).autorange()
    number = max(1, int(number * seconds / taken / 15))
    runs = timeit.repeat(function, number=number, repeat=15)
    return statistics.median(runs) / number * 1e6


def show(name, value):
    print(f"{name:44} {value if isinstance(value, str) else f'{value:10.2f}'}")


def main():
    dist.init_process_group("fake", rank=0, world_size=64, store=FakeStore())
    mesh = init_device_mesh("cpu", (4, 2, 8), mesh_dim_names=("dp", "cp", "tp"))
    print(f"torch {torch.__version__}, microseconds")
    meta = TensorMeta(torch.Size(SHAPE), (SHAPE[1] * SHAPE[2], SHAPE[2], 1), torch.float32)
    for name, placements in CASES.items():
        spec = DTensorSpec(mesh, placements, tensor_meta=meta)
        again = DTensorSpec(mesh, placements, tensor_meta=meta)
        show(f"build and hash a DTensorSpec, {name}", median_us(lambda: hash(DTensorSpec(mesh, placements, tensor_meta=meta))))
        show(f"equality, {name}", median_us(lambda: spec == again))
        show(
            f"local shape and offset, {name}",
            median_us(lambda: compute_local_shape_and_global_offset(SHAPE, mesh, placements)),
        )
        propagator = DTensor._op_dispatcher.sharding_propagator
        for view, shape in VIEWS.items():
            rule = view_groups(SHAPE, shape)
            show(
                f"rule of a view, {view}, {name}",
                median_us(lambda: propagate_shape_and_sharding(placements, SHAPE, rule, (4, 2, 8))),
            )
            schema = OpSchema(torch.ops.aten.view.default, (spec, list(shape)), {})
            show(
                f"propagation of a view, uncached, {view}, {name}",
                median_us(lambda: propagator.propagate_op_sharding_non_cached(schema)),
            )
            show(
                f"propagation of a view, cached, {view}, {name}",
                median_us(lambda: propagator.propagate_op_sharding(schema)),
            )
    show("a mesh of two axes of the mesh", median_us(lambda: mesh["dp", "tp"]))
    show("the group of an axis", median_us(lambda: mesh.get_group("dp")))
    flat = mesh["dp", "cp"]._flatten("dp_cp")
    show("flattening two axes, known before", median_us(lambda: mesh["dp", "cp"]._flatten("dp_cp")))
    assert flat.size() == 8


main()
