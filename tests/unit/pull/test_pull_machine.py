"""Each decision of a pull, taken step by step with nothing around it: no stream, no task, no clock."""

import pytest
from log_support import SIGNERS, make
from reconcile_support import Log

from gossiplog.codec.framing import FrameDecoder, encode_frame
from gossiplog.pull.machine import (
    AwaitServed,
    ForgetSketch,
    OpenStream,
    Pull,
    Pulled,
    Rest,
    Resumption,
    RunSession,
    Speaks,
    ViewSketch,
    Way,
)
from gossiplog.pull.serving import CROSSING, Dealings, after_merkle, after_reconciliation
from gossiplog.reconcile import Served, Wishes, messages
from gossiplog.reconcile.messages import Refuse, Result
from gossiplog.sync.events import Answered, Ask, Closed, EntriesStored, Failed, Received, Send, Sent, StoreEntries
from gossiplog.sync.result import Ending
from gossiplog.sync.rpc import AbortResponse, RootResponse
from gossiplog.sync.server import SyncServer
from gossiplog.sync.source import Source
from gossiplog.sync.wire import encode_response
from gossiplog.tree.node import Node, ReadRoot

OTHER_ROOT = Node(3, None, b"r" * 16)


def log_of(count=5):
    return Log([make(number, [], SIGNERS[0]) for number in range(count)])


def root_of(log):
    return log.state.answer(ReadRoot())


def talk(session, log, *replies, fails=False):
    """Run a session on a log, with these messages for what the other side says, after which it ends."""
    said = [messages.encode(reply) if isinstance(reply, Refuse | Result) else encode_frame(encode_response(reply)) for reply in replies]
    todo = list(session.start(0.0))
    while not session.is_done:
        while todo:
            match todo.pop(0):
                case Send(_, token):
                    todo += [] if token is None else session.handle(Sent(token), 0.0)
                case Ask(plan, _, token):
                    todo += session.handle(Failed("no disk") if fails else Answered(log.run(plan), token), 0.0)
                case StoreEntries(entries):
                    todo += session.handle(EntriesStored(log.insert_values([value for _, value in entries])), 0.0)
        if not session.is_done:
            todo += session.handle(Received(said.pop(0)) if said else Closed("the end"), 0.0)


class Driver:
    """Drives a pull by hand; `step` is what it asks for."""

    def __init__(self, source=None, speaks=None, dealings=None, now=0.0, log=None, **options):
        self.log = log or log_of()
        self.now = now
        self.source = source or Source()
        self.speaks = speaks or Speaks()
        self.dealings = dealings or Dealings()
        self.pull = Pull(self.source, self.speaks, self.dealings, **options)
        self.step = self.pull.start(now)

    def give(self, answer):
        self.step = self.pull.handle(answer, self.now)
        return self.step

    def reconcile(self, *replies, **options):
        """From the beginning to what follows a reconciliation in which the other side says this."""
        assert self.step == ViewSketch()
        assert isinstance(self.give(self.log.view()), OpenStream)
        assert isinstance(self.give(Way.RECONCILE), RunSession)
        talk(self.step.session, self.log, *replies, **options)
        return self.give(False)

    def compare(self, *replies, way=Way.TREE, is_lost=False):
        """From where a stream for trees is to be opened to what follows the session."""
        assert isinstance(self.step, OpenStream)
        assert Way.RECONCILE not in self.step.ways
        assert isinstance(self.give(way), RunSession)
        talk(self.step.session, self.log, *replies)
        return self.give(is_lost)


def test_one_reconciliation_is_a_pull():
    driver = Driver()
    assert driver.reconcile(Result(root_of(driver.log))) == Pulled()
    assert driver.pull.is_reconciled
    assert driver.speaks.reconciles is True
    assert (driver.pull.result.ending, driver.pull.result.sessions, driver.pull.result.waits) == (Ending.COMPLETE, 1, 1)
    assert driver.pull.result.bytes_sent > 0 < driver.pull.result.bytes_received


def test_whoever_is_known_to_reconcile_is_not_asked_first():
    unknown = Driver()
    assert unknown.give(unknown.log.view()) == OpenStream((Way.RECONCILE, Way.PARTS, Way.TREE), False, None)
    known = Driver(speaks=Speaks(True), first_answer_s=1.5)
    assert known.give(known.log.view()) == OpenStream((Way.RECONCILE,), True, 1.5)


def test_what_did_not_work_out_is_done_by_trees_and_the_results_are_one():
    driver = Driver()
    assert driver.reconcile(Refuse("no")) == OpenStream((Way.PARTS, Way.TREE), False, None)
    assert driver.compare(RootResponse(root_of(driver.log))) == Pulled()
    result = driver.pull.result
    assert (result.ending, result.reason, result.sessions, result.requests) == (Ending.COMPLETE, "", 2, 2)
    assert not driver.pull.is_reconciled
    assert driver.pull.outcome.fallback == "no"


