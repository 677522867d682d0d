"""The collectives of DTensor's own redistribution between two specs, without running it."""

from math import prod

from torch.distributed.tensor import Replicate, Shard

from reshard.torch.traffic import least_bytes
from reshard.torch.version import DTensorSpec, _StridedShard, compute_local_shape_and_global_offset, _gen_transform_infos


def dtensor_calls(current: DTensorSpec, target: DTensorSpec, item: int) -> tuple[tuple[str, ...], int]:
    """Returns DTensor's collectives between two specs, and the minimum bytes that a rank receives by them.

    A change of the sharded dim counts as an all-to-all, which it is on devices that have one. Calls that
    PyTorch merges on flattened axes are counted separately.

    Errors: PyTorch's, for specs between which it does not redistribute.
    """
    calls, received = [], 0
    placements = [Replicate() if one.is_partial() else one for one in current.placements]
    for info in _gen_transform_infos(current, target):
        before, after = info.src_dst_placements
        members = current.mesh.size(info.mesh_dim)
        placements[info.mesh_dim] = Replicate()
        shape = list(compute_local_shape_and_global_offset(current.shape, current.mesh, placements)[0])
        if not after.is_partial():
            placements[info.mesh_dim] = after
        kind = None
        if isinstance(before, Shard | _StridedShard) and not after.is_partial():
            kind = "all_gather" if isinstance(after, Replicate) else "all_to_all" if before.dim != after.dim else None
        elif before.is_partial() and not after.is_partial():
            kind = "all_reduce" if isinstance(after, Replicate) else "reduce_scatter"
        if kind is None or members == 1:
            continue
        for placement in (before, after):
            if isinstance(placement, Shard | _StridedShard):
                # Shards are padded to the largest.
                shape[placement.dim] = -(-shape[placement.dim] // members) * members
        whole = prod(shape) * item
        share = whole // members
        made = share if kind in ("reduce_scatter", "all_to_all") else whole
        calls.append(kind)
        received += least_bytes(kind, whole, made, members)
    return tuple(calls), received
