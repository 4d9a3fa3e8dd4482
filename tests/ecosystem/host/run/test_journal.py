"""The journal: what was said is durable before anything is asked, shown after that, and shows no secret."""

import asyncio
import base64
import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.memory_ledger import MemoryLedger

from gert.ecosystem.host.run.driver.driver import Driver
from gert.ecosystem.host.run.record import journal as journals
from gert.ecosystem.host.run.record.journal import MOST_WAITING, Journal, RecordedAnswer, read_answers
from gert.ecosystem.ledger.jsonl.mirror import Mirror
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.errors import IntegrityError, LeaseLost, TraceError
from gert.kernel.engine.requests import (
    AnyAnswer,
    ApprovalAnswer,
    Emit,
    EvidenceAnswer,
    Pause,
    PauseAnswer,
    Request,
    RunLanes,
    Steps,
    TicketAnswer,
    ToolAnswer,
)
from gert.kernel.events import runbook as says
from gert.kernel.events.chain import GENESIS, read_chain
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.payload import Payload
from gert.kernel.events.trace_seal import check_seal
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.foundation.signature import Key, Keys, parse_key
from gert.kernel.governance.approval import Response
from gert.kernel.ledger.record import Batch, hash_answer
from gert.kernel.template.unknown import UNKNOWN, Unknown, is_unknown

RUN = "run-1"
SHARED = parse_key("a shared secret for tests", "shared")
PRIVATE = parse_key("ed25519:" + base64.b64encode(bytes(range(32))).decode(), "prod")
PUBLIC = parse_key(str(PRIVATE.public_text), "prod")
END = says.RunComplete(status="completed", mode="real", duration="1s")
BOB = Principal("human", "bob", role="oncall")


def said(what: str, value: Any = None) -> Emit:
    return Emit(says.InputResolved(name=what, source="cli", value=value), None, None)


def ask(key: str) -> Pause:
    return Pause(key=key, path=key, step_id=key, seconds=0.0)


class Diary:
    """Everything that happens, in order: to the store, to the world, to whoever watches."""

    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] = []


class Watched(MemoryLedger):
    """A ledger that notes what was appended together."""

    def __init__(self, diary: Diary, *, turns: int = 0) -> None:
        super().__init__()
        self.turns = turns
        self._diary = diary

    def keep(self, batch: Batch) -> None:
        events = [decode(event.line) for event in batch.events]
        names = [event.data.get("name", event.type) for event in events]
        self._diary.entries.append(("durable", names, [each.key for each in read_answers(batch.answers)]))


class World:
    def __init__(self, diary: Diary) -> None:
        self._diary = diary

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        return PauseAnswer(duration=1.0) if ask.key.startswith("now") else None

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        self._diary.entries.append(("asked", ask.key))
        await asyncio.sleep(0)
        return PauseAnswer(duration=1.0)


class Watcher:
    """Notes what it is told."""

    def __init__(self, diary: Diary, name: str = "shown") -> None:
        self._diary = diary
        self._name = name
        self.told: list[tuple[Envelope, Payload]] = []

    def said(self, event: Envelope, payload: Payload) -> None:
        self._diary.entries.append((self._name, event.data.get("name", event.type)))
        self.told.append((event, payload))

    def repeated(self, event: Envelope, payload: Payload) -> None: ...

    def printed(self, path: str, stream: str, text: str) -> None: ...

    def pause(self) -> None: ...

    def unpause(self) -> None: ...

    def close(self) -> None: ...


def driven(steps: Steps[Any], *, turns: int = 0, watchers: int = 0) -> list[tuple[Any, ...]]:
    diary = Diary()

    async def drive() -> None:
        watching = [Watcher(diary, f"shown{number or ''}") for number in range(watchers)]
        journal = Journal(RUN, Watched(diary, turns=turns).port, observers=watching)
        try:
            await Driver(World(diary), journal).drive(steps)
        finally:
            journal.close()

    asyncio.run(drive())
    return diary.entries


