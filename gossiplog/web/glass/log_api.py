"""The page's questions about one log, beside its facts and its peers.

GET  overview   {"node", "topic", "version", "now", "entries", "last", "clock", "heads": […], "head_count", "root": {"level", "hash"},
                 "bytes", "quarantine", "set_aside", "peers", "can_append", "counts": {…}}
GET  aside      {"ids": [id, …], "more": …}
GET  members    {"k", "members": [{"node", "did", "role", "person", "path", "held", "removedBy"}, …], "more": …}; null without a policy
GET  standing   ?entry=ID: {"counts", "kind", "node", "role", "person", "rule", "revokedBy", "reason"}; null without a policy
POST append     {"payload": …} in dag-json: 201 and {"id"}
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from ...codec import dag_json
from ...entry.message_id import encode_id
from ...entry.rules import next_clock
from ...errors import ClosedError, DecodeError, EncodeError, GossipLogError, LocalProtocolError, NotFound, StoreError
from ...log.requests import ReadCount, ReadHeads, ReadQuarantineCount, ReadSetAside
from ...net.service.service import Service
from ...plan import Plan, ask
from ...replica.log import Replica
from ...tree.node import ReadRoot
from ...version import VERSION
from ..http.doors import MakeDoor, check_own_page
from ..http.requests import read_id, reading
from .gather import FactGatherer
from .log_graph import LogGraph
from .search import Search


def log_routes(service: Service, settings: GlassSettings, door: MakeDoor) -> list[BaseRoute]:
    """Return the routes below a log's API that only a server with a page has."""
    if not settings.has_page:
        return []
    return [
        door("/overview", Overview(service, can_append=settings.may_append).show, GET="watch"),
        door("/graph", LogGraph(service.log).show, ("after", "until", "limit", "text"), GET="pull"),
        door("/aside", partial(show_aside, service.log), GET="pull"),
        door("/members", partial(show_members, service.log), GET="pull"),
        door("/standing", partial(show_standing, service.log), ("entry",), GET="pull"),
        door("/search", Search(service.log).show, ("text", "author", "id", "path", "value", "before", "limit"), GET="pull"),
        door("/append", partial(append, service.log, settings.may_append), None, POST="post"),
    ]


@dataclass(frozen=True, slots=True)
class GlassSettings:
    """What a server shows.

    Attributes:
        gather: Follows other servers, to show their facts as well; None for none.
    """

    has_page: bool = False
    may_append: bool = False
    gather: FactGatherer | None = None


NO_GLASS = GlassSettings()
"""Only what can be asked for anyway."""


_KEPT_S = 0.5
_HEADS_SHOWN = 32
_COUNTED_MAX = 1_000
"""The most entries set aside that are named; beyond it the page says "1,000 or more"."""


class Overview:
    """Serves the figures of the page's first view of one log, read at most twice a second however many watch."""

    def __init__(self, service: Service, *, can_append: bool) -> None:
        self._service = service
        self._can_append = can_append
        self._reading = trio.Lock()
        self._record: dict[str, Any] = {}
        self._read_at = -1e9

    async def show(self, request: Request) -> Response:
        """GET overview."""
        async with self._reading:
            if trio.current_time() - self._read_at >= _KEPT_S:
                self._record = await self._read()
                self._read_at = trio.current_time()
        return JSONResponse({**self._record, "now": time.time()}, headers={"Cache-Control": "no-store"})

    async def _read(self) -> dict[str, Any]:
        service = self._service
        return {
            "node": service.me,
            "topic": service.topic,
            "version": VERSION,
            "can_append": self._can_append,
            "peers": len(service.peers),
            "bytes": await service.log.size_bytes(),
            **await service.log.run(_read_log()),
        }


def _read_log() -> Plan[dict[str, Any]]:
    entries, last = yield from ask(ReadCount())
    heads = yield from ask(ReadHeads())
    root = yield from ask(ReadRoot())
    aside = yield from ask(ReadSetAside(None, _COUNTED_MAX))
    quarantined, _ = yield from ask(ReadQuarantineCount())
    return {
        "entries": entries,
        "last": last,
        "clock": next_clock(heads) - 1,
        "heads": [encode_id(key) for key in heads[-_HEADS_SHOWN:]],
        "head_count": len(heads),
        "root": {"level": root.level, "hash": root.hash.hex()},
        "quarantine": quarantined,
        "set_aside": len(aside),
    }


_RECORDS_MAX = 1_000


async def show_aside(log: Replica, request: Request) -> Response:
    """GET aside: the entries that applications set aside, so that the page can mark them."""
    records = await log.run(ask(ReadSetAside(None, _RECORDS_MAX + 1)))
    ids = dict.fromkeys(encode_id(record.key) for record in records[:_RECORDS_MAX])
    return JSONResponse({"ids": list(ids), "more": len(records) > _RECORDS_MAX}, headers={"Cache-Control": "no-store"})


async def show_members(log: Replica, request: Request) -> Response:
    """GET members."""
    if not log.has_members:
        return JSONResponse(None)
    try:
        members, policy = await log.members(), await log.policy()
    except LocalProtocolError:
        # The policy is not here yet.
        return JSONResponse(None)
    shown = [each.to_record() for each in members[:_RECORDS_MAX]]
    return JSONResponse({"k": policy.k, "members": shown, "more": len(members) > _RECORDS_MAX}, headers={"Cache-Control": "no-store"})


async def show_standing(log: Replica, request: Request) -> Response:
    """GET standing?entry=ID: what the members' rules say of an entry."""
    if not log.has_members:
        return JSONResponse(None)
    try:
        standing = await log.standing(read_id(request, "entry"))
    except (NotFound, LocalProtocolError) as error:
        raise HTTPException(404, str(error)) from None
    return JSONResponse(standing.to_record(), headers={"Cache-Control": "no-store"})


_BODY_BYTES_MAX = 64 * 1024


async def append(log: Replica, is_allowed: bool, request: Request) -> Response:
    """POST append: signed by the log's own key, for the person who runs the server, if it was started with `--dashboard-append`."""
    if not is_allowed:
        raise HTTPException(403, "this server takes no appends from its page: it was started without --dashboard-append")
    check_own_page(request)
    async with reading(request, _BODY_BYTES_MAX) as body:
        record = _to_record(body)
    try:
        entry = await log.append(record["payload"])
    except EncodeError as error:
        raise HTTPException(400, f"the payload has no portable form: {error}") from None
    except LocalProtocolError as error:
        raise HTTPException(403, str(error)) from None
    except (ClosedError, StoreError):
        raise HTTPException(503, "the entry could not be stored") from None
    except GossipLogError as error:
        raise HTTPException(403, f"the log refuses it: {error}") from None
    return JSONResponse({"id": entry.id}, 201, headers={"Location": f"messages/{entry.id}"})


def _to_record(body: bytes) -> dict[str, object]:
    try:
        record = dag_json.decode(body)
    except DecodeError as error:
        raise HTTPException(400, f"the body is not dag-json: {error}") from None
    if not isinstance(record, dict) or "payload" not in record:
        raise HTTPException(400, 'the body is {"payload": …}')
    return record
