"""Errors of others as a record may hold them."""

from gert.kernel.foundation.credentials import stranger_line


def words_of(error: BaseException, longest: int) -> str:
    """What an error says, as a record may hold it; nothing where it cannot say it."""
    try:
        said = str(error)
    except Exception:
        return ""
    return stranger_line(said, longest)


def named(error: BaseException, longest: int) -> str:
    """An error by its class and its words."""
    said = words_of(error, longest)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
