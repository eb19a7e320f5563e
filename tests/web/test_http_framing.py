"""Where a request ends: what two parsers could read in two ways is refused, and nothing after it is answered."""

from __future__ import annotations

import contextlib
import json

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from network_support import PATIENCE_S, fetch, memory_log, open_stream, signer

from gossiplog.archive import entry_to_line
from gossiplog.codec import pcf
from gossiplog.entry import sign_entry
from gossiplog.errors import RemoteProtocolError
from gossiplog.net.hub.server import Hub
from gossiplog.web.http.asgi import ChunkedDecoder

AFTER = b"GET /api/root HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""A second request, which gets an answer of its own if it is taken for one."""
POST = b"POST /api/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

REFUSED = {
    "both, the length short": POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both, the other way round": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "both, and no length": POST + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks in 1.0": CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "two equal lengths": POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a list of lengths": POST + b"Content-Length: 2, 2\r\n\r\n{}",
    "a signed length": POST + b"Content-Length: +2\r\n\r\n{}",
    "a hexadecimal length": POST + b"Content-Length: 0x2\r\n\r\n{}",
    "no length at all": POST + b"Content-Length:\r\n\r\n",
    "a huge length": POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n{}",
    "a space in front of the colon": POST + b"Content-Length : 2\r\n\r\n{}",
    "an unknown coding": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "nearly chunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "bare LF": b"GET /api/clock HTTP/1.1\nHost: localhost\n\n",
    "one bare LF": b"GET /api/clock HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n",
    "LF as the empty line": b"GET /api/clock HTTP/1.1\r\nHost: localhost\r\n\n",
    "bare CR": b"GET /api/clock HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n",
    "a folded line": b"GET /api/clock HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
    "a folded line with a tab": b"GET /api/clock HTTP/1.1\r\nHost: localhost\r\nX: a\r\n\tb\r\n\r\n",
    "space in front of the first field": b"GET /api/clock HTTP/1.1\r\n Host: localhost\r\n\r\n",
    "NUL": b"GET /api/clock HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
    "no Host": b"GET /api/clock HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET /api/clock HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    "a Host that is none": b"GET /api/clock HTTP/1.1\r\nHost: localhost/api?\r\n\r\n",
    "two spaces in the first line": b"GET  /api/clock HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a double slash": b"GET /api//clock HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a double slash in front": b"GET //api/clock HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a double slash, half of it escaped": b"GET /api/%2fclock HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an escaped line end": b"GET /api/clock%0A HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an escaped NUL": b"GET /api/clock%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an escaped control character above ASCII": b"GET /api/%c2%85clock HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a double slash in absolute form": b"GET http://localhost//api/clock HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "version 0.9": b"GET /api/clock HTTP/0.9\r\nHost: localhost\r\n\r\n",
    "version 2.0": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "bare LF after a chunk's size": CHUNKED + b"2\n{}\r\n0\r\n\r\n",
    "bare LF after a chunk": CHUNKED + b"2\r\n{}\n0\r\n\r\n",
    "bare LF after the last chunk": CHUNKED + b"0\r\n\n",
    "bare LF in the trailer": CHUNKED + b"0\r\nX: y\n\r\n",
    "a folded trailer": CHUNKED + b"0\r\nX: y\r\n z\r\n\r\n",
    "a chunk longer than it says": CHUNKED + b"2\r\n{} \r\n0\r\n\r\n",
    "a chunk's size with 0x": CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n",
    "a chunk's size with a sign": CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n",
    "a chunk of nearly all bytes": CHUNKED + b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    "a chunk's size of 300 bytes": CHUNKED + b"2;" + b"x" * 300 + b"\r\n{}\r\n0\r\n\r\n",
}


