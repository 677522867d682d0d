"""Without NumPy tensors are memoryviews; and computations in Rust release the interpreter's lock."""

import subprocess
import sys
import threading

import numpy as np

import reshard

BLOCKED = """
import sys
sys.modules['numpy'] = None
import reshard
view = reshard.Key(3).normal((2, 3))
assert isinstance(view, memoryview) and view.shape == (2, 3) and view.format == 'f', view
bits = reshard.Key(3).bits(dtype='u64', sharding=reshard.Sharding('tp=2', (5,), 'S(0)'), rank=1)
assert bits.tolist() == reshard.Key(3).bits((5,), 'u64').tolist()[3:]
assert reshard.Key(3).uniform((4,), 'bf16').nbytes == 8
loaded = reshard.load(sys.argv[1], 'tp=2', 'S(0)', 1)
assert loaded['w'].tolist() == [[4.0, 5.0], [6.0, 7.0]] and loaded['empty'].nbytes == 0
program = reshard.program('mesh tp=2\\nx: f32[4] S(0)\\ny: R = exp(x)')
assert program.report().traffic['forward'].steps == 1
print(view.tolist())
"""


def test_tensors_are_memoryviews_without_numpy(tmp_path):
    reshard.save(tmp_path / "m.safetensors", {"w": np.arange(8, dtype="f4").reshape(4, 2), "empty": np.zeros((0, 3), "f4")})
    done = subprocess.run([sys.executable, "-c", BLOCKED, tmp_path / "m.safetensors"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(reshard.Key(3).normal((2, 3)).tolist())


def test_another_thread_counts_while_rust_computes():
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = counted[0]
        reshard.Key(0).normal((1 << 22,), "f64")
        during = counted[0] - before
    finally:
        stop.set()
        thread.join()
    assert during > 1000, during
