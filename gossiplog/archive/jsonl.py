"""JSON lines: one entry per line in dag-json, in the form of the reference's HTTP API and of `gossiplog log --json`.

    {"id":"…","message":{"clock":…,"parents":["…"],"payload":…,"topic":"…"},"signature":{"codec":"…","publicKey":"…","signature":{"/":{"bytes":"…"}}}}

dag-json keeps what JSON alone would lose (bytes, links, 2^53 as a float), and VALUE is canonical. So the signed and hashed bytes can be
rebuilt from a line, and the id shows whether that worked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ..codec import dag_json, pcf
from ..codec.clock import CLOCK_MAX
from ..entry.envelope import build_value
from ..entry.message_id import decode_id, is_id
from ..entry.rules import PARENTS_MAX
from ..errors import DecodeError, EncodeError
from .records import BLOCK_BYTES_MAX, LINE_BYTES_MAX, BinaryReader, Record, read_lines

if TYPE_CHECKING:
    from ..entry.message import Entry

DEPTH_MAX = pcf.DEPTH_MAX + 2
"""The line itself adds two levels to the payload's."""
_SMALL = frozenset({"clock", "codec", "parents", "publicKey", "signature", "topic"})
_SMALL_BYTES_MAX = 64 * PARENTS_MAX
"""Parents take the most of this, at 34 bytes each."""


def entry_to_line(entry: Entry) -> bytes:
    """Return an entry as a line of dag-json, UTF-8, without the newline.

    Raises:
        DecodeError: The entry's VALUE is damaged.
    """
    message, signature = entry.message, entry.signature
    return dag_json.encode(
        {
            "id": entry.id,
            "signature": {"codec": signature.codec, "publicKey": signature.public_key, "signature": signature.signature},
            "message": {"topic": message.topic, "clock": message.clock, "parents": list(message.parents), "payload": message.payload},
        },
        depth_max=DEPTH_MAX,
    )


def line_to_value(line: bytes) -> tuple[bytes, str | None]:
    """Build the VALUE that a line describes; return it with the id that the line claims, or None without one.

    Only the form is checked: the value may break any rule of `validate`, and the id may be another entry's.

    Raises:
        DecodeError: The line is not dag-json, lacks a field, has one of another type, or describes more than a VALUE may have.
    """
    record = dag_json.decode(line, depth_max=DEPTH_MAX)
    entry_id = record.get("id") if isinstance(record, dict) else None
    if entry_id is not None and not (isinstance(entry_id, str) and is_id(entry_id)):
        raise DecodeError("the id is not one")
    return record_to_value(record), entry_id


def record_to_value(record: Any) -> bytes:
    """Build the VALUE of `{"message": {…}, "signature": {…}}`, a decoded line. Checks and raises as `line_to_value`."""
    message = _field(record, "message", dict)
    if "payload" not in message:
        raise DecodeError("payload is missing")
    try:
        payload = pcf.encode(message["payload"], depth_max=pcf.DEPTH_MAX, bytes_max=BLOCK_BYTES_MAX)
    except EncodeError as error:
        raise DecodeError(f"the payload has no canonical form: {error}") from error
    return _join(message, _field(record, "signature", dict), payload)


def cbor_to_value(data: bytes) -> bytes:
    """Build the VALUE of the same record in PCF. The payload is checked and copied without building its value.

    Raises:
        DecodeError: It is not in PCF, lacks a field, or has one of another type.
    """
    found: dict[str, dict[str, bytes]] = {"": {}, "message": {}, "signature": {}}

    def check_value(within: str, key: str, start: int) -> int:
        if not within and key in found:
            return pcf.check_map(data, start, partial(check_value, key))
        end = pcf.check(data, start)
        found[within][key] = data[start:end]
        return end

    end = pcf.check_map(data, 0, partial(check_value, ""))
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes follow the record")
    payload = found["message"].pop("payload", None)
    if payload is None:
        raise DecodeError("payload is missing")
    message, signature = [
        {key: pcf.decode(item) for key, item in found[name].items() if key in _SMALL and len(item) <= _SMALL_BYTES_MAX}
        for name in ("message", "signature")
    ]
    return _join(message, signature, payload)


def _join(message: dict[str, Any], signature: dict[str, Any], payload: bytes) -> bytes:
    parents = _field(message, "parents", list)
    if len(parents) > PARENTS_MAX:
        raise DecodeError(f"{len(parents)} parents, at most {PARENTS_MAX}")
    clock = _field(message, "clock", int)
    if not 0 <= clock <= CLOCK_MAX:
        raise DecodeError(f"clock {clock} is out of range")
    keys = [_parent_key(parent) for parent in parents]
    codec, did, raw = _field(signature, "codec", str), _field(signature, "publicKey", str), _field(signature, "signature", bytes)
    try:
        return build_value(codec, did, raw, _field(message, "topic", str), clock, keys, payload)
    except UnicodeEncodeError as error:
        raise DecodeError("a text contains half a surrogate pair") from error


def read_json_lines(file: BinaryReader) -> Iterator[Record]:
    """Yield a record for each line that is not blank; a line that is not an entry is a fault, and reading continues after it."""
    return (json_record(f"line {number}", line) for number, line in read_lines(file, LINE_BYTES_MAX))


def json_record(place: str, line: bytes | None) -> Record:
    """Return the record of one line; None stands for a line of more than 25 MiB."""
    if line is None:
        return Record(place, fault=f"longer than {LINE_BYTES_MAX} bytes")
    try:
        value, entry_id = line_to_value(line)
    except DecodeError as error:
        return Record(place, fault=f"not an entry: {error}")
    return Record(place, value=value, id=entry_id)


def _field(record: Any, name: str, kind: type[Any]) -> Any:
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DecodeError(f"{name} is {'missing' if value is None else 'of another type'}")
    return value


def _parent_key(parent: Any) -> bytes:
    if not isinstance(parent, str):
        raise DecodeError("a parent is not an id")
    return decode_id(parent)
