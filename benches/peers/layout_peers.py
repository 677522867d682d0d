"""Times and checks the layout algebra of pycute and tensor-layouts, with the yardstick of the Rust benches.

    python3 -m venv venv
    venv/bin/pip install --no-deps nvidia-cutlass==4.2.0.0 tensor-layouts==0.3.2
    venv/bin/python benches/peers/layout_peers.py [CASES.jsonl]

pycute is a module of the package nvidia-cutlass (the package named pycute is another project). Figures are
medians of repeated runs on one thread. With the file of cases it also counts right, wrong and rejected
answers; a layout is compared as a function, and a rejection is right if there is no answer.
"""

import ast
import json
import re
import statistics
import sys
import timeit


def median_us(function, seconds=0.3):
    number, _ = timeit.Timer(function).autorange()
    number = max(1, number // 10)
    runs = timeit.repeat(function, number=number, repeat=15)
    return statistics.median(runs) / number * 1e6


def split_layout(text):
    shape, stride = text.split(":")
    return ast.literal_eval(shape), ast.literal_eval(stride)


def compact(shape):
    """Column-major strides nested like the shape."""
    step = 1

    def walk(part):
        nonlocal step
        if isinstance(part, tuple):
            return tuple(walk(p) for p in part)
        step, now = step * part, step
        return now

    return walk(shape)


TASKS = {
    "compose 1 (6,2):(8,2) o (4,3):(3,1)": ("composition", "(6,2):(8,2)", "(4,3):(3,1)"),
    "compose 2 (128,64):(64,1) o ((8,16),(4,16))": ("composition", "(128,64):(64,1)", "((8,16),(4,16))"),
    "compose 3 (4,8,2,16) o ((2,4),(8,16))": ("composition", "(4,8,2,16)", "((2,4),(8,16))"),
    "coalesce, 5 leaves": ("coalesce", "((2,4),(1,8),16):((1,2),(77,8),128)"),
    "complement to 4096": ("complement", "(4,2,8):(2,64,128)", 4096),
    "right_inverse, 4 leaves": ("right_inverse", "(4,8,2,16):(16,64,1,512)"),
    "left_inverse, 4 leaves": ("left_inverse", "(4,8,2,16):(16,64,1,1024)"),
    "logical_divide by (4,8):(1,16)": ("logical_divide", "(16,64):(64,1)", "(4,8):(1,16)"),
    "logical_product x (3,4):(4,1)": ("logical_product", "(4,8):(8,1)", "(3,4):(4,1)"),
}


class Peer:
    profiles = True

    def __init__(self, name, make, functions, size, at):
        self.name, self.make, self.functions, self.size, self.at = name, make, functions, size, at

    def operand(self, text):
        if isinstance(text, int):
            return text
        if ":" in text:
            return self.make(*split_layout(text))
        shape = ast.literal_eval(text)
        return self.make(shape, compact(shape))

    def task(self, operation, *operands):
        function = self.functions[operation]
        operands = [self.operand(operand) for operand in operands]
        return lambda: function(*operands)


def peers():
    found = []
    try:
        import pycute

        names = ["composition", "coalesce", "complement", "right_inverse", "left_inverse", "logical_divide",
                 "logical_product", "zipped_divide", "tiled_divide", "tiled_product"]
        found.append(Peer("pycute", pycute.Layout, {n: getattr(pycute, n) for n in names},
                          lambda layout: layout.size(), lambda layout, i: layout(i)))
    except ImportError:
        print("pycute is not installed (pip install --no-deps nvidia-cutlass)")
    try:
        import tensor_layouts as tl

        names = ["coalesce", "complement", "right_inverse", "left_inverse", "logical_divide", "logical_product",
                 "zipped_divide", "tiled_divide", "tiled_product", "flat_divide", "blocked_product", "raked_product"]
        functions = {n: getattr(tl, n) for n in names}
        functions["composition"] = tl.compose
        found.append(Peer("tensor-layouts", tl.Layout, functions, tl.size, lambda layout, i: layout(i)))
        # Its second argument of coalesce is a different parameter.
        found[-1].profiles = False
    except ImportError:
        print("tensor-layouts is not installed (pip install tensor-layouts)")
    return found


def fnv(values):
    state = 0xCBF29CE484222325
    for value in values:
        for byte in (value & (2**64 - 1)).to_bytes(8, "little"):
            state = ((state ^ byte) * 0x100000001B3) & (2**64 - 1)
    return f"{state:016x}"


def arguments(text):
    """The arguments of a call, split at the commas outside parentheses and angle brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "(<") - (letter in ")>")
        if letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return parts + [text[start:].strip()]


def answer(peer, case):
    name, inner = re.fullmatch(r"(\w+)\((.*)\)", case["expr"]).groups()
    if name not in peer.functions or case["op"] == "coalesce_by_mode" and not peer.profiles:
        return "absent"
    operands = []
    for part in arguments(inner):
        if part.startswith("<"):
            operands.append(tuple(peer.operand(p) for p in arguments(part[1:-1])))
        elif ":" in part:
            operands.append(peer.operand(part))
        else:
            operands.append(ast.literal_eval(part))
    try:
        result = peer.functions[name](*operands)
        values = [peer.at(result, i) for i in range(peer.size(result))]
    except Exception:  # noqa: BLE001 - any exception counts as a rejection
        return "right" if case["expect"] != "layout" else "rejected a valid case"
    if case["expect"] != "layout":
        return "answered an invalid case" if case["expect"] != "out_of_domain" else "answered beyond the domain"
    if name in ("right_inverse", "left_inverse"):
        a = peer.operand(case["A"])
        size = peer.size(a)
        if name == "right_inverse":
            good = all(peer.at(a, v) == i for i, v in enumerate(values) if v < size) and all(v < size for v in values)
        else:
            good = all(peer.at(result, peer.at(a, i)) == i for i in range(size)) or (
                "A(R" in case["law"] and all(peer.at(a, peer.at(result, peer.at(a, i))) == peer.at(a, i) for i in range(size)))
        return "right" if good else "wrong"
    return "right" if len(values) == case["size"] and fnv(values) == case["fnv64"] else "wrong"


def main():
    def yardstick():
        x = 1
        for k in range(64):
            x = ((x ^ (x >> 29)) * 0x9E3779B97F4A7C15 + k) & 0xFFFFFFFFFFFFFFFF
        return x

    found = peers()
    print(f"yardstick in Python: {median_us(yardstick):.2f} us")
    for task, (operation, *operands) in TASKS.items():
        row = []
        for peer in found:
            try:
                row.append(f"{peer.name} {median_us(peer.task(operation, *operands)):8.2f} us")
            except Exception as error:  # noqa: BLE001
                row.append(f"{peer.name} {type(error).__name__}")
        print(f"{task:48} " + "   ".join(row))
    if len(sys.argv) > 1:
        with open(sys.argv[1], encoding="utf-8") as lines:
            cases = [case for case in map(json.loads, lines) if "expr" in case]
        for peer in found:
            counts = {}
            for case in cases:
                verdict = answer(peer, case)
                counts[verdict] = counts.get(verdict, 0) + 1
            print(f"{peer.name}, {len(cases)} cases:", ", ".join(f"{n} {v}" for v, n in sorted(counts.items())))


if __name__ == "__main__":
    main()