def written(*payloads: Emit, **options: Any) -> tuple[Journal, list[bytes]]:
    """A journal that was told these things, and its lines."""
    store = MemoryLedger()
    journal = Journal(RUN, store.port, **options)
    for each in payloads:
        journal.say(each)
    asyncio.run(journal.settle())
    return journal, list(store.events(RUN))


# --- durable before asked


def talk() -> Steps[Any]:
    yield said("one")
    yield said("two")
    yield ask("a")
    yield said("three")
    yield ask("now b")
    yield said("four")
    yield ask("c")
    return None


@pytest.mark.parametrize("turns", [0, 3], ids=["at once", "later"])
def test_everything_said_is_durable_before_the_next_question_is_put(turns: int) -> None:
    assert driven(talk(), turns=turns) == [
        ("durable", ["one", "two"], []),
        ("asked", "a"),
        ("durable", ["three", "four"], ["a", "now b"]),
        ("asked", "c"),
        ("durable", [], ["c"]),
    ]


def test_a_question_at_the_very_beginning_is_put_without_a_write() -> None:
    def run() -> Steps[Any]:
        yield ask("a")

    assert driven(run())[0] == ("asked", "a")


def test_everything_is_durable_when_the_run_returns() -> None:
    def run() -> Steps[Any]:
        yield ask("a")
        yield said("last")

    assert driven(run())[-1] == ("durable", ["last"], ["a"])


def test_lanes_share_a_write_and_none_is_asked_before_all_have_announced_it() -> None:
    def lane(name: str) -> Steps[Any]:
        yield said(name)
        yield ask(name)
        yield said(f"{name} done")

    def run() -> Steps[Any]:
        yield RunLanes((lane("a"), lane("b"), lane("c")), (frozenset(),) * 3)

    entries = driven(run())
    assert entries[0] == ("durable", ["a", "b", "c"], [])
    assert [each[0] for each in entries[1:4]] == ["asked"] * 3
    known: set[str] = set()
    for entry in entries:
        if entry[0] == "durable":
            known.update(entry[1])
        elif entry[0] == "asked":
            assert entry[1] in known


def test_answers_are_durable_no_later_than_the_events_they_lead_to() -> None:
    entries = driven(talk())
    answered: set[str] = set()
    for entry in entries:
        if entry[0] == "durable":
            answered.update(entry[2])
            assert "three" not in entry[1] or "a" in answered
            assert "four" not in entry[1] or "now b" in answered


def test_observers_get_events_after_they_are_durable_and_in_order() -> None:
    entries = driven(talk(), watchers=2)
    assert entries[:6] == [
        ("durable", ["one", "two"], []),
        ("shown", "one"),
        ("shown1", "one"),
        ("shown", "two"),
        ("shown1", "two"),
        ("asked", "a"),
    ]
    assert [each[1] for each in entries if each[0] == "shown"] == ["one", "two", "three", "four"]


def test_observers_get_no_event_that_could_not_be_written() -> None:
    class Full(MemoryLedger):
        def keep(self, batch: Batch) -> None:
            raise TraceError("no space left on device")

    watcher = Watcher(Diary())
    journal = Journal(RUN, Full().port, observers=[watcher])
    journal.say(said("one"))
    with pytest.raises(TraceError):
        asyncio.run(journal.settle())
    assert watcher.told == []


@pytest.mark.parametrize("lost", ["an answer", "an event"])
def test_nothing_is_written_after_something_was_lost(lost: str) -> None:
    class FullOnce(MemoryLedger):
        is_full = True

        def keep(self, batch: Batch) -> None:
            if self.is_full:
                self.is_full = False
                raise TraceError("no space left on device")

    store = FullOnce()
    journal = Journal(RUN, store.port)
    if lost == "an answer":
        journal.log(RecordedAnswer("a", PauseAnswer(duration=1.0)))
    else:
        journal.say(said("one"))
    with pytest.raises(TraceError, match="no space left"):
        asyncio.run(journal.settle())
    journal.say(said("two"))
    with pytest.raises(TraceError, match="an earlier append failed"):
        asyncio.run(journal.settle())
    assert (list(store.events(RUN)), list(store.answers(RUN))) == ([], [])


