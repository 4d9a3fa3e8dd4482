"""Why a connection or a call failed, in gert's words: the SDK raises errors of its own, of HTTP, and groups of both."""

import ssl
from collections.abc import Callable, Iterator
from typing import Any, Final

import anyio
import httpx2
from mcp import MCPError
from mcp.types import CONNECTION_CLOSED
from pydantic import ValidationError

from gert.ecosystem.tools.mcp.links import Link
from gert.errors import GertError, RpcError, RpcFault, RpcLost
from gert.kernel.foundation.text import plain_line

_LONGEST: Final = 300
# The SDK's words for an answer that cannot come any more, and for a session that the server has forgotten.
_CLOSED: Final = "Connection closed"
_BROKEN: Final = "SSE stream "
_FORGOTTEN: Final = "Session terminated"


def is_closing(problem: Exception) -> bool:
    """Whether a request failed because the connection ended; a server can send the same code, but not the same end."""
    if isinstance(problem, MCPError):
        return problem.code == CONNECTION_CLOSED and problem.message == _CLOSED
    return isinstance(problem, anyio.ClosedResourceError | anyio.BrokenResourceError)


def rpc_error(problem: BaseException, link: Link, *, sent: bool) -> RpcError:
    """Describe a problem; `sent` says whether the server may have received a call."""
    if link.lost is not None and not isinstance(problem, RpcFault):
        return RpcLost(link.lost.message, sent=sent, by_exit=link.lost.by_exit)
    leaves = list(_leaves(problem))
    if any(isinstance(each, MCPError) and each.message == _FORGOTTEN for each in leaves):
        # Over HTTP the SDK says so of a request that was refused because its session is gone. A process has no session
        # to forget: there the words are the server's own, and it may have acted.
        is_process = link.stderr is not None
        return RpcLost(f"{link.title} has forgotten the session", sent=sent and is_process, by_exit=True)
    for kind, describe in _ROWS:
        found = next((each for each in leaves if isinstance(each, kind)), None)
        if found is not None:
            return describe(found, link.title, sent)
    return RpcFault(f"{link.title}: {_line(leaves[0])}" if leaves else f"{link.title} failed")


def _leaves(problem: BaseException) -> Iterator[BaseException]:
    if isinstance(problem, BaseExceptionGroup):
        for each in problem.exceptions:
            yield from _leaves(each)
    else:
        yield problem


def _own(problem: Any, title: str, sent: bool) -> RpcError:
    return problem if isinstance(problem, RpcError) else RpcFault(problem.message, hint=problem.hint)


def _answered(problem: Any, title: str, sent: bool) -> RpcError:
    if problem.code == CONNECTION_CLOSED and problem.message.startswith((_BROKEN, _CLOSED)):
        return RpcLost(f"the connection to {title} broke before it answered", sent=sent, by_exit=True)
    return RpcFault(f"{title} answered with an error: {_line(problem)}", code=problem.code)


def _unreachable(problem: Any, title: str, sent: bool) -> RpcError:
    return RpcLost(f"{title} cannot be reached: {_reason(problem)}", sent=False, by_exit=True)


def _broken(problem: Any, title: str, sent: bool) -> RpcError:
    return RpcLost(f"the connection to {title} broke", sent=sent, by_exit=True)


def _unreadable(problem: Any, title: str, sent: bool) -> RpcError:
    return RpcLost(f"the answer of {title} cannot be read: {_line(problem)}", sent=sent)


def _invalid(problem: Any, title: str, sent: bool) -> RpcError:
    first = problem.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"]))
    return RpcFault(f"{title} answered with something that MCP does not allow: {plain_line(where, 80)}: {first['msg']}")


def _ended(problem: Any, title: str, sent: bool) -> RpcError:
    return RpcLost(f"the connection to {title} ended", sent=sent, by_exit=True)


def _late(problem: Any, title: str, sent: bool) -> RpcError:
    return RpcLost(f"{title} did not answer in time", sent=sent)


# The first row that fits decides; among several problems of a group, the most telling one.
_ROWS: Final[tuple[tuple[Any, Callable[[Any, str, bool], RpcError]], ...]] = (
    (GertError, _own),
    (httpx2.ConnectError, _unreachable),
    (httpx2.ConnectTimeout, _unreachable),
    (httpx2.ProxyError, _unreachable),
    (httpx2.DecodingError, _unreadable),
    (httpx2.TransportError, _broken),
    (httpx2.StreamError, _unreadable),
    (MCPError, _answered),
    (ValidationError, _invalid),
    ((anyio.ClosedResourceError, anyio.BrokenResourceError), _ended),
    (TimeoutError, _late),
)


def _reason(problem: BaseException) -> str:
    """Describe why a connection was not made, by its kind alone: texts of libraries may hold a proxy's password."""
    cause: BaseException | None = problem
    for _ in range(10):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "its certificate cannot be verified"
        if isinstance(cause, ssl.SSLError):
            return "the TLS handshake failed"
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused"
        cause = cause.__cause__ or cause.__context__ if cause is not None else None
    return "the connection failed"


def _line(problem: BaseException) -> str:
    return plain_line(str(problem), _LONGEST) or type(problem).__name__
