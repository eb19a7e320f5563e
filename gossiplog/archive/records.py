"""The records that readers of files yield: one per entry, and one for each place where an entry should be but is not.

The simplest form is one raw value in hexadecimal per line, which any implementation can write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from ..codec.framing import VALUE_BYTES_MAX

BLOCK_BYTES_MAX = VALUE_BYTES_MAX
"""No VALUE is larger."""
LINE_BYTES_MAX = 25 * 1024 * 1024
"""Room for a VALUE of 4 MiB of control characters, each of which takes six characters of JSON."""
_SKIP_BYTES = 64 * 1024


class BinaryReader(Protocol):
    """The part of a binary file that readers use."""

    def read(self, size: int, /) -> bytes:
        """Read `size` bytes; fewer only at the end, and none after it."""

    def readline(self, size: int, /) -> bytes:
        """Read up to and including the next newline, at most `size` bytes."""


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of a file, or one fault.

    Attributes:
        place: Where it begins: `line 3`, or `byte 120` of the (decompressed) file.
        value: VALUE, not yet validated; None for a fault.
        id: The id that the file claims, if its format carries one and it is well formed enough to report.
        fault: Why there is no value; None if there is one.
        is_truncated: The file ended inside this record, or cannot be read past it; what followed is unknown.
    """

    place: str
    value: bytes | None = None
    id: str | None = None
    fault: str | None = None
    is_truncated: bool = False


def read_lines(file: BinaryReader, line_bytes_max: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield `(line number from 1, line without its newline)`, None for a line longer than `line_bytes_max` bytes.

    Blank lines are skipped but counted. Memory stays within two lines, whatever the file holds.
    """
    number = 0
    while line := file.readline(line_bytes_max + 1):
        number += 1
        if len(line) > line_bytes_max and not line.endswith(b"\n"):
            skip_line(file)
            yield number, None
        elif line := line.strip():
            yield number, line


def skip_line(file: BinaryReader) -> None:
    """Read to the end of a line."""
    while (rest := file.readline(_SKIP_BYTES)) and not rest.endswith(b"\n"):
        pass


def read_hex_values(file: BinaryReader) -> Iterator[Record]:
    """Yield a record for each line that is not blank: the VALUE in its hexadecimal digits, of either case.

    The values are not validated. Lines longer than any VALUE, and lines that are not hexadecimal, are faults; reading continues.
    """
    return (hex_record(f"line {number}", line) for number, line in read_lines(file, 2 * BLOCK_BYTES_MAX + 64))


def hex_record(place: str, line: bytes | None) -> Record:
    """Return the record of one line; None stands for a line longer than any VALUE."""
    if line is None or len(line) > 2 * BLOCK_BYTES_MAX:
        return Record(place, fault=f"longer than the {BLOCK_BYTES_MAX} bytes that a VALUE may have")
    try:
        # bytes.fromhex would accept spaces between digits; a value is one word.
        value = bytes.fromhex(line.decode("ascii")) if b" " not in line and b"\t" not in line else None
    except ValueError:
        value = None
    return Record(place, value=value, fault="not hexadecimal" if value is None else None)
