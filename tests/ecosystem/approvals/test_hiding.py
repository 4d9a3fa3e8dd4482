"""What somebody of the group does at the right moment: to hide a rejection, or to be let in where nobody meant to."""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.ecosystem.approvals.asking import ANN_KEY, MALLORY_KEY, REQUEST, Clock, no, opened, signed
from tests.ecosystem.approvals.test_sharing import KEYS, _put, answering, decision, heard, mode, shared, written

from gert.ecosystem.approvals.locks import locked
from gert.ecosystem.approvals.rejections import SIGN
from gert.ecosystem.approvals.ticket_file import TicketFile
from gert.ecosystem.approvals.tickets import Tickets
from gert.errors import GertError, TraceError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="groups of posix")
AS_ROOT = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives files away")
STRANGER = 65_533


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody can go through, which those of pytest are not."""
    root = Path(tempfile.mkdtemp(prefix="gert-hiding-"))
    root.chmod(0o755)
    try:
        yield root
    finally:
        shutil.rmtree(root)


def approve(store: Tickets, file: TicketFile) -> None:
    """Put the file back as it was, with an approval that is good: as if nobody had said anything else."""
    written(store, file, lambda document: _restored(document, file))


def _restored(document: dict[str, Any], file: TicketFile) -> None:
    document["ticket"] = msgspec.to_builtins(file.ticket)
    _put(document, heard(signed(file)), status="approved")


# --- a rejection that is led astray


LIES: list[Any] = [
    pytest.param(
        lambda document: document["ticket"]["request"].update(request_hash="sha256:" + "1" * 64), id="asks for another"
    ),
    pytest.param(
        lambda document: document["ticket"].update(expires_at="2026-01-02T11:00:00.000000Z"), id="is over since long"
    ),
    pytest.param(
        lambda document: document["ticket"].update(created_at="2026-01-03T12:00:00.000000Z"), id="begins tomorrow"
    ),
    pytest.param(lambda document: document.update(status="expired"), id="is expired"),
    pytest.param(lambda document: document.update(status="abandoned"), id="is abandoned"),
    pytest.param(lambda document: _put(document, heard(no("carol")), status="rejected"), id="is rejected already"),
]


@pytest.mark.parametrize("key", [None, ANN_KEY], ids=["unsigned", "signed"])
@pytest.mark.parametrize("lie", LIES)
def test_a_rejection_counts_although_the_file_said_for_a_moment_that_the_ticket(
    place: Path, lie: Callable[[dict[str, Any]], object], key: Any
) -> None:
    store = shared(place)
    file = opened(store)
    written(store, file, lie)
    found = answering(store).get(file.id)
    rejection = no("ann") if key is None else signed(found, key, no("ann"))
    answering(store).answer(file.id, rejection)
    approve(store, file)
    assert decision(store, file) == "rejected"
    before = store.stamp(file.id)
    assert decision(store, file) == "rejected"
    assert store.stamp(file.id) == before


def test_a_rejection_signed_with_a_key_the_run_does_not_know_is_still_one(place: Path) -> None:
    from tests.ecosystem.approvals.asking import verifier

    store = shared(place)
    file = opened(store)
    own = Tickets(store.folder, store.clock, verifier(MALLORY_KEY))
    assert own.answer(file.id, signed(file, MALLORY_KEY, no("dan"))).objection is None
    approve(store, file)
    assert decision(store, file) == "rejected"


def test_a_rejection_counts_although_the_file_asks_for_another_just_when_it_is_sent(place: Path) -> None:
    store = shared(place)
    file = opened(store)
    written(store, file, LIES[0].values[0])
    answering(store).answer(file.id, no("dan", request_hash=file.ticket.request.request_hash))
    approve(store, file)
    assert decision(store, file) == "rejected"


def test_a_rejection_after_enough_have_approved_does_not_count(place: Path) -> None:
    store = shared(place)
    file = opened(store)
    assert answering(store).answer(file.id, signed(file)).objection is None
    assert answering(store).answer(file.id, no("dan")).objection is not None
    assert decision(store, file) == "approved"


def test_a_rejection_after_the_end_does_not_count(place: Path) -> None:
    clock = Clock()
    store = shared(place, clock)
    file = opened(store)
    clock.forward(minutes=31)
    assert "too late" in (answering(store).answer(file.id, no("dan", clock.now)).objection or "")
    assert decision(store, file) == "expired"


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOMEM], ids=os.strerror)
def test_a_rejection_that_cannot_be_read_just_now_is_not_overlooked(
    place: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    store = shared(place)
    file = opened(store)
    answering(store).answer(file.id, no("dan"))
    approve(store, file)
    opens = os.open

    def failing(path: Any, *how: Any, **more: Any) -> int:
        if str(path).endswith(".json") and more.get("dir_fd") is not None:
            raise OSError(code, os.strerror(code))
        return opens(path, *how, **more)

    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(TraceError, match="cannot be read"):
        decision(store, file)


@AS_ROOT
def test_a_rejection_is_not_kept_where_somebody_else_could_take_it_away(place: Path) -> None:
    """The administrator starts runs, and somebody of the group has put a place of their own there."""
    store = shared(place)
    file = opened(store)
    own = Path(store.folder, f"{file.id}.rejections")
    own.rename(own.with_name("aside"))
    own.mkdir()
    (own / SIGN).write_text(file.id)
    for path in (own, own / SIGN):
        os.chown(path, STRANGER, os.getgid())
    own.chmod(0o3770)
    with pytest.raises(GertError, match="rejections of the ticket"):
        answering(store).answer(file.id, no("dan"))


@AS_ROOT
@pytest.mark.parametrize("whose", ["state", "state/runs"])
def test_a_rejection_is_kept_in_a_place_of_whose_runs_these_are(place: Path, whose: str) -> None:
    """The administrator has made the folder of tickets for somebody."""
    store = shared(place)
    file = opened(store)
    own = Path(store.folder, f"{file.id}.rejections")
    (place / "state" / "runs").mkdir()
    for path in (own, own / SIGN, place / whose):
        os.chown(path, STRANGER, os.getgid())
    own.chmod(0o3770)
    assert answering(store).answer(file.id, no("dan")).objection is None


# --- access that was given to something else


def swapping(monkeypatch: pytest.MonkeyPatch, made: Callable[[str], bool], other: Path, *, link: bool) -> None:
    """Whenever such a folder is made, somebody puts another in its place before anything else is done with it."""
    mkdir = os.mkdir

    def raced(path: str, *how: Any, **more: Any) -> None:
        mkdir(path, *how, **more)
        if made(str(path)) and other.exists():
            os.rename(path, f"{path}.aside")
            os.symlink(other, path) if link else os.rename(other, path)

    monkeypatch.setattr(os, "mkdir", raced)


def private(place: Path) -> Path:
    folder = place / "private"
    folder.mkdir(mode=0o700)
    (folder / "secret").write_text("x")
    return folder


def test_nobody_is_let_into_another_folder_by_way_of_the_locks(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, folder = shared(place), private(place)
    store.prepare()
    swapping(monkeypatch, lambda path: path.endswith("locks"), folder, link=True)
    with pytest.raises(GertError):
        opened(store)
    assert mode(folder) == 0o700


def test_nobody_is_let_into_another_folder_by_way_of_rejections(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, folder = shared(place), private(place)
    store.prepare()
    swapping(monkeypatch, lambda path: ".rejections" in path, folder, link=True)
    with pytest.raises(GertError):
        opened(store)
    assert mode(folder) == 0o700
    assert [path.name for path in folder.iterdir()] == ["secret"]


def test_nobody_is_let_into_another_folder_when_that_of_the_tickets_is_made(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, folder = shared(place), private(place)
    swapping(monkeypatch, lambda path: path.endswith("approvals"), folder, link=True)
    with pytest.raises(GertError):
        store.prepare()
    assert mode(folder) == 0o700


def test_a_place_for_rejections_does_not_become_the_locks(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There everybody could take away what others have put."""
    store = shared(place)
    file = opened(store)
    own = Path(store.folder, f"{file.id}.rejections")
    answering(store).answer(file.id, no("dan"))
    found = own.stat().st_ino
    shutil.rmtree(Path(store.folder, "locks"))
    swapping(monkeypatch, lambda path: path.endswith("locks"), own, link=False)
    with pytest.raises(GertError):
        store.judge(file.id, REQUEST)
    (kept,) = (path for path in Path(store.folder).iterdir() if path.stat().st_ino == found)
    assert mode(kept) == 0o3770


