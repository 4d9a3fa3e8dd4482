"""Tickets on disk."""

import json
import os
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.ecosystem.approvals.asking import (
    ANN_KEY,
    BOB_KEY,
    MALLORY_KEY,
    NOON,
    REQUEST,
    RUN,
    Clock,
    asking,
    no,
    opened,
    path_of,
    public,
    signed,
    tickets,
    verifier,
    yes,
)

from gert.ecosystem.approvals.evaluate import Terms
from gert.ecosystem.approvals.locks import locked
from gert.ecosystem.approvals.ticket_file import MAX_BYTES, MOST_HEARD, bare, ticket_id_for
from gert.ecosystem.approvals.tickets import Tickets
from gert.errors import DocumentError, GertError, TraceError, UsageError
from gert.kernel.engine.requests import Response
from gert.kernel.foundation.names import is_safe_name

posix = pytest.mark.skipif(os.name != "posix", reason="permissions and links of posix")


# --- opening


def test_a_ticket_is_open_for_as_long_as_the_request_says(tmp_path: Path) -> None:
    file = opened(tickets(tmp_path))
    assert file.ticket.created_at == "2026-01-02T12:00:00.000000Z"
    assert file.ticket.expires_at == "2026-01-02T12:30:00.000000Z"
    assert (file.status, file.approvals, file.needed) == ("pending", 0, 1)


def test_the_same_question_leads_to_the_same_ticket_with_all_that_was_said(tmp_path: Path) -> None:
    clock = Clock()
    store = tickets(tmp_path, clock)
    first = opened(store, min_approvers=2)
    store.answer(first.id, yes("bob"))
    clock.forward(minutes=5)
    again = opened(store, min_approvers=2)
    assert again == store.get(first.id)
    assert again.ticket == first.ticket
    assert again.approvals == 1


def test_another_request_under_the_same_question_voids_approvals(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    first = opened(store)
    store.answer(first.id, yes())
    again = opened(store, request_hash="sha256:" + "1" * 64)
    assert (again.id, again.status, again.approvals) == (first.id, "pending", 0)
    changed = "what would run has changed: earlier approvals do not count"
    assert [each.objection for each in again.responses] == [changed]
    assert again.notes == (changed,)
    assert store.get(first.id) == again


def test_another_request_under_the_same_question_keeps_a_rejection(tmp_path: Path) -> None:
    clock = Clock()
    store = tickets(tmp_path, clock)
    first = opened(store)
    store.answer(first.id, signed(first, response=no(reason="not today")))
    clock.forward(minutes=5)
    again = opened(store, request_hash="sha256:" + "1" * 64)
    assert again.status == "rejected"
    judged = store.judge(first.id, asking(request_hash="sha256:" + "1" * 64), again.ticket.created_at)
    assert [(each.response.reason, each.objection) for each in judged.responses] == [("not today", None)]
    assert judged.status == "rejected"


def test_a_rejection_that_counted_decides_although_fewer_approvals_are_needed_now(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    first = opened(store, min_approvers=2)
    store.answer(first.id, yes("cat"))
    assert store.answer(first.id, no("bob")).objection is None
    assert store.judge(first.id, asking(min_approvers=1)).status == "rejected"


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        pytest.param([], "abandoned", id="nobody has answered"),
        pytest.param([yes("bob")], "abandoned", id="it was approved"),
        pytest.param([no("bob")], "rejected", id="it was rejected"),
    ],
)
def test_an_outdated_ticket_is_closed_and_shows_what_was_asked(
    tmp_path: Path, answers: list[Response], status: str
) -> None:
    store = tickets(tmp_path)
    first = opened(store)
    for each in answers:
        assert store.answer(first.id, each).objection is None
    now = asking(command={"program": "evil", "arguments": []})
    file = store.withdraw(first.id, Terms(request=now), "the command is another one")
    assert [bare(each.response).approver for each in file.responses] == [each.approver for each in answers]
    stored = store.get(first.id)
    assert stored.status == status
    assert stored.ticket == first.ticket
    assert stored.notes == (("outdated: the command is another one",) if status == "abandoned" else ())
    store.withdraw(first.id, Terms(request=now), "the command is another one")
    assert store.get(first.id) == stored


