"""Damage to a log's file: which page belongs to what, and pages, rows and pointers put wrong."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path


def damage(path: Path, *statements: str) -> None:
    """Change rows behind the log's back; each statement must find something to change."""
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            assert db.execute(statement).rowcount != 0, statement
        db.commit()


class Pages:
    """The pages of a file that nobody has open, as SQLite's B-trees have them.

    Attributes:
        size: Bytes of a page.
        roots: The number of the root page of each table and index.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(sqlite3.connect(path)) as db:
            self.roots = dict(db.execute("SELECT name, rootpage FROM sqlite_master"))
            self.size = db.execute("PRAGMA page_size").fetchone()[0]
        self.data = bytearray(path.read_bytes())
        self.count = len(self.data) // self.size

    def at(self, page: int) -> int:
        """Where a page's own header begins; the first page has the file's before it."""
        return (page - 1) * self.size + (100 if page == 1 else 0)

    def kind(self, page: int) -> int:
        """The type byte: 2 and 5 inner pages of an index and a table, 10 and 13 their leaves."""
        return self.data[self.at(page)]

    def pointers(self, page: int) -> list[int]:
        """Where in the file an inner page names its children, in order, the last one included."""
        at = self.at(page)
        count = int.from_bytes(self.data[at + 3 : at + 5])
        cells = [int.from_bytes(self.data[at + 12 + 2 * index : at + 14 + 2 * index]) for index in range(count)]
        return [*[(page - 1) * self.size + cell for cell in cells], at + 8]

    def children(self, page: int) -> list[int]:
        """The children of an inner page."""
        return [int.from_bytes(self.data[at : at + 4]) for at in self.pointers(page)]

    def leaves(self, name: str) -> list[int]:
        """The leaf pages of a table or an index, in order."""
        level = [self.roots[name]]
        while self.kind(level[0]) in (2, 5):
            level = [child for page in level for child in self.children(page)]
        return level

    def fill(self, page: int, noise: bytes) -> None:
        """Overwrite a page from its beginning."""
        self.data[(page - 1) * self.size : (page - 1) * self.size + len(noise)] = noise

    def point(self, page: int, child: int, target: int) -> None:
        """Have an inner page's child of this index be another page."""
        at = self.pointers(page)[child]
        self.data[at : at + 4] = target.to_bytes(4)

    def write(self) -> None:
        """Write the file."""
        self._path.write_bytes(bytes(self.data))


def send_back(path: Path, table: str = "gossiplog_entries") -> None:
    """Have the last rows of a table lead back to its first ones, so that whoever goes on after the last row he got never ends."""
    pages = Pages(path)
    root = pages.roots[table]
    pages.point(root, -1, pages.children(root)[0])
    pages.write()


def share_pages(path: Path, table: str, levels: int = 6) -> None:
    """Put levels of inner pages over a table, each of which names the one below hundreds of times: more paths than anybody can follow."""
    pages = Pages(path)
    size, root, leaf = pages.size, pages.roots[table], pages.leaves(table)[0]
    first = (leaf - 1) * size + int.from_bytes(pages.data[pages.at(leaf) + 8 : pages.at(leaf) + 10])
    is_table = pages.kind(leaf) == 13
    # Of an index: the length, below 128, and the row. Of a table: the number of the row.
    key = b"\x01" if is_table else bytes(pages.data[first : first + 1 + pages.data[first]])
    count = min(400, (size - 12) // (len(key) + 6))
    moved = bytes(pages.data[(root - 1) * size : root * size])
    for level in range(levels):
        child = pages.count + level + 1
        cell = child.to_bytes(4) + key
        begin = size - count * len(cell)
        head = bytes([5 if is_table else 2, 0, 0]) + count.to_bytes(2) + begin.to_bytes(2) + b"\0" + child.to_bytes(4)
        page = head + b"".join((begin + index * len(cell)).to_bytes(2) for index in range(count))
        page = page.ljust(begin, b"\0") + cell * count
        if level == 0:
            pages.fill(root, page)
        else:
            pages.data += page
    pages.data += moved
    # The file's header says how many pages there are.
    pages.data[28:32] = (pages.count + levels).to_bytes(4)
    pages.write()


def rows(path: Path, statement: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
    """What a statement returns, in a connection of its own."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(statement, parameters).fetchall()


_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")


def hot_journal(path: Path, names: Path | None, *, pages: int = 0, before: int | None = None) -> bytes:
    """A journal that SQLite rolls back when it next opens the file for writing.

    Args:
        path: Of the file.
        names: The super-journal that it names, which is deleted when that is done.
        pages: How many pages, from the first on, it restores to what they are now.
        before: How many pages the file had before the transaction; as many as now, if None.
    """
    data = path.read_bytes()
    size = int.from_bytes(data[16:18])
    count = len(data) // size if before is None else before
    head = _JOURNAL_MAGIC + b"".join(number.to_bytes(4) for number in (pages, 7, count, 512, size))
    records = b""
    for number in range(pages):
        page = data[number * size : (number + 1) * size]
        checksum = (7 + sum(page[at] for at in range(size - 200, 0, -200))) & 0xFFFFFFFF
        records += (number + 1).to_bytes(4) + page + checksum.to_bytes(4)
    if names is None:
        return head.ljust(512, b"\0") + records
    # SQLite sums a name's bytes as signed ones.
    name = os.fsencode(names)
    total = sum(byte - 256 if byte > 127 else byte for byte in name) & 0xFFFFFFFF
    lock_page = 0x40000000 // size + 1
    tail = lock_page.to_bytes(4) + name + len(name).to_bytes(4) + total.to_bytes(4) + _JOURNAL_MAGIC
    return head.ljust(512, b"\0") + records + tail
