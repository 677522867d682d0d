"""Runs PyTorch's own tests of DTensor, once without `planned()` and once under it, and compares the outcomes.

    python run.py FOLDER EXPECTED [FILE ..]

FOLDER has PyTorch's tests, `test/distributed/tensor` of a checkout. A test that fails even without
`planned()`, because its version is not the installed one, is not a difference. FILEs are names below FOLDER;
the default is `FILES`. A test that passes by itself and fails under `planned()` is a difference, and has to
be in EXPECTED, a TOML list with a reason for each; one that is in EXPECTED and passes is an error as well.
Its table `counts` lists tests that only count other calls than are made here: they run a third time, in which
every count is right, and have to pass. Its table `chance` lists tests that pass in some runs and fail in
others even without `planned()`: they are never differences.

`RESHARD_TORCH_SECONDS` is the time limit of a run of a file (3600). PyTorch's
`DISTRIBUTED_TESTS_DEFAULT_TIMEOUT` is that of a test (300 here). Processes of tests are forked, since spawned
ones import PyTorch for seconds; `RESHARD_TORCH_START=spawn` spawns them as PyTorch does.
`RESHARD_TORCH_ON_CPUS=1` also runs PyTorch's GPU-only tests.
"""

import enum
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).parent
# The files whose tests redistribute tensors, or check meshes and calls.
FILES = [
    "test_redistribute.py",
    "test_dtensor.py",
    "test_api.py",
    "test_matrix_ops.py",
    "test_pointwise_ops.py",
    "test_math_ops.py",
    "test_tensor_ops.py",
    "test_view_ops.py",
    "test_embedding_ops.py",
    "test_convolution_ops.py",
    "test_experimental_ops.py",
    "test_common_rules.py",
    "test_op_strategy.py",
    "test_init.py",
    "test_random_ops.py",
    "test_optimizers.py",
    "test_utils.py",
    "test_dtensor_compile.py",
    "parallel/test_parallelize_api.py",
    "parallel/test_tp_style.py",
    "parallel/test_tp_examples.py",
    "parallel/test_tp_random_state.py",
    "experimental/test_local_map.py",
    "experimental/test_register_sharding.py",
    "experimental/test_tp_transform.py",
    "debug/test_comm_mode.py",
    "debug/test_comm_mode_features.py",
    "debug/test_op_coverage.py",
]
# The maximum number of differences.
MOST = 40


class Way(enum.Enum):
    """The mode in which tests are run."""

    OWN = "as they are"
    PLANNED = "under planned()"
    ANY_COUNTS = "under planned(), where every count of calls is right"


