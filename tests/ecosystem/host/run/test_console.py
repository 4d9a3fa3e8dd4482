"""The one reader of standard input, on real pipes, files and terminals."""

import asyncio
import os
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ecosystem.host.people import LIMIT, Screen, Stdin, a_terminal

from gert.ecosystem.host.run.world.console import MAX_LINE, Console
from gert.errors import InputError


@pytest.fixture
def pipe() -> Iterator[Stdin]:
    stdin = Stdin(*os.pipe())
    yield stdin
    stdin.close()


@pytest.fixture
def terminal() -> Iterator[Stdin]:
    stdin = a_terminal()
    yield stdin
    stdin.close()


def echoes(descriptor: int) -> bool:
    return bool(termios.tcgetattr(descriptor)[3] & termios.ECHO)


async def lines(console: Console, count: int) -> list[str | None]:
    async with asyncio.timeout(LIMIT):
        return [await console.line(f"{number}? ") for number in range(count)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"a\nb\n", ["a", "b", None, None], id="lines, then no more"),
        pytest.param(b"a\r\nb", ["a", "b", None], id="the end of the last line may be missing"),
        pytest.param(b"\n\n", ["", "", None], id="empty lines are answers"),
        pytest.param(b"", [None, None], id="nothing at all"),
        pytest.param("é\n".encode(), ["é"], id="text beyond ASCII"),
        pytest.param(b"a\0b\n", ["a\0b"], id="a NUL is a character"),
        pytest.param(b"x" * MAX_LINE + b"\ny\n", ["x" * MAX_LINE, "y"], id="the longest line"),
    ],
)
def test_lines_of_a_pipe_and_of_a_file(pipe: Stdin, tmp_path: Path, data: bytes, expected: list[str | None]) -> None:

    def write() -> None:
        pipe.type(data)
        pipe.end()

    writer = threading.Thread(target=write)
    writer.start()
    assert asyncio.run(lines(Console(pipe.reads, Screen()), len(expected))) == expected
    writer.join()
    (tmp_path / "answers").write_bytes(data)
    with open(tmp_path / "answers", "rb") as file:
        assert asyncio.run(lines(Console(file.fileno(), Screen()), len(expected))) == expected


@pytest.mark.parametrize(
    ("data", "why", "after"),
    [
        pytest.param(b"x" * (MAX_LINE + 1) + b"\ny\n", "longer than 64 KiB", None, id="a line too long ends it all"),
        pytest.param(b"x" * (MAX_LINE + 1), "longer than 64 KiB", None, id="a line too long, without end"),
        pytest.param(b"\xff\xfe\ny\n", "not UTF-8", "y", id="a line that is not UTF-8 is lost alone"),
    ],
)
def test_lines_that_are_refused(tmp_path: Path, data: bytes, why: str, after: str | None) -> None:
    (tmp_path / "answers").write_bytes(data)

    async def ask(console: Console) -> str | None:
        with pytest.raises(InputError, match=why):
            await console.line()
        if after is None:
            with pytest.raises(InputError, match=why):
                await console.line()
            return None
        return await console.line()

    with open(tmp_path / "answers", "rb") as file:
        assert asyncio.run(ask(Console(file.fileno(), Screen()))) == after


def test_a_line_without_end_is_not_read_for_ever() -> None:
    with open("/dev/zero", "rb") as zeros, pytest.raises(InputError, match="longer than"):
        asyncio.run(lines(Console(zeros.fileno(), Screen()), 1))


def test_the_empty_device_and_a_closed_input_have_no_lines() -> None:
    with open(os.devnull, "rb") as nothing:
        assert asyncio.run(lines(Console(nothing.fileno(), Screen()), 2)) == [None, None]
        closed = os.dup(nothing.fileno())
    os.close(closed)
    assert asyncio.run(lines(Console(closed, Screen()), 2)) == [None, None]
    console = Console(None, Screen(), seen=True)
    assert asyncio.run(lines(console, 2)) == [None, None]
    assert not console.interactive


def test_a_pipe_that_does_not_block_is_waited_for(pipe: Stdin) -> None:
    os.set_blocking(pipe.reads, False)
    screen = Screen()

    async def main() -> list[str | None]:
        asking = asyncio.create_task(lines(Console(pipe.reads, screen), 1))
        await screen.until("0? ")
        pipe.type(b"late\n")
        return await asking

    assert asyncio.run(main()) == ["late"]


