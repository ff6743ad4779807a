"""Serves the events of Vault with the server of `websockets`. Each line of standard input is sent to all clients, except for two: with
`ping` each is asked three times whether it is there, and with a blank line they are closed as a server that restarts does. Standard output
has the port, and then a line for each connection and for each round of pings that were answered."""

import asyncio
import http
import json
import sys

from websockets.asyncio.server import broadcast, serve

clients = set()


def tell(**fields):
    print(json.dumps(fields), flush=True)


async def check(connection, request):
    if not request.headers.get("X-Vault-Token"):
        return connection.respond(http.HTTPStatus.FORBIDDEN, json.dumps({"errors": ["permission denied"]}))
    return None


async def handle(connection):
    request = connection.request
    tell(path=request.path, namespace=request.headers.get("X-Vault-Namespace"), extensions=len(connection.protocol.extensions))
    clients.add(connection)
    try:
        await connection.wait_closed()
    finally:
        clients.discard(connection)
        tell(closed=connection.close_code)


async def main():
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    # Compression is offered, which keyward does not ask for.
    server = await serve(handle, "127.0.0.1", 0, process_request=check, compression="deflate")
    async with server:
        tell(port=server.sockets[0].getsockname()[1])
        while line := await lines.readline():
            message = line.decode().rstrip("\n")
            if message == "ping":
                for _ in range(3):
                    for client in list(clients):
                        await asyncio.wait_for(await client.ping(), 5)
                tell(answered=3)
            elif message:
                broadcast(clients, message)
            else:
                await asyncio.gather(*(client.close(1012, "restarts") for client in list(clients)))


asyncio.run(main())
