"""What a command writes: data on stdout as a table or as JSON lines, everything else on stderr.

Text for people passes `shown` at the last moment, and JSON passes `escaped`: text from a log, a file's name or a peer's answer must
neither control the terminal nor reorder the text beside it.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TextIO

import click

_MEASURED_ROWS = 200
"""How many rows are measured to choose the columns' widths; later rows are written as they come."""
_WRAPPED_MIN = 30
"""The least width that a text is wrapped to; with less room beside the other columns, it gets lines of its own."""
_OURS = re.compile(r"(\x1b\[(?:0|1|3[0-7]|9[0-7])m|[\n\t])")
"""Control characters that we send ourselves: colours, line ends and tabs."""
_LINES = re.compile(r"([\n\t])")


def has_colour(stream: TextIO) -> bool:
    """Whether to colour what goes to this stream: on a terminal, unless NO_COLOR is set or the terminal is dumb."""
    if os.environ.get("NO_COLOR"):
        return False
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def is_unicode(stream: TextIO) -> bool:
    """Whether this stream's encoding has box-drawing characters."""
    return (stream.encoding or "").lower().replace("-", "") in {"utf8", "utf16", "utf32"}


@contextlib.contextmanager
def opened_output(output: str) -> Iterator[IO[bytes]]:
    """Open a file to write, or stdout for '-'. The file gets its name when it is whole; after an error an earlier one is still there.

    Raises:
        BlockingIOError: Another process is writing this file.
    """
    if output == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(output)
    # A pipe or a device has nothing to keep.
    draft = path if path.exists() and not path.is_file() else path.with_name(path.name + ".partial")
    try:
        with path.open("wb") if draft == path else _begun(draft, path) as file:
            if output.endswith(".gz"):
                import gzip

                with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as compressed:
                    yield compressed  # type: ignore[misc]  # it has all that is used of IO
            else:
                yield file
            file.flush()
            if draft != path:
                os.fsync(file.fileno())
                draft.replace(path)
    except BaseException as error:
        if draft != path and not isinstance(error, BlockingIOError):
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            # The error of a failed write has no file name.
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise


def _begun(draft: Path, path: Path) -> IO[bytes]:
    """Open a draft from its beginning, also one that a killed process left, unless a living process is writing to it."""
    import fcntl

    file = draft.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Otherwise the other process has just given its draft the file's name.
        is_ours = os.path.samestat(os.fstat(file.fileno()), draft.stat())
    except OSError as error:
        # A file system may have no locks.
        is_ours = not isinstance(error, BlockingIOError | FileNotFoundError)
    if not is_ours:
        file.close()
        raise BlockingIOError(errno.EAGAIN, "another process is writing it", str(path))
    if os.fstat(file.fileno()).st_size:
        file.truncate(0)
    return file


def clean(text: str) -> str:
    """Make text from a log safe to show on a terminal: one line, without escape sequences or characters that reorder it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}" for c in text)


def shown(text: str, *, is_coloured: bool = False) -> str:
    """Make a text of several lines safe to show; with `is_coloured` our own colour codes stay."""
    if text.isprintable():
        return text
    parts = (_OURS if is_coloured else _LINES).split(text)
    return "".join(part if index % 2 else clean(part) for index, part in enumerate(parts))


def escaped(line: str) -> str:
    """Make a line of JSON safe to show without changing its value: unprintable characters become escapes."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else "".join(f"\\u{unit:04x}" for unit in _utf16(c)) for c in line)


def _utf16(character: str) -> tuple[int, ...]:
    code = ord(character)
    return (code,) if code < 0x10000 else (0xD800 + (code - 0x10000 >> 10), 0xDC00 + (code & 0x3FF))


def say(text: str, *, err: bool = False) -> None:
    """Write text for people, on stdout or stderr; characters that are unsafe on a terminal become escapes."""
    stream = sys.stderr if err else sys.stdout
    is_coloured = has_colour(stream)
    click.echo(shown(text, is_coloured=is_coloured), err=err, color=is_coloured)


