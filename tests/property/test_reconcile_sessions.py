"""Sessions between any two replicas, over pipes that are slow, cut anywhere or damaged, and with partners that lie."""

from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_support import SIGNERS, make, make_history
from reconcile_support import Log, Pump

from gossiplog.reconcile import Wishes, messages, reconcile, steps
from gossiplog.reconcile.messages import Hello, More, Refuse, Result, Symbols, Values, Want
from gossiplog.reconcile.steps import Receive
from gossiplog.sketch import SYMBOLS_MAX
from gossiplog.sync.events import Send
from gossiplog.sync.result import Ending
from gossiplog.sync.source import Source
from gossiplog.tree.node import Node

seeds = st.integers(0, 2**32)


@cache
def history():
    return make_history(Random(7), 130)


def closed(chosen):
    """The chosen entries and all their ancestors, parents first."""
    by_key = {entry.key: entry for entry in history()}
    held, todo = set(), [entry.key for entry in chosen]
    while todo:
        key = todo.pop()
        if key not in held:
            held.add(key)
            todo += by_key[key].parent_keys
    return [entry for entry in history() if entry.key in held]


def replicas(seed, common=80):
    random = Random(seed)
    base = closed(history()[:common])
    keys = {entry.key for entry in base}
    later = history()[common:]
    sides = [closed(random.sample(later, random.randint(0, min(12, len(later))))) for _ in range(2)]
    return [Log([*base, *(entry for entry in side if entry.key not in keys)]) for side in sides]


def forked(ours, theirs, common=40):
    """Two replicas that differ in so many entries of each, without parents."""
    base = history()[:common]
    left = [make(("left", number), [], SIGNERS[0]) for number in range(ours)]
    right = [make(("right", number), [], SIGNERS[1]) for number in range(theirs)]
    return Log([*base, *left]), Log([*base, *right])


def assert_closed(log):
    for entry in history():
        if entry.key in log.keys:
            assert log.keys >= set(entry.parent_keys)


@settings(max_examples=12, deadline=None)
@given(seeds, st.sampled_from([0, 5, 80, 129]))
def test_both_sides_end_with_the_union_and_only_what_was_missing_travels(seed, common):
    client, server = replicas(seed, common)
    union, lacking, extra = client.keys | server.keys, server.keys - client.keys, client.keys - server.keys
    outcome, served = Pump(client, server, seed=seed).run()
    assert client.keys == server.keys == union
    assert (outcome.fallback, outcome.is_equal, outcome.result.ending) == ("", True, Ending.COMPLETE)
    assert (outcome.result.entries, outcome.result.duplicates) == (len(lacking), 0)
    assert (served.taken, served.fault, served.reason) == (len(extra), "", "")
    assert outcome.result.waits <= 4


@pytest.mark.parametrize(("gives", "takes"), [(False, True), (True, False)])
def test_roots_that_differ_because_a_small_log_only_takes_do_not_make_it_doubt_itself(monkeypatch, gives, takes):
    monkeypatch.setattr(steps, "DIFFERENCES_MAX", 20)
    client, server = forked(2, 60, common=0)
    outcome, served = Pump(client, server, wishes=Wishes(gives=gives), takes=takes).run()
    assert client.keys > server.keys and served.taken == 0
    assert (outcome.fallback, outcome.is_doubtful, outcome.is_equal, outcome.result.ending) == ("", False, False, Ending.COMPLETE)
    assert outcome.result.entries == 60


@settings(max_examples=12, deadline=None)
@given(seeds, st.integers(0, 12))
def test_a_session_that_is_cut_anywhere_leaves_whole_logs_and_the_next_goes_on(seed, after):
    client, server = replicas(seed, common=0 if seed % 3 == 0 else 80)
    union = client.keys | server.keys
    left = [after]

    def cut(side, frame):
        left[0] -= 1
        return frame if left[0] >= 0 else None

    source = Source()
    Pump(client, server, source=source, seed=seed, tamper=cut).run()
    assert_closed(client)
    assert_closed(server)
    for _ in range(3):
        outcome, _ = Pump(client, server, source=source, seed=seed, wishes=Wishes(after=source.resume_after)).run()
        if outcome.is_equal:
            break
    assert client.keys == server.keys == union


