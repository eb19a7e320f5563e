"""What every log does, whatever it is stored in: writing, reading back, the graph, the tree."""

from functools import partial
from random import Random

import pytest
import trio
from log_support import SIGNERS, TOPIC, Graph, all_of, assert_log_is, assert_whole, make, make_history, unordered

from gossiplog.entry import Outcome, Verdict, clock_of, encode_id
from gossiplog.errors import AmbiguousId, ClosedError, DecodeError, EncodeError, LocalProtocolError, NotFound
from gossiplog.log.commit import HEADS_MERGED_MAX
from gossiplog.log.requests import ReadCount
from gossiplog.plan import ask
from gossiplog.tree import ANCHOR_HASH


async def test_an_empty_log_has_no_entries_and_the_anchor_as_its_root(open_log) -> None:
    async with open_log() as log:
        assert (await log.count(), await log.heads(), await log.clock()) == (0, [], 1)
        assert await log.root() == (0, None, ANCHOR_HASH)
        assert await all_of(log) == []
        assert await log.append_many([]) == []
        assert await log.insert_many([]) == []
        assert (await log.fsck()).is_clean


async def test_appended_entries_follow_each_other(open_log) -> None:
    async with open_log() as log:
        first = await log.append({"op": "set", "key": "a", "value": 1})
        second, third = await log.append_many(["b", None], signer=SIGNERS[1])
        assert first.message.payload == {"op": "set", "key": "a", "value": 1}
        assert (first.clock, second.clock, third.clock) == (1, 2, 3)
        assert (first.message.parents, second.message.parents, third.message.parents) == ((), (first.id,), (second.id,))
        assert second.signature.public_key == SIGNERS[1].did
        assert await log.heads() == [third.id]
        assert await log.clock() == 4
        await assert_log_is(log, [first, second, third])


async def test_a_thousand_and_more_entries_in_one_batch(open_log) -> None:
    async with open_log() as log:
        entries = await log.append_many(range(1_100))
        assert [entry.message.payload for entry in entries] == list(range(1_100))
        async with open_log("other") as other:
            verdicts = await other.insert_many([entry.value for entry in entries])
            assert all(verdict.accepted and verdict.is_new for verdict in verdicts)
            await assert_log_is(other, entries)
            assert await other.root() == await log.root()


async def test_an_append_without_a_signer_is_the_callers_mistake(open_log) -> None:
    async with open_log(signer=None) as log:
        with pytest.raises(LocalProtocolError, match="signer"):
            await log.append(1)
        assert (await log.append(1, signer=SIGNERS[2])).signature.public_key == SIGNERS[2].did


async def test_a_payload_that_cannot_be_stored_stores_nothing_of_its_batch(open_log) -> None:
    async with open_log(value_bytes_max=4_096) as log:
        with pytest.raises(EncodeError, match=r"\$\.a"):
            await log.append({"a": float("nan")})
        with pytest.raises(EncodeError):
            await log.append_many(["fits", "x" * 5_000])
        assert await log.count() == 0
        await log.append("x" * 3_000)
        await assert_whole(log)


async def test_verdicts_say_what_became_of_each_value(open_log) -> None:
    a = make("a")
    b = make("b", [a])
    orphan = make("c", [make("missing")])
    foreign = make("d", topic="other.example.com")
    forged = bytearray(make("e").value)
    forged[100] ^= 1
    async with open_log() as log:
        verdicts = await log.insert_many([a.value, b.value, a.value, orphan.value, foreign.value, bytes(forged), b"", b"\xff" * 99])
        assert [(verdict.outcome, verdict.rule, verdict.is_new) for verdict in verdicts] == [
            (Outcome.ACCEPT, None, True),
            (Outcome.ACCEPT, None, True),
            (Outcome.ACCEPT, None, False),
            (Outcome.IGNORE, "parents", False),
            (Outcome.REJECT, "topic", False),
            (Outcome.REJECT, "signature", False),
            (Outcome.REJECT, "canonical", False),
            (Outcome.REJECT, "canonical", False),
        ]
        assert orphan.parent_keys[0] != b"" and encode_id(orphan.parent_keys[0]) in (verdicts[3].reason or "")
        assert (await log.insert(b.value)).is_new is False
        await assert_log_is(log, [a, b])