def test_opened_again_the_terms_are_those_of_the_run(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    first = opened(store)
    assert opened(store, min_approvers=3).needed == 3
    assert store.get(first.id).needed == 3


@pytest.mark.parametrize("run_id", ["r", "20260228-143000-123-abc123", "x" * 128], ids=["short", "usual", "longest"])
def test_an_id_is_a_safe_name_that_only_this_question_has(run_id: str) -> None:
    ids = {ticket_id_for(run_id, f"step[{number}]!submit") for number in range(2000)}
    assert len(ids) == 2000
    assert all(is_safe_name(each) for each in ids)
    assert ticket_id_for(run_id, "a") == ticket_id_for(run_id, "a")


@posix
def test_only_the_owner_can_read(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = opened(store)
    store.answer(file.id, yes())
    assert stat.S_IMODE(os.stat(store.folder).st_mode) == 0o700
    assert stat.S_IMODE(path_of(store, file).stat().st_mode) == 0o600


@posix
def test_a_folder_others_may_write_in_is_refused(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    os.mkdir(store.folder)
    os.chmod(store.folder, 0o777)
    with pytest.raises(TraceError, match="others may write"):
        opened(store)


@posix
def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "approvals").write_text("a file")
    with pytest.raises(GertError):
        opened(tickets(tmp_path))


# --- answering


def test_one_approval_of_one_closes(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    answered = store.answer(opened(store).id, yes())
    assert answered.objection is None
    assert answered.file.status == "approved"


def test_one_refusal_closes_and_later_answers_are_refused_and_recorded(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = opened(store, min_approvers=2)
    assert store.answer(file.id, yes("bob")).file.status == "pending"
    assert store.answer(file.id, no("eve")).file.status == "rejected"
    late = store.answer(file.id, yes("dan"))
    assert late.objection == "the ticket is closed: `eve` has decided"
    assert late.file.status == "rejected"
    assert [heard.response.approver for heard in late.file.refused] == ["dan"]


def test_what_does_not_count_is_recorded_and_closes_nothing(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = opened(store, approvers=(("bob",),), admitted=(("bob",),))
    answered = store.answer(file.id, yes("eve"))
    assert answered.objection == "`eve` is not among the approvers `bob`"
    assert answered.file.status == "pending"
    assert answered.file.responses[0].objection == answered.objection
    assert store.answer(file.id, yes("bob")).file.status == "approved"


def test_an_answer_after_the_time_closes_the_ticket_as_expired(tmp_path: Path) -> None:
    clock = Clock()
    store = tickets(tmp_path, clock)
    file = opened(store)
    clock.forward(minutes=31)
    answered = store.answer(file.id, yes(at=NOON))
    assert answered.objection == "the response came too late: the ticket expired at 2026-01-02T12:30:00.000000Z"
    assert answered.file.status == "expired"
    assert not answered.file.responses  # backdated as it is, the run would count it


def test_decided_in_time_stays_decided_after_it(tmp_path: Path) -> None:
    clock = Clock()
    store = tickets(tmp_path, clock)
    file = opened(store)
    store.answer(file.id, yes())
    clock.forward(days=1)
    assert store.expire(file.id).status == "approved"
    assert store.abandon(file.id).status == "approved"
    assert store.judge(file.id, asking()).status == "approved"
    assert store.answer(file.id, no("eve")).objection == "the ticket is closed: `bob` has decided"


def test_an_answer_to_an_abandoned_ticket_is_refused(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = opened(store)
    assert store.abandon(file.id).status == "abandoned"
    answered = store.answer(file.id, yes())
    assert answered.objection == "the ticket is closed: the run does not wait for an answer any more"
    assert answered.file.status == "abandoned"


def test_only_a_ticket_whose_time_is_over_expires(tmp_path: Path) -> None:
    clock = Clock()
    store = tickets(tmp_path, clock)
    file = opened(store)
    assert store.expire(file.id).status == "pending"
    clock.forward(minutes=31)
    assert store.get(file.id).status_at(clock()) == "expired"
    assert store.expire(file.id).status == "expired"


@pytest.mark.parametrize("approver", ["eve", "bob"], ids=["while it is open", "after it was closed"])
def test_there_is_an_end_to_what_is_recorded(tmp_path: Path, approver: str) -> None:
    store = tickets(tmp_path)
    file = opened(store, min_approvers=2, approvers=(("bob", "dan"),), admitted=(("bob", "dan"),))
    if approver == "bob":
        store.answer(file.id, no("dan"))
    for _ in range(MOST_HEARD + 5):
        last = store.answer(file.id, yes(approver, reason="x" * 1900)).file
        if approver == "bob":
            continue
    assert len(last.responses) + len(last.refused) <= MOST_HEARD + 1
    assert last.unrecorded == 5
    if approver == "eve":
        assert store.answer(file.id, yes("bob")).objection is None
        assert store.answer(file.id, yes("dan")).file.status == "approved"


def test_whoever_subscribes_is_told_of_answers(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = opened(store, min_approvers=2)
    told: list[str] = []
    end = store.subscribe(told.append)
    store.answer(file.id, yes("bob"))
    end()
    store.answer(file.id, yes("eve"))
    assert told == [file.id]


# --- judging


def test_judging_changes_nothing_that_is_right(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = opened(store, min_approvers=2, require_signed_approvals=True)
    store.answer(file.id, signed(file))
    store.answer(file.id, yes("eve"))
    before = store.stamp(file.id)
    judged = store.judge(file.id, asking(min_approvers=2, require_signed_approvals=True))
    assert store.stamp(file.id) == before
    assert [(heard.response.verified, heard.objection is None) for heard in judged.responses] == [
        (True, True),
        (False, False),
    ]


def test_what_is_kept_never_says_that_a_signature_holds(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = opened(store, require_signed_approvals=True)
    store.answer(file.id, signed(file))
    store.judge(file.id, asking(require_signed_approvals=True))
    assert b"verified" not in path_of(store, file).read_bytes()


def test_a_run_that_does_not_hold_the_key_opens_the_ticket_again(tmp_path: Path) -> None:
    file = opened(tickets(tmp_path), require_signed_approvals=True)
    elsewhere = tickets(tmp_path)
    assert elsewhere.answer(file.id, signed(file)).file.status == "approved"
    run = Tickets(elsewhere.folder, Clock())
    judged = run.judge(file.id, asking(require_signed_approvals=True))
    assert judged.status == "pending"
    assert judged.responses[0].objection == "the response has no valid signature: no key `bob` is known"
    assert "open again" in judged.notes[0]


def test_an_answer_that_cannot_be_verified_here_closes_nothing_for_others(tmp_path: Path) -> None:
    first = opened(tickets(tmp_path))
    here = tickets(tmp_path, check=verifier(public(BOB_KEY)))
    ann = signed(first, ANN_KEY, yes("ann"))
    there = tickets(tmp_path, check=verifier(ANN_KEY))
    assert there.answer(first.id, ann, is_unverified=True).objection is None
    assert (here.get(first.id).status, here.get(first.id).approvals) == ("pending", 0)
    # Neither a run without the key counts it, nor does it forget it; and one with the key does.
    kept = here.judge(first.id, REQUEST)
    assert (kept.status, here.get(first.id)) == ("pending", there.get(first.id))
    judged = tickets(tmp_path, check=verifier(public(ANN_KEY))).judge(first.id, REQUEST)
    assert (judged.status, judged.approvals) == ("approved", 1)
    assert [each.is_unverified for each in here.get(first.id).responses] == [False]


def test_a_verified_answer_after_one_that_was_not_counts(tmp_path: Path) -> None:
    first = opened(tickets(tmp_path))
    tickets(tmp_path, check=verifier(MALLORY_KEY)).answer(
        first.id, signed(first, MALLORY_KEY, yes("ann")), is_unverified=True
    )
    store = tickets(tmp_path, check=verifier(public(ANN_KEY)))
    assert store.answer(first.id, signed(first, ANN_KEY, yes("ann"))).file.status == "approved"
    judged = store.judge(first.id, REQUEST)
    assert (judged.status, judged.approvals) == ("approved", 1)
    assert [each.objection is None for each in judged.responses] == [False, True]


def test_there_is_an_end_to_answers_that_cannot_be_verified(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = opened(store)
    for _ in range(MOST_HEARD):
        assert store.answer(file.id, signed(file), is_unverified=True).objection is None
    assert "no room" in (store.answer(file.id, signed(file), is_unverified=True).objection or "")
    assert store.answer(file.id, signed(file)).file.status == "approved"


def test_an_answer_that_was_refused_does_not_count_when_it_would_later(tmp_path: Path) -> None:
    store = Tickets(str(tmp_path / "approvals"), Clock())
    file = opened(store, require_signed_approvals=True)
    assert store.answer(file.id, signed(file)).objection == (
        "the response has no valid signature: no key `bob` is known"
    )
    judged = tickets(tmp_path).judge(file.id, asking(require_signed_approvals=True))
    assert judged.status == "pending"
    assert judged.responses[0].response.verified
    assert judged.responses[0].objection is not None


# --- finding


@pytest.mark.parametrize("start", ["run-1", "run-1-", ""], ids=["the run", "a part", "everything"])
def test_a_unique_beginning_is_enough(tmp_path: Path, start: str) -> None:
    store = tickets(tmp_path)
    file = opened(store)
    if not start:
        with pytest.raises(UsageError, match="is not a ticket id"):
            store.find(start)
    else:
        assert store.find(start) == file.id


def test_a_beginning_of_several_is_refused_and_names_them(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    import msgspec

    files = [store.open(asking(), msgspec.structs.replace(RUN, key=f"k{each}"), "ticket") for each in range(8)]
    with pytest.raises(UsageError, match="may be 8 tickets") as problem:
        store.find("run")
    assert problem.value.hint is not None
    assert "and 3 more" in problem.value.hint
    assert store.find(files[0].id) == files[0].id


HOSTILE_IDS = ["..", "../x", "/etc/passwd", "a/b", "a\0b", "a\nb", ".hidden", "a" * 129, "con", "", "a b", "ä", "-x"]


@pytest.mark.parametrize("ticket_id", HOSTILE_IDS, ids=[ascii(each)[:20] for each in HOSTILE_IDS])
@pytest.mark.parametrize("act", ["find", "get", "answer", "expire", "abandon", "note", "judge"])
def test_an_id_that_is_no_name_leads_nowhere(tmp_path: Path, ticket_id: str, act: str) -> None:
    store = tickets(tmp_path)
    opened(store)
    more: dict[str, tuple[Any, ...]] = {"answer": (yes(),), "note": ("x",), "judge": (asking(),)}
    with pytest.raises(UsageError, match="is not a ticket id"):
        getattr(store, act)(ticket_id, *more.get(act, ()))


def test_an_unknown_ticket_leaves_nothing_behind(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    with pytest.raises(UsageError, match="there is no ticket"):
        store.answer("run-9", yes())
    assert not os.path.exists(store.folder)
    assert store.all() == []


# --- hostile files


def _deep(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes(b'{"version":1,"ticket":' + b"[" * 100_000)


def _edit(**changes: Any) -> Callable[[Path, dict[str, Any]], None]:
    def write(path: Path, content: dict[str, Any]) -> None:
        path.write_text(json.dumps({**content, **changes}))

    return write


def _edit_ticket(**changes: Any) -> Callable[[Path, dict[str, Any]], None]:
    return lambda path, content: _edit(ticket={**content["ticket"], **changes})(path, content)


def _link_to_itself(path: Path, content: dict[str, Any]) -> None:
    path.unlink()
    path.symlink_to(path)


def _link_elsewhere(path: Path, content: dict[str, Any]) -> None:
    other = path.parent.parent / "elsewhere.json"
    path.rename(other)
    path.symlink_to(other)


def _pipe(path: Path, content: dict[str, Any]) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path, content: dict[str, Any]) -> None:
    path.unlink()
    path.mkdir()


HOSTILE: list[Any] = [
    pytest.param(lambda path, _: path.write_bytes(path.read_bytes()[:100]), id="truncated"),
    pytest.param(lambda path, _: path.write_bytes(b""), id="empty"),
    pytest.param(lambda path, _: path.write_bytes(b"\0" * 4096), id="zeros, as after a crash"),
    pytest.param(lambda path, _: path.write_bytes(b"\xff\xfe"), id="not UTF-8"),
    pytest.param(lambda path, _: path.write_bytes(path.read_bytes() + b"x"), id="something after its end"),
    pytest.param(lambda path, _: path.write_bytes(b" " * (MAX_BYTES + 1)), id="huge"),
    pytest.param(lambda path, _: path.write_bytes(b"[]"), id="a list"),
    pytest.param(_deep, id="nested without end"),
    pytest.param(_edit(version=2), id="of another version"),
    pytest.param(_edit(version="1"), id="with a version that is text"),
    pytest.param(_edit(status="granted"), id="with a status there is not"),
    pytest.param(_edit(responses={}), id="with answers that are no list"),
    pytest.param(_edit(responses=[{"response": {"approver": "bob"}}]), id="with half an answer"),
    pytest.param(_edit_ticket(id="run-2"), id="of another ticket"),
    pytest.param(_edit_ticket(expires_at=None), id="without an end"),
    pytest.param(_edit_ticket(expires_at="never"), id="with an end that is none"),
    pytest.param(_edit_ticket(expires_at="9999-12-31T23:59:59-14:00"), id="with an end no calendar holds"),
    pytest.param(_link_to_itself, id="a link to itself", marks=posix),
    pytest.param(_link_elsewhere, id="a link to a good ticket elsewhere", marks=posix),
    pytest.param(_pipe, id="a pipe", marks=posix),
    pytest.param(_folder, id="a folder"),
]


@pytest.mark.parametrize("spoil", HOSTILE)
def test_a_file_that_is_no_ticket_is_said_to_be_none_and_approves_nothing(
    tmp_path: Path, spoil: Callable[[Path, dict[str, Any]], None]
) -> None:
    store = tickets(tmp_path)
    file = opened(store)
    store.answer(file.id, yes())
    path = path_of(store, file)
    spoil(path, json.loads(path.read_bytes()))
    for act in (
        lambda: store.get(file.id),
        lambda: store.answer(file.id, yes()),
        lambda: store.judge(file.id, asking()),
        lambda: opened(store),
    ):
        with pytest.raises(DocumentError) as problem:
            act()
        assert "\n" not in problem.value.message
    problems: list[GertError] = []
    assert store.all(on_problem=problems.append) == []
    assert len(problems) == 1


def test_foreign_files_in_the_folder_are_passed_over(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = opened(store)
    for name in ("README.md", ".hidden.json", "a b.json", f".{file.id}.tmp", "..json"):
        Path(store.folder, name).write_text("{}")
    Path(store.folder, "folder").mkdir()
    assert [each.id for each in store.all()] == [file.id]


@posix
def test_what_is_planted_under_the_temporary_name_is_not_written_through(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = opened(store)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    Path(store.folder, f".{file.id}.tmp").symlink_to(victim)
    assert store.answer(file.id, yes()).objection is None
    assert victim.read_text() == "mine"


def test_a_request_too_large_to_read_is_not_asked(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="too large"):
        opened(tickets(tmp_path), inputs={"text": "x" * MAX_BYTES})


# --- many at once


def test_two_people_at_the_same_instant_close_a_ticket_once(tmp_path: Path) -> None:
    for attempt in range(20):
        store = tickets(tmp_path / str(attempt))
        os.mkdir(tmp_path / str(attempt))
        file = opened(store)
        gate = threading.Barrier(2)
        said: list[str | None] = []

        def answer(approver: str, store: Tickets = store, gate: threading.Barrier = gate, into: Any = said) -> None:
            gate.wait()
            into.append(store.answer(store.find("run"), yes(approver)).objection)

        people = [threading.Thread(target=answer, args=(name,)) for name in ("bob", "eve")]
        for person in people:
            person.start()
        for person in people:
            person.join()
        assert said.count(None) == 1
        assert len(store.get(file.id).counted) == 1
        assert len(store.get(file.id).refused) == 1


ANSWERER = """
import sys, random
from datetime import datetime, UTC
from gert.ecosystem.approvals.tickets import Tickets
from gert.kernel.engine.requests import Response
from gert.kernel.events.envelope import format_timestamp
now = lambda: datetime.now(UTC)
store = Tickets(sys.argv[1], now)
ids = sorted(each.id for each in store.all())
random.Random(sys.argv[2]).shuffle(ids)
for ticket_id in ids:
    answered = store.answer(
        ticket_id, Response(approver=sys.argv[2], approved=True, timestamp=format_timestamp(now()))
    )
    print(ticket_id, answered.objection is None, answered.file.status, flush=True)
"""


def _answerer(folder: str, name: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", ANSWERER, folder, name], stdout=subprocess.PIPE, text=True)


def test_ten_processes_approve_500_tickets_and_each_is_decided_exactly_once(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    import msgspec

    store = Tickets(str(tmp_path / "approvals"), lambda: datetime.now(UTC))
    needed = 3
    for number in range(500):
        store.open(asking(min_approvers=needed), msgspec.structs.replace(RUN, key=f"k{number}"), "ticket")
    processes = [_answerer(store.folder, f"person-{each}") for each in range(10)]
    counted: Counter[str] = Counter()
    for process in processes:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        lines = [line.split() for line in out.splitlines()]
        assert len(lines) == 500
        counted.update(ticket for ticket, counts, _ in lines if counts == "True")
    assert set(counted.values()) == {needed}
    for file in store.all():
        assert (file.status, file.approvals) == ("approved", needed)
        assert len({response.approver for response in file.counted}) == needed
        assert len(file.responses) + len(file.refused) == 10


@posix
def test_a_kill_while_answering_leaves_no_half_file_and_no_lock(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    import msgspec

    store = Tickets(str(tmp_path / "approvals"), lambda: datetime.now(UTC))
    for number in range(40):
        store.open(asking(min_approvers=100), msgspec.structs.replace(RUN, key=f"k{number}"), "ticket")
    said: Counter[str] = Counter()
    for each in range(12):
        process = _answerer(store.folder, f"person-{each}")
        assert process.stdout is not None
        for _ in range(each * 3 + 1):
            said[process.stdout.readline().split()[0]] += 1
        process.kill()
        # What was said before the kill is said on the pipe.
        said.update(line.split()[0] for line in process.stdout if line.endswith("\n"))
        process.wait()
        process.stdout.close()
    for file in store.all():
        assert file.approvals >= said[file.id]
        assert store.answer(file.id, yes("late", at=datetime.now(UTC))).objection is None
    assert sum(said.values()) >= 12


def test_a_lock_that_is_held_is_waited_for_only_so_long(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with locked(path), pytest.raises(TraceError, match="is locked by another process"), locked(path, patience=0.01):
        pass
    with locked(path, patience=0):
        pass


@posix
def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "other")
    with pytest.raises(TraceError, match="cannot be locked"), locked(str(tmp_path / "lock")):
        pass
    assert not (tmp_path / "other").exists()


def test_a_signature_survives_the_file(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = opened(store)
    said = signed(file, BOB_KEY)
    assert store.answer(file.id, said).objection is None
    assert store.get(file.id).responses[0].response == said


@pytest.mark.parametrize("length", [1, 114, 115, 116, 128], ids=lambda length: f"of {length} characters")
def test_the_tickets_of_a_run_are_found_by_an_id(tmp_path: Path, length: int) -> None:
    store, run_id = tickets(tmp_path), "r" * length
    file = store.open(asking(run_id=run_id), msgspec.structs.replace(RUN, run_id=run_id), "ticket")
    assert [each.id for each in store.all("pending", run_id=run_id)] == [file.id]
