"""`serve --check`: what would run, with which options from where, and whether it can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..configured import configurable
from ..exits import ExitCode
from ..output import Output, counted
from ..session import opened
from .serve_mesh import MeshOptions

if TYPE_CHECKING:
    from .serving import Plan

__all__ = ["check_plan"]

_SOURCES = {"COMMANDLINE": "option", "ENVIRONMENT": "environment", "DEFAULT_MAP": "file or environment", "DEFAULT": "default"}


async def check_plan(context: click.Context, plan: Plan, mesh: MeshOptions, out: Output) -> int:
    """Open each log read-only, read what else there is to read, and report it all. Certificates and rules were read before.

    Raises:
        GossipLogError: What is wrong.
    """
    from ...net.hub.server import parse_address

    mesh.check()
    for address in plan.listens:
        parse_address(address)
    logs: list[dict[str, Any]] = []
    for location in plan.logs:
        async with opened(location) as log:
            logs.append({"log": str(location), "topic": log.topic, "entries": await log.count()})
    options = [(name, _value(context, param), _source(context, param)) for name, param in configurable(context.command).items()]
    record = {"logs": logs, "options": {name: {"value": value, "from": source} for name, value, source in options if name != "logs"}}
    shown = [("log", f"{log['log']}  {log['topic']}  {counted(log['entries'], 'entry', 'entries')}") for log in logs]
    shown += [(name, f"{value}  ({source})") for name, value, source in options if name != "logs" and source != "default"]
    out.fields(record, shown)
    return ExitCode.DONE


def _value(context: click.Context, param: click.Parameter) -> Any:
    value = context.params.get(str(param.name))
    if isinstance(param, click.Option) and param.is_flag and param.flag_value is not True:
        return value == param.flag_value
    return list(value) if isinstance(value, tuple) else value


def _source(context: click.Context, param: click.Parameter) -> str:
    source = context.get_parameter_source(str(param.name))
    return _SOURCES.get("DEFAULT" if source is None else source.name, "default")
