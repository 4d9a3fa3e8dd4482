"""A folder of tickets that is shared with a group: how it is made, what is refused, and what counts there."""

import asyncio
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.ecosystem.approvals.asking import (
    ANN_KEY,
    BOB_KEY,
    NOON,
    REQUEST,
    RUN,
    Clock,
    asking,
    no,
    path_of,
    public,
    signed,
    submitting,
    verifier,
    waiting,
    yes,
)

from gert.ecosystem.approvals.port import StillOpen
from gert.ecosystem.approvals.provider import TicketApprovals
from gert.ecosystem.approvals.rejections import SIGN, Rejections
from gert.ecosystem.approvals.sharing import Group
from gert.ecosystem.approvals.ticket_file import MOST_ANSWERS, TicketFile, ticket_id_for
from gert.ecosystem.approvals.tickets import Tickets
from gert.errors import GertError, IntegrityError, TraceError, UsageError
from gert.kernel.engine.approval_rules import Ticket, tally
from gert.kernel.engine.requests import Response

pytestmark = pytest.mark.skipif(os.name != "posix", reason="groups of posix")
KEYS = verifier(public(ANN_KEY), public(BOB_KEY), ann="ann", bob="bob")
LATER = NOON + timedelta(minutes=1)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody can go through, which those of pytest are not."""
    root = Path(tempfile.mkdtemp(prefix="gert-shared-"))
    root.chmod(0o755)
    try:
        yield root
    finally:
        shutil.rmtree(root)


def ours() -> Group:
    return Group(str(os.getgid()))


def shared(place: Path, clock: Clock | None = None, check: Any = KEYS) -> Tickets:
    """The tickets of a run, shared with our own group."""
    return Tickets(str(place / "state" / "approvals"), clock or Clock(), check, ours())


def opened(store: Tickets, **changes: Any) -> TicketFile:
    return store.open(asking(**changes), RUN, "ticket")


def answering(store: Tickets) -> Tickets:
    """The same tickets for whoever answers, who knows no settings."""
    return Tickets(store.folder, store.clock, KEYS)


def mode(path: Path | str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def written(store: Tickets, file: TicketFile, change: Callable[[dict[str, Any]], object]) -> None:
    path = path_of(store, file)
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))


def heard(response: Response, **more: Any) -> dict[str, Any]:
    return {"response": msgspec.to_builtins(response), "at": response.timestamp, **more}


# --- folders


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777], ids=lambda value: f"umask {value:03o}")
def test_modes_are_what_they_are_whatever_the_umask(place: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = shared(place)
        file = opened(store)
        answering(store).answer(file.id, no())
    finally:
        os.umask(before)
    assert mode(place / "state") == 0o710
    assert mode(store.folder) == mode(Path(store.folder, "locks")) == 0o2770
    assert mode(path_of(store, file)) == mode(Path(store.folder, "locks", f"{file.id}.lock")) == 0o660
    assert mode(Path(store.folder, f"{file.id}.rejections")) == 0o3770
    sign, kept = sorted(Path(store.folder, f"{file.id}.rejections").iterdir())
    assert sign.name == SIGN
    assert mode(kept) == mode(sign) == 0o640


def test_a_folder_that_is_right_is_not_touched(place: Path) -> None:
    store = shared(place)
    store.prepare()
    before = os.stat(store.folder)
    store.prepare()
    opened(store)
    after = os.stat(store.folder)
    assert (before.st_mode, before.st_gid, before.st_ino) == (after.st_mode, after.st_gid, after.st_ino)


REFUSED: list[Any] = [
    pytest.param(lambda path: path.chmod(0o700), "is not shared with the group", id="private"),
    pytest.param(lambda path: path.chmod(0o770), "is not shared with the group", id="without the bit for new files"),
    pytest.param(lambda path: path.chmod(0o2750), "is not shared with the group", id="where the group cannot write"),
    pytest.param(lambda path: path.chmod(0o2775), "is not shared with the group", id="that others can read"),
    pytest.param(lambda path: path.chmod(0o2772), "others may write", id="that others can write in"),
    pytest.param(lambda path: path.parent.chmod(0o700), "cannot go through", id="below one that is closed"),
    pytest.param(lambda path: (path.rmdir(), path.symlink_to(path.parent)), "is not a folder", id="that is a link"),
    pytest.param(lambda path: (path.rmdir(), path.write_text("")), "is not a folder", id="that is a file"),
]


@pytest.mark.parametrize(("change", "why"), REFUSED)
def test_a_folder_is_refused(place: Path, change: Callable[[Path], object], why: str) -> None:
    store = shared(place)
    store.prepare()
    change(Path(store.folder))
    for act in (store.prepare, lambda: opened(store), lambda: store.judge("run-1", REQUEST)):
        with pytest.raises(TraceError, match=why):
            act()


@pytest.mark.parametrize("bits", [0o2770, 0o770, 0o720, 0o2730], ids=lambda value: f"{value:o}")
def test_a_folder_of_a_group_is_refused_where_settings_do_not_share_it(place: Path, bits: int) -> None:
    folder = place / "approvals"
    folder.mkdir()
    folder.chmod(bits)
    store = Tickets(str(folder), Clock(), KEYS)
    for act in (store.prepare, lambda: opened(store), lambda: store.judge("run-1", REQUEST)):
        with pytest.raises(TraceError, match="others may write") as problem:
            act()
        assert "approvals.shared_with" in (problem.value.hint or "")


def test_a_folder_everybody_writes_in_is_refused_also_to_whoever_answers(place: Path) -> None:
    store = shared(place)
    file = opened(store)
    os.chmod(store.folder, 0o2777)
    people = answering(store)
    for act in (lambda: people.get(file.id), lambda: people.answer(file.id, no())):
        with pytest.raises(TraceError, match="others may write"):
            act()


@pytest.mark.parametrize("name", ["no-such-group-here", "", "-1", "0x10", "٣", "99999999999", "a\nb"], ids=ascii)
def test_what_is_no_group_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="there is no group") as problem:
        Group(name)
    assert "\n" not in problem.value.message


def test_a_group_is_known_by_its_name_and_its_number() -> None:
    import grp

    known = grp.getgrall()[0]
    assert Group(known.gr_name).id == Group(str(known.gr_gid)).id == known.gr_gid


def test_a_system_without_groups_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(UsageError, match="cannot be shared with the group `ops`: this system has no such groups"):
        Group("ops")


# --- what counts


def decision(store: Tickets, file: TicketFile, **terms: Any) -> str:
    """What the run makes of a ticket, by its own request and the times it has on record."""
    request = asking(**terms)
    ask = msgspec.structs.replace(
        waiting(file.id, request), created_at=file.ticket.created_at, expires_at=file.ticket.expires_at
    )
    try:
        answer = asyncio.run(TicketApprovals(store, RUN, detach=True).wait(ask))
    except StillOpen:
        return "open"
    if answer.failure is not None:
        return answer.failure.message
    ticket = Ticket(id=file.id, request=request, created_at=file.ticket.created_at, expires_at=file.ticket.expires_at)
    by = tally(ticket, answer.responses).resolved_by
    if by is not None:
        return "approved" if by.approved else "rejected"
    return "expired" if answer.expired else "nobody"


def test_a_signed_approval_counts_and_an_unsigned_one_does_not(place: Path) -> None:
    store = shared(place)
    file = opened(store)
    refused = answering(store).answer(file.id, yes())
    assert refused.objection is not None
    assert refused.objection.startswith("the response has no valid signature")
    assert decision(store, file) == "open"
    assert answering(store).answer(file.id, signed(file)).objection is None
    assert decision(store, file) == "approved"


def test_what_is_shown_always_asks_for_signatures(place: Path) -> None:
    store = shared(place)
    file = opened(store)
    assert file.ticket.request.require_signed_approvals
    written(store, file, lambda document: document["ticket"]["request"].update(require_signed_approvals=False))
    assert answering(store).get(file.id).ticket.request.require_signed_approvals


def _put(document: dict[str, Any], *answers: dict[str, Any], status: str = "pending") -> None:
    document.update(responses=list(answers), status=status)


FORGED: list[Any] = [
    pytest.param(lambda file: heard(yes()), "open", id="an unsigned answer"),
    pytest.param(lambda file: heard(yes(verified=True)), "open", id="one called verified"),
    pytest.param(lambda file: heard(yes(scripted=True)), "open", id="one called scripted"),
    pytest.param(lambda file: heard(signed(file, BOB_KEY, yes("ann"))), "open", id="signed in another's name"),
    pytest.param(
        lambda file: heard(signed(file, BOB_KEY, yes(at=LATER + timedelta(minutes=5)))), "open", id="from the future"
    ),
    pytest.param(
        lambda file: heard(signed(file, BOB_KEY, yes(at=NOON - timedelta(minutes=5)))), "open", id="from the past"
    ),
    pytest.param(lambda file: heard(signed(file), objection="no"), "open", id="one that was refused"),
    pytest.param(lambda file: heard(yes(reason="x" * 100_000)), "open", id="an endless one"),
    pytest.param(lambda file: heard(signed(file)), "approved", id="a good one, whoever wrote it down"),
    pytest.param(lambda file: heard(no()), "rejected", id="an unsigned rejection"),
]


@pytest.mark.parametrize(("make", "result"), FORGED)
def test_an_answer_that_somebody_of_the_group_writes_into_the_file(
    place: Path, make: Callable[[TicketFile], dict[str, Any]], result: str
) -> None:
    clock = Clock()
    store = shared(place, clock)
    file = opened(store)
    clock.now = LATER
    written(store, file, lambda document: _put(document, make(file)))
    assert decision(store, file) == result
    assert decision(store, file) == result


TIMES: list[Any] = [
    pytest.param({"expires_at": "2999-01-01T00:00:00.000000Z"}, 31, "expired", id="put off"),
    pytest.param({"expires_at": "2026-01-02T12:00:00.000000Z"}, 1, "open", id="brought forward"),
    pytest.param({"created_at": "2001-01-01T00:00:00.000000Z"}, 31, "expired", id="asked long ago"),
    pytest.param({"created_at": "2999-01-01T00:00:00.000000Z"}, 1, "open", id="asked in the future"),
]


@pytest.mark.parametrize(("times", "minutes", "result"), TIMES)
def test_the_times_of_a_ticket_are_those_the_run_has_on_record(
    place: Path, times: dict[str, str], minutes: int, result: str
) -> None:
    clock = Clock()
    store = shared(place, clock)
    file = opened(store)
    written(store, file, lambda document: document["ticket"].update(times))
    clock.forward(minutes=minutes)
    assert decision(store, file) == result
    assert store.get(file.id).ticket.expires_at == file.ticket.expires_at


@pytest.mark.parametrize("status", ["approved", "rejected", "expired"])
def test_how_a_ticket_is_marked_decides_nothing(place: Path, status: str) -> None:
    store = shared(place)
    file = opened(store)
    written(store, file, lambda document: document.update(status=status))
    assert decision(store, file) == "open"
    assert any("open again" in note for note in store.get(file.id).notes)


def test_an_answer_that_names_a_time_before_the_end_counts_only_if_signed(place: Path) -> None:
    clock = Clock()
    store = shared(place, clock)
    file = opened(store)
    clock.forward(minutes=31)
    written(store, file, lambda document: _put(document, heard(yes())))
    assert decision(store, file) == "expired"


def test_an_unsigned_approval_does_not_count_before_a_rejection_either(place: Path) -> None:
    store = shared(place)
    file = opened(store)
    written(store, file, lambda document: _put(document, heard(yes("eve")), heard(no("dan"))))
    assert decision(store, file) == "rejected"


def test_a_ticket_that_was_there_before_the_run_asked_is_open_from_now_on(place: Path) -> None:
    clock = Clock()
    store = shared(place, clock)
    file = opened(store)
    early = signed(file, BOB_KEY, yes())
    written(store, file, lambda document: _put(document, heard(early), status="approved"))
    clock.forward(hours=1)
    again = opened(store)
    assert again.ticket.created_at == "2026-01-02T13:00:00.000000Z"
    assert again.status == "pending"
    assert decision(store, again) == "open"
    assert store.get(file.id).responses[0].objection == "the response is older than the request"


def test_a_ticket_planted_under_the_id_of_a_question_is_not_taken_for_it(place: Path) -> None:
    store = shared(place)
    store.prepare()
    Path(store.folder, f"{ticket_id_for(RUN.run_id, RUN.key)}.json").write_text("{}")
    answer = asyncio.run(TicketApprovals(store, RUN).submit(submitting()))
    assert answer.failure is not None


def test_without_keys_nobody_is_asked(place: Path) -> None:
    store = Tickets(str(place / "a"), Clock(), shared_with=ours())
    answer = asyncio.run(TicketApprovals(store, RUN).submit(submitting()))
    assert answer.failure is not None
    assert "no key to verify them with is set" in answer.failure.message


def test_a_key_without_an_owner_rejects_and_does_not_approve(place: Path) -> None:
    from gert.ecosystem.approvals.signatures import KeyVerifier
    from gert.kernel.foundation.signature import Keys

    store = shared(place, check=KeyVerifier(Keys([public(BOB_KEY)]), is_strict=True))
    file = opened(store)
    answering(store).answer(file.id, signed(file))
    assert decision(store, file) == "open"
    assert "it is not said whom the key `bob` speaks for" in (store.get(file.id).responses[0].objection or "")
    answering(store).answer(file.id, signed(file, BOB_KEY, no()))
    assert decision(store, file) == "rejected"


@pytest.mark.parametrize("count", [MOST_ANSWERS + 1, 20_000], ids=["one too many", "thousands"])
def test_a_file_with_more_answers_than_gert_writes_is_refused(place: Path, count: int) -> None:
    store = shared(place)
    file = opened(store)
    written(store, file, lambda document: _put(document, *[heard(yes())] * count))
    assert "more than a ticket ever does" in decision(store, file)


# --- rejections


TAKEN: list[Any] = [
    pytest.param(lambda document, _: _put(document), id="taken out"),
    pytest.param(
        lambda document, _: document["responses"][0].update(objection="it does not count"), id="said not to count"
    ),
    pytest.param(
        lambda document, file: _put(document, heard(signed(file)), status="approved"), id="replaced by an approval"
    ),
    pytest.param(
        lambda document, file: _put(document, heard(signed(file)), document["responses"][0], status="approved"),
        id="put after an approval",
    ),
]


@pytest.mark.parametrize("change", TAKEN)
def test_a_rejection_cannot_be_taken_away(place: Path, change: Callable[[Any, TicketFile], object]) -> None:
    store = shared(place)
    file = opened(store)
    assert answering(store).answer(file.id, no("dan")).objection is None
    written(store, file, lambda document: change(document, file))
    assert decision(store, file) == "rejected"
    before = store.stamp(file.id)
    assert decision(store, file) == "rejected"
    assert store.stamp(file.id) == before


def test_an_approval_before_a_rejection_stays_where_it_is(place: Path) -> None:
    store = shared(place)
    file = opened(store, min_approvers=2)
    answering(store).answer(file.id, signed(file))
    answering(store).answer(file.id, no("dan"))
    before = store.stamp(file.id)
    assert decision(store, file, min_approvers=2) == "rejected"
    assert store.stamp(file.id) == before


def test_judging_twice_changes_nothing_whatever_was_kept(place: Path) -> None:
    store = shared(place)
    file = opened(store)
    for stale in (no(at=NOON - timedelta(hours=1)), no(at=NOON + timedelta(hours=9)), no(reason="x" * 50_000)):
        Rejections(store.folder, file.id).keep(stale)
    assert decision(store, file) == "open"
    before = store.stamp(file.id)
    assert decision(store, file) == "open"
    assert store.stamp(file.id) == before


def test_an_approval_among_the_rejections_is_none(place: Path) -> None:
    store = shared(place)
    file = opened(store)
    Rejections(store.folder, file.id).keep(signed(file))
    assert decision(store, file) == "open"


def _another_mode(path: Path) -> None:
    path.chmod(0o2770)


def _linked(path: Path) -> None:
    path.rename(path.with_suffix(".aside"))
    path.symlink_to(path.with_suffix(".aside"))


@pytest.mark.parametrize(
    "change", [_another_mode, _linked, shutil.rmtree], ids=["without the sticky bit", "a link", "taken away"]
)
def test_a_place_for_rejections_that_is_not_the_runs_denies(place: Path, change: Callable[[Path], object]) -> None:
    store = shared(place)
    file = opened(store)
    answering(store).answer(file.id, signed(file))
    change(Path(store.folder, f"{file.id}.rejections"))
    assert "are not where the run keeps them" in decision(store, file)
    with pytest.raises(GertError):
        opened(store) if change is not shutil.rmtree else store.judge(file.id, REQUEST)


def test_a_rejection_that_cannot_be_kept_is_said_to_be_none(place: Path) -> None:
    store = shared(place)
    file = opened(store)
    shutil.rmtree(Path(store.folder, f"{file.id}.rejections"))
    with pytest.raises(TraceError, match="rejections cannot be kept"):
        answering(store).answer(file.id, no())
    with pytest.raises(IntegrityError):
        store.judge(file.id, REQUEST)


def _swap(one: Path, other: Path) -> None:
    """What anybody of the group can do: both lie in a folder they can write in."""
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def _two(store: Tickets) -> tuple[TicketFile, Path, Path]:
    """A ticket with its place for rejections, and that of another question of the same run."""
    file = opened(store)
    other = store.open(asking(), msgspec.structs.replace(RUN, key="another!submit"), "ticket")
    first, second = (Path(store.folder, f"{each.id}.rejections") for each in (file, other))
    return file, first, second


def test_the_place_of_another_ticket_does_not_hide_a_rejection(place: Path) -> None:
    store = shared(place)
    file, own, another = _two(store)
    assert answering(store).answer(file.id, no("dan")).objection is None
    written(store, file, lambda document: _put(document, heard(signed(file)), status="approved"))
    _swap(own, another)
    assert "are not where the run keeps them" in decision(store, file)
    _swap(own, another)
    assert decision(store, file) == "rejected"


def test_a_rejection_is_not_led_into_the_place_of_another_ticket(place: Path) -> None:
    store = shared(place)
    file, own, another = _two(store)
    _swap(own, another)
    with pytest.raises(GertError, match="rejections of the ticket"):
        answering(store).answer(file.id, no("dan"))
    # Who was told that it is none finds none: neither here nor there.
    _swap(own, another)
    assert decision(store, file) == "open"
    assert answering(store).get(file.id).responses == ()


def test_a_place_somebody_has_made_beforehand_is_not_taken_for_the_runs(place: Path) -> None:
    store = shared(place)
    opened(store)
    planted = Path(store.folder, f"{ticket_id_for(RUN.run_id, 'another!submit')}.rejections")
    planted.mkdir()
    (planted / "somebody.json").write_bytes(b"{}")
    with pytest.raises(IntegrityError, match="not where the run keeps them"):
        store.open(asking(), msgspec.structs.replace(RUN, key="another!submit"), "ticket")


def test_a_run_that_was_stopped_while_it_made_the_place_makes_it_again(place: Path) -> None:
    store = shared(place)
    file = opened(store)
    own = Path(store.folder, f"{file.id}.rejections")
    for left in own.iterdir():
        left.unlink()
    own.chmod(0o700)
    opened(store)
    assert answering(store).answer(file.id, no("dan")).objection is None
    assert decision(store, file) == "rejected"


def test_a_run_that_ends_leaves_what_it_cannot_close(place: Path) -> None:
    store = shared(place)
    file = opened(store)
    Path(store.folder, "locks", f"{file.id}.lock").unlink()
    Path(store.folder, "locks", f"{file.id}.lock").mkdir()
    assert asyncio.run(TicketApprovals(store, RUN).settle()) == []
