"""Showing an entry: as a line of JSON, a row of a table, or a paragraph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..archive import entry_to_line
from ..errors import DecodeError
from ..tasks.pages import Pages
from .output import Column, Listing, Output, clean

if TYPE_CHECKING:
    from ..entry.message import Entry
    from ..gossip_log import GossipLog

ID_CHARACTERS = 16
"""How much of an id a table shows: at least 56 bits of hash while clocks are below 128, and 40 bits up to a clock of 2 million."""
_PREVIEW_CHARACTERS = 400

ENTRY_COLUMNS = (
    Column("id", style="yellow"),
    Column("clock", is_right=True),
    Column("author", style="cyan"),
    Column("payload", is_cut=True),
)


def short_did(did: str) -> str:
    """The last eight characters of a did, which differ from author to author; the first ones do not."""
    return clean(did[-8:])


def payload_text(entry: Entry, limit: int | None = _PREVIEW_CHARACTERS) -> str:
    """The payload as dag-json, safe to show; at most `limit` characters of it, all if that is None."""
    from ..codec import dag_json

    return clean(dag_json.encode(entry.message.payload).decode()[:limit])


def entry_cells(entry: Entry, out: Output, *, is_void: bool = False) -> tuple[str, str, str, str]:
    """The cells of an entry under `ENTRY_COLUMNS`; a void entry is marked as such."""
    text = payload_text(entry, None if out.width is None else _PREVIEW_CHARACTERS)
    return entry.id[:ID_CHARACTERS], str(entry.clock), short_did(entry.signature.public_key), f"(void) {text}" if is_void else text


def add_entry(listing: Listing, out: Output, entry: Entry, *, is_void: bool) -> bool:
    """Add an entry to a listing under `ENTRY_COLUMNS`; in JSON it is the line that `import` reads, which has no mark for void entries.

    Returns:
        False if the entry is damaged: then nothing was added, and stderr names the entry.
    """
    try:
        if out.is_quiet:
            listing.add(b"", (), id=entry.id)
        elif out.is_json:
            listing.add(entry_to_line(entry), ())
        else:
            listing.add(b"", entry_cells(entry, out, is_void=is_void))
    except DecodeError as error:
        out.note(f"entry {entry.id} is damaged: {error}")
        return False
    return True


def with_void(log: GossipLog, entries: Pages[Entry]) -> Pages[tuple[Entry, bool]]:
    """Iterate over entries, with whether each is void, which means stored without effect in a log with members."""

    async def read_page() -> list[tuple[Entry, bool]]:
        page = await entries.next_page()
        void = await log.find_void([entry.id for entry in page]) if page and log.has_members else ()
        return [(entry, entry.id in void) for entry in page]

    return Pages(read_page)
