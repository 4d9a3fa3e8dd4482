"""Start a program beside `gert`: errors end it with a line on standard error and an exit code."""

import os
import sys
from typing import NoReturn

import click

from gert.ecosystem.host.config.machine.process_setup import set_up_process
from gert.ecosystem.surfaces.cli.render.output import print_error
from gert.errors import Exit, GertError, exit_of


def run_program(command: click.Command) -> NoReturn:
    """Run the command of a program, and end the process."""
    set_up_process(os.environ)
    try:
        sys.exit(command.main(standalone_mode=False))
    except GertError as problem:
        print_error(problem.message, problem.hint)
        sys.exit(exit_of(problem))
    except click.ClickException as problem:
        problem.show()
        sys.exit(Exit.USAGE)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(Exit.INTERRUPTED)
