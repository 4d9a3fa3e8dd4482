"""The drop box: other users of the machine read requests and leave signed responses, and can do nothing else."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.approvals.asking import (
    BOB_KEY,
    MALLORY_KEY,
    NOON,
    SHARED,
    Run,
    done,
    no,
    public,
    running,
    signed,
    verifier,
    yes,
)

from gert.ecosystem.approvals.drop_box import DropBox, find_request, leave_response
from gert.ecosystem.approvals.port import StillOpen
from gert.ecosystem.approvals.responses import encode_response
from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.errors import InputError, UsageError
from gert.kernel.engine.requests import AwaitApproval

posix = pytest.mark.skipif(os.name != "posix", reason="needs the permissions of POSIX")
root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become another user")
STRANGER = 65534
CHECK = verifier(public(BOB_KEY), SHARED, is_strict=True, bob="bob")


def box(folder: Path) -> DropBox:
    made = DropBox(str(folder / "box"), CHECK)
    made.prepare()
    return made


@posix
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_rights_of_the_folders_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        made = box(tmp_path)
        made.prepare()
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((tmp_path / "box" / name).stat().st_mode) for name in ("", "requests", "responses")}
    assert modes == {"": 0o711, "requests": 0o755, "responses": 0o1733}


def _replaced_by_a_link(folder: Path) -> None:
    folder.rename(folder.with_name("other"))
    folder.symlink_to(folder.with_name("other"))


@posix
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda path: (path / "responses").chmod(0o1777), id="responses that others can list"),
        pytest.param(lambda path: (path / "responses").chmod(0o733), id="responses that others can remove"),
        pytest.param(lambda path: (path / "requests").chmod(0o777), id="requests that others can replace"),
        pytest.param(lambda path: path.chmod(0o777), id="a folder that others can replace"),
        pytest.param(
            lambda path: (path / "requests").rename(path / "x") and (path / "requests").symlink_to(path), id="a link"
        ),
    ],
)
def test_a_drop_box_with_other_rights_is_refused(tmp_path: Path, change: Callable[[Path], object]) -> None:
    made = box(tmp_path)
    change(tmp_path / "box")
    with pytest.raises(InputError, match="drop box"):
        made.prepare()


@root
def test_the_drop_box_of_another_user_is_refused(tmp_path: Path) -> None:
    made = box(tmp_path)
    os.chown(tmp_path / "box", STRANGER, STRANGER)
    with pytest.raises(InputError, match="is not a folder of yours"):
        made.prepare()


async def asked(run: Run, made: DropBox) -> tuple[Any, AwaitApproval]:
    asks = run.provider(check=verifier(), drop_box=made, detach=True)
    ask = await run.opened(asks)
    with pytest.raises(StillOpen):
        await asks.wait(ask)
    return asks, ask


@posix
@pytest.mark.parametrize("verdict", [yes, no])
def test_a_signed_response_that_was_left_is_taken(tmp_path: Path, verdict: Any) -> None:
    async def case() -> None:
        made = box(tmp_path)
        async with running() as (run, _):
            asks, ask = await asked(run, made)
            view = find_request(made.path, ask.ticket_id[:-4])
            assert view.ticket.request.request_hash == ask.request.request_hash
            assert "[REDACTED]" in view.ticket.request.inputs["token"]
            leave_response(made.path, signed(view, BOB_KEY, verdict("bob", NOON)))
            assert made.holds(ask.ticket_id)
            count, _ = await run.waited(asks, ask)
            assert count.resolved_by is not None
            assert (count.resolved_by.approver, count.resolved_by.approved) == ("bob", verdict is yes)
            assert not made.holds(ask.ticket_id)
            await asks.settle()
            with pytest.raises(UsageError, match="there are 0 requests"):
                find_request(made.path, ask.ticket_id)

    done(case())


def _text(data: bytes, mode: int = 0o644) -> Callable[[Path, TicketView], None]:
    def write(path: Path, _: TicketView) -> None:
        path.write_bytes(data)
        path.chmod(mode)

    return write


def _response(make: Callable[[TicketView], Any], mode: int = 0o644) -> Callable[[Path, TicketView], None]:
    return lambda path, view: _text(encode_response(make(view)), mode)(path, view)


def _linked(path: Path, view: TicketView) -> None:
    other = path.parent.parent / "mine"
    other.write_bytes(encode_response(signed(view)))
    os.link(other, path)


ATTEMPTS = [
    pytest.param(_response(lambda _: yes()), "it has no signature", id="unsigned"),
    pytest.param(_response(lambda _: no()), "it has no signature", id="an unsigned rejection"),
    pytest.param(_response(lambda view: signed(view, SHARED)), "has no owner", id="a key without an owner"),
    pytest.param(_response(lambda view: signed(view, MALLORY_KEY, yes("ann"))), "no key `ann`", id="an unknown key"),
    pytest.param(_response(lambda view: signed(view, BOB_KEY, yes("ann"))), "does not speak for", id="another's name"),
    pytest.param(_response(signed, 0o666), "changed by other users", id="others can write it"),
    pytest.param(_text(b"x" * 70_000), "wrong size", id="too large"),
    pytest.param(_text(b""), "wrong size", id="empty"),
    pytest.param(_text(b"{}"), "not a response", id="not a response"),
    pytest.param(lambda path, _: path.symlink_to("/etc/passwd"), "cannot be read", id="a link"),
    pytest.param(_linked, "not a regular file of its own", id="a hard link"),
    pytest.param(lambda path, _: os.mkfifo(path), "not a regular file", id="a pipe"),
]


@posix
@pytest.mark.parametrize(("leave", "why"), ATTEMPTS)
def test_what_cannot_be_trusted_is_refused_with_a_note(tmp_path: Path, leave: Any, why: str) -> None:
    async def case() -> None:
        made = box(tmp_path)
        async with running() as (run, tickets):
            asks, ask = await asked(run, made)
            view = find_request(made.path, ask.ticket_id)
            for each in range(3):
                leave(Path(made.path, "responses", f"{ask.ticket_id}.{each}.json"), view)
                with pytest.raises(StillOpen):
                    await asks.wait(ask)
            assert not made.holds(ask.ticket_id)
            shown = await tickets.get(ask.ticket_id)
            assert (shown.status, shown.responses) == ("pending", ())
            assert len(shown.notes) == 1
            assert why in shown.notes[0]

    done(case())


def _as_stranger(act: Callable[[], object]) -> int:
    """Do something as another user; the number of an error, or 0."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(STRANGER)
            os.setuid(STRANGER)
            act()
            code = 0
        except OSError as problem:
            code = problem.errno or 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@root
