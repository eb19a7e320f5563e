"""The head of a request, which tells a WebSocket from plain HTTP. The parser is h11, which is laxer than what is behind a proxy may be.

What two parsers can read in two ways is refused here, for whoever makes a proxy and us disagree about where a request ends has a second
one answered that the proxy never saw: lines end with CRLF alone, none is folded, there is one length or one chunked coding, never both,
and a path has neither double slashes nor control characters, escaped or not.

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
"""What a WebSocket subprotocol begins with that brings a token, as a page cannot send headers."""
_END = b"\r\n\r\n"
# A CR at the very end may be followed by its LF.
_MALFORMED_LINE = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|\r\n[ \t]")
_LENGTHS = re.compile(rb"\r\ncontent-length:[ \t]*([^\r]*?)[ \t]*(?=\r)", re.IGNORECASE)
_AMBIGUOUS_PATH = re.compile(r"//|[\0-\x1f\x7f-\x9f]")
"""After the escapes were taken out: what one reads over, or takes for an end, another does not."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%!$&'()*+,;=-]*)(:[0-9]*)?")
_VERSIONS = (b"1.0", b"1.1")
_EMPTY_LINES_MAX = 2
_UNSUPPORTED_VERSION, _HEAD_TOO_LONG = 505, 431


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request's head: everything before its body.

    Attributes:
        target: Path and query, as they were sent, but for a token.
        host: Whom the request is for, with a port unless that is the usual one; None if an old client does not say.
        headers: Names in lower case and values, as they were sent.
        is_upgrade: Whether a WebSocket is asked for.
        token: What was brought to be let in: by `Authorization: Bearer`, by the WebSocket subprotocol `bearer.…`, or as `token` in the
            query, where it is taken out, so that no log shows it.
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
        """The WebSocket subprotocol to agree on: a browser that offers any wants one, and not the one that is a token."""
        return next((name for name in _subprotocols(self.headers) if name and not name.startswith(BEARER)), None)

    @property
    def forwarded(self) -> list[str]:
        """The addresses of `X-Forwarded-For`, in their order."""
        return [name for value in self.all(b"x-forwarded-for") for name in value.decode("latin-1").split(",")]

    def all(self, name: bytes) -> list[bytes]:
        """Return all values of a header, whose name is given in lower case, in their order."""
        return [value for each, value in self.headers if each == name]

    def first(self, name: bytes) -> str | None:
        """Return the first value of a header as text; None if there is none."""
        return next((value.decode("latin-1") for value in self.all(name)), None)


@dataclass(frozen=True, slots=True)
class Head(HttpRequest):
    """A request up to its body, as it came on a connection.

    Attributes:
        raw: The head's bytes, as received.
        beyond: What was received after the head.
        length: Bytes of the body; None if it comes in chunks.
        parser: What has read the head and nothing else; it frames the answer.
    """

    raw: bytes
    beyond: bytes
    method: str
    length: int | None
    parser: h11.Connection


async def read_head(stream: ByteStream, bytes_max: int, begun: bytes = b"") -> Head:
    """Read until the head of a request is complete. The caller sets a deadline.

    Args:
        bytes_max: A longer one is refused.
        begun: Bytes of the head received already.

    Raises:
        RemoteProtocolError: It is too long, or no HTTP, or can be read in two ways; the peer was told, and nothing after it is a request.
        ClosedError: The connection broke, or ended before.
    """
    try:
        return _parse(*await _receive(stream, bytes_max, begun), bytes_max)
    except h11.RemoteProtocolError as error:
        await refuse(stream, error.error_status_hint, f"this is no request that can be served: {error}")
        raise RemoteProtocolError(f"no request of HTTP: {error}") from None


async def _receive(stream: ByteStream, bytes_max: int, begun: bytes) -> tuple[bytes, int]:
    """Return what was received, and how many bytes of it are the head."""
    received = bytearray(begun)
    empty_lines = 0
    while True:
        # Older clients send an empty line after a body.
        while received.startswith(b"\r\n") and empty_lines < _EMPTY_LINES_MAX:
            del received[:2]
            empty_lines += 1
        end = received.find(_END)
        length = len(received) if end < 0 else end + len(_END)
        if length > bytes_max:
            raise h11.RemoteProtocolError(f"its head has more than {bytes_max} bytes", error_status_hint=_HEAD_TOO_LONG)
        if _MALFORMED_LINE.search(received, 0, length):
            raise h11.RemoteProtocolError("a line of its head does not end with CRLF, or is folded")
        # Nor does a first byte below "!" begin a method, and who sends TLS never gets to an empty line.
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
    """Take `token` out of a target's query; return the rest of it, and the token if there is one."""
    path, mark, query = target.partition("?")
    parts = query.split("&")
    tokens = [part.removeprefix("token=") for part in parts if part.startswith("token=")]
    if not tokens:
        return target, None
    rest = "&".join(part for part in parts if not part.startswith("token="))
    return path + (mark + rest if rest else ""), unquote(tokens[0])


def find_token(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Return the token that headers bring, by `Authorization` or as a WebSocket subprotocol; None if they bring none."""
    scheme, _, token = next((value for name, value in headers if name == b"authorization"), b"").decode("latin-1").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    return next((name.removeprefix(BEARER) for name in _subprotocols(headers) if name.startswith(BEARER)), None)


def _subprotocols(headers: Sequence[tuple[bytes, bytes]]) -> list[str]:
    values = (value.decode("latin-1") for name, value in headers if name == b"sec-websocket-protocol")
    return [name.strip() for value in values for name in value.split(",")]


def _split_target(target: str) -> tuple[str, str | None]:
    """Take a target in absolute form, as proxies get it, into path and authority, which counts instead of `Host`."""
    scheme, colon, rest = target.partition("://")
    if not colon or scheme.lower() not in ("http", "https", "ws", "wss"):
        return target, None
    authority, slash, path = rest.partition("/")
    return slash + path or "/", authority


async def refuse(stream: ByteStream, status: int, reason: str) -> None:
    """Answer with an error, after which the caller closes the connection. A 401 says that tokens are taken.

    Raises:
        ClosedError: The connection broke.
    """
    body = reason.encode() + b"\n"
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
    fields = "content-type: text/plain; charset=utf-8\r\nx-content-type-options: nosniff\r\n"
    fields += "www-authenticate: Bearer\r\n" if status == HTTPStatus.UNAUTHORIZED else ""
    await stream.send_all((head + fields + f"content-length: {len(body)}\r\nconnection: close\r\n\r\n").encode() + body)
