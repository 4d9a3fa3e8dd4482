"""A small HTTP service that is down until somebody restarts it: something for the demo to repair.

GET  /healthz   503 until it was restarted, then no answer once, 503 once more, and from then on 200
GET  /version   which build it is
GET  /log       what happened to it
POST /restart   restarts it, for whoever brings the token in DEMO_SERVICE_TOKEN; it repeats the token in its answer
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

LONGEST_LIFE: Final = 120.0
"""Seconds after which it ends by itself, should whoever started it be gone."""


class Service:
    """What the service is like, whoever asks."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._lock = threading.Lock()
        self._log = ["out of file handles"]
        self._looks: int | None = None

    def health(self) -> tuple[int, Any] | None:
        """Tell how it is; nothing while it starts."""
        with self._lock:
            if self._looks is None:
                return 503, {"state": "down"}
            self._looks += 1
            if self._looks == 1:
                return None
            return (503, {"state": "warming up"}) if self._looks == 2 else (200, {"state": "healthy"})

    def version(self) -> tuple[int, Any]:
        """Tell which build it is."""
        return 200, {"build": "2026.02.28"}

    def log(self) -> tuple[int, Any]:
        """Tell what happened."""
        with self._lock:
            return 200, {"log": list(self._log)}

    def restart(self, credentials: str | None) -> tuple[int, Any]:
        """Start again, for whoever has the token."""
        if credentials != f"Bearer {self._token}":
            return 401, {"state": "not for you"}
        with self._lock:
            self._looks = 0
            self._log.append("restarted")
        # Careless, as services are: what a tool prints is redacted before anyone sees it.
        return 202, {"state": f"restarted by the holder of {self._token}"}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    service: Service

    def do_GET(self) -> None:
        """Answer one of the questions."""
        pages: dict[str, Callable[[], tuple[int, Any] | None]] = {
            "/healthz": self.service.health,
            "/version": self.service.version,
            "/log": self.service.log,
        }
        page = pages.get(self.path)
        answer = page() if page is not None else (404, {"state": "no such page"})
        if answer is not None:
            self._answer(*answer)

    def do_POST(self) -> None:
        """Restart."""
        if self.path == "/restart":
            self._answer(*self.service.restart(self.headers.get("Authorization")))
        else:
            self._answer(404, {"state": "no such page"})

    def log_message(self, *_: Any) -> None:
        """Say nothing: the demo speaks for itself."""

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main(port_file: Path) -> int:
    """Serve on any free port of this machine, and write down which."""
    Handler.service = Service(os.environ["DEMO_SERVICE_TOKEN"])
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        timer = threading.Timer(LONGEST_LIFE, server.shutdown)
        timer.daemon = True
        timer.start()
        # Whole or not at all: whoever waits for the file reads it at once.
        partial = port_file.with_suffix(".partial")
        partial.write_text(f"{server.server_port}\n", encoding="ascii")
        partial.rename(port_file)
        server.serve_forever(poll_interval=0.05)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