def test_nothing_to_say_is_no_write() -> None:
    diary = Diary()
    journal = Journal(RUN, Watched(diary).port)
    asyncio.run(journal.settle())
    asyncio.run(journal.settle())
    assert diary.entries == []


def test_a_journal_is_full_at_its_bound_and_not_before() -> None:
    journal = Journal(RUN, MemoryLedger().port)
    for number in range(MOST_WAITING - 1):
        journal.say(said(str(number)))
    full = [journal.is_full]
    journal.say(said("last"))
    full.append(journal.is_full)
    asyncio.run(journal.settle())
    full.append(journal.is_full)
    assert full == [False, True, False]
    assert journal.events == MOST_WAITING


def test_closing_twice_is_closing_once() -> None:
    journal = Journal(RUN, Watched(Diary()).port)
    journal.close()
    journal.close()


# --- lines


def test_lines_are_numbered_chained_and_name_who_and_where() -> None:
    payload = says.StepStart(step_id="a", step_type="tool")
    journal, lines = written(said("one"), Emit(payload, "x/a[0]", BOB))
    first, second = map(decode, lines)
    assert (first.seq, first.prev_hash, first.principal, first.path) == (1, GENESIS, None, None)
    assert (second.seq, second.prev_hash) == (2, sha256_hex(lines[0]))
    assert (second.by, second.path, second.payload) == (BOB, "x/a[0]", payload)
    assert journal.head == sha256_hex(lines[1])
    assert journal.events == 2


@pytest.mark.parametrize(
    ("micros", "stamp"),
    [
        pytest.param(0, "1970-01-01T00:00:00.000000Z", id="the beginning"),
        pytest.param(1_772_280_000_000_001, "2026-02-28T12:00:00.000001Z", id="one microsecond"),
        pytest.param(1_772_280_000_999_999, "2026-02-28T12:00:00.999999Z", id="the last one of a second"),
        pytest.param(1_772_280_001_000_000, "2026-02-28T12:00:01.000000Z", id="the next second"),
    ],
)
def test_time_is_written_to_the_microsecond(micros: int, stamp: str) -> None:
    _, lines = written(said("x"), clock=lambda: micros)
    assert decode(lines[0]).timestamp == stamp


def test_time_goes_over_the_end_of_a_second_and_back() -> None:
    ticks = iter([1_772_280_000_999_999, 1_772_280_001_000_000, 1_772_280_000_500_000])
    store = MemoryLedger()
    journal = Journal(RUN, store.port, clock=lambda: next(ticks))
    for name in "abc":
        journal.say(said(name))
        asyncio.run(journal.settle())
    assert [decode(line).timestamp[-10:] for line in store.events(RUN)] == ["00.999999Z", "01.000000Z", "00.500000Z"]


def test_what_follows_from_one_answer_happens_at_one_moment() -> None:
    ticks = iter(range(1_772_280_000_000_000, 1_772_280_000_000_009))
    store = MemoryLedger()
    journal = Journal(RUN, store.port, clock=lambda: next(ticks))
    for name in "ab":
        journal.say(said(name))
    journal.log(RecordedAnswer("a", PauseAnswer()))
    for name in "cd":
        journal.say(said(name))
    asyncio.run(journal.settle())
    assert [decode(line).timestamp[-5:] for line in store.events(RUN)] == ["0000Z", "0000Z", "0001Z", "0001Z"]


def test_the_clock_of_the_machine_is_used_otherwise() -> None:
    before = journals.now()
    _, lines = written(said("x"))
    stamp = decode(lines[0]).timestamp
    assert before.strftime("%Y-%m-%dT%H") <= stamp <= journals.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_something_too_large_leaves_the_chain_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(payload: Payload, longest: int) -> Payload:
        raise TraceError("the event is too large to be written")

    journal = Journal(RUN, MemoryLedger().port)
    journal.say(said("one"))
    head = journal.head
    monkeypatch.setattr(journals, "shortened", refuse)
    with pytest.raises(TraceError, match="too large"):
        journal.say(said("huge", "x" * (17 * 1024 * 1024)))
    assert (journal.head, journal.events) == (head, 1)


