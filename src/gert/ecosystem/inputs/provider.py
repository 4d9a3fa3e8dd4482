"""Inputs from a provider: a program that speaks JSON-RPC on its standard input and output (ecosystem-v0 §10).

It gets one call for all inputs that are bound to it, and is stopped after its answer:

    → {"jsonrpc": "2.0", "id": 1, "method": "resolve", "params": {
        "bindings": [{"input": "hostname", "path": "server.hostname", "type": "string"}], "config": {…}}}
    ← {"jsonrpc": "2.0", "id": 1, "result": {"hostname": "srv1.example.com"}}

An input that the result leaves out has no value. An error fails every input; its `data` may say more about single ones:
`{"inputs": {"hostname": "there is no server `srv9`"}}`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gert.ecosystem.inputs.foreign import all_failed, answer_from, foreign_failure
from gert.ecosystem.process.command import Command
from gert.ecosystem.rpc import Server, Servers
from gert.errors import InputError, RpcFault, RpcLost, RpcTimeout
from gert.kernel.engine.inputs import BatchAnswer, InputBinding
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.redaction import Redactor

METHOD: Final = "resolve"
MAX_ANSWER: Final = 4 * 1024 * 1024
"""Bytes of a request and of an answer."""


GRACE: Final = 0.5
"""Seconds for each way to stop the program: it only reads, so there is nothing to finish."""


class ProviderResolver:
    """Resolves inputs with one configured provider.

    find: finds the command of the program when it is needed, or says why it cannot be started
    redactor: masks known secrets in what the program prints
    """

    def __init__(
        self,
        name: str,
        config: Mapping[str, Any],
        find: Callable[[], Command | Failure],
        redactor: Callable[[], Redactor],
        seconds: float,
    ) -> None:
        self._title = f"the provider `{name}`"
        self._name = name
        self._config = config
        self._find = find
        self._redactor = redactor
        self._seconds = seconds

    async def resolve(self, bindings: Sequence[InputBinding]) -> BatchAnswer:
        """Ask for all inputs in one call; the program has ended when this returns."""
        command = self._find()
        if isinstance(command, Failure):
            return all_failed(bindings, command.kind, f"{self._title} cannot be started: {command.message}")
        server = Server(
            name=self._name,
            title=self._title,
            command=command,
            redactor=self._redactor(),
            limit=MAX_ANSWER,
            grace=GRACE,
        )
        params = {"bindings": [_binding(each) for each in bindings], "config": dict(self._config)}
        servers = Servers()
        try:
            # It only reads, so a program that exits may be called again.
            answered = await servers.call(server, METHOD, params, timeout=self._seconds, retries=True)
        except RpcFault as fault:
            return self._refused(bindings, fault)
        except RpcTimeout as problem:
            return all_failed(bindings, "timeout", problem.message)
        except (RpcLost, InputError) as problem:
            return all_failed(bindings, "transport", problem.message)
        finally:
            await servers.close()
        if not isinstance(answered.result, dict):
            what = "expected values by input, found something else"
            return all_failed(bindings, "transport", f"{self._title} broke the protocol: {what}")
        return answer_from(bindings, answered.result, self._title)

    def _refused(self, bindings: Sequence[InputBinding], fault: RpcFault) -> BatchAnswer:
        """The failures of the inputs that the error is about, or of all of them."""
        data = fault.data if isinstance(fault.data, dict) else {}
        hint = f" ({data['hint']})" if isinstance(data.get("hint"), str) else ""
        message = f"{self._title} answered with an error: {fault.message}{hint} (code {fault.code})"
        failed = all_failed(bindings, "tool_error", message)
        single = data.get("inputs")
        told = single if isinstance(single, dict) else {}
        # What it says of one input may quote the value of another.
        hides = any(each.parameter.secret for each in bindings)
        named = {
            each.name: foreign_failure(each, "tool_error", f"{self._title} answered: {told[each.name]}", hides=hides)
            for each in bindings
            if isinstance(told.get(each.name), str)
        }
        return msgspec.structs.replace(failed, failures={**failed.failures, **named})


def _binding(binding: InputBinding) -> dict[str, str]:
    return {"input": binding.name, "path": binding.path, "type": binding.parameter.type}
