"""Entries in files: JSON lines, CAR and hexadecimal values, written losslessly and read without trusting a byte of them."""

from .car import CarHeader, car_block, car_cid, car_header, read_car, read_car_header
from .jsonl import entry_to_line, line_to_value, read_json_lines
from .parents import FileParents
from .records import BLOCK_BYTES_MAX, LINE_BYTES_MAX, Record, read_hex_values
from .source import ArchiveFormat, ArchiveSource, format_of_name, read_archive, sniff

__all__ = [
    "BLOCK_BYTES_MAX",
    "LINE_BYTES_MAX",
    "ArchiveFormat",
    "ArchiveSource",
    "CarHeader",
    "FileParents",
    "Record",
    "car_block",
    "car_cid",
    "car_header",
    "entry_to_line",
    "format_of_name",
    "line_to_value",
    "read_archive",
    "read_car",
    "read_car_header",
    "read_hex_values",
    "read_json_lines",
    "sniff",
]