def test_a_fallback_is_remembered_longer_each_time_and_until_one_works_out():
    source = Source()
    for now, wait_s in ((0.0, 60.0), (100.0, 120.0), (400.0, 240.0)):
        Driver(source, now=now).reconcile(Refuse("no"))
        assert isinstance(Driver(source, now=now + wait_s - 1).step, OpenStream)
        assert Driver(source, now=now + wait_s).step == ViewSketch()
    driver = Driver(source, now=1_000.0)
    driver.reconcile(Result(root_of(driver.log)))
    Driver(source, now=1_001.0).reconcile(Refuse("no"))
    assert Driver(source, now=1_061.0).step == ViewSketch()


def test_a_pull_that_fell_back_and_could_open_no_other_stream_is_not_complete():
    driver = Driver()
    driver.reconcile(Refuse("no"))
    assert driver.give(None) == Pulled()
    assert (driver.pull.result.ending, driver.pull.result.reason) == (Ending.CLOSED, "no")


def test_nothing_opened_is_said():
    driver = Driver(may_reconcile=False)
    assert driver.give(None) == Pulled()
    assert (driver.pull.result.reason, driver.pull.is_begun) == ("no stream could be opened", False)


def test_a_session_that_crosses_one_of_the_peers_is_waited_for_and_no_failure():
    driver = Driver()
    assert driver.reconcile(Refuse(CROSSING)) == AwaitServed()
    assert driver.give(None) == Pulled()
    assert driver.pull.is_reconciled
    assert driver.pull.result.ending is Ending.COMPLETE
    assert Driver(driver.source).step == ViewSketch()


def test_a_sketch_that_cannot_be_right_is_forgotten_before_anything_else():
    driver = Driver()
    assert driver.reconcile(Result(OTHER_ROOT)) == ForgetSketch()
    assert driver.pull.outcome.is_doubtful
    assert isinstance(driver.give(None), OpenStream)
    assert isinstance(Driver(driver.source).step, OpenStream)


@pytest.mark.parametrize("after", [None, b"k" * 20])
def test_a_stream_of_everything_goes_on_where_it_broke_off(after):
    source = Source()
    source.resume_after = after
    driver = Driver(source)
    driver.give(driver.log.view())
    (said,) = (action.data for action in driver.give(Way.RECONCILE).session.start(0.0) if isinstance(action, Send))
    frames = FrameDecoder()
    frames.feed(said)
    hello = messages.decode(frames.next())
    assert isinstance(hello, messages.Hello)
    assert hello.after == after


def test_a_store_that_fails_leaves_it_to_the_trees():
    driver = Driver()
    assert isinstance(driver.reconcile(Result(root_of(driver.log)), fails=True), OpenStream)
    assert driver.pull.outcome.fallback == "no disk"


def test_who_says_nothing_does_not_speak_it_unless_it_did_before():
    driver = Driver()
    assert isinstance(driver.reconcile(), OpenStream)
    assert driver.pull.is_unheard
    assert driver.speaks.reconciles is False
    assert driver.pull.result.requests == 0
    assert isinstance(Driver(driver.source, driver.speaks).step, OpenStream)
    known = Driver(speaks=Speaks(True))
    assert isinstance(known.reconcile(), OpenStream)
    assert known.speaks.reconciles is True
    assert Driver(known.source, known.speaks).step == ViewSketch()


def test_who_chose_trees_is_not_asked_for_a_reconciliation_again():
    driver = Driver()
    driver.give(driver.log.view())
    assert isinstance(driver.give(Way.TREE), RunSession)
    assert driver.speaks == Speaks(reconciles=False, in_parts=False)
    assert Driver(speaks=driver.speaks).step == OpenStream((Way.TREE,), False, None)


@pytest.mark.parametrize("view", [True, False])
def test_trees_do_it_without_a_sketch_and_without_a_stream_for_symbols(view):
    driver = Driver()
    if view:
        driver.give(driver.log.view())
        driver.give(None)
    else:
        driver.give(None)
    assert driver.step == OpenStream((Way.PARTS, Way.TREE), False, None)
    driver.compare(RootResponse(root_of(driver.log)), way=Way.PARTS)
    assert driver.speaks.in_parts
    assert Driver(driver.source, driver.speaks).step == ViewSketch()


