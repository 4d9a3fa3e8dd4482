"""Reading documents and other files: regular files only, up to a size limit, with errors that say what to do."""

import os
import stat
from collections.abc import Iterator
from typing import Final

from gert.errors import DocumentError, UsageError
from gert.kernel.foundation.names import did_you_mean
from gert.kernel.foundation.text import os_reason
from gert.kernel.runbook.reader import read
from gert.kernel.runbook.tree import Map
from gert.kernel.runbook.tree_builder import DEFAULT_LIMITS

YAML_SUFFIXES: Final = (".yaml", ".yml")
OUR_FOLDER: Final = ".gert"
SCENARIOS: Final = "scenarios"
DOCUMENT_FOLDERS: Final = frozenset({"runbooks", "tools", "policies"})
"""The folders of a project whose YAML files are gert documents."""
MAX_LINKS: Final = 40
SKIPPED_FOLDERS: Final = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})


def read_document(path: str) -> bytes:
    """Read a document; of one that is too large, only enough to report it."""
    try:
        # A pipe or device would block or never end.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise DocumentError(f"`{path}` is not a regular file")
        with open(path, "rb") as file:
            return file.read(DEFAULT_LIMITS.size + 1)
    except FileNotFoundError:
        raise UsageError(f"there is no file `{path}`", hint=suggested_file(path)) from None
    except OSError as problem:
        raise DocumentError(f"`{path}` cannot be read: {os_reason(problem)}") from None
    except ValueError:
        raise UsageError(f"`{path}` is not a path") from None


def suggested_file(path: str) -> str | None:
    """A document that may be meant: one without its ending, of the runbooks here, or with a similar name beside it."""
    named = [path + suffix for suffix in YAML_SUFFIXES]
    for each in (*named, *(os.path.join("runbooks", below) for below in (path, *named))):
        if not os.path.isabs(path) and is_file(each):
            return f"did you mean `{each}`?"
    folder, name = os.path.split(path)
    try:
        beside = [entry for entry in os.listdir(folder or os.curdir) if entry.endswith(YAML_SUFFIXES)]
    except OSError:
        return None
    meant = did_you_mean(name, sorted(beside))
    return f"did you mean `{os.path.join(folder, meant)}`?" if meant is not None else None


def read_map(path: str, what: str) -> Map:
    """Read a YAML or JSON file that holds a map of `what`."""
    reading = read(read_document(path))
    if reading.findings:
        finding = reading.findings[0]
        raise DocumentError(f"{path}:{finding.line}:{finding.column}: {finding.message}", hint=finding.hint)
    root = reading.tree.root
    if not isinstance(root, Map):
        # The content is not repeated: the file may hold a token.
        raise DocumentError(f"{path}: expected a map of {what}")
    return root


def is_file(path: str) -> bool:
    """Whether a regular file exists."""
    try:
        return os.path.isfile(path)
    except ValueError:
        return False


def is_there(path: str) -> bool:
    """Whether anything has this name, including a broken link or an unreadable file.

    A file that sets the floor must not be skipped because it is broken: the code that reads it reports the error.
    """
    try:
        os.lstat(path)
    except FileNotFoundError:
        folder = os.path.dirname(path)
        return os.path.islink(folder) and not os.path.exists(folder)
    except (NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


def hops(path: str) -> Iterator[str]:
    """Resolve a path step by step: the path as given, every link on the way, and the real path."""
    yield os.path.abspath(path)
    for _ in range(MAX_LINKS):
        link, rest = _first_link(path)
        if link is None:
            yield os.path.realpath(path)
            return
        yield link
        path = os.path.join(os.path.dirname(link), os.readlink(link), *rest)
    raise DocumentError(f"`{path}` cannot be read: more than {MAX_LINKS} symbolic links")


def _first_link(path: str) -> tuple[str | None, list[str]]:
    """The first link in a path and the parts after it; `..` applies to the target of the links before it."""
    drive, *parts = os.path.join(os.getcwd(), path).replace(os.altsep or os.sep, os.sep).split(os.sep)
    at = drive + os.sep
    for index, part in enumerate(parts):
        if part in ("", os.curdir):
            continue
        at = os.path.dirname(at) if part == os.pardir else os.path.join(at, part)
        if os.path.islink(at):
            return at, parts[index + 1 :]
    return None, []


def is_searched(name: str) -> bool:
    """Whether a search descends into a folder with this name."""
    return name == OUR_FOLDER or not (name.startswith(".") or name in SKIPPED_FOLDERS)


def is_found_below(root: str, path: str) -> bool:
    """Whether a real path is a YAML file or a folder that gert finds by itself below a real folder.

    An agent is shown no other file there (`.env`, `.git/config`, keys): findings would quote it.
    """
    *folders, name = os.path.relpath(path, root).split(os.sep)
    is_named = name == os.curdir or (is_searched(name) if os.path.isdir(path) else name.endswith(YAML_SUFFIXES))
    return is_named and all(map(is_searched, folders))


UNREAD: Final = ("scenario.yml", "test.yml")


def require_read(folder: str) -> None:
    """Refuse the folder of a scenario with a file that looks like one of gert's, and that no command reads."""
    for name in UNREAD:
        other = os.path.join(folder, name)
        if os.path.lexists(other) and runbook_of(folder) is not None:
            raise DocumentError(f"`{other}` is not read", hint=f"rename it to `{os.path.splitext(name)[0]}.yaml`")


def yaml_files(folder: str) -> Iterator[str]:
    """Find every YAML file below a folder in a stable order; skip hidden folders and dependencies."""
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if is_searched(name))
        for name in sorted(files):
            if name.endswith(YAML_SUFFIXES):
                yield os.path.normpath(os.path.join(where, name))


def runbook_of(folder: str) -> str | None:
    """The runbook of a scenario folder: `<dir>/scenarios/<stem>/<scenario>` belongs to `<dir>/<stem>.yaml`."""
    path = os.path.abspath(folder)
    stem = os.path.dirname(path)
    scenarios = os.path.dirname(stem)
    if os.path.basename(scenarios) != SCENARIOS:
        return None
    beside = os.path.join(os.path.dirname(scenarios), os.path.basename(stem))
    found = next((beside + suffix for suffix in YAML_SUFFIXES if is_file(beside + suffix)), None)
    if found is None:
        return None
    relative = os.path.relpath(found)
    return found if os.path.isabs(folder) or relative.startswith("..") else relative


def write_new(path: str, data: bytes) -> None:
    """Write a new file that only its owner can read."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except FileExistsError:
        raise UsageError(f"`{path}` already exists", hint="choose another file") from None
    except (OSError, ValueError) as problem:
        why = (getattr(problem, "strerror", None) or "it is not a path").lower()
        raise UsageError(f"`{path}` cannot be written: {why}") from None
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
