"""The command line, asked from tests."""

from __future__ import annotations

import json
from typing import Any

from reshard._reshard import command_line


def ask(*arguments: str) -> Any:
    """The JSON that the command line answers; what it refuses is a dict with the sentence as `error`."""
    status, out, err = command_line.run(["reshard", *arguments, "--json"])
    if status == 0:
        return json.loads(out)
    return {"error": err.removeprefix("error: ").removesuffix("\n"), "status": status}
