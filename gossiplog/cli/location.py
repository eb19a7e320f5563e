"""What a command is given for a log: a path, or a URL, of which no password is ever shown."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import LocalProtocolError

__all__ = ["LOG", "Location"]


class Location(str):
    """A log's place. As text, in messages and records, it is what may be shown; `full` is what to open.

    Attributes:
        full: What was typed, a password included.
        is_url: Whether the log lies on a server, and not in a file.
    """

    __slots__ = ("full", "is_url")

    full: str
    is_url: bool

    @classmethod
    def parse(cls, text: str) -> Location:
        """Take what was typed.

        Raises:
            LocalProtocolError: It is a URL, and malformed.
        """
        # Imported here: not every command has a log.
        from ..store.postgres.url import PostgresUrl, is_postgres_url

        is_url = is_postgres_url(text)
        location = cls(PostgresUrl.parse(text).location if is_url else text)
        location.full = text
        location.is_url = is_url
        return location

    @property
    def name(self) -> str:
        """A short name for titles."""
        return str(self) if self.is_url else Path(self).name

    def is_same(self, other: Location) -> bool:
        """Whether both are the same file, or the same URL."""
        if self.is_url or other.is_url:
            return self.full == other.full
        return Path(self).exists() and Path(other).exists() and Path(self).samefile(other)


class _LogType(click.ParamType):  # type: ignore[type-arg]  # only the newest click has a parameter
    """LOG on the command line."""

    name = "log"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Location:
        if isinstance(value, Location):
            return value
        try:
            return Location.parse(str(value))
        except LocalProtocolError as error:
            hint = f"; {error.hint}" if error.hint else ""
            self.fail(f"{error}{hint}", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[click.shell_completion.CompletionItem]:
        """Complete paths, as the shell does."""
        return [click.shell_completion.CompletionItem(incomplete, type="file")]


LOG = _LogType()
"""The type of every argument that names a log."""
