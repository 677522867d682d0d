"""Plans over PyTorch's NCCL groups: every shard that `reshard.torch.redistribute_local` makes on a GPU, against slices of the whole.

    python3 benches/peers/device_c10d.py [RANKS ..]        (torch with CUDA and NCCL, and reshard; 2 and 4 ranks if not said)

All ranks are processes on one GPU, which is good for what is right and not for what is fast. Any PyTorch whose device meshes have
`get_group` will do.
"""

import itertools
import os
import socket
import subprocess
import sys
from datetime import timedelta

AXES = {2: (2,), 4: (2, 2)}
SHAPES = [(16, 8), (13, 7), (1, 3)]


def chunk(whole, dim, size, at):
    """What a member of an axis holds, by `torch.chunk`, which leaves the last members without."""
    parts = whole.chunk(size, dim)
    return parts[at] if at < len(parts) else whole.narrow(dim, 0, 0)


def shard(whole, placements, extents, coordinate):
    """What a rank holds of a whole; terms differ, and their sum is exact."""
    for placement, size, at in zip(placements, extents, coordinate, strict=True):
        if placement == "P":
            whole = whole - 3 * (size - 1) if at == 0 else whole * 0 + 3
        elif placement != "R":
            whole = chunk(whole, int(placement[2]), size, at)
    return whole.contiguous()


def rank(extents):
    import torch
    import torch.distributed as dist
    from reshard import Mesh, Sharding
    from reshard.torch import Groups, redistribute_local
    from torch.distributed.device_mesh import init_device_mesh

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
    coordinate = device_mesh.get_coordinate()
    done, kinds = 0, {}
    for shape, dtype in itertools.product(SHAPES, [torch.float32, torch.bfloat16, torch.int64, torch.uint8]):
        whole = torch.randperm(shape[0] * shape[1], generator=torch.Generator().manual_seed(1)).reshape(shape).to(dtype).cuda()
        sources = itertools.product(["R", "S(0)", "S(1)", "P"] if dtype != torch.uint8 else ["R", "S(0)", "S(1)"], repeat=len(extents))
        for before in sources:
            for after in itertools.product(["R", "S(0)", "S(1)"], repeat=len(extents)):
                from_, to = (Sharding(mesh, list(shape), ",".join(placements)) for placements in (before, after))
                made = redistribute_local(shard(whole, before, extents, coordinate), from_, to, groups=groups)
                truth = shard(whole, after, extents, coordinate)
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
            # Ranks of one host may not share a GPU; so they say that they are several hosts.
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
    print(f"ROW | reshard.torch over PyTorch's NCCL groups, {' and '.join(map(str, sizes))} processes on one GPU | every shard equal | kept |")


main()