def utc(seconds: float, timespec: str = "seconds") -> str:
    """A time since 1970 as ISO 8601 has it, in UTC."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec=timespec)


def record_of(report: object, *names: str) -> dict[str, Any]:
    """Return attributes of a report as fields of a record, in JSON's spelling: `left_out` as `leftOut`."""
    return {re.sub("_(.)", lambda found: found[1].upper(), name): getattr(report, name) for name in names}


def counted(number: int, one: str, several: str) -> str:
    """A number with its noun: `1 entry`, `1,000 entries`."""
    return f"{number:,} {one if number == 1 else several}"


def cut(text: str, width: int) -> str:
    """Cut text to `width` columns of a terminal, with an ellipsis at its end if anything was cut off; wide characters count two."""
    if _columns(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, max(0, width - 1)).rstrip() + "…" if width > 0 else ""


def wrap(text: str, width: int) -> list[str]:
    """Break text into lines of at most `width` columns of a terminal: between words, and within a word that is longer than a line."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if _columns(longer) <= width:
            line = longer
            continue
        lines += [line] if line else []
        line = word
        if _columns(word) > width:
            from rich.cells import chop_cells

            *whole, line = chop_cells(word, width)
            lines += whole
    return [*lines, line]


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column.

    Attributes:
        styles: A style for each text that a cell may have, instead of `style`.
        is_cut: Whether a last column that is longer than the line is cut, as payloads are, rather than wrapped.
    """

    title: str
    is_right: bool = False
    style: str | None = None
    styles: Mapping[str, str] = field(default_factory=dict)
    is_cut: bool = False


