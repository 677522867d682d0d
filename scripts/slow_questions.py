#!/usr/bin/env python3
"""A guided search for slow requests: it mutates slow ones, and retains those that are slower.

    scripts/slow_questions.py RESHARD [--seconds 60] [--seed 1] [--over 1.0] [--kinds plan,propagate,check] [--known FILE]

RESHARD is the program, of a release build. Requests go to its batches, with at most 131,072 ranks. Time is
processor time, not wall-clock time. It prints the number of requests, and each that took longer than OVER
seconds, the slowest first, as a line `KIND SECONDS ANSWERED JSON`. FILE holds such lines: they are run first,
and are the start of the search. It judges nothing.
"""
import argparse
import json
import math
import random
import resource
import selectors
import subprocess
import sys
import time

MOST_RANKS = 131_072
KEPT = 40
"""The number of slowest requests of each kind that are mutated further."""
LONGEST = 40
"""The timeout of a request in seconds."""
PRIMES = [2, 3, 5, 7, 11, 13, 17, 31, 97]
AXES = "abcdefghijklmnop"
CALLS = {
    # An op, and the shapes of its inputs from a few sizes.
    "add": lambda n: [n[:3], n[:3]],
    "mm": lambda n: [[n[0], n[1]], [n[1], n[2]]],
    "bmm": lambda n: [[n[0], n[1], n[2]], [n[0], n[2], n[3]]],
    "embedding": lambda n: [[n[0], n[1]], [n[2], n[3]]],
    "softmax(dim=-1)": lambda n: [n[:3]],
    "sum(dims=[0])": lambda n: [n[:3]],
    "cumsum(dim=0)": lambda n: [n[:2]],
    "layer_norm": lambda n: [n[:3], [n[2]], [n[2]]],
    "cat(dim=0)": lambda n: [n[:2], n[:2], n[:2]],
    "reshape(shape=[-1])": lambda n: [n[:3]],
    "transpose(dim0=0,dim1=1)": lambda n: [n[:3]],
    "where": lambda n: [n[:3], n[:3], n[:3]],
    "bij,bjk,bkl->bil": lambda n: [[n[0], n[1], n[2]], [n[0], n[2], n[3]], [n[0], n[3], n[1]]],
    "abcdef->fedcba": lambda n: [[n[i % 4] for i in range(6)]],
    "ab,cd,ef,gh->aceg": lambda n: [[n[0], n[1]]] * 4,
}


class Batch:
    """One `reshard KIND --batch` process, and its used processor time."""

    def __init__(self, program: str, kind: str):
        self.command = [program, kind, "--batch"]
        self.child: subprocess.Popen | None = None

    def start(self) -> subprocess.Popen:
        limit = 8 << 30
        child = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        )
        self.child = child
        return child

    def used(self) -> float:
        with open(f"/proc/{self.child.pid}/schedstat") as file:
            return int(file.read().split()[0]) / 1e9

    def ask(self, line: str) -> tuple[float, str]:
        """Runs a request; returns its processor seconds and its outcome."""
        child = self.child or self.start()
        before = self.used()
        child.stdin.write(line.encode() + b"\n")
        child.stdin.flush()
        answer = b""
        with selectors.DefaultSelector() as ready:
            ready.register(child.stdout, selectors.EVENT_READ)
            while not answer.endswith(b"\n"):
                if self.used() - before > LONGEST:
                    child.kill()
                    child.wait()
                    self.child = None
                    return LONGEST, "given_up"
                if ready.select(0.5):
                    more = child.stdout.read1(1 << 16)
                    if not more:
                        child.wait()
                        self.child = None
                        return LONGEST, f"died {child.returncode}"
                    answer += more
        took = self.used() - before
        return took, "refused" if b'"error"' in answer[:200] else "answered"


