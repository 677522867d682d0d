"""WeightSync on eight gloo processes, compared in one run with gathering on the trainer and broadcasting.

    python weights.py [LAYERS HIDDEN ROUNDS]

Prints the bytes on the loopback device, relative to the bytes that the ranks of the server lack, and the time of a
round: the median over rounds of the slowest rank. With RESHARD_WRITE=1 it adds a run to benches/results/weights.jsonl.
"""

import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.tensor import DeviceMesh, DTensor, Shard, distribute_tensor

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import results

from reshard.torch import WeightSync

RULES = """
layers.*.qkv = layers.*.q | layers.*.k | layers.*.v
layers.*.gate_up = layers.*.gate | layers.*.up
layers.*.w2 = stack(layers.*.experts.#)
head = pad(embed, 1024)
"""
PLACEMENTS = {"*.qkv": "S(0),S(0) | S(0),R | S(0),R", "*.gate_up": "S(0),S(0)", "*.w2": "S(0),S(1)", "*.down": "S(1),S(1)", "*": "S(0),S(0)"}


def shapes(layers: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """The tensors of the trainer."""
    made: dict[str, tuple[int, ...]] = {"embed": (1000, hidden)}
    for layer in range(layers):
        at = f"layers.{layer}."
        made |= {f"{at}q": (hidden, hidden), f"{at}k": (hidden // 4, hidden), f"{at}v": (hidden // 4, hidden)}
        made |= {f"{at}gate": (2 * hidden, hidden), f"{at}up": (2 * hidden, hidden), f"{at}down": (hidden, 2 * hidden)}
        made |= {f"{at}experts.{expert}": (hidden, hidden) for expert in range(4)}
    return made


def target_shapes(layers: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """The buffers of a rank of the server."""
    made: dict[str, tuple[int, ...]] = {"head": (256, hidden), "embed": (250, hidden)}
    for layer in range(layers):
        at = f"layers.{layer}."
        made |= {f"{at}qkv": (hidden // 4 + hidden // 4, hidden), f"{at}gate_up": (hidden, hidden)}
        made |= {f"{at}down": (hidden, hidden // 2), f"{at}w2": (2, hidden // 2, hidden)}
    return made


def on_loopback() -> int:
    with open("/proc/net/dev", encoding="ascii") as devices:
        return next(int(line.split()[9]) for line in devices if line.strip().startswith("lo:"))


def measured(rank: int, run: object, rounds: int) -> tuple[float, int]:
    """Returns the median time of a round and the bytes of one."""
    times, sent = [], []
    for _ in range(rounds):
        dist.barrier()
        before, start = on_loopback(), time.monotonic()
        run()  # type: ignore[operator]
        dist.barrier()
        times.append(time.monotonic() - start)
        sent.append(on_loopback() - before)
    return statistics.median(times), int(statistics.median(sent))


def world(rank: int, layers: int, hidden: int, rounds: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29531", GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=8)
    mesh = DeviceMesh("cpu", torch.arange(4).view(2, 2), mesh_dim_names=("dp", "tp"))
    source = {name: distribute_tensor(torch.randn(shape), mesh, [Shard(0), Shard(0)]) for name, shape in shapes(layers, hidden).items()} if rank < 4 else None
    target = {name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in target_shapes(layers, hidden).items()} if rank >= 4 else None
    begin = time.monotonic()
    sync = WeightSync(
        source=source, target=target, target_mesh="kv=2,rep=2@[4,5,6,7]", placements=PLACEMENTS, mapping=RULES + "embed = embed\n", cast={"*": "bf16"}
    )
    planned = time.monotonic() - begin
    lacking = sum(row["lacking"] for row in sync.plan().transfer.rank_bytes())
    trainers = dist.new_group([0, 1, 2, 3])

    def gathered() -> None:
        for name, shape in shapes(layers, hidden).items():
            if source is not None:
                one = source[name]
                assert isinstance(one, DTensor)
                parts = [torch.empty_like(one.to_local()) for _ in range(4)]
                dist.all_gather(parts, one.to_local(), group=trainers)
                whole = torch.cat(parts).bfloat16()
            else:
                whole = torch.empty(shape, dtype=torch.bfloat16)
            dist.broadcast(whole, 0)

    sync()
    gathered()
    header = results.header("weights", "python/benches/weights.py", "transfers.md", PyTorch=torch.__version__)
    found = []
    for name, run in (("WeightSync", sync), ("gather and broadcast", gathered)):
        seconds, sent = measured(rank, run, rounds)
        found.append((name, seconds, sent))
        if rank == 0:
            print(f"{name}: {seconds * 1000:.1f} ms, {sent} bytes, {sent / lacking:.3f} of {lacking} lacking")
    if rank == 0:
        (_, seconds, sent), (peer, peer_seconds, peer_sent) = found
        what = f"weights of {layers} layers of width {hidden} from 4 ranks to 4 others"
        lines = [
            results.measured(f"{what}, time", seconds * 1e3, "ms", (peer, peer_seconds * 1e3)),
            results.measured(f"{what}, bytes relative to the lacking ones", sent / lacking, "", (peer, peer_sent / lacking)),
        ]
        results.write(header, lines, also=True)
        print(f"planned in {planned * 1000:.1f} ms, {len(sync.plan().to_bytes())} bytes of rank 0's part")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(world, args=tuple(map(int, sys.argv[1:])) or (2, 256, 9), nprocs=8)
