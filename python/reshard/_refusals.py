"""Errors of the package's Python side, in the library's form: one line of limited length, and a kind."""

from reshard._reshard import ReshardError

# The maximum length of an error message, in characters, because it may quote text from the caller.
_MOST = 2_000


def refused(kind: str, message: str) -> ReshardError:
    """Returns a `ReshardError` of this kind. The middle of a message that is too long is left out."""
    if len(message) > _MOST:
        message = f"{message[: _MOST // 2]} .. {message[-_MOST // 2 :]}"
    error = ReshardError(message)
    error.kind = kind
    return error


def said(error: BaseException) -> str:
    """Returns another library's error as one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".removesuffix(": ")


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun, which is singular for one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
