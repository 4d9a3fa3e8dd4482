"""Evidence of what a person did: from a file given beforehand, or from a dialogue at the console."""

import asyncio
import os
from collections.abc import Collection, Mapping
from typing import Any, BinaryIO, Final, Protocol

from gert.ecosystem.host.config.files import read_map
from gert.ecosystem.inputs.file import MAX_PATH, open_regular
from gert.ecosystem.inputs.prompt import Asker
from gert.errors import DocumentError, InputError
from gert.kernel.engine.requests import CollectEvidence, EvidenceAnswer, RequestedEvidence
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.events.vocabulary import FailureKind
from gert.kernel.foundation.canonical import Hasher
from gert.kernel.foundation.names import did_you_mean, suggestion
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.text import shorten
from gert.kernel.runbook.model import describe
from gert.kernel.runbook.tree import Map, Seq
from gert.kernel.scenario.keys import keys_of

MAX_ATTACHMENT: Final = 1024 * 1024 * 1024
ATTEMPTS: Final = 5
_CHUNK: Final = 1024 * 1024
_REJECT: Final = "reject"
_BY: Final = "by"
NO_REASON: Final = "rejected without a reason"
_YES: Final = frozenset({"y", "yes", "done"})
_NO: Final = frozenset({"n", "no", _REJECT})


