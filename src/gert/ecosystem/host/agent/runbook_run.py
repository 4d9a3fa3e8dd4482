"""The runbook run behind a tool call of an agent: found by its id, started once, resumed, waited for."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gert.ecosystem.host.background.launch import resume_run, run_id_for, start_run
from gert.ecosystem.host.background.messages import stop_driver
from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.ledger_location import Database, open_ledger
from gert.ecosystem.host.redrive.resume import ResumeOptions
from gert.ecosystem.host.run.options import RunOptions
from gert.ecosystem.host.run.record.lease import is_driven
from gert.ecosystem.process.environment import PARENT_RUN
from gert.errors import ApprovalRequiredError, Busy, GertError, RunError
from gert.kernel.events.envelope import decode
from gert.kernel.events.runbook import RunComplete, RunStart, StepComplete
from gert.kernel.foundation.text import one_line
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Head

_TURN: Final = 0.5
"""Seconds after which a run without new events is checked again: a process that ended appends nothing."""
_MOST_LAST: Final = 64
_LONGEST: Final = 500
_MOST_TEXT: Final = 64 * 1024


class RunbookRun:
    """One run of a runbook, driven by a process of its own.

    tool_name: the tool that calls it
    options: how it is started; its id is that of the request
    environ: names the agent's run as the one that starts it
    runbook: the name of the runbook
    outputs: outputs of steps that are part of the result, as `STEP.NAME`
    """

    def __init__(
        self,
        tool_name: str,
        options: RunOptions,
        environ: Mapping[str, str],
        database: Database,
        *,
        request_id: str,
        caller: str,
        runbook: str,
        outputs: Sequence[str] = (),
    ) -> None:
        self._link = environ.get(PARENT_RUN), runbook
        self.run_id = run_id_for(request_id, caller)
        self._tool_name = tool_name
        self._options = options
        self._environ = environ
        self._database = database
        self._request = {"request_id": request_id, "caller": caller}
        self._outputs = outputs

    async def exists(self) -> bool:
        """Whether it was started; RunError if the run of its id is not one that this agent run started.

        Its id can be computed, and chosen by another program that writes to the ledger.
        """
        if isinstance(self._database, str) and not os.path.exists(self._database):
            return False
        async with self._ledger() as ledger:
            lines = await ledger.lines(self.run_id, limit=1)
        if not lines:
            return False
        started = decode(lines[0]).payload
        if not isinstance(started, RunStart) or (started.parent_run_id, started.runbook) != self._link:
            raise RunError(
                f"run `{self.run_id}` is not that of this call of `{self._tool_name}`",
                hint=f"see who started it: gert run show {self.run_id}",
            )
        return True

    async def start(self) -> None:
        """Start it; if another process did so meanwhile, nothing happens."""
        await start_run(self._options, self._environ, **self._request)

    async def result(self) -> dict[str, Any]:
        """Drive it until it ends, and return how; ApprovalRequiredError while it waits for people.

        A run that was interrupted is resumed once; what prevents that is raised, and leaves the run as it was.
        """
        is_resumed = False
        async with self._ledger() as ledger:
            while True:
                head = await self._head(ledger)
                if _has_ended(head):
                    return await self._ending(ledger)
                if await is_driven(ledger, self.run_id):
                    await ledger.wait(self.run_id, head.count, _TURN)
                    continue
                # It may have ended between the two looks.
                head = await self._head(ledger)
                if _has_ended(head):
                    continue
                if is_resumed:
                    raise self._interruption(head)
                is_resumed = True
                await self._resume()

    async def ending(self) -> dict[str, Any] | None:
        """How it ended; None if it has not."""
        if not await self.exists():
            return None
        async with self._ledger() as ledger:
            return await self._ending(ledger) if _has_ended(await self._head(ledger)) else None

    async def stop(self) -> None:
        """Stop it in order, if it runs on this machine."""
        if await self.exists():
            await stop_driver(self._database, self.run_id, self._environ)

    def _ledger(self) -> Ledger:
        return open_ledger(self._database, self._environ, read_only=True)

    async def _head(self, ledger: Ledger) -> Head:
        head = await ledger.head(self.run_id)
        if head is None or head.runbook is None:
            raise RunError(f"run `{self.run_id}` of `{self._tool_name}` is not in its ledger")
        return head

    async def _resume(self) -> None:
        """Resume it; while its tickets have no answer, it stays as it was."""
        options = self._options
        again = ResumeOptions(
            run_id=self.run_id,
            db=options.db,
            dsn=options.dsn,
            state_dir=options.state_dir,
            actor=options.actor,
            given={name: given for name, given in options.given.items() if given.source.startswith("env/")},
            approvals="detach",
        )
        try:
            await resume_run(again, self._environ)
        except Busy:
            return  # another process was faster
        except GertError as problem:
            problem.add_note(f"run `{self.run_id}` of `{self._tool_name}` was not resumed")
            raise

    def _interruption(self, head: Head) -> GertError:
        """Why a resumed run does not continue."""
        tickets = head.runbook.awaited if head.runbook is not None else ()
        if not tickets:
            return RunError(
                f"run `{self.run_id}` of `{self._tool_name}` was interrupted", hint=f"`gert run show {self.run_id}`"
            )
        more = f" and {len(tickets) - 1} more" if len(tickets) > 1 else ""
        return ApprovalRequiredError(
            tool_name=self._tool_name,
            approval_key=tickets[0],
            mode="human",
            message=f"`{self._tool_name}` waits for an approval in run `{self.run_id}`: ticket `{tickets[0]}`{more}",
            run_id=self.run_id,
            ticket_id=tickets[0],
        )

    async def _ending(self, ledger: Ledger) -> dict[str, Any]:
        """The result of the tool; a run that failed is a result, because its steps may have had effects."""
        last = map(decode, await ledger.last_lines(self.run_id, _MOST_LAST))
        end = next((event.payload for event in last if isinstance(event.payload, RunComplete)), None)
        head = await self._head(ledger)
        found = head.runbook
        said: dict[str, Any] = {"run_id": self.run_id, "status": found.ended if found is not None else None}
        if end is not None and end.outcome is not None:
            said["outcome"] = _bounded(msgspec.to_builtins(end.outcome, enc_hook=str))
        if end is not None and end.failure is not None:
            message = one_line(end.failure.message, _LONGEST)
            said["failure"] = {"kind": end.failure.kind, "message": message, "step": end.failed_step}
        if self._outputs:
            said["outputs"] = _bounded(await self._chosen_outputs(ledger))
        return said

    async def _chosen_outputs(self, ledger: Ledger) -> dict[str, Any]:
        wanted = {name: name.rpartition(".") for name in self._outputs}
        found: dict[str, Any] = {}
        async for line in ledger.stream(self.run_id):
            said = decode(line).payload
            if not isinstance(said, StepComplete):
                continue
            for name, (step, _, output) in wanted.items():
                if said.step_id == step and output in said.outputs:
                    found[name] = said.outputs[output]
        return found


def place_of(database: Database) -> dict[str, str]:
    """The options that name a ledger."""
    return {"dsn": database.value} if isinstance(database, Dsn) else {"db": database}


def _has_ended(head: Head) -> bool:
    return head.runbook is not None and head.runbook.ended is not None


def _bounded(value: Any) -> Any:
    """A value as it is, or the beginning of its text: a model reads all of it."""
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return value if len(text) <= _MOST_TEXT else {"cut": text[:_MOST_TEXT], "characters": len(text)}