@settings(max_examples=15, deadline=None)
@given(seeds, st.integers(0, 8), st.integers(1, 200))
def test_damaged_bytes_are_nobodys_traceback(seed, at, flips):
    client, server = replicas(seed)
    random, count = Random(seed), [0]

    def damage(side, frame):
        count[0] += 1
        if count[0] - 1 != at:
            return frame
        data = bytearray(frame)
        for _ in range(flips):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return bytes(data)

    union = client.keys | server.keys
    Pump(client, server, seed=seed, tamper=damage).run()
    assert_closed(client)
    assert_closed(server)
    assert client.keys | server.keys == union


def test_one_difference_takes_one_symbol_and_many_are_found_in_a_few_windows():
    for ours, theirs in ((0, 1), (1, 0), (60, 60), (150, 150), (0, 300)):
        client, server = forked(ours, theirs)
        pump = Pump(client, server)
        outcome, served = pump.run()
        assert client.keys == server.keys
        assert outcome.is_equal
        if ours + theirs == 1:
            assert outcome.symbols == 1
        assert outcome.result.waits <= 4
        assert served.symbols == outcome.symbols <= 4 * max(ours + theirs, 16)


def test_two_entries_in_the_same_of_the_first_64_symbols_are_told_apart_by_the_next():
    # The first such pair of 2,500 entries; the next symbols that only one of them is in are 64, 88 and 127.
    pair = [make(("pair", number), [], SIGNERS[0]) for number in (90, 595)]
    client, server = Log(history()[:40]), Log([*history()[:40], *pair])
    outcome, served = Pump(client, server).run()
    assert (outcome.fallback, outcome.result.entries, outcome.symbols) == ("", 2, 128)
    assert outcome.result.waits == 3
    assert served.given == 2


def test_a_new_replica_takes_everything_in_key_order_and_goes_on_where_it_was_cut_off():
    client, server = Log(), Log(history())
    source = Source()
    pump = Pump(client, server, source=source, tamper=lambda side, frame: frame)
    inserted = []
    insert = client.insert_values
    client.insert_values = lambda values: inserted.extend(values) or insert(values)
    outcome, served = pump.run()
    assert (outcome.is_equal, outcome.symbols, outcome.result.waits) == (True, 0, 1)
    assert served.given == len(history()) == outcome.result.entries
    assert inserted == [entry.value for entry in sorted(history(), key=lambda entry: entry.key)]
    # And the other way round.
    empty = Log()
    outcome, served = Pump(Log(history()), empty).run()
    assert (outcome.is_equal, served.taken) == (True, len(history()))


def test_one_direction_and_a_rehearsal():
    client, server = forked(7, 9)
    before = (set(client.keys), set(server.keys))
    outcome, _ = Pump(client, server, wishes=Wishes(is_rehearsal=True)).run()
    assert (outcome.wanted, outcome.given, outcome.result.ending) == (9, 7, Ending.COMPLETE)
    assert (client.keys, server.keys) == before
    outcome, served = Pump(client, server, wishes=Wishes(gives=False)).run()
    assert (outcome.result.entries, served.taken, outcome.fallback) == (9, 0, "")
    client, server = forked(7, 9)
    outcome, served = Pump(client, server, wishes=Wishes(takes=False)).run()
    assert (outcome.result.entries, served.taken, outcome.fallback) == (0, 7, "")
    client, server = forked(7, 9)
    outcome, served = Pump(client, server, takes=False).run()
    assert (outcome.result.entries, served.taken, outcome.fallback) == (9, 0, "") or outcome.fallback


def test_what_one_side_refuses_explains_the_roots_and_is_not_offered_again():
    client, server = forked(5, 3)
    refused = make(("left", 2), [], SIGNERS[0])
    server.refused = _Refusing(["left", 2])
    source = Source()
    outcome, served = Pump(client, server, source=source).run()
    assert (outcome.fallback, outcome.is_equal) == ("", False)
    assert list(outcome.refused) == [refused.key]
    assert served.taken == 4
    outcome, served = Pump(client, server, source=source).run()
    assert (outcome.fallback, outcome.given, served.taken) == ("", 0, 0)
    # It refuses on the taking side: the quarantine remembers, and does not want it again.
    client, server = forked(5, 3)
    client.refused = _Refusing(["right", 1])
    outcome, _ = Pump(client, server).run()
    assert (outcome.fallback, outcome.result.quarantined) == ("", 1)
    outcome, _ = Pump(client, server).run()
    assert (outcome.fallback, outcome.wanted, outcome.result.quarantined) == ("", 0, 1)


