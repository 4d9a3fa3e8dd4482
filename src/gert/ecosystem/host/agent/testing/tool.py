"""A tool that fails in the calls that a test chooses."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from gert.ecosystem.host.agent.testing.trouble import Trouble
from gert.ecosystem.tools.call import call
from gert.kernel.foundation.arguments import checks_arguments


@checks_arguments
class FailingTool:
    """A function that fails in some of its calls; register it in place of the function.

    failures: the failure of each call, counted from 1: an error, or the result of `fails`, `hangs` or `dies`
    calls: the arguments of each call
    effects: how often the function ran
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
        """Call the function, or fail."""
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
