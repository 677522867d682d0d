"""Ctrl-C ends what searches, long before it has an answer."""

import subprocess
import sys

# A search that would take minutes of a processor is given ten seconds of one: where nobody stopped it, the system would.
SCRIPT = """
import resource, signal, reshard
resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
lines = ["mesh a=2,b=2,c=3,d=4"]
lines += [f"x{i}: f32[101,101] S(0),S(1),R,S({i % 2})" for i in range(40)]
lines += ["v0 = mm(x0, x1)"]
lines += [f"v{i} = mm(v{i - 1}, x{i})" for i in range(1, 40)]
lines += ["l = sum(v39, dims=[0,1])", "gradient l"]
graph = reshard.Graph("\\n".join(lines))
elaborator = reshard.Elaborator(most_states=1 << 40)

def stop(number, frame):
    raise KeyError("stopped by the handler")

signal.signal(signal.SIGALRM, stop)
for handler in (stop, signal.default_int_handler):
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        elaborator.elaborate(graph)
    except (KeyError, KeyboardInterrupt) as error:
        print(type(error).__name__)
# It is as it was.
print(reshard.Sharding("x=2", (4,), "S(0)").plan("R").cost_us > 0)
"""


def test_a_search_ends_when_a_signal_comes() -> None:
    made = subprocess.run([sys.executable, "-P", "-c", SCRIPT], capture_output=True, text=True)
    assert made.stdout.split() == ["KeyError", "KeyboardInterrupt", "True"], (made.returncode, made.stdout, made.stderr)
