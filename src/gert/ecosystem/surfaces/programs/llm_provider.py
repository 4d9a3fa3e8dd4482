"""`gert-llm-provider`: ask a model one question; the program of the tool `llm` (ecosystem-v0 §18)."""

import asyncio
import os
import sys

import click
import msgspec

from gert.ecosystem.host.llm.provider import DEFAULT_MODEL, Question, answer, provider_of
from gert.ecosystem.surfaces.cli.render.output import print_error
from gert.errors import Exit, GertError, ModelError, UsageError, exit_of

_MAX_PROMPT = 4 * 1024 * 1024


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: echo 'Why is the sky blue?' | gert-llm-provider complete --model claude-4-opus",
)
def group() -> None:
    """Ask models, as a tool of gert."""


@group.command(epilog="Example: echo 'Hello' | LLM_PROVIDER=echo gert-llm-provider complete")
@click.option("--model", default=DEFAULT_MODEL, show_default=True, help="Model to ask.")
@click.option("--temp", "temperature", type=click.FloatRange(0, 2), help="Temperature (default: the vendor's).")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer in tokens (default: the vendor's).")
@click.option(
    "--provider",
    metavar="NAME|URL",
    help="auto, anthropic, openai, echo, script:FILE, or the URL of an OpenAI-compatible server "
    "(default: $LLM_PROVIDER, or auto).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer and its usage as one JSON object.")
def complete(model: str, temperature: float | None, max_tokens: int | None, provider: str | None, as_json: bool) -> int:
    """Ask a model the question on standard input; print its answer, and the usage on standard error.

    Keys come from the environment: ANTHROPIC_API_KEY, OPENAI_API_KEY, or for a URL the variable that LLM_API_KEY_ENV
    names.
    """
    question = Question(prompt=_prompt(), model=model, temperature=temperature, max_tokens=max_tokens)
    reply = asyncio.run(answer(question, os.environ, provider_of(os.environ, provider)))
    usage = msgspec.json.encode(reply.usage).decode()
    if as_json:
        click.echo(msgspec.json.encode({"response": reply.text, "usage": reply.usage}).decode())
    else:
        click.echo(reply.text)
        click.echo(f"usage: {usage}", err=True)
    return Exit.DONE


def _prompt() -> str:
    data = sys.stdin.buffer.read(_MAX_PROMPT + 1)
    if len(data) > _MAX_PROMPT:
        raise UsageError(f"the prompt is longer than {_MAX_PROMPT} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError("the prompt is not UTF-8") from None


def main() -> int:
    """Run the program."""
    try:
        code = group.main(standalone_mode=False)
        return code if isinstance(code, int) else Exit.DONE
    except GertError as problem:
        print_error(problem.message, problem.hint)
        return Exit.REFUSED if isinstance(problem, ModelError) else exit_of(problem)
    except click.ClickException as problem:
        print_error(problem.format_message())
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
