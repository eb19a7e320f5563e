"""Translates PostgreSQL's errors into ours, by their codes."""

from __future__ import annotations

import ssl

import asyncpg

from ... import errors

DATABASE_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""All that asyncpg raises: the server's errors, its own, and those of the connection, TLS included."""

_KEPT = "earlier commits are kept"
_LOST_CODES = ("57P01", "57P02", "57P03", "57P05", "25P03", "25P04")
"""The server is shutting down, has crashed, is starting, or has ended our session for idling."""
_FULL_CODES = ("53100", "53200", "53400", "54000")
_RETURNING_CODES = (*_LOST_CODES, "53300")
_DAMAGED_CODES = ("XX001", "XX002", "22P03", "42P01", "42703", "42883")


class DatabaseFailed(Exception):
    """Wraps an error of the database while a plan runs. The plan may raise errors of its own, also an OSError."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


def is_lost(error: BaseException) -> bool:
    """Tell whether the connection is gone, which leaves the outcome of a COMMIT unknown."""
    code = getattr(error, "sqlstate", None)
    if code is not None:
        return code.startswith("08") or code in _LOST_CODES
    # asyncpg's own errors have no code, such as one for a connection that it has closed.
    return isinstance(error, (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError))


def may_return(error: BaseException) -> bool:
    """Tell whether connecting may succeed a little later, because the server is restarting or has no connection left."""
    code = getattr(error, "sqlstate", None)
    if code is not None:
        return code.startswith("08") or code in _RETURNING_CODES
    if isinstance(error, ssl.SSLError):
        return False
    return isinstance(error, OSError) or (isinstance(error, asyncpg.InterfaceError) and not isinstance(error, ValueError))


def translate(location: str, error: BaseException) -> errors.StoreError | errors.LocalProtocolError:
    """Turn an error of asyncpg's into one that names the log and a remedy. Raise it from the original."""
    code = getattr(error, "sqlstate", None) or ""
    if isinstance(error, asyncpg.PostgresError) and code:
        return _translate_code(location, error, code)
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        # asyncpg's ClientConfigurationError: the URL, the environment or a file that they name is wrong.
        return errors.LocalProtocolError(f"{location}: {error}")
    if isinstance(error, TimeoutError):
        return errors.StoreUnavailable(f"{location} did not answer in time", hint=f"see whether the server is overloaded; {_KEPT}")
    reason = str(error) or type(error).__name__
    if isinstance(error, asyncpg.InternalClientError):
        # Its text is about asyncpg's internal states: the server went away in the middle of a request.
        return errors.StoreUnavailable(f"the connection to {location} broke", hint=f"try again; {_KEPT}")
    hint = "see whether the server runs, host and port are right, and the files are there that sslrootcert and the like name"
    return errors.StoreUnavailable(f"{location} cannot be reached: {reason}", hint=hint)


def translate_uncommitted(location: str, error: BaseException) -> errors.StoreError | errors.LocalProtocolError:
    """As `translate`, within a transaction that was not committed: it can be repeated if only the connection broke."""
    if is_lost(error) and not isinstance(error, TimeoutError):
        return errors.ConnectionLost(f"the connection to {location} broke before the commit", hint="nothing of it was stored; try again")
    return translate(location, error)


def _translate_code(location: str, error: asyncpg.PostgresError, code: str) -> errors.StoreError:
    reason = str(error).splitlines()[0] if str(error) else code
    if code in _FULL_CODES:
        return errors.StorageFull(f"no space left for {location}: {reason}")
    if code.startswith("28"):
        hint = "check user and password: in the URL, PGUSER and PGPASSWORD, a service file or ~/.pgpass; and pg_hba.conf of the server"
        return errors.StoreUnavailable(f"{location} does not let us in: {reason}", hint=hint)
    if code == "3D000":
        return errors.LogNotFound(f"{location}: {reason}", hint="create the database first: `createdb NAME`")
    if code == "42501":
        hint = "docs/postgres.md lists the rights; repairs and migrations are for the owner"
        return errors.StoreUnavailable(f"{location}: {reason}", hint=hint)
    if code == "25006":
        return errors.ReadOnlyLog(f"{location} cannot be written to: {reason}", hint="connect to the primary, or open the log read-only")
    if code == "55P03":
        return errors.LogBusy(f"another process has been writing to {location} for too long", hint="end it, or try again")
    if code == "57014":
        return errors.CommitError(f"{location}: {reason}", hint=f"raise statement_timeout in the URL if necessary; {_KEPT}")
    if code in _RETURNING_CODES or code.startswith("08"):
        return errors.StoreUnavailable(f"{location} is not available: {reason}", hint=f"try again; {_KEPT}")
    if code in _DAMAGED_CODES:
        return errors.DamagedLog(f"{location} does not hold what a log should: {reason}")
    return errors.CommitError(f"{location}: {reason}")
