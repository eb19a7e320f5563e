"""Logs as part of another ASGI application: serves connections that another server accepted.

It opens no socket. The hub begins with the first request, and ends with the log that was named first.

Source: docs/asgi.md; the ASGI specification, "HTTP & WebSocket".
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import trio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import ClosedError, LocalProtocolError
from ..net.ground.access import KNOWN, Caller, Rights
from ..net.ground.admission import LOOPBACK, HubLimits, NotLetIn, Place, Refused, client_address
from ..net.ground.journal import note
from ..net.ground.proof import Refusal
from ..net.hub.client_connection import ClientConnection
from ..net.hub.server import WS_CLOSE_CODE, Hub, open_hub
from ..net.service.service import observed
from ..net.transport.http_head import HttpRequest, find_token, take_token
from ..net.transport.http_names import Names
from ..replica.log import Replica
from ..replica.shelving import OpenLogs
from .app import make_app
from .glass import GlassSettings
from .http.asgi import OWN_BYTES, PIECE_BYTES, in_time
from .http.asgi_websocket import AsgiWebSocket
from .http.client_memory import Memory
from .http.doors import AWAY, refusal_answer

Known: TypeAlias = "Rights | Refusal | str | None"
"""What an application knows of a caller: its rights, a refusal, or its did; None to decide by token and `HubLimits`."""


def known_from(answer: Collection[str] | None) -> Rights | Refusal | str:
    """Check what an application's `who` returned: rights, a did, or None to refuse.

    Raises:
        LocalProtocolError: It returned something else.
    """
    if answer is None:
        return Refusal(401, "this application does not let you in")
    if isinstance(answer, str) and answer.startswith("did:"):
        return answer
    if isinstance(answer, str | Mapping) or not isinstance(answer, Collection):
        raise LocalProtocolError(f"{answer!r} is neither a did nor a collection of rights", hint=f"rights are {', '.join(sorted(KNOWN))}")
    rights = Rights(answer)
    if unknown := rights - KNOWN:
        raise LocalProtocolError(f"there is no right {min(unknown, key=repr)!r}; there are {', '.join(sorted(KNOWN))}")
    return rights


@dataclass(frozen=True, slots=True)
class _Visit:
    """One request or WebSocket, as the ASGI server hands it over.

    Attributes:
        request: Its head.
        root: Where the application is mounted, with a proxy's prefix.
        path: The path below the mount point.
    """

    scope: Scope
    receive: Receive
    send: Send
    request: HttpRequest
    root: str
    path: str

    async def accept(self) -> None:
        """Accept a WebSocket, with the one of the subprotocols offered that is agreed on."""
        await self.send({"type": "websocket.accept", "subprotocol": self.request.subprotocol})

    async def refuse(self, refusal: Refusal) -> None:
        """Refuse it with a status and a reason."""
        answer = refusal_answer(refusal)
        if not self.request.is_upgrade:
            await answer(self.scope, self.receive, self.send)
        elif self.request.first(b"origin") is not None:
            # Browsers hide errors of HTTP from pages.
            await self.accept()
            await self.send({"type": "websocket.close", "code": WS_CLOSE_CODE + refusal.status, "reason": refusal.reason})
        elif "websocket.http.response" in self.scope.get("extensions", {}):
            await answer(self.scope, self.receive, self.send)
        else:
            await self.send({"type": "websocket.close", "code": WS_CLOSE_CODE + refusal.status, "reason": refusal.reason})


class Mounted:
    """An ASGI application in trio that serves open logs.

    Args:
        tasks: The nursery of the log or shelf with which it ends.
        logs: Open logs of different topics.
        limits: `half_open_max`, `handshake_s` and `head_bytes_max` have no effect: those are the ASGI server's business.
        shelf: Further logs, which open as clients ask for them.
    """

    def __init__(
        self, tasks: trio.Nursery, logs: Sequence[Replica], limits: HubLimits, glass: GlassSettings, shelf: OpenLogs | None = None
    ) -> None:
        self._tasks = tasks
        self._shelf = shelf or OpenLogs()
        self._logs = logs
        self._limits = limits
        self._glass = glass
        self._memory = Memory()
        self._opening = trio.Lock()
        self._hub: Hub | None = None
        self._app: ASGIApp
        # Requests under way, each in a task of the server.
        self._scopes: set[trio.CancelScope] = set()
        self._ended = trio.lowlevel.ParkingLot()

    async def serve(self, scope: Scope, receive: Receive, send: Send, known: Known) -> None:
        """Serve one request or WebSocket until it is over.

        Args:
            receive: The connection's `receive`, from which `websocket.connect` was already received.
        """
        visit = _visit(scope, receive, send)
        remote, port = scope.get("client") or (LOOPBACK, 0)
        client = client_address(remote, visit.request.forwarded, self._limits.proxies)
        try:
            hub = await self._opened()
            with hub.admission.connection(client) as place, self._until_closed():
                refusal = hub.names.refusal(visit.request, "", remote)
                if refusal is not None:
                    origin = visit.request.first(b"origin")
                    note("request refused", address=client, host=visit.request.host, origin=origin, reason=refusal[1])
                    await visit.refuse(Refusal(*refusal))
                elif visit.request.is_upgrade:
                    await self._serve_websocket(hub, visit, known, client, port, place)
                else:
                    await self._serve_http(visit, known, client)
        except NotLetIn as error:
            await visit.refuse(Refusal(error.status, str(error)))
        except Refused as error:
            level = logging.DEBUG if error.is_repeated else logging.INFO
            note("connection refused", level=level, address=client, reason=str(error))
            await visit.refuse(Refusal(error.status, str(error)))

    async def _serve_websocket(self, hub: Hub, visit: _Visit, known: Known, client: str, port: int, place: Place) -> None:
        topic = hub.topic_at(visit.path)
        caller = Caller(self._limits.access, visit.request.token, known)
        async with AsyncExitStack() as stack:
            service, rights = await stack.enter_async_context(hub.entered(topic, caller, client))
            await visit.accept()
            websocket = AsgiWebSocket(visit.receive, visit.send)
            serving = ClientConnection(hub, caller, client, port, _local(visit.scope), place)
            await serving.serve(websocket, service, rights, stack.pop_all())

    async def _serve_http(self, visit: _Visit, known: Known, client: str) -> None:
        caller = Caller(self._limits.access, visit.request.token, known)
        query = visit.request.target.partition("?")[2].encode("latin-1")
        inner = {name: visit.scope[name] for name in _KEPT if name in visit.scope} | {
            "path": visit.root + visit.path,
            "root_path": visit.root,
            "query_string": query,
            "client": (client, 0),
            "server": _local(visit.scope),
            "state": {"caller": caller, "memory": self._memory},
            "extensions": {},
        }
        has_begun = False

        async def send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await self._send(visit.send, message)

        try:
            await self._app(inner, visit.receive, send)
        except ClosedError as error:
            note("request not answered", level=logging.WARNING, path=visit.path, reason=str(error))
            if not has_begun:
                await visit.refuse(AWAY)

    async def _send(self, send: Send, message: Message) -> None:
        """Send a part of an answer in pieces. The client has 20 s for each; meanwhile the part counts towards the clients' memory.

        Raises:
            ClosedError: The client does not read, or others needed the memory.
        """
        if message["type"] == "http.response.start":
            await send({**message, "headers": [*message.get("headers", ()), (b"x-content-type-options", b"nosniff")]})
            return
        body, is_more = message.get("body") or b"", message.get("more_body", False)
        if len(body) <= OWN_BYTES:
            await in_time(send, {"type": "http.response.body", "body": body, "more_body": is_more})
            return
        with self._memory.answers.hold(body):
            for at in range(0, len(body), PIECE_BYTES):
                piece = body[at : at + PIECE_BYTES]
                is_last = at + PIECE_BYTES >= len(body)
                await in_time(send, {"type": "http.response.body", "body": piece, "more_body": is_more or not is_last})

    async def _opened(self) -> Hub:
        """Return the hub, which the first request opens.

        Raises:
            Refused: The log is closed.
        """
        async with self._opening:
            if self._tasks.cancel_scope.cancel_called:
                raise Refused(_CLOSED.reason)
            if self._hub is None:
                await self._tasks.start(self._hold)
            assert self._hub is not None
            return self._hub

    async def _hold(self, task_status: trio.TaskStatus[None]) -> None:
        names = Names(self._limits, None, is_mounted=True)
        async with AsyncExitStack() as stack:
            if self._glass.has_page:
                await stack.enter_async_context(self._shelf.accompanied(_watched))
            hub, nursery = await stack.enter_async_context(open_hub(self._logs, self._limits, names, shelf=self._shelf))
            self._hub, self._app = hub, make_app(hub, self._glass)
            nursery.start_soon(self._end_visits)
            task_status.started()
            await trio.sleep_forever()

    @contextmanager
    def _until_closed(self) -> Iterator[None]:
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)
                self._ended.unpark_all()

    async def _end_visits(self) -> None:
        """Cancel requests under way when the hub ends, after its clients got what waited for them."""
        try:
            await trio.sleep_forever()
        finally:
            for scope in self._scopes:
                scope.cancel()
            with trio.CancelScope(shield=True):
                while self._scopes:
                    await self._ended.park()


@asynccontextmanager
async def _watched(log: Replica) -> AsyncIterator[None]:
    with observed(log):
        yield


async def refuse_as_closed(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer that the log is closed. Runs in any event loop."""
    await _visit(scope, receive, send).refuse(_CLOSED)


