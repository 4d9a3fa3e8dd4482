"""An input resolver: inputs come from data that the program has, in place of a configured provider.

Run it: python examples/embedding/input_resolver.py
"""

import tempfile
from pathlib import Path

import gert
from gert.errors import InputError

RUNBOOK = """
apiVersion: kernel/v0
meta:
  name: whereabouts
  inputs:
    host: { type: string, from: provider/inventory.web-1.address }
    port: { type: int, from: provider/inventory.web-1.port, default: 443 }
steps:
  - type: end
    outcome: { category: no_action, code: found, meta: { at: "{{ .host }}:{{ .port }}" } }
"""


class Inventory:
    """Finds fields of servers; `binding.path` is what follows the name of the provider."""

    def __init__(self, servers: dict[str, dict[str, object]]) -> None:
        self._servers = servers

    def resolve(self, binding: gert.InputBinding) -> object:
        """Return a value, or None where there is none: then the default of the input applies."""
        server, _, field = binding.path.partition(".")
        if server not in self._servers:
            raise InputError(f"there is no server `{server}`")
        return self._servers[server].get(field)


def main() -> None:
    """Run it once."""
    with tempfile.TemporaryDirectory() as state:
        runbook = Path(state) / "whereabouts.yaml"
        runbook.write_text(RUNBOOK, encoding="utf-8")
        parts = gert.Parts(inputs={"inventory": Inventory({"web-1": {"address": "10.0.0.7"}})})
        executed = gert.run(str(runbook), parts=parts, state_dir=state)
    print(executed.status, executed.outcome.meta if executed.outcome is not None else executed.failure)


if __name__ == "__main__":
    main()
