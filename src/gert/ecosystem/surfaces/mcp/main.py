"""The command `gert-mcp`: parse, build the server, serve on stdio or HTTP."""

import asyncio
import os
from typing import Any

import click
import msgspec

from gert.ecosystem.host.config.keys.approval_keys import ApprovalKeys
from gert.ecosystem.host.operations.access import Access, Refused, open_access
from gert.ecosystem.host.operations.table import OPERATIONS
from gert.ecosystem.surfaces.start import run_program
from gert.errors import UsageError
from gert.kernel.foundation.text import printable

_DEFAULT_PORT = 8765


@click.command(
    name="gert-mcp",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: gert-mcp --root . --allow runbooks/restart-pod.yaml --policy policies/agents.policy.yaml",
)
@click.option("--root", metavar="DIR", default=".", show_default=True, help="Serve only files in this folder.")
@click.option(
    "--allow", multiple=True, metavar="RUNBOOK", help="Runbook that may be started (default: all in the root)."
)
@click.option("--publish", multiple=True, metavar="RUNBOOK", help="Offer this runbook as a tool of its own.")
@click.option("--read-only", is_flag=True, help="Offer no tool that starts, resumes or cancels a run.")
@click.option("--toolset", metavar="NAMES", help=f"Offer only these operations, with commas: {', '.join(OPERATIONS)}.")
@click.option("--policy", "policies", multiple=True, metavar="FILE", help="Add a policy to the floor of every run.")
@click.option(
    "--require-signed/--no-require-signed",
    default=None,
    help="Require signed approvals for runs started here (default: where a verification key is configured).",
)
@click.option("--state-dir", metavar="DIR", help="State directory (default: the project's, or your own).")
@click.option("--db", metavar="FILE", help="Record runs in this SQLite ledger.")
@click.option(
    "--dsn", metavar="DSN", help="Record runs in this Postgres ledger; env:NAME reads the DSN from a variable."
)
@click.option("--http", "address", metavar="[HOST:]PORT", help="Serve streamable HTTP on loopback instead of stdio.")
@click.option(
    "--token-file", metavar="FILE", help="Bearer tokens for HTTP, `SUBJECT TOKEN` a line (default: GERT_MCP_TOKEN)."
)
@click.option("--oauth-issuer", metavar="URL", help="Accept tokens of this OAuth issuer instead.")
@click.option("--oauth-audience", metavar="NAME", help="Audience that such a token must name.")
@click.option("--oauth-keys", metavar="URL", help="JWKS of the issuer (default: its /.well-known/jwks.json).")
def command(**options: Any) -> None:
    """Serve gert to agents over the Model Context Protocol.

    A run that an agent starts has a process of its own and goes on when the client disconnects. Approvals are given by
    people elsewhere (`gert approve`, the page, Slack); no tool here approves anything.
    """
    asyncio.run(_serve(**options))


async def _serve(
    *,
    address: str | None,
    token_file: str | None,
    oauth_issuer: str | None,
    oauth_audience: str | None,
    oauth_keys: str | None,
    publish: tuple[str, ...],
    toolset: str | None,
    **options: Any,
) -> None:
    from gert.ecosystem.surfaces.mcp.published import publish as published_tools
    from gert.ecosystem.surfaces.mcp.server import build_server

    access = make_access(**options)
    server = build_server(access, published_tools(access, publish), read_toolset(toolset))
    if address is None:
        from mcp.server.stdio import stdio_server

        from gert.ecosystem.host.operations.parent import while_parent_lives

        async with stdio_server() as (reading, writing):
            await while_parent_lives(server.run(reading, writing, server.create_initialization_options()))
        return
    from gert.ecosystem.surfaces.mcp.http import SignedTokens, fixed_tokens, http_app, serve_http

    host, port = read_address(address)
    if oauth_issuer is not None:
        if oauth_audience is None:
            raise UsageError("`--oauth-issuer` needs `--oauth-audience`", hint="name the audience of your tokens")
        verifier: Any = SignedTokens(oauth_issuer, oauth_audience, oauth_keys)
    else:
        verifier = fixed_tokens(token_file, os.environ)
    await serve_http(http_app(server, host, port, verifier, oauth_issuer), host, port)


def make_access(
    *, allow: tuple[str, ...], policies: tuple[str, ...], require_signed: bool | None, **place: Any
) -> Access:
    """What callers of this server may do."""
    signed = len(ApprovalKeys(os.environ)) > 0 if require_signed is None else require_signed
    access = open_access(policies=policies, require_signed=signed, **place)
    for named, file in zip(policies, access.policies, strict=True):
        if not os.path.exists(file):
            raise UsageError(f"there is no policy `{named}`", hint="a floor that is missing would not hold")
    if not allow:
        return access
    try:
        return msgspec.structs.replace(access, allow=frozenset(access.runbook(each) for each in allow))
    except Refused as refused:
        raise UsageError(f"--allow: {refused.message}", hint=refused.hint) from None


def read_toolset(text: str | None) -> frozenset[str] | None:
    """The operations that --toolset names."""
    if text is None:
        return None
    names = frozenset(each.strip() for each in text.split(",") if each.strip())
    unknown = sorted(names - OPERATIONS.keys())
    if unknown or not names:
        named = f"no operation `{printable(unknown[0])}`" if unknown else "`--toolset` names no operation"
        raise UsageError(named, hint=f"one of {', '.join(OPERATIONS)}")
    return names


def read_address(text: str) -> tuple[str, int]:
    """The host and port of --http."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(
            f"expected HOST:PORT or PORT, found `{printable(text)}`", hint=f"for example --http {_DEFAULT_PORT}"
        )
    return host.strip("[]") or "127.0.0.1", int(port)


def main() -> None:
    """Run the server; an error is one line on standard error."""
    run_program(command)


if __name__ == "__main__":
    main()
