"""Ctrl-C ends a search long before it has an answer."""

import subprocess
import sys

# A search that would take minutes is given ten seconds of processor time: if it is not interrupted, the
# system kills it.
SCRIPT = """
import resource, signal, reshard
resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
sharding = reshard.Sharding(
    "a=2,b=2,c=3,d=2,e=2,f=3,g=2,h=3,i=2,j=3,k=4,l=4", (82945, 4, 2), "P,R,S(2),SS(0,4),_S(0,2),S(1),P,SS(0,4),S(0),P,S(0),SS(2,2)"
)
planner = reshard.Planner(topology="h100", budget=1 << 60)
propagator = reshard.Propagator(planner=planner, budget=1 << 60)

def stop(number, frame):
    raise KeyError("stopped by the handler")

signal.signal(signal.SIGALRM, stop)
for handler in (stop, signal.default_int_handler):
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        propagator.cheapest("transpose(dim0=0,dim1=1)", [sharding], 20)
    except (KeyError, KeyboardInterrupt) as error:
        print(type(error).__name__)
# It is as it was.
print(reshard.plan(reshard.Sharding("x=2", (4,), "S(0)"), "R").cost_us > 0)
"""


def test_a_search_ends_when_a_signal_comes() -> None:
    made = subprocess.run([sys.executable, "-P", "-c", SCRIPT], capture_output=True, text=True)
    assert made.stdout.split() == ["KeyError", "KeyboardInterrupt", "True"], (made.returncode, made.stdout, made.stderr)
