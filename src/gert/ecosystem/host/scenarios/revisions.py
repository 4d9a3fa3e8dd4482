"""The documents of a git revision, extracted to a temporary folder.

gert only reads from git, never through a shell, and with limits on the number and size of files.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from gert.ecosystem.host.config.files import YAML_SUFFIXES
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.scenarios.folders import SCENARIO_FILE, TEST_FILE
from gert.ecosystem.process.helper import Output, read_helper, run_helper
from gert.errors import UsageError
from gert.kernel.foundation.text import os_reason

MOST_FILES: Final = 10_000
MOST_BYTES: Final = 64 * 1024 * 1024
LONGEST_LISTING: Final = 64 * 1024 * 1024
PATIENCE: Final = 60.0
"""Seconds git may take for one answer."""

_REGULAR: Final = ("100644", "100755")
_LINK: Final = "120000"
_LONGEST_LINK: Final = 4096
# A git hook sets these variables for its own repository; they must not redirect git here.
_WITHHELD: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_NAMESPACE", "GIT_COMMON_DIR")
_QUIETLY: Final = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_PAGER": "cat",
}


class Revision(msgspec.Struct, frozen=True):
    """A revision on disk: its runbook, its working directory, and the commit."""

    runbook: str
    working: str
    commit: str


class _Blob(msgspec.Struct, frozen=True):
    """A file of a revision, or a link."""

    path: str
    name: str
    size: int
    is_link: bool = False


@contextmanager
def extract_revision(file: str, revision: str, environ: Mapping[str, str]) -> Iterator[Revision]:
    """Extract every document of the project of a runbook; the folder is deleted on exit."""
    folder = os.path.dirname(os.path.realpath(file))
    if not os.path.isdir(folder):
        raise UsageError(f"there is no file `{file}`")
    git = _Git(folder, environ)
    top = os.path.realpath(git.top())
    commit = git.commit(revision)
    base = _base(folder, top)
    with tempfile.TemporaryDirectory(prefix="gert-diff-") as temporary:
        target = os.path.realpath(temporary)
        _write(_Git(base, environ), commit, target)
        runbook = os.path.join(target, os.path.relpath(os.path.realpath(file), base))
        if not os.path.isfile(runbook):
            raise UsageError(f"there is no `{file}` at `{revision}`", hint="name a revision that contains it")
        working = os.path.normpath(os.path.join(target, os.path.relpath(_working(base), base)))
        _require_apart(runbook, target)
        yield Revision(runbook, working, commit)


def _base(folder: str, top: str) -> str:
    """The folder to extract: the project, or else the common parent of the runbook and the working directory."""
    root = Workspace().project_root(folder)
    if root is not None:
        return root if _is_inside(root, top) else top
    here = os.path.realpath(os.getcwd())
    return os.path.commonpath([folder, here]) if _is_inside(here, top) else folder


def _working(base: str) -> str:
    here = os.path.realpath(os.getcwd())
    return here if _is_inside(here, base) else base


def _is_inside(path: str, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == folder


def _require_apart(runbook: str, target: str) -> None:
    """Refuse a project file above the temporary folder: its policies would apply to the revision."""
    root = Workspace().project_root(os.path.dirname(runbook))
    if root is not None and not _is_inside(root, target):
        raise UsageError(f"the temporary folder is inside the project `{root}`", hint="set TMPDIR to another folder")


def _write(git: "_Git", commit: str, target: str) -> None:
    blobs: list[_Blob] = []
    total = 0
    for blob in git.documents(commit):
        blobs.append(blob)
        total += blob.size
        if len(blobs) > MOST_FILES or total > MOST_BYTES:
            raise UsageError(
                f"the revision has more than {MOST_FILES} documents or {MOST_BYTES // (1024 * 1024)} MiB of them",
                hint="add a `gert-project.yaml` to the folder of the runbook, so that only that folder is extracted",
            )
    links: dict[str, bytes] = {}
    try:
        for blob, data in zip(blobs, git.contents(blobs), strict=True):
            path = os.path.join(target, *blob.path.split("/"))
            if blob.is_link:
                links[path] = data
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "xb") as file:
                file.write(data)
        _link(links, target)
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        raise UsageError(f"cannot extract the revision from git: {why.lower()}") from None


def _link(links: Mapping[str, bytes], target: str) -> None:
    """Create links that stay inside the target; after all files, so that no file is written through a link."""
    made: list[str] = []
    for path, goal in links.items():
        with suppress(OSError, ValueError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(os.fsdecode(goal), path)
            made.append(path)
    # Links may lead through other links, so they are checked after all exist.
    for path in [path for path in made if not _stays(path, target)]:
        os.unlink(path)


def _stays(link: str, target: str) -> bool:
    """Whether a link resolves inside the target; its destination may be missing."""
    try:
        os.stat(link)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return _is_inside(os.path.realpath(link), target)


class _Git:
    """Reads from git in one folder."""

    def __init__(self, folder: str, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = {name: value for name, value in environ.items() if name not in _WITHHELD} | _QUIETLY

    def top(self) -> str:
        """The folder of the repository."""
        done = self._run("rev-parse", "--show-toplevel")
        if done.code:
            why = done.stderr.decode(errors="replace").strip().splitlines()
            raise UsageError(
                f"`{self._folder}` is not in a readable git repository",
                hint=why[0].removeprefix("fatal: ") if why else None,
            )
        return os.fsdecode(done.stdout.rstrip(b"\n"))

    def commit(self, revision: str) -> str:
        """Resolve a revision to a commit."""
        # git would read a leading dash as an option.
        if not revision.strip() or revision.startswith(("-", "^")) or not revision.isprintable():
            raise UsageError(f"`{revision}` is not a revision", hint="name a commit, branch or tag: `main`, `HEAD~1`")
        done = self._run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if done.code:
            raise UsageError(
                f"there is no revision `{revision}`", hint="name a commit, branch or tag; a shallow clone has few"
            )
        return done.stdout.decode().strip()

    def documents(self, commit: str) -> Iterator[_Blob]:
        """The YAML files and links below the folder, without scenarios, which are read from the working tree."""
        suffixes = tuple(suffix.encode() for suffix in YAML_SUFFIXES)
        for line in self._listing(commit).split(b"\0"):
            described, tab, path = line.partition(b"\t")
            shown = os.fsdecode(path)
            if not tab or not _is_plain(shown) or os.path.basename(shown) in (SCENARIO_FILE, TEST_FILE):
                continue
            mode, _, name, size = described.decode("ascii").split()
            if mode in _REGULAR and path.endswith(suffixes):
                yield _Blob(shown, name, int(size))
            elif mode == _LINK and int(size) <= _LONGEST_LINK:
                yield _Blob(shown, name, int(size), is_link=True)

    def contents(self, blobs: list[_Blob]) -> Iterator[bytes]:
        """The contents of blobs, in order."""
        done = self._run("cat-file", "--batch", stdin="".join(f"{blob.name}\n" for blob in blobs).encode())
        rest = memoryview(done.stdout)
        for blob in blobs:
            head = f"{blob.name} blob {blob.size}\n".encode()
            if bytes(rest[: len(head)]) != head:
                raise ValueError(f"git returned no `{blob.path}`: {_last_line(done.stderr) or 'it does not exist'}")
            rest = rest[len(head) :]
            yield bytes(rest[: blob.size])
            rest = rest[blob.size + 1 :]

    def _listing(self, commit: str) -> bytes:
        """List every file of a commit; the listing is bounded, because a commit may hold any number of files."""
        command = [*self._git, "ls-tree", "-r", "-l", "-z", commit]
        with self._errors():
            done = read_helper(command, self._environ, limit=LONGEST_LISTING + 1, timeout=PATIENCE)
        if len(done.stdout) > LONGEST_LISTING:
            raise UsageError("the repository has too many files to list")
        if done.code:
            raise UsageError(f"git cannot list the files of `{commit}`")
        return done.stdout

    def _run(self, *arguments: str, stdin: bytes = b"") -> Output:
        with self._errors():
            return run_helper([*self._git, *arguments], self._environ, stdin=stdin, timeout=PATIENCE)

    @property
    def _git(self) -> list[str]:
        return ["git", "-C", self._folder]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise UsageError("git is not installed", hint="install git, or omit --against") from None
        except TimeoutError:
            raise UsageError(f"git took longer than {PATIENCE:.0f} seconds") from None
        except OSError as problem:
            raise UsageError(f"git cannot be run: {os_reason(problem)}") from None


def _is_plain(path: str) -> bool:
    """Whether a path only descends; a crafted git tree may hold any name."""
    return not any(each in ("", ".", "..", ".git") for each in path.split("/")) and "\\" not in path


def _last_line(said: bytes) -> str | None:
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("fatal: ") if lines else None
