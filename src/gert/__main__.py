"""`gert` and `python -m gert`."""


def main() -> None:
    """Run the command line."""
    from gert.ecosystem.surfaces.cli import run

    run()


if __name__ == "__main__":
    main()
