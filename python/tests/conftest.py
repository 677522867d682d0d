"""What all tests share: which examples are drawn, and that one which takes longer than a second is no failure."""

import importlib.util
import os
import random
from typing import Any

import pytest
from hypothesis import settings

# Tests of what is used within a framework need it: scripts/check_torch.sh and scripts/check_jax.sh run them where it is.
FRAMEWORKS = {"with_torch": "torch", "with_jax": "jaxlib"}
collect_ignore = [folder for folder, package in FRAMEWORKS.items() if not importlib.util.find_spec(package)]

# The same examples every time, so that a test which passed fails for what was changed and not for what was drawn. Others are asked for:
# `RESHARD_SEED` is `random`, or a number that draws the same again.
SEED = os.environ.get("RESHARD_SEED", "")
settings.register_profile("reshard", derandomize=True, database=None, deadline=None, print_blob=True, max_examples=60)
settings.register_profile("drawn", settings.get_profile("reshard"), derandomize=False)
settings.load_profile("drawn" if SEED else "reshard")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Gives the seed to Hypothesis, whose option it is."""
    if SEED and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(random.SystemRandom().getrandbits(32)) if SEED == "random" else SEED


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """How the same is drawn again, where something failed."""
    if SEED and exitstatus != 0:
        terminalreporter.write_line(f"again: RESHARD_SEED={config.getoption('--hypothesis-seed')}")
