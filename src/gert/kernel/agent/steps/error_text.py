"""The text of foreign exceptions, safe to record."""

from gert.kernel.foundation.credentials import foreign_line


def error_text(error: BaseException, longest: int) -> str:
    """Return the message of an exception, cleaned and cut; empty if its `__str__` fails."""
    try:
        text = str(error)
    except Exception:
        return ""
    return foreign_line(text, longest)


def error_summary(error: BaseException, longest: int) -> str:
    """Return the class and the message of an exception."""
    text = error_text(error, longest)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
