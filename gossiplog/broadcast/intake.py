"""How an entry comes in: one machine for all ways.

    pushes, gossip    refuse → (turns) → verify → key → admit → foresee → insert → settle → decide
    syncs, posts      refuse →           verify →       admit →           insert → settle → decide

**Theory of operation.** Pushed and gossiped entries wait in a queue with a lane for each client, and one lane for the mesh and all hubs
together. One entry at a time is taken from each lane in turn. The entries taken form a batch, which is verified, admitted and inserted
together. While one batch is being inserted, the next one is verified and a third one gathers. The batches of a sync and posted entries do
not queue: their caller waits for the verdicts, and brings no more meanwhile.

*refuse*: if a client may not push, or its last entry was over a limit, an entry may be refused before it is verified.
*verify*: by the driver, which answers in the same step if that is cheap, else later. The machine cannot tell.
*admit*: the rules for the entry's bringer have the last word (`Bringer`); entries that are let in are charged.
*foresee*: an entry that is certain to be stored is reported before it is (`CertainEntries`).
*insert*: by the driver, as above. If a batch fails as a whole, perhaps because of one entry, its entries are inserted one by one.
*settle*: entries that were charged and are not new are refunded. *decide*: each entry's verdict is reported, once.

Entries that the log commits and no peer brought are ours, and are reported as such.

**Invariants.**
1. At most one batch of the queue is being verified or waits to be inserted.
2. A batch is inserted beside others of the queue only if they have, with it, at most `TOGETHER_MAX` entries.
3. Each entry is decided exactly once, after it was verified unless it was refused, and after it was inserted if it was let in.
4. Entries of one lane are verified and inserted in the order in which they came.
5. An entry's verdict concerns its own bringer alone. A fault of ours has the rule `storage`, and no peer is to blame.
6. A foreseen entry was let in, and is handed to the log after its parents.
7. An answer with an unknown token is harmless.

Source: docs/spec/sync.md, "The way in"; docs/spec/limits.md.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Generic, TypeAlias, TypeVar, assert_never

from ..entry.message import Entry
from ..entry.validation import Outcome, Rule, Verdict
from ..log.requests import ReadHeads, ReadQuarantine
from ..plan import Plan, ask
from ..pubsub.actions import SetTimer
from ..pubsub.types import TimerToken
from .actions import (
    AskLog,
    BatchDecided,
    EntriesAppended,
    EntryDecided,
    EntryForeseen,
    InsertBatch,
    InsertEntry,
    VerifyBatch,
)
from .allowance import Bringer
from .certain_entries import HEADS_MAX, CertainEntries
from .events import BatchBrought, BatchInserted, BatchVerified, EntriesCommitted, NotStored

T = TypeVar("T")

BATCH_ENTRIES = 256
BATCH_BYTES = 2**20
TOGETHER_MAX = 4
"""The most entries of the queue that are inserted at a time in several batches. Entries that come one by one thus need not wait for each
other's commits, and the log groups them in one.
"""
ARRIVED_MAX = 20_000
"""Keys of peers' entries remembered until the log reports them: more than a commit, or a page of a tail, can have."""
LEARN_TOKEN = 0
"""The token of the intake's only question; all other questions have larger tokens."""
LEARN_TIMER = TimerToken("broadcast.learn")
LEARN_FIRST_S, LEARN_MOST_S = 1.0, 60.0
"""The first and the longest interval, in seconds, after which heads are read again if the store failed, or has a quarantine or too many
heads. Until then all entries wait for the commit."""

Step: TypeAlias = VerifyBatch | InsertBatch | EntryForeseen | EntryDecided | BatchDecided | EntriesAppended | AskLog | SetTimer


