"""The head of a request, which tells a WebSocket from plain HTTP. The parser is h11, which is too lax for a server behind a proxy.

A request that two parsers can read in two ways is refused here: a client that makes a proxy and us disagree about where a request ends
could smuggle in a second one that the proxy never saw. Lines end with CRLF alone and are not folded; there is one length or one chunked
coding, never both; a path has neither double slashes nor control characters, escaped or not.

Source: RFC 9112, 2.2, 5.2, 6.1 to 6.3, 11.2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import unquote

import h11

from ...errors import ClosedError, RemoteProtocolError
from .stream import ByteStream

LENGTH_DIGITS_MAX = 15
BEARER = "bearer."
"""A WebSocket subprotocol with this prefix carries a token, because a page cannot send headers."""
_END = b"\r\n\r\n"
# A CR at the very end may be followed by its LF.
_MALFORMED_LINE = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|\r\n[ \t]")
_LENGTHS = re.compile(rb"\r\ncontent-length:[ \t]*([^\r]*?)[ \t]*(?=\r)", re.IGNORECASE)
_AMBIGUOUS_PATH = re.compile(r"//|[\0-\x1f\x7f-\x9f]")
"""Searched for in the unescaped path: some parsers skip these characters or take them for the path's end."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%!$&'()*+,;=-]*)(:[0-9]*)?")
_VERSIONS = (b"1.0", b"1.1")
_EMPTY_LINES_MAX = 2
_UNSUPPORTED_VERSION, _HEAD_TOO_LONG = 505, 431


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request's head: everything before its body.

    Attributes:
        target: Path and query as they were sent, without a token.
        host: The server's name in the request, with a port unless that is the default one; None if an old client does not send it.
        headers: Names in lower case, and values as they were sent.
        is_upgrade: Whether a WebSocket is requested.
        token: The access token, from `Authorization: Bearer`, the WebSocket subprotocol `bearer.…`, or `token` in the query. It is taken
            out of the query so that no log shows it.
    """

    target: str
    host: str | None
    headers: tuple[tuple[bytes, bytes], ...]
    is_upgrade: bool
    token: str | None

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def subprotocol(self) -> str | None:
        """The WebSocket subprotocol to agree on: the first that is no token. A browser that offers any expects one."""
        return next((name for name in _subprotocols(self.headers) if name and not name.startswith(BEARER)), None)

    @property
    def forwarded(self) -> list[str]:
        """The addresses of `X-Forwarded-For`, in order."""
        return [name for value in self.all(b"x-forwarded-for") for name in value.decode("latin-1").split(",")]

    def all(self, name: bytes) -> list[bytes]:
        """Return all values of a header, in order. The name is in lower case."""
        return [value for each, value in self.headers if each == name]

    def first(self, name: bytes) -> str | None:
        """Return the first value of a header as text; None if there is none."""
        return next((value.decode("latin-1") for value in self.all(name)), None)


@dataclass(frozen=True, slots=True)
class Head(HttpRequest):
    """A request up to its body, as it came on a connection.

    Attributes:
        raw: The head's bytes, as received.
        beyond: Bytes that were received after the head.
        length: Bytes of the body; None if it comes in chunks.
        parser: Has read the head and nothing else; it frames the answer.
    """

    raw: bytes
    beyond: bytes
    method: str
    length: int | None
    parser: h11.Connection


async def read_head(stream: ByteStream, bytes_max: int, begun: bytes = b"") -> Head:
    """Read the head of a request. The caller sets a deadline.

    Args:
        bytes_max: A longer head is refused.
        begun: Bytes of the head that were received before.

    Raises:
        RemoteProtocolError: The head is too long, no HTTP, or ambiguous. The peer was told; close the connection.
        ClosedError: The connection broke or ended.
    """
    try:
        return _parse(*await _receive(stream, bytes_max, begun), bytes_max)
    except h11.RemoteProtocolError as error:
        await refuse(stream, error.error_status_hint, f"this is no request that can be served: {error}")
        raise RemoteProtocolError(f"no HTTP request: {error}") from None


async def _receive(stream: ByteStream, bytes_max: int, begun: bytes) -> tuple[bytes, int]:
    """Return the bytes received, and how many of them are the head."""
    received = bytearray(begun)
    empty_lines = 0
    while True:
        # Old clients send an empty line after a body.
        while received.startswith(b"\r\n") and empty_lines < _EMPTY_LINES_MAX:
            del received[:2]
            empty_lines += 1
        end = received.find(_END)
        length = len(received) if end < 0 else end + len(_END)
        if length > bytes_max:
            raise h11.RemoteProtocolError(f"its head has more than {bytes_max} bytes", error_status_hint=_HEAD_TOO_LONG)
        if _MALFORMED_LINE.search(received, 0, length):
            raise h11.RemoteProtocolError("a line of its head does not end with CRLF, or is folded")
        # No method begins with a byte below "!". Checked early, because TLS sent here may never contain an empty line.
        if received and received[0] <= 0x20 and received[:1] != b"\r":
            raise h11.RemoteProtocolError("illegal request line")
        if end >= 0:
            return bytes(received), length
        data = await stream.receive_some()
        if not data:
            raise ClosedError("closed before a request")
        received += data


def _parse(raw: bytes, length: int, bytes_max: int) -> Head:
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=bytes_max)
    parser.receive_data(raw[:length])
    event = parser.next_event()
    if not isinstance(event, h11.Request):
        raise h11.RemoteProtocolError("illegal request line")
    if event.http_version not in _VERSIONS:
        raise h11.RemoteProtocolError("its version is neither 1.0 nor 1.1", error_status_hint=_UNSUPPORTED_VERSION)
    target, authority = _split_target(event.target.decode("latin-1"))
    if _AMBIGUOUS_PATH.search(unquote(target.partition("?")[0])):
        raise h11.RemoteProtocolError("its path has a double slash or a control character")
    hosts = [value.decode("latin-1") for name, value in event.headers if name == b"host"]
    host = authority if authority is not None else hosts[0] if hosts else None
    if any(not _HOST.fullmatch(each) for each in (*hosts, host or "")):
        raise h11.RemoteProtocolError("the value of Host is no name with a port")
    is_chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
    lengths = [match[1] for match in _LENGTHS.finditer(raw, 0, length)]
    if is_chunked and (lengths or event.http_version == b"1.0"):
        raise h11.RemoteProtocolError("Transfer-Encoding beside Content-Length, or in HTTP/1.0")
    if len(lengths) > 1 or any(not (each.isdigit() and len(each) <= LENGTH_DIGITS_MAX) for each in lengths):
        raise h11.RemoteProtocolError("Content-Length is not one number")
    body_bytes = None if is_chunked else int(lengths[0]) if lengths else 0
    target, token = take_token(target)
    headers = tuple(event.headers)
    is_upgrade = any(name == b"upgrade" and value.strip().lower() == b"websocket" for name, value in headers)
    found = find_token(headers)
    return Head(
        target=target,
        host=host,
        headers=headers,
        is_upgrade=is_upgrade,
        token=token if found is None else found,
        raw=raw[:length],
        beyond=raw[length:],
        method=event.method.decode("ascii"),
        length=body_bytes,
        parser=parser,
    )


def take_token(target: str) -> tuple[str, str | None]:
    """Take `token` out of a target's query. Return the target without it, and the token; None if there is none."""
    path, mark, query = target.partition("?")
    parts = query.split("&")
    tokens = [part.removeprefix("token=") for part in parts if part.startswith("token=")]
    if not tokens:
        return target, None
    rest = "&".join(part for part in parts if not part.startswith("token="))
    return path + (mark + rest if rest else ""), unquote(tokens[0])