async def test_children_before_their_parents_are_ignored_and_can_come_again(open_log) -> None:
    a = make("a")
    b = make("b", [a])
    async with open_log() as log:
        assert [verdict.outcome for verdict in await log.insert_many([b.value, a.value])] == [Outcome.IGNORE, Outcome.ACCEPT]
        assert (await log.insert(b.value)).is_new
        await assert_log_is(log, [a, b])


async def test_iterating_within_bounds_forwards_and_backwards(open_log) -> None:
    async with open_log() as log:
        ids = [entry.id for entry in await log.append_many(range(600))]
        for bounds, expected in [
            ({}, ids),
            ({"after": ids[10]}, ids[11:]),
            ({"before": ids[10]}, ids[:10]),
            ({"after": ids[3], "before": ids[590]}, ids[4:590]),
            ({"after": ids[-1]}, []),
            ({"limit": 300}, ids[:300]),
            ({"limit": 0}, []),
            ({"after": ids[256], "limit": 257}, ids[257:514]),
            ({"after": "0" * 32, "before": "v" * 32}, ids),
        ]:
            assert [entry.id async for entry in log.iterate(**bounds)] == expected
            backwards = [entry.id async for entry in log.iterate(reverse=True, **bounds)]
            limit = bounds.pop("limit", None)
            assert backwards == [entry.id async for entry in log.iterate(**bounds)][::-1][:limit]
        with pytest.raises(DecodeError):
            await anext(log.iterate(after="not an id"))


@pytest.mark.parametrize("limit", [-1, 1.5, True, "3"])
async def test_a_limit_that_is_no_whole_number_is_the_callers_mistake(open_log, limit) -> None:
    async with open_log() as log:
        entry = await log.append(1)
        for read in (log.iterate, partial(log.ancestors, entry.id)):
            with pytest.raises(LocalProtocolError, match=r"limit .*, expected at least 0"):
                read(limit=limit)


async def test_entries_are_found_by_id_and_by_prefix(open_log) -> None:
    async with open_log() as log:
        entries = await log.append_many(range(40))
        for entry in entries:
            assert (await log.get(entry.id)).value == entry.value
            assert await log.has(entry.id)
            assert await log.resolve(entry.id) == entry.id
            assert await log.resolve(entry.id[:12]) == entry.id
        stranger = make("elsewhere").id
        assert not await log.has(stranger)
        for call in (log.get, log.children, log.position, log.resolve):
            with pytest.raises(NotFound):
                await call(stranger)
        with pytest.raises(NotFound):
            await log.is_ancestor(stranger, entries[0].id)
        with pytest.raises(AmbiguousId) as caught:
            await log.resolve("0")
        assert caught.value.matches == sorted(caught.value.matches) and len(caught.value.matches) > 1
        for wrong in ("", "zz", "0" * 33, "0" * 10**6, "0A", "0\n", "é"):
            with pytest.raises(DecodeError, match="no id begins with") as refused:
                await log.resolve(wrong)
            assert "1 to 32 of the characters 0-9 and a-v" in (refused.value.hint or "")
            assert len(str(refused.value)) < 80


@pytest.mark.parametrize("seed", range(4))
async def test_the_graph_is_that_of_the_entries(open_log, seed) -> None:
    random = Random(seed)
    history = make_history(random, 45, recent=random.choice([3, 8, 30]))
    graph = Graph(history)
    async with open_log() as log:
        at = 0
        while at < len(history):
            size = random.choice([1, 1, 3, 20])
            await log.insert_many([entry.value for entry in history[at : at + size]])
            at += size
        await assert_log_is(log, history)
        for entry in history:
            assert await log.children(entry.id) == [encode_id(key) for key in graph.children(entry.key)]
            ancestors = [found.key async for found in log.ancestors(entry.id)]
            assert ancestors == sorted(graph.ancestors[entry.key], reverse=True)
            assert [found.key async for found in log.ancestors(entry.id, limit=3)] == ancestors[:3]
            # All pairs, but where each question is a few statements, or round trips besides.
            for other in random.sample(history, {"memory": len(history), "sqlite": 15, "postgres": 4}[open_log.store]):
                assert await log.is_ancestor(other.id, entry.id) == (other.key in graph.ancestors[entry.key])


async def test_every_entry_has_a_position_of_its_own(open_log) -> None:
    history = make_history(Random(7), 100)
    async with open_log() as log:
        await log.insert_many([entry.value for entry in history])
        positions = [await log.position(entry.id) for entry in history]
        assert len(set(positions)) == len(history)
        assert [at.clock for at in positions] == [entry.clock for entry in history]


