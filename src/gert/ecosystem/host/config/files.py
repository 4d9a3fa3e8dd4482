"""Reading the files people name: bounded, regular files only, with errors that say what to do."""

import os
import stat
from collections.abc import Iterator
from typing import Final

from gert.errors import DocumentError, UsageError
from gert.kernel.foundation.names import did_you_mean
from gert.kernel.runbook.reader import DEFAULT_LIMITS, read
from gert.kernel.runbook.tree import Map

YAML_SUFFIXES: Final = (".yaml", ".yml")
OUR_FOLDER: Final = ".gert"
SCENARIOS: Final = "scenarios"
MAX_LINKS: Final = 40
SKIPPED_FOLDERS: Final = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})


def read_document(path: str) -> bytes:
    """The bytes of a document; of one that is too large only enough to say so."""
    try:
        # A pipe or device would block or never end.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise DocumentError(f"`{path}` is not a regular file")
        with open(path, "rb") as file:
            return file.read(DEFAULT_LIMITS.size + 1)
    except FileNotFoundError:
        raise UsageError(f"there is no file `{path}`", hint=_meant(path)) from None
    except OSError as problem:
        raise DocumentError(f"`{path}` cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    except ValueError:
        raise UsageError(f"`{path}` is not a path") from None


def _meant(path: str) -> str | None:
    """The document beside a file that is not there, which may be the one that was meant."""
    folder, name = os.path.split(path)
    try:
        beside = [entry for entry in os.listdir(folder or os.curdir) if entry.endswith(YAML_SUFFIXES)]
    except OSError:
        return None
    meant = did_you_mean(name, sorted(beside))
    return f"did you mean `{os.path.join(folder, meant)}`?" if meant is not None else None


def read_bounded(path: str, most: int) -> bytes:
    """The bytes of a regular file that is not too large."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise DocumentError(f"`{path}` is not a regular file")
        with open(path, "rb") as file:
            data = file.read(most + 1)
    except FileNotFoundError:
        raise DocumentError(f"there is no file `{path}`") from None
    except OSError as problem:
        raise DocumentError(f"`{path}` cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    if len(data) > most:
        raise DocumentError(f"`{path}` is larger than {most // (1024 * 1024)} MiB")
    return data


def read_map(path: str, what: str) -> Map:
    """A YAML or JSON file that holds a map of something by name; of anything else nothing is repeated."""
    reading = read(read_document(path))
    if reading.findings:
        finding = reading.findings[0]
        raise DocumentError(f"{path}:{finding.line}:{finding.column}: {finding.message}", hint=finding.hint)
    root = reading.tree.root
    if not isinstance(root, Map):
        # What was found is not said: somebody may have named the file of a token.
        raise DocumentError(f"{path}: expected a map of {what}")
    return root


def is_file(path: str) -> bool:
    """Whether a regular file is there."""
    try:
        return os.path.isfile(path)
    except ValueError:
        return False


def is_there(path: str) -> bool:
    """Whether anything has this name, be it a link that leads nowhere or what cannot be read.

    A file that sets the floor must not be passed over because it is broken: whoever reads it says so.
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
    """Where a path leads: the path as it is named, every link on the way, and the real path."""
    yield os.path.abspath(path)
    for _ in range(MAX_LINKS):
        link, rest = _first_link(path)
        if link is None:
            yield os.path.realpath(path)
            return
        yield link
        path = os.path.join(os.path.dirname(link), os.readlink(link), *rest)
    raise DocumentError(f"`{path}` cannot be read: more than {MAX_LINKS} links lead there")


def _first_link(path: str) -> tuple[str | None, list[str]]:
    """The first link in a path and what follows it; `..` is above where the links before it lead."""
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
    """Whether a search goes into a folder of this name."""
    return name == OUR_FOLDER or not (name.startswith(".") or name in SKIPPED_FOLDERS)


def yaml_files(folder: str) -> Iterator[str]:
    """Every YAML file below a folder in a stable order; hidden folders and dependencies are passed over."""
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if is_searched(name))
        for name in sorted(files):
            if name.endswith(YAML_SUFFIXES):
                yield os.path.normpath(os.path.join(where, name))


def runbook_of(folder: str) -> str | None:
    """The runbook a scenario lies beside: `<dir>/scenarios/<stem>/<scenario>` is for `<dir>/<stem>.yaml`."""
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
