"""`gert` and `python -m gert`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C may come while it is still being loaded."""
    try:
        from gert.ecosystem.surfaces.cli import run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
