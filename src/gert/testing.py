"""Test helpers for programs built on gert. Nothing is imported until it is used::

    from gert.testing import calls, hangs, memory_kernel, says

    async with memory_kernel([says({"city": "Ulm"}, expect="Where"), calls("look_up"), hangs()]) as kernel:
        ...

With `pytest_plugins = ["gert.testing"]` in a conftest.py there are also the fixtures `fake_clock`, `scripted_model`,
`agent_tenant` and `agent_kernel`; only then is pytest needed.

PYTEST_DONT_REWRITE: this module has no assertions, and a conftest.py that imports it first gets no warning.
"""

TYPE_CHECKING = False  # as `typing` has it, without the cost of importing it
if TYPE_CHECKING:
    from typing import Any

    from gert.ecosystem.host.agent.testing.clock import FakeClock, FakeIds
    from gert.ecosystem.host.agent.testing.kernels import a_tenant, memory_kernel
    from gert.ecosystem.host.agent.testing.model import ScriptedModel, ScriptMismatch
    from gert.ecosystem.host.agent.testing.replies import Reply, calls, says
    from gert.ecosystem.host.agent.testing.tool import FailingTool
    from gert.ecosystem.host.agent.testing.trouble import Trouble, dies, fails, hangs, times_out

_PLACE = "gert.ecosystem.host.agent.testing"
_PLACES = {
    "FailingTool": "tool",
    "FakeClock": "clock",
    "FakeIds": "clock",
    "Reply": "replies",
    "ScriptMismatch": "model",
    "ScriptedModel": "model",
    "Trouble": "trouble",
    "a_tenant": "kernels",
    "calls": "replies",
    "dies": "trouble",
    "fails": "trouble",
    "hangs": "trouble",
    "memory_kernel": "kernels",
    "says": "replies",
    "times_out": "trouble",
}
# Not in `__all__`: pytest finds them by name, and they are useless without it.
_FIXTURES = {
    "agent_kernel": "fixtures",
    "agent_tenant": "fixtures",
    "fake_clock": "fixtures",
    "scripted_model": "fixtures",
}

__all__ = [
    "FailingTool",
    "FakeClock",
    "FakeIds",
    "Reply",
    "ScriptMismatch",
    "ScriptedModel",
    "Trouble",
    "a_tenant",
    "calls",
    "dies",
    "fails",
    "hangs",
    "memory_kernel",
    "says",
    "times_out",
]


def __getattr__(name: str) -> "Any":
    module = _PLACES.get(name) or _FIXTURES.get(name)
    if module is None:
        raise AttributeError(f"module 'gert.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{_PLACE}.{module}"), name)


def __dir__() -> list[str]:
    return [*__all__, *_FIXTURES]
