"""Times torch's `permute().contiguous()` on a GPU, to compare with the table `copies` of `device_speed`.

    python3 benches/peers/device_torch.py [MIB [OURS]]        (torch with CUDA; OURS: a file with that table)

Bytes count once read and once written; figures are medians of 15 runs timed by the device, with nothing left
in its caches, as ratios to `clone()` of the same bytes. With OURS it fails if ours is slower by more than 5
%, or has no such row.
"""

import statistics
import sys

import torch

# Bytes that are read before a timed run: more than the caches of a device hold.
CACHES = torch.zeros(32 << 20, dtype=torch.int64, device="cuda")


def ms(function, runs=15):
    function()
    times = []
    for _ in range(runs):
        torch.amax(CACHES)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def table(path):
    """GB/s by name and bytes of an element."""
    ours = {}
    for line in open(path):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) >= 6 and cells[1].isdigit():
            ours[cells[0], int(cells[1])] = float(cells[5])
    return ours


def main():
    total = (int(sys.argv[1]) if len(sys.argv) > 1 else 1024) << 20
    ours = table(sys.argv[2]) if len(sys.argv) > 2 else None
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {total >> 20} MiB\n")
    print("| permutation | element | GB/s | of clone() | ours, GB/s | ours to torch's |\n|---|---|---|---|---|---|")
    ratios = []
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
            theirs, base = ms(lambda: out.copy_(x.permute(order))), ms(lambda: x.clone())
            speed = 2 * total / theirs / 1e6
            compared = "| |"
            if ours is not None:
                if (name, item) not in ours:
                    sys.exit(f"{sys.argv[2]} has no row for {name} of {item} bytes")
                ratios.append(ours[name, item] / speed)
                compared = f"{ours[name, item]:.0f} | {ratios[-1]:.2f} |"
            print(f"| {name} | {item} | {speed:.0f} | {base / theirs:.2f} | {compared}")
    if ratios:
        slower = sum(ratio < 0.95 for ratio in ratios)
        found = f"{len(ratios)} permutations, worst {min(ratios):.2f} of torch's speed; {slower} missed"
        print(f"ROW | compared with torch's permute().contiguous() | never slower by more than 5 % | {found} |")
        if slower:
            sys.exit("a promise was missed")


main()
