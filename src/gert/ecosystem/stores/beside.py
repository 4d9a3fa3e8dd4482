"""A second file made durable while the first one is: a thread that is told which, and tells when.

Queues and no more: a pool would take longer for its own sake than a fast disk takes for the file.
"""

from queue import SimpleQueue
from threading import Thread
from typing import TypeAlias

from gert.ecosystem.stores.append_file import AppendFile

Ends: TypeAlias = "SimpleQueue[BaseException | None]"


class Beside:
    """Makes files durable one after the other, beside whoever asks for it."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[AppendFile, Ends] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="gert-answers", daemon=True)
        self._thread.start()

    def begin(self, file: AppendFile) -> Ends:
        """Begin with a file; `wait` with what this gives is told when it is durable."""
        # One for each beginning: whoever was interrupted while he waited leaves nothing for the next to find.
        ends: Ends = SimpleQueue()
        self._asked.put((file, ends))
        return ends

    def wait(self, ends: Ends) -> None:
        """Wait until a file is durable; raises what kept it from being that."""
        problem = ends.get()
        if problem is not None:
            raise problem

    def close(self) -> None:
        """Let the thread end."""
        self._asked.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            file, ends = asked
            problem: BaseException | None = None
            try:
                file.make_durable()
            except BaseException as error:
                problem = error
            ends.put(problem)