class NoEvidence(Exception):
    """There is no evidence: a person refused it, or none that is usable was given."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(kind, message)


class EvidenceGiver(Protocol):
    """Somewhere evidence may come from."""

    async def give(self, ask: CollectEvidence) -> EvidenceAnswer | None:
        """The evidence for a step; nothing where this place does not know the step."""


async def collect(ask: CollectEvidence, *givers: EvidenceGiver) -> EvidenceAnswer:
    """Take the evidence of the first place that has some for this step."""
    try:
        for giver in givers:
            answer = await giver.give(ask)
            if answer is not None:
                return answer
    except NoEvidence as problem:
        return EvidenceAnswer(failure=problem.failure)
    return EvidenceAnswer(failure=_unanswered(ask).failure)


def _unanswered(ask: CollectEvidence, piece: RequestedEvidence | None = None) -> NoEvidence:
    """No answer came: say what is missing, and how to give it without a terminal."""
    missing = piece or next(iter(ask.evidence), None)
    what = f"no evidence for `{missing.name}`" if missing is not None else "no confirmation"
    return NoEvidence(
        "evidence",
        f"{what} in step `{ask.step_id}`: no answer given; put it under `{ask.step_id}` in a file for --evidence",
    )


# --- a file


class EvidenceEntries:
    """Evidence by step id, by `id[index]` or `id[key]` for one iteration, or by path.

    folder: where relative paths of attachments begin
    """

    def __init__(self, root: Map, name: str, folder: str, actor: str) -> None:
        self._name = name
        self._folder = folder
        self._actor = actor
        self._steps = root
        for step, entry in root.items():
            if entry is not None and not isinstance(entry, Map):
                raise DocumentError(
                    f"{name}: expected a map of evidence for `{shorten(step)}`, found {describe(entry)}",
                    hint=f"write {shorten(step)}: {{name: value}}",
                )

    @classmethod
    def from_file(cls, path: str, actor: str) -> "EvidenceEntries":
        """The evidence in a file, read once, before the run."""
        return cls(read_map(path, "evidence by step id"), path, os.path.dirname(os.path.abspath(path)), actor)

    def require_steps(self, known: Collection[str]) -> None:
        """Refuse an entry for a step that is not there: it would be passed over, and the step left without."""
        for key in self._steps:
            name = key.rpartition("/")[2].partition("[")[0]
            if name not in known:
                hint = suggestion(name, known) or "evidence is given for manual steps, by their id"
                raise DocumentError(f"{self._name}: there is no manual step `{shorten(name)}`", hint=hint)

    async def give(self, ask: CollectEvidence) -> EvidenceAnswer | None:
        """The entry of a step, checked against what it wants."""
        key = next((key for key in keys_of(ask.path, ask.step_id) if key in self._steps), None)
        if key is None:
            return None
        entry = self._steps[key] or Map(0)
        names = [piece.name for piece in ask.evidence]
        # A step may call its evidence `by` or `reject`; then the words mean that.
        by = self._text(entry, _BY, key) if _BY in entry and _BY not in names else self._actor
        if _REJECT in entry and _REJECT not in names:
            is_bare = entry[_REJECT] is True
            raise NoEvidence("rejected", NO_REASON if is_bare else self._text(entry, _REJECT, key))
        for name in entry:
            if name not in (*names, _BY):
                guess = did_you_mean(name, names)
                hint = f"; did you mean `{guess}`?" if guess else ""
                raise self._wrong(f"`{key}` asks for no evidence `{shorten(name)}`{hint}")
        evidence = {piece.name: await self._piece(piece, entry, key) for piece in ask.evidence}
        return EvidenceAnswer(evidence=evidence, by=Principal("human", by))

    async def _piece(self, piece: RequestedEvidence, entry: Map, key: str) -> Any:
        if piece.name not in entry:
            raise self._wrong(f"no evidence for `{piece.name}` under `{key}`")
        if piece.kind == "checklist":
            return self._checklist(piece, entry[piece.name])
        text = self._text(entry, piece.name, key)
        if piece.kind == "text":
            return text
        try:
            return await attachment(os.path.join(self._folder, text))
        except InputError as problem:
            raise self._wrong(f"`{piece.name}` under `{key}`: {problem.message}") from None

    def _checklist(self, piece: RequestedEvidence, value: Any) -> list[str]:
        if value is True:
            return list(piece.items)
        if not isinstance(value, Seq):
            raise self._wrong(f"expected the items of `{piece.name}` that are done, found {describe(value)}")
        done = [value.texts.get(index, item) for index, item in enumerate(value)]
        for item in done:
            if item not in piece.items:
                raise self._wrong(f"the checklist `{piece.name}` has no item `{shorten(str(item))}`")
        for item in piece.items:
            if item not in done:
                raise _unconfirmed(piece, item)
        return list(piece.items)

    def _text(self, entry: Map, name: str, key: str) -> str:
        """A scalar as it was written."""
        value = entry.texts.get(name, entry[name])
        if not isinstance(value, str) or not value.strip() or entry[name] is None:
            raise self._wrong(f"expected text for `{name}` under `{key}`, found {describe(entry[name])}")
        return value

    def _wrong(self, message: str) -> NoEvidence:
        return NoEvidence("evidence", f"{self._name}: {message}")


def _unconfirmed(piece: RequestedEvidence, item: str) -> NoEvidence:
    return NoEvidence("rejected", f"`{shorten(item)}` of `{piece.name}` was not confirmed")


# --- a dialogue


class EvidenceDialogue:
    """Asks the person at the console, or reads the answers from a pipe."""

    def __init__(self, console: Asker, actor: str) -> None:
        self._console = console
        self._actor = actor

    async def give(self, ask: CollectEvidence) -> EvidenceAnswer | None:
        """Show what is to be done, and ask for each piece of evidence of it."""
        async with self._console.turn():
            self._console.say(f"\nstep `{ask.step_id}`" + (f": {ask.title}" if ask.title else ""))
            self._console.say(ask.instructions.rstrip("\n"))
            try:
                await self._is_done(ask)
                evidence = {piece.name: await self._piece(piece, ask) for piece in ask.evidence}
            except InputError as problem:
                raise NoEvidence("evidence", f"step `{ask.step_id}`: {problem.message}") from None
        return EvidenceAnswer(evidence=evidence, by=Principal("human", self._actor))

    async def _is_done(self, ask: CollectEvidence) -> None:
        for _ in range(ATTEMPTS):
            answer = await self._console.line("done? [y, or reject and why]: ")
            if answer is None:
                raise _unanswered(ask)
            word, _, reason = answer.strip().partition(" ")
            if word.lower() in _YES and not reason:
                return
            if word.lower() in _NO:
                reason = reason.strip() or (await self._console.line("why? ") or "").strip()
                raise NoEvidence("rejected", reason or NO_REASON)
            self._console.say("  answer y when it is done, or reject and why")
        raise _gave_up(ask, "whether it is done")

    async def _piece(self, piece: RequestedEvidence, ask: CollectEvidence) -> Any:
        if piece.description:
            self._console.say(piece.description)
        if piece.kind == "checklist":
            for item in piece.items:
                await self._is_confirmed(item, piece, ask)
            return list(piece.items)
        what = piece.name if piece.kind == "text" else f"{piece.name} (path of a file)"
        for _ in range(ATTEMPTS):
            answer = await self._answer(f"{what}: ", piece, ask)
            try:
                if not answer:
                    raise InputError("it cannot be left empty")
                return answer if piece.kind == "text" else await attachment(os.path.expanduser(answer))
            except InputError as problem:
                if not self._console.interactive:
                    raise NoEvidence("evidence", f"`{piece.name}` of step `{ask.step_id}`: {problem.message}") from None
                self._console.say(f"  {problem.message}")
        raise _gave_up(ask, f"`{piece.name}`")

    async def _is_confirmed(self, item: str, piece: RequestedEvidence, ask: CollectEvidence) -> None:
        for _ in range(ATTEMPTS):
            answer = (await self._answer(f"{item} [y/n]: ", piece, ask)).lower()
            if answer in _YES:
                return
            if answer in _NO:
                raise _unconfirmed(piece, item)
            self._console.say("  answer y or n")
        raise _gave_up(ask, f"`{shorten(item)}`")

    async def _answer(self, prompt: str, piece: RequestedEvidence, ask: CollectEvidence) -> str:
        answer = await self._console.line(prompt)
        if answer is None:
            raise _unanswered(ask, piece)
        return answer.strip()


def _gave_up(ask: CollectEvidence, what: str) -> NoEvidence:
    return NoEvidence("evidence", f"step `{ask.step_id}`: no usable answer about {what} in {ATTEMPTS} attempts")


# --- attachments


async def attachment(path: str) -> Mapping[str, Any]:
    """What is recorded of a file: its name, size and content hash."""
    try:
        file = open_regular(path)
    except FileNotFoundError:
        raise InputError(f"there is no file `{shorten(path, MAX_PATH)}`") from None
    hasher = Hasher()
    with file:
        # In steps, so that a run that is cancelled need not wait for a large file.
        while await asyncio.to_thread(_take, file, hasher, path):
            if hasher.size > MAX_ATTACHMENT:
                raise InputError(f"`{shorten(path, MAX_PATH)}` is larger than {MAX_ATTACHMENT // 1024**3} GiB")
    return {"name": os.path.basename(path), "size": hasher.size, "sha256": hasher.digest()}


def _take(file: BinaryIO, hasher: Hasher, path: str) -> bool:
    try:
        chunk = file.read(_CHUNK)
    except OSError as problem:
        raise InputError(f"`{shorten(path, MAX_PATH)}` cannot be read: {(problem.strerror or '').lower()}") from None
    hasher.update(chunk)
    return bool(chunk)
