"""Every implementation of a port keeps its promises: gert's own, the worked examples, and none that is broken."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from approval_provider import ChatRoom
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from input_resolver import Inventory
from msgspec.structs import replace
from signature_verifier import Directory, sign
from tests.ecosystem.approvals.asking import BOB_KEY, SHARED, Run, no, public, running, verifier, yes
from tool_executor import Cluster

import gert
from gert.ecosystem.approvals.terminal import TerminalApprovals
from gert.ecosystem.approvals.tickets import Tickets
from gert.ecosystem.host.embedding.promises import Promise
from gert.ecosystem.host.embedding.promises.approvals import Desk, desk_promises
from gert.ecosystem.host.embedding.promises.inputs import resolver_promises
from gert.ecosystem.host.embedding.promises.signatures import Notary, notary_promises
from gert.ecosystem.host.embedding.promises.tools import caller_promises
from gert.ecosystem.inputs.env import EnvResolver
from gert.ecosystem.inputs.file import FileResolver
from gert.ecosystem.tools.command import CommandContext
from gert.ecosystem.tools.stdio import Stdio
from gert.errors import InputError
from gert.kernel.engine.requests import ApprovalAnswer, AwaitApproval, SubmitApproval, TicketAnswer
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.signature import parse_key
from gert.kernel.foundation.signature import sign as sign_with
from gert.kernel.governance.approval import Response
from gert.testing import (
    Example,
    ExecutorCase,
    ResolverCase,
    approval_provider_promises,
    input_resolver_promises,
    signature_verifier_promises,
    tool_executor_promises,
)

KUBECTL = (Path(__file__).resolve().parents[4] / "examples" / "tools" / "kubectl.tool.yaml").read_text()


# --- approvals


class Recorded:
    """Tickets in a ledger, with a run that records what they come to."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._provider = run.provider()
        self._given: dict[str, list[Response]] = defaultdict(list)

    async def submit(self, ask: SubmitApproval) -> TicketAnswer:
        ticket = await self._provider.submit(ask)
        await self._run.submitted(ticket, ask.request)
        return ticket

    async def wait(self, ask: AwaitApproval) -> ApprovalAnswer:
        answer = await self._provider.wait(ask)
        await self._run.took(ask, answer, self._given[ask.ticket_id])
        return answer

    async def withdraw(self, ask: AwaitApproval, outdated: Failure) -> ApprovalAnswer:
        return await self._provider.withdraw(ask, outdated)


@asynccontextmanager
async def tickets() -> AsyncIterator[Desk]:
    async with running() as (run, kept):

        async def respond(ticket_id: str, approver: str, approved: bool) -> None:
            await kept.answer(ticket_id, yes(approver) if approved else no(approver))

        assert isinstance(kept, Tickets)
        yield Desk(Recorded(run), respond)


class Keyboard:
    """A terminal at which people type when a test says so."""

    is_terminal = True

    def __init__(self) -> None:
        self.typed: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        self._next: tuple[str, bool] | None = None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        yield

    def say(self, text: str, style: str | None = None) -> None:
        """Nothing reads it."""

    @property
    def width(self) -> int:
        return 0

    def fits(self, lines: Iterable[str]) -> bool:
        return True

    async def line(self, prompt: str, *, fresh: bool = False) -> str | None:
        if self._next is None:
            self._next = await self.typed.get()
        approver, approved = self._next
        if prompt.startswith("name of the approver"):
            return approver
        self._next = None
        return "y" if approved else "n"


def terminal() -> Desk:
    keyboard, ids = Keyboard(), iter(range(100))
    provider = TerminalApprovals(keyboard, "bob", lambda: datetime.now(UTC), lambda: f"ticket-{next(ids)}")
    return Desk(provider, lambda _, approver, approved: keyboard.typed.put_nowait((approver, approved)))


def chat() -> tuple[ChatRoom, Any]:
    room = ChatRoom()
    return room, room.write


# --- inputs


def variables() -> ResolverCase:
    return ResolverCase(
        resolver=EnvResolver({"HOST": "srv1", "EMPTY": ""}), known={"HOST": "srv1", "EMPTY": ""}, missing="X"
    )


def files(folder: Path) -> ResolverCase:
    (folder / "host").write_text("srv1\n")
    (folder / "binary").write_bytes(b"\xff")
    return ResolverCase(resolver=FileResolver(str(folder)), known={"host": "srv1"}, missing="x", failing="binary")


def inventory() -> ResolverCase:
    known = {"web-1.address": "10.0.0.7", "web-1.tags": ["a", {"b": None}], "web-1.port": 443}
    servers = {"web-1": {"address": "10.0.0.7", "tags": ["a", {"b": None}], "port": 443}}
    return ResolverCase(resolver=Inventory(servers), known=known, missing="web-1.zone", failing="web-9.address")