def test_another_user_can_respond_and_nothing_else(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(0o755)

    async def case() -> None:
        made = box(tmp_path)
        responses, requests = Path(made.path, "responses"), Path(made.path, "requests")
        async with running() as (run, _):
            asks, ask = await asked(run, made)
            other = responses / "other.json"
            other.write_text("of another user")
            published = requests / f"{ask.ticket_id}.json"
            for refused in (
                lambda: os.listdir(responses),
                lambda: os.listdir(made.path),
                lambda: other.write_text("changed"),
                other.unlink,
                lambda: other.rename(responses / "mine"),
                lambda: published.write_text("changed"),
                published.unlink,
                lambda: (requests / "new").write_text("x"),
                lambda: Path(made.path, "new").write_text("x"),
                lambda: responses.rename(Path(made.path, "gone")),
                lambda: responses.chmod(0o777),
            ):
                assert _as_stranger(refused) != 0
            view = find_request(made.path, ask.ticket_id)
            response = signed(view)
            assert _as_stranger(lambda: find_request(made.path, ask.ticket_id)) == 0
            assert _as_stranger(lambda: leave_response(made.path, response)) == 0
            count, _ = await run.waited(asks, ask)
            assert count.resolved_by is not None
            assert count.resolved_by.approved

    done(case())


def test_a_response_to_another_ticket_stays_for_its_own_run(tmp_path: Path) -> None:
    async def case() -> None:
        made = box(tmp_path)
        async with running() as (run, tickets):
            asks, ask = await asked(run, made)
            other = await Run(run.ledger, "run-2").opened(key="x")
            view = await Tickets(run.ledger).get(other.ticket_id)
            leave_response(made.path, signed(view))
            with pytest.raises(StillOpen):
                await asks.wait(ask)
            assert made.holds(other.ticket_id)
            assert (await tickets.get(ask.ticket_id)).responses == ()

    done(case())


@posix
def test_nothing_that_another_user_leaves_hides_a_response_or_fails_the_run(tmp_path: Path) -> None:
    async def case() -> None:
        made = box(tmp_path)
        responses = Path(made.path, "responses")
        async with running() as (run, _):
            asks, ask = await asked(run, made)
            for n in range(150):
                (responses / f"{ask.ticket_id}.!{n:03}").write_text("junk")
            (responses / f"{ask.ticket_id}.d").mkdir()
            (responses / f"{ask.ticket_id}.full").mkdir()
            (responses / f"{ask.ticket_id}.full" / "x").touch()
            os.mkfifo(responses / f"{ask.ticket_id}.pipe")
            leave_response(made.path, signed(find_request(made.path, ask.ticket_id)))
            count, _ = await run.waited(asks, ask)
            assert count.resolved_by is not None

    done(case())