async def test_an_append_merges_at_most_256_heads_and_the_next_one_the_rest(open_log) -> None:
    roots = [make(number) for number in range(600)]
    async with open_log() as log:
        await log.insert_many([entry.value for entry in roots])
        assert len(await log.heads()) == 600
        keys = sorted(entry.key for entry in roots)
        first, second, third = await log.append_many(["first", "second", "third"])
        assert list(first.parent_keys) == keys[:HEADS_MERGED_MAX]
        assert list(second.parent_keys) == keys[HEADS_MERGED_MAX : 2 * HEADS_MERGED_MAX]
        assert list(third.parent_keys) == [*keys[2 * HEADS_MERGED_MAX :], *sorted([first.key, second.key])]
        assert await log.heads() == [third.id]
        await assert_log_is(log, [*roots, first, second, third])


async def test_appends_in_one_group_share_the_heads_between_them(open_log) -> None:
    roots = [make(number) for number in range(300)]
    async with open_log() as log:
        await log.insert_many([entry.value for entry in roots])
        made = []

        async def append(number: int) -> None:
            made.append(await log.append(number))

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(append, number)
        assert len(await log.heads()) == 1
        await assert_log_is(log, [*roots, *made])


async def test_a_huge_fan_in_and_a_wide_fork(open_log) -> None:
    root = make("root")
    forks = [make(number, [root]) for number in range(1_200)]
    merge = make("merge", sorted(forks, key=lambda entry: entry.key))
    after = make("after", [merge])
    async with open_log() as log:
        verdicts = await log.insert_many([entry.value for entry in [root, *forks, merge, after]])
        assert all(verdict.is_new for verdict in verdicts)
        assert await log.is_ancestor(root.id, after.id)
        assert await log.is_ancestor(forks[777].id, after.id)
        assert not await log.is_ancestor(forks[777].id, forks[5].id)
        assert len(await log.children(root.id)) == 1_200
        assert await log.children(forks[3].id) == [merge.id]
        assert len([entry async for entry in log.ancestors(after.id)]) == 1_202
        await assert_log_is(log, [root, *forks, merge, after])


async def test_redundant_parents_and_duplicates_are_stored_as_they_came(open_log) -> None:
    a = make("a")
    b = make("b", [a])
    c = unordered("c", [b, a, b, a])
    d = unordered("d", [a, c, a])
    async with open_log() as log:
        await log.insert_many([a.value, b.value])
        # An entry of this form is refused today, and a log of before may hold it.
        verdict = await log.insert(c.value)
        assert (verdict.outcome, verdict.rule) == (Outcome.IGNORE, "portable")
        await log.insert_verified([Verdict(Outcome.ACCEPT, entry=entry) for entry in (c, d)])
        assert (await log.get(c.id)).message.parents == (b.id, a.id, b.id, a.id)
        assert await log.children(a.id) == sorted([b.id, c.id, d.id])
        assert await log.is_ancestor(a.id, d.id) and await log.is_ancestor(b.id, d.id) and not await log.is_ancestor(d.id, c.id)
        assert not await log.is_ancestor(a.id, a.id)
        await assert_log_is(log, [a, b, c, d])


async def test_a_clock_may_jump_on_a_branch(open_log) -> None:
    chain = [make(0)]
    for number in range(1, 300):
        chain.append(make(number, [chain[-1]]))
    other = make("other")
    jump = make("jump", [other, chain[-1]], SIGNERS[1])
    back = make("back", [jump, other])
    async with open_log() as log:
        # The short branch gets the merge, whose clock is 299 above the one before it there.
        await log.insert_many([entry.value for entry in [other, *chain, jump, back]])
        assert clock_of(jump.key) == 301
        assert await log.children(other.id) == sorted([jump.id, back.id])
        assert await log.is_ancestor(chain[150].id, back.id)
        assert not await log.is_ancestor(other.id, chain[200].id)
        await assert_log_is(log, [other, *chain, jump, back])


async def test_each_concurrent_caller_gets_its_own_entry_back(open_log) -> None:
    async with open_log() as log:
        made = {}

        async def append(number: int) -> None:
            made[number] = await log.append({"number": number}, signer=SIGNERS[number % 4])

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(append, number)
        for number, entry in made.items():
            assert entry.message.payload == {"number": number}
            assert entry.signature.public_key == SIGNERS[number % 4].did
        await assert_log_is(log, made.values())


