"""JSON-RPC 2.0, one message a line: over the pipes of a child process, or over our own standard input and output.

Call a program. It is started on first use, reused by name, and ended with the pool:

    servers = Servers()
    server = Server(
        name="cmdb",
        title="the provider `cmdb`",                       # how messages call it
        command=command,                                   # gert.ecosystem.process.command.Command
        redactor=redactor,                                 # masks its standard error
        greet=lambda peer: peer.call("initialize", {"protocol_version": "1"}, timeout=10),   # optional
        farewell="shutdown",                               # optional: called before its input is closed
    )
    try:
        answer = await servers.call(server, "resolve", {"bindings": [...]}, timeout=30)
        answer.result, answer.stderr, answer.greeting
    finally:
        await servers.close()

A call raises `RpcFault` (the program answered with an error), `RpcTimeout`, or `RpcLost` (it could not be started, it
ended, or it broke the protocol). When a call is cancelled, the program gets `$/cancelRequest`; one that does
not answer within the grace period is ended after its other calls.

Serve calls on our own standard input and output, until the client closes it or a handler calls `peer.end`:

    async def resolve(params): ...
    await serve_stdio({"resolve": resolve})

Only the framing and the process, for another library's protocol: `gert.ecosystem.process.process.Process` with a
`StdinStream`, and `gert.ecosystem.rpc.lines.Lines`.
"""

from gert.ecosystem.rpc.own_stdio import serve_stdio
from gert.ecosystem.rpc.peer import Handler, Peer
from gert.ecosystem.rpc.servers import Answered, Server, Servers

__all__ = ["Answered", "Handler", "Peer", "Server", "Servers", "serve_stdio"]
