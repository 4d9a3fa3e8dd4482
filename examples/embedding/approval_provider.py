"""An approval provider: people are asked in a chat room of the program.

Run it: python examples/embedding/approval_provider.py
"""

import asyncio
import tempfile

from tool_executor import RUNBOOK, Cluster

import gert


class ChatRoom:
    """Posts requests, and collects what people write; a real one would call the API of a chat."""

    def __init__(self) -> None:
        self.posted: asyncio.Queue[str] = asyncio.Queue()
        self._responses: dict[str, asyncio.Queue[gert.ApprovalResponse]] = {}

    async def submit(self, request: gert.ApprovalRequest) -> gert.ApprovalTicket:
        """Post the request and return at once."""
        ticket_id = f"chat-{len(self._responses) + 1}"
        self._responses[ticket_id] = asyncio.Queue()
        self.posted.put_nowait(ticket_id)
        print(f"{ticket_id}: may {request.requested_by} run {request.target}? {(request.preview or '').strip()}")
        return gert.ApprovalTicket(ticket_id=ticket_id)

    async def wait(self, ticket: gert.ApprovalTicket) -> gert.ApprovalResponse:
        """Wait for the next response; the rules of gert decide whether it counts."""
        return await self._responses[ticket.ticket_id].get()

    def write(self, ticket_id: str, approver: str, approved: bool) -> None:
        """A person responds."""
        response = gert.ApprovalResponse(ticket_id=ticket_id, approver_id=approver, approved=approved)
        self._responses[ticket_id].put_nowait(response)


async def approve_first(room: ChatRoom, approver: str) -> None:
    """Stands for a person who reads the room."""
    room.write(await room.posted.get(), approver, approved=True)


async def restart(pod: str, approver: str, state: str) -> gert.Executed:
    """Restart a pod with an approval from the chat."""
    room = ChatRoom()
    given = {"pod": gert.GivenInput(pod, "api")}
    options = gert.RunOptions(file=str(RUNBOOK), given=given, actor="ann@example.com", state_dir=state)
    parts = gert.Parts(approvals=room, tools={"kubectl": Cluster("web-1", "web-2")})
    executed, _ = await asyncio.gather(gert.execute(options, parts=parts), approve_first(room, approver))
    return executed


def main() -> None:
    """Run it once."""
    with tempfile.TemporaryDirectory() as state:
        executed = asyncio.run(restart("web-1", "bob@example.com", state))
    print(executed.status, executed.outcome.code if executed.outcome is not None else executed.failure)


if __name__ == "__main__":
    main()
