"""The writing machine alone: who is in a commit, whose fault it was, what is done again, and what each caller hears."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from log_support import SIGNERS, make

from gossiplog.entry.validation import Outcome, Verdict
from gossiplog.errors import ClosedError, CommitError, ConnectionLost, DamagedLog, Reject, Rejected, StorageFull
from gossiplog.log.applying import OwnFailure
from gossiplog.log.commit import AppendPayloads, Committed, InsertEntries
from gossiplog.log.requests import WriteCursor
from gossiplog.log.writing import (
    ATTEMPTS,
    GROUP_ENTRIES_MAX,
    WAITING_MAX,
    Answer,
    Ended,
    Gather,
    Gathered,
    GroupWritten,
    Report,
    Submitted,
    Tell,
    Unwritten,
    Work,
    Write,
    Writing,
)

ENTRY = make("an entry")
ACCEPTED = Verdict(Outcome.ACCEPT, entry=ENTRY, is_new=True)


def append(count: int = 1, size: int = 1) -> AppendPayloads:
    return AppendPayloads([b"x" * size] * count, SIGNERS[0])


class Driver:
    """Hands events over, keeps what is asked for, and takes answers by ticket."""

    def __init__(self, *, hurries: bool = True) -> None:
        self.machine = Writing(hurries=hurries)
        self.actions: list[Any] = []
        self.write = Write([], {})
        self.answers: dict[Any, Any] = {}

    def handle(self, event: Any) -> list[Any]:
        actions = self.machine.handle(event)
        for action in actions:
            if isinstance(action, Answer):
                assert action.ticket not in self.answers
                self.answers[action.ticket] = action.outcome
            elif isinstance(action, Write):
                self.write = action
        self.actions = actions
        return actions

    def submit(self, ticket: Any, work: Work | None = None) -> list[Any]:
        return self.handle(Submitted(work or append(), ticket))

    def submit_behind_one(self, *tickets: Any) -> None:
        """Have a piece under way, and others wait."""
        self.submit("first")
        for ticket in tickets:
            assert self.submit(ticket) == []

    def succeed(self) -> list[Any]:
        write = self.write
        return self.handle(GroupWritten(Committed(outcomes=[write.failed.get(index, [ACCEPTED]) for index in range(len(write.works))])))

    def close_group(self) -> None:
        """Bring what is under way to its end, and begin with what waits."""
        assert self.succeed()[-1] == Gather()
        self.handle(Gathered())

    @property
    def tickets(self) -> list[Any]:
        return [piece.ticket for piece in self.write.pieces]


def test_small_piece_that_comes_alone_is_written_at_once() -> None:
    driver = Driver()
    for number in range(3):
        driver.submit(number)
        assert driver.tickets == [number] and driver.answers.keys() == set(range(number))
        assert driver.succeed() == [Tell(Committed(outcomes=[[ACCEPTED]])), Answer(number, [ACCEPTED])]
    assert driver.machine.is_idle


@pytest.mark.parametrize("work", [append(17), append(1, 2**17), InsertEntries([ENTRY] * 17)])
def test_large_piece_gives_others_a_turn_to_join_it(work: Work) -> None:
    driver = Driver()
    assert driver.submit("large", work) == [Gather()]
    assert driver.submit("small") == []
    driver.handle(Gathered())
    assert driver.tickets == ["large", "small"]


def test_where_applications_are_run_even_a_small_piece_gives_others_a_turn() -> None:
    driver = Driver(hurries=False)
    assert driver.submit("small") == [Gather()]


def test_what_comes_while_one_is_under_way_is_the_next_commit_in_its_order() -> None:
    driver = Driver()
    driver.submit_behind_one(*range(10))
    assert driver.machine.waiting == 10 and driver.answers == {}
    assert driver.succeed() == [Tell(Committed(outcomes=[[ACCEPTED]])), Answer("first", [ACCEPTED]), Gather()]
    assert driver.submit("told just now, and has more") == []
    driver.handle(Gathered())
    assert driver.tickets == [*range(10), "told just now, and has more"]
    assert [type(action) for action in driver.succeed()] == [Tell, *[Answer] * 11]
    assert driver.machine.is_idle
    # Where several write, the first of them waits for the others.
    assert driver.submit("again") == [Gather()]


def test_commit_ends_with_the_piece_that_fills_it_and_waiting_has_an_end() -> None:
    driver = Driver()
    driver.submit("first")
    for number in range(WAITING_MAX):
        assert driver.machine.has_room
        driver.submit(number, append(300))
    assert not driver.machine.has_room
    driver.close_group()
    assert driver.tickets == [0, 1, 2, 3] and driver.machine.has_room
    driver.close_group()
    assert driver.tickets == [4, 5, 6, 7]
    assert sum(piece.size for piece in driver.write.pieces[:-1]) < GROUP_ENTRIES_MAX


def test_bytes_count_as_entries() -> None:
    driver = Driver()
    driver.submit_behind_one()
    for number in range(10):
        driver.submit(number, append(1, 4_000_000))
    driver.close_group()
    assert driver.tickets == [0, 1, 2]


def test_a_cursor_is_answered_with_nothing_and_counts_as_no_work() -> None:
    driver = Driver()
    driver.submit("first")
    driver.submit("cursor", WriteCursor("reader", 7))
    driver.submit("append")
    driver.close_group()
    assert len(driver.write.works) == 1 and driver.write.own == {0}
    driver.succeed()
    assert driver.answers["cursor"] == [] and driver.answers["append"] == [ACCEPTED]


@pytest.mark.parametrize("error", [CommitError("not this"), RuntimeError("no key")])
@pytest.mark.parametrize("bad", [{0}, {6}, {3, 4}, set(range(7))])
def test_the_one_whose_fault_it_was_is_found_and_the_others_are_committed_in_their_order(error: Exception, bad: set[int]) -> None:
    driver = Driver()
    driver.submit_behind_one(*range(7))
    driver.close_group()
    driver.submit("meanwhile")
    commits = 0
    while any(number not in driver.answers for number in range(7)):
        assert "meanwhile" not in driver.tickets
        commits += 1
        if bad.intersection(driver.tickets):
            driver.handle(Unwritten(error))
        else:
            driver.succeed()
    assert list(driver.answers) == ["first", *range(7)]
    assert {ticket for ticket, outcome in driver.answers.items() if outcome is error} == bad
    assert commits <= 1 + 2 * 3 * len(bad)
    driver.handle(Gathered())
    assert driver.tickets == ["meanwhile"]


@pytest.mark.parametrize("error", [StorageFull("no space"), DamagedLog("a page")])
def test_what_the_store_cannot_do_is_told_to_all_of_the_group_at_once(error: Exception) -> None:
    driver = Driver()
    driver.submit_behind_one(*range(4))
    driver.close_group()
    driver.submit("meanwhile")
    assert driver.handle(Unwritten(error)) == [Report(error), *(Answer(number, error) for number in range(4)), Gather()]


def test_a_store_that_fails_while_the_fault_is_looked_for_fails_those_that_were_in_the_group() -> None:
    driver, error = Driver(), StorageFull("no space")
    driver.submit_behind_one(*range(4))
    driver.close_group()
    driver.submit("meanwhile")
    driver.handle(Unwritten(CommitError("one of these")))
    assert driver.tickets == [0, 1]
    driver.handle(Unwritten(error))
    assert [driver.answers.get(number) for number in range(4)] == [error] * 4 and "meanwhile" not in driver.answers


def test_a_connection_that_breaks_is_put_up_with_five_times() -> None:
    driver, error = Driver(), ConnectionLost("gone")
    driver.submit_behind_one("a", "b")
    driver.close_group()
    for _ in range(ATTEMPTS - 1):
        driver.handle(Unwritten(error))
        assert driver.tickets == ["a", "b"] and len(driver.actions) == 1
    assert driver.handle(Unwritten(error)) == [Report(error), Answer("a", error), Answer("b", error)]
    # The next commit has its own five.
    driver.submit("c")
    driver.handle(Unwritten(error))
    assert driver.tickets == ["c"]
    driver.succeed()
    assert driver.answers["c"] == [ACCEPTED]


def test_appends_that_apply_raises_about_are_left_out_and_the_rest_is_committed_with_their_errors() -> None:
    driver, fault = Driver(), ValueError("not so")
    driver.submit_behind_one(*range(4))
    driver.close_group()
    driver.handle(Unwritten(OwnFailure({1: Reject("no")})))
    assert driver.tickets == [0, 1, 2, 3] and driver.write.failed.keys() == {1}
    # What is known is not forgotten when the connection breaks.
    driver.handle(Unwritten(ConnectionLost("gone")))
    driver.handle(Unwritten(OwnFailure({3: fault})))
    assert driver.write.failed.keys() == {1, 3}
    driver.succeed()
    assert driver.answers[0] == driver.answers[2] == [ACCEPTED] and driver.answers[3] is fault
    assert isinstance(driver.answers[1], Rejected) and str(driver.answers[1]) == "apply refused the entry: no"


def test_the_end_answers_whatever_is_left_and_a_late_turn_does_nothing() -> None:
    driver = Driver()
    driver.submit_behind_one("waits", "waits too")
    driver.handle(Ended())
    assert [type(driver.answers[ticket]) for ticket in ("first", "waits", "waits too")] == [ClosedError] * 3
    assert driver.machine.is_idle and driver.handle(Gathered()) == []


def draws(rng: random.Random) -> Iterator[Exception | None]:
    while True:
        yield rng.choice([None, None, None, CommitError("one"), StorageFull("all"), ConnectionLost("again"), RuntimeError("one")])


@pytest.mark.parametrize("seed", range(50))
def test_whatever_happens_each_is_answered_once_in_the_order_of_submission(seed: int) -> None:
    rng, driver = random.Random(seed), Driver()
    fates, submitted, is_over = draws(rng), 0, False
    pending: list[Any] = []
    while not is_over:
        if submitted < 200 and (not pending or rng.random() < 0.7):
            pending += driver.submit(submitted, append(rng.choice([1, 1, 5, 400])))
            submitted += 1
            continue
        is_over = not pending
        open_ones = [action for action in pending if isinstance(action, Write | Gather)]
        assert len(open_ones) <= 1 and (open_ones or driver.machine.is_idle)
        pending = []
        if open_ones and isinstance(open_ones[0], Gather):
            pending = driver.handle(Gathered())
        elif open_ones:
            error = next(fates)
            pending = driver.succeed() if error is None else driver.handle(Unwritten(error))
    assert list(driver.answers) == list(range(200))