class _Refusing(list):
    """A rule that refuses one payload."""

    def __contains__(self, payload):
        return list(payload) == list(self)


# Partners that lie


def liar(*replies):
    """A side that answers each message with the next of these, and then no more."""

    def session():
        for reply in replies:
            frame = yield Receive(1.0)
            if frame is None:
                return
            for message in reply if isinstance(reply, list) else [reply]:
                yield Send(messages.encode(message))
        while (yield Receive(1.0)) is not None:
            pass

    return session()


def noisy(random):
    """A server with symbols of noise, as many as it is asked for."""

    def symbols(count):
        return b"".join(random.randbytes(28) + bytes([random.choice((0, 1, 2))]) for _ in range(count))

    def session():
        yield Receive(1.0)
        yield Send(messages.encode(Hello(40, symbols(32))))
        while (frame := (yield Receive(1.0))) is not None:
            message = messages.decode(frame)
            if isinstance(message, More):
                yield Send(messages.encode(Symbols(symbols(message.count))))

    return session()


ROOT = Node(3, None, b"r" * 16)
LIARS = {
    "another root, with the same sketch": liar(Result(ROOT)),
    "a root as if much had come": liar(Result(ROOT, has_moved=True)),
    "no symbols": liar(Hello(41)),
    "everything, to one who has much": liar(Hello(41, is_wholesale=True)),
    "too many symbols": liar(Hello(41, bytes(29) * (SYMBOLS_MAX + 1))),
    "half a symbol": liar(Hello(41, bytes(40))),
    "symbols as zeros, with another count": liar(Hello(41, bytes(29) * 32)),
    "fewer symbols than asked for": liar(Hello(60, b"\xa5" * 29), Symbols(b"\xa5" * 29)),
    "no end of refusals": liar(Refuse("no")),
    "values out of the blue": liar(Values([b"x"] * 1_000)),
    "a question in answer": liar(Want([], 0)),
}


@pytest.mark.parametrize("name", LIARS)
def test_a_server_that_lies_is_told_apart_and_costs_little(name):
    client, _ = forked(0, 0)
    before = set(client.keys)
    pump = Pump(client, Log(), sessions=(None, LIARS[name]))
    outcome, _ = pump.run()
    assert client.keys == before
    assert pump.client.bytes_out < 1_000
    is_blamed = outcome.result.ending in (Ending.VIOLATION, Ending.CLOSED)
    assert is_blamed or outcome.fallback or name == "a root as if much had come"


def test_a_stream_of_everything_that_does_not_end_is_cut_off():
    order = [entry.value for entry in sorted(history(), key=lambda entry: entry.key)]

    def session():
        yield Receive(1.0)
        yield Send(messages.encode(Hello(0, is_wholesale=True)))
        for number in range(3_000):
            yield Send(messages.encode(Values([order[min(number, len(order) - 1)]])))
        while (yield Receive(1.0)) is not None:
            pass

    outcome, _ = Pump(Log(), Log(), sessions=(None, session())).run()
    assert outcome.result.ending is Ending.VIOLATION


def test_symbols_of_noise_end_after_four_for_each_difference_that_they_claim():
    client, _ = forked(0, 0)
    pump = Pump(client, Log(), sessions=(None, noisy(Random(3))))
    outcome, _ = pump.run()
    assert outcome.fallback
    # Such noise claims some 130 differences; an honest session with so many takes about half of this.
    assert outcome.symbols <= 4 * 200
    assert pump.server.bytes_out <= 30 * outcome.symbols


