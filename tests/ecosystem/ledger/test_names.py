"""What every ledger promises about the names things are looked up by: all keep the same ones, and refuse the same."""

import random
import string
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.ecosystem.ledger.ledgers import LEDGERS, RUN, TENANT, asks, check, in_loop, note, says, written

from gert.errors import GertError, InputError
from gert.kernel.events.agent import PauseRequested, RunStarted
from gert.kernel.ledger.limits import MAX_NAME_BYTES, MAX_TOGETHER_BYTES
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Batch, Expect, Head, RunFilter, Written

BAD = [
    pytest.param("a\0b", "holds a NUL", id="a NUL"),
    pytest.param("a\ud800", "holds a lone surrogate", id="half a character"),
    pytest.param("x" * (MAX_NAME_BYTES + 1), "too long", id="too long"),
    pytest.param("漢" * (MAX_NAME_BYTES // 3 + 1), "too long", id="too long in bytes"),
]

# Everything that looks something up by a name.
LOOKS: dict[str, Callable[[Ledger, str], Awaitable[Any]]] = {
    "a step key": lambda ledger, name: ledger.calls(RUN, name),
    "a tenant of a call": lambda ledger, name: ledger.holders(name, "pay", "k"),
    "a tool": lambda ledger, name: ledger.holders(TENANT, name, "k"),
    "a semantic key": lambda ledger, name: ledger.holders(TENANT, "pay", name),
    "a tool that is counted": lambda ledger, name: ledger.count_calls(name),
    "a tenant whose calls are counted": lambda ledger, name: ledger.count_calls("pay", tenant=name),
    "a summary type": lambda ledger, name: ledger.summary(RUN, name),
    "a type of summaries": lambda ledger, name: ledger.summaries(RUN, name),
    "the beginning of a summary type": lambda ledger, name: ledger.latest_summaries(RUN, name),
    "a tenant": lambda ledger, name: ledger.runs(RunFilter(tenant=name)),
    "a status": lambda ledger, name: ledger.runs(RunFilter(status=name)),
    "a worker that takes": lambda ledger, name: ledger.acquire(RUN, name, 5),
    "a worker that prolongs": lambda ledger, name: ledger.renew(RUN, name, 5),
    "a worker that gives back": lambda ledger, name: ledger.release(RUN, name),
    "an expected key": lambda ledger, name: ledger.append(RUN, says(note()), expects=[Expect(name, 0)]),
}

# Everything that is kept under a name.
WRITES: dict[str, Callable[[str], Any]] = {
    "a step key": lambda name: says(asks(name)),
    "a semantic key": lambda name: says(asks("k", name)),
    "a tool": lambda name: says(asks("k", tool=name)),
    "a summary type": lambda name: says(note("x", name)),
    "the second of two": lambda name: says(note("x"), note("y", name)),
}


def long_name(size: int) -> str:
    """A name that cannot be made shorter."""
    return "".join(random.Random(size).choices(string.ascii_letters + string.digits + "._-", k=size))


class TestAName:
    @pytest.mark.parametrize(("name", "why"), BAD)
    @in_loop
    async def test_that_cannot_be_kept_is_looked_for_nowhere(self, kind: str, place: str, name: str, why: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, RunStarted())
            for look in LOOKS.values():
                with pytest.raises(InputError, match=why):
                    await look(ledger, name)
            assert await ledger.lease(RUN) is None
            assert len(await check(ledger)) == 1

    @pytest.mark.parametrize(("name", "why"), BAD)
    @pytest.mark.parametrize("begun", [False, True], ids=["a new run", "a run that goes on"])
    @in_loop
    async def test_that_cannot_be_kept_is_refused_whole(
        self, kind: str, place: str, name: str, why: str, begun: bool
    ) -> None:
        async with LEDGERS[kind](place) as ledger:
            if begun:
                await written(ledger, RunStarted())
            for write in (*(make(name) for make in WRITES.values()), *([] if begun else [says(note(), tenant=name)])):
                # Half a character does not even make a line.
                with pytest.raises(InputError if "\ud800" not in name else GertError, match=f"{why}|cannot be written"):
                    await ledger.append(RUN, write)
            assert (await ledger.head(RUN) is not None) is begun
            assert isinstance(await ledger.append(RUN, says(note("after"))), Written)
            assert len(await check(ledger)) == 1 + begun

    @in_loop
    async def test_of_the_longest_is_kept_and_found(self, kind: str, place: str) -> None:
        run_id, name = long_name(512).replace("-", "x").replace(".", "x"), long_name(MAX_NAME_BYTES)
        key = name[len("tool:") :]
        semantic_key = name[: MAX_TOGETHER_BYTES - len(TENANT) - len("pay")]
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, asks(key, semantic_key), note("s", name), run_id=run_id)
            [call] = await ledger.calls(run_id, f"tool:{key}")
            assert await ledger.holders(TENANT, "pay", semantic_key) == [call]
            assert await ledger.summary(run_id, name) is not None
            assert await ledger.latest_summaries(run_id, name) != []
            assert await ledger.acquire(run_id, name, 5) is not None
            await ledger.append("other", says(asks("k", tool=name[:400]), tenant=name))
            assert [head.run_id for head in await ledger.runs(RunFilter(tenant=name))] == ["other"]
            assert await ledger.count_calls(name[:400], tenant=name) == 1
            assert await ledger.runs(RunFilter(tenant="größe 漢字 🎉")) == []

    @in_loop
    async def test_of_a_tool_its_tenant_and_key_fit_together(self, kind: str, place: str) -> None:
        tool, key = long_name(1000), long_name(1500)
        async with LEDGERS[kind](place) as ledger:
            with pytest.raises(InputError, match="too long together"):
                await ledger.append(RUN, says(asks("k", key, tool)))
            with pytest.raises(InputError, match="too long together"):
                await ledger.holders(TENANT, tool, key)
            await written(ledger, asks("k", key[: -len(TENANT)], tool))

    @in_loop
    async def test_that_is_not_searched_for_may_be_long(self, kind: str, place: str) -> None:
        reason = "because 漢\n" * 2000
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, RunStarted(), PauseRequested(reason=reason))
            [call] = await ledger.open_calls(RUN)
            assert call.name == reason
            with pytest.raises(InputError, match="name of the pause holds a NUL"):
                await ledger.append(RUN, says(PauseRequested(reason="a\0b")))

    @in_loop
    async def test_is_not_repeated_by_what_refuses_it(self, kind: str, place: str) -> None:
        def write(head: Head, moment: str) -> Batch:
            return says(note("x", "hunter2\0"))(head, moment)

        async with LEDGERS[kind](place) as ledger:
            with pytest.raises(InputError) as caught:
                await ledger.append(RUN, write)
            assert "hunter2" not in f"{caught.value}{caught.value.hint}"
