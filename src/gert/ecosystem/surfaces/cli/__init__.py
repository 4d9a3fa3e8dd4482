"""The command line: one file per command, imported when it is called."""

import gc
import os
import sys


def run() -> None:
    """Run `gert`; `--version` must cost no more than starting Python."""
    if sys.argv[1:] in (["--version"], ["-V"]) and sys.stdout is not None:
        from gert.ecosystem.host.config.machine.version import version_line

        sys.stdout.write(version_line() + "\n")
        return
    # Garbage collection during imports finds nothing and takes a tenth of the time; `main` enables it again.
    gc.disable()
    from gert.ecosystem.host.config.machine.process_setup import set_up_process
    from gert.ecosystem.surfaces.cli.main import main

    set_up_process(os.environ)
    code = main()
    # The process exits now: keep the interpreter from collecting everything once more.
    gc.freeze()
    sys.exit(code)
