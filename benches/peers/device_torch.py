"""Times torch's `permute().contiguous()` on a GPU, beside the table of the example `device_speed`.

    python3 benches/peers/device_torch.py [MIB]        (torch with CUDA)

Bytes count once read and once written; figures are medians of 15 runs timed by the device, as ratios to `clone()` of the
same bytes.
"""

import statistics
import sys

import torch


def ms(function, runs=15):
    function()
    times = []
    for _ in range(runs):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def main():
    total = (int(sys.argv[1]) if len(sys.argv) > 1 else 1024) << 20
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {total >> 20} MiB\n")
    print("| permutation | item | GB/s | of clone() |\n|---|---|---|---|")
    for dtype, item in [(torch.float32, 4), (torch.bfloat16, 2)]:
        n = total // item
        side = 1 << ((n.bit_length() - 1) // 2)
        for name, extents, order in [
            ("2-D transpose", (side, n // side), (1, 0)),
            ("batched transpose", (n >> 20, 1 << 10, 1 << 10), (0, 2, 1)),
            ("(0,2,1,3), 128 B inside", (64, 64, n // 4096 // (128 // item), 128 // item), (0, 2, 1, 3)),
            ("(2,1,0)", (256, n >> 16, 256), (2, 1, 0)),
            ("(3,0,1,2)", (n >> 18, 64, 64, 64), (3, 0, 1, 2)),
        ]:
            x = torch.empty(extents, dtype=dtype, device="cuda")
            out = torch.empty([extents[d] for d in order], dtype=dtype, device="cuda")
            ours, base = ms(lambda: out.copy_(x.permute(order))), ms(lambda: x.clone())
            print(f"| {name} | {item} | {2 * total / ours / 1e6:.0f} | {base / ours:.2f} |")


main()