@pytest.mark.parametrize("wishes", [Wishes(is_rehearsal=True), Wishes(takes=False)])
def test_a_rehearsal_and_a_pull_that_only_gives_compare_no_trees(wishes):
    for replies in ([], [Refuse("no")]):
        assert Driver(wishes=wishes).reconcile(*replies) == Pulled()
    assert Driver(wishes=wishes).give(None) == Pulled()
    without = Driver(wishes=wishes)
    without.give(without.log.view())
    assert without.give(Way.TREE) == Pulled()


def test_a_reconciliation_that_was_cut_off_goes_on_by_trees_only_where_nobody_else_resumes_it():
    half = messages.encode(messages.Hello(7, bytes(29 * 64)))[:10]

    def cut(driver):
        driver.give(driver.log.view())
        session = driver.give(Way.RECONCILE).session
        session.start(0.0)
        session.handle(Sent(0), 0.0)
        session.handle(Received(half), 0.0)
        session.handle(Closed("gone"), 0.0)
        return driver.give(False)

    alone, resuming = Driver(), Driver(resumption=Resumption())
    assert cut(alone) == Pulled()
    assert (alone.pull.result.ending, alone.pull.is_reconciled) == (Ending.CLOSED, True)
    assert isinstance(cut(resuming), OpenStream)
    for driver in (alone, resuming):
        assert Driver(driver.source).step == ViewSketch()


def test_sessions_that_change_nothing_are_followed_by_others_after_growing_pauses():
    driver = Driver(may_reconcile=False, resumption=Resumption())
    pauses = []
    while isinstance(driver.compare(AbortResponse(0)), Rest):
        pauses.append(driver.step.pause_s)
        driver.give(None)
    # Seeing no further ahead is a change as well, but there is nothing to see less of with the first request.
    assert pauses == [1.0, 2.0, 4.0]
    assert (driver.step, driver.pull.result.ending, driver.pull.result.sessions) == (Pulled(), Ending.ABORTED, 4)


@pytest.mark.parametrize(("cooldown_s", "step"), [(3, Rest(3.0)), (11, Pulled())])
def test_a_pause_that_the_peer_wants_is_made_unless_it_is_long(cooldown_s, step):
    driver = Driver(may_reconcile=False, resumption=Resumption())
    assert driver.compare(AbortResponse(1000 * cooldown_s)) == step


def test_a_pull_ends_with_its_session_where_another_resumes_it_and_with_its_connection():
    assert Driver(may_reconcile=False).compare(AbortResponse(0)) == Pulled()
    assert Driver(may_reconcile=False, resumption=Resumption()).compare(AbortResponse(0), is_lost=True) == Pulled()


def test_what_has_come_is_known_at_any_time():
    driver = Driver()
    driver.reconcile(Refuse("no"))
    before = driver.pull.result
    driver.give(Way.TREE)
    driver.step.session.start(0.0)
    assert driver.pull.result.requests == before.requests + 1
    driver.pull.close()
    assert not driver.dealings.is_reconciling


def test_of_two_that_begin_at_once_the_one_that_dialled_goes_on():
    dealings = Dealings()
    assert not dealings.is_crossing(is_outbound=True)
    driver = Driver(dealings=dealings)
    assert dealings.is_crossing(is_outbound=True)
    assert not dealings.is_crossing(is_outbound=False)
    driver.reconcile(Result(root_of(driver.log)))
    assert not dealings.is_crossing(is_outbound=True)
    # The other one was left with what this session gave.
    assert dealings.take_crossed()
    assert not dealings.take_crossed()


def test_a_sync_by_trees_crosses_nothing():
    dealings = Dealings()
    driver = Driver(dealings=dealings)
    driver.reconcile(Refuse("no"))
    assert not dealings.is_crossing(is_outbound=True)
    Driver(dealings=dealings, may_reconcile=False)
    assert not dealings.is_crossing(is_outbound=True)


def test_what_follows_a_session_that_was_served():
    entry = make("given", [], SIGNERS[0])
    served = Served(taken=1, has_moved=True)
    served.brought.add(entry)
    aftermath = after_reconciliation(served, is_over=True)
    assert aftermath.result.spreads == [entry]
    assert (aftermath.tells, aftermath.reminds) == (True, False)
    assert after_reconciliation(Served(), is_over=True).result is None
    assert not after_reconciliation(Served(), is_over=True).tells
    # It was cut off, with what it had brought by then.
    cut = after_reconciliation(Served(taken=2, rejected=1, rejected_keys=[b"k"]), is_over=False)
    assert (cut.result.entries, cut.result.rejected, cut.result.rejected_keys, cut.tells) == (2, 1, (b"k",), True)
    server = SyncServer(0.0)
    assert not after_merkle(server, has_moved=False).tells
    assert after_merkle(server, has_moved=True).tells
    server.is_short = True
    assert after_merkle(server, has_moved=False).tells
    server.abort()
    assert after_merkle(server, has_moved=True).reminds
