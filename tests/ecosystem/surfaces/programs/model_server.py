"""A model server for agents that are processes: it speaks OpenAI's protocol, follows a script, and counts."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.ecosystem.models.vendors import completion, tool_call

Message = dict[str, Any]
Script = Callable[[list[Message]], Any]
"""Answers the messages: with an object, or with a list of calls, each a name and its arguments."""


class ModelServer:
    """What was asked, and a gate that answers wait at."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[list[Message]] = []
        self.url = ""
        self.open = threading.Event()
        self.open.set()

    def answer(self, said: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(said["messages"])
        found = self.script(said["messages"])
        self.open.wait(60)
        if isinstance(found, list):
            calls = [tool_call(name, json.dumps(given), f"c{n}") for n, (name, given) in enumerate(found)]
            return completion(None, finish="tool_calls", tool_calls=calls)
        return completion(json.dumps(found))


def results(messages: Sequence[Message]) -> list[str]:
    """What tools returned so far."""
    return [message["content"] for message in messages if message["role"] == "tool"]


@contextmanager
def model_server(script: Script) -> Iterator[ModelServer]:
    """Serve on a free port of this machine."""
    found = ModelServer(script)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["content-length"])))
            is_chat = self.path.endswith("/chat/completions")
            body = json.dumps(found.answer(said) if is_chat else {"error": {"message": "not found"}}).encode()
            self.send_response(200 if is_chat else 404)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                return  # who asked is gone

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.open.set()
        server.shutdown()
        server.server_close()
