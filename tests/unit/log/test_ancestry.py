"""Questions about the graph, against a search by brute force, and what they cost."""

from itertools import product
from random import Random

import pytest
from log_support import Graph, make, make_history

from gossiplog.entry import Entry
from gossiplog.errors import DamagedLog, NotFound
from gossiplog.log.ancestry import AncestorQuery, AncestorWalk, children, position
from gossiplog.log.commit import InsertEntries, LogRules, commit
from gossiplog.log.requests import ReadValues
from gossiplog.plan import Request, run_plan
from gossiplog.store.memory.state import MemoryState


class CountedLog:
    """A log in memory that counts the requests it answers."""

    def __init__(self, entries: list[Entry], batch: int = 50) -> None:
        self.state = MemoryState()
        self.requests = 0
        for low in range(0, len(entries), batch):
            writes: list[Request] = []
            run_plan(
                commit([InsertEntries(entries[low : low + batch])], LogRules("t"), now=0.0), lambda request: self._commit(request, writes)
            )
            for request in writes:
                self.state.write(request)

    def _commit(self, request: Request, writes: list[Request]):
        if type(request).__name__.startswith("Write"):
            writes.append(request)
            return None
        return self.state.answer(request)

    def run(self, plan):
        self.requests = 0

        def answer(request):
            self.requests += 1
            return self.state.answer(request)

        return run_plan(plan, answer)

    def at(self, entry: Entry):
        return self.run(position(entry.key))

    def is_ancestor(self, a: Entry, b: Entry) -> bool:
        answer = self.run(AncestorQuery(a.key, b.key).run())
        assert answer is not None
        # Both ends have to be found first.
        self.requests -= 1
        return answer


@pytest.mark.parametrize("seed", range(12))
def test_ancestors_are_those_that_a_search_finds(seed) -> None:
    random = Random(seed)
    history = make_history(random, 60, recent=random.choice([2, 4, 10, 60]), parents_max=random.choice([1, 2, 6]))
    graph, log = Graph(history), CountedLog(history, random.choice([1, 7, 60]))
    for a, b in product(history, history):
        assert log.is_ancestor(a, b) == (a.key in graph.ancestors[b.key]), (a, b)
        several = random.sample(history, random.randint(1, 5))
        answer = log.run(AncestorQuery(a.key, *[each.key for each in several]).run())
        assert answer == any(a.key in graph.ancestors[each.key] for each in several), (a, several)
    for entry in history:
        assert log.run(children(log.at(entry))) == graph.children(entry.key)


def test_a_long_chain_is_one_branch_and_costs_a_few_requests() -> None:
    chain = [make(0)]
    for number in range(1, 3_000):
        chain.append(make(number, [chain[-1]]))
    log = CountedLog(chain, 1_000)
    assert {log.at(entry).branch for entry in chain} == {0}
    assert log.is_ancestor(chain[0], chain[-1])
    assert log.requests <= 2
    assert not log.is_ancestor(chain[-1], chain[0])
    assert log.requests == 0


def test_two_writers_that_merge_again_and_again_cost_the_branches_and_not_the_entries() -> None:
    history = [make("root")]
    tip = history[0]
    for number in range(60):
        left, right = [tip], [tip]
        for part in range(8):
            left.append(make([number, part, "left"], [left[-1]]))
            right.append(make([number, part, "right"], [right[-1]]))
        history += left[1:] + right[1:]
        tip = make([number, "merge"], [left[-1], right[-1]])
        history.append(tip)
    log = CountedLog(history, 200)
    assert log.is_ancestor(history[1], tip)
    branches = len({log.at(entry).branch for entry in history})
    assert log.is_ancestor(history[1], tip) and log.requests <= 4 * branches + 8
    assert not log.is_ancestor(history[-2], history[-10]) and log.requests <= 4 * branches + 8


def make_crowd(random: Random, writers: int, rounds: int) -> list[list[Entry]]:
    """Many writers, each of which builds on its own last entry and on those that two others had a while ago."""
    made = [[make(["first", number])] for number in range(writers)]
    for number in range(rounds):
        for mine in random.sample(made, writers):
            others = random.sample([other for other in made if other is not mine], 2)
            mine.append(make(number, [mine[-1], *[other[-min(3, len(other))] for other in others]]))
    return made


def test_concurrent_entries_among_many_branches_cost_a_short_walk() -> None:
    made = make_crowd(Random(3), 12, 40)
    history = sorted([entry for mine in made for entry in mine], key=lambda entry: entry.key)
    graph, log = Graph(history), CountedLog(history, 100)
    answers, worst = set(), 0
    for a, b in product(made[0][::4], made[1][::4]):
        is_below = a.key in graph.ancestors[b.key]
        assert log.is_ancestor(a, b) == is_below
        answers.add(is_below)
        between = sum(entry.key > a.key for entry in history if entry.key in graph.ancestors[b.key])
        # One request for each clock of the walk, and as many links of the search as the walk has entries.
        assert log.requests <= 2 * between + 8, (a, b)
        worst = max(worst, log.requests)
    assert answers == {True, False} and worst > 20


def test_asking_about_many_descendants_at_once_costs_less_than_each() -> None:
    made = make_crowd(Random(5), 30, 12)
    history = sorted([entry for mine in made for entry in mine], key=lambda entry: entry.key)
    graph, log = Graph(history), CountedLog(history, 100)
    ends, asked, alone = [mine[-2] for mine in made[1:]], 0, 0
    for a in made[0]:
        answer = log.run(AncestorQuery(a.key, *[end.key for end in ends]).run())
        asked += log.requests
        assert answer == any(a.key in graph.ancestors[end.key] for end in ends)
        for end in ends:
            log.is_ancestor(a, end)
            alone += log.requests
    assert asked * 4 < alone


def test_a_query_that_is_interrupted_goes_on_and_always_answers() -> None:
    made = make_crowd(Random(4), 6, 10)
    history = sorted([entry for mine in made for entry in mine], key=lambda entry: entry.key)
    graph, log = Graph(history), CountedLog(history)
    a, b = made[0][3], made[1][-1]
    query, hops = AncestorQuery(a.key, b.key), 0
    answer = log.run(query.run(lambda: True))
    assert answer is None and log.requests == 1
    while answer is None:
        calls = iter([False, True])
        answer = log.run(query.run(lambda calls=calls: next(calls)))
        hops += 1
    assert answer == (a.key in graph.ancestors[b.key]) and hops > 1
    with pytest.raises(NotFound):
        log.run(AncestorQuery(a.key, make("missing").key).run())


def test_an_entry_is_not_its_own_ancestor_nor_that_of_its_equals() -> None:
    a, b = make("a"), make("b")
    log = CountedLog([a, b])
    assert not log.is_ancestor(a, a)
    assert not log.is_ancestor(a, b)
    assert log.run(position(make("missing").key)) is None


def test_a_walk_gives_each_ancestor_once_highest_first_a_page_at_a_time() -> None:
    history = make_history(Random(5), 80)
    graph, log = Graph(history), CountedLog(history)
    walk = AncestorWalk(history[-1])
    found = []
    while page := log.run(walk.page(7)):
        assert len(page) <= 7
        found += [entry.key for entry in page]
    assert found == sorted(graph.ancestors[history[-1].key], reverse=True)


def test_a_walk_that_meets_a_gap_says_that_the_log_is_damaged() -> None:
    a = make("a")
    b = make("b", [a])
    log = CountedLog([a, b])
    walk = AncestorWalk(b)
    with pytest.raises(DamagedLog, match=a.id):
        run_plan(walk.page(5), lambda request: {} if isinstance(request, ReadValues) else log.state.answer(request))
