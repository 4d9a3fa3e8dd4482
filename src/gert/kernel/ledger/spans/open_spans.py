"""The spans of a run that have not ended, as a tree."""

from collections.abc import Hashable
from typing import Any, Final, Literal

import msgspec

from gert.kernel.events.envelope import Envelope
from gert.kernel.events.runbook import approvals
from gert.kernel.ledger.spans.span import (
    Attributes,
    Link,
    Span,
    bounded,
    clipped,
    content,
    link_to,
    nanoseconds,
    span_id_of,
    trace_id_of,
)

MOST_OPEN: Final = 10_000
"""Spans of one run that may be open; further ones are left out, and `gert.dropped_spans` of the run counts them."""


class _Node:
    """An open span, the spans within it, and when it was last heard of."""

    __slots__ = ("children", "key", "last", "parent", "span", "step_key")

    def __init__(self, key: Hashable, span: Span, parent: "_Node | None", step_key: str | None) -> None:
        self.key, self.span, self.parent, self.step_key = key, span, parent, step_key
        self.last = span.start
        self.children: dict[Hashable, _Node] = {}


class OpenSpans:
    """Begins and ends the spans of one run; what has ended is collected in `ended`.

    captures: prompts, arguments, results and messages of errors become attributes
    keys: of open spans, by the step key of an agent
    caller: the span of the run that started this one, in the same trace
    """

    def __init__(self, run_id: str, *, captures: bool) -> None:
        self.run_id = run_id
        self.captures = captures
        self.ended: list[Span] = []
        self.keys: dict[str, Hashable] = {}
        self.caller: str | None = None
        self._trace = trace_id_of(run_id)
        self._nodes: dict[Hashable, _Node] = {}
        self._dropped = 0

    def join(self, parent_run_id: str | None, root_run_id: str | None) -> list[Link]:
        """Join the trace of the run that started this one; return a link where its root is not on record."""
        if parent_run_id is None:
            return []
        if root_run_id is None:
            return [link_to(parent_run_id, "parent")]
        self._trace = trace_id_of(root_run_id)
        self.caller = span_id_of(parent_run_id, 1)
        return []

    def link_to(self, run_id: str, relation: str) -> Link:
        """Return a link to the span of a run of the same tree, which is in the same trace."""
        return msgspec.structs.replace(link_to(run_id, relation), trace_id=self._trace)

    def get(self, key: Hashable) -> Span | None:
        """Return an open span."""
        node = self._nodes.get(key)
        return node.span if node is not None else None

    def begin(
        self,
        key: Hashable,
        name: str,
        event: Envelope,
        *,
        parent: Hashable | None = None,
        parent_id: str | None = None,
        kind: Literal["internal", "client"] = "internal",
        links: list[Link] | None = None,
        part: int = 0,
        step_key: str | None = None,
        **attributes: Any,
    ) -> Span:
        """Begin a span with an event.

        parent: the key of the span around it
        parent_id: the span around it, where that is of another run
        attributes: names with `__` in place of `.`
        """
        around = self._nodes.get(parent) if parent is not None else None
        span = Span(
            name=clipped(name, 256),
            trace_id=self._trace,
            span_id=span_id_of(self.run_id, event.seq, part),
            parent_id=around.span.span_id if around is not None else parent_id,
            kind=kind,
            start=nanoseconds(event.timestamp),
            links=links or [],
        )
        self.say(span, **attributes)
        if len(self._nodes) >= MOST_OPEN:
            self._dropped += 1
            return span
        node = self._nodes[key] = _Node(key, span, around, step_key)
        if around is not None:
            around.children[key] = node
        if step_key is not None:
            self.keys[step_key] = key
        return span

    def say(self, span: Span | None, **attributes: Any) -> None:
        """Add attributes to a span."""
        if span is not None:
            span.attributes |= bounded({name.replace("__", "."): value for name, value in attributes.items()})

    def capture(self, span: Span | None, **attributes: Any) -> None:
        """Add content to a span, where content is exported."""
        if self.captures and span is not None:
            for name, value in attributes.items():
                if value:
                    span.attributes[name.replace("__", ".")] = content(value)

    def mark(self, key: Hashable, name: str, event: Envelope, **attributes: Any) -> None:
        """Mark that something happened within an open span."""
        node = self._nodes.get(key)
        if node is not None:
            said = {each.replace("__", "."): value for each, value in attributes.items()}
            node.span.mark(f"gert.{name}", nanoseconds(event.timestamp), said)

    def touch(self, key: Hashable, at: int) -> None:
        """Note that something happened within a span, and within those around it."""
        node = self._nodes.get(key)
        while node is not None:
            node.last = max(node.last, at)
            node = node.parent

    def end(
        self, key: Hashable, event: Envelope, *, error: str | None = None, message: str | None = None, late: bool = True
    ) -> Span | None:
        """End a span, and those within it that have not ended.

        late: it ends with this event; otherwise it ended with the last one within it
        """
        node = self._nodes.get(key)
        if node is None:
            return None
        for child in list(node.children.values()):
            self.say(child.span, gert__unfinished=True)
            self.end(child.key, event)
        del self._nodes[key]
        if node.step_key is not None and self.keys.get(node.step_key) == key:
            del self.keys[node.step_key]
        if node.parent is not None:
            node.parent.children.pop(key, None)
        span = node.span
        span.end = max(span.start, nanoseconds(event.timestamp) if late else node.last)
        if error:
            span.error = clipped(error, 256)
            span.attributes["error.type"] = span.error
            span.message = clipped(message) if message and self.captures else None
        if node.parent is None and self._dropped:
            span.attributes["gert.dropped_spans"] = self._dropped
        self.ended.append(span)
        return span

    def unfinished(self, at: int) -> list[Span]:
        """Return copies of the spans that have not ended, as far as they are known."""
        found = []
        for node in self._nodes.values():
            attributes: Attributes = {**node.span.attributes, "gert.unfinished": True}
            given = {name: getattr(node.span, name) for name in node.span.__struct_fields__}
            found.append(Span(**{**given, "attributes": attributes, "end": max(node.span.start, at), "is_open": True}))
        return found