def test_a_place_that_is_stolen_while_it_is_made_is_of_no_ticket(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back later, an empty one would hide what lies in the right one."""
    store = shared(place)
    store.prepare()
    rename, stolen = os.rename, place / "stolen"

    def raced(source: str, target: str) -> None:
        if ".rejections" in str(source) and not stolen.exists():
            rename(source, stolen)
        rename(source, target)

    monkeypatch.setattr(os, "rename", raced)
    with pytest.raises(TraceError, match="rejections cannot be kept"):
        opened(store)
    assert list(stolen.iterdir()) == []


LOCKS: list[Any] = [
    pytest.param(os.rename, b"x" * 32, id="renamed"),
    pytest.param(os.link, b"x" * 32, id="linked"),
    pytest.param(os.link, b"", id="linked, and empty"),
]


@pytest.mark.parametrize(("put", "content"), LOCKS)
def test_a_file_that_is_put_where_a_lock_should_be_is_not_opened_to_others(
    tmp_path: Path, put: Callable[[Path, Path], object], content: bytes
) -> None:
    secret, lock = tmp_path / "page.key", tmp_path / "a.lock"
    secret.write_bytes(content)
    secret.chmod(0o600)
    put(secret, lock)
    with pytest.raises(TraceError, match="it is not a lock"), locked(str(lock), mode=0o660):
        pass
    assert mode(lock) == 0o600


# --- folders of others


@AS_ROOT
def test_a_private_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Who owns it could approve in anybody's name."""
    store = Tickets(str(tmp_path / "approvals"), Clock(), KEYS)
    file = opened(store)
    os.chown(store.folder, STRANGER, STRANGER)
    for act in (store.prepare, lambda: opened(store), lambda: store.judge(file.id, REQUEST)):
        with pytest.raises(TraceError, match="belongs to another user"):
            act()


@pytest.mark.parametrize(
    ("bits", "is_refused"),
    [(0o2775, True), (0o770, True), (0o777, True), (0o1777, False), (0o3775, False), (0o755, False)],
    ids=lambda value: f"{value:o}" if isinstance(value, int) and not isinstance(value, bool) else "",
)
def test_a_way_to_the_tickets_on_which_the_group_can_put_another_folder_in_their_place(
    place: Path, bits: int, is_refused: bool
) -> None:
    store = shared(place)
    store.prepare()
    for above in (place / "state", place):
        before = mode(above)
        above.chmod(bits)
        if is_refused:
            with pytest.raises(TraceError, match="could put another folder in the place of"):
                store.prepare()
        else:
            store.prepare()
        above.chmod(before)
