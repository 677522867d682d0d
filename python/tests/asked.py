"""The command line, called from tests."""

from __future__ import annotations

import json
from typing import Any

from reshard._reshard import command_line


def ask(*arguments: str) -> Any:
    """Returns the JSON output of the command line; for a failed call, a dict with the message as `error`."""
    status, out, err = command_line.run(["reshard", *arguments, "--json"])
    if status == 0:
        return json.loads(out)
    return {"error": err.removeprefix("error: ").removesuffix("\n"), "status": status}
