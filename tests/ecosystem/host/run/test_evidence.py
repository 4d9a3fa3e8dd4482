"""Evidence from a file, a person and a pipe."""

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.host.people import at_terminal, piped

from gert.ecosystem.host.run.world import evidence as module
from gert.ecosystem.host.run.world.console import Console
from gert.ecosystem.host.run.world.evidence import EvidenceDialogue, EvidenceEntries, collect
from gert.errors import DocumentError, UsageError
from gert.kernel.engine.requests import CollectEvidence, EvidenceAnswer, RequestedEvidence
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.principal import Principal
from gert.kernel.governance.contract import Contract

ANN = Principal("human", "ann")
TEXT = RequestedEvidence(kind="text", name="opened", description="what did you open?")
CHECKS = RequestedEvidence(kind="checklist", name="checks", items=("lights are on", "1.10"))
LOG = RequestedEvidence(kind="attachment", name="log")


def ask(*evidence: RequestedEvidence, path: str = "look", instructions: str = "look at it") -> CollectEvidence:
    contract = Contract(effects=frozenset(), reads=frozenset(), writes=frozenset())
    return CollectEvidence(
        key="k",
        path=path,
        step_id="look",
        title="Look",
        instructions=instructions,
        evidence=evidence,
        contract=contract,
    )


def from_file(tmp_path: Path, source: str, question: CollectEvidence) -> EvidenceAnswer:
    (tmp_path / "evidence.yaml").write_text(source)
    return asyncio.run(collect(question, EvidenceEntries.from_file(str(tmp_path / "evidence.yaml"), "ann")))


def without_place(failure: Failure | None, tmp_path: Path) -> tuple[str, str] | None:
    return None if failure is None else (failure.kind, failure.message.replace(f"{tmp_path}/", ""))


# --- a file


@pytest.mark.parametrize(
    ("source", "question", "evidence"),
    [
        pytest.param("look: {opened: door}", ask(TEXT), {"opened": "door"}, id="text"),
        pytest.param("look: {opened: 1.10}", ask(TEXT), {"opened": "1.10"}, id="text is what was written"),
        pytest.param("look:", ask(), {}, id="a step without evidence is confirmed by its name"),
        pytest.param(
            "look: {checks: [1.10, lights are on]}",
            ask(CHECKS),
            {"checks": ["lights are on", "1.10"]},
            id="a checklist in its own order",
        ),
        pytest.param("look: {checks: true}", ask(CHECKS), {"checks": ["lights are on", "1.10"]}, id="all of them"),
        pytest.param(
            "look: {opened: a}\nlook[1]: {opened: b}",
            ask(TEXT, path="lane/look[1]"),
            {"opened": "b"},
            id="an iteration by its index",
        ),
        pytest.param(
            "look: {opened: a}\nlook[a/b]: {opened: b}",
            ask(TEXT, path="look[a%2Fb]"),
            {"opened": "b"},
            id="an iteration by its key",
        ),
        pytest.param(
            "look: {opened: a}\nlook[1]: {opened: b}",
            ask(TEXT, path="look[2]"),
            {"opened": "a"},
            id="any other iteration by its step",
        ),
        pytest.param(
            "look: {opened: a}\nlane/look: {opened: b}",
            ask(TEXT, path="lane/look"),
            {"opened": "b"},
            id="a step by its path",
        ),
        pytest.param(
            "look: {reject: yes, by: hand}",
            ask(RequestedEvidence(kind="text", name="reject"), RequestedEvidence(kind="text", name="by")),
            {"reject": "yes", "by": "hand"},
            id="evidence may be called as our own words are",
        ),
    ],
)
def test_evidence_in_a_file(tmp_path: Path, source: str, question: CollectEvidence, evidence: Any) -> None:
    assert from_file(tmp_path, source, question) == EvidenceAnswer(evidence=evidence, by=ANN)


def test_a_file_says_who_did_it(tmp_path: Path) -> None:
    assert from_file(tmp_path, "look: {by: bob}", ask()).by == Principal("human", "bob")


