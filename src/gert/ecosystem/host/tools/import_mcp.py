"""Import an MCP server: read its tools and write a tool file for a person to review."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gert.ecosystem.host.config.files import is_there, read_map
from gert.ecosystem.host.config.settings import require_sound, settings_for
from gert.ecosystem.host.config.supported import SUPPORTED
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.tools.mcp_session import session_with
from gert.ecosystem.host.tools.tool_file import tool_path, write_tool
from gert.errors import DocumentError, UsageError
from gert.kernel.foundation.names import is_safe_name
from gert.kernel.runbook.document import load
from gert.kernel.runbook.documents.tool import API_VERSION, Tool
from gert.kernel.runbook.mcp_import import import_tools, keep_reviewed
from gert.kernel.runbook.mcp_tools import STDIO, ServerTool, change_since_import, shown
from gert.kernel.runbook.validate.domain.files.mcp_server import REFERENCE
from gert.kernel.runbook.writer import to_yaml

_URL: Final = re.compile(r"https?://", re.IGNORECASE)
_PREFIXES: Final = ("mcp-server-", "server-", "mcp-")
_HEADER: Final = (
    "Imported from an MCP server. Review the contracts: they repeat what the server says about itself.",
    "A run refuses a tool that differs from `imported`; import it again to accept a change.",
)


class ImportedFile(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import.

    file: where it was written; None if it was not
    text: the tool file
    changes: how the server differs from an earlier import
    notes: remarks for the person who reviews it
    """

    name: str
    file: str | None
    text: str
    server: str | None
    protocol: str
    actions: list[str]
    notes: list[str]
    changes: list[str]
    replaced: bool


async def import_mcp(
    place: str,
    *,
    name: str | None = None,
    output: str | None = None,
    headers: Sequence[str] = (),
    environ: Mapping[str, str],
) -> ImportedFile:
    """Read the tools of a server, a command or a URL, and write its tool file."""
    if "mcp" not in SUPPORTED.transports:
        raise UsageError("this installation cannot reach MCP servers", hint=SUPPORTED.hints["mcp"])
    workspace = Workspace()
    meta = _meta(place, name, headers)
    file = tool_path(output, meta["name"], workspace)
    before = _before(file)
    if before is not None:
        meta |= {key: value for key, value in before.get("meta", {}).items() if key == "headers" and not headers}
    draft = _draft(meta, before)
    settings = settings_for(workspace, workspace.working, environ=environ)
    async with session_with(draft, environ, settings.mcp_http_hosts, workspace.working) as session:
        tools = sorted(session.tools.values(), key=lambda tool: tool.name)
        server, protocol = session.server, session.protocol
    if not tools:
        raise DocumentError("the server has no tools")
    imported = import_tools(meta, server, tools)
    document = imported.document if before is None else keep_reviewed(imported.document, before)
    document = _with_secrets(document, draft)
    text = "".join(f"# {line}\n" for line in _HEADER) + to_yaml(document)
    require_sound(workspace.check(file or "import", source=text.encode(), kind="tool"))
    if file is not None:
        write_tool(file, text)
    return ImportedFile(
        name=meta["name"],
        file=file,
        text=text,
        server=server,
        protocol=protocol,
        actions=list(document["actions"]),
        notes=imported.notes,
        changes=_changes(file, before, tools),
        replaced=before is not None,
    )


def _meta(place: str, name: str | None, headers: Sequence[str]) -> dict[str, Any]:
    """Return how the server is reached, as a tool file says it."""
    if _URL.match(place):
        found: dict[str, Any] = {"connect": place}
        host = _URL.sub("", place).partition("/")[0].rpartition("@")[2].partition(":")[0]
        guess = host.removeprefix("mcp.").partition(".")[0]
        if headers:
            found["headers"] = dict(_header(each) for each in headers)
    else:
        if headers:
            raise UsageError("`--header` belongs to a server with a URL")
        words = _words(place)
        arguments = [word.replace("{{", '{{ "{{" }}') for word in words[1:]]
        found = {"connect": STDIO, "binary": words[0], **({"args": arguments} if arguments else {})}
        guess = _guess(words)
    chosen = name or re.sub(r"[^A-Za-z0-9_-]+", "-", guess).strip("-")
    if not is_safe_name(chosen):
        hint = "use letters, digits, `_`, `.` and `-`" if name else "choose one with --name"
        raise UsageError(f"`{shown(chosen)}` cannot be the name of a tool", hint=hint)
    return {"name": chosen, **found}


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as problem:
        raise UsageError(f"the command cannot be split into words: {str(problem).lower()}") from None
    if not words:
        raise UsageError("expected a command or a URL after --mcp")
    return words


def _guess(words: Sequence[str]) -> str:
    """Guess a name from the last word that looks like a package or a program: `npx -y @acme/server-files /tmp`."""
    likely = [word for word in words if "mcp" in word.lower() or "server-" in word.lower()] or list(words[:1])
    base = os.path.basename(likely[0].rstrip("/")).partition("@")[0] or likely[0]
    base = base.removesuffix(".py").removesuffix(".js")
    return next((base.removeprefix(each) for each in _PREFIXES if base.startswith(each) and base != each), base)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise UsageError("`--header` takes `NAME: VALUE`", hint="for example --header 'Authorization: Bearer ${TOKEN}'")
    return name.strip(), value.strip()


def _before(file: str | None) -> Mapping[str, Any] | None:
    """Return an earlier import; a file that was not imported is not replaced."""
    if file is None or not is_there(file):
        return None
    found = read_map(file, "a tool")
    if not isinstance(found.get("imported"), Mapping):
        raise UsageError(f"`{file}` exists and was not imported", hint="choose another file with -o")
    return found


def _draft(meta: Mapping[str, Any], before: Mapping[str, Any] | None) -> Tool:
    """Return a tool without actions, which is enough to reach its server."""
    named = [*meta.get("headers", {}).values(), meta["connect"]]
    variables = dict.fromkeys(variable for text in named for variable in REFERENCE.findall(str(text)))
    secrets = list(before.get("secrets", [])) if before is not None else []
    known = {secret.get("env") for secret in secrets if isinstance(secret, Mapping)}
    secrets += [{"env": variable} for variable in variables if variable not in known]
    data = {"apiVersion": API_VERSION, "meta": {"transport": "mcp", **meta}, "secrets": secrets, "actions": {"x": {}}}
    document = load(to_yaml(data).encode(), kind="tool", file_name="--mcp")
    for finding in document.findings:
        raise UsageError(finding.message, hint=finding.hint)
    tool: Tool = document.model
    return tool


def _with_secrets(document: dict[str, Any], draft: Tool) -> dict[str, Any]:
    declared = [secret.env for secret in draft.secrets]
    if not declared or "secrets" in document:
        return document
    first = {key: document[key] for key in ("apiVersion", "meta")}
    return {**first, "secrets": [{"env": variable} for variable in declared], **document}


def _changes(file: str | None, before: Mapping[str, Any] | None, tools: Sequence[ServerTool]) -> list[str]:
    """Return how the server differs from an earlier import, in words."""
    if file is None or before is None:
        return []
    document = load(to_yaml(before).encode(), kind="tool", file_name=file)
    old = document.model
    if not isinstance(old, Tool) or old.imported is None:
        return []
    now = {tool.name: tool for tool in tools}
    changed = [change_since_import(old, name, now.get(name)) for name in old.imported.tools]
    added = [f"the tool `{shown(name)}` is new" for name in now if name not in old.imported.tools]
    return [each for each in changed if each is not None] + added
