"""The options of `gert resume` for a run whose ticket is answered or expired."""

from contextlib import suppress

from gert.ecosystem.host.config.variables import again_words_of
from gert.errors import GertError
from gert.kernel.events.envelope import decode
from gert.kernel.ledger.port import Ledger


async def input_words(ledger: Ledger, run_id: str | None) -> str:
    """The options that give secret inputs again; none where the record of the run cannot be read.

    The database role of an approver may read tickets only, and an answer does not depend on these words.
    """
    if run_id is not None:
        with suppress(GertError):
            for first in await ledger.lines(run_id, 0, 1):
                return again_words_of(decode(first))
    return ""
