#!/usr/bin/env python3
"""Limits the cost of builds: fails if a count exceeds its stored value in .ci/builds.json by over a tenth.

    check, build, test   crates that the compiler was called for in a run of CI, without code, with code and with a test's main
    dependencies         crates that others wrote, of the whole workspace, as this platform builds them
    llvm-lines NAME      lines of LLVM's language that the compiler makes of a crate before they are optimised

    scripts/check_builds.py BUILDS FOLDER [--write]

BUILDS is the output of .ci/rustc, FOLDER that of cargo-llvm-lines (or none: not counted). --write stores the
counts. Seconds are printed, but not checked. A run with existing build results builds fewer crates, and
passes too.
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys

KEPT = pathlib.Path(__file__).parent.parent / ".ci/builds.json"
LARGEST = ["reshard-ops", "reshard-program", "reshard-checkpoint", "reshard-reference"]


def builds(path: str) -> dict[str, int]:
    """Returns the crates of each kind; prints those that took longest, and those built most often."""
    seconds: collections.Counter[str] = collections.Counter()
    built: dict[str, set[str]] = collections.defaultdict(set)
    kinds: dict[str, set[tuple[str, str]]] = collections.defaultdict(set)
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        crate, kind, unit, took = line.split()
        seconds[f"{crate} ({kind})"] += float(took)
        kinds[kind].add((crate, unit))
        if crate.startswith("reshard") and kind == "build":
            built[crate].add(unit)
    print(f"the compiler took {sum(seconds.values()):.0f} s of processors, most of them for:")
    for crate, took in seconds.most_common(15):
        print(f"{took:8.1f} s  {crate}")
    print("combinations of profile, features and flags in which our crates were built:")
    for crate, units in sorted(built.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"{len(units):8}    {crate}")
    return {kind: len(kinds[kind]) for kind in ("check", "build", "test")}


def dependencies() -> int:
    version = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    host = re.search(r"^host: (\S+)$", version, re.MULTILINE)
    assert host, version
    # Without the filter, crates count that only Windows or another crate's own tests build.
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host[1]]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return sum(package["source"] is not None for package in metadata["packages"])


def llvm_lines(folder: str) -> dict[str, int]:
    environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
    found = {}
    for crate in LARGEST:
        command = ["cargo", "llvm-lines", "--package", crate, "--lib"]
        table = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
        total = re.search(r"^ *(\d+) .*\(TOTAL\)$", table, re.MULTILINE)
        assert total, table[:1000]
        found[f"llvm-lines {crate}"] = int(total[1])
    return found


def main() -> int:
    path, folder, *write = sys.argv[1:]
    found = builds(path) | {"dependencies": dependencies()}
    if folder != "none":
        found |= llvm_lines(folder)
    if write:
        KEPT.write_text(json.dumps(found, indent=4) + "\n", encoding="utf-8")
        return 0
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    status = 0
    for name, count in found.items():
        if name not in kept:
            print(f"{count:8}  {name} (nothing is kept: scripts/check_builds.py --write)")
            continue
        over = count > kept[name] * 1.1
        print(f"{count:8}  {name} (kept: {kept[name]}){', MORE THAN A TENTH ABOVE' if over else ''}")
        status |= over
    return status


if __name__ == "__main__":
    sys.exit(main())
