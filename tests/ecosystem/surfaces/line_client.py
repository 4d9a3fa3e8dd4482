"""A client of a server process: one JSON-RPC message a line."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from queue import Empty, Queue
from threading import Thread
from typing import Any


class LineClient:
    """Starts a server, and reads its messages in a thread."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        pipe = subprocess.PIPE
        env = None if environ is None else dict(environ)
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=env)
        self._arrived: Queue[dict[str, Any]] = Queue()
        self.told: list[dict[str, Any]] = []
        self._number = 0
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._arrived.put(json.loads(line))

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def begin(self, method: str, **params: Any) -> int:
        self._number += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}).encode())
        return self._number

    def next(self) -> dict[str, Any]:
        try:
            return self._arrived.get(timeout=90)
        except Empty:
            raise AssertionError("no message in time") from None

    def close(self) -> int:
        """End its input; the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(60)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(60)
        self._reader.join(60)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
