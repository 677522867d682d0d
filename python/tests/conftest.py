"""The set-up of all tests: a fixed choice of examples, and no deadline for slow ones."""

import importlib.util
import os
import random
from typing import Any

import pytest
from hypothesis import settings

# Tests with a framework need it; scripts/check_torch.sh and scripts/check_jax.sh run them where it is
# installed.
FRAMEWORKS = {"with_torch": "torch", "with_jax": "jaxlib"}
collect_ignore = [folder for folder, package in FRAMEWORKS.items() if not importlib.util.find_spec(package)]

# The examples are the same in every run, so that a failure is caused by a change and not by another draw.
# `RESHARD_SEED` selects others: it is `random`, or a number that repeats a draw.
SEED = os.environ.get("RESHARD_SEED", "")
settings.register_profile("reshard", derandomize=True, database=None, deadline=None, print_blob=True, max_examples=60)
settings.register_profile("drawn", settings.get_profile("reshard"), derandomize=False)
settings.load_profile("drawn" if SEED else "reshard")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Passes the seed to Hypothesis as its option."""
    if SEED and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(random.SystemRandom().getrandbits(32)) if SEED == "random" else SEED


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Prints how to repeat the draw of a failed run."""
    if SEED and exitstatus != 0:
        terminalreporter.write_line(f"again: RESHARD_SEED={config.getoption('--hypothesis-seed')}")
