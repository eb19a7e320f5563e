"""The plan of a commit, answered by hand: what it asks, what it writes, and what it does not."""

import pytest
from log_support import SIGNERS, TOPIC, make

from gossiplog.codec import pcf
from gossiplog.entry import Outcome, clock_of
from gossiplog.errors import EncodeError, NotAuthorised, Rejected
from gossiplog.log.access import AccessRule, Void
from gossiplog.log.commit import AppendPayloads, InsertEntries, LogRules, commit, restore
from gossiplog.log.requests import ReadBranchTips, ReadCount, ReadHeads, ReadLeaves, Row, WriteEntries
from gossiplog.plan import run_plan
from gossiplog.store.memory.state import MemoryState


class Store:
    """A log in memory that keeps the requests of the last plan."""

    def __init__(self) -> None:
        self.state = MemoryState()

    def plan(self, plan):
        """Run a plan and keep what it writes to itself."""
        self.asked, self.written = [], []

        def answer(request):
            if type(request).__name__.startswith("Write"):
                self.written.append(request)
                return None
            self.asked.append(request)
            return self.state.answer(request)

        return run_plan(plan, answer)

    def commit(self, *work, failed=None, **rules):
        committed = self.plan(commit(work, LogRules(TOPIC, **rules), now=17.0, failed=failed))
        for request in self.written:
            self.state.write(request)
        return committed


def payloads(*values) -> AppendPayloads:
    return AppendPayloads([pcf.encode(value) for value in values], SIGNERS[0])


def written_rows(store: Store) -> list[Row]:
    return [row for request in store.written if isinstance(request, WriteEntries) for row in request.rows]


def test_a_batch_is_one_write_of_entries_and_few_questions() -> None:
    store = Store()
    store.commit(payloads(1))
    store.commit(payloads(*range(500)), InsertEntries([make("x")]), payloads("y"))
    kinds = [type(request) for request in store.asked]
    assert [kinds.count(kind) for kind in (ReadHeads, ReadLeaves, ReadBranchTips, ReadCount)] == [1, 1, 1, 1]
    assert len(store.asked) < 12
    assert [type(request) for request in store.written] == [WriteEntries]
    assert [row.seq for row in written_rows(store)] == list(range(2, 504))


def test_nothing_is_written_where_nothing_is_new() -> None:
    store = Store()
    a = make("a")
    store.commit(InsertEntries([a]))
    committed = store.commit(InsertEntries([a, make("c", [make("b")])]))
    assert store.written == []
    assert [verdict.rule for verdict in committed.outcomes[0]] == [None, "parents"]
    assert committed.entries == []
    assert store.commit().outcomes == []


def test_outcomes_come_in_the_order_of_the_work() -> None:
    store = Store()
    a = make("a")
    committed = store.commit(InsertEntries([a]), payloads("over a"), InsertEntries([a]), payloads("too large" * 99), value_bytes_max=400)
    first, second, third, fourth = committed.outcomes
    assert [verdict.is_new for verdict in first] == [True]
    assert second[0].entry.parent_keys == (a.key,)
    assert [(verdict.accepted, verdict.is_new) for verdict in third] == [(True, False)]
    assert isinstance(fourth, EncodeError)
    assert list(committed.owners.values()) == [0, 1]


def test_an_append_over_inserts_of_its_batch_merges_their_heads() -> None:
    store = Store()
    a, b = make("a"), make("b")
    committed = store.commit(InsertEntries([a, b]), payloads("c", "d"))
    c, d = (verdict.entry for verdict in committed.outcomes[1])
    assert list(c.parent_keys) == sorted([a.key, b.key])
    assert d.parent_keys == (c.key,)
    assert store.state.answer(ReadHeads()) == [d.key]


def test_what_failed_before_is_left_out_of_the_next_attempt() -> None:
    store = Store()
    a, b = make("a"), make("b")
    error = Rejected("no")
    committed = store.commit(InsertEntries([a, b]), payloads("c"), failed={1: error})
    assert committed.outcomes[1] is error
    assert [row.key for row in written_rows(store)] == [a.key, b.key]


def test_an_access_rule_is_asked_before_anything_is_added() -> None:
    store = Store()
    committed = store.commit(payloads("a", "b", "c"), rule=AccessRule(lambda message, did: message.payload != "c", asks_past=False))
    assert isinstance(committed.outcomes[0], NotAuthorised)
    assert store.written == []


def test_what_descends_from_a_refused_entry_is_void_and_the_oldest_makes_room(monkeypatch) -> None:
    store, void = Store(), Void()
    rule = AccessRule(lambda message, did: message.payload != "a", asks_past=False)
    a = make("a")
    b = make("b", [a])
    c = make("c", [make("gone"), b])
    committed = store.commit(InsertEntries([a, b, c]), rule=rule, void=void)
    assert [(verdict.outcome, verdict.rule) for verdict in committed.outcomes[0]] == [(Outcome.IGNORE, "access")] * 3
    assert [entry.key for entry, _ in void.take_news()] == [a.key]
    assert store.written == []
    monkeypatch.setattr("gossiplog.log.access.VOID_MAX", 2)
    void.add(b"new", "why")
    assert a.key not in void and b"new" in void


def test_each_branch_is_a_chain_of_parents() -> None:
    store = Store()
    a = make("a")
    b, c = make("b", [a]), make("c", [a])
    d = make("d", [b, c])
    e = make("e", [c])
    store.commit(InsertEntries([a, b, c, d, e]))
    rows = {row.key: row for row in written_rows(store)}
    by_key = {entry.key: entry for entry in (a, b, c, d, e)}
    last: dict[int, bytes] = {}
    for row in written_rows(store):
        if row.branch in last:
            assert last[row.branch] in by_key[row.key].parent_keys
        last[row.branch] = row.key
        assert row.clock == clock_of(row.key)
    assert rows[a.key].branch == rows[b.key].branch == 0
    (write,) = store.written
    assert all(link.reach >= link.parent.clock for link in write.links)


def test_restored_entries_keep_their_seq_and_orphans_stay_out() -> None:
    store = Store()
    a = make("a")
    b = make("b", [a])
    orphan = make("o", [make("gone")])
    verdicts = store.plan(restore([(4, a), (7, orphan), (9, b)], LogRules(TOPIC), now=0.0))
    assert [(verdict.accepted, verdict.rule) for verdict in verdicts] == [(True, None), (False, "parents"), (True, None)]
    assert [row.seq for row in written_rows(store)] == [4, 9]


def test_a_signer_that_raises_ends_the_plan_with_nothing_written() -> None:
    class Broken:
        did, codec = SIGNERS[0].did, "dag-cbor"

        def sign(self, data: bytes) -> bytes:
            raise OSError("gone")

    store = Store()
    with pytest.raises(OSError, match="gone"):
        store.commit(payloads("fine"), AppendPayloads([b"\x01"], Broken()))
    assert store.written == []
