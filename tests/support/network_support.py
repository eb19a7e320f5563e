"""What the tests over real sockets share: waiting for logs to become equal, a client of HTTP, certificates, and raw WebSockets."""

from __future__ import annotations

import datetime
import http.server
import json
import logging
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import h11
import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import gossiplog
from gossiplog import Entry, GossipLog
from gossiplog.entry import Ed25519Signer
from gossiplog.net.hub.server import Hub

TOPIC = "net.example.com"
PATIENCE_S = 60.0
"""For what takes milliseconds on a quiet machine."""


@pytest.fixture(autouse=True)
def no_faults(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test in which the network logged a fault of ours; for the conftest.py of a folder."""
    with caplog.at_level(logging.DEBUG, logger="gossiplog"):
        yield
    faults = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert [f"{record.getMessage()} {record.exc_info}" for record in faults] == []


def signer(number: int) -> Ed25519Signer:
    return Ed25519Signer.from_seed(bytes([number]) * 32)


@asynccontextmanager
async def memory_log(number: int, topic: str = TOPIC, **options: Any) -> AsyncIterator[GossipLog]:
    """A log in memory that appends with the signer of this number."""
    async with gossiplog.open(":memory:", topic=topic, signer=signer(number), **options) as log:
        yield log


async def until(log: GossipLog, condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is true of a log, looking again after each of its commits."""
    changed = trio.Event()

    def on_commit(entries: object) -> None:
        changed.set()

    with trio.fail_after(PATIENCE_S), log.watch_commits(on_commit):
        while not await condition():
            await changed.wait()
            changed = trio.Event()


async def until_equal(source: GossipLog, *logs: GossipLog) -> None:
    """Wait until other logs have what this one has now."""
    root = await source.root()
    for log in logs:

        async def is_equal(log: GossipLog = log) -> bool:
            return await log.root() == root

        await until(log, is_equal)


async def until_has(log: GossipLog, entries: Iterable[Entry]) -> None:
    """Wait until a log has these entries."""
    for entry in entries:

        async def has(entry: Entry = entry) -> bool:
            return await log.has(entry.id)

        await until(log, has)


async def until_count(log: GossipLog, count: int) -> None:
    """Wait until a log has so many entries."""

    async def is_there() -> bool:
        return await log.count() >= count

    await until(log, is_there)


async def eventually(condition: Callable[[], Any]) -> None:
    """Wait until something is true that nothing tells of."""
    with trio.fail_after(PATIENCE_S):
        while not condition():
            await trio.sleep(0.005)


@dataclass(frozen=True)
class Answer:
    """An answer of HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def open_stream(hub: Hub, tls: ssl.SSLContext | None = None) -> trio.abc.Stream:
    """Connect to a hub's port."""
    stream: trio.abc.Stream = await trio.open_tcp_stream("127.0.0.1", hub.port)
    if tls is not None:
        stream = trio.SSLStream(stream, tls, server_hostname="localhost", https_compatible=True)
    return stream


async def fetch(
    hub: Hub,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """Make one request."""
    with trio.fail_after(PATIENCE_S):
        async with await open_stream(hub, tls) as stream:
            client = h11.Connection(h11.CLIENT)
            fields = {"host": "localhost", "connection": "close", "content-length": str(len(body)), **(headers or {})}
            request = h11.Request(method=method, target=path, headers=list(fields.items()))
            await stream.send_all(client.send(request) + client.send(h11.Data(data=body)) + client.send(h11.EndOfMessage()))
            return await read_answer(stream, client)


async def read_answer(stream: trio.abc.Stream, client: h11.Connection) -> Answer:
    """Read one answer to its end."""
    head: h11.Response | None = None
    body = bytearray()
    while True:
        event = client.next_event()
        if event is h11.NEED_DATA:
            client.receive_data(await stream.receive_some())
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            return Answer(head.status_code, {name.decode(): value.decode() for name, value in head.headers}, bytes(body))


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for localhost, signed by itself, and its key; return their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    encoded = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    key_path.write_bytes(encoded)
    return cert_path, key_path


def server_tls(paths: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*paths)
    return context


def client_tls(paths: tuple[Path, Path]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(paths[0]))


@contextmanager
def answering(text: str) -> Iterator[str]:
    """Serve HTTP that answers every GET with this, in a thread; give its URL."""

    class Odd(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Odd) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def slow_to_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have hubs take a second to open a log that a client asks for."""

    @asynccontextmanager
    async def slow(self: Hub, topic: str) -> AsyncIterator[None]:
        await trio.sleep(1)
        yield

    monkeypatch.setattr(Hub, "knowing_members", slow)
