"""Between a command and the library: one trio run for each command, and opening a log with errors that say what to do."""

from __future__ import annotations

import functools
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from .. import errors
from .exits import ExitCode, Failure
from .options import Location

if TYPE_CHECKING:
    from ..gossip_log import Application, GossipLog

P = ParamSpec("P")
T = TypeVar("T")


def is_in_bucket(location: str) -> bool:
    """Whether a place is a bucket; for a file or a database's URL this imports nothing."""
    if "://" not in location and not Path(location).is_dir():
        return False
    from ..bucket import is_published

    return is_published(location)


def run(task: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine function to its end; Ctrl-C raises KeyboardInterrupt in it, which closes the open logs.

    It is raised at the next checkpoint of the function's task. By trio's default it could be raised between any two instructions, also in
    other tasks, and between acquiring something and being ready to release it.
    """
    import trio

    return trio.run(task, restrict_keyboard_interrupt_to_checkpoints=True)


async def waited_for(function: Callable[[], T]) -> T:
    """Call, in a thread, a function that may wait for input for ever.

    At Ctrl-C the thread is abandoned, so it must hold no lock that Python takes when it exits, such as that of `sys.stdin`'s buffer.
    """
    import trio

    return await trio.to_thread.run_sync(function, abandon_on_cancel=True)


def in_trio(command: Callable[P, Awaitable[T]]) -> Callable[P, T]:
    """Make a command of a coroutine function, which `run` runs."""

    @functools.wraps(command)
    def whole(*args: P.args, **options: P.kwargs) -> T:
        return run(functools.partial(command, *args, **options))

    return whole


def with_log(command: Callable[..., Awaitable[T]]) -> Callable[..., T]:
    """Make a command of a coroutine function whose first argument is LOG, open for reading."""

    @functools.wraps(command)
    async def whole(log: Location, **options: Any) -> T:
        async with opened(log) as opened_log:
            return await command(opened_log, **options)

    return in_trio(whole)


async def wait_for_signal(*wanted: signal.Signals, tell: Callable[[], None] = lambda: None) -> None:
    """Wait for one of these signals, by default SIGINT or SIGTERM.

    Args:
        tell: Called once no signal can be missed any more.
    """
    import trio

    with trio.open_signal_receiver(*(wanted or (signal.SIGINT, signal.SIGTERM))) as signals:
        tell()
        await anext(signals)


@asynccontextmanager
async def opened(log: str, *, read_only: bool = True, **options: Any) -> AsyncIterator[GossipLog]:
    """Open a log, which must exist unless `create=True` is among the options.

    Raises:
        LogNotFound: There is no log there; the hint names `gossiplog init`.
        DamagedLog: The log is damaged, or a stored entry is malformed.
        GossipLogError: As `gossiplog.open` raises.
    """
    from ..gossip_log import open as open_log

    creates = options.setdefault("create", False)
    path = log if isinstance(log, Location) else Location.parse(log)
    if not path.is_url:
        _check_path(path, creates=creates)
    try:
        async with open_log(path.full, read_only=read_only, **options) as opened_log:
            yield opened_log
    except errors.DamagedLog as error:
        # If two logs are open, the other one may be damaged.
        if error.hint == errors.DamagedLog.hint_default and error.location in (None, str(path)):
            error.hint = damage_hint(path)
        raise
    except errors.DecodeError as error:
        # The user's input was decoded before, so this is something stored.
        raise errors.DamagedLog(f"{path}: {error}", hint=damage_hint(path)) from error


def make_empty(folder: Path) -> Path:
    """Create a folder, or check that an existing one is empty; return its absolute path.

    Raises:
        BadParameter: The folder is not empty.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise click.BadParameter(f"{folder} is not empty: name a new folder")
    return folder.resolve()


@contextmanager
def working_folder(folder: str | Path | None, prefix: str, *, keeps: bool = False) -> Iterator[Path]:
    """Provide this folder, which must be new or empty and is kept; without one, a temporary folder, which is kept only if `keeps`."""
    import tempfile

    if folder is not None:
        yield make_empty(Path(folder))
    elif keeps:
        yield Path(tempfile.mkdtemp(prefix=prefix))
    else:
        with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
            yield Path(name)


def damage_hint(path: str) -> str:
    """Return advice for a log that turned out to be damaged while a command used it."""
    return (
        f"`gossiplog fsck {path}` says what is affected; `gossiplog sync --heal {path} OTHER` makes it whole from another replica, "
        f"`gossiplog salvage {path} TARGET` saves what is left"
    )


def _check_path(path: str, *, creates: bool) -> None:
    if is_in_bucket(path):
        hint = (
            f"`gossiplog clone {path} LOG` makes a log of it; `stat`, `verify`, `checkpoint`, `export` and `spark` read it where it is; "
            f"if `verify` finds damage, the publisher repairs it with `publish --again`"
        )
        raise Failure(f"{path} is a log in a bucket", hint=hint, code=ExitCode.USAGE)
    if path == ":memory:" or "://" in path:
        hint = "LOG is the path of a SQLite file, or a URL like postgresql://host/database?log=NAME"
        raise Failure(f"{path} is not a file", hint=hint, code=ExitCode.USAGE)
    if Path(path).is_dir():
        raise Failure(f"{path} is a folder", hint="LOG is the path of a SQLite file, say app.db in that folder")
    if not creates and not Path(path).exists():
        raise errors.LogNotFound(f"no log at {path}", hint=f"create it with `gossiplog init {path} --topic …`")


async def resolve(log: GossipLog, prefix: str) -> str:
    """Return the id that begins with these characters, with errors that quote them.

    Raises:
        Failure: No id can begin with them.
        NotFound: No entry's id begins with them.
        AmbiguousId: Several ids do.
    """
    try:
        return await log.resolve(prefix.lower())
    except errors.DecodeError as error:
        hint = f"`gossiplog log {log.location}` lists ids; they have 32 characters of 0-9 and a-v, and the first few are enough"
        raise Failure(f"{prefix!r} is not an id", hint=hint, code=ExitCode.USAGE) from error
    except errors.NotFound as error:
        raise errors.NotFound(prefix, hint=f"`gossiplog log {log.location}` lists the entries") from error


def load_authorize(name: str) -> Any:
    """Import the access rule that `MODULE:FUNCTION` names; the current folder is searched last.

    Raises:
        Failure: There is no such module or function.
    """
    found = _import(name)
    if not callable(found):
        raise Failure(f"{name} is not a function")
    return found


def load_application(name: str) -> Application:
    """Import the `Application` that `MODULE:NAME` names, or make one of a function, as its `apply`; the current folder is searched last.

    Raises:
        Failure: There is no such module or name, or it is neither.
    """
    from ..gossip_log import Application

    found = _import(name)
    if isinstance(found, Application):
        return found
    if not callable(found):
        raise Failure(f"{name} is neither a function nor an Application")
    return Application("app", 1, found)


def _import(name: str) -> Any:
    import importlib
    import sys

    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise Failure(f"{name!r} is not of the form MODULE:FUNCTION", code=ExitCode.USAGE)
    if "" not in sys.path:
        # Last, so that no file there takes the place of a module of the standard library.
        sys.path.append("")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise Failure(f"cannot import {name}: {error}", hint="name it as MODULE:FUNCTION, seen from the current folder") from error
