"""Raw values in hexadecimal, one per line: the barest form in which another implementation can hand over entries."""

from __future__ import annotations

from collections.abc import Iterator

from .records import BLOCK_BYTES_MAX, BinaryReader, Record, read_lines

__all__ = ["read_hex_values"]


def read_hex_values(file: BinaryReader) -> Iterator[Record]:
    """Yield a record for every line that is not blank: the VALUE that its hexadecimal digits (either case) spell.

    The values are not validated. Lines longer than a VALUE may be, and lines that are not hexadecimal, are faults; reading goes on.
    """
    for number, line in read_lines(file, 2 * BLOCK_BYTES_MAX + 64):
        place = f"line {number}"
        if line is None or len(line) > 2 * BLOCK_BYTES_MAX:
            yield Record(place, fault=f"longer than the {BLOCK_BYTES_MAX} bytes that a VALUE may have")
            continue
        try:
            # bytes.fromhex would let spaces pass between digits; a value is one word.
            value = bytes.fromhex(line.decode("ascii")) if b" " not in line and b"\t" not in line else None
        except ValueError:
            value = None
        if value is None:
            yield Record(place, fault="not hexadecimal")
        else:
            yield Record(place, value=value)
