"""MCP tools: imports name what is called, and servers are reached without giving secrets away."""

import re
from collections.abc import Collection, Iterator
from typing import Final
from urllib.parse import urlsplit

from gert.kernel.foundation.names import suggestion
from gert.kernel.runbook.documents.tool import Tool
from gert.kernel.runbook.finding import Finding, Path, error, warning
from gert.kernel.runbook.mcp_tools import STDIO, called_tools, shown
from gert.kernel.runbook.program import declared

LOOPBACK: Final = re.compile(r"^(localhost|127(\.[0-9]{1,3}){3}|::1)$")
REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,255})\}")
_CREDENTIALS: Final = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})


def mcp_server(tool: Tool) -> Iterator[Finding]:
    """Check what only MCP tools have: D70 and D71."""
    yield from _imported(tool)
    yield from _arguments(tool)
    yield from _headers(tool)
    yield from _address(tool)


def plain_http_host(tool: Tool, allowed: Collection[str]) -> str | None:
    """Return the host that a tool reaches without TLS, unless it is this machine or an allowed host."""
    address = _split(tool)
    if address is None or address[0] != "http":
        return None
    host = f"[{address[1]}]" if ":" in address[1] else address[1]
    allows = LOOPBACK.match(address[1]) or not {host, f"{host}:{address[2] or 80}"}.isdisjoint(allowed)
    return None if allows else host


def _imported(tool: Tool) -> Iterator[Finding]:
    """D70: what is called was imported, so that a change of it is noticed."""
    if tool.imported is None:
        return
    if tool.meta.transport != "mcp":
        message = f"`imported` belongs to `mcp`, and this tool is `{tool.meta.transport}`"
        yield error("D70", ("imported",), message, on_key=True)
        return
    for name in called_tools(tool):
        if name not in tool.imported.tools:
            message = f"the tool `{shown(name)}` was not imported, so a run does not notice when the server changes it"
            hint = "import the server again with `gert tool import`"
            yield warning("D70", ("imported", "tools"), message, hint, on_key=True)


def _arguments(tool: Tool) -> Iterator[Finding]:
    """D70: `mcp_arguments` names declared inputs."""
    for action in tool.actions.values():
        known = {*declared(tool.contract).inputs, *declared(action.contract).inputs}
        for name in action.mcp_arguments:
            if name not in known:
                hint = suggestion(name, known) or "declare it in `contract.inputs`"
                yield error("D70", action.at("mcp_arguments", name), f"`{name}` is not an input", hint, on_key=True)


def _headers(tool: Tool) -> Iterator[Finding]:
    """D71: headers go to a URL, and their secrets are declared, so that they are redacted."""
    meta = tool.meta
    if meta.headers and (meta.connect is None or meta.connect == STDIO):
        yield error("D71", ("meta", "headers"), "`headers` belong to a server with a URL", "remove them")
    yield from _references(tool, meta.connect or "", ("meta", "connect"))
    for name, value in meta.headers.items():
        path = ("meta", "headers", name)
        yield from _references(tool, value, path)
        if name.lower() in _CREDENTIALS and not REFERENCE.search(value):
            message = f"the header `{name}` holds a credential in the file"
            yield error("D71", path, message, "take it from the environment with `${NAME}`")


def _references(tool: Tool, text: str, path: Path) -> Iterator[Finding]:
    secrets = {secret.env for secret in tool.all_secrets}
    for variable in REFERENCE.findall(text):
        if variable not in secrets:
            message = f"the variable `{variable}` is not one of the tool's `secrets`"
            yield error("D71", path, message, f"add `- env: {variable}` to `secrets`: its value is then redacted")


def _address(tool: Tool) -> Iterator[Finding]:
    """D71: the URL of a server holds no password."""
    address = _split(tool)
    if address is not None and address[3]:
        message = "the URL of the server holds a user or password"
        yield error("D71", ("meta", "connect"), message, "use `headers` with `${NAME}`")


def _split(tool: Tool) -> tuple[str, str, int | None, bool] | None:
    """The scheme, host and port of the server, and whether its URL holds a user; None if it is not a URL."""
    if tool.meta.connect is None or tool.meta.connect == STDIO:
        return None
    try:
        found = urlsplit(tool.meta.connect)
        return found.scheme.lower(), (found.hostname or "").lower(), found.port, "@" in found.netloc
    except ValueError:
        return None
