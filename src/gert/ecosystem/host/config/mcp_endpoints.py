"""Where the MCP server of a tool is reached: its URL and headers, with secrets of the environment filled in."""

from collections.abc import Collection, Mapping

from gert.ecosystem.notify.addresses import expand, url_problem
from gert.ecosystem.tools.mcp.endpoint import Endpoint
from gert.errors import InputError
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.hosts import is_loopback
from gert.kernel.runbook.documents.tool import Tool


def endpoint_of(tool: Tool, environ: Mapping[str, str], http_hosts: Collection[str]) -> Endpoint | Failure:
    """Return the endpoint of a tool with a URL, or why it is refused; `http_hosts` and this machine need no TLS."""
    import httpx2

    try:
        url = expand(tool.meta.connect or "", environ).text
        headers = {name: expand(value, environ).text for name, value in tool.meta.headers.items()}
    except InputError as problem:
        return Failure("missing_secret", f"tool `{tool.meta.name}`: {problem.message}")
    why = url_problem(url, http_hosts)
    if why is None and httpx2.URL(url).userinfo:
        why = "the URL holds a user or password"
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            why = f"the header `{name}` contains an invalid character"
    if why is not None:
        return Failure("invalid_input", f"tool `{tool.meta.name}`: {why}")
    return Endpoint(url, headers, is_local=is_loopback(httpx2.URL(url).host))
