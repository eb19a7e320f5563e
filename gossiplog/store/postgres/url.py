"""The URL of a log on a server, `postgresql://user@host/database?log=NAME`, and what of it may be shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from ...errors import LocalProtocolError

SCHEMA_PREFIX = "gossiplog_"
NAME_BYTES_MAX = 63 - len(SCHEMA_PREFIX)
"""PostgreSQL silently truncates longer identifiers."""
_SCHEMES = ("postgresql", "postgres")
_SHOWN = ("host", "port", "dbname", "database", "user", "service", "log")


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """A parsed URL.

    Attributes:
        dsn: The part for asyncpg, including the password if the user wrote one.
        log: The log's name within its database; empty for all logs of the database.
        settings: The names of the server's settings that the user chose; ours do not override them.
        location: The URL as it may be shown and logged.
        connection: libpq's numeric parameters that asyncpg does not know: `connect_timeout` and TCP's keepalives.
    """

    dsn: str = field(repr=False)
    log: str
    settings: frozenset[str]
    location: str
    connection: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, url: str, *, is_shelf: bool = False) -> PostgresUrl:
        """Parse a URL of libpq's with one parameter of ours, `log`. Any parameter that libpq does not know is a setting of the server.

        Args:
            is_shelf: The URL stands for all logs of the database, and must name none.

        Raises:
            LocalProtocolError: The URL is malformed, or names no log. The message shows nothing that may be a password.
        """
        parts, parameters = _split(url)
        names = [value for name, value in parameters if name == "log"]
        if is_shelf and names:
            hint = "without ?log=NAME it stands for all logs of the database"
            raise LocalProtocolError(f"{_show(parts, parameters)} names a log", hint=hint)
        if not is_shelf:
            if len(names) != 1:
                hint = "add ?log=NAME; a database holds any number of logs"
                raise LocalProtocolError(f"{_show(parts, parameters)} names {'no' if not names else 'more than one'} log", hint=hint)
            _check_name(names[0])
        hosts = [unquote(parts.netloc.rpartition("@")[2]), *(value for name, value in parameters if name == "host")]
        if any("/" in host and not host.startswith("/") for text in hosts for host in text.split(",")):
            hint = "write the path of the folder with the server's socket from the root, as in ?host=/run/postgresql"
            raise LocalProtocolError("the host is a relative path", hint=hint)
        connection = {name: _number(name, value) for name, value in parameters if name in _CONNECTION}
        rest = [(name, value) for name, value in parameters if name != "log" and name not in _CONNECTION]
        netloc = parts.netloc
        if "," not in netloc and not parts.hostname and parts.port:
            # libpq accepts a port alone; asyncpg would take it for a host without a name.
            netloc = netloc.rpartition(":")[0]
            rest.append(("port", str(parts.port)))
        # A lone slash would name the database "", where PGDATABASE is meant.
        dsn = f"postgresql://{netloc}{parts.path.rstrip('/')}{'?' if rest else ''}{urlencode(rest)}"
        settings = frozenset(name for name, _ in rest if name not in _LIBPQ)
        return cls(dsn, "".join(names), settings, _show(parts, parameters), connection)

    @property
    def schema(self) -> str:
        """The schema that holds the log's tables."""
        return SCHEMA_PREFIX + self.log

    @property
    def quoted_schema(self) -> str:
        """The schema as it is written in SQL."""
        return '"' + self.schema.replace('"', '""') + '"'


_LIBPQ = frozenset(
    (
        *_SHOWN,
        *("password", "passfile", "sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword", "sslnegotiation"),
        *("ssl_min_protocol_version", "ssl_max_protocol_version", "target_session_attrs", "krbsrvname", "gsslib"),
    )
)


_CONNECTION = ("connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout")
_NUMBER_MAX = 2**31 - 1


def _number(name: str, value: str) -> int:
    """Parse a number of libpq's; 0 and less stand for its default."""
    text = value.strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", text) or abs(int(text)) > _NUMBER_MAX:
        raise LocalProtocolError(f"{name} is not a whole number", hint=f"write {name}=10, say")
    return int(text)


def is_postgres_url(text: str) -> bool:
    """Tell whether a location is a URL of ours rather than a path."""
    return text.partition("://")[0].lower() in _SCHEMES and "://" in text


def names_log(url: str) -> bool:
    """Tell whether a URL names a log of its database, rather than all of them."""
    return any(name == "log" for name, _ in _split(url)[1])


def without_secrets(url: str) -> str:
    """Return a URL as it may be shown: without password, and nothing but the scheme if it cannot be parsed."""
    try:
        return _show(*_split(url))
    except LocalProtocolError:
        return "postgresql://…"


def _split(url: str) -> tuple[SplitResult, list[tuple[str, str]]]:
    try:
        url.encode()  # an argument of a command may hold bytes that are no UTF-8
        parts = urlsplit(url)
        parameters = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True) if parts.query else []
        port = None if "," in parts.netloc else parts.port
    except ValueError:
        # The error's own message would quote a part of the URL, which may be a part of the password.
        raise LocalProtocolError("the URL is malformed", hint=_HINT) from None
    is_split_wrongly = parts.netloc.count("@") > 1 or "@" in parts.path or "#" in url or port == 0
    if is_split_wrongly or any("\0" in text for text in (unquote(url), *(value for _, value in parameters))):
        raise LocalProtocolError("the URL is malformed", hint=_HINT)
    return parts, parameters


_HINT = "in a user, a password or a name write @ / ? # and % as %40 %2F %3F %23 and %25"


def _check_name(name: str) -> None:
    if not 0 < len(name.encode()) <= NAME_BYTES_MAX or not name.isprintable():
        raise LocalProtocolError(f"log name {name!r} does not have 1 to {NAME_BYTES_MAX} bytes, all of them printable")


def _show(parts: SplitResult, parameters: list[tuple[str, str]]) -> str:
    user, at, host = parts.netloc.rpartition("@")
    shown = urlencode([(name, value) for name, value in parameters if name in _SHOWN], safe="/", quote_via=quote)
    return f"postgresql://{user.partition(':')[0]}{at}{host}{parts.path}{'?' if shown else ''}{shown}"