def test_a_server_that_names_entries_it_has_not_or_sends_others_is_a_liar():
    client, server = forked(0, 3)
    honest = []
    Pump(client, Log([*history()[:40]]), tamper=lambda side, frame: honest.append(frame) or frame).run()
    client, server = forked(0, 3)

    def other_value(side, frame):
        message = messages.decode(frame[_prefix(frame) :])
        if side == "server" and isinstance(message, Values):
            return messages.encode(Values([make("other").value, *message.values[1:]]))
        return frame

    outcome, _ = Pump(client, server, tamper=other_value).run()
    assert outcome.result.ending is Ending.VIOLATION
    assert "the value for key" in outcome.result.reason


def _prefix(frame):
    return next(index for index, byte in enumerate(frame) if byte < 0x80) + 1


def greedy(count):
    """A client that asks for more symbols than there are."""

    def session():
        yield Send(messages.encode(Hello(41, bytes(29))))
        asked = 0
        while (frame := (yield Receive(1.0))) is not None and asked < count:
            assert frame
            yield Send(messages.encode(More(SYMBOLS_MAX)))
            asked += 1

    return session()


def client_of(*frames):
    def session():
        for frame in frames:
            yield Send(messages.encode(frame))
        while (yield Receive(1.0)) is not None:
            pass

    return session()


HELLO = Hello(41, bytes(28) + b"\x01")
ORDER = sorted(history(), key=lambda entry: entry.key)
CLIENTS = {
    "wants what is not there": ([HELLO, Want([b"k" * 20], 0)], "", "a key is not in the log"),
    "gives what it did not announce": ([HELLO, Want([], 1), Values([e.value for e in ORDER[:2]])], "announced", ""),
    "gives nothing at all": ([HELLO, Want([], 1), Values([])], "without values", ""),
    "gives out of order": ([HELLO, Want([], 2), Values([ORDER[1].value, ORDER[0].value])], "order", ""),
    "gives what is no value": ([HELLO, Want([], 1), Values([b"nonsense"])], "a value that is none", ""),
    "begins in the middle": ([Want([], 0)], "in place of Hello", ""),
    "says hello twice": ([HELLO, HELLO], "in place of More or Want", ""),
    "has no symbol": ([Hello(41)], "without a symbol", ""),
    "has two symbols": ([Hello(41, bytes(58))], "more than 1", ""),
    "sends all, and more than it said": ([Hello(0, bytes(29)), Values([b"x"] * 1_001)], "announced", ""),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_that_breaks_the_rules_is_told_apart(name):
    frames, fault, reason = CLIENTS[name]
    server = Log(history()[:40])
    before = set(server.keys)
    _, served = Pump(Log(), server, sessions=(client_of(*frames), None)).run()
    assert fault in served.fault
    assert reason in served.reason
    assert bool(served.fault) == bool(fault)
    assert server.keys == before


def test_a_client_gets_no_more_symbols_than_there_are():
    pump = Pump(Log(), Log(history()[:40]), sessions=(greedy(100), None))
    _, served = pump.run()
    assert "a sketch has" in served.fault
    assert served.symbols <= SYMBOLS_MAX


def test_invalid_values_are_left_out_and_a_crowd_of_them_ends_the_session():
    forged = []
    for number in range(60):
        value = bytearray(make(("forged", number), [], SIGNERS[2]).value)
        value[-1] ^= 1
        forged.append(bytes(value))
    from gossiplog.entry.message import Entry

    forged.sort(key=lambda value: Entry.stored(value).key)
    server = Log(history()[:40])
    _, served = Pump(Log(), server, sessions=(client_of(HELLO, Want([], 5), Values(forged[:5])), None)).run()
    assert (served.rejected, served.fault) == (5, "")
    _, served = Pump(Log(), server, sessions=(client_of(HELLO, Want([], 60), Values(forged)), None)).run()
    assert "invalid values" in served.fault


def test_a_sketch_that_is_not_that_of_its_log_falls_back_and_is_doubted():
    """As after another process repaired the log: what was set aside is in our sketch still."""
    client, server = forked(3, 3)
    view = client.view()
    view.sketch.add([b"gone" * 5])
    outcome, _ = Pump(client, server, sessions=(reconcile(view, Source(), 0.0, Wishes()), None)).run()
    assert outcome.fallback
    assert outcome.is_doubtful
