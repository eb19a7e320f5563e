"""The root command: it imports a command's module when the command is called, and turns every outcome into an exit code."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import click

from ..version import VERSION
from .exits import ExitCode, Failure, Problem, describe, misused
from .output import clean, escaped, has_colour, say, shown

COMMANDS = {
    "init": "log.lifecycle:init",
    "key": "keys:key",
    "append": "log.append:append",
    "log": "log.reading:log",
    "show": "log.reading:show",
    "explain": "log.history:explain",
    "access": "log.access:access",
    "heads": "log.history:heads",
    "ancestors": "log.history:ancestors",
    "graph": "log.graph:graph",
    "stat": "log.lifecycle:stat",
    "verify": "log.verify:verify",
    "fsck": "log.fsck:fsck",
    "salvage": "log.salvage:salvage",
    "replay": "log.fsck:replay",
    "export": "log.transfer:export",
    "import": "log.transfer:import_",
    "sync": "net.sync:sync",
    "copy": "log.transfer:copy",
    "publish": "net.bucket:publish",
    "clone": "net.bucket:clone",
    "checkpoint": "net.bucket:checkpoint",
    "prove": "net.bucket:prove",
    "check": "net.bucket:check",
    "witness": "net.witness:witness",
    "serve": "net.serve:serve",
    "peers": "net.peers:peers",
    "why": "net.why:why",
    "doctor": "net.doctor:doctor",
    "token": "net.token:token",
    "quarantine": "log.quarantine:quarantine",
    "migrate": "log.lifecycle:migrate",
    "testnet": "net.testnet:testnet",
    "sim": "sim:sim",
    "spark": "spark.group:spark",
    "demo": "log.demo:demo",
    "bench": "bench:bench",
}
"""Every command with its module in this folder, in the order in which `--help` lists them."""

_HELP = """\
A causal log that needs no server and no clock: entries are signed, name their parents, and sort in causal order
by their ids. Any two replicas merge by comparing hashes, and end equal.

LOG is the path of a SQLite file, or a URL like postgresql://host/database?log=NAME. Ids may be shortened to their
first characters if no other id begins with them.

\b
Examples
  gossiplog key new laptop
  gossiplog init app.db --topic app.example.com
  gossiplog append app.db '{"op":"set","key":"a","value":1}'
  gossiplog log app.db
  gossiplog sync app.db /mnt/stick/app.db
  gossiplog serve app.db

Data goes to stdout, everything else to stderr. Data is a table on a terminal and JSON lines in a pipe, unless --json or
--table says otherwise.

\b
Exit codes
  0  done                        5    incomplete: run it again to resume
  1  failed                      6    unauthorised
  2  wrong usage                 7    something to fix, or a missing entry
  3  damaged or invalid data     130  interrupted by Ctrl-C; the log is whole
  4  network or protocol error   141  the reader of a pipe closed it early

\b
Completion
  bash   eval "$(_GOSSIPLOG_COMPLETE=bash_source gossiplog)"
  zsh    eval "$(_GOSSIPLOG_COMPLETE=zsh_source gossiplog)"
  fish   _GOSSIPLOG_COMPLETE=fish_source gossiplog | source
