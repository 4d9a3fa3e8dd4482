"""Run one action of a tool under the policies of its project and yours; report what it did against its contract."""

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from gert.ecosystem.host.config.settings import require_sound
from gert.ecosystem.host.config.state_dir import state_dir
from gert.ecosystem.host.config.variables import notes_on_given, refuse_file_names
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.run.execute import execute
from gert.ecosystem.host.run.observer import Observer, SilentObserver
from gert.ecosystem.host.run.options import Executed, RunOptions
from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.host.runs.logs import Logs
from gert.ecosystem.host.runs.place import Place
from gert.ecosystem.host.tools.find_tools import FoundTool, ToolAction, find_tools
from gert.errors import InputError, UsageError
from gert.kernel.engine.inputs import GivenInput, fit
from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload
from gert.kernel.foundation.names import did_you_mean, listing
from gert.kernel.governance.contract import Contract
from gert.kernel.governance.parameter import Parameter
from gert.kernel.runbook.command import masked_call
from gert.kernel.runbook.documents.runbook import API_VERSION
from gert.kernel.runbook.documents.tool import Tool
from gert.kernel.runbook.writer import to_yaml

STEP: Final = "try"
_PREFIX: Final = "given_"
"""Inputs of the runbook around the step have other names than the outputs of the action, which would clash."""


class TryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run; `dry_run` calls nothing but a preview, `waits` takes approvals from elsewhere."""

    tool: str
    action: str | None = None
    given: Mapping[str, GivenInput] = msgspec.field(default_factory=dict)
    dry_run: bool = False
    waits: bool = False
    actor: str | None = None
    policies: tuple[str, ...] = ()
    state_dir: str | None = None
    config: str | None = None


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What happened.

    call: the command or call with its environment, without values of secrets
    outputs: what was extracted and declared
    missing: declared outputs that were not found
    violations: how the action broke its contract
    no_preview: why a dry run, or an approval, had no preview to show
    """

    tool: str
    file: str
    action: str
    run_id: str
    mode: str
    status: str
    call: dict[str, Any]
    risk: str | None = None
    decision: str | None = None
    rule: str | None = None
    exit_code: int | None = None
    duration: str | None = None
    stdout: str = ""
    stderr: str = ""
    outputs: dict[str, Any] = msgspec.field(default_factory=dict)
    missing: list[str] = msgspec.field(default_factory=list)
    violations: list[dict[str, str]] = msgspec.field(default_factory=list)
    failure: dict[str, str] | None = None
    preview: str | None = None
    no_preview: str | None = None

    @property
    def holds(self) -> bool:
        """Whether it kept its contract; a step that ended in an error gave something else than it declares."""
        return not self.violations and self.status != "error"


async def try_action(
    options: TryOptions,
    environ: Mapping[str, str],
    observers: Iterable[Observer] = (),
    warn: Callable[[str], object] = lambda _: None,
) -> Tried:
    """Run the action as the only step of a run; it is recorded like any other.

    warn: is told of secrets on the command line
    """
    found = _tool(options.tool)
    action = _action(found, options.action)
    secret = {name for name, each in action.contract.inputs.items() if each.secret}
    refuse_file_names(secret, options.given)
    for each in notes_on_given(secret, options.given):
        warn(each)
    file, text = _runbook(found, action, options.given)
    seen = _Seen()
    executed = await execute(
        RunOptions(
            file=file,
            given={f"{_PREFIX}{name}": value for name, value in options.given.items()},
            mode="dry-run" if options.dry_run else "real",
            # The preview of this one action was asked for, so its effects are allowed; policies still decide.
            probe_effects=action.contract.effect_tags,
            approvals="wait" if options.waits else "terminal",
            actor=options.actor,
            policies=options.policies,
            state_dir=options.state_dir,
            config=options.config,
        ),
        observers=(seen, *observers),
        environ=environ,
        workspace=Workspace(stored={file: text.encode()}),
    )
    return _tried(found, action, executed, seen, options, environ)


def _tool(name: str) -> FoundTool:
    [found, *others] = find_tools([name])
    if others:
        raise UsageError(f"`{name}` is a folder with several tools", hint="name one of them, or use `gert tool list`")
    require_sound(found.checked)
    return found


def _action(found: FoundTool, name: str | None) -> ToolAction:
    actions = {each.name: each for each in found.actions}
    if name is None and len(actions) == 1:
        return next(iter(actions.values()))
    if name is None or name not in actions:
        guess = did_you_mean(name, actions) if name is not None else None
        listed = listing(actions)
        what = f"the tool `{found.name}` has no action `{name}`" if name is not None else "expected an action"
        raise UsageError(what, hint=f"did you mean `{guess}`?" if guess else f"it has {listed}")
    return actions[name]


def _runbook(found: FoundTool, action: ToolAction, given: Mapping[str, GivenInput]) -> tuple[str, str]:
    """A runbook with the action as its only step, and the path it would have; it is not written."""
    declared = action.contract.inputs
    for name in given:
        if name not in declared:
            guess = did_you_mean(name, declared)
            known = listing(declared) or "none"
            raise UsageError(
                f"the action `{action.name}` has no input `{name}`",
                hint=f"did you mean `{guess}`?" if guess else f"its inputs: {known}",
            )
    for name, value in given.items():
        _require_fit(name, value, declared[name])
    missing = [name for name, each in declared.items() if each.required and not each.has_default and name not in given]
    if missing:
        words = " ".join(f"--input {name}=VALUE" for name in missing)
        raise UsageError(f"the action `{action.name}` needs {_listed(missing)}", hint=f"add {words}")
    tool_file = os.path.abspath(found.file)
    inputs = {
        f"{_PREFIX}{name}": {
            "type": "any",
            "required": True,
            **({"secret": True, "type": "string"} if declared[name].secret else {}),
        }
        for name in given
    }
    step = {
        "id": STEP,
        "type": "tool",
        "tool": tool_file,
        "action": action.name,
        "inputs": {name: f"{{{{ .{_PREFIX}{name} }}}}" for name in given},
    }
    document = {
        "apiVersion": API_VERSION,
        "meta": {"name": f"try-{found.name}-{action.name}", **({"inputs": inputs} if inputs else {})},
        "tools": [tool_file],
        "steps": [step, {"id": "tried", "type": "end", "outcome": {"category": "no_action", "code": "tried"}}],
    }
    return os.path.join(_folder(found), f"try-{secrets.token_hex(6)}.yaml"), to_yaml(document)


