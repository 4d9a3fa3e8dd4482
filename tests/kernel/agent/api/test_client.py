"""The model client: keys it derives, and kernels that know less than it does."""

import asyncio
import warnings
from typing import Any

import pytest
from pydantic import BaseModel, create_model

from gert.errors import CanonicalError
from gert.kernel.agent.api.client import KernelModelClient, SingleStepModelClient, derived_step_key
from gert.kernel.agent.types.api import ContextVersion, TenantContext

TENANT = TenantContext(tenant_id="acme", budget_usd_limit=1)


class Answer(BaseModel):
    """What is answered."""

    text: str


class Kernel:
    """A kernel of this version."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def step_model(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        model: str,
        input: Any,  # noqa: A002
        output_schema: Any,
        step_key: str | None = None,
        model_options: Any = None,
        replay_policy: str = "strict",
        context_version: Any = None,
        tool_drift: str = "refuse",
        on_token: Any = None,
    ) -> str:
        """Remember what was asked."""
        self.asked.append(locals())
        return "answer"


class OldKernel(Kernel):
    """A kernel that knows neither policies nor versions."""

    async def step_model(  # type: ignore[override]
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        model: str,
        input: Any,  # noqa: A002
        output_schema: Any,
        step_key: str | None = None,
        model_options: Any = None,
    ) -> str:
        """Remember what was asked."""
        self.asked.append(locals())
        return "old answer"


class VagueKernel(OldKernel):
    """A kernel that takes everything by its signature, and refuses some of it."""

    async def step_model(self, **request: Any) -> str:
        """Hand it on."""
        return await super().step_model(**request)


class BrokenKernel(Kernel):
    """A kernel with a bug of its own."""

    async def step_model(self, **request: Any) -> str:
        """Fail."""
        self.asked.append(request)
        raise TypeError("f() got an unexpected keyword argument 'nonsense'")


async def step(kernel: Any, **more: Any) -> Any:
    given: dict[str, Any] = {"model": "m", "prompt": "q", "output_schema": Answer, **more}
    return await KernelModelClient(kernel).step(run_id="r", tenant=TENANT, **given)


def test_a_kernel_of_this_version_is_told_everything() -> None:
    kernel = Kernel()
    version = ContextVersion("h")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            asyncio.run(step(kernel, replay_policy="fork_on_drift", context_version=version, step_key="k")) == "answer"
        )
    [asked] = kernel.asked
    assert (asked["replay_policy"], asked["context_version"], asked["step_key"]) == ("fork_on_drift", version, "k")
    assert asked["input"].prompt == "q"


def test_an_old_kernel_is_asked_without_what_it_does_not_know_and_says_so() -> None:
    kernel = OldKernel()
    with pytest.warns(UserWarning, match="`replay_policy`, `context_version`"):
        answer = asyncio.run(step(kernel, replay_policy="fork_on_drift", context_version=ContextVersion("h")))
    assert answer == "old answer"
    assert len(kernel.asked) == 1


def test_an_old_kernel_that_is_asked_nothing_special_needs_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert asyncio.run(step(OldKernel())) == "old answer"


def test_a_kernel_that_refuses_what_it_seemed_to_take_is_asked_without() -> None:
    kernel = VagueKernel()
    with pytest.warns(UserWarning, match="called without") as caught:
        answer = asyncio.run(step(kernel, replay_policy="fork_on_drift", context_version=ContextVersion("h")))
    assert answer == "old answer"
    assert len(kernel.asked) == 1
    assert {name for each in caught for name in ("replay_policy", "context_version") if name in str(each.message)} == {
        "replay_policy",
        "context_version",
    }


def test_another_error_of_the_same_kind_is_raised_and_nothing_asked_twice() -> None:
    kernel = BrokenKernel()
    with pytest.raises(TypeError, match="nonsense"):
        asyncio.run(step(kernel))
    assert len(kernel.asked) == 1


class AskingKernel(Kernel):
    """A kernel that fails after it has begun, in words that look like a refusal."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words

    async def step_model(self, **request: Any) -> str:
        """Ask a model."""
        return await self.complete(request)

    async def complete(self, request: dict[str, Any]) -> str:
        """Fail as a model port may."""
        self.asked.append(request)
        raise TypeError(self.words)


@pytest.mark.parametrize("function", ["acompletion", "step_model", "Kernel.step_model"])
def test_a_model_that_was_asked_is_not_asked_again_whatever_it_says(function: str) -> None:
    kernel = AskingKernel(f"{function}() got an unexpected keyword argument 'tool_drift'")
    with pytest.raises(TypeError, match="tool_drift"):
        asyncio.run(step(kernel))
    assert len(kernel.asked) == 1


def test_half_a_character_is_said_and_not_stumbled_over() -> None:
    with pytest.raises(CanonicalError, match="surrogate"):
        asyncio.run(step(Kernel(), prompt="a\ud800b"))


@pytest.mark.parametrize(("kernel", "known"), [(Kernel(), True), (OldKernel(), False), (VagueKernel(), True)])
def test_a_client_says_what_its_kernel_understands(kernel: Any, known: bool) -> None:
    found = SingleStepModelClient(kernel).capabilities()
    assert (found.supports_replay_policy, found.supports_context_version) == (known, known)


class TestDerivedKeys:
    def test_the_same_question_has_the_same_key(self) -> None:
        assert derived_step_key("m", Answer, "q") == derived_step_key("m", Answer, "q")
        assert derived_step_key("m", Answer, "q").startswith("model_step_")

    @pytest.mark.parametrize(
        ("model", "schema", "prompt"),
        [
            pytest.param("n", Answer, "q", id="another model"),
            pytest.param("m", Answer, "p", id="another prompt"),
            pytest.param("m", create_model("Other", text=(str, ...)), "q", id="another name of the schema"),
            pytest.param("m", create_model("Answer", text=(int, ...)), "q", id="another schema of the name"),
            pytest.param("mq", Answer, "", id="what is cut at another place"),
        ],
    )
    def test_another_question_has_another(self, model: str, schema: type[BaseModel], prompt: str) -> None:
        assert derived_step_key(model, schema, prompt) != derived_step_key("m", Answer, "q")

    def test_a_step_without_a_key_is_given_it(self) -> None:
        kernel = Kernel()
        asyncio.run(step(kernel))
        assert kernel.asked[0]["step_key"] == derived_step_key("m", Answer, "q")
