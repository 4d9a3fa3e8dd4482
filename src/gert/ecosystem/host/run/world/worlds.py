"""Worlds answer the requests of a run. The run mode is the world that answers.

real       asks processes and people
dry-run    calls nothing: everything is unknown, and marked as such
probe      asks tools that write nothing and touch only what is allowed, as long as no write was left out before;
           everything else is unknown
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Set
from types import MappingProxyType
from typing import Any, Final, Protocol, cast

import msgspec

from gert.ecosystem.approvals.port import ApprovalProvider, StillOpen
from gert.ecosystem.host.config.supported import CallsExtensions, CallsTools
from gert.ecosystem.host.run.world.call_binding import Binding
from gert.ecosystem.host.run.world.sanitize import Sanitizer
from gert.ecosystem.tools.extension import AgentWaits
from gert.ecosystem.tools.outputs import Interrupted
from gert.errors import GertError, InputError
from gert.kernel.engine.inputs import fit
from gert.kernel.engine.requests import (
    ANSWERS,
    AnyAnswer,
    ApprovalAnswer,
    AwaitApproval,
    CallExtension,
    CallPreview,
    CallTool,
    CollectEvidence,
    EvidenceAnswer,
    Pause,
    PauseAnswer,
    Request,
    Subject,
    SubmitApproval,
    TicketAnswer,
    ToolAnswer,
    call_of,
    failed_answer,
)
from gert.kernel.events.runbook import Failure
from gert.kernel.foundation.secret_refs import refs_in, reveal
from gert.kernel.governance.contract import UNKNOWN, Contract
from gert.kernel.runbook.command import call_fault
from gert.kernel.runbook.documents.tool import Tool
from gert.kernel.runbook.program import Program
from gert.kernel.template.unknown import is_unknown

PROBED_EFFECTS: Final = frozenset({"network"})


class Detached(Exception):
    """Raised by a world that will not wait: the request stays open, and is put again when the run is resumed.

    ticket_id: what it waits for, if another run opened the ticket
    """

    def __init__(self, ticket_id: str = "") -> None:
        super().__init__("the request waits for a person")
        self.ticket_id = ticket_id


class World(Protocol):
    """Answers requests."""

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        """The answer, where it is known at once."""

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        """Find out."""


def failure_of(error: Exception) -> Failure:
    """What went wrong while the world was asked; a bug must not pass for an answer, so it ends the run."""
    if isinstance(error, GertError):
        return Failure("transport", error.message)
    return Failure("internal", f"{type(error).__name__}: {error}")


class DryRun:
    """Calls nothing but previews, and of those only the ones whose effects a probe may have.

    tools: the tools whose commands gert renders, by name; a call whose command cannot be rendered fails
    """

    def __init__(
        self,
        previews: World | None = None,
        allowed: frozenset[str] = PROBED_EFFECTS,
        tools: Mapping[str, Tool] = MappingProxyType({}),
    ) -> None:
        self._previews = previews
        self._allowed = allowed
        self._tools = tools

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        """Nothing is known."""
        if isinstance(ask, Pause):
            return PauseAnswer()
        if self._previews is not None and isinstance(ask, CallPreview):
            reason = self._skipped(ask)
            return None if reason is None else ToolAnswer(assumed="dry_run", failure=Failure("denied", reason))
        return _impossible(ask, self._tools) or ANSWERS[type(ask)](assumed="dry_run")

    def _skipped(self, ask: CallPreview) -> str | None:
        """Why a preview is not run."""
        if is_unknown(ask.inputs):
            return "one of its inputs is not known in a dry run"
        return why_skipped(ask.contract, self._allowed, "dry run")

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        """Show a preview."""
        if self._previews is None:
            return ANSWERS[type(ask)](assumed="dry_run")
        return await self._previews.answer(ask)


class Real:
    """Asks processes and people; every answer is redacted before anyone sees it.

    secrets: the values of secret inputs, by name
    embedded: what calls a tool in place of its transport, by tool
    """

    def __init__(
        self,
        program: Program,
        intake: Sanitizer,
        *,
        transports: Mapping[str, CallsTools],
        extensions: CallsExtensions | None = None,
        approvals: ApprovalProvider,
        collect: Callable[[CollectEvidence], Awaitable[EvidenceAnswer]],
        binding: Binding | None = None,
        secrets: Mapping[str, str] = MappingProxyType({}),
        embedded: Mapping[str, CallsTools] = MappingProxyType({}),
    ) -> None:
        self._program = program
        self._intake = intake
        self._transports = transports
        self._extensions = extensions
        self._approvals = approvals
        self._collect = collect
        self._binding = binding
        self._secrets = secrets
        self._embedded = embedded
        self._answers: Mapping[type[Request[Any]], Callable[[Any], Awaitable[AnyAnswer]]] = {
            CallTool: self._call,
            CallPreview: self._preview,
            CallExtension: self._extend,
            CollectEvidence: self._evidence,
            SubmitApproval: self._submit,
            AwaitApproval: self._await,
            Pause: self._pause,
        }

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        """The world always has to be asked."""
        return None

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        """Ask, and redact the answer; an error may also repeat what was passed."""
        try:
            said = self._unfit(ask) or self._outdated(ask) or await self._answers[type(ask)](ask)
        except (Detached, TimeoutError):
            raise
        except Interrupted as cut:
            raise Interrupted(self._intake.take(cut.answer, ask)) from None
        except Exception as error:
            said = failed_answer(ask, failure_of(error))
        return cast("AnyAnswer", self._intake.take(said, ask))

    def _unfit(self, ask: Request[Any]) -> AnyAnswer | None:
        """The answer to a call, or to a request for its approval, with a secret that its contract does not allow.

        The kernel checks every other input; it sees no values of secrets.
        """
        about = ask.subject if isinstance(ask, SubmitApproval) else ask
        if not isinstance(about, CallTool | CallPreview | CallExtension | Subject):
            return None
        for name, value in about.inputs.items():
            parameter = about.contract.inputs.get(name)
            if parameter is None or not isinstance(value, str) or not refs_in(value):
                continue
            try:
                fit(reveal(value, self._secrets), msgspec.structs.replace(parameter, secret=True))
            except InputError as problem:
                return failed_answer(ask, Failure("invalid_input", f"the input `{name}`: {problem.message}"))
        return None

    def _outdated(self, ask: Request[Any]) -> AnyAnswer | None:
        """The answer to a call, or to a wait, whose approval does not cover what would run now."""
        if self._binding is None or not isinstance(ask, CallTool | CallExtension | CollectEvidence):
            return None
        if ask.approval is None:
            return None
        failure = self._binding.outdated(ask.approval, subject_of_call(ask))
        return failed_answer(ask, failure) if failure is not None else None

    async def _evidence(self, ask: CollectEvidence) -> EvidenceAnswer:
        return await self._collect(ask)

    async def _call(self, ask: CallTool) -> ToolAnswer:
        tool = self._program.tool_names[ask.tool].tool
        if tool is None:
            return ToolAnswer(failure=Failure("not_found", f"the tool `{ask.tool}` is not there"))
        transport = self._caller(ask.tool, tool)
        if transport is None:
            message = f"the transport `{tool.meta.transport}` of the tool `{ask.tool}` is not supported yet"
            return ToolAnswer(failure=Failure("transport", message))
        if ask.approval is not None and self._binding is not None:
            ask = msgspec.structs.replace(ask, approval=self._binding.here(ask.approval))
        return await transport.call(tool, ask.action, tool.actions[ask.action], ask)

    def _caller(self, name: str, tool: Tool) -> CallsTools | None:
        """What calls a tool: the executor of the embedding program, or the transport of the tool."""
        return self._embedded.get(name) or self._transports.get(tool.meta.transport)

    async def _preview(self, ask: CallPreview) -> ToolAnswer:
        """Run the preview of an action, which is a command of its own."""
        tool = self._program.tool_names[ask.tool].tool
        shown = tool.actions[ask.action].shown if tool is not None else None
        transport = self._caller(ask.tool, tool) if tool is not None else None
        if tool is None or shown is None or transport is None:
            return ToolAnswer(failure=Failure("transport", f"`{ask.tool}` cannot show what `{ask.action}` would do"))
        return msgspec.structs.replace(await transport.call(tool, ask.action, shown, ask), preview=True)

    async def _extend(self, ask: CallExtension) -> ToolAnswer:
        if self._extensions is None:
            return ToolAnswer(failure=Failure("not_found", f"there is no runner for the extension `{ask.extension}`"))
        if ask.approval is not None and self._binding is not None:
            ask = msgspec.structs.replace(ask, approval=self._binding.here(ask.approval))
        try:
            return await self._extensions.call(ask)
        except AgentWaits as waiting:
            raise Detached(waiting.ticket_id) from None

    async def _submit(self, ask: SubmitApproval) -> TicketAnswer:
        if self._binding is None:
            return await self._approvals.submit(ask)
        lacking = self._binding.refusal(ask.subject)
        if lacking is not None:
            return TicketAnswer(failure=lacking)
        request = self._binding.complete(ask.request, ask.subject)
        ticket = await self._approvals.submit(msgspec.structs.replace(ask, request=request))
        if ticket.failure is not None:
            return ticket
        return msgspec.structs.replace(
            ticket,
            request_hash=request.request_hash,
            program=request.program,
            folder=request.folder,
            host=request.host,
            secrets=request.secrets,
            plan=request.plan,
        )

    async def _await(self, ask: AwaitApproval) -> ApprovalAnswer:
        failure = self._binding.outdated(ask.request, ask.subject) if self._binding is not None else None
        try:
            if failure is not None:
                return await self._approvals.withdraw(ask, failure)
            return await self._approvals.wait(ask)
        except StillOpen:
            raise Detached from None

    async def _pause(self, ask: Pause) -> PauseAnswer:
        await asyncio.sleep(ask.seconds)
        return PauseAnswer()


class Probe:
    """Asks tools that only look; the others, and people, are not asked.

    tools: as for a dry run
    """

    def __init__(
        self,
        real: World,
        allowed: frozenset[str] = PROBED_EFFECTS,
        tools: Mapping[str, Tool] = MappingProxyType({}),
    ) -> None:
        self._real = real
        self._allowed = allowed
        self._tools = tools

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        """What is not asked is unknown."""
        if isinstance(ask, Pause):
            return None
        if isinstance(ask, CallTool) and ask.after_skipped_write and self.may_run(ask.contract):
            return ToolAnswer(assumed="after_skipped_write")
        # Called with an unknown input, a tool would answer another request.
        if isinstance(ask, CallTool) and self.may_run(ask.contract) and not is_unknown(ask.inputs):
            return None
        return _impossible(ask, self._tools) or ANSWERS[type(ask)](assumed="probe")

    def may_run(self, contract: Contract) -> bool:
        """Whether a contract promises to write nothing, and to touch only what is allowed."""
        return why_skipped(contract, self._allowed) is None

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        """Run the tool; twice, if it claims to give equal outputs for equal inputs."""
        first = await self._real.answer(ask)
        if not isinstance(ask, CallTool) or not ask.contract.deterministic or first.failure is not None:
            return first
        second = await self._real.answer(ask)
        if second.failure is not None:
            return second
        return msgspec.structs.replace(
            cast("ToolAnswer", first),
            again=cast("ToolAnswer", second).outputs,
            duration=first.duration + second.duration,
        )


def _impossible(ask: Request[Any], tools: Mapping[str, Tool]) -> ToolAnswer | None:
    """The answer to a call that is not made, and could not be: its command cannot be rendered."""
    tool = tools.get(ask.tool) if isinstance(ask, CallTool) else None
    if tool is None or not isinstance(ask, CallTool):
        return None
    fault = call_fault(tool, tool.actions[ask.action], ask.inputs)
    return ToolAnswer(failure=Failure("evaluation", fault)) if fault is not None else None


def subject_of_call(ask: CallTool | CallExtension | CollectEvidence) -> Subject:
    """The call that an approval is about, as it is about to be made."""
    if isinstance(ask, CallTool):
        call = call_of(ask.key)
        return Subject(inputs=ask.inputs, contract=ask.contract, tool=ask.tool, action=ask.action, call=call)
    extension = ask.extension if isinstance(ask, CallExtension) else None
    return Subject(inputs=ask.inputs, contract=ask.contract, extension=extension)


def why_skipped(contract: Contract, allowed: Set[str], mode: str = "probe") -> str | None:
    """Why a probe does not call a tool with this contract, or a dry run a preview; None where it does."""
    if UNKNOWN in contract.effect_tags:
        return "its contract does not say what it touches"
    if contract.writes:
        return f"it writes {' '.join(sorted(contract.writes))}"
    if contract.hides_writes:
        return "its contract has effects and omits `writes` (D48): declare `writes: []` if it writes nothing"
    if others := sorted(contract.effect_tags - set(map(str.lower, allowed))):
        wanted = ",".join([*sorted(allowed), *others])
        return f"a {mode} may not have the effect {' '.join(others)}, unless: --probe-allow-effects {wanted}"
    return None
