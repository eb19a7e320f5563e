"""A command whose options may also stand in a TOML file or in the environment, by names that come from its definition.

click can read both (`envvar`, `default_map`), but its versions since 8.1 differ on switches that share a name, such as --json and --table.
So the environment is read here, with the file, and both go into `default_map`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

from .exits import ExitCode, Failure, misused
from .options import FILE

PREFIX = "GOSSIPLOG_"
_OF_ENVIRONMENT = f"{__name__}.environment"


class ConfiguredCommand(click.Command):
    """A command with `config_option`. The command line takes precedence over the environment, and that over the file."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for param in self.params:
            if isinstance(param, click.Argument):
                # Its text is split at white space.
                param.envvar = PREFIX + str(param.name).upper()


def configurable(command: click.Command) -> dict[str, click.Parameter]:
    """Return everything that a file may set of a command: options by their long names, arguments by their names."""
    named: dict[str, click.Parameter] = {}
    for param in command.params:
        if isinstance(param, click.Argument):
            named[str(param.name)] = param
        elif param.expose_value and param.name not in ("config", "check"):
            named[max(param.opts, key=len).removeprefix("--")] = param
    return named


def read_config(command: click.Command, file: str | None) -> dict[str, Any]:
    """Read a file of options; return its values by the names of `configurable`.

    Raises:
        Failure: It cannot be read, or has an unknown key or a value of another type.
    """
    if file is None:
        return {}
    from ..net.ground.toml_file import read_toml

    with misused(f"--config {file}"):
        table = read_toml(file)
    known = configurable(command)
    for name, value in table.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
            raise Failure(f"--config {file}: there is no option {name}", hint=hint, code=ExitCode.USAGE)
        if wanted := _wanted(known[name], value):
            raise Failure(f"--config {file}: {name} is {wanted}, not {value!r}", code=ExitCode.USAGE)
    return table


def config_option(command: Any) -> Any:
    """Add `--config`; the command gets its path as `config`, and the file's values as if they were options."""
    return click.option(
        "--config",
        type=FILE,
        is_eager=True,
        envvar=f"{PREFIX}CONFIG",
        callback=_configure,
        help="TOML with any of these options, by their long names.",
    )(command)


def source_of(context: click.Context, name: str) -> str:
    """Say where a parameter's value comes from: `option`, `environment`, `file` or `default`."""
    match context.get_parameter_source(name):
        case ParameterSource.COMMANDLINE:
            return "option"
        case ParameterSource.ENVIRONMENT:
            return "environment"
        case ParameterSource.DEFAULT_MAP:
            return "environment" if name in context.meta[_OF_ENVIRONMENT] else "file"
        case _:
            return "default"


def _configure(context: click.Context, _: click.Parameter, file: str | None) -> str | None:
    known = configurable(context.command)
    said = _from_environment(known)
    context.meta[_OF_ENVIRONMENT] = {known[name].name for name in said}
    values = {**read_config(context.command, file), **said}
    context.default_map = {str(known[name].name): value for name, value in values.items() if not _is_off(known[name], value)}
    # A switch whose value is False, such as --table beside --json, sets that value if it is on.
    for name, value in values.items():
        param = known[name]
        if isinstance(param, click.Option) and param.is_flag and param.flag_value is False and value is True:
            context.default_map[str(param.name)] = False
    return file


def _is_off(param: click.Parameter, value: Any) -> bool:
    return isinstance(param, click.Option) and bool(param.is_flag) and value is False


def _from_environment(known: Mapping[str, click.Parameter]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, param in known.items():
        text = os.environ.get(PREFIX + name.upper().replace("-", "_"))
        if not text or isinstance(param, click.Argument):
            continue
        if isinstance(param, click.Option) and param.is_flag:
            if text.lower() not in ("1", "true", "yes", "0", "false", "no"):
                raise click.UsageError(f"{PREFIX}{name.upper().replace('-', '_')} is 1 or 0, not {text!r}")
            values[name] = text.lower() in ("1", "true", "yes")
        else:
            values[name] = text.split() if param.multiple else text
    return values


def _wanted(param: click.Parameter, value: Any) -> str | None:
    """Describe the type that a parameter's value must have; None if the value has it."""
    if isinstance(param, click.Option) and param.is_flag:
        return None if isinstance(value, bool) else "true or false"
    if param.multiple or param.nargs == -1:
        is_list = isinstance(value, list) and all(isinstance(one, str) for one in value)
        return None if is_list else "a list of strings"
    if isinstance(param.type, click.IntRange):
        return None if type(value) is int else "a whole number"
    if isinstance(param.type, click.FloatRange):
        return None if type(value) in (int, float) else "a number"
    return None if isinstance(value, str) else "a string"
