"""Two small logs and a session between them, without streams: whatever either side sends, the other receives, as late as it can be."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from log_support import TOPIC

from gossiplog.entry.validation import Outcome, Rule, Verdict, validate_many
from gossiplog.log.commit import InsertEntries, LogRules, commit
from gossiplog.log.requests import Quarantined, WriteQuarantine
from gossiplog.plan import ask, run_plan
from gossiplog.reconcile import Reconciliation, Wishes, reconcile, serve
from gossiplog.sketch import Sketch
from gossiplog.store.memory.state import WRITES, MemoryState
from gossiplog.sync.events import Answered, Ask, Closed, Done, EntriesStored, Finish, Received, Resumed, Send, Sent, StoreEntries
from gossiplog.sync.source import Source


@dataclass
class LogView:
    seq: int
    sketch: Sketch


class Log:
    """A log in memory without tasks."""

    def __init__(self, entries=()):
        self.state = MemoryState("log")
        self.refused = []
        # Keys of what has to come again later, and by which rule.
        self.postponed = {}
        self.insert(entries)

    def insert(self, entries):
        return self.insert_values([entry.value for entry in entries])

    def insert_values(self, values):
        return [self._insert(verdict) for verdict in validate_many(list(values), topic=TOPIC)]

    def _insert(self, verdict):
        if not verdict.accepted:
            return verdict
        if (rule := self.postponed.get(verdict.entry.key)) is not None:
            return Verdict(Outcome.IGNORE, rule, "not now", verdict.entry)
        if verdict.entry.message.payload in self.refused:
            record = Quarantined(verdict.entry.key, verdict.entry.value, "parents", "refused", 0.0)
            self.run(ask(WriteQuarantine([record], [])))
            return Verdict(Outcome.IGNORE, Rule.QUARANTINED, "refused", verdict.entry)
        return self.run(commit([InsertEntries([verdict.entry])], LogRules(TOPIC), now=0.0)).outcomes[0][0]

    def run(self, plan):
        return run_plan(plan, self._answer)

    def _answer(self, request):
        return self.state.write(request) if type(request) in WRITES else self.state.answer(request)

    @property
    def keys(self):
        return set(self.state.leaves)

    def view(self):
        sketch = Sketch()
        sketch.add(self.keys)
        return LogView(len(self.state.values), sketch)


@dataclass
class Side:
    """One end: a session, what it has to do next, and what is on its way to it."""

    log: Log
    steps: object
    inbox: deque = field(default_factory=deque)
    todo: deque = field(default_factory=deque)
    now: float = 0.0
    bytes_out: int = 0
    frames_out: int = 0

    def __post_init__(self):
        self.snapshot = self.log.state.snapshot()
        self.session = Reconciliation(self.steps)
        self.todo += self.session.start(0.0)

    def give(self, event):
        self.todo += self.session.handle(event, self.now)

    @property
    def is_done(self):
        return self.session.is_done

    @property
    def outcome(self):
        return self.session.outcome


class Pump:
    """Runs both sides, one action at a time, in an order drawn at random; bytes travel in pieces of any size.

    Attributes:
        tamper: Gets and returns each frame on its way, or None to lose it and everything after it.
    """

    def __init__(self, client, server, *, wishes=None, source=None, seed=0, takes=True, tamper=None, sessions=(None, None)):
        self.random = Random(seed)
        self.source = source or Source()
        self.tamper = tamper or (lambda side, frame: frame)
        self.client = Side(client, sessions[0] or reconcile(client.view(), self.source, 0.0, wishes or Wishes()))
        self.server = Side(server, sessions[1] or serve(server.view(), takes=takes))
        self.is_cut = False

    def run(self):
        """Run to the end; return what either side says."""
        idle = 0
        while not (self.client.is_done and self.server.is_done):
            side = self.random.choice([self.client, self.server])
            idle = 0 if self.step(side) else idle + 1
            if idle > 200:
                # Both wait: time passes, and whoever waits for longest hears nothing.
                waiting = next(side for side in (self.client, self.server) if not side.is_done)
                waiting.now = waiting.session.deadline
                waiting.give(Resumed())
                idle = 0
        return self.client.outcome, self.server.outcome

    def other(self, side):
        return self.server if side is self.client else self.client

    def step(self, side):
        if side.todo and (not side.session.wants_input or not side.inbox or self.random.random() < 0.5):
            # The talk and the gift are carried out in any order.
            self.perform(side, side.todo.popleft())
            self.random.shuffle(side.todo)
            return True
        if side.session.wants_input and side.inbox:
            side.give(side.inbox.popleft())
            return True
        return False

    def perform(self, side, action):
        match action:
            case Send(data, token):
                self.send(side, data)
                side.give(Sent(token))
            case Ask(plan, of_snapshot, token):
                side.give(Answered(run_plan(plan, side.snapshot.answer) if of_snapshot else side.log.run(plan), token))
            case StoreEntries(entries):
                side.give(EntriesStored(side.log.insert_values([value for _, value in entries])))
            case Finish():
                self.other(side).inbox.append(Closed("the end"))
            case Done():
                pass

    def send(self, side, data):
        data = None if self.is_cut else self.tamper("client" if side is self.client else "server", data)
        if data is None:
            if not self.is_cut:
                self.other(side).inbox.append(Closed("cut"))
                side.inbox.append(Closed("cut"))
            self.is_cut = True
            return
        side.bytes_out += len(data)
        side.frames_out += 1
        cut = self.random.randint(0, len(data))
        self.other(side).inbox += [Received(part) for part in (data[:cut], data[cut:]) if part]