# --- the seal


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        pytest.param(SHARED, Keys([SHARED]), id="with a shared key"),
        pytest.param(PRIVATE, Keys([PUBLIC]), id="with a private key, verified with the public one"),
    ],
)
def test_the_end_is_sealed(key: Key, keys: Keys) -> None:
    _, lines = written(said("one"), Emit(END, None, None), key=key)
    report = check_seal(read_chain(lines), keys)
    assert report.proven
    assert report.signed_by == key.id


@pytest.mark.parametrize("change", [b"one", b"completed"], ids=["an event before", "the end itself"])
@pytest.mark.parametrize("key", [SHARED, PRIVATE], ids=["shared", "private"])
def test_a_seal_does_not_hold_after_a_change_to(change: bytes, key: Key) -> None:
    _, lines = written(said("one"), Emit(END, None, None), key=key)
    forged = [line.replace(change, change.upper()) for line in lines]
    assert not check_seal(read_chain(forged), Keys([SHARED, PUBLIC])).holds


def test_an_end_without_a_key_names_its_head_and_proves_nothing() -> None:
    _, lines = written(said("one"), Emit(END, None, None))
    assert decode(lines[1]).data["chain_hash"] == sha256_hex(lines[0])
    report = check_seal(read_chain(lines), require_signature=False)
    assert report.holds
    assert not report.proven
    assert not check_seal(read_chain(lines), Keys([SHARED])).holds


# --- secrets


REF = secret_ref("token")

WITH_REFERENCES: list[Payload] = [
    says.RunStart(
        runbook="r", runbook_hash="h", actor=f"x{REF}", host=REF, gert_version="g", mode="real",
        inputs={"token": REF, "deep": [{"a": f"pre {REF} post"}]}, input_sources={"token": REF},
        constants={REF: REF}, extensions={"x": {"y": [REF]}},
    ),
    says.InputResolved(name="token", source="prompt", value=REF),
    says.StepStart(step_id=REF, step_type="tool", inputs={"a": {"b": [REF, f"{REF}{REF}"]}}, scope=REF, secrets=(REF,)),
    says.StepComplete(
        step_id="a", status="failed", duration="1s", outputs={"o": REF}, evidence={REF: 1},
        failure=says.Failure("exit_code", f"it said {REF}"),
    ),
    says.StepRetry(step_id="a", attempt=2, max=3, delay="1s", failure=says.Failure("timeout", REF)),
    says.ForEachStart(step_id="a", over=[REF], item_count=1, parallel=False, variable="x", keys=(REF,)),
    says.ForEachItem(step_id="a", index=0, value={"t": REF}, key=REF),
    says.ParallelMerge(
        step_id="p",
        branch_outcomes=(
            says.BranchOutcome(index=0, status="failed", failure=says.Failure("lane_failed", REF)),
            says.BranchOutcome(index=1, status="success", outcome=says.Outcome("resolved", REF, {"m": REF})),
        ),
        merged_outputs={"o": [REF]},
    ),
    says.OutcomeResolved(step_id="e", structured_outcome=says.Outcome("resolved", REF, {"m": [REF]})),
    says.ContractViolation(step_id="a", kind="wrong_type", message=REF, severity="warning"),
    says.RunCancelled(reason=REF),
    says.RunComplete(
        status="failed", mode="real", duration="1s", failure=says.Failure("exit_code", REF), failed_step=REF,
        outcome=says.Outcome("resolved", REF),
    ),
]  # fmt: skip