class FairQueue(Generic[T]):
    """Lanes from which items are taken in turn, one each. O(1) per item; a lane exists while it has items."""

    def __init__(self) -> None:
        # Each item with its order of arrival and its weight.
        self._lanes: OrderedDict[Hashable, deque[tuple[int, int, T]]] = OrderedDict()
        self._arrived = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, lane: Hashable, item: T, weight: int = 0) -> None:
        """Put an item at the end of a lane."""
        self._lanes.setdefault(lane, deque()).append((self._arrived, weight, item))
        self._arrived += 1
        self._size += 1

    def take(self, items_max: int, weight_max: int) -> list[T]:
        """Take items from the lanes in turn until a maximum is reached, at least one; return them in the order of arrival."""
        taken: list[tuple[int, int, T]] = []
        weight = 0
        while self._lanes and len(taken) < items_max and weight < weight_max:
            lane, items = next(iter(self._lanes.items()))
            taken.append(items.popleft())
            weight += taken[-1][1]
            if items:
                self._lanes.move_to_end(lane)
            else:
                del self._lanes[lane]
        self._size -= len(taken)
        taken.sort(key=itemgetter(0))
        return [item for _, _, item in taken]


@dataclass(slots=True, eq=False)
class _Batch:
    """Entries that are verified together, and inserted together.

    Attributes:
        verdicts: The verdict so far for each entry; None while it is being verified.
        entries: The entries from the queue; empty if the batch did not queue.
        ticket: The ticket of a batch that did not queue, else None.
        let_in: The indices of the entries that are handed to the log.
        apart: The indices of those still to be inserted one by one, after they could not be inserted together.
    """

    way: str
    bringers: Sequence[Bringer]
    verdicts: list[Verdict | None]
    entries: Sequence[InsertEntry] = ()
    ticket: int | None = None
    let_in: list[int] = field(default_factory=list)
    apart: deque[int] = field(default_factory=deque)


