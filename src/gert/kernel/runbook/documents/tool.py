"""The tool document, `tool/v0`."""

from copy import copy
from typing import Any, Final

from gert.kernel.runbook.documents.contract import ContractBlock
from gert.kernel.runbook.documents.modifiers import RetryBlock
from gert.kernel.runbook.documents.shared import SECRETS, SecretBlock
from gert.kernel.runbook.kinds import (
    BOOL,
    ENVIRONMENT_NAME,
    EXTENSIONS,
    IDENTIFIER,
    NAME,
    NAME_WORD,
    NONEMPTY,
    TEMPLATE,
    TEXT,
    TIMEOUT,
    ListOf,
    MapOf,
    Nested,
    Word,
    words,
)
from gert.kernel.runbook.model import Model, optional, required
from gert.kernel.template import Template

API_VERSION: Final = "tool/v0"
TRANSPORTS: Final = ("stdio", "jsonrpc", "mcp", "runner")
RUNNER: Final = "runner"
EXTRACT_SOURCES: Final = ("stdout", "stderr", "exit_code", "json")
PLATFORMS: Final = (
    "linux", "darwin", "windows", "freebsd", "openbsd", "netbsd", "dragonfly", "solaris", "illumos", "aix", "android",
)  # fmt: skip
JSON_PATH: Final = r"^(\$|(\$\.)?[^.\[\]\s]+|\$?\[[0-9]+\])(\.[^.\[\]\s]+|\[[0-9]+\])*$"
HEADER_NAME: Final = "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$"
_DIGEST: Final = Word("a digest such as `sha256:…`", pattern="^sha256:[0-9a-f]{64}$")
ARGV: Final = ListOf(TEMPLATE, minItems=1)
SKILL_ID: Final = r"^S(\.[a-z0-9][a-z0-9_-]{0,63})+\.v[0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6}$"
# No white space, query or fragment: a reference is a scheme and a path.
REFERENCE: Final = r"^[a-z][a-z0-9]{0,15}://[A-Za-z0-9_./@:+=-]{1,400}$"


class ExtractBlock(Model):
    """How one declared output is extracted from what the tool printed."""

    from_: str = required(words(*EXTRACT_SOURCES), "where to look", key="from")
    pattern: str | None = optional(
        Word("a regular expression", minLength=1),
        "regular expression; its first group, or the whole match, is the value",
    )
    json_path: str | None = optional(
        Word("a path such as `a.b[0]`, or `$` for all of it", pattern=JSON_PATH),
        "path into JSON: `a.b[0].c`",
        key="path",
    )
    trim: bool = optional(BOOL, "remove newlines at the end of text, as `$(…)` does in a shell", default=True)
    lines: bool = optional(BOOL, "list of lines; with `pattern`, what it matches in each line", default=False)


class PreviewBlock(Model):
    """A command without writes that shows what the action would do."""

    argv: tuple[Template, ...] | None = optional(ARGV, "command and arguments")
    mcp_tool: str | None = optional(NONEMPTY, "name of a tool on the MCP server")


class ActionBlock(Model):
    """One action of the tool."""

    description: str | None = optional(TEXT, "what the action does")
    argv: tuple[Template, ...] | None = optional(ARGV, "command and arguments, for `stdio`")
    method: str | None = optional(NONEMPTY, "method to call, for `jsonrpc` (default: the action's name)")
    mcp_tool: str | None = optional(NONEMPTY, "tool to call, for `mcp` (default: the action's name)")
    mcp_arguments: dict[str, str] = optional(
        MapOf(TEXT, keys=IDENTIFIER),
        "names of arguments on the MCP server, by input, where they differ",
        default={},
    )
    extract: dict[str, ExtractBlock] = optional(
        MapOf(Nested(ExtractBlock), keys=IDENTIFIER),
        "how outputs are extracted from what the tool printed",
        default={},
    )
    contract: ContractBlock | None = optional(Nested(ContractBlock), "tightens the tool's contract")
    timeout: str | None = optional(TIMEOUT, "time limit for the action")
    retry: RetryBlock | None = optional(Nested(RetryBlock), "retry on failure; idempotent contracts only")
    stdin: Template | None = optional(TEMPLATE, "text written to its standard input")
    env: dict[str, Template] = optional(
        MapOf(TEMPLATE, keys=ENVIRONMENT_NAME), "environment variables set for it", default={}
    )
    cwd: Template | None = optional(TEMPLATE, "folder it runs in")
    skill: str | None = optional(
        Word("a skill id such as `S.vendor.openai.chat.v0.1.0`", pattern=SKILL_ID),
        "skill that a runner executes, for `runner`",
    )
    runner: str | None = optional(NAME_WORD, "runner that executes it (default: the only one that can)")
    secret_ref: str | None = optional(
        Word("a secret_ref such as `kv://openai/dev/api_key`", pattern=REFERENCE),
        "reference to the skill's secret; only the runner resolves it",
    )
    ttl: str | None = optional(TIMEOUT, "how long the authorization of the plan is valid (default: 15m)")
    unsandboxed: bool = optional(
        BOOL, "let a program run without a sandbox where there is none; the record says so", default=False
    )
    plan: str | None = optional(NONEMPTY, "plan file to authorize and not execute, for `runner`")
    preview: PreviewBlock | None = optional(Nested(PreviewBlock), "shows what the action would do, without writes")
    extensions: dict[str, Any] = optional(EXTENSIONS, "free metadata", default={})

    @property
    def is_authorized_only(self) -> bool:
        """Whether the plan is authorized for a runner elsewhere, and not executed here."""
        return self.plan is not None

    @property
    def shown(self) -> "ActionBlock | None":
        """The preview as an action: its own command in the action's environment; its result is what it prints."""
        if self.preview is None or (self.preview.argv is None and self.preview.mcp_tool is None):
            return None
        action = copy(self)
        action.argv, action.mcp_tool = self.preview.argv, self.preview.mcp_tool
        action.extract, action.stdin = {}, None
        return action


