"""The command line: `python -m reshard`."""

import sys

from reshard._reshard import command_line


def main() -> int:
    """Runs the command line on the arguments of this process, and returns its exit status."""
    return command_line.main(["reshard", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
