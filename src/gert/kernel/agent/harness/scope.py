"""The work that a harness does at the moment, and the step keys in it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from gert.kernel.agent.harness.types import HarnessContext, TraceLevel
from gert.kernel.agent.replay.step_keys import normalized
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps

_HASH = 12
SCOPE = "harness"
"""The scope of a wake; not the name of the class, which may change while runs are in flight."""


@dataclass
class Scope:
    """A wake of a harness, or one of its tasks.

    name: the beginning of its step keys
    task_id: the task, if it is one
    counts: how often each step was taken in it
    """

    context: HarnessContext
    trace_level: TraceLevel
    name: str
    task_id: str | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def key(self, what: str, content: object = None) -> str:
        """Return the key of the next step: the n-th of its kind in this scope.

        It contains a hash of what is asked, so that changed code never gets the answer to another question.
        """
        named = "" if content is None else f"_{sha256_hex(canonical_json_dumps(content).encode())[:_HASH]}"
        label = f"{self.name}_{normalized(what)}{named}"
        self.counts[label] += 1
        return f"{label}_{self.counts[label]}"

    def of_task(self, task_id: str) -> "Scope":
        """Return the scope of a task in this one."""
        hashed = sha256_hex(task_id.encode())[:_HASH]
        return Scope(self.context, self.trace_level, f"task_{hashed}", task_id)


_SCOPE: ContextVar[Scope | None] = ContextVar("gert_harness_scope", default=None)


def current_scope() -> Scope | None:
    """Return the scope of the current work, if any."""
    return _SCOPE.get()


@contextmanager
def working_in(scope: Scope) -> Iterator[Scope]:
    """Work in a scope while this is entered."""
    token = _SCOPE.set(scope)
    try:
        yield scope
    finally:
        _SCOPE.reset(token)
