"""The keys in an environment, for traces, approvals and plans, with the error of each invalid one."""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct

from gert.ecosystem.host.config.keys import approval_keys, plan_keys, trace_keys
from gert.ecosystem.host.config.keys.key_files import with_key_files
from gert.errors import IntegrityError
from gert.kernel.foundation.signature import Key, parse_key

Use = Literal["traces", "approvals", "plans"]

# The variables that hold one key each, and the prefixes of those that hold one per id.
_SINGLE: Final[Mapping[str, Use]] = {
    trace_keys.SIGNING_KEY: "traces",
    approval_keys.VERIFY_KEY: "approvals",
    approval_keys.SIGNING_KEY: "approvals",
    plan_keys.SIGNING_KEY: "plans",
    plan_keys.VERIFY_KEY: "plans",
}
_NAMED: Final[Mapping[str, Use]] = {
    trace_keys.NAMED_KEY: "traces",
    approval_keys.NAMED_KEY: "approvals",
    plan_keys.NAMED_KEY: "plans",
}


class ListedKey(Struct, frozen=True, kw_only=True):
    """A variable that should hold a key; `flaw` says why it does not."""

    variable: str
    use: Use
    key: Key | None = None
    flaw: str | None = None


def list_keys(environ: Mapping[str, str]) -> list[ListedKey]:
    """List the keys of an environment, those for traces first."""
    environ = with_key_files(environ)
    found = sorted(_variables(environ), key=lambda each: (each[1] != "traces", each[0]))
    return [_read_key(environ, name, use, key_id) for name, use, key_id in found]


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, Use, str | None]]:
    for name in environ:
        if name in _SINGLE:
            yield (
                name,
                _SINGLE[name],
                environ.get(trace_keys.SIGNING_KEY_ID) if name == trace_keys.SIGNING_KEY else None,
            )
        for start, use in _NAMED.items():
            if name.startswith(start) and name != start:
                yield name, use, name.removeprefix(start).lower()


def _read_key(environ: Mapping[str, str], name: str, use: Use, key_id: str | None) -> ListedKey:
    try:
        return ListedKey(variable=name, use=use, key=parse_key(environ[name], key_id or None))
    except IntegrityError as problem:
        return ListedKey(variable=name, use=use, flaw=problem.message)
