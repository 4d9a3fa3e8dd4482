"""The stdio transport: an action is a process, and its outputs are extracted from what it prints.

Secrets are masked as soon as output is read (DECISIONS 36).
"""

import asyncio
import errno
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from gert.ecosystem.process.capture import Capture
from gert.ecosystem.process.command import Command
from gert.ecosystem.process.find_program import shown
from gert.ecosystem.process.own_process import prepare_for_tools
from gert.ecosystem.process.process import Process
from gert.ecosystem.tools.command import CommandContext, command_for
from gert.ecosystem.tools.outputs import (
    ExitedProcess,
    answer_of,
    interrupted,
    reads_json,
    redacted_failure,
    redactor_for,
)
from gert.kernel.engine.requests import CallPreview, CallTool, ToolAnswer
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.governance.approval import ApprovalRequest
from gert.kernel.runbook.documents.tool import ActionBlock, Tool

OutputListener = Callable[[str, str, str], None]
"""Called with path, stream and text: whole lines, or parts of long ones, with control characters."""

DEFAULT_LIMIT: Final = 10 * 1024 * 1024

_LARGE: Final = 512 * 1024
"""More output than this is searched in a thread, so that other lanes are not blocked."""

_MISSING_FILE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES})


class ProgramLocation(NamedTuple):
    """The program file and the folder of a command, with links resolved."""

    program: str
    folder: str


class Stdio:
    """Calls actions as processes.

    redactor: masks every secret of the environment and of inputs
    limit: bytes kept of each stream; the rest is read and dropped
    stop_grace: seconds between SIGTERM and SIGKILL
    quiet: seconds without output after which a process that has exited is done, even if its output is held open
    """

    def __init__(
        self,
        context: CommandContext,
        redactor: Redactor,
        on_output: OutputListener | None = None,
        *,
        limit: int = DEFAULT_LIMIT,
        stop_grace: float = 2.0,
        quiet: float = 0.25,
    ) -> None:
        prepare_for_tools()
        self._context = context
        self._redactor = redactor
        self._on_output = on_output
        self._limit = limit
        self._stop_grace = stop_grace
        self._quiet = quiet
        self._live: set[Process] = set()

    async def call(self, tool: Tool, action_name: str, action: ActionBlock, ask: CallTool | CallPreview) -> ToolAnswer:
        """Execute an action; when cancelled, every process it started has ended before this returns."""
        started = time.monotonic()
        answer = await self._answer(tool, action, ask)
        return replace(answer, duration=round(time.monotonic() - started, 3))

    def kill_all(self) -> None:
        """Kill every running process; their calls then report that they were killed."""
        for process in self._live:
            process.kill()

    async def close(self) -> None:
        """Nothing is kept between calls."""

    def locate(self, tool: Tool, action: ActionBlock, inputs: Mapping[str, Any]) -> ProgramLocation | None:
        """Return the program and folder that an action would use; None if it cannot be started."""
        command = command_for(tool, action, inputs, self._context, key="")
        return None if isinstance(command, Failure) else location_of(command)

    async def _answer(self, tool: Tool, action: ActionBlock, ask: CallTool | CallPreview) -> ToolAnswer:
        redactor = redactor_for(self._redactor, ask)
        is_preview = isinstance(ask, CallPreview)
        command = command_for(tool, action, ask.inputs, self._context, ask.key, is_preview=is_preview)
        if isinstance(command, Failure):
            return ToolAnswer(failure=redacted_failure(command, redactor))
        if isinstance(ask, CallTool) and (outdated := outdated_approval(ask.approval, command)) is not None:
            return ToolAnswer(failure=outdated)
        stdout = Capture(redactor, self._limit, self._shown(ask, "stdout"), keeps_raw=reads_json(action))
        stderr = Capture(redactor, self._limit, self._shown(ask, "stderr"))
        try:
            status = await self._run(command, Process(stdout, stderr, self._quiet))
        except asyncio.CancelledError:
            raise interrupted(stdout, stderr, redactor) from None
        if isinstance(status, Failure):
            return ToolAnswer(failure=redacted_failure(status, redactor))
        read = partial(answer_of, ExitedProcess(command.name, status, stdout, stderr), action, ask.contract, redactor)
        return await asyncio.to_thread(read) if stdout.fed + stderr.fed > _LARGE else read()

    async def _run(self, command: Command, process: Process) -> int | Failure:
        """Start a process and wait for it; return its status, or why it was not started."""
        self._live.add(process)
        try:
            try:
                await process.start(command)
            except (OSError, ValueError, RuntimeError) as problem:
                await process.stop(0.0)  # it may have started without its input
                return _not_started(command, problem)
            status = await process.done()
            return status if status is not None else _unknown(command.name)
        except BaseException:
            await process.stop(self._stop_grace)
            raise
        finally:
            process.close()
            self._live.discard(process)

    def _shown(self, ask: CallTool | CallPreview, stream: str) -> Callable[[str], None] | None:
        """Return the function that shows the output of a stream, if it may be shown."""
        # Secret outputs are known only when the action has ended, so nothing is shown before.
        if self._on_output is None or any(parameter.secret for parameter in ask.contract.outputs.values()):
            return None
        return partial(self._on_output, ask.path, stream)


