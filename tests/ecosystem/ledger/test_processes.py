"""What every ledger promises to several processes: one order, one winner, and what was said is there after a kill."""

import asyncio
import random

import asyncpg
import pytest
from tests.ecosystem.ledger.ledgers import (
    LEDGERS,
    RUN,
    SHARED,
    TENANT,
    asks,
    check,
    in_loop,
    note,
    outcome_of,
    process,
    says,
    written,
)
from tests.soak import sampled

from gert.kernel.events.envelope import decode
from gert.kernel.ledger.record import Held, Written

# How a ledger uses its threads is of no concern to other processes.
pytestmark = pytest.mark.parametrize("kind", sampled(SHARED, ["sqlite", "postgres"]))

APPENDS = """
import random
chance = random.Random(rest[0])
for number in range(25):
    await written(ledger, *[note(rest[0])] * chance.randrange(1, 4))
"""
STARTS = """
while not os.path.exists(rest[0]):
    await asyncio.sleep(0.001)
try:
    await ledger.append(RUN, starts)
except FileExistsError:
    print("too late")
else:
    print("started")
"""
ASKS = """
while not os.path.exists(rest[0]):
    await asyncio.sleep(0.001)
done = await ledger.append(rest[1], says(asks("k", "order-7")))
print(type(done).__name__)
"""
# Says the number of the last event after every append that returned.
WRITES = """
os.write(1, b"open\\n")
number = 0
while True:
    done = await asyncio.gather(*(written(ledger, *[note("x" * 2000)] * n) for n in (1, 2, 3)))
    os.write(1, b"%d\\n" % max(each.last for each in done))
"""


@in_loop
async def test_processes_that_write_the_same_run_take_turns(kind: str, place: str) -> None:
    children = [process(kind, place, APPENDS, f"p{n}") for n in range(3)]
    async with LEDGERS[kind](place) as ledger:
        for _ in range(25):
            await written(ledger, note("own"))
        await asyncio.gather(*map(outcome_of, children))
        lines = await check(ledger)
        events = [decode(line) for line in lines]
        assert [event.seq for event in events] == list(range(1, len(lines) + 1))
        for who in ("p0", "p1", "p2", "own"):
            assert sum(event.data["summary_json"] == who for event in events) >= 25
        assert len(await ledger.summaries(RUN, "note", 1000)) == len(lines)


MANY = """
while not os.path.exists(rest[0]):
    await asyncio.sleep(0.001)
for number in range(50):
    await written(ledger, note(rest[1]), run_id=rest[1])
print("done")
"""


@in_loop
async def test_eight_processes_share_a_ledger_and_no_append_fails(kind: str, place: str, tmp_path: object) -> None:
    flag, names = f"{tmp_path}/now", [f"run-{n % 4}" for n in range(8)]
    async with LEDGERS[kind](place) as ledger:
        children = [process(kind, place, MANY, flag, name) for name in names]
        await asyncio.sleep(0.5)
        _raise(flag)
        assert await asyncio.gather(*map(outcome_of, children)) == [[b"done"]] * 8
        for name in set(names):
            assert len(await check(ledger, name)) == 100


@in_loop
async def test_of_processes_that_start_a_run_one_does(kind: str, place: str, tmp_path: object) -> None:
    flag = f"{tmp_path}/now"
    async with LEDGERS[kind](place):
        children = [process(kind, place, STARTS, flag) for _ in range(4)]
        await asyncio.sleep(0.5)
    _raise(flag)
    said = [await outcome_of(child) for child in children]
    assert sorted(said) == [[b"started"], [b"too late"], [b"too late"], [b"too late"]]


@in_loop
async def test_of_processes_that_make_the_same_call_one_does(kind: str, place: str, tmp_path: object) -> None:
    flag = f"{tmp_path}/now"
    async with LEDGERS[kind](place) as ledger:
        children = [process(kind, place, ASKS, flag, f"run-{n}") for n in range(4)]
        await asyncio.sleep(0.5)
        _raise(flag)
        said = [await outcome_of(child) for child in children]
        assert sorted(said) == [[b"Held"], [b"Held"], [b"Held"], [b"Written"]]
        [run] = await ledger.runs()
        [holder] = await ledger.holders(TENANT, "pay", "order-7")
        assert holder.run_id == run.run_id
        assert isinstance(await ledger.append("mine", says(asks("k", "order-7"))), Held)


@in_loop
async def test_a_lease_and_its_end_are_seen_by_others(kind: str, place: str) -> None:
    async with LEDGERS[kind](place) as ledger:
        lease = await ledger.acquire(RUN, "a", 60)
        assert lease is not None
        await written(ledger, note("mine"))
        work = 'print((await ledger.acquire(RUN, "b", 60)) is None)\nprint((await ledger.lease(RUN)).worker_id)'
        assert await outcome_of(process(kind, place, work)) == [b"True", b"a"]
        assert await ledger.release(RUN, "a")
        work = 'await ledger.acquire(RUN, "b", 60)\nawait written(ledger, note("theirs"))'
        await outcome_of(process(kind, place, work))
        found = await ledger.lease(RUN)
        assert found is not None
        assert (found.worker_id, found.token) == ("b", 2)
        with pytest.raises(RuntimeError, match="worker `b` drives run"):
            await ledger.append(RUN, says(note()))
        assert len(await check(ledger)) == 2


@pytest.mark.parametrize("kills", sampled([2, 12], [2]))
@in_loop
async def test_a_killed_writer_has_written_all_it_said_and_nothing_by_halves(kind: str, place: str, kills: int) -> None:
    chance, said = random.Random(20260228), 0
    for _ in range(kills):
        child = process(kind, place, WRITES)
        assert child.stdout is not None
        assert child.stderr is not None
        assert await asyncio.to_thread(child.stdout.readline) == b"open\n", child.stderr.read()
        heard = [await asyncio.to_thread(child.stdout.readline) for _ in range(chance.randrange(1, 12))]
        await asyncio.sleep(chance.random() * 0.01)
        child.kill()
        rest, _ = await asyncio.to_thread(child.communicate)
        said = max(said, *map(int, heard + rest.splitlines()))
        if kind == "postgres":
            # What it had sent, the server still does.
            await sessions_ended(place)
        async with LEDGERS[kind](place) as ledger:
            lines = await check(ledger)
            assert len(lines) >= said
            # It wrote one, two and three at a time: batches are whole.
            done = await ledger.append(RUN, says(note("after")))
            assert isinstance(done, Written)
            assert done.first == len(lines) + 1
            await check(ledger)
    assert said > kills


async def sessions_ended(dsn: str) -> None:
    """Wait until the server has let go of everybody who is dead."""
    query = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'gert' AND datname = current_database()"
    connection = await asyncpg.connect(dsn)
    try:
        while await connection.fetchval(query):
            await asyncio.sleep(0.002)
    finally:
        await connection.close()


def _raise(flag: str) -> None:
    with open(flag, "w"):
        pass
