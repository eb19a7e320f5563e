"""The convergence checker finds planted faults, passes what is right, and prints histories that fail again."""

import sqlite3
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from planted_applications import FAULTS, ITEMS, SETS, operation, tables
from right_applications import RIGHT

from gossiplog import Application
from gossiplog.errors import LocalProtocolError
from gossiplog.testing import Delivered, History, NotConvergent, Rebuild, Written, check_convergence, check_history

KINDS = {
    "wall_clock": "the clock",
    "calendar_day": "the clock",
    "clock_of_the_database": "the clock",
    "choice_by_chance": "chance",
    "name_by_chance": "chance",
    "bucket_by_hash": "a hash that is another one in every process",
    "first_of_a_set": "another process",
    "unguarded_payload": "apply raised",
    "unguarded_value": "apply raised StatementError",
    "missing_reset": "tables",
    "entry_that_must_be_somewhere": "apply raised AttributeError",
    "balance_that_two_may_spend": "invariant never_negative",
}
"""What must be said of those for which it is not simply that the tables differ."""


def test_there_are_enough_of_them() -> None:
    assert len(FAULTS) >= 20
    assert len(RIGHT) >= 10


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_is_found(name: str) -> None:
    fault = FAULTS[name]
    with pytest.raises(NotConvergent) as caught:
        check_convergence(fault.application, fault.operations, invariants=fault.invariants)
    kind = KINDS.get(name, "tables")
    assert caught.value.kind.startswith(kind)
    assert len(caught.value.history.entries) <= 4 or "did not fail again" in str(caught.value), caught.value


@pytest.mark.parametrize("name", RIGHT)
def test_right_application_passes(name: str) -> None:
    it = RIGHT[name]
    check_convergence(it.application, it.operations, shown=it.shown, seeds=range(20), other_processes=name == "set_in_order")


@pytest.mark.parametrize("name", RIGHT)
def test_right_application_passes_while_members_come_and_go(name: str) -> None:
    it = RIGHT[name]
    check_convergence(it.application, it.operations, shown=it.shown, seeds=range(8), other_processes=False, policy=True)


