"""What the Python side of the package refuses, as the library does: one sentence, not too long, and its kind."""

from reshard._reshard import ReshardError

# What a sentence shows of a text that somebody gave.
_MOST = 2_000


def refused(kind: str, message: str) -> ReshardError:
    """A `ReshardError` of this kind; of a sentence that is too long, its beginning and its end."""
    if len(message) > _MOST:
        message = f"{message[: _MOST // 2]} .. {message[-_MOST // 2 :]}"
    error = ReshardError(message)
    error.kind = kind
    return error


def said(error: BaseException) -> str:
    """What somebody else's error says, in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".removesuffix(": ")


def counted(number: int, noun: str) -> str:
    """A number of things with what they are called: of one, in the singular."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