def approval_event(spans: OpenSpans, event: Envelope, said: Any, around: Hashable) -> bool:
    """Fold an event about an approval, of a runbook or of an agent: waiting for people is a span."""
    match said:
        case approvals.ApprovalSubmitted():
            spans.begin(
                ("ticket", said.ticket_id),
                "approval",
                event,
                parent=around,
                gert__ticket__id=said.ticket_id,
                gert__step__id=said.step_id,
                gert__risk=said.risk_level,
                gert__approval__min_approvers=said.min_approvers,
                gert__approval__method=said.method,
            )
        case approvals.ApprovalResponse() | approvals.ApprovalRefused():
            counts = isinstance(said, approvals.ApprovalResponse) and said.objection is None
            spans.mark(
                ("ticket", said.ticket_id),
                "approval.response" if counts else "approval.refused",
                event,
                gert__approver=said.approver_id,
                gert__approved=said.approved,
                gert__verified=said.verified,
            )
        case approvals.ApprovalEscalated():
            escalated = {"gert__approvers": said.escalated_to}
            spans.mark(("ticket", said.ticket_id), "approval.escalated", event, **escalated)
        case approvals.ApprovalResolved():
            key = ("ticket", said.ticket_id)
            spans.say(spans.get(key), gert__approval__status=said.status)
            spans.end(key, event, error=None if said.approved else said.status, message=said.reason)
        case approvals.ApprovalOutdated():
            spans.say(spans.get(("ticket", said.ticket_id)), gert__approval__status="outdated")
            spans.end(("ticket", said.ticket_id), event, error="outdated", message=said.reason)
        case _:
            return False
    return True