def test_what_depends_on_a_standing_is_checked_and_one_that_remembers_the_removed_is_found() -> None:
    def reset(tx) -> None:
        tx.execute("DROP TABLE IF EXISTS said")
        tx.execute("CREATE TABLE said (id TEXT, node TEXT, person TEXT)")

    def apply(entries, tx) -> None:
        for entry in entries:
            tx.execute("INSERT INTO said VALUES (?, ?, ?)", (entry.id, entry.standing.node, entry.standing.person))

    def undo(entries, tx) -> None:
        tx.execute_many("DELETE FROM said WHERE id = ?", [(entry.id,) for entry in entries])

    for options in ({}, {"undo": undo}, {"undo": undo, "order_free": True}):
        check_convergence(Application("said", 1, apply, reset, **options), ["a", "b"], policy=True, seeds=range(12), other_processes=False)

    def first(entries, tx) -> None:
        # Who wrote first here, whether or not it is void later.
        for entry in entries:
            tx.execute("INSERT INTO said SELECT ?, '', '' WHERE NOT EXISTS (SELECT 1 FROM said)", (entry.author,))

    with pytest.raises(NotConvergent, match="policy=True") as caught:
        check_convergence(
            Application("said", 1, first, reset, order_free=True, undo=lambda entries, tx: None), ["a"], policy=True, other_processes=False
        )
    with pytest.raises(NotConvergent, match="tables"):
        check_history(Application("said", 1, first, reset, undo=lambda entries, tx: None), caught.value.history, policy=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_right_application_passes_many_histories(name: str) -> None:
    it = RIGHT[name]
    check_convergence(it.application, it.operations, shown=it.shown, seeds=range(150))


def printed_test(caught: pytest.ExceptionInfo[NotConvergent]) -> str:
    return str(caught.value).partition("as a test:\n\n")[2]


@pytest.mark.parametrize("name", ["missing_reset", "first_of_a_set", "balance_that_two_may_spend"])
def test_history_that_is_printed_is_a_test_that_fails(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    with pytest.raises(NotConvergent) as caught:
        check_convergence(fault.application, fault.operations, invariants=fault.invariants)
    program = printed_test(caught)
    beside = f"from planted_applications import FAULTS, never_negative\n\napplication = FAULTS[{name!r}].application\n"
    (tmp_path / f"test_pasted_{name}.py").write_text(f"{program}\n\n\n{beside}")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NotConvergent) as again:
        import_module(f"test_pasted_{name}").test_application_on_the_history_that_failed()
    assert again.value.kind == caught.value.kind


def test_application_is_called_by_its_name_where_the_caller_has_one() -> None:
    with pytest.raises(NotConvergent, match=r"check_history\(BY_ARRIVAL, history\)"):
        check_convergence(BY_ARRIVAL, SETS)


BY_ARRIVAL = FAULTS["last_writer_by_arrival"].application


def test_smallest_history_is_a_small_one() -> None:
    with pytest.raises(NotConvergent) as caught:
        check_convergence(BY_ARRIVAL, SETS)
    history = caught.value.history
    assert (len(history.entries), history.replicas) == (2, 1)
    assert {entry.author for entry in history.entries} == {0}
    assert len(history.steps) <= 1


def test_same_seeds_show_the_same() -> None:
    fault = FAULTS["counter_without_author"]
    messages = set()
    for _ in range(2):
        with pytest.raises(NotConvergent) as caught:
            check_convergence(fault.application, fault.operations, seeds=range(7, 30))
        messages.add(str(caught.value))
    assert len(messages) == 1


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_hypothesis_may_draw_the_lots(random) -> None:
    check_convergence(RIGHT["last_writer_by_id"].application, SETS, seeds=[random], other_processes=False)


def test_hypothesis_finds_a_fault() -> None:
    @settings(max_examples=30, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
    @given(st.integers(0, 2**32))
    def run(seed: int) -> None:
        check_convergence(BY_ARRIVAL, SETS, seeds=[seed], other_processes=False)

    with pytest.raises(NotConvergent):
        run()


async def test_it_may_be_called_within_a_running_event_loop() -> None:
    check_convergence(RIGHT["last_writer_that_awaits"].application, SETS, seeds=range(3), other_processes=False)


def test_ids_in_payloads_follow_what_shrinking_leaves_out() -> None:
    fault = FAULTS["ids_outside_the_ancestors"]
    with pytest.raises(NotConvergent) as caught:
        check_convergence(fault.application, fault.operations)
    payloads = [entry.payload for entry in caught.value.history.entries]
    assert any(payload.get("over") == f"<entry {number}>" for payload in payloads for number in range(2))


def test_awaiting_anything_else_is_the_callers_mistake() -> None:
    class Never:
        def __await__(self):
            yield

    async def apply(entries, tx) -> None:
        await Never()

    with pytest.raises(LocalProtocolError, match="something other than its transaction"):
        check_convergence(Application("waits", 1, apply), [1])


def test_an_abort_leaves_nothing_behind_and_is_made_good() -> None:
    history = History(
        entries=[Written(0, [], SETS[0]), Written(1, [0], SETS[4])],
        steps=[Delivered(0, [0, 1], aborted_after=1), Rebuild(0, 1, aborted_after=3), Delivered(1, [1], aborted_after=0)],
        replicas=2,
    )
    check_history(RIGHT["last_writer_by_id"].application, history)


@pytest.mark.parametrize("size", [1, 3])
def test_two_equal_entries_of_a_history_are_one_for_the_log_and_keep_their_numbers(size: int) -> None:
    same, last = Written(0, [], SETS[0]), Written(1, [1], {**SETS[4], "over": "<entry 2>"})
    history = History(
        entries=[same, same, Written(0, [0], SETS[1]), last, last],
        steps=[Delivered(0, [0, 1], aborted_after=1), Delivered(0, [1, 2, 4]), Rebuild(0, size), Delivered(1, [4, 3, 1])],
        replicas=2,
    )
    applied = []

    def apply(entries, tx) -> None:
        applied.append([entry.payload for entry in entries])
        tx.execute_many("INSERT INTO items VALUES (?, ?)", [[entry.id, entry.payload.get("over")] for entry in entries])

    application = Application("ids", 1, apply, tables("CREATE TABLE items (id TEXT PRIMARY KEY, value)"))
    check_history(application, history)
    assert max(map(len, applied)) == 3 and all("<entry" not in str(payloads) for payloads in applied)


def test_shrinking_that_makes_two_entries_equal_goes_on() -> None:
    """Payloads get plainer until they are the same, and so do their authors."""
    texts = [{"op": "set", "key": "a", "value": 1, "text": text} for text in ("xa", "xb", "xc", "xd")]

    def apply(entries, tx) -> None:
        for entry in entries:
            if operation(entry, "set"):
                tx.execute("INSERT OR IGNORE INTO items VALUES (?, ?, '')", [entry.clock, str(entry.payload.get("text"))[:1] + entry.id])

    with pytest.raises(NotConvergent) as caught:
        check_convergence(Application("first", 1, apply, tables(ITEMS)), texts, other_processes=False)
    assert caught.value.kind == "tables" and len(caught.value.history.entries) == 2


def test_refusals_are_what_the_caller_says() -> None:
    application = FAULTS["unguarded_payload"].application
    check_convergence(application, SETS, refusals=(Exception,), other_processes=False)


def counting(undo_entries) -> Application:
    """Counts what is said; `undo_entries` takes some of it back."""

    def reset(tx) -> None:
        tx.execute("DROP TABLE IF EXISTS counts")
        tx.execute("CREATE TABLE counts (word TEXT PRIMARY KEY, number INTEGER)")

    def apply(entries, tx) -> None:
        for entry in entries:
            if isinstance(entry.payload, str):
                add = "INSERT INTO counts VALUES ($1, 1) ON CONFLICT (word) DO UPDATE SET number = number + 1"
                tx.execute(add, (entry.payload,))

    return Application("counts", 1, apply, reset, order_free=True, undo=undo_entries)


def test_undo_must_leave_what_would_be_there_without_the_entries() -> None:
    def undo(entries, tx) -> None:
        for entry in entries:
            if isinstance(entry.payload, str):
                tx.execute("UPDATE counts SET number = number - 1 WHERE word = $1", (entry.payload,))

    def undo_wholly(entries, tx) -> None:
        undo(entries, tx)
        tx.execute("DELETE FROM counts WHERE number = 0")

    check_convergence(counting(undo_wholly), ["a", "b"], seeds=range(20))
    with pytest.raises(NotConvergent) as caught:
        check_convergence(counting(undo), ["a", "b"], seeds=range(20))
    assert caught.value.kind == "undo"
    assert len(caught.value.history.entries) == 1


def test_tables_are_closed_though_they_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, connect = [], sqlite3.connect

    def kept(*args, **options) -> sqlite3.Connection:
        opened.append(connect(*args, **options))
        return opened[-1]

    def reset(tx) -> None:
        raise ValueError("no tables")

    monkeypatch.setattr(sqlite3, "connect", kept)
    with pytest.raises(ValueError, match="no tables"):
        check_convergence(Application("none", 1, lambda entries, tx: None, reset), ["a"], seeds=range(2), other_processes=False)
    assert opened
    for database in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            database.execute("SELECT 1")
