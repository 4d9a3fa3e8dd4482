"""The sandbox of a program: bubblewrap without a network, without files of the host, and with a system call filter."""

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from gert.ecosystem.process.capture import Capture
from gert.ecosystem.process.run_program import Ended, run_program
from gert.ecosystem.runners.seccomp import sandbox_filter
from gert.errors import Refused
from gert.kernel.foundation.canonical import digest
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.text import os_reason
from gert.kernel.runbook.documents.skill import ProgramBlock
from gert.kernel.runbook.program import SkillLookup
from gert.kernel.runner.execution_record import Isolation

SOCKET: Final = "/run/gert/gateway.sock"
"""Where a program finds the gateway."""

FOLDER: Final = "/skill"
MAX_FILE: Final = 16 * 1024 * 1024
MAX_OUTPUT: Final = 1024 * 1024
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_SYSTEM: Final = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SETTINGS: Final = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")
_NOBODY: Final = "65534"
_TEMPORARY: Final = str(256 * 1024 * 1024)
_PROBE_TIMEOUT: Final = 10.0

ENFORCED: Final = (
    "no network interface",
    "no socket but Unix sockets (seccomp)",
    "no file of the host but the system's programs, read-only",
    "no process of the host visible, no setting of the kernel",
    "no capability, no new user namespace",
    "clean environment and descriptors",
)


class Machine(msgspec.Struct, frozen=True):
    """What this machine can enforce.

    bubblewrap: its path, where it is installed
    flaw: why no sandbox can be made here
    """

    bubblewrap: str | None
    flaw: str | None = None


async def probe() -> Machine:
    """Find out by trying: bubblewrap may be missing, and user namespaces may be closed."""
    found = shutil.which("bwrap")
    if found is None:
        return Machine(None, "bubblewrap (`bwrap`) is not installed")
    code = sandbox_filter()
    if code is None:
        return Machine(found, f"the system calls of `{os.uname().machine}` are not known, so they cannot be filtered")
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT):
            with _inherited(code) as number:
                ended = await _start([*_bubblewrap(found, number), "--", "true"], {}, Redactor(), None, (number,))
    except (OSError, ValueError, TimeoutError):
        return Machine(found, "bubblewrap cannot be started")
    if ended.status != 0:
        said = ended.stderr.kept.strip().splitlines()
        return Machine(found, f"bubblewrap cannot make a sandbox: {said[-1] if said else 'it says nothing'}")
    return Machine(found)


def isolation_of(machine: Machine, *, unsandboxed: bool) -> Isolation:
    """Return how a program is separated here; Refused where it cannot be and the plan does not allow that."""
    if machine.flaw is None:
        return Isolation(level="sandbox", enforced=ENFORCED)
    if not unsandboxed:
        raise Refused(
            "isolation/sandbox",
            f"the program needs a sandbox, and this machine has none: {machine.flaw}",
            hint="`gert runner doctor` says what is missing; a plan may carry an explicit unsandboxed grant",
        )
    return Isolation(level="none", enforced=("clean environment and descriptors",), not_enforced=ENFORCED[:-1])


def read_files(lookup: SkillLookup) -> dict[str, bytes]:
    """Read the files of a skill that is a program; Refused where one is not what the skill says."""
    found: dict[str, bytes] = {}
    program: ProgramBlock | None = lookup.document.model.program
    folder = os.path.dirname(os.path.abspath(lookup.file))
    for name, expected in program.files.items() if program is not None else ():
        path = os.path.join(folder, name)
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(file, "rb") as opened:
                data = opened.read(MAX_FILE + 1)
        except OSError as problem:
            why = os_reason(problem)
            raise Refused("skill/file", f"the file `{name}` of the skill cannot be read: {why}") from None
        if digest(data) != expected:
            raise Refused(
                "skill/file",
                f"the file `{name}` is not the one that the skill names",
                hint=f"if it is meant to be, write its digest into {lookup.file}: {digest(data)}",
            )
        found[name] = data
    return found


