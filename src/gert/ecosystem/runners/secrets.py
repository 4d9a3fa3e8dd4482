"""Resolve a `secret_ref` in memory; the value goes to the request and nowhere else.

No message of this module holds a value, and none repeats what a file, a command or a server said.
"""

import asyncio
import os
import re
import stat
import threading
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, BinaryIO, Final

import msgspec

from gert.ecosystem.process.helper import Output, read_helper
from gert.errors import Refused
from gert.kernel.runbook.documents.runner import SecretSourcesBlock, VaultBlock

MAX_SECRET: Final = 64 * 1024
COMMAND_TIMEOUT: Final = 30.0
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}\Z")
_OTHERS: Final = 0o077
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "USER")
"""What a command that resolves a secret gets of the environment; its own settings belong into the command."""


class Secret:
    """A secret value that no log or repr shows."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__


class Resolving(msgspec.Struct, frozen=True, kw_only=True):
    """How this runner resolves secrets.

    environ: its environment; a variable is taken out of it when it is used
    dispatched: gert itself started the runner, so no secret can come from the environment
    """

    environ: MutableMapping[str, str]
    sources: SecretSourcesBlock | None = None
    dispatched: bool = False


async def resolve(reference: str, resolving: Resolving) -> Secret:
    """Resolve a reference; Refused where it cannot be, or what was found cannot be a secret."""
    scheme, _, path = reference.partition("://")
    found = await _RESOLVERS[scheme](path, resolving)
    value = found.removesuffix("\n").removesuffix("\r")
    if not value.strip():
        raise Refused("secret/empty", f"the secret behind `{reference}` is empty")
    if "\0" in value or len(value) > MAX_SECRET:
        raise Refused("secret/form", f"what is behind `{reference}` cannot be a secret: it holds NUL or is too long")
    return Secret(value)


async def _from_environment(name: str, resolving: Resolving) -> str:
    if resolving.dispatched:
        raise Refused("secret/env", "a runner that gert starts takes no secret from its environment")
    if not _VARIABLE.match(name) or name.startswith("GERT_"):
        raise Refused("secret/env", f"`env://{name}` names no variable that may hold a secret")
    value = resolving.environ.pop(name, None)
    if value is None:
        raise Refused("secret/absent", f"the environment variable `{name}` is not set")
    return value


async def _from_file(path: str, _: Resolving) -> str:
    if not path.startswith("/"):
        raise Refused("secret/file", f"`file://{path}` is not an absolute path", hint="write file:///path/to/file")
    with open_private(path) as file:
        return _text(file.read(MAX_SECRET + 2), f"file://{path}")


async def _from_key_value(path: str, resolving: Resolving) -> str:
    kv = resolving.sources.kv if resolving.sources is not None else None
    if kv is None:
        raise Refused(
            "secret/resolver", "this runner has no resolver for `kv://`", hint="set `secrets.kv` of the runner"
        )
    folder, _, field = path.rpartition("/")
    if not folder or not field:
        raise Refused("secret/resolver", f"`kv://{path}` has no field", hint="write kv://PATH/FIELD")
    if kv.vault is not None:
        return await asyncio.to_thread(_from_vault, kv.vault, folder, field)
    return await _from_command(kv.command or (), {"path": folder, "field": field}, resolving, f"kv://{path}")


async def _from_named_command(path: str, resolving: Resolving) -> str:
    name, _, rest = path.partition("/")
    command = resolving.sources.cmd.get(name) if resolving.sources is not None else None
    if command is None:
        raise Refused("secret/resolver", f"this runner has no command `{name}`", hint="set `secrets.cmd` of the runner")
    return await _from_command(command, {"path": rest}, resolving, f"cmd://{path}")


async def _from_command(
    command: tuple[str, ...], parts: Mapping[str, str], resolving: Resolving, reference: str
) -> str:
    """Run a vault's own program; its arguments hold the path of the secret, never the secret."""
    if any(part.startswith("-") for part in parts.values()):
        raise Refused(
            "secret/resolver", f"a part of `{reference}` begins with `-`, which a command may take for an option"
        )
    words = [re.sub(r"\{(path|field)\}", lambda found: parts.get(found[1], ""), word) for word in command]
    environ = {name: resolving.environ[name] for name in _PASSED_ON if name in resolving.environ}
    name = os.path.basename(words[0])
    try:
        ended = await _ended(words, environ)
    except (OSError, ValueError):
        raise Refused("secret/command", f"the command `{name}` for `{reference}` cannot be started") from None
    if ended.code != 0:
        raise Refused("secret/command", f"the command `{name}` for `{reference}` ended with {ended.code}")
    return _text(ended.stdout, reference)


async def _ended(words: list[str], environ: Mapping[str, str]) -> Output:
    """Run a command to its end; when cancelled, it and what it started have ended before this returns."""
    given_up = threading.Event()
    running = asyncio.ensure_future(
        asyncio.to_thread(read_helper, words, environ, limit=MAX_SECRET + 2, timeout=COMMAND_TIMEOUT, given_up=given_up)
    )
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        given_up.set()
        await asyncio.wait({running})
        raise


def _from_vault(vault: VaultBlock, path: str, field: str) -> str:
    try:
        import hvac
    except ImportError:
        raise Refused("secret/resolver", "`vault` needs the extra `gert[vault]`") from None
    with open_private(vault.token_file) as token:
        client = hvac.Client(
            url=vault.url,
            token=_text(token.read(MAX_SECRET), vault.token_file).strip(),
            verify=vault.ca_file or True,
            timeout=10,
            allow_redirects=False,  # the token goes to this server only
        )
    try:
        client.session.trust_env = False  # no proxy, and no other token than the one in the file
        found: Any = client.secrets.kv.v2.read_secret_version(
            path=path, mount_point=vault.mount, raise_on_deleted_version=True
        )
        value = found["data"]["data"][field]
    except Exception as problem:
        # What the library says may hold an address with a token, or the secret of another field.
        raise Refused("secret/vault", f"Vault does not give `kv://{path}/{field}`: {type(problem).__name__}") from None
    finally:
        client.adapter.close()
    if not isinstance(value, str):
        raise Refused("secret/vault", f"what Vault has for `kv://{path}/{field}` is not text")
    return value


def open_private(path: str) -> BinaryIO:
    """Open a file that only its owner may read; Refused where others may."""
    try:
        # A link could be changed by another user, and a pipe would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        found = os.fstat(descriptor)
    except (OSError, ValueError) as problem:
        why = (getattr(problem, "strerror", None) or "it is not a path").lower()
        raise Refused("secret/file", f"`{path}` cannot be opened: {why}") from None
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise Refused("secret/file", f"`{path}` is not a regular file")
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & _OTHERS:
        os.close(descriptor)
        raise Refused("secret/mode", f"`{path}` is not for its owner alone", hint=f"chmod 600 {path}")
    return open(descriptor, "rb")


def _text(data: bytes, reference: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refused("secret/form", f"what is behind `{reference}` is not UTF-8 text") from None


_RESOLVERS: Final[Mapping[str, Callable[[str, Resolving], Awaitable[str]]]] = {
    "env": _from_environment,
    "file": _from_file,
    "kv": _from_key_value,
    "cmd": _from_named_command,
}