"""


class RootGroup(click.Group):
    """A group that imports a command's module when the command is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of this name."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        command = getattr(importlib.import_module(f".{module}", __package__), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that `args` begin with; the error for an unknown word suggests the command that is spelled like it."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if near and "Did you mean" not in error.message:
                raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; click would end with exit code 1 when a pipe is closed, and print a message of its own at Ctrl-C."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return ExitCode.CLOSED_PIPE
        except KeyboardInterrupt as error:
            raise BaseExceptionGroup("interrupted", [error]) from None

    def main(  # type: ignore[override]  # click's overloads also promise to return
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run and leave with an exit code; every exception is reported, and none leaves but `SystemExit`."""
        extra["standalone_mode"] = False
        arguments = list(sys.argv[1:] if args is None else args)
        with _quiet_end():
            try:
                result = super().main(args=arguments, prog_name=prog_name, **extra)
                sys.stdout.flush()
            except BaseException as error:
                result = _report(error, is_json="--json" in arguments)
        sys.exit(int(result) if isinstance(result, int) else ExitCode.DONE)


@click.group(
    cls=RootGroup,
    help=_HELP,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120, "show_default": True},
)
@click.version_option(VERSION, message="%(prog)s %(version)s")
def root() -> None:
    """The root command; its help is `_HELP`."""
    _accept_schemes(os.environ.get("GOSSIPLOG_SCHEMES", ""))


def _accept_schemes(names: str) -> None:
    """Let this process accept entries of further signature schemes: `eip712`, `canvas-snapshot`."""
    wanted = frozenset(names.replace(",", " ").split())
    if not wanted:
        return
    from ..entry.schemes import DEFAULT_SCHEMES, accept_schemes

    with misused("GOSSIPLOG_SCHEMES"):
        accept_schemes(DEFAULT_SCHEMES | wanted)
    if "eip712" in wanted:
        try:
            from ..ethereum import register
        except ModuleNotFoundError as error:
            hint = "install it with `pip install 'gossiplog[ethereum]'`"
            raise Failure(f"the signature scheme eip712 needs {error.name}, which is not installed", hint=hint, kind="dependency") from None
        register()


def _report(error: BaseException, *, is_json: bool) -> int:
    """Write to stderr why a command ended, and return the exit code."""
    if isinstance(error, BaseExceptionGroup):
        from ..tasks.nursery import first_error

        error = first_error(error)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else ExitCode.FAILED
    if isinstance(error, BrokenPipeError):
        return ExitCode.CLOSED_PIPE
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        if sys.stderr.isatty():
            # The terminal's ^C is on this line.
            click.echo(err=True)
        _complain(Problem("interrupted", "interrupted; everything acknowledged is kept", None, ExitCode.INTERRUPTED), is_json=is_json)
        return ExitCode.INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return ExitCode.USAGE
    problem = describe(error)
    if problem is None or os.environ.get("GOSSIPLOG_DEBUG"):
        import traceback

        if os.environ.get("GOSSIPLOG_DEBUG"):
            shown = traceback.TracebackException.from_exception(error)
            # One of the notes is the hint, which is printed on a line of its own below.
            shown.__notes__ = None
            print("".join(shown.format()), end="", file=sys.stderr)
        where = traceback.extract_tb(error.__traceback__)[-1:]
        place = f" at {where[0].name}:{where[0].lineno}" if where else ""
        hint = "this is a fault of gossiplog; GOSSIPLOG_DEBUG=1 shows where it comes from"
        problem = problem or Problem("internal", f"{type(error).__name__}: {error}{place}", hint, ExitCode.FAILED)
    _complain(problem, is_json=is_json)
    return problem.code


def _complain(problem: Problem, *, is_json: bool) -> None:
    if is_json:
        error = {"kind": problem.kind, "message": problem.message, "hint": problem.hint}
        click.echo(escaped(json.dumps({"error": error})), err=True)
        return
    # A quoted text must not end the message's line; click's own messages have several lines where they list choices.
    safe = shown if problem.kind == "usage" else clean
    is_coloured = has_colour(sys.stderr)
    heading, advice = (click.style("error:", fg="red", bold=True), click.style("hint:", fg="cyan")) if is_coloured else ("error:", "hint:")
    say(f"{heading} {safe(problem.message)}", err=True)
    if problem.hint:
        say(f"{advice} {safe(problem.hint)}", err=True)


@contextlib.contextmanager
def _quiet_end() -> Iterator[None]:
    """Keep Python from complaining, when it exits, that nobody reads its output any more."""
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                with contextlib.suppress(OSError, ValueError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
