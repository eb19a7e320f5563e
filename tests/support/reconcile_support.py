"""Two small logs and a session between them, without streams: whatever either side sends, the other receives, as late as it can be."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from log_support import TOPIC

from gossiplog.codec.framing import FrameDecoder
from gossiplog.entry.validation import Outcome, Rule, Verdict, validate_many
from gossiplog.errors import DecodeError
from gossiplog.log.commit import InsertEntries, commit
from gossiplog.log.requests import Quarantined, WriteQuarantine
from gossiplog.plan import ask, run_plan
from gossiplog.reconcile import Wishes, reconcile, serve
from gossiplog.reconcile.steps import Give, Insert, Receive, Run, RunOnSnapshot, Send
from gossiplog.sketch import Sketch
from gossiplog.store.memory.state import WRITES, MemoryState
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
        self.insert(entries)

    def insert(self, entries):
        return self.insert_values([entry.value for entry in entries])

    def insert_values(self, values):
        return [self._insert(verdict) for verdict in validate_many(list(values), topic=TOPIC)]

    def _insert(self, verdict):
        if not verdict.accepted:
            return verdict
        if verdict.entry.message.payload in self.refused:
            record = Quarantined(verdict.entry.key, verdict.entry.value, "parents", "refused", 0.0)
            self.run(ask(WriteQuarantine([record], [])))
            return Verdict(Outcome.IGNORE, Rule.QUARANTINED, "refused", verdict.entry)
        return self.run(commit([InsertEntries([verdict.entry])], topic=TOPIC, now=0.0)).outcomes[0][0]

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
    session: object
    inbox: deque = field(default_factory=deque)
    frames: FrameDecoder = field(default_factory=FrameDecoder)
    giving: deque = field(default_factory=deque)
    step: object = None
    outcome: object = None
    is_done: bool = False
    bytes_out: int = 0
    frames_out: int = 0

    def __post_init__(self):
        self.snapshot = self.log.state.snapshot()
        self.advance(None)

    def advance(self, answer):
        try:
            self.step = self.session.send(answer)
        except StopIteration as stop:
            self.outcome, self.is_done = stop.value, True


class Pump:
    """Runs both sides, one step at a time, in an order drawn at random; bytes travel in pieces of any size.

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
                waiting.advance(None)
                idle = 0
        return self.client.outcome, self.server.outcome

    def other(self, side):
        return self.server if side is self.client else self.client

    def step(self, side):
        if side.giving and (side.is_done or self.random.random() < 0.5):
            return self.give(side)
        if side.is_done:
            return False
        match side.step:
            case Send(data):
                self.send(side, data)
                side.advance(None)
            case Receive():
                return self.receive(side)
            case Run(plan):
                side.advance(side.log.run(plan))
            case RunOnSnapshot(plan):
                side.advance(run_plan(plan, side.snapshot.answer))
            case Insert(entries):
                side.advance(side.log.insert_values([value for _, value in entries]))
            case Give(steps):
                side.giving.append([steps, None])
                side.advance(None)
        return True

    def give(self, side):
        steps, answer = side.giving[0]
        try:
            step = steps.send(answer)
        except StopIteration:
            side.giving.popleft()
            return True
        if isinstance(step, Send):
            self.send(side, step.data)
            side.giving[0][1] = None
        else:
            side.giving[0][1] = run_plan(step.plan, side.snapshot.answer)
        return True

    def send(self, side, data):
        data = None if self.is_cut else self.tamper("client" if side is self.client else "server", data)
        if data is None:
            self.is_cut = True
            return
        side.bytes_out += len(data)
        side.frames_out += 1
        cut = self.random.randint(0, len(data))
        self.other(side).inbox += [data[:cut], data[cut:]]

    def receive(self, side):
        try:
            frame = side.frames.next()
            while frame is None and side.inbox:
                side.frames.feed(side.inbox.popleft())
                frame = side.frames.next()
        except DecodeError as error:
            frame = error
        other = self.other(side)
        if frame is None and not (other.is_done and not other.giving) and not self.is_cut:
            return False
        side.advance(frame)
        return True
