"""Inputs from a prompt: one question each, with what the author declared about it."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

from gert.errors import InputError
from gert.kernel.engine.inputs import BatchAnswer, InputBinding, fit
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.values import show

ATTEMPTS: Final = 3


class Asker(Protocol):
    """The console that shows prompts and reads lines."""

    @property
    def interactive(self) -> bool:
        """Whether a user sees the question and can correct an answer."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Keep a dialogue together, without other output in between."""

    def say(self, text: str) -> None:
        """Show lines of text."""

    async def line(self, prompt: str, *, hidden: bool = False) -> str | None:
        """Ask for a line; None at the end of the input."""


class PromptResolver:
    """Asks for each input in turn; on a terminal it asks again after an invalid value."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def resolve(self, bindings: Sequence[InputBinding]) -> BatchAnswer:
        """Return the answers; an empty line leaves an input to its default."""
        values: dict[str, Any] = {}
        failures: dict[str, Failure] = {}
        async with self._asker.turn():
            for binding in bindings:
                try:
                    answer = await self._ask(binding)
                except InputError as problem:
                    failures[binding.name] = Failure("invalid_input", problem.message)
                    break
                if answer is not None:
                    values[binding.name] = answer
        return BatchAnswer(values, failures)

    async def _ask(self, binding: InputBinding) -> str | None:
        """Ask for one input; after the last attempt the kernel reports what is wrong with the answer."""
        for line in description_of(binding):
            self._asker.say(line)
        answer: str | None = None
        for _ in range(ATTEMPTS if self._asker.interactive else 1):
            answer = await self._asker.line(f"{binding.name}: ", hidden=binding.parameter.secret)
            if answer is None:
                return None
            answer = answer or None
            why = _objection(answer, binding)
            if why is None:
                return answer
            self._asker.say(f"  {why}")
        return answer


def description_of(binding: InputBinding) -> list[str]:
    """Return the lines that describe an input to the user."""
    parameter = binding.parameter
    facts: list[str] = [parameter.type]
    if parameter.enum is not None:
        facts.append(f"one of {', '.join(show(choice) for choice in parameter.enum)}")
    if parameter.has_default:
        facts.append("has a default" if parameter.secret else f"default {show(parameter.default)}")
    elif not parameter.required:
        facts.append("may be left empty")
    if parameter.secret:
        facts.append("secret, not shown")
    return [*(parameter.description or "").splitlines(), f"`{binding.name}` ({', '.join(facts)})"]


def _objection(answer: str | None, binding: InputBinding) -> str | None:
    if answer is None:
        return "a value is required" if binding.parameter.must_be_given else None
    try:
        fit(answer, binding.parameter)
    except InputError as problem:
        return f"{problem.message} ({problem.hint})" if problem.hint else problem.message
    return None
