"""Arguments and options that several commands share: logs and files, keys and tokens, and how to print."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import math
import operator
import os
import re
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from ..errors import LocalProtocolError
from .exits import ExitCode, Failure, misused
from .output import Output, clean

if TYPE_CHECKING:
    from ..entry.signing import Ed25519Signer, Signer


class Location(str):
    """A log's place. The string itself has no password and may be shown, in messages and records; `full` is for opening.

    Attributes:
        full: As typed, with a password if there is one.
        is_shelf: Whether it is a place of many logs: a database or a folder.
    """

    __slots__ = ("full", "is_shelf", "is_url")

    full: str
    is_url: bool
    is_shelf: bool

    @classmethod
    def parse(cls, text: str, *, may_be_shelf: bool = False) -> Location:
        """Read the text that was typed.

        Args:
            may_be_shelf: Whether a URL may name a database of many logs.

        Raises:
            LocalProtocolError: It is a malformed URL, or no path.
        """
        # Imported here: not every command has a log.
        from ..store.open import path_text
        from ..store.postgres.url import PostgresUrl, is_postgres_url, names_log

        path_text(text)
        if _HALF_A_URL.match(text):
            raise LocalProtocolError(f"{text} is neither a path nor a URL", hint="a URL has two slashes after its colon")
        is_url = is_postgres_url(text)
        url = PostgresUrl.parse(text, is_shelf=may_be_shelf and not names_log(text)) if is_url else None
        location = cls(text if url is None else url.location)
        location.full = text
        location.is_url = is_url
        location.is_shelf = not url.log if url is not None else may_be_shelf and Path(text).is_dir()
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


_HALF_A_URL = re.compile(r"(wss?|https?|postgres|postgresql):/?(?!/)")
"""How a URL begins that lacks a slash."""


class ParsedType(click.ParamType):  # type: ignore[type-arg]  # only the newest click has a parameter
    """A text that a parser of the library checks.

    Args:
        parser: `MODULE:FUNCTION` below this package, imported when there is a text.
    """

    name = "text"

    def __init__(self, parser: str) -> None:
        self._parser = parser

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check the text, from the command line or from a file of options."""
        try:
            return self._parse(value)
        except LocalProtocolError as error:
            self.fail(f"{error}; {error.hint}" if error.hint else str(error), param, ctx)

    def _parse(self, value: Any) -> Any:
        module, _, function = self._parser.partition(":")
        operator.attrgetter(function)(importlib.import_module(f"gossiplog.{module}"))(value)
        return value


class NumberRange(click.FloatRange):
    """A number between bounds, which `nan` is for click."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Check the number."""
        number = float(super().convert(value, param, ctx))
        return self.fail(f"{value!r} is not a number.", param, ctx) if math.isnan(number) else number


class PlaceType(ParsedType):
    """A path or a URL. Empty text is refused: it comes from an unset variable of a script, and would name the current folder."""

    name = "place"
    _parser = "store.open:path_text"

    def __init__(self, parser: str = _parser) -> None:
        super().__init__(parser)


class PathType(PlaceType, click.Path):
    """A path of the kind that `click.Path` asks for."""

    __init__ = click.Path.__init__

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check the text like `PlaceType`, then the path like `click.Path`."""
        return click.Path.convert(self, super().convert(value, param, ctx), param, ctx)


class OutputType(PathType):
    """A file to write, which replaces an earlier one, unless that is a log or a key: these cannot be made again."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check the path like `PathType`, and the file that is there."""
        place = super().convert(value, param, ctx)
        if place != "-" and Path(place).is_file():
            with contextlib.suppress(OSError), Path(place).open("rb") as file:
                for begins, what in _KEPT.items():
                    file.seek(0)
                    if file.read(len(begins)) == begins:
                        self.fail(f"{clean(str(place))} is {what}, which is not overwritten", param, ctx)
        return place


_KEPT = {b"SQLite format 3\0": "a log, or another database", b"-----BEGIN ": "a key or a certificate"}
"""The first bytes of files that are not overwritten, and what they are."""

PLACE = PlaceType()
ADDRESS = ParsedType("net.hub.server:parse_address")
"""An address to listen on: `HOST:PORT`, or `:PORT` for all addresses of the machine."""
BUCKET = PlaceType("bucket.storage:open_storage")
"""A bucket, perhaps with `{topic}` in its path."""
WITNESS = ParsedType("bucket.cosigning:WitnessPlace.parse")
"""A witness: `URL#VKEY`."""
PUBLISHER = ParsedType("tlog.note:check_publisher")
"""A publisher's did; its `did:key:` may be left out."""
FILE, FOLDER = PathType(dir_okay=False), PathType(file_okay=False)
FILE_OR_DASH = PathType(dir_okay=False, allow_dash=True)
"""A file, or '-' for stdin or stdout."""
OUTPUT, OUTPUT_OR_DASH = OutputType(dir_okay=False), OutputType(dir_okay=False, allow_dash=True)
OUTPUT_PATH = OutputType(dir_okay=False, path_type=Path)


class _LogType(PlaceType):
    """A LOG or, with `may_be_shelf`, a place of many logs."""

    name = "log"

    def __init__(self, *, may_be_shelf: bool = False) -> None:
        self._may_be_shelf = may_be_shelf

    def _parse(self, value: Any) -> Location:
        return value if isinstance(value, Location) else Location.parse(value, may_be_shelf=self._may_be_shelf)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[click.shell_completion.CompletionItem]:
        """Complete paths like the shell."""
        return [click.shell_completion.CompletionItem(incomplete, type="file")]


