"""Check whether a program speaks the protocol of extension runners, and explain each failure."""

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

import msgspec

from gert.ecosystem.process.command import Command
from gert.ecosystem.process.descendants import MARK
from gert.ecosystem.process.environment import environment_for
from gert.ecosystem.rpc.child_peer import ChildPeer, Server
from gert.ecosystem.rpc.messages import METHOD_NOT_FOUND
from gert.ecosystem.rpc.runner import PROTOCOL_VERSION
from gert.ecosystem.tools.command import encoded
from gert.ecosystem.tools.extension import execution_of, greeting_of
from gert.ecosystem.tools.runners import Runners, program_name
from gert.errors import InputError, RpcError, RpcFault, RpcLost
from gert.kernel.engine.clock import format_seconds
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.redaction import Redactor

Status: TypeAlias = Literal["passed", "failed", "warning", "skipped"]

EXIT_TIME: Final = 2.0
"""Seconds after which gert ends a runner that does not exit."""
_LONG: Final = "x" * 1024 * 1024
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "start": (),
    "initialize": ("start",),
    "unknown notification": ("initialize", "unknown method"),
    "long line": ("initialize", "unknown method"),
    "exit": ("shutdown",),
}
"""The checks that must have passed before one is made; most need a greeted runner."""


class CheckResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one check: what is required, what was found, and how to correct it."""

    check: str
    status: Status
    message: str
    hint: str | None = None


class _Refused(Exception):
    """A check failed; later ones still run."""

    def __init__(self, message: str, hint: str | None = None, status: Status = "failed") -> None:
        super().__init__(message)
        self.result = (status, message, hint)


class RunnerCheck:
    """One program under check.

    inputs: the inputs that `execute` is called with; without them it is not called, because a runner may have effects
    timeout: seconds that each call may take
    """

    def __init__(
        self, name: str, environ: Mapping[str, str], *, inputs: Mapping[str, Any] | None, timeout: float
    ) -> None:
        self._name = name
        self._environ = environ
        self._inputs = inputs
        self._timeout = timeout
        self._child: ChildPeer | None = None
        self._first: Any = None
        self.results: list[CheckResult] = []

    async def run(self) -> list[CheckResult]:
        """Run all checks in order; what depends on a failed one is skipped."""
        try:
            for check, method in self._checks():
                await self._take(check, method)
            await self._stop()
            await self._take("end of input", self._end_of_input)
        finally:
            await self._stop()
        return self.results

    @property
    def stderr(self) -> str:
        """What the program last printed on standard error."""
        return self._child.printed(0) if self._child is not None else ""

    def _checks(self) -> list[tuple[str, Callable[[], Awaitable[str]]]]:
        return [
            ("start", self._start),
            ("initialize", self._initialize),
            ("unknown method", self._unknown_method),
            ("unknown notification", self._unknown_notification),
            ("long line", self._long_line),
            ("execute", self._execute),
            ("equal inputs", self._execute_again),
            ("shutdown", self._shutdown),
            ("exit", self._exit),
        ]

    async def _take(self, check: str, method: Callable[[], Awaitable[str]]) -> None:
        try:
            self._require(check)
            result = CheckResult(check, "passed", await method())
        except _Refused as refused:
            result = CheckResult(check, *refused.result)
        except RpcLost as lost:
            result = CheckResult(check, "failed", lost.message, "see the protocol in docs/extensions.md")
        except RpcError as problem:
            result = CheckResult(check, "failed", problem.message, "answer every request that has an `id`")
        self.results.append(result)

    def _require(self, check: str) -> None:
        """Skip a check that cannot be made because another one failed."""
        failed = {result.check for result in self.results if result.status in ("failed", "skipped")}
        missing = [each for each in _NEEDS.get(check, ("start", "initialize")) if each in failed]
        if missing:
            raise _Refused(f"not checked, because `{missing[0]}` did not pass", status="skipped")

    async def _stop(self) -> None:
        if self._child is not None:
            await self._child.stop(farewell=False)

    async def _call(self, method: str, params: Any) -> Any:
        if self._child is None or self._child.peer.lost is not None:
            raise _Refused("not checked, because the connection has ended", status="skipped")
        return await self._child.peer.call(method, params, timeout=self._timeout)

    # --- the checks, in order

    async def _start(self) -> str:
        runners = Runners(folders=(os.getcwd(),), environment=self._environ)
        program = runners.find(self._name)
        if isinstance(program, Failure):
            raise _Refused(program.message, "name a program on PATH, or give its path")
        environment = {**environment_for((), self._environ, frozenset()), MARK: self._environ.get(MARK, "")}
        command = Command(
            name=program_name(self._name), program=program, arguments=(), environment=encoded(environment),
            folder=os.getcwd(),
        )  # fmt: skip
        self._child = ChildPeer(
            Server(name="runner", title=f"`{self._name}`", command=command, redactor=Redactor(), grace=EXIT_TIME)
        )
        await self._child.start()
        return f"{program} was started"

    async def _initialize(self) -> str:
        try:
            result = await self._call("initialize", {"protocol_version": PROTOCOL_VERSION})
            principal = greeting_of(result)
        except RpcFault as fault:
            raise _Refused(
                f"`initialize` was refused ({fault.code}): {fault.message}",
                f'answer `{{"protocol_version": "{PROTOCOL_VERSION}"}}` with `{{"capabilities": {{}}}}`',
            ) from None
        except InputError as problem:
            raise _Refused(f"`initialize`: {problem.message}", 'answer `{"capabilities": {}}`') from None
        acts = f", and acts as {principal.kind} `{principal.id}`" if principal is not None else ""
        return f"`initialize` was answered with `capabilities`{acts}"

    async def _unknown_method(self) -> str:
        try:
            await self._call("gert/unknown", {})
        except RpcFault as fault:
            if fault.code == METHOD_NOT_FOUND:
                return f"an unknown method was refused with {METHOD_NOT_FOUND}"
            message = f"an unknown method was refused with {fault.code}, expected {METHOD_NOT_FOUND}"
            raise _Refused(message, status="warning") from None
        raise _Refused(
            "an unknown method was answered with a result",
            f"answer it with an error object whose code is {METHOD_NOT_FOUND}",
        )

    async def _unknown_notification(self) -> str:
        """A notification must not be answered; if it is, the answer ends the connection before the next one."""
        if self._child is not None and self._child.peer.lost is None:
            self._child.peer.notify("gert/unknown", {})
            self._child.peer.notify("$/cancelRequest", {"id": 999_999})
        with suppress(RpcFault):
            await self._call("gert/unknown", {})
        return "notifications are not answered"

    async def _long_line(self) -> str:
        with suppress(RpcFault):
            await self._call("gert/unknown", {"text": _LONG})
        return "a line of 1 MiB is read"

    async def _execute(self) -> str:
        self._first = await self._executed()
        outputs, code, _ = self._first
        named = listing(outputs) or "no outputs"
        return f"`execute` was answered with {named} and exit code {code}"

    async def _execute_again(self) -> str:
        again = await self._executed()
        if self._first is not None and again[:2] != self._first[:2]:
            raise _Refused(
                "equal inputs gave different outputs",
                "a runner must not depend on hidden state; declare `deterministic: false` if the world changes",
                "warning",
            )
        return "equal inputs gave equal outputs"

    async def _executed(self) -> tuple[dict[str, Any], int, str]:
        if self._inputs is None:
            raise _Refused(
                "not checked, because a runner may have effects", "pass --inputs to call `execute`", "skipped"
            )
        try:
            return execution_of(await self._call("execute", {"inputs": self._inputs, "vars": {}, "contract": {}}))
        except InputError as problem:
            raise _Refused(
                f"`execute`: {problem.message}", 'answer `{"outputs": {…}, "exit_code": 0, "stderr": ""}`'
            ) from None
        except RpcFault as fault:
            message = f"`execute` was answered with an error ({fault.code}): {fault.message}"
            raise _Refused(message, "an error fails the step; that may be right for these inputs", "warning") from None

    async def _shutdown(self) -> str:
        try:
            await self._call("shutdown", {})
        except RpcFault as fault:
            message = f"`shutdown` was refused ({fault.code}): {fault.message}"
            raise _Refused(message, "answer `{}`, then exit") from None
        return "`shutdown` was answered"

    async def _exit(self) -> str:
        child = self._child
        if child is None or not await child.exits(EXIT_TIME):
            message = f"it still runs {format_seconds(EXIT_TIME)} after `shutdown`"
            raise _Refused(message, "exit after `shutdown`; gert kills a runner that does not")
        if child.status != 0:
            raise _Refused(f"it exited with {child.status} after `shutdown`", "exit with 0", "warning")
        return "it exited with 0 after `shutdown`"

    async def _end_of_input(self) -> str:
        await self._start()
        await self._initialize()
        if self._child is not None:
            self._child.end_input()
        if self._child is None or not await self._child.exits(EXIT_TIME):
            message = f"it still runs {format_seconds(EXIT_TIME)} after its standard input was closed"
            raise _Refused(message, "exit at the end of input: gert may have been killed")
        return "it exits when its standard input is closed"