async def answers(hub: Hub, request: bytes) -> list[int]:
    """Send bytes and read until the server closes; return the status of each answer."""
    async with await open_stream(hub) as stream:
        received = b""
        with trio.fail_after(PATIENCE_S):
            await stream.send_all(request)
            while data := await stream.receive_some():
                received += data
    return [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize("form", REFUSED)
async def test_what_can_be_read_in_two_ways_gets_one_answer_and_the_connection_closes(form: str) -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        entry = sign_entry(signer(2), log.topic, 1, [], pcf.encode("honest"))
        found = await answers(hub, REFUSED[form] + AFTER)
        assert len(found) == 1
        assert 400 <= found[0] < 600
        answer = await fetch(hub, "/api/messages", method="POST", headers={"content-type": "application/json"}, body=entry_to_line(entry))
        assert answer.status == 201


TAKEN = {
    "a length": POST + b"Content-Length: 2\r\n\r\n{}",
    "chunks": CHUNKED + b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
    "chunks with an extension": CHUNKED + b'2;name="value"\r\n{}\r\n0\r\n\r\n',
    "chunks with a trailer": CHUNKED + b"02\r\n{}\r\n000\r\nX-Sum: 1\r\nY:\r\n\r\n",
    "an empty line in front": b"\r\n" + AFTER,
    "an empty line after a body": POST + b"Content-Length: 2\r\n\r\n{}\r\n",
    "a target in absolute form": b"GET http://localhost/api/clock HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "lower case": b"GET /api/clock HTTP/1.1\r\nhost:localhost\r\ncontent-length:0\r\n\r\n",
}


@pytest.mark.parametrize("form", TAKEN)
async def test_what_has_one_meaning_is_answered_and_so_is_the_request_after_it(form: str) -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        found = await answers(hub, TAKEN[form] + AFTER.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert found == [400 if TAKEN[form].startswith(POST) else 200, 200]


async def test_body_that_nobody_wants_is_not_taken_for_a_request() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        for path in (b"/api/none", b"/api/clock"):
            smuggled = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(AFTER) + AFTER
            assert len(await answers(hub, smuggled)) == 1


async def test_upgrade_to_http_2_is_not_offered() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        fields = b"Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
        assert await answers(hub, b"GET /api/clock HTTP/1.1\r\nHost: localhost\r\n" + fields) == [200]


@pytest.mark.parametrize("path", ["/api/messages", "/api/clock", "/none"])
@pytest.mark.parametrize("version, field", [("1.0", ""), ("1.1", "Connection: close\r\n")])
async def test_server_closes_where_the_client_expects_it(path: str, version: str, field: str) -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        await log.append_many(range(20))
        assert len(await answers(hub, f"GET {path} HTTP/{version}\r\nHost: localhost\r\n{field}\r\n".encode())) == 1


async def test_connection_that_is_idle_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossiplog.web.http.asgi.KEEP_ALIVE_S", 0.05)
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        for path in ("/api/messages", "/api/clock"):
            assert await answers(hub, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()) == [200]


async def test_client_is_told_to_go_on_with_a_body_only_where_it_is_wanted() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        for kind, expected in ((b"application/json", b"HTTP/1.1 100"), (b"text/html", b"HTTP/1.1 400")):
            async with await open_stream(hub) as stream:
                head = POST.replace(b"application/json", kind) + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"
                with trio.fail_after(PATIENCE_S):
                    await stream.send_all(head)
                    assert (await stream.receive_some()).startswith(expected)
                    if b"100" in expected:
                        await stream.send_all(b"{}")
                        assert (await stream.receive_some()).startswith(b"HTTP/1.1 400")


async def test_every_answer_forbids_guessing_its_type() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        for path in ("/", "/api/clock", "/api/messages", "/metrics", "/none"):
            assert (await fetch(hub, path)).headers["x-content-type-options"] == "nosniff"
        assert (await fetch(hub, "/", headers={"host": "evil.example"})).headers["x-content-type-options"] == "nosniff"


async def test_head_has_no_body() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        await log.append(1)
        for path in ("/api/clock", "/api/messages", "/api/events"):
            answer = await fetch(hub, path, method="HEAD")
            assert (answer.status, answer.body) == (200, b"")
        assert json.loads((await fetch(hub, "/api/clock")).body)["clock"] == 2


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.integers(1, 30), st.binary(max_size=10))
def test_chunks_are_put_together_however_they_are_cut(chunks: list[bytes], step: int, after: bytes) -> None:
    sent = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n" + after
    decoder, body, rest = ChunkedDecoder(), b"", b""
    for at in range(0, len(sent), step):
        if decoder.is_complete:
            rest += sent[at : at + step]
        else:
            piece, rest = decoder.take(sent[at : at + step])
            body += piece
    assert (body, rest, decoder.is_complete) == (b"".join(chunks), after, True)


@given(st.binary(max_size=60))
def test_chunks_of_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        ChunkedDecoder().take(data)
