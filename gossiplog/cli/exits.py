"""How a command ends: its exit code, and how each error is reported on the terminal and under `--json`."""

from __future__ import annotations

import enum
import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from .. import errors


class ExitCode(enum.IntEnum):
    """The exit codes. Scripts depend on these numbers: none ever gets another meaning."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    INTEGRITY = 3
    NETWORK = 4
    INCOMPLETE = 5
    UNAUTHORISED = 6
    TROUBLE = 7
    """`why`: the entry is not there, or something keeps it from the peer. `doctor`: there is something to fix."""
    INTERRUPTED = 130
    """128 + SIGINT, as shells report it."""
    CLOSED_PIPE = 141
    """128 + SIGPIPE: the reader closed the pipe early, so the output is incomplete, but nothing is wrong."""


_FROM_BEST = (
    ExitCode.DONE,
    ExitCode.INCOMPLETE,
    ExitCode.NETWORK,
    ExitCode.UNAUTHORISED,
    ExitCode.USAGE,
    ExitCode.FAILED,
    ExitCode.INTEGRITY,
)


def worst(codes: Iterable[int]) -> ExitCode:
    """Return the worst of several exit codes, as that of a command that did several things."""
    return max(map(ExitCode, codes), key=_FROM_BEST.index, default=ExitCode.DONE)


def of_faults(kinds: Iterable[str]) -> ExitCode:
    """Return the exit code for faults of a bucket; see `gossiplog.bucket.take.Fault` for their kinds."""
    found = set(kinds)
    return ExitCode.DONE if not found else ExitCode.INCOMPLETE if found <= {"missing", "unreadable", "topic"} else ExitCode.INTEGRITY


class Failure(errors.GossipLogError):
    """A command's own reason to stop, with its exit code."""

    def __init__(self, message: str, *, hint: str | None = None, code: ExitCode = ExitCode.FAILED, kind: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.kind = kind or code.name.lower()


@contextmanager
def misused(what: str, *, hint: str | None = None, kind: str = "usage") -> Iterator[None]:
    """Report errors of a block that reads what the user named, such as a file or a URL, as wrong usage.

    Args:
        what: The beginning of the message, such as an option and its value; the reason follows. May be empty.

    Raises:
        Failure: The block raised an error of the system or a parser, or a `LocalProtocolError`.
    """
    try:
        yield
    except Failure:
        raise
    except (OSError, ValueError, RecursionError, errors.LocalProtocolError, errors.DecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        advice = getattr(error, "hint", None) or hint
        raise Failure(f"{what}: {reason}" if what else reason, hint=advice, code=ExitCode.USAGE, kind=kind) from None


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as it is reported."""

    kind: str
    message: str
    hint: str | None
    code: ExitCode


_KINDS: tuple[tuple[type[BaseException], str, ExitCode], ...] = (
    (errors.LogNotFound, "log-not-found", ExitCode.FAILED),
    (errors.ForeignFile, "foreign-file", ExitCode.FAILED),
    (errors.DamagedLog, "damaged-log", ExitCode.INTEGRITY),
    (errors.LogReplaced, "log-replaced", ExitCode.FAILED),
    (errors.RepairRefused, "repair-refused", ExitCode.INTEGRITY),
    (errors.NewerVersion, "newer-version", ExitCode.FAILED),
    (errors.ReadOnlyLog, "read-only", ExitCode.FAILED),
    (errors.TopicMismatch, "topic-mismatch", ExitCode.FAILED),
    (errors.LogBusy, "busy", ExitCode.FAILED),
    (errors.StorageFull, "storage-full", ExitCode.INCOMPLETE),
    (errors.StoreUnavailable, "unavailable", ExitCode.NETWORK),
    (errors.StoreError, "storage", ExitCode.FAILED),
    (errors.DamagedBucket, "damaged-bucket", ExitCode.INTEGRITY),
    (errors.BucketError, "bucket", ExitCode.FAILED),
    (errors.NotFound, "not-found", ExitCode.FAILED),
    (errors.AmbiguousId, "ambiguous-id", ExitCode.FAILED),
    (errors.NotAuthorised, "unauthorised", ExitCode.UNAUTHORISED),
    (errors.Rejected, "rejected", ExitCode.UNAUTHORISED),
    (errors.KeyFileError, "key", ExitCode.FAILED),
    (errors.EncodeError, "payload", ExitCode.FAILED),
    (errors.DecodeError, "malformed", ExitCode.INTEGRITY),
    (errors.SyncAborted, "sync-aborted", ExitCode.INCOMPLETE),
    (errors.CannotListen, "cannot-listen", ExitCode.NETWORK),
    (errors.CannotConnect, "cannot-connect", ExitCode.NETWORK),
    (errors.RemoteProtocolError, "protocol", ExitCode.NETWORK),
)


_FULL = {errno.ENOSPC, errno.EDQUOT}
_ARROW = {"pyarrow", "numpy"}
"""The packages of the extra `arrow`."""


def describe(error: BaseException) -> Problem | None:
    """Describe an error for the user; None for one that no user can have caused, which is a fault of this program."""
    if isinstance(error, Failure):
        return Problem(error.kind, str(error), error.hint, error.code)
    if isinstance(error, click.ClickException):
        return Problem("usage", error.format_message(), _usage_hint(error), ExitCode.USAGE)
    if _is_of_full_disk(error):
        place = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        text = f"{place}{error.strerror}" if isinstance(error, OSError) else str(error)
        return Problem("storage-full", text, errors.StorageFull.hint_default, ExitCode.INCOMPLETE)
    if isinstance(error, errors.GossipLogError):
        kind, code = next(((kind, code) for type_, kind, code in _KINDS if isinstance(error, type_)), ("failed", ExitCode.FAILED))
        return Problem(kind, str(error), error.hint, code)
    if isinstance(error, (ConnectionError, TimeoutError)):
        return Problem("network", str(error) or type(error).__name__, None, ExitCode.NETWORK)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return Problem("file", f"{place}{error.strerror or error}", None, ExitCode.FAILED)
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("gossiplog"):
        package = (error.name or "").partition(".")[0]
        extra = "[arrow]" if package in _ARROW else ""
        return Problem("dependency", f"{error}", f"install what is missing: `pip install 'gossiplog{extra}'`", ExitCode.FAILED)
    return None


def stopped(error: errors.GossipLogError, where: str, kept: str) -> Failure:
    """Return the error of a command that stopped half way, given the place, and what was kept; after a fault of the store it can go on."""
    problem = describe(error)
    assert problem is not None
    code = ExitCode.INCOMPLETE if isinstance(error, errors.StoreError) else problem.code
    return Failure(f"{where}: {error}", hint=f"{kept}; {error.hint}" if error.hint else kept, code=code, kind=problem.kind)


def _is_of_full_disk(error: BaseException | None) -> bool:
    while error is not None and not (isinstance(error, OSError) and error.errno in _FULL):
        error = error.__cause__
    return error is not None


def _usage_hint(error: click.ClickException) -> str | None:
    context = getattr(error, "ctx", None)
    return f"see `{context.command_path} --help`" if context is not None else None
