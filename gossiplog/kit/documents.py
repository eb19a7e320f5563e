"""Yjs documents by name: an edit is an entry with an update, and a snapshot replaces edits that its author had seen.

The tables say which entries make a document; the bytes stay in the log. An update that is too large for one entry is cut into pieces, which
are entries of their own before it.

Source: docs/pycrdt.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from ..entry.message import Entry
from ..errors import LocalProtocolError, NotFound, Reject
from .part import Appendable, Id, Key, PlainTx, Readable

REPLACED_MAX = 1_024
"""Entries that one snapshot may replace."""
_PIECE_BYTES = 48 * 1024
"""With its envelope, a piece fits into an entry of 65,536 bytes."""
_PIECES_MAX = 512
_AT_ONCE = 8
"""Pieces in one commit."""
_TIME_MAX = 2**53

_Bytes = Annotated[bytes, msgspec.Meta(max_length=_PIECE_BYTES)]


class Edit(msgspec.Struct):
    """An update of a document, or a snapshot of it.

    Attributes:
        update: The update's bytes, without those in `pieces`.
        pieces: The entries with the first bytes of the update, in order.
        replaces: The entries that a snapshot replaces; empty for an edit.
        time: When the author made it, by the author's clock, in milliseconds since 1970.
        metadata: The application's own bytes.
    """

    document: Key
    update: _Bytes
    pieces: Annotated[list[Id], msgspec.Meta(max_length=_PIECES_MAX)] = []
    replaces: Annotated[list[Id], msgspec.Meta(max_length=REPLACED_MAX)] = []
    time: Annotated[int, msgspec.Meta(ge=0, le=_TIME_MAX)] = 0
    metadata: _Bytes = b""


class Documents:
    """Documents by name. Loading one reads few entries, however many edits there were."""

    order_free = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.operations: Mapping[str, type[msgspec.Struct]] = {"edit": Edit}
        self.tables = {f"{name}_edits": "document TEXT, id TEXT, PRIMARY KEY (document, id)"}
        self._insert = f"INSERT INTO {name}_edits VALUES ($1, $2)"
        self._delete = f"DELETE FROM {name}_edits WHERE document = $1 AND id = $2"
        self._ids = f"SELECT id FROM {name}_edits WHERE document = $1 ORDER BY id"
        self._one = f"SELECT 1 FROM {name}_edits WHERE document = $1 AND id = $2"
        self._names = f"SELECT DISTINCT document FROM {name}_edits ORDER BY document"

    async def write(
        self, log: Appendable, document: str, update: bytes, *, replaces: Iterable[str] = (), time: int = 0, metadata: bytes = b""
    ) -> Entry:
        """Append an update. A cancelled call may leave unused pieces in the log.

        Raises:
            LocalProtocolError: The update has more than 24 MiB.
        """
        cut = max(0, len(update) - 1) // _PIECE_BYTES * _PIECE_BYTES
        if cut > _PIECES_MAX * _PIECE_BYTES:
            raise LocalProtocolError(f"an update of {len(update)} bytes, at most {_PIECES_MAX * _PIECE_BYTES} fit")
        payload: dict[str, Any] = {"part": self.name, "op": "edit", "document": document, "update": update[cut:], "time": time}
        pieces = [{"part": self.name, "op": "piece", "data": update[at : at + _PIECE_BYTES]} for at in range(0, cut, _PIECE_BYTES)]
        ids = [entry.id for at in range(0, len(pieces), _AT_ONCE) for entry in await log.append_many(pieces[at : at + _AT_ONCE])]
        optional = {"pieces": ids, "replaces": list(replaces), "metadata": metadata}
        return await log.append(payload | {name: value for name, value in optional.items() if value})

    async def names(self, log: Readable) -> list[str]:
        """Return the names of all documents in order."""
        return [name for (name,) in await log.query(self._names)]

    async def ids(self, log: Readable, document: str) -> list[str]:
        """Return the ids of the entries that make a document, in an order in which their updates can be applied."""
        return [id for (id,) in await log.query(self._ids, document)]

    async def stands(self, log: Readable, document: str, id: str) -> bool:
        """Say whether an entry is part of a document now."""
        return bool(await log.query(self._one, document, id))

    def edit_of(self, entry: Entry) -> Edit | None:
        """Return an entry's edit or snapshot; None if it has neither."""
        payload = entry.payload
        if type(payload) is not dict or (payload.get("part"), payload.get("op")) != (self.name, "edit"):
            return None
        try:
            return msgspec.convert(payload, Edit)
        except msgspec.ValidationError:
            return None

    async def update_of(self, log: Appendable, edit: Edit) -> bytes | None:
        """Return all bytes of an update; None if a piece is missing or malformed, as may be in an edit that `apply` refused."""
        pieces = []
        for id in edit.pieces:
            try:
                pieces.append((await log.get(id)).payload["data"])
            except (NotFound, KeyError, TypeError):
                return None
        return b"".join([*pieces, edit.update]) if all(type(piece) is bytes for piece in pieces) else None

    def apply(self, entry: Entry, operation: Edit, tx: PlainTx) -> None:
        """Add an edit, and remove its ancestors that it replaces."""
        if len(set(operation.pieces)) != len(operation.pieces) or not all(tx.is_ancestor(id, entry.id) for id in operation.pieces):
            raise Reject("pieces that repeat, or are not ancestors", id=entry.id)
        for id in operation.replaces:
            if tx.is_ancestor(id, entry.id):
                tx.execute(self._delete, (operation.document, id))
        tx.execute(self._insert, (operation.document, entry.id))
