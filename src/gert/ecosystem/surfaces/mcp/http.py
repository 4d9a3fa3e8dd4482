"""MCP over streamable HTTP: loopback only, Host and Origin checked, a bearer token for every request."""

import asyncio
import os
import secrets
import stat
from collections.abc import Mapping
from typing import Any, Final

from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl

from gert.errors import UsageError
from gert.kernel.foundation.text import is_plain

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
MOST_BODY: Final = 1024 * 1024
VARIABLE: Final = "GERT_MCP_TOKEN"
_SHORTEST: Final = 20
_SUBJECT: Final = "mcp-token"


class FixedTokens:
    """Verifies tokens against a list of subjects and tokens, in constant time."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._tokens = {subject: token.encode() for subject, token in tokens.items()}

    async def verify_token(self, token: str) -> AccessToken | None:
        """Who has this token."""
        said, found = token.encode(), None
        for subject, known in self._tokens.items():
            if secrets.compare_digest(said, known):
                found = subject
        return AccessToken(token=token, client_id=found, scopes=[], subject=found) if found is not None else None


class SignedTokens:
    """Verifies JSON web tokens of an OAuth issuer: signature, issuer, audience and expiry."""

    def __init__(self, issuer: str, audience: str, keys_url: str | None = None) -> None:
        import jwt

        self._issuer, self._audience = issuer, audience
        self._keys = jwt.PyJWKClient(keys_url or f"{issuer.rstrip('/')}/.well-known/jwks.json", timeout=10)

    async def verify_token(self, token: str) -> AccessToken | None:
        """The subject of a valid token; None for every other."""
        import jwt

        try:
            key = await asyncio.to_thread(self._keys.get_signing_key_from_jwt, token)
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=["RS256", "ES256", "EdDSA", "PS256"],
                audience=self._audience,
                issuer=self._issuer,
                options={"require": ["exp", "sub"]},
            )
        except jwt.PyJWTError:
            return None
        return AccessToken(
            token=token,
            client_id=str(claims.get("client_id") or claims.get("azp") or claims["sub"]),
            scopes=str(claims.get("scope", "")).split(),
            expires_at=int(claims["exp"]),
            resource=self._audience,
            subject=str(claims["sub"]),
            claims={"iss": self._issuer},
        )


def fixed_tokens(file: str | None, environ: Mapping[str, str]) -> FixedTokens:
    """The tokens in a file that only its owner can read, `SUBJECT TOKEN` a line, or the one in the environment."""
    tokens: dict[str, str] = {}
    if file is not None:
        for number, line in enumerate(_read(file).splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2 or not is_plain(words[0]):
                raise UsageError(f"line {number} of the token file is not `SUBJECT TOKEN`")
            if words[0] in tokens or words[1] in tokens.values():
                raise UsageError(
                    f"line {number} of the token file repeats a subject or a token", hint="each has one of its own"
                )
            tokens[words[0]] = words[1]
    elif environ.get(VARIABLE):
        tokens[_SUBJECT] = environ[VARIABLE].strip()
    if not tokens:
        raise UsageError(
            "HTTP needs a bearer token",
            hint=f"set {VARIABLE}, or pass --token-file with `SUBJECT TOKEN` lines",
        )
    if any(len(token) < _SHORTEST for token in tokens.values()):
        raise UsageError(
            f"a bearer token has at least {_SHORTEST} characters", hint="for example: openssl rand -hex 32"
        )
    return FixedTokens(tokens)


def _read(file: str) -> str:
    try:
        status = os.stat(file)
        if not stat.S_ISREG(status.st_mode) or (os.name == "posix" and status.st_mode & 0o077):
            raise UsageError(f"others can read the token file `{file}`", hint=f"chmod 600 {file}")
        with open(file, encoding="utf-8") as opened:
            return opened.read(MOST_BODY)
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"the token file `{file}` cannot be read: {problem}") from None


def http_app(
    server: Server[Any], host: str, port: int, verifier: FixedTokens | SignedTokens, issuer: str | None
) -> Any:
    """The ASGI application; refuses an address that other machines could reach."""
    if host not in LOOPBACK:
        raise UsageError(
            f"expected a loopback address, found `{host}`",
            hint="put a TLS proxy in front of it to serve other machines",
        )
    here = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    names = ["127.0.0.1", "localhost", "[::1]"]
    return server.streamable_http_app(
        host=host,
        max_request_body_size=MOST_BODY,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=[f"{name}:{port}" for name in names],
            allowed_origins=[f"http://{name}:{port}" for name in names],
        ),
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(issuer or here),
            resource_server_url=AnyHttpUrl(f"{here}/mcp"),
            validate_token_resource=False,  # the verifier checks the audience
        ),
        token_verifier=verifier,
    )


async def serve_http(app: Any, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM."""
    import uvicorn

    config = uvicorn.Config(app, host=host, port=port, log_level="warning", server_header=False)
    await uvicorn.Server(config).serve()
