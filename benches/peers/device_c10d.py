"""Compares `reshard.torch.redistribute_local` over PyTorch's NCCL groups on a GPU with slices of the whole.

    python3 benches/peers/device_c10d.py [RANKS ..]        (torch with CUDA and NCCL, reshard, and `definition` of its tests)

Runs with 2 and 4 ranks by default.

All ranks are processes on one GPU, which tests correctness but not speed. Any PyTorch whose device meshes
have `get_group` works.
"""

import itertools
import os
import socket
import subprocess
import sys
from datetime import timedelta

AXES = {2: (2,), 4: (2, 2)}
SHAPES = [(16, 8), (13, 7), (1, 3)]


def rank(extents):
    import torch
    import torch.distributed as dist
    from reshard import Mesh, Sharding
    from reshard.torch import Groups, redistribute_local
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard

    from definition import shard, whole_of

    class GroupsOfAxes(Groups):
        def _add_axes(self, device_mesh):
            for axis in range(device_mesh.ndim):
                members = device_mesh.mesh.movedim(axis, -1).reshape(-1, device_mesh.size(axis))
                self._add(device_mesh.get_group(axis), members.tolist())

    torch.cuda.set_device(0)
    dist.init_process_group("nccl", timeout=timedelta(seconds=30), device_id=torch.device("cuda", 0))
    device_mesh = init_device_mesh("cuda", extents)
    groups = GroupsOfAxes(device_mesh)
    names = "xyz"[: len(extents)]
    mesh = Mesh(",".join(f"{name}={size}" for name, size in zip(names, extents, strict=True)))
    texts = {Replicate(): "R", Shard(0): "S(0)", Shard(1): "S(1)", Partial(): "P"}
    plain = [one for one in texts if one != Partial()]
    done = 0
    for shape, dtype in itertools.product(SHAPES, [torch.float32, torch.bfloat16, torch.int64, torch.uint8]):
        whole = whole_of(shape, dtype)
        # Partial values of u8 would wrap around.
        for before in itertools.product(texts if dtype != torch.uint8 else plain, repeat=len(extents)):
            for after in itertools.product(plain, repeat=len(extents)):
                from_, to = (Sharding(mesh, list(shape), ",".join(texts[one] for one in placements)) for placements in (before, after))
                made = redistribute_local(shard(whole, before, device_mesh).cuda(), from_, to, groups=groups)
                truth = shard(whole, after, device_mesh).cuda()
                assert made.is_cuda and made.dtype == dtype and made.shape == truth.shape, (shape, dtype, before, after)
                assert torch.equal(made, truth), f"{shape} {dtype} {before} -> {after} on rank {dist.get_rank()}"
                done += 1
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks, {torch.cuda.get_device_name()}, torch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}: {done} redistributions")
    dist.destroy_process_group()


def start(size):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for number in range(size):
        own = {
            "RANK": str(number), "LOCAL_RANK": "0", "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            # Ranks of one host may not share a GPU, so they present themselves as several hosts.
            "NCCL_HOSTID": f"reshard-{number}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "2",
        }
        ranks.append(subprocess.Popen([sys.executable, __file__, "--rank", str(size)], env={**os.environ, **own}))
    return [one.wait() for one in ranks]


def main():
    if sys.argv[1:2] == ["--rank"]:
        return rank(AXES[int(sys.argv[2])])
    sizes = [int(text) for text in sys.argv[1:]] or list(AXES)
    failed = [size for size in sizes if any(start(size))]
    if failed:
        sys.exit(f"plans over NCCL failed with {failed} ranks")
    print(f"ROW | reshard.torch over PyTorch's NCCL groups, {' and '.join(map(str, sizes))} processes on one GPU | every shard equal | passed |")


main()
