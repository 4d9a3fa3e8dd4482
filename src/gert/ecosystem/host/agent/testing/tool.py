"""A tool that fails when a test says so."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from gert.ecosystem.host.agent.testing.trouble import Trouble
from gert.ecosystem.tools.call import call
from gert.kernel.foundation.arguments import checks_arguments


@checks_arguments
class FailingTool:
    """A function that goes wrong in some of its calls; it is registered in place of the function.

    failures: what happens in which call, counted from 1: an error, or what `fails`, `hangs` and `dies` make
    calls: the arguments of each call
    effects: how often the function did its work
    """

    __name__: str

    def __init__(
        self,
        function: Callable[..., Any],
        failures: Mapping[int, BaseException | Trouble] | Callable[[int], BaseException | Trouble | None],
    ) -> None:
        functools.update_wrapper(self, function)
        self.calls: list[dict[str, Any]] = []
        self.effects = 0
        self._function = function
        self._failure = failures if callable(failures) else failures.get

    async def __call__(self, **arguments: Any) -> Any:
        """Do what the function does, or go wrong."""
        self.calls.append(arguments)
        failure = self._failure(len(self.calls))
        trouble = Trouble(error=failure) if isinstance(failure, BaseException) else failure
        if trouble is not None and not trouble.after_effect:
            await trouble.happen()
        found = await call(self._function, arguments)
        self.effects += 1
        if trouble is not None:
            await trouble.happen()
        return found
