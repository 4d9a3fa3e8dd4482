"""`gert` and `python -m gert`."""

import sys

_INTERRUPTED = '{"error":{"code":"interrupted","message":"interrupted","hint":null,"exit_code":130}}\n'


def main() -> None:
    """Run the command line; Ctrl-C may come while it is still being loaded."""
    try:
        from gert.ecosystem.surfaces.cli import run

        run()
    except KeyboardInterrupt:
        command_line = sys.modules.get("gert.ecosystem.surfaces.cli.main")
        options = sys.argv[1 : sys.argv.index("--") if "--" in sys.argv else None]
        # Once it is loaded, it reports its own errors.
        if "--json" in options and not hasattr(command_line, "main") and sys.stdout is not None:
            sys.stdout.write(_INTERRUPTED)
        sys.stderr.write("error: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
