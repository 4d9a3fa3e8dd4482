"""The way in: nothing secret, nothing that passes for a reference, and nothing but plain data gets past it."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.ecosystem.host.run.world.sanitize import MOST_BYTES, Sanitizer
from gert.kernel.engine.requests import (
    AnyAnswer,
    ApprovalAnswer,
    CallTool,
    EvidenceAnswer,
    PauseAnswer,
    TicketAnswer,
    ToolAnswer,
)
from gert.kernel.events.runbook import Failure
from gert.kernel.foundation.canonical import require_canonical
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.secret_refs import refs_in, secret_ref
from gert.kernel.foundation.values import MAX_INTEGER
from gert.kernel.governance.approval import Response
from gert.kernel.governance.contract import Contract
from gert.kernel.governance.parameter import Parameter

SECRET = "hunter22"
HIDDEN = "[REDACTED]"
INTAKE = Sanitizer(Redactor([SECRET]))


PLACES = [
    "an output",
    "an output deep inside",
    "the name of an output",
    "what was printed",
    "what was printed as an error",
    "a second output",
    "who an extension says acted",
    "the role and model of who acted",
    "the failure of a tool",
    "evidence",
    "who gave evidence",
    "the failure of a person",
    "a ticket",
    "the method of a ticket",
    "the end of a ticket",
    "the failure of a ticket",
    "the name of an approver",
    "the reason of an approver",
    "the time of an answer",
    "the failure of an approval",
    "the failure of a pause",
]


def answers(text: str) -> list[AnyAnswer]:
    """Answers of every kind with a text in every field that may hold one."""
    failure = Failure("exit_code", f"it said {text}")
    return [
        ToolAnswer(outputs={"a": text}),
        ToolAnswer(outputs={"a": [{"b": f"x{text}y"}]}),
        ToolAnswer(outputs={text: 1}),
        ToolAnswer(stdout=f"1 {text}\n"),
        ToolAnswer(stderr=text),
        ToolAnswer(again={"a": text}),
        ToolAnswer(principal=Principal("agent", text)),
        ToolAnswer(principal=Principal("agent", "x", role=text, model=text)),
        ToolAnswer(failure=failure),
        EvidenceAnswer(evidence={"note": text, "list": [text]}),
        EvidenceAnswer(by=Principal("human", text)),
        EvidenceAnswer(failure=failure),
        TicketAnswer(ticket_id=text, method="m"),
        TicketAnswer(method=text),
        TicketAnswer(expires_at=text),
        TicketAnswer(failure=failure),
        ApprovalAnswer(responses=(Response(approver=text, approved=True, timestamp="t"),)),
        ApprovalAnswer(responses=(Response(approver="a", approved=True, timestamp="t", reason=text),)),
        ApprovalAnswer(responses=(Response(approver="a", approved=False, timestamp=text),)),
        ApprovalAnswer(failure=failure),
        PauseAnswer(failure=failure),
    ]


def shown(answer: AnyAnswer) -> str:
    return msgspec.json.encode(answer).decode()


@pytest.mark.parametrize("answer", answers(SECRET), ids=PLACES)
def test_a_secret_is_masked_in(answer: AnyAnswer) -> None:
    taken = INTAKE.take(answer)
    assert type(taken) is type(answer)
    assert SECRET not in shown(taken)
    assert HIDDEN in shown(taken)
    assert taken.redacted == shown(answer).count(SECRET)


@pytest.mark.parametrize("answer", answers(secret_ref("token")), ids=PLACES)
def test_nothing_passes_for_a_reference_to_a_secret_in(answer: AnyAnswer) -> None:
    for intake in (INTAKE, Sanitizer(Redactor())):
        taken = intake.take(answer)
        assert refs_in(shown(taken)) == []
        assert "\ufdd0" not in shown(taken)
        assert taken.redacted == 0


@pytest.mark.parametrize("answer", answers("harmless ü \x00"), ids=PLACES)
def test_what_holds_nothing_of_the_kind_is_taken_as_it_is(answer: AnyAnswer) -> None:
    assert INTAKE.take(answer) == answer


def test_what_was_masked_before_counts_too() -> None:
    assert INTAKE.take(ToolAnswer(stdout=SECRET, redacted=3)).redacted == 4


def test_a_secret_in_another_spelling_is_masked() -> None:
    taken = INTAKE.take(ToolAnswer(stdout="aHVudGVyMjI= 68756e7465723232"))
    assert taken.stdout == f"{HIDDEN} {HIDDEN}"


@pytest.mark.parametrize("answer", [ToolAnswer(assumed="probe"), ToolAnswer(duration=1.25, exit_code=0), PauseAnswer()])
def test_what_is_no_text_stays(answer: AnyAnswer) -> None:
    assert INTAKE.take(answer) == answer


# --- secrets that are words of ours


@pytest.mark.parametrize(
    "secret",
    ["kind", "message", "exit_code", "human", "agent", "id", "approver", "approved", "timestamp", "timeout", "tool"],
)
def test_a_secret_that_is_also_a_word_of_ours_does_not_break(secret: str) -> None:
    intake = Sanitizer(Redactor([secret]))
    for answer in (
        ToolAnswer(failure=Failure("exit_code", "m"), principal=Principal("agent", "x"), outputs={"v": secret}),
        ToolAnswer(failure=Failure("timeout", "m")),
        EvidenceAnswer(by=Principal("human", "bob")),
        ApprovalAnswer(responses=(Response(approver="a", approved=True, timestamp="t"),)),
    ):
        taken = intake.take(answer)
        assert type(taken) is type(answer)
        assert (taken.failure is None) == (answer.failure is None)
        if taken.failure is not None and answer.failure is not None:
            assert taken.failure.kind == answer.failure.kind
        if isinstance(answer, EvidenceAnswer) and isinstance(taken, EvidenceAnswer):
            assert taken.by is not None
            assert taken.by.kind == "human"
        if isinstance(answer, ApprovalAnswer) and isinstance(taken, ApprovalAnswer):
            assert taken.responses[0].approved is True


@pytest.mark.parametrize("number", ["3", "137", "255"])
def test_a_secret_that_is_also_an_exit_code_does_not_break(number: str) -> None:
    taken = Sanitizer(Redactor([number])).take(ToolAnswer(exit_code=int(number), outputs={"v": number}))
    assert taken.failure is None
    assert taken.outputs == {"v": HIDDEN}


# --- what is not plain data


def nested(depth: int) -> Any:
    value: Any = "x"
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize("intake", [INTAKE, Sanitizer(Redactor())], ids=["with secrets", "without"])
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(math.nan, id="not a number"),
        pytest.param(math.inf, id="infinity"),
        pytest.param([{"a": -math.inf}], id="infinity deep inside"),
        pytest.param(MAX_INTEGER + 1, id="an integer that JSON readers do not keep"),
        pytest.param(-(10**400), id="an integer of hundreds of digits"),
        pytest.param("\ud800", id="a lone surrogate"),
        pytest.param({"\udfff": 1}, id="a lone surrogate in a key"),
        pytest.param({1: "a"}, id="a key that is no text"),
        pytest.param({None: "a"}, id="a key that is nothing"),
    ],
)
def test_an_answer_that_is_not_plain_data_is_a_failure(value: Any, intake: Sanitizer) -> None:
    for answer in (ToolAnswer(outputs={"v": value}, duration=1.0), ToolAnswer(again={"v": value}, duration=1.0)):
        taken = intake.take(answer)
        assert taken.failure is not None
        assert taken.failure.kind == "extraction"
        assert "the answer is not plain data" in taken.failure.message
        assert taken.outputs == {}
        assert taken.duration == 1.0
    assert intake.take(EvidenceAnswer(evidence={"v": value})).failure is not None


@pytest.mark.parametrize("depth", [150, 198, 199, 200, 201, 300, 500])
@pytest.mark.parametrize("intake", [INTAKE, Sanitizer(Redactor())], ids=["with secrets", "without"])
def test_what_is_nested_too_deep_is_cut_or_refused_and_never_breaks(intake: Sanitizer, depth: int) -> None:
    taken = intake.take(ToolAnswer(outputs={"v": nested(depth)}))
    require_canonical(taken.outputs)
    assert (taken.failure is None) or taken.failure.kind == "extraction"
    if depth <= 150:
        assert taken.outputs == {"v": nested(depth)}


@pytest.mark.parametrize("depth", [1200, 100_000])
def test_what_is_nested_without_end_is_a_failure(depth: int) -> None:
    taken = INTAKE.take(ToolAnswer(outputs={"v": nested(depth)}))
    assert taken.failure is not None
    assert taken.failure.kind == "extraction"


def test_what_is_said_of_a_flaw_holds_no_secret() -> None:
    taken = INTAKE.take(ToolAnswer(outputs={"v": {SECRET: math.nan}}))
    assert taken.failure is not None
    assert SECRET not in taken.failure.message


def test_a_value_that_contains_itself_is_a_failure() -> None:
    loop: list[Any] = []
    loop.append(loop)
    taken = INTAKE.take(ToolAnswer(outputs={"v": loop}))
    assert taken.failure is not None


# --- size


@pytest.mark.parametrize(
    "answer",
    [
        ToolAnswer(stdout="x" * MOST_BYTES, duration=2.0, redacted=1),
        ToolAnswer(stdout="\x00" * (MOST_BYTES // 5), duration=2.0, redacted=1),
        ToolAnswer(outputs={"v": ["ü" * 1000] * (MOST_BYTES // 2000)}, duration=2.0, redacted=1),
        EvidenceAnswer(evidence={"v": "x" * MOST_BYTES}, duration=2.0, redacted=1),
        ApprovalAnswer(
            responses=(Response(approver="a", approved=True, timestamp="t", reason="x" * MOST_BYTES),),
            duration=2.0,
            redacted=1,
        ),
    ],
    ids=["much output", "output that grows when it is written", "many outputs", "much evidence", "a long reason"],
)
def test_an_answer_that_is_too_large_is_a_failure(answer: AnyAnswer) -> None:
    taken = INTAKE.take(answer)
    assert taken.failure is not None
    assert taken.failure.kind == "extraction"
    assert "the answer is too large: expected at most" in taken.failure.message
    assert (taken.duration, taken.redacted) == (2.0, 1)
    assert len(shown(taken)) < 1000


def test_an_answer_just_below_the_bound_is_taken() -> None:
    answer = ToolAnswer(stdout="x" * (MOST_BYTES - 1000))
    assert INTAKE.take(answer) == answer


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**20) | st.floats() | st.text() | st.just(SECRET),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.just(SECRET), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(JSON, st.text(), st.integers(0, 255))
def test_whatever_comes_what_is_kept_is_plain_data_without_secrets(value: Any, text: str, code: int) -> None:
    taken = INTAKE.take(ToolAnswer(outputs={"v": value}, stdout=text + SECRET, exit_code=code))
    require_canonical(msgspec.to_builtins(taken))
    assert SECRET not in shown(taken)
    # Once is enough: what was taken in is taken in again as it is.
    again = INTAKE.take(msgspec.structs.replace(taken, redacted=0))
    assert again == msgspec.structs.replace(taken, redacted=0)


VAULT = CallTool(
    key="open", path="open", step_id="open", tool="vault", action="open", inputs={},
    contract=Contract(outputs={"token": Parameter(type="any", secret=True), "owner": Parameter(type="string")}),
)  # fmt: skip


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            ToolAnswer(outputs={"token": "sesame-opens", "owner": "ops"}, stdout="sesame-opens", exit_code=0),
            id="a text",
        ),
        pytest.param(
            ToolAnswer(outputs={"token": {"pass": "sesame-opens"}, "owner": "ops"}, stdout='{"pass":  "sesame-opens"}'),
            id="an object, printed in another way",
        ),
        pytest.param(
            ToolAnswer(failure=Failure("extraction", "expected JSON, found `sesame-opens`"), stdout="sesame"),
            id="one that was not found",
        ),
        pytest.param(
            ToolAnswer(failure=Failure("exit_code", "it exited with 1: sesame-opens"), exit_code=1, stderr="sesame"),
            id="one in an error message",
        ),
        pytest.param(
            ToolAnswer(outputs={"owner": "ops"}, again={"token": ["sesame-opens"]}, stdout="sesame-opens"),
            id="one of a second execution",
        ),
    ],
)
def test_what_a_contract_calls_secret_among_the_outputs_is_not_kept_in_any_form(answer: ToolAnswer) -> None:
    taken = Sanitizer(Redactor()).take(answer, VAULT)
    assert "sesame" not in shown(taken)
    assert taken.exit_code == answer.exit_code
    assert (taken.failure and taken.failure.kind) == (answer.failure and answer.failure.kind)
    if "owner" in answer.outputs:
        assert taken.outputs["owner"] == "ops"
