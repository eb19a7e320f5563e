"""GET facts: everything that happens to a log, as server-sent events. A follower is only a place in the ring, and costs no more than its
connection.

`hello` comes first. Then come `facts`, each a JSON array of the facts within 50 ms, with an id from which a returning follower resumes; and
`gap` if facts that it wanted are lost.

Source: docs/glass.md, "Following".
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ...glass.fact import FACTS_MAX
from ...net.reports.observer import Board, Observer
from ...net.service.service import Service
from ...version import VERSION
from ..http.requests import check_parameters, read_number
from ..http.streamed import Streamed, Write

GATHER_S = 0.05
HEARTBEAT_S = 15.0
PAST = 5_000
"""The number of past facts for a follower that does not say how many it wants."""
RETRY_MS = 1_000
_ID = re.compile(r"([0-9a-f]{12})-([0-9]{1,15})")


async def follow_facts(service: Service, request: Request) -> Response:
    """GET facts, of one log."""
    board = observer_of(service).board
    return stream(request, board, hello_of(service, board))


def hello_of(service: Service, board: Board) -> dict[str, Any]:
    """Return the first event of a follower."""
    return {
        "node": service.me,
        "topic": service.topic,
        "router": service.state().router.router,
        "version": VERSION,
        "boot": board.boot,
        "now": time.time(),
    }


def stream(request: Request, board: Board, hello: Mapping[str, Any]) -> Response:
    """Answer with a stream of a board's facts, from where the client was.

    Raises:
        HTTPException: 400, a parameter cannot be read.
    """
    check_parameters(request, "past")
    past = read_number(request, "past", PAST, most=FACTS_MAX)
    produce = partial(_write, board, hello, past, request.headers.get("last-event-id"))
    return Streamed(produce, media_type="text/event-stream", is_endless=True)


async def _write(board: Board, hello: Mapping[str, Any], past: int, last_id: str | None, write: Write) -> None:
    seq, is_lost = max(board.first, board.next - past), False
    if last_id is not None:
        known = _ID.fullmatch(last_id)
        if known is not None and known[1] == board.boot and int(known[2]) < board.next:
            seq = int(known[2]) + 1
        else:
            # The id is of another run of this process; what happened in between is unknown.
            is_lost = True
    beginning = b"retry: %d\nevent: hello\ndata: %s\n\n" % (RETRY_MS, json.dumps(hello, separators=(",", ":")).encode())
    await write(beginning + (_gap(None) if is_lost else b""))
    while True:
        with trio.move_on_after(HEARTBEAT_S) as waiting:
            await board.wait(seq)
        if waiting.cancelled_caught:
            await write(b":\n\n")
            continue
        await trio.sleep(GATHER_S)
        lines, following, lost = board.since(seq)
        gap = _gap(lost) if lost else b""
        await write(gap + b"id: %s-%d\nevent: facts\ndata: [%s]\n\n" % (board.boot.encode(), following - 1, b",".join(lines)))
        seq = following


def observer_of(service: Service) -> Observer:
    """Return the source of a log's facts.

    Raises:
        HTTPException: 404, no facts are kept.
    """
    if service.observer is None:
        raise HTTPException(404, "no facts are kept here: `gossiplog serve` keeps them with --dashboard or --facts FILE")
    return service.observer


def _gap(lost: int | None) -> bytes:
    return b"event: gap\ndata: %s\n\n" % (b"{}" if lost is None else b'{"lost":%d}' % lost)