def _require_fit(name: str, given: GivenInput, parameter: Parameter) -> None:
    """Refuse a value that the contract does not take: no run has to fail to show that."""
    try:
        fit(given.text if given.text is not None and parameter.type == "string" else given.value, parameter)
    except InputError as problem:
        raise InputError(f"the input `{name}`: {problem.message}", hint=problem.hint) from None


def _folder(found: FoundTool) -> str:
    """Where the runbook would be: in the project you are in, else in that of the tool, else here.

    As for any runbook, the policies of the projects around the tool apply as well.
    """
    find = Workspace().project_root
    return find(os.getcwd()) or find(os.path.dirname(os.path.abspath(found.file))) or os.getcwd()


def _tried(
    found: FoundTool,
    action: ToolAction,
    executed: Executed,
    seen: "_Seen",
    options: TryOptions,
    environ: Mapping[str, str],
) -> Tried:
    tool: Tool = found.checked.document.model
    done, decided = seen.complete, seen.decision
    streams = {"stdout": "", "stderr": ""} if options.dry_run else _printed(executed.run_id, found, options, environ)
    outputs = done.outputs if done is not None else {}
    success = done is not None and done.status == "success"
    failure = executed.failure
    inputs = seen.start.inputs if seen.start is not None else _given(action, options.given)
    return Tried(
        tool=found.name,
        file=found.file,
        action=action.name,
        run_id=executed.run_id,
        mode=executed.mode,
        status=done.status if done is not None else executed.status,
        call=masked_call(tool, action.name, action.block, inputs) if _is_public(action.contract, seen) else {},
        risk=decided.risk_level if decided is not None else None,
        decision=decided.decision if decided is not None else None,
        rule=decided.rule if decided is not None else None,
        exit_code=done.exit_code if done is not None else None,
        duration=done.duration if done is not None else None,
        stdout=streams["stdout"],
        stderr=streams["stderr"],
        outputs=outputs,
        missing=[name for name in action.contract.outputs if name not in outputs]
        if success and not options.dry_run
        else [],
        violations=seen.violations,
        failure={"kind": failure.kind, "message": failure.message} if failure is not None else None,
        preview=seen.preview,
        no_preview=_no_preview(action, seen, options),
    )


def _no_preview(action: ToolAction, seen: "_Seen", options: TryOptions) -> str | None:
    """Why there is no preview, where one would have been shown."""
    if seen.preview is not None or not (options.dry_run or seen.no_preview):
        return None
    if action.block.preview is None:
        return "the action declares none"
    return seen.no_preview or "the run ended before it"


def _given(action: ToolAction, given: Mapping[str, GivenInput]) -> dict[str, Any]:
    """The inputs of a step that did not start: what was given, and the defaults of the action."""
    defaults = {name: each.default for name, each in action.contract.inputs.items() if each.has_default}
    return {**defaults, **{name: each.value for name, each in given.items()}}


def _is_public(contract: Contract, seen: "_Seen") -> bool:
    """Whether inputs can be shown: those of an event are masked, those that were given are not."""
    return seen.start is not None or not any(each.secret for each in contract.inputs.values())


def _printed(run_id: str, found_tool: FoundTool, options: TryOptions, environ: Mapping[str, str]) -> dict[str, str]:
    """What the tool printed, as it is on record: bounded, and without secrets."""
    found = {"stdout": "", "stderr": ""}
    root = Workspace().project_root(_folder(found_tool))
    with Runs(Place(state_dir(options.state_dir, root, environ))) as runs:
        for piece in Logs(runs.reader, run_id).read():
            if not piece.is_preview:
                found[piece.stream] += piece.text
    return found


def _listed(names: list[str]) -> str:
    return f"the input{'s' if len(names) > 1 else ''} {listing(names)}"


class _Seen(SilentObserver):
    """An observer of the one step."""

    def __init__(self) -> None:
        self.start: says.StepStart | None = None
        self.complete: says.StepComplete | None = None
        self.decision: says.GovernanceDecision | None = None
        self.violations: list[dict[str, str]] = []
        self.preview: str | None = None
        self.no_preview: str | None = None

    def said(self, event: Envelope, payload: Payload) -> None:
        """Keep what concerns the step."""
        if event.path != STEP:
            return
        if isinstance(payload, says.StepStart):
            self.start = payload
        elif isinstance(payload, says.StepComplete):
            self.complete = payload
        elif isinstance(payload, says.GovernanceDecision):
            self.decision = payload
        elif isinstance(payload, says.PreviewCaptured):
            self.preview = payload.output
        elif isinstance(payload, says.PreviewSkipped):
            self.no_preview = payload.reason
        elif isinstance(payload, says.ContractViolation):
            self.violations.append(
                {"kind": payload.kind, "message": payload.message, "severity": str(payload.severity)}
            )
