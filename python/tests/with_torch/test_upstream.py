"""What runs PyTorch's own tests both ways finds what differs, in every process, and compares it with the list."""

import pathlib
import subprocess
import sys

RUN = pathlib.Path(__file__).parents[1] / "torch_upstream" / "run.py"
TESTS = """
import multiprocessing

import torch.distributed.tensor._redistribute as found


def own():
    return found.redistribute_local_tensor.__module__ == found.__name__


def test_alike():
    assert callable(found.redistribute_local_tensor)


def test_here():
    assert own(), "AssertionError: it is another function"


def test_in_a_process_that_is_started():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(own)


def test_that_always_fails():
    assert False
"""


def run(folder: pathlib.Path, differences: dict[str, str]) -> tuple[int, str]:
    expected = folder / "expected.toml"
    expected.write_text("[differences]\n" + "".join(f'"{name}" = "{why}"\n' for name, why in differences.items()))
    ran = subprocess.run([sys.executable, "-P", str(RUN), str(folder), str(expected), "test_few.py"], capture_output=True, text=True)
    return ran.returncode, ran.stdout + ran.stderr


def test_differences_are_those_of_the_list(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_few.py").write_text(TESTS)
    here, started = "test_few.py::test_few::test_here", "test_few.py::test_few::test_in_a_process_that_is_started"
    status, said = run(tmp_path, {here: "the function is another", "test_few.py::test_few::test_alike": "none"})
    assert status == 1, said
    assert "test_few.py: 4 tests, 3 pass as they are, 2 of them not under planned()" in said
    assert f"as expected: {here}\n    the function is another" in said
    assert f"NOT EXPECTED: {started}" in said
    assert "NO DIFFERENCE, though one is expected: test_few.py::test_few::test_alike" in said
    assert "1 differences are not expected, 1 are no more" in said
    status, said = run(tmp_path, {here: "the function is another", started: "there too"})
    assert status == 0, said
    assert "1 pass both ways, 2 differ, 0 of them unexpected; 0 pass only under planned()" in said


def test_folders_without_tests_are_refused(tmp_path: pathlib.Path) -> None:
    status, said = run(tmp_path, {})
    assert status == 1 and "lacks test_few.py" in said, said