_CLOSED = Refusal(503, "the log is closed")
_KEPT = ("type", "asgi", "http_version", "method", "scheme", "raw_path", "headers")
"""Keys that are copied from a scope. The rest belongs to the application around."""


def _local(scope: Scope) -> tuple[str, int]:
    """Return the address and port that a connection came to; empty for a Unix socket, which no proof can name."""
    host, port = scope.get("server") or ("", 0)
    return host, port or 0


def _split(scope: Scope) -> tuple[str, str]:
    """Return where this application is mounted, including a proxy's prefix, and the path below that.

    By the specification `path` begins with `root_path`. Under hypercorn and below `FastAPI(root_path=…)` it lacks the proxy's prefix, which
    Starlette's mounts repeat in `app_root_path`. Channels of Django gives what is left of the path.
    """
    root, path = scope.get("root_path", "").rstrip("/"), scope["path"]
    prefixes = (root, root.removeprefix(scope.get("app_root_path", "").rstrip("/")))
    found = [path, *(path[len(prefix) :] for prefix in prefixes if f"{path}/".startswith(f"{prefix}/"))]
    if "path_remaining" in scope:
        found.append(f"/{scope['path_remaining']}")
    # The innermost of several mounts counts.
    below = min(found, key=len) or "/"
    mounted_at = path.removesuffix(below)
    return root if root.endswith(mounted_at) else mounted_at, below


def _visit(scope: Scope, receive: Receive, send: Send) -> _Visit:
    headers = tuple((bytes(name).lower(), bytes(value)) for name, value in scope["headers"])
    root, below = _split(scope)
    target, token = take_token(f"{below}?{scope.get('query_string', b'').decode('latin-1')}".removesuffix("?"))
    host = next((value.decode("latin-1") for name, value in headers if name in (b"host", b":authority")), None)
    found = find_token(headers)
    is_upgrade = scope["type"] == "websocket"
    request = HttpRequest(target, host, headers, is_upgrade=is_upgrade, token=token if found is None else found)
    return _Visit(scope, receive, send, request, root, below)