@pytest.mark.parametrize(
    ("source", "question", "kind", "message"),
    [
        pytest.param("look: {reject: it smokes}", ask(TEXT), "rejected", "it smokes", id="rejected"),
        pytest.param("look: {reject: true}", ask(TEXT), "rejected", "rejected without a reason", id="just rejected"),
        pytest.param(
            "look: {reject: }",
            ask(TEXT),
            "evidence",
            "evidence.yaml: expected text for `reject` under `look`, found nothing",
            id="a rejection that says nothing",
        ),
        pytest.param(
            "look: {checks: [lights are on]}",
            ask(CHECKS),
            "rejected",
            "`1.10` of `checks` was not confirmed",
            id="an item that is not done",
        ),
        pytest.param(
            "look: {checks: [lights are on, '1.10', other]}",
            ask(CHECKS),
            "evidence",
            "evidence.yaml: the checklist `checks` has no item `other`",
            id="an item that does not exist",
        ),
        pytest.param(
            "look: {checks: false}",
            ask(CHECKS),
            "evidence",
            "evidence.yaml: expected the items of `checks` that are done, found `false`",
            id="a checklist that is no list",
        ),
        pytest.param(
            "look: {}",
            ask(TEXT),
            "evidence",
            "evidence.yaml: no evidence for `opened` under `look`",
            id="a piece that is missing",
        ),
        pytest.param(
            "look: {opened: ' '}",
            ask(TEXT),
            "evidence",
            "evidence.yaml: expected text for `opened` under `look`, found the text ` `",
            id="text that is empty",
        ),
        pytest.param(
            "look: {opened: [a]}",
            ask(TEXT),
            "evidence",
            "evidence.yaml: expected text for `opened` under `look`, found a list",
            id="text that is a list",
        ),
        pytest.param(
            "look: {opend: a}",
            ask(TEXT),
            "evidence",
            "evidence.yaml: `look` asks for no evidence `opend`; did you mean `opened`?",
            id="a misspelt name",
        ),
        pytest.param(
            "look: {log: missing.txt}",
            ask(LOG),
            "evidence",
            "evidence.yaml: `log` under `look`: there is no file `missing.txt`",
            id="an attachment that is not there",
        ),
        pytest.param(
            "look: {by: [bob]}",
            ask(),
            "evidence",
            "evidence.yaml: expected text for `by` under `look`, found a list",
            id="a list of people",
        ),
        pytest.param(
            "other: {}",
            ask(TEXT),
            "evidence",
            "no evidence for `opened` in step `look`: no answer given; put it under `look` in a file for --evidence",
            id="a step the file does not know",
        ),
    ],
)
def test_what_a_file_does_not_settle(
    tmp_path: Path, source: str, question: CollectEvidence, kind: str, message: str
) -> None:
    answer = from_file(tmp_path, source, question)
    assert answer.evidence == {}
    assert without_place(answer.failure, tmp_path) == (kind, message)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param("- a", "expected a map of evidence by step id", id="a list"),
        pytest.param(
            "look: door", "expected a map of evidence for `look`, found the text `door`", id="a step that is text"
        ),
        pytest.param("look: {}\nlook: {}", ":2:1: the key `look` appears twice", id="a step twice"),
        pytest.param("look: !!map {}", "tags are not allowed", id="a tag"),
    ],
)
def test_files_that_are_refused_before_the_run(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "evidence.yaml").write_text(source)
    with pytest.raises(DocumentError) as caught:
        EvidenceEntries.from_file(str(tmp_path / "evidence.yaml"), "ann")
    assert message in caught.value.message


def test_a_file_that_is_not_there_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        EvidenceEntries.from_file(str(tmp_path / "evidence.yaml"), "ann")


def test_an_attachment_is_recorded_by_its_hash(tmp_path: Path) -> None:
    data = os.urandom(3 * 1024 * 1024 + 1)
    (tmp_path / "log.txt").write_bytes(data)
    recorded = {"name": "log.txt", "size": len(data), "sha256": f"sha256:{hashlib.sha256(data).hexdigest()}"}
    assert from_file(tmp_path, "look: {log: log.txt}", ask(LOG)).evidence == {"log": recorded}


def test_an_attachment_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "log.txt", "wb") as sparse:
        sparse.truncate(2 * 1024 * 1024)
    monkeypatch.setattr(module, "MAX_ATTACHMENT", 1024 * 1024)
    failure = from_file(tmp_path, "look: {log: log.txt}", ask(LOG)).failure
    assert failure is not None
    assert "is larger than" in failure.message


# --- a dialogue


async def talk(console: Console, question: CollectEvidence) -> EvidenceAnswer:
    return await collect(question, EvidenceDialogue(console, "ann"))