def location_of(command: Command) -> ProgramLocation:
    """Return the program and folder of a command, with links resolved."""
    return ProgramLocation(os.path.realpath(command.program), os.path.realpath(command.folder))


def outdated_approval(asked: ApprovalRequest | None, command: Command) -> Failure | None:
    """Compare the command that is started with the one that was approved: what was approved is what runs."""
    if asked is None or asked.program is None:
        return None
    reason = location_changed(asked, location_of(command))
    return None if reason is None else Failure("approval_outdated", reason)


def location_changed(asked: ApprovalRequest, place: ProgramLocation | None) -> str | None:
    """Return how a program or its folder changed since approval was requested; None if they are the same."""
    name = (asked.command or {}).get("program") or asked.target
    program = place.program if place is not None else None
    if program != asked.program:
        before, now = (shown(each) if each is not None else "nowhere" for each in (asked.program, program))
        return f"the program {shown(name)} was found at {before} when approval was requested, and is now at {now}"
    if place is not None and asked.folder is not None and place.folder != asked.folder:
        before, now = shown(asked.folder), shown(place.folder)
        return f"the folder of {shown(name)} was {before} when approval was requested, and is now {now}"
    return None


def _unknown(name: str) -> Failure:
    """It ended, but a signal handler or the parent process of gert took its exit status."""
    return Failure(
        "unknown_outcome", f"outcome of {shown(name)} is unknown: another part of the process took its status"
    )


def _not_started(command: Command, problem: OSError | ValueError | RuntimeError) -> Failure:
    """Describe why the system did not start a program that exists."""
    name = shown(command.name)
    if isinstance(problem, RuntimeError):
        return Failure("transport", f"{name} cannot be monitored: {problem}")
    if isinstance(problem, ValueError):
        return Failure("invalid_input", f"the arguments of {name} cannot be passed: {problem}")
    if problem.errno == errno.E2BIG:
        return Failure("invalid_input", f"the arguments of {name} are too long; pass large values on `stdin`")
    if problem.errno in _MISSING_FILE:
        return _not_there(command, problem.errno)
    if problem.errno == errno.ENOEXEC:
        reason = "it is neither a program for this machine nor a script with `#!`"
        return Failure("transport", f"{name} cannot be started: {reason}")
    return Failure("transport", f"{name} cannot be started: {_system_reason(problem.errno)}")


def _not_there(command: Command, number: int) -> Failure:
    """Find out which file is missing: the folder, the program, or its interpreter."""
    name, folder = shown(command.name), shown(command.folder)
    if number == errno.EACCES and not os.access(command.folder, os.X_OK):
        return Failure("transport", f"{name} cannot be started: no permission to enter the folder {folder}")
    if number != errno.EACCES and not os.path.isdir(command.folder):
        return Failure("not_found", f"{name} cannot be started: the folder {folder} does not exist")
    if number != errno.ENOENT:
        return Failure("transport", f"{name} cannot be started: {_system_reason(number)}")
    missing = "its interpreter was not found" if os.path.exists(command.program) else "it was removed"
    return Failure("not_found", f"{name} cannot be started: {missing}")


def _system_reason(number: int | None) -> str:
    return os.strerror(number).lower() if number else "the system gives no reason"
