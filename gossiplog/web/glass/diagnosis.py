"""GET why, GET doctor: why an entry is not here, and what is wrong with the server. Both judge what this server knows, and ask no other.

Source: docs/glass.md, "Why" and "Doctor".
"""

from __future__ import annotations

import time
from dataclasses import replace

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...entry.message_id import decode_id, encode_id
from ...entry.rules import Rule
from ...errors import GossipLogError
from ...glass.doctor import NetworkFigures, Vitals, examine
from ...glass.fact import Fact
from ...glass.why import Holding, explain
from ...log.requests import ReadLeaves, ReadQuarantined, ReadSetAside
from ...net.service.push_stream import QUEUE_BYTES_MAX
from ...net.service.service import Service
from ...plan import Plan, ask
from ...pubsub.types import Topic
from ...replica.vitals import read_disk, read_files, read_log, read_misplaced
from ...tree.node import key_before
from ...version import VERSION
from ..http.requests import read_id
from .peers import scene_of

_SET_ASIDE_MAX = 16
"""Applications of one entry."""
RECENT_S = 30.0
"""For how long a commit that failed says something, as nobody may have written since."""


class DiagnosisApi:
    """Serves one log."""

    def __init__(self, service: Service) -> None:
        self._service = service
        # The doctor reads a part of the log, so simultaneous requests wait for each other.
        self._examining = trio.Lock()

    async def why(self, request: Request) -> Response:
        """GET why?entry=ID[&peer=ID]."""
        id, peer = read_id(request, "entry"), request.query_params.get("peer")
        service = self._service
        holding = await self._look(id)
        scene = scene_of(service, trouble_of(service))
        observer = service.observer
        facts = [] if observer is None else [fact for fact in observer.board.facts() if _is_about(fact, id)]
        answer = explain(id, holding, facts, scene, peer).record()
        if observer is None:
            answer["details"]["facts"] = "none are kept here: `gossiplog serve` keeps them with --dashboard or --facts FILE"
        return JSONResponse(answer)

    async def _look(self, id: str) -> Holding:
        service, key = self._service, decode_id(id)
        holding = await service.log.run(_find(key))
        if holding.is_stored and service.log.has_members:
            holding = replace(holding, void=(await service.log.standing(id)).reason)
        missing = [] if holding.is_stored else [encode_id(parent) for parent in service.machine.spreading.orphans.absent_of(key)]
        return replace(holding, missing=missing, is_rejected=key in service.machine.spreading.rejected)

    async def doctor(self, request: Request) -> Response:
        """GET doctor."""
        service = self._service
        async with self._examining:
            network = read_network(service)
            log = None
            if service.health.trouble is None:
                try:
                    log = await read_log(service.log)
                except GossipLogError as error:
                    raise HTTPException(503, str(error)) from None
            disk = await trio.to_thread.run_sync(read_disk, service.log.location)
            network = replace(network, misplaced=await trio.to_thread.run_sync(read_misplaced, service.log.location))
        findings = examine(Vitals(version=VERSION, disk=disk, files=read_files(), log=log, network=network))
        return JSONResponse({"topic": service.topic, "version": VERSION, "findings": [finding.record() for finding in findings]})


def _is_about(fact: Fact, id: str) -> bool:
    return fact.message == id and fact.kind != "root"


def _find(key: bytes) -> Plan[Holding]:
    leaves = yield from ask(ReadLeaves([key]))
    aside = yield from ask(ReadQuarantined([key]))
    # Just before the key, so that the page begins with it.
    before = key_before(key)
    page = yield from ask(ReadSetAside(None if before is None else (before, "\U0010ffff"), _SET_ASIDE_MAX))
    found = [record for record in page if record.key == key]
    held = aside.get(key)
    if held is not None and held.rule == Rule.ACCESS:
        return Holding(void=held.reason)
    return Holding(key in leaves, found, None if held is None else (held.rule, held.reason))


def read_network(service: Service) -> NetworkFigures:
    """Show a service as its doctor wants to see it."""
    state, scene = service.state(), scene_of(service)
    return NetworkFigures(
        service.topic,
        tuple(scene.links.values()),
        tuple(service.hubs),
        is_in_mesh=service.host.dialler is not None,
        degree=sum(len(one.full_message) for one in state.router.topics if one.topic == service.topic),
        is_spread=service.host.shared.router.is_ready(Topic(service.topic)),
        queue_bytes_max=QUEUE_BYTES_MAX,
        dials=scene.dials,
        banned=scene.banned,
        quiet_s=time.time() - service.figures.changed_at,
        store_trouble=trouble_of(service),
        is_disk_full=service.health.full() is not None,
        waiting=service.waiting,
    )


def trouble_of(service: Service) -> str | None:
    """Say why nothing can be stored at the moment; None while it can, as far as we know."""
    failure = service.log.writer.failure
    failed = str(failure[1]) if failure is not None and time.monotonic() - failure[0] < RECENT_S else None
    return service.health.full() or failed or service.health.trouble
