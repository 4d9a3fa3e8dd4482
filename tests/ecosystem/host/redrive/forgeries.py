"""What a forger does to a signed trace, in every way we could think of; each changes its bytes."""

import base64
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
from tests.kernel.events.traces import STORY, Chain, rechained, stamped, trace

from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import decode, encode
from gert.kernel.events.trace_seal import seal
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.signature import Key, parse_key

SEAL = ("chain_hash", "signature", "signing_key_id", "signature_alg", "body_signature")
THIEVES = (
    parse_key("another shared secret", "shared"),
    parse_key("ed25519:" + base64.b64encode(bytes(range(1, 33))).decode(), "prod-2026"),
    parse_key("another shared secret", "unheard-of"),
)

Forgery = Callable[[bytes, Random], bytes]


def join(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def flip_a_bit(whole: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(whole))
    return whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :]


def change_a_byte(whole: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(whole))
    return whole[:at] + bytes([chance.randrange(256)]) + whole[at + 1 :]


def remove_a_byte(whole: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(whole))
    return whole[:at] + whole[at + 1 :]


def insert_bytes(whole: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(whole) + 1)
    what = chance.choice(
        [b" ", b"\n", b"\r", b"\t", b"\x00", b"0", b'"', b"\\", b"}", b"\xef\xbb\xbf", b"{}\n", b"null"]
    )
    return whole[:at] + what + whole[at:]


def cut_the_end(whole: bytes, chance: Random) -> bytes:
    return whole[: chance.randrange(len(whole))]


def cut_the_beginning(whole: bytes, chance: Random) -> bytes:
    return whole[chance.randrange(1, len(whole)) :]


def cut_the_last_line_break(whole: bytes, chance: Random) -> bytes:
    return whole[:-1]


def remove_lines(whole: bytes, chance: Random) -> bytes:
    lines = whole.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    del lines[at : at + chance.randrange(1, 3)]
    return b"".join(lines)


def swap_lines(whole: bytes, chance: Random) -> bytes:
    lines = whole.splitlines(keepends=True)
    one, other = chance.sample(range(len(lines)), 2)
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def repeat_a_line(whole: bytes, chance: Random) -> bytes:
    lines = whole.splitlines(keepends=True)
    lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
    return b"".join(lines)


def repeat_it_all(whole: bytes, chance: Random) -> bytes:
    return whole * chance.randrange(2, 4)


def change_line_breaks(whole: bytes, chance: Random) -> bytes:
    return whole.replace(b"\n", chance.choice([b"\r\n", b"\n\n", b" \n", b"\r", b"\x0b"]))


def change_an_event(whole: bytes, chance: Random) -> bytes:
    return join(_changed(whole.splitlines(), chance))


def rewrite_under_the_old_signature(whole: bytes, chance: Random) -> bytes:
    """A chain that holds, and an end that claims its new head."""
    return join(rechained(_changed(whole.splitlines(), chance, last=False)))


def rewrite_under_the_old_seal(whole: bytes, chance: Random) -> bytes:
    """A chain that holds, and an end whose seal is genuine, for the head of another chain."""
    end = whole.splitlines()[-1]
    lines = rechained(_changed(whole.splitlines(), chance, last=False))
    return join([*lines[:-1], _with(end, prev_hash=decode(lines[-1]).prev_hash)])


def rewrite_without_an_event(whole: bytes, chance: Random) -> bytes:
    lines = whole.splitlines()
    del lines[chance.randrange(len(lines) - 1)]
    return join(rechained(_numbered(lines)))


def rewrite_with_another_event(whole: bytes, chance: Random) -> bytes:
    lines = whole.splitlines()
    at = chance.randrange(len(lines) - 1)
    lines.insert(at, lines[chance.randrange(len(lines) - 1)])
    return join(rechained(_numbered(lines)))


def sign_with_another_key(whole: bytes, chance: Random) -> bytes:
    key = chance.choice(THIEVES)
    lines = rechained(_changed(whole.splitlines(), chance, last=False)) if chance.random() < 0.5 else whole.splitlines()
    return join([*lines[:-1], _sealed(lines[-1], key)])


def sign_with_another_key_under_the_old_label(whole: bytes, chance: Random) -> bytes:
    lines = whole.splitlines()
    genuine = msgspec.json.decode(lines[-1])["data"]
    forged = msgspec.json.decode(_sealed(lines[-1], chance.choice(THIEVES)))
    for name in ("signing_key_id", "signature_alg"):
        forged["data"][name] = genuine[name]
    return join([*lines[:-1], msgspec.json.encode(forged)])


def take_off_the_signature(whole: bytes, chance: Random) -> bytes:
    lines = whole.splitlines()
    taken = chance.sample(SEAL, chance.randrange(1, len(SEAL) + 1))
    return join([*lines[:-1], _with_data(lines[-1], lambda data: [data.pop(name) for name in taken])])


def empty_the_signature(whole: bytes, chance: Random) -> bytes:
    lines = whole.splitlines()
    values: list[object] = [None, "", 0, [], {}, "0" * 64, True]
    name, value = chance.choice(SEAL), chance.choice(values)
    return join([*lines[:-1], _with_data(lines[-1], lambda data: data.update({name: value}))])


def change_the_end(whole: bytes, chance: Random) -> bytes:
    lines = whole.splitlines()
    changes: list[dict[str, object]] = [
        {"status": "failed"},
        {"outcome": None},
        {"duration": "0s"},
        {"mode": "dry-run"},
        {"new": 1},
        {"status": 1},
    ]
    change = chance.choice(changes)
    return join([*lines[:-1], _with_data(lines[-1], lambda data: data.update(change))])


