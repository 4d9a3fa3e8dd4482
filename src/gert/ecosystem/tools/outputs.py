"""Turn an ended process into an answer: outputs, without secrets."""

import asyncio
import signal
from typing import Final

import msgspec

from gert.ecosystem.process.capture import Capture, size_text
from gert.ecosystem.process.find_program import shown
from gert.kernel.engine.exit_reason import exit_message, reason_line
from gert.kernel.engine.extract import ParsedJson, ToolOutput, extract, parse_json
from gert.kernel.engine.requests import CallExtension, CallPreview, CallTool, ToolAnswer
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.redaction import Redactor, parts_of
from gert.kernel.foundation.secret_refs import without_marks
from gert.kernel.foundation.text import printable
from gert.kernel.governance.contract import Contract
from gert.kernel.runbook.documents.tool import ActionBlock
from gert.kernel.template import render_text

_MAX_MESSAGE: Final = 1000
_SIGNALLED: Final = 128


class Interrupted(asyncio.CancelledError):
    """A call was cancelled, by a timeout or with its run; `answer` holds what it had printed by then."""

    def __init__(self, answer: ToolAnswer) -> None:
        super().__init__("the call was cancelled")
        self.answer = answer


def interrupted(stdout: Capture, stderr: Capture, redactor: Redactor) -> Interrupted:
    """The end of a call that was cancelled."""
    for capture in (stdout, stderr):
        capture.close()
    printed = {"stdout": redactor.value(stdout.logged).value, "stderr": redactor.value(stderr.logged).value}
    return Interrupted(ToolAnswer(**printed, failure=Failure("cancelled", "the call was cancelled")))


class ExitedProcess(msgspec.Struct, frozen=True):
    """A process that has ended: its status is negative for a signal."""

    name: str
    status: int
    stdout: Capture
    stderr: Capture

    @property
    def exit_code(self) -> int:
        """The exit code, as shells give it."""
        return self.status if self.status >= 0 else _SIGNALLED - self.status


def reads_json(action: ActionBlock) -> bool:
    """Whether an action reads its standard output as JSON."""
    return any(where.from_ == "json" for where in action.extract.values())


def answer_of(ended: ExitedProcess, action: ActionBlock, contract: Contract, redactor: Redactor) -> ToolAnswer:
    """Find the outputs, and say whether it went well."""
    if ended.status == 0 and not (action.extract or ended.stdout.fed or ended.stderr.fed):
        return ToolAnswer(exit_code=0)  # nothing to find, and nothing to hide
    document = _Document(ended.stdout, redactor)
    printed = ToolOutput(
        exit_code=ended.exit_code,
        stdout=ended.stdout.text,
        stderr=ended.stderr.text,
        document=document.read,
        truncated=frozenset(
            name for name, each in (("stdout", ended.stdout), ("stderr", ended.stderr)) if each.is_truncated
        ),
    )
    extracted = extract(action, contract.outputs, printed)
    # A secret too short to be looked for in a text is masked where it is the whole of a value.
    outputs = {name: redactor.value(value) for name, value in extracted.outputs.items()}
    failure = _exit(ended, redactor) or extracted.failure
    return ToolAnswer(
        outputs={name: without_marks(output.value) for name, output in outputs.items()},
        exit_code=ended.exit_code,
        stdout=redactor.value(ended.stdout.logged).value,
        stderr=redactor.value(ended.stderr.logged).value,
        failure=redacted_failure(failure, redactor) if failure is not None else None,
        # The document says again what the text says, so what is masked in both counts once.
        redacted=max(ended.stdout.masked, document.masked)
        + ended.stderr.masked
        + sum(output.masked for output in outputs.values()),
    )


def redacted_failure(failure: Failure, redactor: Redactor) -> Failure:
    """A failure as it may be recorded: without secrets, on one line, not too long."""
    message = printable(without_marks(redactor.text(failure.message).value))
    return Failure(failure.kind, message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + "…")


def redactor_for(redactor: Redactor, ask: CallTool | CallPreview | CallExtension) -> Redactor:
    """A redactor for the secrets of the run and the secret inputs of the contract of this call."""
    own = [name for name, parameter in ask.contract.inputs.items() if parameter.secret and name in ask.inputs]
    if not own:
        return redactor
    values = [ask.inputs[name] for name in own]
    return redactor.also(part for value in values for part in (render_text(value), *parts_of(value)))


class _Document:
    """The JSON on standard output: parsed as it was printed, then masked, so that a masked number breaks nothing."""

    def __init__(self, stdout: Capture, redactor: Redactor) -> None:
        self._stdout = stdout
        self._redactor = redactor
        self.masked = 0

    def read(self) -> ParsedJson:
        """Parse and mask it."""
        if self._stdout.is_truncated:
            limit = size_text(self._stdout.limit)
            return ParsedJson(problem=f"expected JSON on stdout, found output longer than the limit of {limit}")
        parsed = parse_json(self._stdout.raw, seen=self._stdout.text)
        value, self.masked = self._redactor.value(parsed.value)
        return ParsedJson(value, parsed.problem)


def _exit(ended: ExitedProcess, redactor: Redactor) -> Failure | None:
    """Why an exit is no success."""
    if ended.status == 0:
        return None
    if ended.status < 0:
        return Failure("exit_code", f"{shown(ended.name)} was killed by {_signal_name(-ended.status)}")
    reason = redactor.value(reason_line(ended.stderr.logged, ended.stdout.logged)).value
    return Failure("exit_code", exit_message(shown(ended.name), ended.status, reason))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