def test_a_question_that_is_given_up_loses_no_line(pipe: Stdin) -> None:
    async def main() -> list[str | None]:
        console = Console(pipe.reads, Screen())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await console.line("first? ")
        pipe.type(b"one\ntwo\n")
        return await lines(console, 2)

    assert asyncio.run(main()) == ["one", "two"]


def test_a_line_that_arrives_after_its_loop_is_closed_is_not_lost(pipe: Stdin) -> None:
    console = Console(pipe.reads, Screen())

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await console.line()

    asyncio.run(give_up())
    pipe.type(b"one\n")
    assert asyncio.run(lines(console, 1)) == ["one"]


def test_dialogues_are_not_mixed(pipe: Stdin) -> None:
    turns: list[str] = []
    screen = Screen()
    console = Console(
        pipe.reads, screen, on_turn_begin=lambda: turns.append("begin"), on_turn_end=lambda: turns.append("end")
    )

    async def dialogue(name: str) -> list[str | None]:
        async with console.turn():
            first = await console.line(f"{name}1? ")
            await asyncio.sleep(0)
            return [first, await console.line(f"{name}2? ")]

    async def main() -> list[list[str | None]]:
        asking = asyncio.gather(dialogue("a"), dialogue("b"), dialogue("c"))
        for answer in range(6):
            pipe.type(b"%d\n" % answer)
            await asyncio.sleep(0)
        return list(await asking)

    assert asyncio.run(main()) == [["0", "1"], ["2", "3"], ["4", "5"]]
    assert screen.text == "a1? \na2? \nb1? \nb2? \nc1? \nc2? \n"
    assert turns == ["begin", "end"] * 3


def test_a_cancelled_dialogue_gives_its_turn_back(pipe: Stdin) -> None:
    async def main() -> str | None:
        console = Console(pipe.reads, Screen())

        async def hold() -> None:
            async with console.turn():
                await console.line("held? ")

        holding = asyncio.create_task(hold())
        await asyncio.sleep(0)
        waiting = asyncio.create_task(console.line("next? "))
        await asyncio.sleep(0)
        holding.cancel()
        pipe.type(b"mine\n")
        return await waiting

    assert asyncio.run(main()) == "mine"


def test_nothing_that_is_shown_can_steer_a_terminal() -> None:
    screen = Screen()
    console = Console(None, screen)
    console.say("one\x1b[2J\ntwo\r\u202e")
    asyncio.run(console.line("\x1b]0;owned\x07name: "))
    assert screen.text == "one\ufffd[2J\ntwo\ufffd\ufffd\n\ufffd]0;owned\ufffdname: \n"


@pytest.mark.parametrize("seen", [True, False])
def test_a_terminal_is_interactive_only_if_prompts_are_visible(terminal: Stdin, seen: bool) -> None:
    assert Console(terminal.reads, Screen(), seen=seen).interactive is seen


def test_a_secret_is_not_echoed(terminal: Stdin) -> None:
    screen = Screen()
    console = Console(terminal.reads, screen, seen=True)

    async def main() -> tuple[str | None, bool]:
        asking = asyncio.create_task(console.line("key: ", hidden=True))
        await screen.until("key: ")
        is_shown = echoes(terminal.reads)
        terminal.type(b"hunter2\n")
        return await asking, is_shown

    assert asyncio.run(main()) == ("hunter2", False)
    assert echoes(terminal.reads)
    assert screen.text == "key: \n"
    os.set_blocking(terminal.types, False)
    with pytest.raises(BlockingIOError):
        os.read(terminal.types, 100)


def test_the_echo_is_back_after_a_secret_is_given_up(terminal: Stdin) -> None:
    screen = Screen()
    console = Console(terminal.reads, screen, seen=True)

    async def main() -> None:
        asking = asyncio.create_task(console.line("key: ", hidden=True))
        await screen.until("key: ")
        assert not echoes(terminal.reads)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(main())
    assert echoes(terminal.reads)


