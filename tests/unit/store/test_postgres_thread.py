"""The thread with asyncio's event loop that speaks to PostgreSQL."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from pathlib import Path

import trio
from network_support import make_certificate

from gossiplog.store.postgres.thread import AsyncioThread, TrioCall


async def test_connection_over_tls_is_closed_before_the_loop(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate, key)
    may_answer = threading.Event()
    sockets: list[asyncio.trsock.TransportSocket] = []

    def serve() -> None:
        accepted, _ = server.accept()
        with theirs.wrap_socket(accepted, server_side=True) as stream:
            stream.recv(1)
            may_answer.wait()
            stream.unwrap().close()

    async def leave(_: TrioCall) -> None:
        context = ssl.create_default_context(cafile=str(certificate))
        where = server.getsockname()
        loop = asyncio.get_running_loop()
        connection, _ = await loop.create_connection(asyncio.Protocol, *where, ssl=context, server_hostname="localhost")
        sockets.append(connection.get_extra_info("socket"))
        connection.write(b"x")
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=serve, daemon=True)
        answering.start()
        thread = AsyncioThread("test")
        thread.start()
        await thread.call(leave)
        thread.loop.call_soon_threadsafe(thread.loop.call_later, 0.05, may_answer.set)
        thread.stop()
        assert sockets[0].fileno() == -1
        may_answer.set()
        answering.join()


async def test_what_was_given_up_is_cancelled_or_discarded_and_its_caller_waits_for_nothing_else() -> None:
    discarded: list[str] = []

    async def stuck() -> str:
        await asyncio.Event().wait()
        return "never"

    async def late() -> str:
        try:
            return await stuck()
        except asyncio.CancelledError:
            return "late"

    thread = AsyncioThread("test")
    thread.start()
    for work in (stuck, late):
        with trio.move_on_after(0.05) as scope:
            await thread.call(lambda call, work=work: call.run(work(), discarded.append))
        assert scope.cancelled_caught
    thread.stop()
    assert discarded == ["late"]
