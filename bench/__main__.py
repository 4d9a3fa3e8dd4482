"""Run every benchmark, or those named: `python -m bench engine`."""

import sys

from bench import agent, engine, ledger, outcomes, replay, startup, validate

BENCHES = {
    "validate": validate.main,
    "startup": startup.main,
    "engine": engine.main,
    "replay": replay.main,
    "outcomes": outcomes.main,
    "ledger": ledger.main,
    "agent": agent.main,
}


def main(names: list[str]) -> int:
    """Run them; 1 when a ratio is over its limit."""
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"there is no benchmark `{unknown[0]}`; there are {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    return max([BENCHES[name]() for name in names or BENCHES])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