@pytest.mark.parametrize(
    ("seen", "shown"),
    [
        pytest.param(True, "ready? \n", id="the question is seen"),
        pytest.param(False, "ready? \n", id="the question had a line of its own"),
    ],
)
def test_what_is_said_after_a_question_that_was_given_up_begins_a_line(terminal: Stdin, seen: bool, shown: str) -> None:
    screen = Screen()
    console = Console(terminal.reads, screen, seen=seen)

    async def main() -> None:
        asking = asyncio.create_task(console.line("ready? "))
        await screen.until("ready? ")
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(main())
    assert screen.text == shown


def test_what_was_typed_too_early_answers_no_fresh_question(terminal: Stdin) -> None:
    screen = Screen()
    console = Console(terminal.reads, screen, seen=True)

    async def main() -> list[str | None]:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await console.line("expired? ", fresh=True)
        terminal.type(b"y\ny\ny")
        terminal.arrived()
        asking = asyncio.create_task(console.line("approve? ", fresh=True))
        await screen.until("approve? ")
        await asyncio.sleep(0.05)
        is_answered = asking.done()
        terminal.type(b"n\n")
        return ["early" if is_answered else "in time", await asking]

    assert asyncio.run(main()) == ["in time", "n"]


def test_half_an_answer_is_not_joined_to_a_fresh_one(terminal: Stdin) -> None:
    screen = Screen()
    console = Console(terminal.reads, screen, seen=True)

    async def main() -> str | None:
        asking = asyncio.create_task(console.line("expired? ", fresh=True))
        await screen.until("expired? ")
        terminal.type(b"y\x04")  # handed over without the end of the line
        await asyncio.sleep(0.05)
        asking.cancel()
        asking = asyncio.create_task(console.line("approve? ", fresh=True))
        await screen.until("approve? ")
        terminal.type(b" no\n")
        return await asking

    assert asyncio.run(main()) == " no"


def test_a_terminal_goes_on_after_its_end_of_file(terminal: Stdin) -> None:
    screen = Screen()
    console = Console(terminal.reads, screen, seen=True)

    async def main() -> list[str | None]:
        asking = asyncio.create_task(lines(console, 2))
        await screen.until("0? ")
        terminal.type(b"\x04")
        await screen.until("1? ")
        terminal.type(b"here\n")
        return await asking

    assert asyncio.run(main()) == [None, "here"]


def test_a_terminal_that_hangs_up_has_no_more_lines(terminal: Stdin) -> None:
    screen = Screen()
    console = Console(terminal.reads, screen, seen=True)

    async def main() -> list[str | None]:
        asking = asyncio.create_task(lines(console, 3))
        await screen.until("0? ")
        terminal.end()
        answers = await asking
        return [*answers, await console.line("key: ", hidden=True, fresh=True)]

    assert asyncio.run(main()) == [None] * 4


PROGRAM = """
import asyncio
from gert.ecosystem.host.run.world.console import Console

async def main():
    console = Console.standard()
    print(console.interactive, [await console.line("one? "), await console.line("two? ", hidden=True)])

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("closed", "expected"),
    [
        pytest.param(False, "False ['a', 'b']\n", id="a pipe"),
        pytest.param(True, "False [None, None]\n", id="closed before the start"),
    ],
)
def test_questions_of_a_process_go_to_standard_error(closed: bool, expected: str) -> None:
    arguments = [sys.executable, "-c", PROGRAM]
    if closed:
        arguments = ["sh", "-c", 'exec "$@" <&-', "sh", *arguments]
    done = subprocess.run(arguments, input="a\nb\n", capture_output=True, text=True, timeout=LIMIT, check=True)
    assert done.stdout == expected
    assert done.stderr == "one? \ntwo? \n"


def test_a_process_that_is_interrupted_ends_at_once_and_shows_what_is_typed_again(terminal: Stdin) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=terminal.reads, stdout=subprocess.DEVNULL, stderr=terminal.reads
    )
    shown = b""
    while b"one? " not in shown:
        shown += os.read(terminal.types, 1000)
    terminal.type(b"a\n")
    while b"two? " not in shown:
        shown += os.read(terminal.types, 1000)
    assert not echoes(terminal.reads)
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT) != 0
    assert echoes(terminal.reads)
