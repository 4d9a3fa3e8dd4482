"""Finding the policy files in folders."""

import os
from collections.abc import Iterable, Iterator
from typing import Final

from gert.ecosystem.host.config.files import YAML_SUFFIXES, read_document
from gert.errors import DocumentError, UsageError
from gert.kernel.foundation.text import os_reason
from gert.kernel.runbook.document import detect
from gert.kernel.runbook.documents.policy_test import FILE_SUFFIXES
from gert.kernel.runbook.reader import read


def policy_files(paths: Iterable[str]) -> Iterator[str]:
    """The files among paths, and every policy in the folders among them; any other file there is an error."""
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        found = [file for file in _below(path, set()) if not _is_test(file)]
        if not found:
            # An empty floor would silently allow everything.
            raise UsageError(f"there are no policies in `{path}`")
        yield from found


def _below(folder: str, seen: set[str]) -> Iterator[str]:
    """Every file in a folder of policies, including hidden and linked ones, in a stable order.

    A file that cannot be read or is not a policy may have been meant as one, so it is an error. A folder that a link
    leads back to is read once.
    """
    real = os.path.realpath(folder)
    if real in seen:
        return
    seen.add(real)
    try:
        names = sorted(os.listdir(folder))
    except OSError as problem:
        raise DocumentError(f"cannot read the policies in `{folder}`: {os_reason(problem)}", hint=_FLOOR) from None
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isdir(path) and name != ".git":
            yield from _below(path, seen)
        elif name.lower().endswith(YAML_SUFFIXES):
            yield path
        elif not (name in _NO_POLICIES or name.lower().endswith(_TEXTS)):
            raise DocumentError(f"`{path}` is in a policy folder but is not a policy", hint=_FLOOR)


_FLOOR: Final = "a policy folder holds only policies and policy tests, so that none is missed: move or rename the file"
_TEXTS: Final = (".md", ".txt")
_NO_POLICIES: Final = frozenset({".git", ".gitignore", ".gitattributes", ".gitkeep", ".DS_Store"})
"""Files of version control and file managers."""


def _is_test(file: str) -> bool:
    """Whether a file is a policy test, by its name *and* its content.

    With only one of the two, a misnamed policy or one whose first line was changed would be skipped.
    """
    return file.endswith(FILE_SUFFIXES) and detect(read(read_document(file)).tree.root) == "policy-test"