class Maker:
    """Requests as trees of numbers and choices, so that a part can be mutated."""

    def __init__(self, r: random.Random):
        self.r = r

    def size(self) -> int:
        r = self.r
        return r.choice([1, 2, 2, 3, 4, 4, 5, 7, 8, 13, 16, 64, r.randint(1, 200), 2 ** r.randint(0, 14), 2 ** r.randint(1, 14) - 1])

    def mesh(self) -> list[int]:
        r = self.r
        return fitted([r.choice([2, 2, 2, 3, 4, 7, 8, 13, 16, 64, 256]) for _ in range(r.randint(1, r.choice([3, 6, 10])))])

    def placement(self) -> str:
        r = self.r
        dim = r.randint(0, 2)
        return r.choice(
            ["R", "R", f"S({dim})", f"S({dim})", f"S({dim})", "P", f"SS({dim},{r.choice([2, 3, 4])})", f"_S({dim},2)", "P(max)"]
        )

    def placements(self, axes: int) -> list[str]:
        return [self.placement() for _ in range(axes)]

    def option(self, kind: str) -> dict[str, object]:
        r = self.r
        shared = [{"topology": "h100"}, {"objective": r.choice(["bytes", "time"])}, {"topology": "level=8:1:450;level=64:5:50;level=*:9:25"}]
        if kind == "plan":
            return r.choice(shared + [
                {"groups": r.choice(["axes", "a", "a,b", f"{2 ** r.randint(1, 6)}:{2 ** r.randint(0, 4)}"])},
                {"max_peak_bytes": 2 ** r.randint(4, 30)}, {"objective": "peak"}, {"to_mesh": None}, {"types": True},
            ])
        if kind == "propagate":
            return r.choice(shared + [{"top": r.randint(1, 20)}, {"explicit": True}, {"out": "same"}])
        return r.choice(shared[:1] + [{"explicit": "local-only"}])

    def question(self, kind: str) -> dict:
        r = self.r
        axes = self.mesh()
        gene = {"kind": kind, "mesh": axes, "sizes": [self.size() for _ in range(8)], "options": {}}
        if r.random() < 0.4:
            gene["options"] = self.option(kind)
        if kind == "plan":
            gene |= {"from": self.placements(len(axes)), "to": self.placements(len(axes)), "dims": r.randint(1, 4), "to_mesh": self.mesh()}
        elif kind == "propagate":
            gene |= {"op": r.choice(list(CALLS)), "in": [self.placements(len(axes)) for _ in range(4)], "out": self.placements(len(axes))}
        else:
            gene |= {
                "calls": [(r.choice(["mm", "mm", "add", "relu", "softmax", "mmt"]), r.randint(0, 9), r.randint(0, 9)) for _ in range(r.randint(1, 10))],
                "in": [self.placements(len(axes)) for _ in range(3)], "gradient": r.random() < 0.7,
            }
        return gene

    def changed(self, gene: dict) -> dict:
        r = self.r
        gene = json.loads(json.dumps(gene))
        for _ in range(r.choice([1, 1, 2, 4])):
            axes = len(gene["mesh"])
            match r.randint(0, 6):
                case 0:
                    i = r.randrange(axes)
                    gene["mesh"][i] = r.choice([gene["mesh"][i] * 2, max(1, gene["mesh"][i] // 2), r.choice(PRIMES), gene["mesh"][i] + 1])
                    gene["mesh"] = fitted(gene["mesh"])
                case 1:
                    # Add or remove an axis, with its placements.
                    more, at = axes < len(AXES) and r.random() < 0.6, r.randrange(axes)
                    if not more and axes == 1:
                        continue
                    lists = [gene[k] for k in ("from", "to", "out") if k in gene] + gene.get("in", [])
                    if more:
                        gene["mesh"].insert(at, r.choice(PRIMES[:5]))
                        gene["mesh"] = fitted(gene["mesh"])
                    else:
                        del gene["mesh"][at]
                    for placements in lists:
                        if more:
                            placements.insert(at, self.placement())
                        else:
                            del placements[at]
                case 2 | 3:
                    lists = [gene[k] for k in ("from", "to", "out") if k in gene] + gene.get("in", [])
                    placements = r.choice(lists)
                    placements[r.randrange(len(placements))] = self.placement()
                case 4:
                    i = r.randrange(8)
                    n = gene["sizes"][i]
                    gene["sizes"][i] = r.choice([n * 2, n + 1, max(1, n - 1), self.size(), math.prod(gene["mesh"]), math.prod(gene["mesh"]) + 1])
                case 5:
                    gene["options"] = {} if r.random() < 0.3 else gene["options"] | self.option(gene["kind"])
                case _:
                    fresh = self.question(gene["kind"])
                    for key in ("op", "calls", "dims", "gradient"):
                        if key in gene and r.random() < 0.5:
                            gene[key] = fresh[key]
                    if "calls" in gene and len(gene["calls"]) < 24 and r.random() < 0.5:
                        gene["calls"] = gene["calls"] + fresh["calls"][:3]
        return gene


def fitted(sizes: list[int]) -> list[int]:
    """Shrinks axes until they have at most `MOST_RANKS` ranks."""
    sizes = sizes[: len(AXES)]
    while math.prod(sizes) > MOST_RANKS:
        i = sizes.index(max(sizes))
        sizes[i] = max(1, sizes[i] // 2)
    return sizes


def mesh_text(sizes: list[int]) -> str:
    return ",".join(f"{AXES[i]}={n}" for i, n in enumerate(sizes))


def joined(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def request(gene: dict) -> dict:
    mesh, options = gene["mesh"], dict(gene["options"])
    if gene["kind"] == "plan":
        keys = {"mesh": mesh_text(mesh), "shape": joined(gene["sizes"][: gene["dims"]]), "from": ",".join(gene["from"]), "to": ",".join(gene["to"])}
        if "to_mesh" in options:
            other = gene["to_mesh"]
            placements = [gene["to"][i % len(gene["to"])] for i in range(len(other))]
            keys |= {"to": ",".join(placements)}
            options["to_mesh"] = mesh_text(other)
        return keys | options
    if gene["kind"] == "propagate":
        shapes = CALLS[gene["op"]](gene["sizes"])
        if options.get("out") == "same":
            options["out"] = [",".join(gene["out"])]
        return {"mesh": mesh_text(mesh), "op": gene["op"], "shapes": [joined(s) for s in shapes], "in": [",".join(gene["in"][i]) for i in range(len(shapes))]} | options
    n = gene["sizes"][0]
    lines = [f"mesh {mesh_text(mesh)}"]
    names = ["x", "y", "z"]
    lines += [f"{name}: f32[{n},{n}] {','.join(p)}" for name, p in zip(names, gene["in"])]
    for i, (op, a, b) in enumerate(gene["calls"]):
        a, b = names[-1 - a % len(names)], names[-1 - b % len(names)]
        called = {"mm": f"mm({a}, {b})", "add": f"add({a}, {b})", "relu": f"relu({a})", "softmax": f"softmax({a}, dim=-1)", "mmt": f"mk,nk->mn({a}, {b})"}
        lines.append(f"v{i} = {called[op]}")
        names.append(f"v{i}")
    if gene["gradient"]:
        lines += [f"l = sum({names[-1]}, dims=[0,1])", "gradient l"]
    return {"program": "\n".join(lines)} | options


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("program")
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--over", type=float, default=1.0)
    arguments.add_argument("--kinds", default="plan,propagate,check")
    arguments.add_argument("--known")
    given = arguments.parse_args()
    print(f"slow questions: --seed {given.seed} --seconds {given.seconds}", file=sys.stderr)
    kinds = given.kinds.split(",")
    maker, r = Maker(random.Random(given.seed)), random.Random(given.seed + 1)
    batches = {kind: Batch(given.program, kind) for kind in kinds}
    slowest: dict[str, list] = {kind: [] for kind in kinds}
    counts = {kind: [0, 0] for kind in kinds}

    def ask(gene: dict) -> None:
        kind = gene["kind"]
        line = json.dumps(request(gene))
        took, became = batches[kind].ask(line)
        if took > given.over / 2 and batches[kind].child:
            # Measure again: other processes on the machine affect processor time, too.
            took = min(took, batches[kind].ask(line)[0])
        counts[kind][0] += 1
        counts[kind][1] += became == "answered"
        kept = slowest[kind]
        if all(line != other[2] for other in kept):
            kept.append((took, became, line, gene))
            kept.sort(key=lambda entry: -entry[0])
            del kept[KEPT:]

    if given.known:
        with open(given.known) as file:
            for text in file:
                if text.startswith("#"):
                    continue
                gene = json.loads(text.split("\t")[-1])
                if gene["kind"] in kinds:
                    ask(gene)
    end = time.monotonic() + given.seconds
    while time.monotonic() < end:
        kind = r.choice(kinds)
        kept = slowest[kind]
        if not kept or r.random() < 0.2:
            ask(maker.question(kind))
        else:
            ask(maker.changed(r.choice(kept)[3]))
    for kind, (asked, answered) in counts.items():
        over = sum(entry[0] > given.over for entry in slowest[kind])
        slow = slowest[kind][0][0] if slowest[kind] else 0
        print(f"# {kind}: {asked} asked, {answered} answered, slowest {slow:.2f} s, {over} kept over {given.over} s")
    for kind in kinds:
        for took, became, line, gene in slowest[kind]:
            if took > given.over:
                print(f"{kind}\t{took:.2f}\t{became}\t{line}\t{json.dumps(gene)}")
    for batch in batches.values():
        if batch.child:
            batch.child.kill()


if __name__ == "__main__":
    main()
