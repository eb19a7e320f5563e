"""The intake alone: what is refused, verified, let in, inserted, given back and decided, in which order and how often."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from broadcast_support import ALICE, BOB, TOPIC, Log, chain, forged, insert_of
from hypothesis import given, settings
from hypothesis import strategies as st

from gossiplog.broadcast import allowance
from gossiplog.broadcast.actions import (
    AskLog,
    BatchDecided,
    EntriesAppended,
    EntryDecided,
    EntryForeseen,
    InsertBatch,
    InsertEntry,
    VerifyBatch,
)
from gossiplog.broadcast.allowance import Allowance, Bringer, Quota
from gossiplog.broadcast.broadcast import Broadcast
from gossiplog.broadcast.events import (
    BatchBrought,
    BatchInserted,
    BatchVerified,
    Connected,
    Disconnected,
    EntriesCommitted,
    LogAnswered,
    NotStored,
    PeerKind,
    PushReceived,
    StartBroadcast,
)
from gossiplog.broadcast.intake import ARRIVED_MAX, BATCH_ENTRIES, LEARN_FIRST_S, LEARN_MOST_S, LEARN_TOKEN, TOGETHER_MAX, Intake
from gossiplog.broadcast.shared_router import SharedRouter
from gossiplog.entry.message import Entry
from gossiplog.entry.signing import Ed25519Signer
from gossiplog.entry.validation import Outcome, Rule, Verdict, validate
from gossiplog.log.requests import ReadHeads
from gossiplog.pubsub.actions import SetTimer
from gossiplog.pubsub.params import FloodsubParams
from gossiplog.pubsub.routers.floodsub import Floodsub


class Rules:
    """The rules of a server, which a test may replace."""

    def __init__(self, quota: Quota | None = None, allow: Sequence[str] | None = None) -> None:
        self.quota = quota or Quota()
        self.allow = allow
        self.out: Mapping[str, str] = {}
        self.full = ""

    def of(self, topic: str) -> "Rules":
        return self

    def removed(self, topic: str) -> Mapping[str, str]:
        return self.out


class Driver:
    """Answers what the intake asks for when it is told to, over a log in memory."""

    def __init__(self) -> None:
        self.intake = Intake()
        self.log = Log()
        self.now = 0.0
        self.tokens = 0
        self.steps: list[Any] = []
        self.waiting: list[Any] = []
        # Every step there was.
        self.all: list[Any] = []
        self.offered: list[InsertEntry] = []

    def tell(self, event: Any) -> list[Any]:
        return self.take(self.intake.handle(event, self.now))

    def take(self, steps: Sequence[Any]) -> list[Any]:
        self.steps = list(steps)
        self.all += steps
        self.waiting += [step for step in steps if isinstance(step, VerifyBatch | InsertBatch)]
        return self.steps

    def offer(self, entry: Entry, source: str = "a", bringer: Bringer | None = None, key: bytes | None = None) -> list[Any]:
        self.tokens += 1
        self.offered.append(InsertEntry(self.tokens, key or entry.key, entry.value, source, bringer or Bringer(is_client=True)))
        return self.tell(self.offered[-1])

    def bring(self, ticket: int, entries: Sequence[Entry], way: str = "sync", bringer: Bringer | None = None) -> list[Any]:
        return self.tell(BatchBrought(ticket, way, [(entry.key, entry.value) for entry in entries], bringer or Bringer()))

    def answer(self, step: Any = None) -> list[Any]:
        """Answer one step, the oldest unless it is named, as a log would."""
        step = step or self.waiting[0]
        self.waiting.remove(step)
        if isinstance(step, VerifyBatch):
            return self.tell(BatchVerified(step.token, [validate(value, topic=TOPIC) for value in step.values]))
        verdicts = [self.log.insert(verdict.entry) for verdict in step.verdicts if verdict.entry is not None]
        new = [verdict.entry for verdict in verdicts if verdict.is_new and verdict.entry is not None]
        before = self.tell(EntriesCommitted(new)) if new else []
        return before + self.tell(BatchInserted(step.token, verdicts))

    def answer_all(self, random: Random | None = None) -> None:
        while self.waiting:
            self.answer(random.choice(self.waiting) if random else None)

    def of(self, kind: type) -> list[Any]:
        return [step for step in self.all if isinstance(step, kind)]

    def decided(self) -> list[tuple[str, bytes, str | None]]:
        return [(step.entry.source, step.entry.key, step.verdict.rule) for step in self.of(EntryDecided)]


def by(number: int, payload: Any = "theirs") -> Entry:
    """An entry without parents of some writer."""
    return Log().append(payload, Ed25519Signer(bytes([number]) * 32))


def test_entry_is_verified_then_inserted_then_decided() -> None:
    driver, entry = Driver(), by(1)
    (verify,) = driver.offer(entry)
    assert isinstance(verify, VerifyBatch) and list(verify.values) == [entry.value]
    (insert,) = driver.answer()
    assert isinstance(insert, InsertBatch) and [verdict.entry for verdict in insert.verdicts] == [entry]
    (decided,) = driver.answer()
    assert isinstance(decided, EntryDecided) and decided.verdict.is_new and decided.entry is driver.offered[0]


def test_what_is_invalid_or_under_a_false_key_is_decided_without_the_log() -> None:
    driver = Driver()
    driver.offer(forged(by(1)))
    driver.answer_all()
    driver.offer(by(2), key=bytes(20))
    driver.answer_all()
    assert [rule for *_, rule in driver.decided()] == [Rule.SIGNATURE, Rule.KEY]
    assert not driver.of(InsertBatch)


def test_bad_entries_keep_none_of_their_neighbours_back_and_each_verdict_falls_on_who_brought_it() -> None:
    driver = Driver()
    good = [by(number) for number in range(1, 5)]
    for number, entry in enumerate(good):
        driver.offer(entry, f"good {number}")
        driver.offer(forged(by(10 + number)), f"bad {number}")
    driver.answer_all()
    rules = {source: rule for source, _, rule in driver.decided()}
    assert rules == {**{f"good {number}": None for number in range(4)}, **{f"bad {number}": Rule.SIGNATURE for number in range(4)}}


def test_queue_has_one_batch_being_verified_one_that_waits_and_the_rest_gathers() -> None:
    driver = Driver()
    entries = [by(number) for number in range(1, 30)]
    for entry in entries[:10]:
        driver.offer(entry)
    (verify,) = driver.waiting
    assert len(verify.values) == 1
    driver.answer(verify)
    insert, verify = driver.waiting
    assert len(insert.verdicts) == 1 and len(verify.values) == 9
    # Nine are too many to join the one that is being inserted, and nothing is verified beside what waits.
    driver.answer(verify)
    for entry in entries[10:]:
        driver.offer(entry)
    assert driver.waiting == [insert]
    assert len(driver.intake) == 19
    driver.answer(insert)
    insert, verify = driver.waiting
    assert len(insert.verdicts) == 9 and len(verify.values) == 19
    driver.answer_all()
    assert [key for _, key, _ in driver.decided()] == [entry.key for entry in entries]


def test_entries_that_come_one_by_one_do_not_wait_for_each_others_commit_up_to_a_few() -> None:
    driver = Driver()
    for number in range(1, TOGETHER_MAX + 3):
        driver.offer(by(number))
        for step in [step for step in driver.waiting if isinstance(step, VerifyBatch)]:
            driver.answer(step)
    assert len(driver.waiting) == TOGETHER_MAX and all(isinstance(step, InsertBatch) for step in driver.waiting)
    driver.answer_all()
    assert len(driver.decided()) == TOGETHER_MAX + 2


def test_who_sends_much_waits_for_itself() -> None:
    driver = Driver()
    driver.offer(by(1), "greedy")
    for number in range(2 * BATCH_ENTRIES):
        driver.offer(by(2, number), "greedy")
    driver.offer(by(3), "modest")
    driver.answer()
    (_, verify) = driver.waiting
    assert len(verify.values) == BATCH_ENTRIES and by(3).value in verify.values


def test_all_but_clients_share_one_lane_so_that_what_the_mesh_brings_keeps_its_order() -> None:
    driver, (parent, child) = Driver(), chain(2)
    driver.offer(by(1), "client")
    for number in range(BATCH_ENTRIES):
        driver.offer(by(2, number), "mesh 0", Bringer())
    driver.offer(parent, "mesh 0", Bringer())
    driver.offer(child, "mesh 1", Bringer())
    driver.answer_all()
    assert [key for _, key, _ in driver.decided()] == [entry.key for entry in driver.offered]
    assert all(rule is None for *_, rule in driver.decided())


def test_client_that_was_over_a_limit_is_refused_before_anything_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "MINUTE_S", 60.0)
    rules = Rules(Quota(entries_per_minute=2))
    bringer = Bringer(Allowance(TOPIC, rules), is_client=True)
    driver = Driver()
    for entry in chain(3):
        driver.offer(entry, "client", bringer)
        driver.answer_all()
    assert [rule for *_, rule in driver.decided()] == [None, None, Rule.QUOTA]
    assert "again in 30 s" in driver.of(EntryDecided)[-1].verdict.reason
    (verify,) = driver.offer(chain(4)[3], "client", bringer)
    assert list(verify.values) == []
    driver.answer_all()
    # The driver is asked all the same: it knows when others have their turn.
    assert driver.decided()[-1][2] == Rule.QUOTA
    # A little later one more is taken, and it is no longer asked first.
    driver.now = 31.0
    driver.offer(chain(3)[2], "client", bringer)
    driver.answer_all()
    assert driver.decided()[-1][2] is None and not bringer.is_over


@pytest.mark.parametrize(("quota", "rule"), [(Quota(entries_per_minute=2), Rule.QUOTA), (Quota(entries_per_writer=2), Rule.UNWELCOME)])
def test_those_who_were_removed_together_bring_as_much_as_one_writer(quota: Quota, rule: Rule) -> None:
    rules = Rules(quota)
    allowed = Allowance(TOPIC, rules)
    allowed.on_all_read()
    driver = Driver()

    def brought(signer: Ed25519Signer, number: int) -> Rule | None:
        driver.offer(Log().append(number, signer), "client", Bringer(allowed, is_client=True))
        driver.answer_all()
        return driver.decided()[-1][2]

    assert [brought(ALICE, 1), brought(BOB, 1), brought(BOB, 2)] == [None] * 3
    # Bob has brought all that he may, and Alice not; then both are removed, by one revocation.
    rules.out = {ALICE.did: "a revocation", BOB.did: "a revocation"}
    assert brought(ALICE, 2) == (rule if quota.counts_totals else None)
    driver.now = 60.0
    assert [brought(ALICE, 3), brought(BOB, 3), brought(ALICE, 4)] == ([rule] * 3 if quota.counts_totals else [None, None, rule])
    # It is void itself.
    rules.out = {}
    assert brought(ALICE, 5) is None


def test_what_turns_out_to_be_here_already_is_not_charged() -> None:
    bringer = Bringer(Allowance(TOPIC, Rules(Quota(entries_per_minute=2))), is_client=True)
    driver, (first, second, third) = Driver(), chain(3)
    for entry in (first, first, first, second, third):
        driver.offer(entry, "client", bringer)
        driver.answer_all()
    assert [rule for *_, rule in driver.decided()] == [None, None, None, None, Rule.QUOTA]


def test_what_could_not_be_stored_is_given_back() -> None:
    bringer = Bringer(Allowance(TOPIC, Rules(Quota(entries_per_minute=1))), is_client=True)
    driver, (entry,) = Driver(), chain(1)
    driver.offer(entry, "client", bringer)
    driver.answer()
    (insert,) = driver.waiting
    driver.waiting.clear()
    (decided,) = driver.tell(BatchInserted(insert.token, NotStored("the disk is full")))
    assert (decided.verdict.rule, decided.verdict.reason, decided.verdict.entry) == (Rule.STORAGE, "the disk is full", entry)
    driver.offer(entry, "client", bringer)
    driver.answer_all()
    assert driver.decided()[-1][2] is None


def test_rules_belong_to_the_bringer_whatever_another_one_may() -> None:
    strict = Bringer(Allowance(TOPIC, Rules(allow=[ALICE.did])), is_client=True)
    driver, (theirs,) = Driver(), chain(1, signer=BOB)
    driver.offer(theirs, "strict", strict)
    driver.offer(theirs, "lax")
    driver.answer_all()
    assert [(source, rule) for source, _, rule in driver.decided()] == [("strict", Rule.UNWELCOME), ("lax", None)]


def test_client_that_may_not_push_is_refused_in_a_sync_too() -> None:
    driver = Driver()
    driver.bring(1, chain(3), bringer=Bringer(may_push=False))
    driver.answer_all()
    (decided,) = driver.of(BatchDecided)
    assert decided.ticket == 1 and [verdict.rule for verdict in decided.verdicts] == [Rule.UNWELCOME] * 3
    assert not driver.of(InsertBatch)


def test_sync_passes_the_queue_by_and_hears_of_all_of_a_batch_at_once() -> None:
    driver, entries = Driver(), chain(4)
    for number in range(1, 4):
        driver.offer(by(number))
    driver.bring(7, [entries[0], forged(entries[1]), *entries[1:]])
    verify = driver.waiting[-1]
    driver.answer(verify)
    driver.answer(driver.waiting[-1])
    (decided,) = driver.of(BatchDecided)
    assert decided.ticket == 7 and [verdict.rule for verdict in decided.verdicts] == [None, Rule.SIGNATURE, None, None, None]
    assert not driver.decided()


@pytest.mark.parametrize("way", ["queue", "sync"])
def test_what_cannot_be_inserted_together_is_inserted_one_by_one_in_its_order(way: str) -> None:
    driver, entries = Driver(), chain(5)
    if way == "sync":
        driver.bring(1, entries)
    else:
        driver.offer(by(9))
        for entry in entries:
            driver.offer(entry)
        driver.answer()
        driver.answer()
    driver.answer()
    together = driver.waiting.pop()
    assert len(together.verdicts) == 5
    driver.tell(BatchInserted(together.token, NotStored("a rule raised", may_be_of_one=True)))
    for place, entry in enumerate(entries):
        (alone,) = driver.waiting
        assert [verdict.entry for verdict in alone.verdicts] == [entry]
        if place == 3:
            driver.waiting.clear()
            driver.tell(BatchInserted(alone.token, NotStored("a rule raised", may_be_of_one=True)))
        else:
            driver.answer()
    last = driver.of(BatchDecided)[0].verdicts if way == "sync" else [step.verdict for step in driver.of(EntryDecided)[1:]]
    assert [verdict.rule for verdict in last] == [None, None, None, Rule.STORAGE, Rule.PARENTS]


def test_fault_of_the_store_is_not_tried_again_and_nobodys() -> None:
    driver = Driver()
    driver.bring(1, chain(3))
    driver.answer()
    (insert,) = driver.waiting
    (decided,) = driver.tell(BatchInserted(insert.token, NotStored("the disk is full")))
    assert [(verdict.outcome, verdict.rule) for verdict in decided.verdicts] == [(Outcome.IGNORE, Rule.STORAGE)] * 3


def test_what_the_log_commits_and_nobody_brought_is_ours() -> None:
    driver, entries = Driver(), chain(3)
    driver.offer(entries[0])
    driver.answer_all()
    driver.bring(1, [entries[1]])
    driver.answer_all()
    assert not driver.of(EntriesAppended)
    driver.bring(2, [entries[2]], "post")
    driver.answer_all()
    own = driver.log.append("mine")
    driver.tell(EntriesCommitted([own]))
    assert [step.entries for step in driver.of(EntriesAppended)] == [[entries[2]], [own]]


def test_entry_that_comes_twice_the_first_time_without_its_parents_is_not_taken_for_ours() -> None:
    driver, (parent, child) = Driver(), chain(2)
    driver.bring(1, [child])
    driver.bring(2, [parent, child])
    driver.answer()
    driver.answer()
    orphan, both = driver.waiting
    driver.answer(orphan)
    driver.answer(both)
    assert not driver.of(EntriesAppended)


def test_keys_from_peers_are_remembered_up_to_a_maximum() -> None:
    intake = Intake()
    for start in range(0, 2 * ARRIVED_MAX, 1_000):
        intake._note_arrived(number.to_bytes(20) for number in range(start, start + 1_000))
    assert len(intake._arrived) == ARRIVED_MAX


def test_heads_are_learnt_at_the_start_and_again_after_a_while_when_they_are_lost() -> None:
    driver, entries = Driver(), chain(4)
    for entry in entries[:2]:
        driver.log.insert(entry)
    (question,) = driver.take(driver.intake.begin(may_foresee=True))
    assert isinstance(question, AskLog) and question.token == LEARN_TOKEN
    assert driver.intake.on_learnt(driver.log.state.answer(ReadHeads()), 0.0) == []
    driver.offer(entries[2])
    foreseen, insert = driver.answer()
    assert isinstance(foreseen, EntryForeseen) and foreseen.found == entries[2] and foreseen.entry is driver.offered[0]
    driver.waiting.clear()
    _, timer = driver.tell(BatchInserted(insert.token, NotStored("the disk is full")))
    assert isinstance(timer, SetTimer) and timer.at == LEARN_FIRST_S
    assert driver.intake.certain.is_blind
    (question,) = driver.intake.on_learn_timer()
    # A commit since the question: the answer may have it, or not.
    driver.tell(EntriesCommitted([entries[2]]))
    (timer,) = driver.intake.on_learnt([entries[1].key], 5.0)
    assert timer.at == 5.0 + 2 * LEARN_FIRST_S
    driver.intake.on_learn_timer()
    driver.intake.on_learnt([entries[2].key], 9.0)
    driver.offer(entries[3])
    assert isinstance(driver.answer()[0], EntryForeseen)


def test_heads_are_asked_for_less_and_less_where_there_is_a_quarantine_and_never_where_others_decide() -> None:
    intake = Intake()
    intake.begin(may_foresee=True)
    waits = []
    for _ in range(9):
        (timer,) = intake.on_learnt(None, 0.0)
        waits.append(timer.at)
        intake.on_learn_timer()
    assert waits[:3] == [1.0, 2.0, 4.0] and waits[-1] == LEARN_MOST_S
    assert Intake().begin(may_foresee=False) == []


def test_parent_and_child_in_one_batch_are_both_foreseen_in_their_order() -> None:
    driver, entries = Driver(), chain(4)
    driver.log.insert(entries[0])
    driver.take(driver.intake.begin(may_foresee=True))
    driver.intake.on_learnt([entries[0].key], 0.0)
    driver.offer(by(7), "other")
    for entry in entries[1:]:
        driver.offer(entry)
    driver.answer_all()
    assert [step.found for step in driver.of(EntryForeseen)] == entries[1:]


def test_answers_that_nobody_waits_for_are_harmless() -> None:
    driver = Driver()
    assert driver.tell(BatchVerified(5, [])) == []
    assert driver.tell(BatchInserted(5, [])) == []
    driver.offer(by(1))
    (verify,) = driver.waiting
    driver.answer_all()
    assert driver.tell(BatchVerified(verify.token, [])) == []
    assert len(driver.decided()) == 1


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_whatever_the_order_of_answers_each_entry_is_decided_once_and_in_its_clients_order(random: Random, count: int) -> None:
    driver = Driver()
    chains = {source: chain(8, signer=Ed25519Signer(bytes([number + 1]) * 32)) for number, source in enumerate("abc")}
    offered: dict[str, list[bytes]] = {source: [] for source in chains}
    for number in range(count):
        source = random.choice(sorted(chains))
        if random.random() < 0.2:
            driver.bring(number, random.choices(chains[source], k=3))
        else:
            entry = chains[source][len(offered[source]) % 8]
            offered[source].append(entry.key)
            driver.offer(entry, source)
        while driver.waiting and random.random() < 0.5:
            step = random.choice(driver.waiting)
            if isinstance(step, InsertBatch) and random.random() < 0.2:
                driver.waiting.remove(step)
                driver.tell(BatchInserted(step.token, NotStored("no", may_be_of_one=random.random() < 0.5)))
            else:
                driver.answer(step)
        # At most one batch is verified for the queue, which is the one without a ticket.
        batches = [driver.intake._out[step.token] for step in driver.waiting if isinstance(step, VerifyBatch)]
        assert sum(batch.ticket is None for batch in batches) <= 1
    driver.answer_all(random)
    assert sorted(step.ticket for step in driver.of(BatchDecided)) == sorted({step.ticket for step in driver.of(BatchDecided)})
    assert len({id(step.entry) for step in driver.of(EntryDecided)}) == len(driver.of(EntryDecided)) == len(driver.offered)
    for step in driver.of(EntryDecided):
        assert isinstance(step.verdict, Verdict)
    assert not driver.of(EntriesAppended)
    assert not driver.intake._out and not len(driver.intake)


# Within the whole


def node_with(bringer: Bringer) -> tuple[Broadcast, Log]:
    """A hub with a client under some rules."""
    machine, log = Broadcast(SharedRouter(Floodsub(FloodsubParams(), Random(1))), TOPIC, Random(2)), Log()
    machine.handle(StartBroadcast(), 0.0)
    machine.handle(Connected("client", PeerKind.CLIENT, is_outbound=False, bringer=bringer), 0.0)
    return machine, log


def work_off(machine: Broadcast, log: Log, event: Any) -> list[EntryDecided]:
    todo, decided = list(machine.handle(event, 0.0)), []
    while todo:
        match todo.pop(0):
            case AskLog(token, plan):
                todo += machine.handle(LogAnswered(token, log.run(plan)), 0.0)
            case VerifyBatch(token, values):
                todo += machine.handle(BatchVerified(token, [validate(value, topic=TOPIC) for value in values]), 0.0)
            case InsertBatch(token, verdicts):
                inserted = [log.insert(verdict.entry) for verdict in verdicts if verdict.entry is not None]
                todo += machine.handle(EntriesCommitted([one.entry for one in inserted if one.is_new and one.entry is not None]), 0.0)
                todo += machine.handle(BatchInserted(token, inserted), 0.0)
            case EntryDecided() as step:
                decided.append(step)
            case _:
                pass
    return decided


def test_push_is_under_the_rules_of_its_peer() -> None:
    machine, log = node_with(Bringer(Allowance(TOPIC, Rules(allow=[ALICE.did])), is_client=True))
    (decided,) = work_off(machine, log, PushReceived("client", insert_of(chain(1)[0])))
    assert decided.verdict.rule == Rule.UNWELCOME


def test_orphan_is_tried_again_under_the_rules_that_it_came_under_though_its_peer_has_left() -> None:
    rules = Rules(Quota(entries_per_minute=100))
    machine, log = node_with(Bringer(Allowance(TOPIC, rules), is_client=True))
    parent, child = chain(2)
    (decided,) = work_off(machine, log, PushReceived("client", insert_of(child)))
    assert decided.verdict.rule == Rule.PARENTS
    work_off(machine, log, Disconnected("client"))
    rules.allow = [ALICE.did]
    log.insert(parent)
    (decided,) = work_off(machine, log, EntriesCommitted([parent]))
    assert decided.entry.key == child.key and decided.verdict.rule == Rule.UNWELCOME