@pytest.mark.parametrize("payload", WITH_REFERENCES, ids=lambda payload: payload.type)
def test_references_to_secrets_are_placeholders_in(payload: Payload) -> None:
    watcher = Watcher(Diary())
    _, lines = written(Emit(payload, None, None), has_secrets=True, observers=[watcher])
    shown = lines[0].decode()
    assert "\ufdd0" not in shown
    assert "\ufdd1" not in shown
    assert shown.count("[REDACTED]") >= msgspec.json.encode(payload).decode().count("\ufdd0")
    event, told = watcher.told[0]
    assert "\ufdd0" not in str(event) + str(told)
    assert type(told) is type(payload)


@pytest.mark.parametrize(
    "said_by",
    [
        pytest.param(Emit(says.InputResolved(name="x", source="s"), None, Principal("agent", REF, role=REF)), id="who"),
        pytest.param(Emit(says.InputResolved(name="x", source="s"), f"each[{REF}]/a", None), id="where"),
    ],
)
def test_references_to_secrets_are_no_part_of(said_by: Emit) -> None:
    watcher = Watcher(Diary())
    _, lines = written(said_by, has_secrets=True, observers=[watcher])
    assert "\ufdd0" not in lines[0].decode()
    assert "\ufdd0" not in str(watcher.told[0][0])


def test_what_holds_no_reference_is_written_as_it_is() -> None:
    payload = says.StepComplete(step_id="a", status="skipped", duration="0s", outputs={"o": UNKNOWN, "n": 1.5})
    _, lines = written(Emit(payload, None, None), has_secrets=True)
    _, plain = written(Emit(payload, None, None), has_secrets=False)
    assert decode(lines[0]).data == decode(plain[0]).data


def test_an_unknown_input_beside_a_reference_is_shown_as_unknown() -> None:
    inputs = {"token": REF, "name": UNKNOWN, "both": Unknown(f"{REF} (unknown)"), "all": [{"deep": UNKNOWN}]}
    payload = says.StepStart(step_id="a", step_type="tool", inputs=inputs)
    watcher = Watcher(Diary())
    _, lines = written(Emit(payload, None, None), has_secrets=True, observers=[watcher])
    told = watcher.told[0][1]
    assert isinstance(told, says.StepStart)
    shown = told.inputs
    assert shown == {
        "token": "[REDACTED]", "name": "(unknown)", "both": "[REDACTED] (unknown)", "all": [{"deep": "(unknown)"}],
    }  # fmt: skip
    assert decode(lines[0]).data["inputs"] == shown
    assert {name for name, value in shown.items() if is_unknown(value)} == {"name", "both", "all"}


# --- the log


@pytest.mark.parametrize(
    "answer",
    [
        ToolAnswer(
            duration=1.5, outputs={"a": [1, {"b": None}]}, exit_code=3, stdout="x\n", stderr="ü\x00", again={"a": 1},
            failure=says.Failure("exit_code", "m"), redacted=2, principal=Principal("agent", "x"),
        ),
        EvidenceAnswer(evidence={"n": "x", "c": ["a"]}, by=BOB),
        TicketAnswer(ticket_id="t", method="terminal", expires_at="2026-01-01T00:00:00Z"),
        ApprovalAnswer(responses=(Response(approver="a", approved=True, timestamp="t", reason="r"),), expired=True),
        PauseAnswer(duration=0.25),
        ToolAnswer(assumed="dry_run"),
    ],
    ids=lambda answer: type(answer).__name__,
)  # fmt: skip
@pytest.mark.parametrize("at_once", [True, False])
def test_an_answer_is_read_back_from_the_log_as_it_was(answer: AnyAnswer, at_once: bool) -> None:
    store = MemoryLedger()
    journal = Journal(RUN, store.port)
    journal.log(RecordedAnswer("a/b[0]~2#3", answer, at_once))
    asyncio.run(journal.settle())
    (read,) = read_answers(store.answers(RUN))
    assert read == RecordedAnswer("a/b[0]~2#3", answer, at_once)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b'{"key":"a"}',
        b'{"key":"a","answer":{"kind":"other"}}',
        b'{"key":"a","answer":{"kind":"tool","exit_code":"x"}}',
        b"not json",
    ],
)
def test_a_line_that_is_no_answer_is_not_taken_for_one(line: bytes) -> None:
    with pytest.raises(IntegrityError, match="cannot be read"):
        list(read_answers([line]))


