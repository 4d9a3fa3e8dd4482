"""People who approve the tool calls of an agent: keys of the environment, groups and channels of the settings."""

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from typing import TYPE_CHECKING, Final, Self

from gert.ecosystem.host.config.machine.user import user_name
from gert.kernel.agent.ports.approvals import TicketState
from gert.kernel.ledger.port import Ledger

if TYPE_CHECKING:
    # Most agents ask no one: what is needed to ask is loaded then.
    from gert.ecosystem.approvals.drop_box import DropBox
    from gert.ecosystem.approvals.port import Channel
    from gert.ecosystem.approvals.signatures import KeyVerifier
    from gert.ecosystem.approvals.tickets import Tickets

GROUP: Final = "group:"


class AgentApprovals:
    """Reaches people through tickets in the ledger of the agent; `gert approve` and `gert reject` answer them.

    actor: the person who runs the agent (default: the current user)
    groups: people by the name of a group, for approvers such as `group:oncall`
    channels, drop_box: how people learn of a ticket, and answer it
    environ: where keys are looked up (default: the environment of this process)
    """

    def __init__(
        self,
        *,
        actor: str | None = None,
        groups: Mapping[str, Sequence[str]] | None = None,
        channels: "Iterable[Channel]" = (),
        drop_box: "DropBox | None" = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._actor = actor
        self._groups = dict(groups or {})
        self._channels = tuple(channels)
        self._drop_box = drop_box

    @classmethod
    def from_settings(
        cls, folder: str | None = None, *, config: str | None = None, actor: str | None = None, state: str | None = None
    ) -> Self:
        """Use the groups, channels and the drop box that the settings of a project name (default: this folder's)."""
        from gert.ecosystem.approvals.drop_box import DropBox
        from gert.ecosystem.host.channels.channels_for import channels_for
        from gert.ecosystem.host.config.keys.approval_keys import approval_verifier
        from gert.ecosystem.host.config.settings import settings_for
        from gert.ecosystem.host.config.state_dir import state_dir
        from gert.ecosystem.host.config.workspace import Workspace

        where, environ = folder or os.getcwd(), os.environ
        workspace = Workspace(where)
        settings = settings_for(workspace, where, config, environ)
        place = state_dir(state, workspace.project_root(where), environ)
        said = settings.approvals
        drop_box = None
        if said is not None and said.drop_box is not None:
            drop_box = DropBox(said.drop_box, approval_verifier(environ, is_strict=True))
            drop_box.prepare()
        channels = channels_for(settings, environ, place)
        return cls(actor=actor, groups=settings.groups, channels=channels, drop_box=drop_box, environ=environ)

    @property
    def actor(self) -> str | None:
        """The person who runs the agent."""
        return self._actor if self._actor is not None else user_name()

    @property
    def can_verify(self) -> bool:
        """Whether there is a key to verify signatures with."""
        return self._verifier().has_keys

    def must_sign(self, ledger: Ledger) -> bool:
        """Whether others can write to a ledger: to one on Postgres they can."""
        return getattr(ledger, "backend", "") == "postgres"

    def people(self, approvers: Sequence[str]) -> tuple[str, ...]:
        """Approvers with groups resolved; a group that is not known has no members."""
        names = (
            self._groups.get(each.removeprefix(GROUP), ()) if each.startswith(GROUP) else (each,) for each in approvers
        )
        return tuple(dict.fromkeys(chain(*names)))

    async def look(self, ledger: Ledger, run_id: str, ticket_id: str) -> TicketState:
        """Read a ticket and the responses to it."""
        from gert.ecosystem.approvals.inbox import untaken, verified

        # First the time, then the responses: none that came in time is missed.
        now = await ledger.time()
        tickets = self._tickets(ledger)
        view = await tickets.get(ticket_id)
        if self._drop_box is not None:
            await self._drop_box.collect(ledger, run_id, view.ticket)
        received = verified(tickets.verifier, await untaken(ledger, run_id, ticket_id), view.ticket)
        return TicketState(view.ticket, tuple(view.counted), received, view.is_over(now))

    async def answered(self, ledger: Ledger, ticket_id: str) -> bool:
        """Whether a ticket of any run was answered or closed, or its time is over."""
        view = await self._tickets(ledger).get(ticket_id)
        if view.status != "pending":
            return True
        state = await self.look(ledger, view.run_id, ticket_id)
        return bool(state.received) or state.is_over

    async def announce(self, ledger: Ledger, ticket_id: str) -> None:
        """Tell people that a ticket is open; a failure is a note on the ticket."""
        if self._drop_box is None and not self._channels:
            return
        from gert.ecosystem.approvals.announce import Channels

        tickets = self._tickets(ledger)
        await Channels(tickets, self._channels, drop_box=self._drop_box).announce(await tickets.get(ticket_id))

    @asynccontextmanager
    async def listening(self, ledger: Ledger, ticket_id: str) -> AsyncIterator[None]:
        """Let the channels collect responses while a caller waits."""
        from gert.ecosystem.approvals.announce import Channels

        async with Channels(self._tickets(ledger), self._channels).listening(ticket_id):
            yield

    def _tickets(self, ledger: Ledger) -> "Tickets":
        from gert.ecosystem.approvals.tickets import Tickets

        return Tickets(ledger, self._verifier(ledger))

    def _verifier(self, ledger: Ledger | None = None) -> "KeyVerifier":
        from gert.ecosystem.host.config.keys.approval_keys import approval_verifier

        return approval_verifier(self._environ, is_strict=ledger is not None and self.must_sign(ledger))
