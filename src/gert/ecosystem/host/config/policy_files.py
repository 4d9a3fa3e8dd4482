"""The files that a folder of policies holds."""

import os
from collections.abc import Iterable, Iterator
from typing import Final

from gert.ecosystem.host.config.files import YAML_SUFFIXES, read_document
from gert.errors import DocumentError, UsageError
from gert.kernel.runbook.document import detect
from gert.kernel.runbook.documents.policy_test import FILE_SUFFIXES
from gert.kernel.runbook.reader import read


def policy_files(paths: Iterable[str]) -> Iterator[str]:
    """The files that paths name, and every policy in the folders that they name; an error for what is not one."""
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        found = [file for file in _below(path, set()) if not _is_test(file)]
        if not found:
            # An empty floor would let everything through without a word.
            raise UsageError(f"there are no policies in `{path}`")
        yield from found


def _below(folder: str, seen: set[str]) -> Iterator[str]:
    """Every file in a folder of policies, hidden ones and those behind links included, in a stable order.

    What cannot be read or is not understood may have been meant as a policy, so it is an error. A folder that was
    read before, which a link leads back to, adds nothing.
    """
    real = os.path.realpath(folder)
    if real in seen:
        return
    seen.add(real)
    try:
        names = sorted(os.listdir(folder))
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise DocumentError(f"the policies in `{folder}` cannot be read: {why}", hint=_FLOOR) from None
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isdir(path) and name != ".git":
            yield from _below(path, seen)
        elif name.lower().endswith(YAML_SUFFIXES):
            yield path
        elif not (name in _NO_POLICIES or name.lower().endswith(_TEXTS)):
            raise DocumentError(f"`{path}` is in a folder of policies and is not one", hint=_FLOOR)


_FLOOR: Final = "every file in a folder of policies is one, or a test of one: move or rename it, so that none is missed"
_TEXTS: Final = (".md", ".txt")
_NO_POLICIES: Final = frozenset({".git", ".gitignore", ".gitattributes", ".gitkeep", ".DS_Store"})
"""What version control and file managers leave in a folder."""


def _is_test(file: str) -> bool:
    """Whether a file is a test that lies beside its policy, by its name *and* by what it says.

    By one alone, a policy would be lost that is called wrongly, or whose first line was changed.
    """
    return file.endswith(FILE_SUFFIXES) and detect(read(read_document(file)).tree.root) == "policy-test"