async def test_one_callers_mistake_is_not_anothers(open_log) -> None:
    class BrokenSigner:
        did, codec = SIGNERS[3].did, "dag-cbor"

        def sign(self, data: bytes) -> bytes:
            raise OSError("the device is gone")

    async with open_log() as log:
        outcomes = {}

        async def append(number: int) -> None:
            try:
                outcomes[number] = await log.append(number, signer=BrokenSigner() if number % 10 == 3 else SIGNERS[0])
            except OSError as error:
                outcomes[number] = error

        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(append, number)
        assert sorted(number for number, outcome in outcomes.items() if isinstance(outcome, OSError)) == [3, 13, 23, 33]
        assert await log.count() == 36
        await assert_whole(log)


async def test_two_logs_that_sync_both_ways_are_equal(open_log) -> None:
    async with open_log("a") as a, open_log("b", signer=SIGNERS[1]) as b:
        await a.append_many(range(140))
        await b.sync(a)
        await a.append_many(range(100))
        await b.append_many(range(120))
        assert (await a.sync(b)).entries == 120
        assert (await b.sync(a)).entries == 100
        assert (await a.sync(b)).entries == 0
        assert await a.root() == await b.root()
        assert await a.heads() == await b.heads()
        await assert_log_is(b, await all_of(a))


async def test_logs_of_different_topics_do_not_sync(open_log) -> None:
    async with open_log("a") as a, open_log("b", topic="other") as b:
        with pytest.raises(LocalProtocolError, match="topic"):
            await a.sync(b)


async def test_a_log_that_is_closed_says_so(open_log) -> None:
    async with open_log() as log:
        entry = await log.append(1)
        assert [found.key async for found in log.iterate()] == [entry.key]
    writes = (partial(log.append, 2), partial(log.insert, entry.value), log.forget_sketch)
    reads = [partial(log.query, "SELECT 1"), log.heads, log.root, log.count, log.moment, log.size_bytes, log.sketch, log.fsck]
    of_one = [partial(read, entry.id) for read in (log.get, log.has, log.resolve, log.position, log.children)]
    pages = [anext(aiter(page)) for page in (log.iterate(), log.ancestors(entry.id), log.quarantine(), log.set_aside())]
    for call in (*writes, *reads, *of_one, log.snapshot().__aenter__, *(partial(wait, page) for page in pages)):
        with pytest.raises(ClosedError):
            await call()


async def wait(answer):
    return await answer


async def test_a_snapshot_that_outlives_its_log_says_so(open_log) -> None:
    opened = open_log()
    log = await opened.__aenter__()
    async with log.snapshot() as snapshot:
        assert (await snapshot.run(ask(ReadCount())))[0] == 0
        await opened.__aexit__(None, None, None)
        with pytest.raises(ClosedError):
            await snapshot.run(ask(ReadCount()))


async def test_what_was_submitted_before_the_end_of_the_block_is_committed(open_log) -> None:
    made = []
    async with trio.open_nursery() as nursery, open_log() as log:

        async def append(number: int) -> None:
            made.append(await log.append(number))

        for number in range(30):
            nursery.start_soon(append, number)
        await trio.testing.wait_all_tasks_blocked()
    assert len(made) == 30


async def test_a_body_that_raises_raises_just_that(open_log) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_log() as log:
            await log.append(1)
            raise KeyError("mine")
    with pytest.raises(NotFound):
        async with open_log() as log:
            await log.get("0" * 32)


async def test_the_topic_and_the_place_are_known(open_log) -> None:
    async with open_log() as log:
        assert log.topic == TOPIC
        assert log.location
        assert not log.read_only
        assert await log.size_bytes() >= 0


async def test_a_check_sees_one_state_of_a_log_that_is_written_to_meanwhile(open_log) -> None:
    async with open_log() as log, trio.open_nursery() as nursery:
        await log.append_many(range(1_100))
        has_begun, written = trio.Event(), trio.Event()

        async def write_on() -> None:
            await has_begun.wait()
            # Each of these begins a branch, with a link to it when it is merged.
            await log.insert_many([make(number, [], SIGNERS[1]).value for number in range(5)])
            await log.append("over all")
            written.set()

        nursery.start_soon(write_on)
        report = await log.fsck(on_progress=lambda done: has_begun.set())
        assert (report.entries, report.is_clean, report.findings) == (1_100, True, ())
        await written.wait()
        assert (await log.fsck()).entries == 1_106
