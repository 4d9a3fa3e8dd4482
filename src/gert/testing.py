"""Test helpers for programs built on gert. Nothing is imported until it is used::

    from gert.testing import calls, hangs, memory_kernel, says

    async with memory_kernel([says({"city": "Ulm"}, expect="Where"), calls("look_up"), hangs()]) as kernel:
        ...

The suites `…_promises` check what gert relies on in parts of your own: see `docs/embedding.md`.

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
    from gert.ecosystem.host.embedding.promises import Promise
    from gert.ecosystem.host.embedding.promises.approvals import approval_provider_promises
    from gert.ecosystem.host.embedding.promises.inputs import ResolverCase, input_resolver_promises
    from gert.ecosystem.host.embedding.promises.signatures import signature_verifier_promises
    from gert.ecosystem.host.embedding.promises.tools import Example, ExecutorCase, tool_executor_promises

_AGENT = "gert.ecosystem.host.agent.testing"
_PROMISES = "gert.ecosystem.host.embedding.promises"
_PLACES = {
    "Example": f"{_PROMISES}.tools",
    "ExecutorCase": f"{_PROMISES}.tools",
    "Promise": _PROMISES,
    "ResolverCase": f"{_PROMISES}.inputs",
    "approval_provider_promises": f"{_PROMISES}.approvals",
    "input_resolver_promises": f"{_PROMISES}.inputs",
    "signature_verifier_promises": f"{_PROMISES}.signatures",
    "tool_executor_promises": f"{_PROMISES}.tools",
    "FailingTool": f"{_AGENT}.tool",
    "FakeClock": f"{_AGENT}.clock",
    "FakeIds": f"{_AGENT}.clock",
    "Reply": f"{_AGENT}.replies",
    "ScriptMismatch": f"{_AGENT}.model",
    "ScriptedModel": f"{_AGENT}.model",
    "Trouble": f"{_AGENT}.trouble",
    "a_tenant": f"{_AGENT}.kernels",
    "calls": f"{_AGENT}.replies",
    "dies": f"{_AGENT}.trouble",
    "fails": f"{_AGENT}.trouble",
    "hangs": f"{_AGENT}.trouble",
    "memory_kernel": f"{_AGENT}.kernels",
    "says": f"{_AGENT}.replies",
    "times_out": f"{_AGENT}.trouble",
}
# Not in `__all__`: pytest finds them by name, and they are useless without it.
_FIXTURES = {
    "agent_kernel": f"{_AGENT}.fixtures",
    "agent_tenant": f"{_AGENT}.fixtures",
    "fake_clock": f"{_AGENT}.fixtures",
    "scripted_model": f"{_AGENT}.fixtures",
}

__all__ = [
    "Example",
    "ExecutorCase",
    "FailingTool",
    "FakeClock",
    "FakeIds",
    "Promise",
    "Reply",
    "ResolverCase",
    "ScriptMismatch",
    "ScriptedModel",
    "Trouble",
    "a_tenant",
    "approval_provider_promises",
    "calls",
    "dies",
    "fails",
    "hangs",
    "input_resolver_promises",
    "memory_kernel",
    "says",
    "signature_verifier_promises",
    "times_out",
    "tool_executor_promises",
]


def __getattr__(name: str) -> "Any":
    module = _PLACES.get(name) or _FIXTURES.get(name)
    if module is None:
        raise AttributeError(f"module 'gert.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return [*__all__, *_FIXTURES]
