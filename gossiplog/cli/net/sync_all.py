"""`sync --all`: sync each log of a shelf with its counterpart in another shelf, on a server, or in a bucket of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import trio

from ...entry import is_topic
from ...errors import CannotConnect, DecodeError, GossipLogError
from ..asking import ask_in_trio, read_json, said
from ..exits import ExitCode, Failure, worst
from ..output import Column, Listing, Output, clean, counted
from ..progress import Progress
from ..rows import RowOutput

if TYPE_CHECKING:
    from ...net.hub.client import HubUrl

_AT_A_TIME = 4
"""A server accepts only a few connections from one address."""
_ANSWER_S = 30.0


async def sync_all(topics: Iterable[str], sync_one: Callable[[str, Output], Awaitable[int]], *, out: Output) -> int:
    """Sync logs, a few at a time; if one fails, the others go on. Returns the worst exit code."""
    left = iter(sorted(topics))
    codes, moved = list[int](), [0, 0]

    def cells(record: Mapping[str, Any]) -> list[str]:
        if "error" in record:
            return ["", "", clean(record["error"]["message"])]
        counts = record.get("pulled", record.get("added")), record.get("pushed", record.get("published"))
        for index, count in enumerate(counts):
            moved[index] += count or 0
        state = {True: "equal", False: "differs", None: ""}[record.get("equal")]
        return [*("" if count is None else f"{count:,}" for count in counts), state]

    async def work() -> None:
        for topic in left:
            row = RowOutput(out, rows, topic, cells)
            try:
                codes.append(await sync_one(topic, row))
            except (GossipLogError, OSError, BaseExceptionGroup) as error:
                codes.append(row.fail(error))
            progress.step()

    columns = [Column("topic"), Column("pulled", is_right=True), Column("pushed", is_right=True), Column("state")]
    with Progress("logs", is_shown=not out.is_strict) as progress, Listing(out, columns, empty="no log is on both sides") as rows:
        async with trio.open_nursery() as nursery:
            for _ in range(_AT_A_TIME):
                nursery.start_soon(work)
    out.note(f"{counted(len(codes), 'log', 'logs')}: {moved[0]:,} pulled, {moved[1]:,} pushed")
    return worst(codes)


async def topics_of_hub(hub: HubUrl) -> set[str]:
    """Ask a server for the topics of all logs that we may pull.

    Raises:
        CannotConnect: It cannot be reached, or does not list them.
        RemoteProtocolError: It does not speak HTTP.
    """
    found, page = set[str](), [""]
    place = hub.target.partition("?")[0].rstrip("/")
    while page:
        answer = await ask_in_trio(hub, f"{place}/?after={quote(page[-1], safe='')}", answer_s=_ANSWER_S)
        try:
            told: Any = read_json(answer) if answer.status == 200 else {}
            page = [each for each in told["topics"] if is_topic(each) and each not in found]
        except (DecodeError, KeyError, TypeError):
            raise CannotConnect(f"{hub.url} does not list its logs: {answer.status} {said(answer)}") from None
        found.update(page)
        page = page if told.get("shelf") else []
    return found


async def topics_in_bucket(place: str) -> set[str]:
    """List the topics of the buckets at a place that ends in `{topic}`.

    Raises:
        Failure: The place does not end in `{topic}`.
        BucketError: The storage failed, or cannot list.
    """
    from ...bucket import open_storage

    before, _, after = place.partition("{topic}")
    if after.strip("/") or not before.endswith("/"):
        raise Failure(f"{place}: expected {{topic}} at the end, after a slash", code=ExitCode.USAGE)
    folders, _ = await open_storage(before).list("")
    return {topic for topic in map(unquote, folders) if is_topic(topic) and quote(topic, safe="") in folders}
