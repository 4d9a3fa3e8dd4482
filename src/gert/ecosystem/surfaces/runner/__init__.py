"""The command `gert-runner`: one plan, one process, no listener."""

import os
import sys


def run() -> None:
    """Run `gert-runner`; the process is closed to others before it reads anything."""
    from gert.ecosystem.host.runner.one_shot import harden

    harden()
    from gert.ecosystem.surfaces.runner.command import main

    code = main(sys.argv[1:])
    sys.stdout.flush()
    # Nothing is left to do, and no exit handler gets to see the secret.
    os._exit(code)