class ToolMeta(Model):
    """The tool's name and transport."""

    name: str = required(NAME_WORD, "name of the tool")
    description: str | None = optional(TEXT, "what the tool is for")
    transport: str = optional(words(*TRANSPORTS), "how gert calls it", default="stdio")
    binary: str | None = optional(NONEMPTY, "program to start; replaces the first word of `argv`")
    args: tuple[Template, ...] = optional(
        ListOf(TEMPLATE), "arguments for a long-running program (`jsonrpc`, `mcp`)", default=()
    )
    connect: str | None = optional(
        Word("`stdio` or a URL", pattern="^(stdio|https?://\\S+)$"),
        "for `mcp`: `stdio`, or the URL of a server; `${NAME}` takes a declared secret from the environment",
    )
    headers: dict[str, str] = optional(
        MapOf(TEXT, keys=HEADER_NAME),
        "for a server with a URL: HTTP headers sent to it; `${NAME}` takes a declared secret from the environment",
        default={},
    )
    platform: tuple[str, ...] = optional(
        ListOf(words(*PLATFORMS), minItems=1, uniqueItems=True),
        "systems it runs on (default: any)",
        default=(),
    )
    secrets: tuple[SecretBlock, ...] = optional(SECRETS, "secrets the tool needs", default=())
    extensions: dict[str, Any] = optional(EXTENSIONS, "free metadata", default={})


class ImportedTool(Model):
    """A tool of an MCP server as it was when it was imported."""

    inputs: str = required(_DIGEST, "digest of its input schema")
    outputs: str = required(_DIGEST, "digest of its output schema")
    annotations: str = required(_DIGEST, "digest of its annotations")


class ImportedBlock(Model):
    """What `gert tool import` found on an MCP server; a run refuses tools that differ from it."""

    server: str | None = optional(TEXT, "name and version of the server")
    tools: dict[str, ImportedTool] = required(MapOf(Nested(ImportedTool), keys="."), "the tools of the server, by name")


class Tool(Model):
    """A tool: a contract, and its actions."""

    api_version: str = required(words(API_VERSION), "version of the tool format", key="apiVersion")
    meta: ToolMeta = required(Nested(ToolMeta), "name and transport")
    contract: ContractBlock | None = optional(Nested(ContractBlock), "what every action affects and guarantees")
    secrets: tuple[SecretBlock, ...] = optional(SECRETS, "secrets the tool needs", default=())
    actions: dict[str, ActionBlock] = required(MapOf(Nested(ActionBlock), keys=NAME), "what the tool can do")
    imported: ImportedBlock | None = optional(Nested(ImportedBlock), "what was found on its MCP server")
    extensions: dict[str, Any] = optional(EXTENSIONS, "free metadata", default={})

    @property
    def answers(self) -> bool:
        """Whether a server answers with the outputs, so that nothing has to be extracted from text."""
        return self.meta.transport != "stdio"

    @property
    def all_secrets(self) -> tuple[SecretBlock, ...]:
        """All declared secrets."""
        return self.secrets + self.meta.secrets