def outcomes(folder: pathlib.Path, file: str, way: Way, names: list[str] | None = None) -> dict[str, str]:
    """Returns the outcome of each test of a file, or of the named ones: `passed`, `skipped`, or an error."""
    environment = {"DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": "300", **os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    plugins = [
        *(["forked"] if environment.get("RESHARD_TORCH_START", "fork") == "fork" else []),
        *(["on_cpus"] if environment.get("RESHARD_TORCH_ON_CPUS") else []),
    ]
    paths = [str(HERE / "plugins")]
    if way is not Way.OWN:
        paths.append(str(HERE / "every_process"))
    if way is Way.ANY_COUNTS:
        environment["RESHARD_TORCH_COUNTS"] = "any"
    environment["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [environment.get("PYTHONPATH")])])
    # A name consists of the file, the class and the test; a test without a class has the module instead.
    chosen = [folder / file] if names is None else [f"{folder / file}::{name.split('::', 1)[1].removeprefix(pathlib.Path(file).stem + '::')}" for name in names]
    with tempfile.TemporaryDirectory() as work:
        report = pathlib.Path(work) / "report.xml"
        loaded = [part for plugin in plugins for part in ("-p", plugin)]
        command = [sys.executable, "-m", "pytest", *map(str, chosen), "-q", *loaded, "-p", "no:cacheprovider", f"--junitxml={report}"]
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
        found[name] = outcome(case)
    if not found:
        sys.exit(f"run: there is no test in {file}, or it cannot be imported:\n{ran.stdout[-2000:]}")
    return found


def outcome(case: xml.etree.ElementTree.Element) -> str:
    """Returns the outcome of a test, whether or not PyTorch expects it to fail."""
    for child in case:
        said = "".join(child.itertext())
        if child.tag in ("failure", "error"):
            return "passed" if said.strip() == "Unexpected success" else why(said)
        if child.tag == "skipped":
            return "failed, and PyTorch expects that" if child.get("type") == "pytest.xfail" else "skipped"
    return "passed"


def why(said: str) -> str:
    """Returns the first error in a failed test's output; processes that end print further ones after it."""
    errors = re.findall(r"^(?:E\s)?\W*((?:\w+\.)*\w*(?:Error|Exception): .+)$", said, re.MULTILINE)
    return str(errors[0]).strip() if errors else (said.strip().splitlines() or ["failed"])[-1].strip()


def main() -> None:
    if len(sys.argv) < 3 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit("run: RESHARD_TORCH_TESTS has to be a folder with PyTorch's tests, test/distributed/tensor of a checkout")
    folder = pathlib.Path(sys.argv[1]).resolve()
    files = sys.argv[3:] or [file for file in FILES if (folder / file).exists()]
    lacking = [file for file in files if not (folder / file).exists()]
    if lacking or not files:
        sys.exit(f"run: {folder} lacks {', '.join(lacking or FILES)}")
    listed = tomllib.loads(pathlib.Path(sys.argv[2]).read_text())
    counts: dict[str, str] = listed.get("counts", {})
    expected: dict[str, str] = {**counts, **listed.get("differences", {})}
    chance: dict[str, str] = listed.get("chance", {})
    differences: dict[str, str] = {}
    # The outcomes of tests listed in `counts` that do not pass even if every count is right.
    more: dict[str, str] = {}
    better: list[str] = []
    alike = 0
    tried: set[str] = set()
    for file in files:
        own, ours = (outcomes(folder, file, way) for way in (Way.OWN, Way.PLANNED))
        if own.keys() != ours.keys():
            sys.exit(f"run: {file} has other tests under planned(): {sorted(own.keys() ^ ours.keys())}")
        tried |= own.keys()
        for name, before in own.items():
            after = ours[name]
            if name in chance:
                print(f"by chance: {name}: {before}, and under planned() {after}")
            elif before == "passed" and after != "passed":
                differences[name] = after
            elif before not in ("passed", "skipped") and after == "passed":
                better.append(name)
            else:
                alike += before == "passed"
        counted = [name for name in counts if name in differences and name.startswith(f"{file}::")]
        if counted:
            more |= {name: outcome for name, outcome in outcomes(folder, file, Way.ANY_COUNTS, counted).items() if outcome != "passed"}
        passed = sum(outcome == "passed" for outcome in own.values())
        print(f"{file}: {len(own)} tests, {passed} pass as they are, {sum(name.startswith(file + '::') for name in differences)} of them not under planned()", flush=True)
    for name, said in differences.items():
        print(f"{'as expected' if name in expected else 'NOT EXPECTED'}: {name}\n    {expected.get(name, said)}")
    for name in better:
        print(f"passes only under planned(): {name}")
    # Names of tests of another version of PyTorch are ignored.
    stale = [name for name in expected if name in tried and name not in differences]
    for name in stale:
        print(f"NO DIFFERENCE, though one is expected: {name}")
    for name, said in more.items():
        print(f"NOT BY COUNTS ALONE: {name}\n    {said}")
    unexpected = [name for name in differences if name not in expected]
    print(f"{alike} pass in both runs, {len(differences)} differ, {len(unexpected)} of them unexpected; {len(better)} pass only under planned()")
    if unexpected or stale or more or len(expected) > MOST:
        sys.exit(f"run: {len(unexpected)} differences are not expected, {len(stale)} are no more, {len(more)} are of more than counts, and of {len(expected)} at most {MOST} may be")


main()
