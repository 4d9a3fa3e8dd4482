"""Run every benchmark, or those named: `python -m bench engine`."""

import sys
from collections.abc import Callable

from bench import agent, engine, ledger, mcp_calls, mcp_server, outcomes, replay, rpc, startup, tui, validate

BENCHES = {
    "validate": validate.main,
    "startup": startup.main,
    "engine": engine.main,
    "replay": replay.main,
    "outcomes": outcomes.main,
    "ledger": ledger.main,
    "agent": agent.main,
    "rpc": rpc.main,
    "mcp": mcp_calls.main,
    "mcp-server": mcp_server.main,
    "tui": tui.main,
}


def main(names: list[str]) -> int:
    """Run them; 1 when a ratio is over its limit."""
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"there is no benchmark `{unknown[0]}`; there are {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    return max([_measured(BENCHES[name]) for name in names or BENCHES])


def _measured(bench: Callable[[], int]) -> int:
    """Run one, and say how much of the processors others took meanwhile: ratios to a fixed time feel that."""
    before = _jiffies()
    code = bench()
    taken = [after - earlier for earlier, after in zip(before, _jiffies(), strict=True)]
    if sum(taken):
        print(f"     others took {taken[_STOLEN] / sum(taken):.0%} of the processors meanwhile")
    return code


_STOLEN = 7


def _jiffies() -> list[int]:
    """How this machine spent its time: working, waiting, and not running at all because its host did otherwise."""
    try:
        with open("/proc/stat") as file:
            return [int(each) for each in file.readline().split()[1:9]]
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