def test_a_person_does_it_and_shows_it(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("x")
    answer, shown = at_terminal(
        lambda console: talk(console, ask(TEXT, CHECKS, LOG, instructions="first\nthen\x1b[2J\n")),
        ("done? ", "maybe\n"),
        ("done? ", "y\n"),
        ("opened: ", "\n"),
        ("opened: ", " the door \n"),
        ("lights are on [y/n]: ", "what\n"),
        ("lights are on [y/n]: ", "Y\n"),
        ("1.10 [y/n]: ", "yes\n"),
        ("log (path of a file): ", "/nowhere\n"),
        ("log (path of a file): ", f"{tmp_path}\n"),
        ("log (path of a file): ", f"{tmp_path}/log.txt\n"),
    )
    assert answer.failure is None
    assert answer.by == ANN
    assert answer.evidence["opened"] == "the door"
    assert answer.evidence["checks"] == ["lights are on", "1.10"]
    assert answer.evidence["log"]["size"] == 1
    assert "\nstep `look`: Look\nfirst\nthen\ufffd[2J\n" in shown
    assert "there is no file `/nowhere`" in shown
    assert "is not a regular file" in shown.replace("\n  │ ", " ")
    assert "it cannot be left empty" in shown


def test_a_person_rejects_and_is_asked_why() -> None:
    answer, _ = at_terminal(lambda console: talk(console, ask(TEXT)), ("done? ", "reject\n"), ("why? ", "it smokes\n"))
    assert answer.failure == Failure("rejected", "it smokes")


@pytest.mark.parametrize(
    ("question", "said", "evidence"),
    [
        pytest.param(ask(), b"y\n", {}, id="just done"),
        pytest.param(ask(), b"done", {}, id="done, without the end of the line"),
        pytest.param(ask(TEXT), b"what\ny\ndoor\n", {"opened": "door"}, id="nonsense is passed over"),
        pytest.param(ask(TEXT, TEXT), b"y\na\nb\n", {"opened": "b"}, id="one line each"),
        pytest.param(ask(TEXT), b"y\nreject\n", {"opened": "reject"}, id="evidence may say reject"),
    ],
)
def test_answers_from_a_pipe(question: CollectEvidence, said: bytes, evidence: Any) -> None:
    answer, _ = piped(lambda console: talk(console, question), said)
    assert answer == EvidenceAnswer(evidence=evidence, by=ANN)


@pytest.mark.parametrize(
    ("question", "said", "kind", "message"),
    [
        pytest.param(ask(TEXT), b"reject it smokes\n", "rejected", "it smokes", id="rejected in one line"),
        pytest.param(ask(TEXT), b"no\n", "rejected", "rejected without a reason", id="no, and nothing more"),
        pytest.param(
            ask(CHECKS), b"y\nn\ny\n", "rejected", "`lights are on` of `checks` was not confirmed", id="an item undone"
        ),
        pytest.param(
            ask(TEXT),
            b"",
            "evidence",
            "no evidence for `opened` in step `look`: no answer given; put it under `look` in a file for --evidence",
            id="no person is at the terminal",
        ),
        pytest.param(
            ask(),
            b"",
            "evidence",
            "no confirmation in step `look`: no answer given; put it under `look` in a file for --evidence",
            id="not confirmed",
        ),
        pytest.param(
            ask(TEXT, LOG),
            b"y\ndoor\n",
            "evidence",
            "no evidence for `log` in step `look`: no answer given; put it under `look` in a file for --evidence",
            id="the answers end in the middle",
        ),
        pytest.param(
            ask(TEXT),
            b"y\n\ndoor\n",
            "evidence",
            "`opened` of step `look`: it cannot be left empty",
            id="an empty line",
        ),
        pytest.param(
            ask(LOG),
            b"y\n/nowhere\n",
            "evidence",
            "`log` of step `look`: there is no file `/nowhere`",
            id="no such file",
        ),
        pytest.param(
            ask(LOG), b"y\na\0b\n", "evidence", "`log` of step `look`: `a\ufffdb` is not a path", id="a path with a NUL"
        ),
        pytest.param(
            ask(TEXT), b"y\n\xff\n", "evidence", "step `look`: a line of standard input is not UTF-8", id="not UTF-8"
        ),
        pytest.param(
            ask(TEXT),
            b"what\n" * 50,
            "evidence",
            "step `look`: no usable answer about whether it is done in 5 attempts",
            id="nothing but nonsense",
        ),
        pytest.param(
            ask(CHECKS),
            b"y\n" + b"what\n" * 50,
            "evidence",
            "step `look`: no usable answer about `lights are on` in 5 attempts",
            id="nonsense about an item",
        ),
    ],
)
def test_what_a_pipe_does_not_settle(question: CollectEvidence, said: bytes, kind: str, message: str) -> None:
    answer, _ = piped(lambda console: talk(console, question), said)
    assert answer.evidence == {}
    assert answer.failure is not None
    assert (answer.failure.kind, answer.failure.message) == (kind, message)


def test_a_line_too_long_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "answers").write_bytes(b"y\n" + b"x" * 100_000)
    with open(tmp_path / "answers", "rb") as file:
        answer = asyncio.run(talk(Console(file.fileno(), lambda text: None), ask(TEXT)))
    assert answer.failure == Failure("evidence", "step `look`: a line of standard input is longer than 64 KiB")


def test_a_person_is_asked_only_for_what_the_file_does_not_know(tmp_path: Path) -> None:
    (tmp_path / "evidence.yaml").write_text("look: {opened: door}")
    file = EvidenceEntries.from_file(str(tmp_path / "evidence.yaml"), "ann")

    async def both(console: Console, question: CollectEvidence) -> EvidenceAnswer:
        return await collect(question, file, EvidenceDialogue(console, "ann"))

    answer, shown = piped(lambda console: both(console, ask(TEXT)), b"")
    assert (answer.evidence, shown) == ({"opened": "door"}, "")
    other = CollectEvidence(key="k", path="other", step_id="other", instructions="x", contract=ask().contract)
    answer, shown = piped(lambda console: both(console, other), b"y\n")
    assert answer == EvidenceAnswer(by=ANN)
    assert "step `other`" in shown