async def run_sandboxed(
    machine: Machine,
    isolation: Isolation,
    argv: Sequence[str],
    files: Mapping[str, bytes],
    inputs: bytes,
    socket: str | None,
    redactor: Redactor,
    printing: Callable[[Capture, Capture], object],
) -> Ended:
    """Run a program on copies of its files; it reads its inputs on standard input.

    socket: the gateway, where the skill has a network
    """
    with tempfile.TemporaryDirectory(prefix="gert-skill-") as folder:
        for name, data in files.items():
            file = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o500)
            with open(file, "wb") as opened:
                opened.write(data)
        try:
            if isolation.level != "sandbox" or machine.bubblewrap is None:
                environ = {"PATH": _PATH, "LANG": "C.UTF-8", "HOME": folder, "GERT_GATEWAY": socket or ""}
                return await run_program(
                    _found(argv, folder),
                    environ,
                    folder=folder,
                    redactor=redactor,
                    limit=MAX_OUTPUT,
                    mark=folder,
                    stdin=inputs,
                    printing=printing,
                )
            with _inherited(sandbox_filter() or b"") as number:
                words = [*_bubblewrap(machine.bubblewrap, number, folder, socket), "--", *argv]
                return await _start(words, {"LANG": "C.UTF-8"}, redactor, inputs, (number,), printing)
        except (OSError, ValueError) as problem:
            why = (getattr(problem, "strerror", None) or str(problem)).lower()
            raise Refused("program/start", f"the program cannot be started: {why}") from None


def _bubblewrap(path: str, seccomp: int, folder: str | None = None, socket: str | None = None) -> list[str]:
    """Return how bubblewrap is called, up to the program itself."""
    words = [
        path, "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts",
        "--unshare-cgroup-try", "--disable-userns", "--uid", _NOBODY, "--gid", _NOBODY, "--hostname", "gert",
        "--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv",
        "--setenv", "PATH", _PATH, "--setenv", "LANG", "C.UTF-8", "--setenv", "HOME", "/tmp",  # noqa: S108 - inside
        *_system(),
        # A runner of root is root in the files of the kernel's settings, though it has no capability.
        "--proc", "/proc", "--remount-ro", "/proc",
        "--dev", "/dev", "--size", _TEMPORARY, "--tmpfs", "/tmp", "--tmpfs", "/run",  # noqa: S108
    ]  # fmt: skip
    if folder is not None:
        words += ["--ro-bind", folder, FOLDER, "--chdir", FOLDER]
    if socket is not None:
        words += ["--ro-bind", socket, SOCKET, "--setenv", "GERT_GATEWAY", SOCKET]
    return [*words, "--seccomp", str(seccomp)]


def _system() -> Iterator[str]:
    """Yield the folders of the system's programs and libraries, read-only, as they are on this machine."""
    for name in _SYSTEM:
        path = f"/{name}"
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)
    for name in _SETTINGS:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")


async def _start(
    words: Sequence[str],
    environ: Mapping[str, str],
    redactor: Redactor,
    stdin: bytes | None,
    inherited: tuple[int, ...],
    printing: Callable[[Capture, Capture], object] | None = None,
) -> Ended:
    return await run_program(
        words,
        environ,
        folder="/",
        redactor=redactor,
        limit=MAX_OUTPUT,
        mark=f"sandbox-{secrets.token_hex(8)}",
        stdin=stdin,
        inherited=inherited,
        printing=printing,
    )


def _found(argv: Sequence[str], folder: str) -> list[str]:
    """Return a command with the file of its program, for a start without a sandbox."""
    words = [word.replace(FOLDER, folder, 1) if word.startswith(f"{FOLDER}/") else word for word in argv]
    found = shutil.which(words[0], path=_PATH)
    if found is None:
        raise Refused("program/start", f"the program `{argv[0]}` was not found")
    return [found, *words[1:]]


@contextmanager
def _inherited(data: bytes) -> Iterator[int]:
    """A descriptor from which a child reads these bytes; a file in memory, so that nothing waits for a reader."""
    number = os.memfd_create("gert-seccomp", os.MFD_CLOEXEC)
    try:
        os.write(number, data)
        os.lseek(number, 0, os.SEEK_SET)
        yield number
    finally:
        os.close(number)