# --- tools


def cluster() -> ExecutorCase:
    return ExecutorCase(
        executor=Cluster("web-1"),
        tool=KUBECTL,
        succeeds=(Example(action="get", outputs={"items": [{"metadata": {"name": "web-1"}}]}),),
        fails=Example(action="delete", inputs={"pod": "web-9"}),
    )


SHELL = """
apiVersion: tool/v0
meta: { name: shell }
contract:
  effects: []
  inputs: { word: { type: string, default: "" } }
  outputs: { said: { type: string } }
actions:
  say: { argv: [sh, -c, 'printf %s "$1"', sh, "{{ .word }}"], extract: { said: { from: stdout } } }
  fail: { argv: [sh, -c, "echo no >&2; exit 3"] }
  sleep: { argv: [sleep, "60"] }
"""
SAYS = tuple(Example(action="say", inputs={"word": word}, outputs={"said": word}) for word in ("one", "two", "ü [x]"))


def shell(tmp_path: Path) -> ExecutorCase:
    context = CommandContext(
        environment={"PATH": "/usr/bin:/bin"}, secrets={}, withheld=frozenset(), working=str(tmp_path), run_id="again"
    )
    stdio = Stdio(context, Redactor())
    return ExecutorCase(
        executor=stdio, tool=SHELL, succeeds=SAYS, fails=Example(action="fail"), slow=Example(action="sleep")
    )


class Printer:
    """Runs nothing: it prints what the command would print; plain and async."""

    def execute(self, call: gert.ToolCall) -> Any:
        assert call.command is not None
        if call.action == "sleep":
            return asyncio.sleep(60)
        return gert.ToolResult(exit_code=0 if call.action == "say" else 3, stdout=call.command.arguments[-1])


def printer() -> ExecutorCase:
    return ExecutorCase(
        executor=Printer(), tool=SHELL, succeeds=SAYS, fails=Example(action="fail"), slow=Example(action="sleep")
    )


# --- signatures


def directory() -> tuple[Directory, Any]:
    keys = {name: Ed25519PrivateKey.generate() for name in ("bob", "carol")}
    public_keys = {name: key.public_key() for name, key in keys.items()}
    return Directory(public_keys), lambda message, approver: sign(message, approver, keys[approver])


def key_owners() -> Notary:
    keys = {"bob": BOB_KEY, "carol": parse_key("base64:c2hhcmVkIHNlY3JldCBvZiBjYXJvbCBhbmQgbm9ib2R5", "carol")}

    def signs(message: bytes, approver: str) -> tuple[str, str | None, str | None]:
        made = sign_with(keys[approver], message)
        return made.value, made.alg, made.key_id

    return Notary(verifier(public(BOB_KEY), keys["carol"], bob="bob", carol="carol"), signs)


# --- all of them


def named(name: str, suite: list[Promise]) -> list[Any]:
    return [pytest.param(promise, id=f"{name}: {promise}") for promise in suite]


@pytest.mark.parametrize(
    "promise",
    [
        *named("tickets in a ledger", desk_promises(tickets)),
        *named("the terminal", desk_promises(terminal, is_dialogue=True)),
        *named("the example of an approval provider", approval_provider_promises(chat)),
        *named("environment variables", resolver_promises(variables)),
        *named("the example of an input resolver", input_resolver_promises(inventory)),
        *named("the example of a tool executor", tool_executor_promises(cluster)),
        *named("a plain executor", tool_executor_promises(printer)),
        *named("the example of a signature verifier", signature_verifier_promises(directory)),
        *named("keys with owners", notary_promises(key_owners)),
    ],
)
def test_promises_are_kept(promise: Promise) -> None:
    promise()


@pytest.mark.parametrize("number", range(len(resolver_promises(variables))), ids=map(str, resolver_promises(variables)))
def test_files_keep_the_promises(tmp_path: Path, number: int) -> None:
    resolver_promises(lambda: files(tmp_path))[number]()


@pytest.mark.parametrize("number", range(len(caller_promises(printer))), ids=map(str, caller_promises(printer)))
def test_processes_keep_the_promises(tmp_path: Path, number: int) -> None:
    caller_promises(lambda: shell(tmp_path))[number]()


# --- a suite finds what is broken


class Careless(ChatRoom):
    """Approves by itself."""

    async def wait(self, ticket: gert.ApprovalTicket) -> gert.ApprovalResponse:
        return gert.ApprovalResponse(approved=True, approver_id="bob")


class OneTicket(ChatRoom):
    async def submit(self, request: gert.ApprovalRequest) -> gert.ApprovalTicket:
        await super().submit(request)
        return gert.ApprovalTicket(ticket_id="chat-1")


