"""Full-text search and R-trees among an application's tables: SQLite's own virtual tables work, and harm the log no more than others."""

import contextlib
import sqlite3

import pytest
from log_support import assert_whole, make, opened

from gossiplog import Application
from gossiplog.errors import LocalProtocolError, StatementError
from gossiplog.testing import check_convergence

MODULES = {
    "fts5": ("CREATE VIRTUAL TABLE found USING fts5(text, id UNINDEXED)", "SELECT text FROM found WHERE found MATCH 'tea' ORDER BY text"),
    "fts4": ("CREATE VIRTUAL TABLE found USING fts4(text, id)", "SELECT text FROM found WHERE text MATCH 'tea' ORDER BY text"),
    "fts3": ("CREATE VIRTUAL TABLE found USING fts3(text, id)", "SELECT text FROM found WHERE text MATCH 'tea' ORDER BY text"),
}


def search(create: str) -> Application:
    def reset(tx) -> None:
        tx.execute("DROP TABLE IF EXISTS found")
        tx.execute(create)

    def apply(entries, tx) -> None:
        for entry in entries:
            if not isinstance(entry.payload, str):
                continue
            tx.execute("INSERT INTO found (text, id) VALUES ($1, $2)", [entry.payload, entry.id])
            if "bad" in entry.payload:
                raise ValueError(entry.payload)

    return Application("search", 1, apply, reset)


@pytest.fixture(params=["sqlite", "memory"])
def location(request, tmp_path):
    return ":memory:" if request.param == "memory" else tmp_path / "log.db"


@pytest.mark.parametrize("module", MODULES)
async def test_full_text_search_follows_the_entries(location, module) -> None:
    create, query = MODULES[module]
    application = search(create)
    async with opened(location, app=application) as log:
        await log.append_many(["green tea", "coffee", "black tea"])
        assert await log.query(query) == [("black tea",), ("green tea",)]
        # What is set aside leaves nothing in the index, and what came with it is there.
        await log.insert_many([make("bad tea").value, make("white tea").value])
        assert await log.query(query) == [("black tea",), ("green tea",), ("white tea",)]
        with pytest.raises(ValueError, match="bad"):
            await log.append_many(["herbal tea", "bad"])
        await log.rebuild()
        assert await log.query(query) == [("black tea",), ("green tea",), ("white tea",)]
        assert await log.query("SELECT count(*) FROM found") == [(4,)]
        await assert_whole(log)
    if location != ":memory:":
        async with opened(location, read_only=True) as log:
            assert await log.query(query) == [("black tea",), ("green tea",), ("white tea",)]


async def test_an_r_tree_is_read_by_a_query_that_may_not_write_to_it(location) -> None:
    def reset(tx) -> None:
        tx.execute("DROP TABLE IF EXISTS places")
        tx.execute("CREATE VIRTUAL TABLE places USING rtree(id, west, east, south, north)")

    def apply(entries, tx) -> None:
        tx.execute_many("INSERT INTO places VALUES ($1, $2, $2, $3, $3)", [entry.payload for entry in entries])

    application = Application("places", 1, apply, reset)
    async with opened(location, app=application) as log:
        await log.append_many([[n, n, -n] for n in range(100)])
        for _ in range(2):
            assert await log.query("SELECT id FROM places WHERE west >= 10 AND east <= 12 ORDER BY id") == [(10,), (11,), (12,)]
            for statement in ("DELETE FROM places", "DELETE FROM places_node", "INSERT INTO places_rowid VALUES (7, 7)"):
                with pytest.raises(LocalProtocolError, match="a query may not write"):
                    await log.query(statement)
        await log.append([100, 100, -100])
        assert await log.query("SELECT count(*) FROM places") == [(101,)]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("CREATE VIRTUAL TABLE gossiplog USING fts5(a)", "may not touch gossiplog_data: it belongs to the log"),
        ("CREATE VIRTUAL TABLE gossiplog USING fts4(a)", "may not touch gossiplog_content: it belongs to the log"),
        ("CREATE VIRTUAL TABLE gossiplog USING rtree(a, b, c)", "may not touch gossiplog_rowid: it belongs to the log"),
        ("CREATE VIRTUAL TABLE gossiplog_x USING fts5(a)", "may not touch gossiplog_x: it belongs to the log"),
        ("ALTER TABLE found RENAME TO gossiplog", "may not rename"),
        ("alter table found /* */ rename to 'GossipLog'", "may not rename"),
        ("ALTER TABLE plain RENAME TO gossiplog_x", "may not rename"),
        ('ALTER TABLE plain RENAME TO "Gossiplog_entries2"', "may not rename"),
        ("CREATE VIRTUAL TABLE pages USING dbstat", "may not make a virtual table of dbstat, only of fts3, "),
        ("CREATE VIRTUAL TABLE rows USING csv(filename='/etc/passwd')", "may not make a virtual table of csv"),
        ("PRAGMA page_size = 512", "may not touch page_size"),
        ("PRAGMA cache_size", "may not touch cache_size"),
    ],
)
async def test_a_virtual_table_does_not_get_at_the_log(location, statement, reason) -> None:
    async def apply(entries, tx) -> None:
        await tx.execute("CREATE VIRTUAL TABLE IF NOT EXISTS found USING fts5(text)")
        await tx.execute("CREATE TABLE IF NOT EXISTS plain (a)")
        with pytest.raises(LocalProtocolError, match=reason):
            await tx.execute(statement)

    async with opened(location, apply=apply) as log:
        await log.append("a")
        await assert_whole(log)
    async with opened(location, apply=apply) as log:
        await log.append("b")


async def test_an_index_that_contradicts_its_table_is_not_a_damaged_log(location) -> None:
    """An index over a table of the application's: told to forget words that are not in it, FTS5 calls itself malformed."""
    raised: list[str] = []

    async def apply(entries, tx) -> None:
        await tx.execute("CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text)")
        await tx.execute("CREATE VIRTUAL TABLE IF NOT EXISTS found USING fts5(text, content=notes, content_rowid=id)")
        await tx.execute("INSERT INTO found (rowid, text) VALUES ($1, 'green tea')", [entries[0].clock])
        with pytest.raises(StatementError, match="malformed") as caught:
            await tx.execute("INSERT INTO found (found, rank) VALUES ('integrity-check', 1)")
        raised.append(caught.value.hint or "")

    async with opened(location, apply=apply) as log:
        await log.append("a")
        assert len(raised) == 1 and "log.rebuild()" in raised[0]
        await assert_whole(log)


def test_the_checker_compares_what_an_index_finds_and_not_how_it_is_cut_up() -> None:
    for create, _ in MODULES.values():
        check_convergence(search(create), ["green tea", "coffee", "black tea"], refusals=(ValueError,), seeds=range(20))


def test_every_module_that_is_allowed_exists_here() -> None:
    from gossiplog.store.statements import _VIRTUAL

    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        assert set(_VIRTUAL) <= {name for (name,) in db.execute("SELECT name FROM pragma_module_list")}