@dataclass(slots=True)
class Output:
    """How one command writes.

    Attributes:
        is_json: Whether JSON lines go to stdout rather than a table.
        is_strict: Whether `--json` was given, rather than JSON chosen because stdout is a pipe: stderr gets nothing but JSON either.
        is_quiet: Only ids go to stdout, one per line, and no notes to stderr.
    """

    is_json: bool
    is_strict: bool = False
    is_quiet: bool = False
    colour: bool = field(init=False)

    def __post_init__(self) -> None:
        self.colour = not self.is_json and has_colour(sys.stdout)

    @classmethod
    def choose(cls, *, as_json: bool | None, is_quiet: bool = False) -> Output:
        """Follow `--json` or `--table`, or else what stdout is: a table for a terminal, JSON lines for anything else."""
        return cls(is_json=not sys.stdout.isatty() if as_json is None else as_json, is_strict=as_json is True, is_quiet=is_quiet)

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None if stdout is none, where lines may have any length."""
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def style(self, text: str, colour: str | None = None, *, bold: bool = False) -> str:
        """Colour text if stdout takes colours."""
        return click.style(text, fg=colour, bold=bold or None) if self.colour and (colour or bold) else text

    def line(self, text: str) -> None:
        """Write a line of text; the caller has cleaned text that came from a log, so that it stays on its line."""
        text = shown(text, is_coloured=self.colour)
        if not is_unicode(sys.stdout):
            text = text.encode(sys.stdout.encoding or "ascii", "replace").decode(sys.stdout.encoding or "ascii")
        sys.stdout.write(text + "\n")

    def raw(self, line: bytes) -> None:
        """Write a line of JSON in UTF-8; into a stream that cannot take it, with escapes."""
        text = escaped(line.decode())
        if not is_unicode(sys.stdout):
            text = "".join(c if c.isascii() else json.dumps(c)[1:-1] for c in text)
        self.line(text)

    def record(self, record: Mapping[str, Any]) -> None:
        """Write a line of JSON."""
        self.line(escaped(json.dumps(record, ensure_ascii=not is_unicode(sys.stdout), separators=(",", ":"))))

    def tell(self, record: Mapping[str, Any], text: str, *, quiet: str | None = None) -> None:
        """Write one object: under `--quiet` as the line `quiet`, if that is given; else as JSON, or as this text."""
        if self.is_quiet and quiet is not None:
            self.line(quiet)
        elif self.is_json:
            self.record(record)
        else:
            self.line(text)

    def fields(self, record: Mapping[str, Any], shown: Iterable[tuple[str, str]], *, quiet: str | None = None) -> None:
        """Write one object like `tell`, for people as lines of `name  value`."""
        pairs = list(shown)
        wide = max((len(name) for name, _ in pairs), default=0)
        lines = (f"{self.style(name.ljust(wide), 'bright_black')}  {value}".rstrip() for name, value in pairs)
        self.tell(record, "\n".join(lines), quiet=quiet)

    def note(self, text: str) -> None:
        """Write something that is not data to stderr."""
        if not self.is_strict and not self.is_quiet:
            say(text, err=True)

    def flush(self) -> None:
        """Flush stdout, so that a reader gets everything written so far."""
        sys.stdout.flush()


class Listing:
    """Rows, written as they come: JSON lines, ids alone, or a table whose last column takes the rest of the line.

    On a terminal the last column is wrapped, or cut if it is a payload; in a pipe or a file it is whole, on one line.

    A context manager; at its end it writes the rows that waited for the columns' widths.

    Args:
        empty: The note if there were no rows; none if empty.
        is_live: Whether each row is written at once, because somebody waits for it.
    """

    def __init__(self, output: Output, columns: Sequence[Column], *, empty: str = "nothing to show", is_live: bool = False) -> None:
        self._output = output
        self._is_live = is_live
        self._columns = columns
        self._empty = empty
        self._waiting: list[Sequence[str]] | None = None if is_live else []
        self._widths: list[int] = []
        self.count = 0

    def __enter__(self) -> Listing:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None or not issubclass(kind, OSError):
            self.release()
        if kind is None and self.count == 0 and self._empty and not self._output.is_json:
            self._output.note(self._empty)

    def add(self, record: Mapping[str, Any] | bytes, cells: Sequence[str], *, id: str = "") -> None:
        """Add a row: `record` for JSON (bytes are a line already), `cells` for the table, `id` for `--quiet`."""
        self.count += 1
        if self._output.is_quiet:
            self._output.line(id or cells[0])
        elif self._output.is_json:
            if isinstance(record, bytes):
                self._output.raw(record)
            else:
                self._output.record(record)
        elif self._waiting is None:
            self._write(cells)
        else:
            self._waiting.append(cells)
            if len(self._waiting) >= _MEASURED_ROWS:
                self.release()
        if self._is_live:
            self._output.flush()

    def release(self) -> None:
        """Write the waiting rows, and from now on every row at once."""
        waiting, self._waiting = self._waiting or [], None
        if waiting and not self._widths:
            titles = [column.title for column in self._columns]
            self._widths = [max(_columns(row[index]) for row in [titles, *waiting]) for index in range(len(titles))]
            self._write(titles, is_heading=True)
        for cells in waiting:
            self._write(cells)
        self._output.flush()

    def _write(self, cells: Sequence[str], *, is_heading: bool = False) -> None:
        if not self._widths:
            self._widths = [max(_columns(column.title), _columns(cell)) for column, cell in zip(self._columns, cells, strict=True)]
            self._write([column.title for column in self._columns], is_heading=True)
        *columns, last = self._columns
        *beside, text = cells
        out: list[str] = []
        used = 0
        for column, cell, width in zip(columns, beside, self._widths[:-1], strict=True):
            # Measured before it is coloured: colour codes take no columns.
            gap = " " * (width - _columns(cell))
            style = "bright_black" if is_heading else column.styles.get(cell, column.style)
            out.append(self._output.style(gap + cell if column.is_right else cell + gap, style))
            used += _columns(cell) + len(gap) + 2
        gap = " " * (self._widths[-1] - _columns(text)) if last.is_right else ""
        first, *more = [text] if is_heading else self._fit(text, last, used + len(gap))
        out.append(gap + self._output.style(first, "bright_black" if is_heading else last.style))
        for line in ("  ".join(out).rstrip(), *more):
            self._output.line(line)

    def _fit(self, text: str, column: Column, used: int) -> list[str]:
        """Break the last cell into lines that fit beside the `used` columns of the others; lines after the first are indented."""
        width = self._output.width
        if width is None:
            return [text]
        if column.is_cut:
            return [cut(text, max(8, width - used))]
        if width - used >= min(_WRAPPED_MIN, _columns(text)):
            first, *more = wrap(text, width - used)
            return [first, *(" " * used + line for line in more)]
        return ["", *(f"    {line}" for line in wrap(text, max(8, width - 4)))]
