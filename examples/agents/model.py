"""The model of the examples: a vendor's if its key is set, and a script otherwise, so that they run offline."""

import os
from collections.abc import Callable
from typing import Any

from gert.agent import AnthropicAdapter, ModelPort, ModelRequest, OpenAIAdapter
from gert.testing import ScriptedModel

Script = Callable[[ModelRequest[Any]], Any]
"""Answers a request: with an output, with tool calls, or with both."""


def choose_model(script: Script, *, offline: bool) -> tuple[ModelPort, str]:
    """Return a model port and the name of its model.

    A script looks only at the request: a run that was interrupted can be continued by it.
    """
    if not offline and os.environ.get("OPENAI_API_KEY"):
        return OpenAIAdapter(), "gpt-5-mini"
    if not offline and os.environ.get("ANTHROPIC_API_KEY"):
        return AnthropicAdapter(), "claude-sonnet-4-5"
    return ScriptedModel(script), "scripted"