class Intake:
    """The machine; see the module's docstring. `Broadcast` hands it its events, and passes on its steps."""

    def __init__(self) -> None:
        self.certain = CertainEntries()
        # Entries that wait to be verified.
        self._queue = FairQueue[InsertEntry]()
        # The queue's batch that is being verified, or the one that waits to be inserted: at most one of them.
        self._verifying: _Batch | None = None
        self._waiting: _Batch | None = None
        # All batches that the driver is verifying or inserting, by the token of its answer.
        self._out: dict[int, _Batch] = {}
        self._tokens = 0
        # The most entries that the queue's next batch may have.
        self._batch_max = BATCH_ENTRIES
        # The number of the queue's entries that are being inserted.
        self._inserting = 0
        # How often each key was handed to the log for peers, less the times that it was not stored as new or was reported as committed. All
        # other committed entries are ours. An entry may be handed over twice, the first time without its parents.
        self._arrived: OrderedDict[bytes, int] = OrderedDict()
        # Whether entries may be foreseen at all: no rule and no other process decides what is stored.
        self._may_foresee = False
        # The number of commits, now and when the log was asked for its heads.
        self._commits = self._asked_at = 0
        # Whether the heads are being read, or a timer is set to read them; and the next interval of that timer.
        self._is_learning = False
        self._learn_s = LEARN_FIRST_S
        # The steps of the current call.
        self._steps: list[Step] = []
        self._now = 0.0

    def __len__(self) -> int:
        """Return how many entries wait in the queue."""
        return len(self._queue)

    @property
    def batches_out(self) -> int:
        """Return how many batches the driver is verifying or inserting."""
        return len(self._out)

    def handle(self, event: InsertEntry | BatchBrought | BatchVerified | BatchInserted | EntriesCommitted, now: float) -> list[Step]:
        """Handle one event and return the steps that follow, in order. Raises nothing, whatever a peer sent.

        Args:
            now: Seconds on the driver's clock; not less than in the call before.
        """
        self._now = now
        self._steps = []
        match event:
            case InsertEntry():
                self._queue.put(event.source if event.bringer.is_client else None, event, len(event.value))
                self._verify_next()
            case BatchVerified(token, verdicts, next_max):
                self._batch_max = BATCH_ENTRIES if next_max is None else next_max
                self._on_verified(self._out.pop(token, None), verdicts)
            case BatchInserted(token, outcome):
                self._on_inserted(self._out.pop(token, None), outcome)
            case EntriesCommitted(entries):
                self._on_committed(entries)
            case BatchBrought():
                self._on_brought(event)
            case _:  # pragma: no cover - mypy proves it
                assert_never(event)
        return self._steps

    # Verify

    def _verify_next(self) -> None:
        if self._queue and self._verifying is None and self._waiting is None:
            entries = self._queue.take(self._batch_max, BATCH_BYTES * self._batch_max // BATCH_ENTRIES)
            bringers = [entry.bringer for entry in entries]
            refusals = [entry.bringer.refuse(entry.key, entry.value, self._now) for entry in entries]
            batch = _Batch("queue", bringers, refusals, entries)
            self._verifying = batch
            self._verify(batch, [entry.value for entry in entries])

    def _on_brought(self, event: BatchBrought) -> None:
        bringer = event.bringer
        refusals = [bringer.refuse(key, value, self._now) for key, value in event.entries]
        batch = _Batch(event.way, [bringer] * len(refusals), refusals, ticket=event.ticket)
        self._verify(batch, [value for _, value in event.entries])

    def _verify(self, batch: _Batch, values: Sequence[bytes]) -> None:
        # The driver gets the batch even if all of it is refused: it decides whose turn it is.
        self._tokens += 1
        self._out[self._tokens] = batch
        to_verify = [value for value, refusal in zip(values, batch.verdicts, strict=True) if refusal is None]
        self._steps.append(VerifyBatch(self._tokens, to_verify))

    def _on_verified(self, batch: _Batch | None, verified: Sequence[Verdict]) -> None:
        if batch is None:
            return
        answers = iter(verified)
        for place, refusal in enumerate(batch.verdicts):
            if refusal is None:
                self._judge(batch, place, next(answers))
        if batch.ticket is not None:
            self._insert(batch)
            return
        self._verifying = None
        if batch.let_in and self._inserting and self._inserting + len(batch.let_in) > TOGETHER_MAX:
            self._waiting = batch
        else:
            self._insert(batch)
        self._verify_next()

    def _judge(self, batch: _Batch, place: int, verdict: Verdict) -> None:
        entry = batch.entries[place] if batch.entries else None
        if entry is not None:
            verdict = _check_key(entry, verdict)
        batch.verdicts[place] = verdict = batch.bringers[place].admit(verdict, self._now)
        if verdict.accepted and verdict.entry is not None:
            batch.let_in.append(place)
            if entry is not None and self.certain.foresees(verdict.entry):
                self._steps.append(EntryForeseen(entry, verdict.entry))

    # Insert

    def _insert(self, batch: _Batch) -> None:
        if not batch.let_in:
            self._decide(batch)
            return
        if batch.ticket is None:
            self._inserting += len(batch.let_in)
        if batch.way != "post":
            # A posted entry is spread as our own, as no peer has it.
            self._note_arrived(verdict.entry.key for verdict in batch.verdicts if verdict and verdict.accepted and verdict.entry)
        self._hand_over(batch, batch.let_in)

    def _hand_over(self, batch: _Batch, places: Iterable[int]) -> None:
        self._tokens += 1
        self._out[self._tokens] = batch
        verdicts = [verdict for place in places if (verdict := batch.verdicts[place]) is not None]
        self._steps.append(InsertBatch(self._tokens, verdicts, batch.way))

    def _on_inserted(self, batch: _Batch | None, outcome: Sequence[Verdict] | NotStored) -> None:
        if batch is None:
            return
        is_first = not batch.apart
        places = batch.let_in if is_first else [batch.apart.popleft()]
        if isinstance(outcome, NotStored):
            if outcome.may_be_of_one and len(places) > 1:
                batch.apart.extend(places)
                self._hand_over(batch, [places[0]])
                return
            entries = [verdict.entry for place in places if (verdict := batch.verdicts[place]) is not None]
            outcome = [Verdict(Outcome.IGNORE, Rule.STORAGE, outcome.reason, entry) for entry in entries]
        for place, verdict in zip(places, outcome, strict=True):
            batch.verdicts[place] = verdict
        if batch.apart:
            self._hand_over(batch, [batch.apart[0]])
            return
        if batch.ticket is None:
            self._inserting -= len(batch.let_in)
        self._decide(batch)
        waiting = self._waiting
        if waiting is not None and (not self._inserting or self._inserting + len(waiting.let_in) <= TOGETHER_MAX):
            self._waiting = None
            self._insert(waiting)
        self._verify_next()

    def _decide(self, batch: _Batch) -> None:
        verdicts = [verdict for verdict in batch.verdicts if verdict is not None]
        for bringer, verdict in zip(batch.bringers, verdicts, strict=True):
            bringer.settle(verdict, self._now)
        for place in batch.let_in:
            verdict = verdicts[place]
            if not verdict.is_new and verdict.entry is not None and batch.way != "post":
                self._take_arrived(verdict.entry.key)
        if batch.ticket is not None:
            self._steps.append(BatchDecided(batch.ticket, verdicts))
            return
        self._steps += map(EntryDecided, batch.entries, verdicts)
        for place in batch.let_in:
            self.certain.on_decided(verdicts[place])
        self._learn_later()

    # What the log has

    def _note_arrived(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._arrived[key] = self._arrived.get(key, 0) + 1
        while len(self._arrived) > ARRIVED_MAX:
            self._arrived.popitem(last=False)

    def _take_arrived(self, key: bytes) -> bool:
        """Return whether an entry was handed over for a peer, and count one such time as over."""
        times = self._arrived.pop(key, 0)
        if times > 1:
            self._arrived[key] = times - 1
        return times > 0

    def _on_committed(self, entries: Sequence[Entry]) -> None:
        self._commits += 1
        self.certain.on_commit(entries)
        own = [entry for entry in entries if not self._take_arrived(entry.key)]
        if own:
            self._steps.append(EntriesAppended(own))
        self._learn_later()

    def begin(self, *, may_foresee: bool) -> list[Step]:
        """Begin to follow the log. Nothing is foreseen if a rule or another process also decides what is stored."""
        self._may_foresee = may_foresee
        return self.on_learn_timer()

    def on_learn_timer(self) -> list[Step]:
        """Ask the log for its heads, if they are unknown."""
        self._is_learning = self._may_foresee and self.certain.is_blind
        self._asked_at = self._commits
        return [AskLog(LEARN_TOKEN, _read_heads())] if self._is_learning else []

    def on_learnt(self, heads: Sequence[bytes] | None, now: float) -> list[Step]:
        """Set the log's heads; None if it has a quarantine. They are dropped after a commit since, which they may or may not include."""
        self._now, self._is_learning = now, False
        if heads is not None and self._asked_at == self._commits:
            self.certain.learn(heads)
        self._steps = []
        if not self.certain.is_blind:
            self._learn_s = LEARN_FIRST_S
        self._learn_later()
        return self._steps

    def _learn_later(self) -> None:
        if self._may_foresee and self.certain.is_blind and not self._is_learning:
            self._is_learning = True
            self._steps.append(SetTimer(LEARN_TIMER, self._now + self._learn_s))
            self._learn_s = min(2 * self._learn_s, LEARN_MOST_S)


def _check_key(entry: InsertEntry, verdict: Verdict) -> Verdict:
    """Reject an entry that came under another key than its own."""
    if verdict.entry is not None and verdict.entry.key != entry.key and verdict.rule != Rule.TOPIC:
        return Verdict(Outcome.REJECT, Rule.KEY, f"key {entry.key.hex()}, expected {verdict.entry.key.hex()}", verdict.entry)
    return verdict


def _read_heads() -> Plan[list[bytes] | None]:
    """Read the heads; None if there is a quarantine, as an entry in it may seem new."""
    if (yield from ask(ReadQuarantine(None, 1))):
        return None
    return (yield from ask(ReadHeads(HEADS_MAX + 1)))
