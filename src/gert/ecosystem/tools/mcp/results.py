"""Turn the result of an MCP tool into an answer: outputs, without secrets.

Declared outputs are properties of the structured result. `extract` reads the text (`stdout`), or the structured result
as JSON; the text is parsed where there is none. A single output that nothing extracts is the text, if the result is not
structured.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gert.ecosystem.process.capture import Capture
from gert.ecosystem.tools.outputs import redacted_failure
from gert.kernel.engine.extract import ParsedJson, ToolOutput, extract, parse_json
from gert.kernel.engine.requests import ToolAnswer
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.secret_refs import without_marks
from gert.kernel.foundation.text import plain_line
from gert.kernel.governance.contract import Contract
from gert.kernel.runbook.documents.tool import ActionBlock
from gert.kernel.runbook.mcp_tools import shown

if TYPE_CHECKING:
    from mcp.types import CallToolResult

_LONGEST_REASON: Final = 300


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call as plain data.

    text: the text parts, and a line for each part that is not text
    structured: the structured result; None if there is none
    """

    text: str
    structured: Any = None
    is_error: bool = False

    @classmethod
    def of(cls, result: "CallToolResult") -> "CallResult":
        """Take the parts of a result that gert keeps: images, sound and other bytes are only named."""
        return cls(
            text="\n".join(_part(block) for block in result.content),
            structured=result.structured_content,
            is_error=result.is_error,
        )


def answer_of(
    name: str,
    result: CallResult,
    action: ActionBlock,
    contract: Contract,
    redactor: Redactor,
    *,
    limit: int,
    show: Callable[[str], None] | None = None,
    stderr: str = "",
) -> ToolAnswer:
    """Find the outputs, and say whether it went well; `show` receives the text as it may be shown.

    stderr: what the server printed meanwhile, redacted
    """
    text = Capture(redactor, limit, show)
    text.feed(result.text.encode("utf-8", "replace"))
    text.close()
    structured, masked = redactor.value(result.structured)
    structured = without_marks(structured)

    def document() -> ParsedJson:
        return parse_json(text.kept) if structured is None else ParsedJson(structured)

    printed = ToolOutput(
        exit_code=int(result.is_error),
        stdout=text.text,
        document=document,
        truncated=frozenset(("stdout",)) if text.is_truncated else frozenset(),
    )
    extracted = extract(action, contract.outputs, printed)
    outputs = {**_declared(structured, text, action, contract), **extracted.outputs}
    failure = _error(name, text.kept) if result.is_error else extracted.failure
    masked_outputs = {key: redactor.value(value) for key, value in outputs.items()}
    return ToolAnswer(
        outputs={key: output.value for key, output in masked_outputs.items()},
        stdout=text.logged or _as_text(structured),
        stderr=stderr,
        failure=redacted_failure(failure, redactor) if failure is not None else None,
        # The text of a structured result says the same again.
        redacted=max(text.masked, masked) + sum(output.masked for output in masked_outputs.values()),
    )


def _declared(structured: Any, text: Capture, action: ActionBlock, contract: Contract) -> dict[str, Any]:
    """Return the outputs that the action does not extract."""
    wanted = [name for name in contract.outputs if name not in action.extract]
    if isinstance(structured, Mapping):
        return {name: structured[name] for name in wanted if name in structured}
    if structured is None and len(wanted) == 1 and len(contract.outputs) == 1:
        return {wanted[0]: text.text}
    return {}


def _error(name: str, text: str) -> Failure:
    said = plain_line(text, _LONGEST_REASON)
    return Failure("tool_error", f"`{shown(name)}` reported an error" + (f": {said}" if said else ""))


def _as_text(structured: Any) -> str:
    return "" if structured is None else msgspec.json.encode(structured).decode()


def _part(block: Any) -> str:
    """One part of a result: its text, or a line that says what it is."""
    if block.type == "text":
        return str(block.text)
    if block.type == "resource_link":
        return f"[link to {plain_line(str(block.uri), _LONGEST_REASON)}]"
    if block.type == "resource":
        text = getattr(block.resource, "text", None)
        return text if isinstance(text, str) else _bytes("resource", block.resource.mime_type, block.resource.blob)
    return _bytes(block.type, block.mime_type, block.data)


def _bytes(what: str, mime_type: str | None, encoded: str) -> str:
    kind = f" {plain_line(mime_type, 80)}" if mime_type else ""
    return f"[{what}{kind}, {len(encoded) * 3 // 4} bytes, not kept]"