LOG = _LogType()
"""The type of every argument that names a log."""
LOG_OR_SHELF = _LogType(may_be_shelf=True)


P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
DURABILITIES = ("full", "normal", "off")
_TOKEN_BYTES_MAX = 4_096


def option(*names: str, **attributes: Any) -> Any:
    """Make a dataclass's field an option of the commands that use the class (`takes`); the arguments are those of `click.option`."""
    return dataclasses.field(kw_only=True, metadata={"option": partial(click.option, *names, **attributes)})


def shared(decorator: Callable[[F], F]) -> Any:
    """Make a dataclass's field the option that this decorator adds; the field has the name of the decorator's parameter."""
    return dataclasses.field(kw_only=True, metadata={"option": lambda _: decorator})


def takes(**kinds: type[Any]) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Add all options that dataclasses declare by `option` or `shared`; the command gets an object of each class, by this name."""

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(command)
        def run(*args: Any, **values: Any) -> R:
            taken = {name: kind(**{field: values.pop(field) for field in _options_of(kind)}) for name, kind in kinds.items()}
            return command(*args, **taken, **values)

        decorated: Callable[..., R] = run
        for kind in reversed(kinds.values()):
            for name, declare in reversed(_options_of(kind).items()):
                decorated = declare(name)(decorated)
        return decorated

    return decorate


def _options_of(kind: type[Any]) -> dict[str, Callable[..., Any]]:
    return {each.name: each.metadata["option"] for each in dataclasses.fields(kind) if "option" in each.metadata}


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


def processors() -> int:
    """How many processes can run at once here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def complete_key(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """List the keys of the keyring whose names begin with `incomplete`, for the shell."""
    from ..keyring import Keyring

    return [name for name in Keyring.from_environment().names() if name.startswith(incomplete)]


def _key_option(help: str) -> Callable[[F], F]:
    return click.option("--key", "key_name", metavar="NAME", shell_complete=complete_key, help=help)


key_option = _key_option("The key of the keyring to sign with; needed only when there are several.")
identity_option = _key_option("The key of the keyring to log in to the server with.")
"""`--key` for logging in to a server; the command gets `key_name`, which is for `read_identity`."""
exchange_key_option = _key_option("The key of the keyring to log in to the hub with; for a bucket, the key to publish with.")


durability_option = click.option(
    "--durability",
    type=click.Choice(DURABILITIES),
    default="full",
    help="What a stored entry survives: 'full' a loss of power, the others only a killed process.",
)
tls_ca_option = click.option("--tls-ca", type=FILE, help="Trust this CA, in PEM, when connecting to a wss:// server.")
bucket_topic_option = click.option("--topic", metavar="T", help="The log's topic, if logs of several topics are published in the bucket.")
witness_option = click.option(
    "--witness",
    "witnesses",
    metavar="URL#VKEY",
    type=WITNESS,
    multiple=True,
    help="Ask this witness to cosign what is published, as `gossiplog witness` names it; repeatable.",
)
token_option = click.option(
    "--token-file", type=FILE, help="A file with the token for the server.  [default: the token in GOSSIPLOG_TOKEN]"
)
"""The command gets `token_file`, which is for `read_token`."""


def archive_options(command: F) -> F:
    """Add the limit on the size of a decompressed file: `expanded_bytes_max`."""
    from ..archive.source import EXPANDED_BYTES_MAX

    return click.option(
        "--max-bytes",
        "expanded_bytes_max",
        type=click.IntRange(min=1),
        default=EXPANDED_BYTES_MAX,
        show_default=False,
        metavar="N",
        help="The most bytes that a compressed file may expand to; by default 1 GiB, and 100 times its size.",
    )(command)


def read_token(file: str | None) -> str | None:
    """Return the token from this file or else the environment; never from the command line, which every user of the machine can read.

    Raises:
        Failure: The file cannot be used.
    """
    if file is None:
        return os.environ.get("GOSSIPLOG_TOKEN") or None
    with misused(f"cannot read the token in {file}"):
        text = Path(file).read_bytes()[: _TOKEN_BYTES_MAX + 1].decode("ascii", "replace").strip()
    if not text or len(text) > _TOKEN_BYTES_MAX or not text.isascii() or not text.isprintable() or " " in text:
        raise Failure(f"{file} holds no token", hint="a token alone, as `gossiplog token -q` prints it", code=ExitCode.USAGE)
    return text


def read_identity(key_name: str | None) -> Signer | None:
    """Load the key to log in with; None if none is named.

    Raises:
        KeyFileError: There is no such key.
    """
    return None if key_name is None else choose_signer(key_name)


def choose_signer(key_name: str | None) -> Ed25519Signer:
    """Load the key to sign with: the one of this name or, without a name, the only one there is.

    Raises:
        KeyFileError: There is no such key, or not exactly one to choose from.
    """
    from ..keyring import Keyring

    return Keyring.from_environment().choose(key_name)


@functools.cache
def client_tls(authority: str | None) -> ssl.SSLContext | None:
    """Return the TLS settings for connections to servers; None for the system's certificate authorities.

    Raises:
        Failure: The authority's file cannot be used.
    """
    if authority is None:
        return None
    with misused(f"cannot use the authority {authority}", hint="a certificate in PEM", kind="tls"):
        return ssl.create_default_context(cafile=authority)
