"""`serve --check`: what would run, with which options from where, and whether it can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...errors import ReadOnlyLog
from ..configured import configurable, source_of
from ..exits import ExitCode, Failure
from ..location import Location
from ..output import Output, counted
from ..session import opened
from .serve_mesh import MeshOptions

if TYPE_CHECKING:
    from .serving import Plan

__all__ = ["check_plan"]


async def check_plan(context: click.Context, plan: Plan, mesh: MeshOptions, out: Output) -> int:
    """Open each log read-only, read what else there is to read, and report it all. Certificates and rules were read before.

    Raises:
        GossipLogError: What is wrong.
    """
    from ...net.hub.server import parse_address
    from ...store import check_writable

    mesh.check()
    for address in plan.listens:
        parse_address(address)
    logs = [await _look_at(location) for location in plan.logs]
    _check_topics(logs)
    for location in plan.logs:
        check_writable(location.full)
    options = [(name, _value(context, param), source_of(context, str(param.name))) for name, param in configurable(context.command).items()]
    record = {"logs": logs, "options": {name: {"value": value, "from": source} for name, value, source in options if name != "logs"}}
    shown = [("log", f"{log['log']}  {_say(log)}") for log in logs]
    shown += [(name, f"{value}  ({source})") for name, value, source in options if name != "logs" and source != "default"]
    out.fields(record, shown)
    return ExitCode.DONE


async def _look_at(location: Location) -> dict[str, Any]:
    import trio

    from ...store import pending_migrations

    refusal: ReadOnlyLog | None = None
    found: dict[str, Any] = {"log": str(location), "topic": None, "entries": None}
    try:
        async with opened(location) as log:
            found |= {"topic": log.topic, "entries": await log.count()}
    except ReadOnlyLog as error:
        # An older version's in a database cannot be read before a server brings it up to date.
        refusal = error
    _, pending = await trio.to_thread.run_sync(pending_migrations, location.full)
    if refusal is not None and not pending:
        raise refusal
    return {**found, "pending": pending} if pending else found


def _check_topics(logs: list[dict[str, Any]]) -> None:
    places: dict[str, str] = {}
    for log in logs:
        if (topic := log["topic"]) in places:
            raise Failure(f"{places[topic]} and {log['log']} have one topic, {topic}", hint="serve each topic once")
        if topic is not None:
            places[topic] = log["log"]


def _say(log: dict[str, Any]) -> str:
    if pending := log.get("pending"):
        return f"of an older version; serving brings it up to date, for good: {', '.join(pending)}"
    return f"{log['topic']}  {counted(log['entries'], 'entry', 'entries')}"


def _value(context: click.Context, param: click.Parameter) -> Any:
    value = context.params.get(str(param.name))
    if isinstance(param, click.Option) and param.is_flag and param.flag_value is not True:
        return value == param.flag_value
    return list(value) if isinstance(value, tuple) else value
