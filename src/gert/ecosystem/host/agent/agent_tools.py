"""The tools of an agent that is a step: files below one folder, within the contract of the step."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import field

from gert.ecosystem.host.agent.runbook_tool import RunbookTool
from gert.ecosystem.host.agent.tool_pack import ToolPack
from gert.ecosystem.host.config.workspace import Workspace
from gert.errors import InputError, PolicyViolationError, UsageError
from gert.kernel.agent.loop.gates import ToolGate
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps
from gert.kernel.governance.contract import UNKNOWN, Contract
from gert.kernel.governance.decide import Decision

Pack: TypeAlias = ToolPack | RunbookTool
T = TypeVar("T")
_MODEL_EFFECT: Final = "network"
_TOOL_FILE: Final = ".tool.yaml"


class _Tool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    file: str
    actions: list[str] | None = None
    prefix: str | None = None
    secrets: dict[str, str] = field(default_factory=dict)


class _Runbook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    file: str
    name: str | None = None
    outputs: list[str] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)


class _Gate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    path: str | None = None
    equals: Any = msgspec.UNSET
    must_pass: bool = True


class Demands(Protocol):
    """What the run of the step demands of calls of its agent."""

    @property
    def policies(self) -> list[str]:
        """Policy files that the run was started with."""

    @property
    def config(self) -> str | None:
        """Settings that the run was started with, beside those of the project."""

    @property
    def actor(self) -> str:
        """The person who started the run."""

    @property
    def require_signed(self) -> bool:
        """Approvals need a signature."""

    @property
    def secrets(self) -> list[str]:
        """Variables that hold secrets of the run."""

    @property
    def by_agent(self) -> bool:
        """An agent started the run."""


class Root(NamedTuple):
    """Where files of tools are found: beside the runbook, then in the project, and nowhere else."""

    folder: str
    root: str

    @classmethod
    def of(cls, folder: str) -> "Root":
        """Return the root for a runbook's folder."""
        return cls(folder, Workspace(folder).project_root(folder) or folder)

    def find(self, file: str) -> str:
        """Return the real path of a file; refused outside the root, also behind links."""
        root = os.path.realpath(self.root)
        for place in (self.folder, self.root):
            found = os.path.realpath(os.path.join(place, file))
            if os.path.isfile(found):
                if os.path.commonpath([root, found]) != root:
                    raise UsageError(f"`{file}` lies outside `{self.root}`, which the agent may not leave")
                return found
        raise UsageError(f"there is no file `{file}` for the agent", hint=f"paths are relative to `{self.folder}`")


def packs_of(root: Root, tools: Sequence[Any], runbooks: Sequence[Any], run: Demands) -> list[Pack]:
    """Read the tool files and runbooks of an agent."""
    demands = Decision(require_signed_approvals=run.require_signed, separation_of_duties=run.by_agent)
    packs: list[Pack] = []
    for tool in (_read(each, _Tool, "tools") for each in tools):
        name = tool.file if tool.file.endswith((".yaml", ".yml")) else os.path.join("tools", tool.file + _TOOL_FILE)
        packs.append(
            ToolPack(
                root.find(name),
                policies=run.policies,
                config=run.config,
                prefix=tool.prefix,
                actions=tool.actions,
                secrets=tool.secrets,
                demands=demands,
                hidden=run.secrets,
            )
        )
    for runbook in (_read(each, _Runbook, "runbooks") for each in runbooks):
        packs.append(
            RunbookTool(
                root.find(runbook.file),
                name=runbook.name,
                policies=run.policies,
                config=run.config,
                outputs=runbook.outputs,
                secrets=runbook.secrets,
                require_signed=run.require_signed,
                actor=run.actor,
                hidden=run.secrets,
            )
        )
    return packs


def gates_of(gates: Sequence[Any]) -> tuple[ToolGate, ...]:
    """Read the gates of an agent."""
    return tuple(
        ToolGate(
            tool=gate.tool,
            must_pass=gate.must_pass,
            arguments_json=canonical_json_dumps(gate.arguments),
            pass_json_path=gate.path,
            pass_if_equals_json=None if gate.equals is msgspec.UNSET else canonical_json_dumps(gate.equals),
        )
        for gate in (_read(each, _Gate, "gates") for each in gates)
    )


def require_within(contract: Mapping[str, Any], packs: Sequence[Pack]) -> None:
    """Refuse tools that may do more than the step declares: policies and approvers evaluated that contract."""
    effects = {each.lower() for each in contract.get("effects") or ()}
    writes = {each.lower() for each in contract.get("writes") or ()}
    covers_all = UNKNOWN in effects
    if _MODEL_EFFECT not in effects and not covers_all:
        raise _beyond("an agent", "has the effect `network`", "effects: [network, …]")
    for name, each in (item for pack in packs for item in pack.contracts.items()):
        missing = sorted(_effects(each) - effects) if not covers_all else []
        if missing:
            raise _beyond(f"`{name}`", f"has the effect `{missing[0]}`", f"effects: [{missing[0]}, …]")
        more = sorted({tag.lower() for tag in each.writes} - writes)
        if more:
            raise _beyond(f"`{name}`", f"writes `{more[0]}`", f"writes: [{more[0]}, …]")


def _effects(contract: Contract) -> set[str]:
    return {UNKNOWN} if contract.effects is None else set(contract.effect_tags)


def _beyond(what: str, does: str, declare: str) -> PolicyViolationError:
    return PolicyViolationError(
        code="contract_exceeded",
        message=f"{what} {does}, which the contract of the step does not declare ({declare})",
        tool_name=what.strip("`"),
    )


def _read(given: Any, kind: type[T], name: str) -> T:
    """Read one entry of a list: an object, or the path of its file."""
    try:
        return msgspec.convert({"file": given} if isinstance(given, str) and kind is not _Gate else given, kind)
    except msgspec.ValidationError as problem:
        raise InputError(f"an entry of `{name}` does not fit: {problem}") from None
