#!/usr/bin/env python3
"""Counts the public names of the library's crates in rustdoc's JSON, against a budget.

    scripts/public_items.py [--list] [--write]

A public name has a documentation entry: a module, type, trait, function, constant or macro, a method, constant or
type of a type or trait. Not counted: fields and variants, which belong to their type; re-exports of other
crates; implementations of traits; what is `#[doc(hidden)]`, which may change with any version.

The status is 1 if a crate has more names than `scripts/public_items.json` allows; `--write` writes the counts there.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUDGET = ROOT / "scripts/public_items.json"
# The crates that a user can depend on. Not counted: `mpi`, which needs MPI to compile, and `verify` and `conformance`,
# which only test rules and engines.
CRATES = [
    "reshard", "layout", "sharding", "planner", "ops", "program", "reference", "kernels", "collectives", "checkpoint",
    "draw", "mapping", "transfer", "calibrate", "cuda", "device", "nccl",
]
TYPES = ("struct", "enum", "union", "trait")
MEMBERS = ("function", "assoc_const", "assoc_type", "constant")
LEAVES = ("function", "constant", "static", "type_alias", "macro", "proc_macro", "trait_alias")


def document(target: pathlib.Path) -> pathlib.Path:
    """Writes the JSON of all crates, and returns its folder."""
    packages = [name if name == "reshard" else f"reshard-{name}" for name in CRATES]
    command = ["cargo", "doc", "--no-deps", "--lib", "--quiet", "--target-dir", str(target)]
    for package in packages:
        command += ["-p", package]
    # The output format is unstable, its content is not: the toolchain is fixed by rust-toolchain.toml.
    flags = "-Zunstable-options --output-format=json --cap-lints=allow"
    environment = dict(os.environ, RUSTC_BOOTSTRAP="1", RUSTDOCFLAGS=flags)
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return target / "doc"


def public_items(krate: dict) -> set[str]:
    """Returns the paths of a crate's public names."""
    index, found, visited = krate["index"], set(), set()

    def members(owner: str, ids: list[int]) -> None:
        for member in ids:
            item = index.get(str(member))
            if item and item["name"] and next(iter(item["inner"])) in MEMBERS:
                found.add(f"{owner}::{item['name']}")

    def visit(identifier: int, path: str) -> None:
        item = index.get(str(identifier))
        if item is None or item["crate_id"] != 0:
            return
        kind, inner = next(iter(item["inner"].items()))
        if kind == "use":
            target = inner["id"]
            if target is None:
                return
            if inner["is_glob"]:
                module = index.get(str(target))
                if module is not None:
                    for child in module["inner"].get("module", {"items": []})["items"]:
                        visit(child, path)
                return
            visit(target, path)
            return
        if identifier in visited:
            return
        visited.add(identifier)
        name = f"{path}::{item['name']}" if path else item["name"]
        if kind == "module":
            if path:
                found.add(name)
            for child in inner["items"]:
                visit(child, name)
        elif kind in TYPES:
            found.add(name)
            if kind == "trait":
                members(name, inner["items"])
            for block in inner.get("impls", []) if kind != "trait" else []:
                implementation = index.get(str(block))
                if implementation and implementation["inner"]["impl"]["trait"] is None:
                    members(name, implementation["inner"]["impl"]["items"])
        elif kind in LEAVES:
            found.add(name)

    visit(krate["root"], "")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print each path")
    parser.add_argument("--write", action="store_true", help="write the counts as the budget")
    parser.add_argument("--target-dir", type=pathlib.Path, default=ROOT / "target")
    arguments = parser.parse_args()
    folder = document(arguments.target_dir)
    counts = {}
    for name in CRATES:
        file = folder / (name if name == "reshard" else f"reshard_{name}")
        paths = public_items(json.loads(file.with_suffix(".json").read_text()))
        counts[name] = len(paths)
        if arguments.list:
            print(*sorted(paths), sep="\n")
    for name, count in counts.items():
        print(f"{name:12} {count:5}")
    print(f"{'all':12} {sum(counts.values()):5}")
    if arguments.write:
        BUDGET.write_text(json.dumps(counts, indent=1) + "\n")
        return 0
    budget = json.loads(BUDGET.read_text())
    exceeded = [name for name, count in counts.items() if count > budget.get(name, 0)]
    for name in exceeded:
        print(f"{name} has {counts[name]} public names, allowed are {budget.get(name, 0)}: hide some, or run with --write "
              "and say in the commit what a user does with the new ones")
    return int(bool(exceeded))


if __name__ == "__main__":
    sys.exit(main())
