"""The promises of input resolvers."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from gert.ecosystem.host.embedding.inputs import EmbeddedResolver
from gert.ecosystem.host.embedding.promises import Promise, cancel, promises, require
from gert.ecosystem.inputs import Resolver
from gert.kernel.engine.inputs import BatchAnswer, InputBinding
from gert.kernel.foundation.canonical import canonical
from gert.kernel.governance.parameter import Parameter


class ResolverCase(msgspec.Struct, frozen=True, kw_only=True):
    """A resolver under test, and what it knows.

    known: values by path
    missing: a path without a value
    failing: a path that cannot be found out, if there is one
    slow: a path whose answer takes at least seconds, if there is one
    """

    resolver: Any
    known: Mapping[str, Any]
    missing: str
    failing: str | None = None
    slow: str | None = None


def binding(path: str, name: str) -> InputBinding:
    """An input that is bound to a path."""
    return InputBinding(name=name, source=f"provider/test.{path}", path=path, parameter=Parameter(required=True))


async def _ask(case: ResolverCase, *paths: str) -> BatchAnswer:
    resolver: Resolver = case.resolver
    return await resolver.resolve([binding(path, f"input{number}") for number, path in enumerate(paths)])


async def _finds_values(case: ResolverCase) -> None:
    """every known path has its value."""
    for path, value in case.known.items():
        answer = await _ask(case, path)
        require(answer == BatchAnswer({"input0": value}), f"expected {value!r} at `{path}`, found {answer}")


async def _answers_each(case: ResolverCase) -> None:
    """several inputs at once get their own values, in any order."""
    paths = [*case.known, *reversed(list(case.known))]
    answer = await _ask(case, *paths)
    expected = {f"input{number}": case.known[path] for number, path in enumerate(paths)}
    require(answer == BatchAnswer(expected), f"expected {expected}, found {answer}")


async def _leaves_out_missing(case: ResolverCase) -> None:
    """a path without a value is no failure, so that the default of the input applies."""
    answer = await _ask(case, case.missing)
    require(answer == BatchAnswer(), f"expected no value at `{case.missing}`, found {answer}")


async def _reports_failures(case: ResolverCase) -> None:
    """a path that cannot be found out is a failure with a reason, and never a value."""
    if case.failing is not None:
        answer = await _ask(case, case.failing)
        require(not answer.values and answer.failures, f"expected a failure at `{case.failing}`, found {answer}")
        require(all(each.message for each in answer.failures.values()), "a failure gives no reason")


async def _keeps_no_state(case: ResolverCase) -> None:
    """equal calls have equal answers, also at the same time."""
    paths = (*case.known, case.missing)
    first, second = await asyncio.gather(_ask(case, *paths), _ask(case, *paths))
    require(first == second == await _ask(case, *paths), f"expected equal answers, found {first} and {second}")


async def _gives_plain_data(case: ResolverCase) -> None:
    """values are plain data that can be recorded."""
    canonical(dict((await _ask(case, *case.known)).values))


async def _can_be_cancelled(case: ResolverCase) -> None:
    """a call can be cancelled."""
    if case.slow is not None:
        task = asyncio.create_task(_ask(case, case.slow))
        await asyncio.sleep(0.2)
        require(not task.done(), f"`{case.slow}` was answered at once: name a path that takes seconds")
        await cancel(task, "`resolve`")


_CHECKS: Final = (
    _finds_values,
    _answers_each,
    _leaves_out_missing,
    _reports_failures,
    _keeps_no_state,
    _gives_plain_data,
    _can_be_cancelled,
)


def resolver_promises(make: Callable[[], Any]) -> list[Promise]:
    """The promises of a resolver as the resolution of inputs uses it; `make` returns a `ResolverCase`."""
    return promises(_CHECKS, make)


def input_resolver_promises(make: Callable[[], Any]) -> list[Promise]:
    """The promises of an input resolver.

    make: returns a `ResolverCase` with a new resolver; it may be async
    """

    def case(given: ResolverCase) -> ResolverCase:
        return msgspec.structs.replace(given, resolver=EmbeddedResolver(given.resolver))

    return promises(_CHECKS, make, case)