# --- in a ledger


def test_the_first_event_after_answers_names_them() -> None:
    store = MemoryLedger()
    journal = Journal(RUN, store.port)
    journal.say(said("one"))
    journal.log(RecordedAnswer("a", PauseAnswer(duration=1.0)))
    journal.log(RecordedAnswer("b", PauseAnswer(duration=2.0)))
    journal.say(said("two"))
    journal.say(said("three"))
    asyncio.run(journal.settle())
    head = store.head_of(RUN)
    assert [decode(line).answers for line in store.events(RUN)] == [None, f"2:{head.answers_hash}", None]
    assert head.answers_hash == hash_answer(hash_answer(GENESIS, store.answers(RUN)[0]), store.answers(RUN)[1])


def test_without_a_ledger_no_answers_are_named() -> None:
    watcher = Watcher(Diary())
    journal = Journal(RUN, observers=[watcher])
    journal.log(RecordedAnswer("a", PauseAnswer(duration=1.0)))
    journal.say(said("one"))
    asyncio.run(journal.settle())
    assert [event.answers for event, _ in watcher.told] == [None]


def test_a_record_that_another_changed_is_not_continued(tmp_path: Path) -> None:
    async def work() -> None:
        async with SqliteLedger(tmp_path / "l.db") as ledger:
            await ledger.acquire(RUN, "me", 30)
            journal = Journal(RUN, ledger)
            journal.say(said("one"))
            await journal.settle()
            with closing(sqlite3.connect(tmp_path / "l.db", isolation_level=None)) as other:
                other.execute("UPDATE runs SET answers_hash = 'x' WHERE run_id = ?", (RUN,))
            journal.say(said("two"))
            with pytest.raises(IntegrityError):
                await journal.settle()
            assert len(await ledger.lines(RUN)) == 1
            with pytest.raises(TraceError, match="an earlier append failed"):
                await journal.settle()

    asyncio.run(work())


def test_a_run_that_another_process_has_taken_over_is_not_written(tmp_path: Path) -> None:
    async def work() -> None:
        clock = Clock()
        async with (
            SqliteLedger(tmp_path / "l.db", clock=clock) as ledger,
            SqliteLedger(tmp_path / "l.db", clock=clock) as other,
        ):
            await ledger.acquire(RUN, "me", 30)
            journal = Journal(RUN, ledger)
            journal.say(said("one"))
            await journal.settle()
            clock.now += timedelta(minutes=1)
            assert await other.acquire(RUN, "other", 30) is not None
            journal.say(said("two"))
            with pytest.raises(LeaseLost, match="another process has taken over"):
                await journal.settle()
            assert len(await other.lines(RUN)) == 1

    asyncio.run(work())


def test_the_mirror_has_the_lines_of_the_ledger_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.jsonl"
    store = MemoryLedger()
    journal = Journal(RUN, store.port, mirror=Mirror.begin(str(path)))
    journal.say(said("one"))
    asyncio.run(journal.settle())
    assert path.read_bytes() == b"".join(line + b"\n" for line in store.events(RUN))
    assert journal.problem is None

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        journal.say(said("two"))
        asyncio.run(journal.settle())
    journal.close()
    assert len(store.events(RUN)) == 2
    assert "no space left on device" in str(journal.problem)


def test_nothing_is_mirrored_that_the_ledger_refused(tmp_path: Path) -> None:
    class Full(MemoryLedger):
        def keep(self, batch: Batch) -> None:
            raise TraceError("no space left on device")

    journal = Journal(RUN, Full().port, mirror=Mirror.begin(str(tmp_path / "trace.jsonl")))
    journal.say(said("one"))
    with pytest.raises(TraceError):
        asyncio.run(journal.settle())
    journal.close()
    assert (tmp_path / "trace.jsonl").read_bytes() == b""


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 2, 28, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now
