"""The command line: one file per command, loaded when it is called."""

import gc
import os
import sys


def run() -> None:
    """Run `gert`; asking for its version must cost no more than starting Python."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from gert.ecosystem.host.config.version import version_line

        sys.stdout.write(version_line() + "\n")
        return
    # Collecting garbage while modules load finds none and takes a tenth of the time; `main` turns it on again.
    gc.disable()
    from gert.ecosystem.process.descriptors import keep_private
    from gert.ecosystem.process.own_process import take_over
    from gert.ecosystem.surfaces.cli.main import main

    keep_private()
    take_over(os.environ)
    code = main()
    # What is left is about to go anyway: keep the interpreter from looking through all of it once more.
    gc.freeze()
    sys.exit(code)