class Mixed(ChatRoom):
    """Returns the first response, to whatever ticket."""

    def __init__(self) -> None:
        super().__init__()
        self._all: asyncio.Queue[gert.ApprovalResponse] = asyncio.Queue()

    async def wait(self, ticket: gert.ApprovalTicket) -> gert.ApprovalResponse:
        return await self._all.get()

    def write(self, ticket_id: str, approver: str, approved: bool) -> None:
        self._all.put_nowait(gert.ApprovalResponse(approver_id=approver, approved=approved))


class Forgetful(Inventory):
    """Hides failures as missing values, and keeps state."""

    def resolve(self, binding: gert.InputBinding) -> object:
        try:
            return super().resolve(binding)
        except InputError:
            return None


class Counting(Inventory):
    def resolve(self, binding: gert.InputBinding) -> object:
        self._servers["web-1"]["port"] = int(str(self._servers["web-1"]["port"])) + 1
        return super().resolve(binding)


class Swallowing(Cluster):
    """Says that everything went well."""

    async def execute(self, call: gert.ToolCall) -> dict[str, object]:
        await super().execute(call)
        return {"items": [{"metadata": {"name": "web-1"}}]}


class Editing(Printer):
    def execute(self, call: gert.ToolCall) -> Any:
        call.inputs["word"] = "changed"
        return super().execute(call)


def broken(make: Callable[[], Any], **changes: Any) -> Callable[[], Any]:
    def made() -> Any:
        return replace(make(), **changes)

    return made


def with_room(kind: type[ChatRoom]) -> Callable[[], Any]:
    def make() -> tuple[ChatRoom, Any]:
        room = kind()
        return room, room.write

    return make


class Gullible:
    """Confirms every signature."""

    def verify(self, response: gert.SignedResponse) -> bool:
        return True


class Awaited:
    """A verifier must not be async: what it returns confirms nothing."""

    async def verify(self, response: gert.SignedResponse) -> bool:
        return True


def with_verifier(kind: type) -> Callable[[], Any]:
    return lambda: (kind(), directory()[1])


SERVERS: Any = {"web-1": {"address": "10.0.0.7", "tags": ["a", {"b": None}], "port": 443}}


@pytest.mark.parametrize(
    ("suite", "sentences"),
    [
        pytest.param(
            approval_provider_promises(with_room(Careless)),
            {"without a response of a person, it waits", "a rejection is returned as a rejection"},
            id="it approves by itself",
        ),
        pytest.param(
            approval_provider_promises(with_room(OneTicket)),
            {"every request gets its own ticket"},
            id="one ticket for all",
        ),
        pytest.param(
            approval_provider_promises(with_room(Mixed)),
            {"a response to one ticket is not returned for another"},
            id="it mixes tickets",
        ),
        pytest.param(
            input_resolver_promises(broken(inventory, resolver=Forgetful(SERVERS))),
            {"a path that cannot be found out is a failure with a reason, and never a value"},
            id="it hides failures",
        ),
        pytest.param(
            input_resolver_promises(broken(inventory, resolver=Counting(SERVERS))),
            {"equal calls have equal answers, also at the same time"},
            id="it keeps state",
        ),
        pytest.param(
            tool_executor_promises(broken(cluster, executor=Swallowing("web-1"))),
            {"a call that fails has a failure with a reason"},
            id="it swallows failures",
        ),
        pytest.param(
            signature_verifier_promises(with_verifier(Gullible)),
            {
                "a response that was changed after it was signed does not hold",
                "a signature for another ticket or another request does not hold",
                "a key speaks for its owner only",
                "a signature that is none does not hold, and raises nothing",
                "an unknown key or algorithm does not hold, and raises nothing",
            },
            id="it confirms everything",
        ),
    ],
)
def test_a_broken_part_breaks_its_promises(suite: list[Promise], sentences: set[str]) -> None:
    failed = set()
    for promise in suite:
        try:
            promise()
        except AssertionError:
            failed.add(str(promise))
    assert sentences <= failed
    assert failed < {str(promise) for promise in suite}


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_an_async_verifier_confirms_nothing() -> None:
    first, *_ = signature_verifier_promises(with_verifier(Awaited))
    with pytest.raises(AssertionError, match="does not confirm the signature"):
        first()


def test_an_executor_gets_copies_of_the_inputs() -> None:
    for promise in tool_executor_promises(broken(printer, executor=Editing())):
        promise()


def test_a_shared_key_without_an_owner_speaks_for_anyone() -> None:
    def signs(message: bytes, approver: str) -> tuple[str, str | None, str | None]:
        made = sign_with(SHARED, message)
        return made.value, made.alg, made.key_id

    by_sentence = {str(each): each for each in notary_promises(lambda: Notary(verifier(SHARED), signs))}
    with pytest.raises(AssertionError, match="carol signed for bob"):
        by_sentence["a key speaks for its owner only"]()
