"""Arguments and options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import click

from .location import LOG
from .output import Output

__all__ = ["DURABILITIES", "archive_options", "complete_key", "id_argument", "key_option", "log_argument", "output_options"]

P = ParamSpec("P")
R = TypeVar("R")
DURABILITIES = ("full", "normal", "off")

log_argument = click.argument("log", metavar="LOG", type=LOG)
id_argument = click.argument("entry_id", metavar="ID")


def output_options(*, quiet: str | None = None) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Add `--json` and `--table`, and `-q` with this help text if one is given; the command gets an `Output` named `out`."""

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(command)
        def run(*args: Any, as_json: bool | None, is_quiet: bool = False, **options: Any) -> R:
            return command(*args, out=Output.choose(as_json=as_json, is_quiet=is_quiet), **options)

        decorated = click.option(
            "--json", "as_json", flag_value=True, default=None, type=click.BOOL, help="Write JSON lines, on a terminal too."
        )(click.option("--table", "as_json", flag_value=False, type=click.BOOL, help="Write a table, into a pipe too.")(run))
        if quiet is not None:
            decorated = click.option("-q", "--quiet", "is_quiet", is_flag=True, help=quiet)(decorated)
        return decorated

    return decorate


def complete_key(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Name the keys of the keyring that begin so, for the shell."""
    from ..keyring import Keyring

    return [name for name in Keyring.from_environment().names() if name.startswith(incomplete)]


key_option = click.option(
    "--key",
    "key_name",
    metavar="NAME",
    shell_complete=complete_key,
    help="The key of the keyring to sign with; needed only when there are several.",
)


def archive_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the limit on what a file may hold: `expanded_bytes_max`."""
    from ..archive.source import EXPANDED_BYTES_MAX

    expanded = click.option(
        "--max-bytes",
        "expanded_bytes_max",
        type=click.IntRange(min=1),
        default=EXPANDED_BYTES_MAX,
        metavar="N",
        help="How large a compressed file may grow: by default 1 GiB, and 100 times its size.",
    )
    return expanded(command)
