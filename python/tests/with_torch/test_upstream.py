"""The script that runs PyTorch's own tests twice finds differences in every process and checks the list."""

import pathlib
import subprocess
import sys

RUN = pathlib.Path(__file__).parents[1] / "torch_upstream" / "run.py"
TESTS = """
import multiprocessing
import unittest

import torch.distributed.tensor._redistribute as found
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.common_distributed import MultiProcessTestCase


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


class Counted(unittest.TestCase):
    def counted(self):
        counts = CommDebugMode()
        counts.comm_counts["a call"] = 2 if own() else 1
        return counts

    def test_counts(self):
        self.assertEqual(self.counted().get_total_counts(), 2)
        self.assertEqual(self.counted().get_comm_counts()["a call"], 2)
        self.assertDictEqual(self.counted().get_comm_counts(), {"a call": 2})

    def test_counts_and_more(self):
        self.assertEqual(self.counted().get_total_counts(), 2)
        self.assertTrue(own())

    @unittest.expectedFailure
    def test_that_pytorch_expects_to_fail(self):
        self.assertTrue(own())


class Forked(MultiProcessTestCase):
    world_size = 2

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def test_in_a_process_of_a_test_case(self):
        self.assertTrue(own())
"""


FEW = "test_few.py::test_few::"
DIFFER = {
    "counts": {"test_few.py::Counted::test_counts": "it counts"},
    "differences": {
        f"{FEW}test_here": "the function is another",
        f"{FEW}test_in_a_process_that_is_started": "there too",
        "test_few.py::Counted::test_counts_and_more": "more than counts",
        "test_few.py::Counted::test_that_pytorch_expects_to_fail": "it does not fail as it is",
        "test_few.py::Forked::test_in_a_process_of_a_test_case": "there too",
        "test_few.py::Counted::test_of_another_version": "nobody has it",
    },
}


def run(folder: pathlib.Path, listed: dict[str, dict[str, str]]) -> tuple[int, str]:
    expected = folder / "expected.toml"
    expected.write_text("".join(f"[{table}]\n" + "".join(f'"{name}" = "{why}"\n' for name, why in names.items()) for table, names in listed.items()))
    ran = subprocess.run([sys.executable, "-P", str(RUN), str(folder), str(expected), "test_few.py"], capture_output=True, text=True)
    return ran.returncode, ran.stdout + ran.stderr


def test_differences_are_those_of_the_list(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_few.py").write_text(TESTS)
    here, started, alike, more = f"{FEW}test_here", f"{FEW}test_in_a_process_that_is_started", f"{FEW}test_alike", "test_few.py::Counted::test_counts_and_more"
    differences = {name: why for name, why in DIFFER["differences"].items() if name not in (started, more)}
    status, said = run(tmp_path, {"counts": {**DIFFER["counts"], more: "it counts"}, "differences": {**differences, alike: "none"}})
    assert status == 1, said
    assert "test_few.py: 8 tests, 7 pass as they are, 6 of them not under planned()" in said, said
    assert f"as expected: {here}\n    the function is another" in said
    assert f"NOT EXPECTED: {started}" in said
    assert f"NO DIFFERENCE, though one is expected: {alike}" in said
    assert f"NOT BY COUNTS ALONE: {more}\n    AssertionError: False is not true" in said
    assert "1 differences are not expected, 1 are no more, 1 are of more than counts" in said
    status, said = run(tmp_path, DIFFER)
    assert status == 0, said
    assert "1 pass in both runs, 6 differ, 0 of them unexpected; 0 pass only under planned()" in said
    status, said = run(tmp_path, {**DIFFER, "differences": differences | {started: "there too"}, "chance": {more: "as it falls"}})
    assert status == 0, said
    assert f"by chance: {more}: passed, and under planned() AssertionError: 1 != 2" in said
    assert "1 pass in both runs, 5 differ, 0 of them unexpected; 0 pass only under planned()" in said


def test_folders_without_tests_are_refused(tmp_path: pathlib.Path) -> None:
    status, said = run(tmp_path, {"differences": {}})
    assert status == 1 and "lacks test_few.py" in said, said
