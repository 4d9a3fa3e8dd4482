"""`gert completion`: the script that makes a shell complete gert's commands and options."""

import click
from click.shell_completion import get_completion_class

from gert.ecosystem.surfaces.cli.render.output import print_line
from gert.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
_WHERE = {
    "bash": "source <(gert completion bash)   # in ~/.bashrc",
    "zsh": "source <(gert completion zsh)   # in ~/.zshrc",
    "fish": "gert completion fish > ~/.config/fish/completions/gert.fish",
}


@click.command(name="completion", epilog="Example: gert completion fish > ~/.config/fish/completions/gert.fish")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print the completion script for SHELL: bash, zsh or fish.

    Load it in the start-up file of your shell; `gert completion bash` names the line.
    """
    from gert.ecosystem.surfaces.cli.main import group

    found = get_completion_class(shell)
    if found is None:
        raise UsageError(f"there is no completion for `{shell}`")
    try:
        source = found(group, {}, "gert", "_GERT_COMPLETE").source()
    except RuntimeError as problem:  # bash older than 4.4
        raise UsageError(str(problem)) from None
    print_line(f"# {_WHERE[shell]}")
    print_line(source.strip("\n"))
    return 0
