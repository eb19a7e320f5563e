"""Files: each version is one entry that announces it, and one entry per chunk of its bytes.

The tables say which entries hold the chunks. The bytes stay in the log, so nothing is stored twice, and reading holds one chunk in memory.

Source: docs/kit.md, "Files".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ..entry.message import Entry
from .part import Appendable, Id, Key, PlainTx, Readable

CHUNK_BYTES = 48 * 1024
"""With its envelope, a chunk fits into an entry of 65,536 bytes."""
_AT_ONCE = 8
"""Chunks in one commit."""
_SIZE_MAX = 2**40


class _Begin(msgspec.Struct):
    path: Key
    size: Annotated[int, msgspec.Meta(ge=0, le=_SIZE_MAX)]
    chunks: Annotated[int, msgspec.Meta(ge=0, le=_SIZE_MAX)]


class _Chunk(msgspec.Struct):
    file: Id
    index: Annotated[int, msgspec.Meta(ge=0, le=_SIZE_MAX)]
    data: bytes


class _Remove(msgspec.Struct):
    path: Key


class Files:
    """Files by path. Of a file's complete versions, `read` returns the one with the highest id."""

    order_free = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.operations: Mapping[str, type[msgspec.Struct]] = {"begin": _Begin, "chunk": _Chunk, "remove": _Remove}
        self.tables = {
            f"{name}_files": "id TEXT PRIMARY KEY, path TEXT NOT NULL, author TEXT NOT NULL, size BIGINT, chunks BIGINT",
            f"{name}_chunks": "file TEXT, author TEXT, position BIGINT, id TEXT NOT NULL, PRIMARY KEY (file, author, position)",
        }
        # Only the chunks of a file's author count; of two for one position the lower id stands, whichever came first.
        self._write = (
            f"INSERT INTO {name}_chunks VALUES ($1, $2, $3, $4) ON CONFLICT (file, author, position) DO UPDATE"
            f" SET id = excluded.id WHERE excluded.id < {name}_chunks.id"
        )

        self._places = (
            f"SELECT c.position, c.id FROM {name}_chunks c JOIN {name}_files f ON f.id = c.file AND f.author = c.author"
            " WHERE f.id = $1 AND c.position < f.chunks"
        )
        self._there = f"(SELECT count(*) FROM {name}_chunks c WHERE c.file = f.id AND c.author = f.author AND c.position < f.chunks)"

    async def write(self, log: Appendable, path: str, source: Path | bytes) -> str:
        """Append a version of a file, 8 chunks a commit, and return its id. If cancelled, `unfinished` has the id for `resume`."""
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        chunks = -(-size // CHUNK_BYTES)
        begun = await log.append({"part": self.name, "op": "begin", "path": path, "size": size, "chunks": chunks})
        await self.resume(log, begun.id, source)
        return begun.id

    async def resume(self, log: Appendable, file: str, source: Path | bytes) -> None:
        """Append the missing chunks of a version."""
        rows = await log.query(self._places, file)
        there = {position for position, _ in rows}
        payloads = []
        for index, chunk in enumerate(_chunks_of(source)):
            if index not in there:
                payloads.append({"part": self.name, "op": "chunk", "file": file, "index": index, "data": chunk})
            if len(payloads) == _AT_ONCE:
                await log.append_many(payloads)
                payloads = []
        await log.append_many(payloads)

    def remove(self, path: str) -> dict[str, Any]:
        """Return the payload that removes a file."""
        return {"part": self.name, "op": "remove", "path": path}

    async def items(self, log: Readable) -> dict[str, int]:
        """Return the size of each complete file, in order of the paths."""
        return {path: size for path, (size, _) in sorted((await self._versions(log)).items())}

    async def versions(self, log: Readable) -> dict[str, str]:
        """Return the id of each file's version that `read` reads, in order of the paths."""
        return {path: id for path, (_, id) in sorted((await self._versions(log)).items())}

    async def unfinished(self, log: Readable, author: str) -> dict[str, str]:
        """Return each path's last incomplete version by an author, for `resume`."""
        rows = await log.query(
            f"SELECT f.path, f.id FROM {self.name}_files f WHERE f.author = $1 AND f.chunks > {self._there}",
            author,
        )
        return dict(sorted(rows, key=lambda row: row[1]))

    async def read(self, log: Appendable, path: str) -> AsyncIterator[bytes]:
        """Iterate over a file's bytes, a chunk at a time; nothing if there is no such file."""
        versions = await self._versions(log, path)
        if path in versions:
            rows = await log.query(self._places, versions[path][1])
            for _, id in sorted(rows):
                yield (await log.get(id)).payload["data"]

    def apply(self, entry: Entry, operation: _Begin | _Chunk | _Remove, tx: PlainTx) -> None:
        """Write a version, a removal, or the position of a chunk."""
        if isinstance(operation, _Chunk):
            tx.execute(self._write, (operation.file, entry.author, operation.index, entry.id))
            return
        size, chunks = (operation.size, operation.chunks) if isinstance(operation, _Begin) else (None, None)
        tx.execute(f"INSERT INTO {self.name}_files VALUES ($1, $2, $3, $4, $5)", (entry.id, operation.path, entry.author, size, chunks))

    async def _versions(self, log: Readable, path: str | None = None) -> dict[str, tuple[int, str]]:
        """Return the size and the id of the version to read, of each file or of one."""
        where, parameters = ("", ()) if path is None else (" WHERE f.path = $1", (path,))
        rows = await log.query(
            f"SELECT f.path, f.id, f.size, f.chunks, {self._there} FROM {self.name}_files f{where}",
            *parameters,
        )
        found: dict[str, tuple[int, str] | None] = {}
        for row_path, id, size, chunks, there in sorted(rows, key=lambda row: row[1]):
            if chunks is None or chunks == there:
                found[row_path] = None if chunks is None else (size, id)
        return {row_path: version for row_path, version in found.items() if version is not None}


def _chunks_of(source: Path | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield from (source[start : start + CHUNK_BYTES] for start in range(0, len(source), CHUNK_BYTES))
        return
    with source.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