def find_token(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Return the token in `Authorization` or in a WebSocket subprotocol; None if there is none."""
    scheme, _, token = next((value for name, value in headers if name == b"authorization"), b"").decode("latin-1").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    return next((name.removeprefix(BEARER) for name in _subprotocols(headers) if name.startswith(BEARER)), None)


def _subprotocols(headers: Sequence[tuple[bytes, bytes]]) -> list[str]:
    values = (value.decode("latin-1") for name, value in headers if name == b"sec-websocket-protocol")
    return [name.strip() for value in values for name in value.split(",")]


def _split_target(target: str) -> tuple[str, str | None]:
    """Split a target in absolute form, as sent to proxies, into path and authority, which replaces `Host`."""
    scheme, colon, rest = target.partition("://")
    if not colon or scheme.lower() not in ("http", "https", "ws", "wss"):
        return target, None
    authority, slash, path = rest.partition("/")
    return slash + path or "/", authority


async def refuse(stream: ByteStream, status: int, reason: str) -> None:
    """Answer with an error; the caller then closes the connection. A 401 says that a bearer token is accepted.

    Raises:
        ClosedError: The connection broke.
    """
    body = reason.encode() + b"\n"
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
    fields = "content-type: text/plain; charset=utf-8\r\nx-content-type-options: nosniff\r\n"
    fields += "www-authenticate: Bearer\r\n" if status == HTTPStatus.UNAUTHORIZED else ""
    await stream.send_all((head + fields + f"content-length: {len(body)}\r\nconnection: close\r\n\r\n").encode() + body)
