"""The version of gert and the commit it was built from."""

import os

import gert
from gert._version import __version__

_SHORT = 12


def commit() -> str | None:
    """The commit of this build, or of the checkout the package runs from."""
    try:
        from gert._build import COMMIT  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return _checkout_commit()
    return COMMIT or None


def version_line() -> str:
    """The line `gert --version` prints."""
    built_from = commit()
    return f"gert {__version__} ({built_from})" if built_from else f"gert {__version__}"


def _checkout_commit() -> str | None:
    # The package is `src/gert` of the checkout.
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(gert.__file__))))
    if not os.path.isfile(os.path.join(root, "src", "gert", "_version.py")):
        return None
    git = own = os.path.join(root, ".git")
    try:
        if os.path.isfile(git):  # a worktree: the file names its folder, which names that of the repository
            own = os.path.join(root, _read(git).removeprefix("gitdir: "))
            git = os.path.join(own, _read(own, "commondir"))
        head = _read(own, "HEAD")
        if not head.startswith("ref: "):
            return head[:_SHORT]
        ref = head.removeprefix("ref: ")
        try:
            return _read(git, ref)[:_SHORT]
        except FileNotFoundError:
            return _packed(git, ref)
    except OSError:
        return None  # not a checkout


def _packed(git: str, ref: str) -> str | None:
    for line in _read(git, "packed-refs").splitlines():
        if line.endswith(" " + ref):
            return line[:_SHORT]
    return None


def _read(*parts: str) -> str:
    with open(os.path.join(*parts), encoding="ascii", errors="replace") as file:
        return file.read().strip()
