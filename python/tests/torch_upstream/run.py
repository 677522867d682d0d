"""PyTorch's own tests of DTensor, once as they are and once under `planned()`, and what differs.

    python run.py FOLDER EXPECTED [FILE ..]

FOLDER has PyTorch's tests, `test/distributed/tensor` of a checkout of the version that is installed. FILEs are names below it; those in
`FILES` if none is said. A test that passes as it is and does not under `planned()` is a difference, and has to be in EXPECTED, a list in
TOML that says why for each; one that is there and passes is wrong as well. `RESHARD_TORCH_SECONDS` is the most that a file may take once (3600).
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).parent
# Those in which tensors are redistributed.
FILES = [
    "test_redistribute.py",
    "test_dtensor.py",
    "test_api.py",
    "test_matrix_ops.py",
    "test_pointwise_ops.py",
    "test_tensor_ops.py",
    "test_view_ops.py",
    "test_embedding_ops.py",
    "test_init.py",
    "test_optimizers.py",
    "parallel/test_parallelize_api.py",
    "parallel/test_tp_style.py",
    "parallel/test_tp_examples.py",
    "experimental/test_local_map.py",
]
# The most differences that there may be.
MOST = 40


def outcomes(folder: pathlib.Path, file: str, *, is_planned: bool) -> dict[str, str]:
    """What became of each test of a file: `passed`, `skipped`, or how it failed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    if is_planned:
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE / "every_process"), *filter(None, [environment.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as work:
        report = pathlib.Path(work) / "report.xml"
        command = [sys.executable, "-m", "pytest", str(folder / file), "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        try:
            ran = subprocess.run(
                command, cwd=work, env=environment, capture_output=True, text=True, timeout=float(os.environ.get("RESHARD_TORCH_SECONDS", "3600"))
            )
        except subprocess.TimeoutExpired as late:
            sys.exit(f"run: {file} took more than {late.timeout:.0f} s")
        if not report.exists():
            sys.exit(f"run: pytest made no report of {file}:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
        tree = xml.etree.ElementTree.parse(report)
    found = {}
    for case in tree.iter("testcase"):
        name = f"{file}::{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        failed = [child for child in case if child.tag in ("failure", "error")]
        skipped = [child for child in case if child.tag == "skipped"]
        found[name] = why("".join(failed[0].itertext())) if failed else "skipped" if skipped else "passed"
    if not found:
        sys.exit(f"run: there is no test in {file}, or it cannot be imported:\n{ran.stdout[-2000:]}")
    return found


def why(said: str) -> str:
    """Of what a failed test says the error that began it: processes that end say so after it, each with its own."""
    errors = re.findall(r"^\W*((?:\w+\.)*\w*(?:Error|Exception): .+)$", said, re.MULTILINE)
    return str(errors[0]).strip() if errors else (said.strip().splitlines() or ["failed"])[-1].strip()


def main() -> None:
    if len(sys.argv) < 3 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit("run: RESHARD_TORCH_TESTS has to be a folder with PyTorch's tests, test/distributed/tensor of a checkout")
    folder = pathlib.Path(sys.argv[1]).resolve()
    files = sys.argv[3:] or [file for file in FILES if (folder / file).exists()]
    lacking = [file for file in files if not (folder / file).exists()]
    if lacking or not files:
        sys.exit(f"run: {folder} lacks {', '.join(lacking or FILES)}")
    expected: dict[str, str] = tomllib.loads(pathlib.Path(sys.argv[2]).read_text())["differences"]
    differences: dict[str, str] = {}
    better: list[str] = []
    alike = 0
    for file in files:
        own, ours = (outcomes(folder, file, is_planned=is_planned) for is_planned in (False, True))
        if own.keys() != ours.keys():
            sys.exit(f"run: {file} has other tests under planned(): {sorted(own.keys() ^ ours.keys())}")
        for name, before in own.items():
            after = ours[name]
            if before == "passed" and after != "passed":
                differences[name] = after
            elif before not in ("passed", "skipped") and after == "passed":
                better.append(name)
            else:
                alike += before == "passed"
        passed = sum(outcome == "passed" for outcome in own.values())
        print(f"{file}: {len(own)} tests, {passed} pass as they are, {sum(name.startswith(file + '::') for name in differences)} of them not under planned()", flush=True)
    for name, said in differences.items():
        print(f"{'as expected' if name in expected else 'NOT EXPECTED'}: {name}\n    {expected.get(name, said)}")
    for name in better:
        print(f"passes only under planned(): {name}")
    tried = [name for name in expected if name.partition("::")[0] in files]
    stale = [name for name in tried if name not in differences]
    for name in stale:
        print(f"NO DIFFERENCE, though one is expected: {name}")
    unexpected = [name for name in differences if name not in expected]
    print(f"{alike} pass both ways, {len(differences)} differ, {len(unexpected)} of them unexpected; {len(better)} pass only under planned()")
    if unexpected or stale or len(expected) > MOST:
        sys.exit(f"run: {len(unexpected)} differences are not expected, {len(stale)} are no more, and of {len(expected)} at most {MOST} may be")


main()
