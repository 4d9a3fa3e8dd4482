"""A vendor for `make demo-runner` and the docs: a local TLS server that answers like Slack, and repeats the token.

It is told where to write its port and the certificate of its authority, and ends by itself after five minutes.
"""

import json
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import trustme

LONGEST_LIFE: Final = 300.0


class Handler(BaseHTTPRequestHandler):
    """Answers `chat.postMessage`."""

    calls = 0

    def do_POST(self) -> None:
        """Post a message, as far as anyone can tell."""
        asked: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        type(self).calls += 1
        # Careless, as vendors are: what comes back is redacted before it is written anywhere.
        said = {"ok": True, "channel": asked["channel"], "ts": "1503435956.000247"}
        said["debug"] = f"call {self.calls} with {self.headers['authorization']}"
        data = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def main(folder: Path) -> int:
    """Serve until the time is up."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("slack.com").configure_cert(context)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        timer = threading.Timer(LONGEST_LIFE, server.shutdown)
        timer.daemon = True
        timer.start()
        # Whole or not at all: the demo waits for the file and reads it at once.
        partial = folder / "port.partial"
        partial.write_text(f"{server.server_port}\n", encoding="ascii")
        partial.rename(folder / "port")
        server.serve_forever(poll_interval=0.05)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