def write_the_end_otherwise(whole: bytes, chance: Random) -> bytes:
    """The same event in other bytes: a JSON reader sees no difference, an auditor must."""
    lines = whole.splitlines()
    end = lines[-1]
    other = chance.choice(
        [
            end.replace(b'"status"', b'"\\u0073tatus"'),
            end.replace(b":", b": ", 1),
            end + b" ",
            b" " + end,
            end.replace(b'"data":{', b'"data":{"status":"failed",'),
            end.replace(b'"type":', b'"type":"run_start","type":'),
            end.replace(b"}}", b',"body_signature":""}}'),
            end[:-1] + b',"data":{}}',
            end[:-1] + b',"note":1}',
        ]
    )
    return join([*lines[:-1], other])


def change_the_run(whole: bytes, chance: Random) -> bytes:
    lines = whole.splitlines()
    if chance.random() < 0.5:
        return join(rechained([_with(line, run_id="run-x") for line in lines]))
    at = chance.randrange(len(lines))
    return join([*lines[:at], _with(lines[at], run_id="run-x"), *lines[at + 1 :]])


def change_the_numbers(whole: bytes, chance: Random) -> bytes:
    lines = whole.splitlines()
    shift = chance.choice([-1, 1, 1000, 2**52])
    if chance.random() < 0.5:
        return join(rechained([_with(line, seq=max(0, decode(line).seq + shift)) for line in lines]))
    at = chance.randrange(len(lines))
    return join([*lines[:at], _with(lines[at], seq=decode(lines[at]).seq + shift), *lines[at + 1 :]])


def add_after_the_end(whole: bytes, chance: Random) -> bytes:
    """Anything but a chained notification, which may follow, and is told apart."""
    lines = whole.splitlines()
    chain = Chain(sha256_hex(lines[-1]), len(lines))
    webhook = says.WebhookSent(url="https://example.com", delivered=True, attempts=1)
    what = chance.choice(
        [
            encode(stamped(chain, says.StepComplete(step_id="x", status="success", duration="1s"))),
            encode(stamped(Chain("0" * 64, len(lines)), webhook)),
            encode(stamped(Chain(chain.head, len(lines) + 1), webhook)),
            _with(encode(stamped(chain, webhook)), run_id="run-x"),
            encode(stamped(chain, webhook))[:-1],
            _with(lines[-1], seq=len(lines) + 1, prev_hash=chain.head),
            b"",
            b"{}",
            b"\x00" * 100,
        ]
    )
    return whole + what + chance.choice([b"\n", b"\n\n"])


def seal_of_another_run(whole: bytes, chance: Random) -> bytes:
    """A genuine end by the very key, of a shorter run."""
    key = _KEYS[decode(whole.splitlines()[-1]).data["signing_key_id"]]
    other = trace(key, (*STORY[: chance.randrange(1, 5)], STORY[-1]))
    return join([*whole.splitlines()[:-1], other[-1]])


def _changed(lines: list[bytes], chance: Random, *, last: bool = True) -> list[bytes]:
    """Change one event as someone would who has something to hide."""
    at = chance.randrange(len(lines) if last else len(lines) - 1)
    changes: list[Callable[[], bytes]] = [
        lambda: _with_data(lines[at], lambda data: data.update(step_id="harmless")),
        lambda: _with_data(lines[at], lambda data: data.pop(next(iter(data)))),
        lambda: _with(lines[at], timestamp="2026-02-28T14:29:59.000000Z"),
        lambda: _with(lines[at], principal={"kind": "human", "id": "mallory@example.com"}),
        lambda: _with(lines[at], type="step_skipped"),
        lambda: _with(lines[at], path="somewhere/else"),
        lambda: _with(lines[at], tenant="another"),
    ]
    return [*lines[:at], chance.choice(changes)(), *lines[at + 1 :]]


def _with(line: bytes, **fields: Any) -> bytes:
    event = msgspec.json.decode(line)
    data = event.pop("data")
    return msgspec.json.encode({**event, **fields, "data": data})


def _with_data(line: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    event = msgspec.json.decode(line)
    change(event["data"])
    return msgspec.json.encode(event)


def _numbered(lines: list[bytes]) -> list[bytes]:
    return [_with(line, seq=number) for number, line in enumerate(lines, start=1)]


def _sealed(line: bytes, key: Key) -> bytes:
    event = decode(line)
    bare = {name: value for name, value in event.data.items() if name not in SEAL}
    return encode(seal(msgspec.structs.replace(event, data=bare), key))


_KEYS: dict[str, Key] = {}


def remember(key: Key) -> Key:
    """Let forgers have a genuine seal by a key, though not the key."""
    _KEYS[key.id] = key
    return key


FORGERIES: dict[Forgery, int] = {
    flip_a_bit: 1000,
    change_a_byte: 300,
    remove_a_byte: 250,
    insert_bytes: 400,
    cut_the_end: 400,
    cut_the_beginning: 100,
    cut_the_last_line_break: 1,
    remove_lines: 100,
    swap_lines: 100,
    repeat_a_line: 150,
    repeat_it_all: 5,
    change_line_breaks: 20,
    change_an_event: 250,
    rewrite_under_the_old_signature: 150,
    rewrite_under_the_old_seal: 150,
    rewrite_without_an_event: 100,
    rewrite_with_another_event: 100,
    sign_with_another_key: 200,
    sign_with_another_key_under_the_old_label: 50,
    take_off_the_signature: 200,
    empty_the_signature: 150,
    change_the_end: 100,
    write_the_end_otherwise: 150,
    change_the_run: 150,
    change_the_numbers: 150,
    add_after_the_end: 250,
    seal_of_another_run: 50,
}
"""How often each is tried on each trace."""
