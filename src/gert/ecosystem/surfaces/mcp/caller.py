"""Who calls: the subject of a verified token, or on stdio the name that the client claims."""

from typing import Any, Final

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import ServerRequestContext

from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.text import is_plain

CLAIMED: Final = "claimed by the client"
VERIFIED: Final = "verified by token"
_LONGEST: Final = 128


def caller_of(ctx: ServerRequestContext[Any, Any]) -> Principal:
    """The principal of a call, always of kind `agent` (DECISIONS 77)."""
    token = get_access_token()
    if token is not None:
        return Principal("agent", token.subject or token.client_id, role=VERIFIED)
    params = ctx.session.client_params
    return Principal("agent", _safe(params.client_info.name if params is not None else ""), role=CLAIMED)


def _safe(name: str) -> str:
    """A claimed name as it may stand in the record: no invisible characters, no sentence."""
    shown = "".join(each for each in name[:_LONGEST] if is_plain(each)).strip()
    return shown or "mcp-client"
