"""Who may write: the access rule is the same on every replica, and what it refuses has no place in the log."""

import pytest
import trio
from log_support import SIGNERS, assert_log_is, assert_whole, make

import gossiplog
from gossiplog.entry import Outcome
from gossiplog.errors import LocalProtocolError, NotAuthorised


async def test_the_access_rule_refuses_appends_and_keeps_others_out_with_what_builds_on_them(open_log) -> None:
    def authorize(message, did) -> bool:
        return did == SIGNERS[0].did

    a = make("a")
    b = make("b", [a], SIGNERS[1])
    c, d = make("c", [b]), make("d", [a])
    async with open_log(authorize=authorize) as log:
        with pytest.raises(NotAuthorised, match=SIGNERS[1].did):
            await log.append("theirs", signer=SIGNERS[1])
        verdicts = await log.insert_many([entry.value for entry in (a, b, c, d)])
        assert [(verdict.outcome, verdict.rule) for verdict in verdicts] == [
            (Outcome.ACCEPT, None),
            (Outcome.IGNORE, "access"),
            (Outcome.IGNORE, "access"),
            (Outcome.ACCEPT, None),
        ]
        assert [record async for record in log.quarantine()] == []
        # A child of one that descends from it alone is void as well, and is not waited for.
        assert (await log.insert(make("late", [c]).value)).rule == "access"
        await assert_log_is(log, [a, d])


async def test_a_rule_that_raises_about_an_entry_refuses_it_and_no_other(open_log) -> None:
    def authorize(message, did) -> bool:
        return 1 / message.payload > 0

    async with open_log(authorize=authorize) as log:
        with pytest.raises(NotAuthorised, match=r"the access rule .*authorize raised ZeroDivisionError: division by zero") as caught:
            await log.append(0)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        outcomes: list[str] = []

        async def append(payload: object) -> None:
            try:
                outcomes.append(f"{(await log.append(payload)).payload} stored")
            except NotAuthorised:
                outcomes.append(f"{payload} refused")

        async with trio.open_nursery() as nursery:
            for payload in (3, 0, 4):
                nursery.start_soon(append, payload)
        assert sorted(outcomes) == ["0 refused", "3 stored", "4 stored"], "it keeps back no append of another task"
        verdicts = await log.insert_many([make(payload).value for payload in (1, 0, "poison", 2)])
        assert [verdict.rule for verdict in verdicts] == [None, "access", "access", None]
        assert "ZeroDivisionError" in str(verdicts[1].reason)
        await assert_whole(log)


def may_write(message, did, past) -> bool:
    """Whoever was banned may write nothing that comes after it."""
    return not any(entry.payload == f"ban {did}" for entry in past.ancestors())


async def test_a_ban_and_what_was_written_beside_it_converge(open_log) -> None:
    root = make("root")
    ban = make(f"ban {SIGNERS[1].did}", [root])
    beside, after = make("beside", [root], SIGNERS[1]), make("after", [ban], SIGNERS[1])
    answer = make("answer", [after])
    merged = make("merged", [ban, beside], SIGNERS[2])
    everything = [root, ban, beside, after, answer, merged]
    roots = []
    for order in (everything, [root, beside, ban, after, merged, answer], [root, beside, ban, merged, after, answer]):
        async with open_log(f"log{len(roots)}", authorize=may_write) as log:
            if len(roots) == 1:
                for entry in order:
                    await log.insert(entry.value)
            else:
                await log.insert_many([entry.value for entry in order])
            await assert_log_is(log, [root, ban, beside, merged])
            with pytest.raises(NotAuthorised):
                await log.append("again", signer=SIGNERS[1])
            roots.append((await log.root()).hash)
    assert len(set(roots)) == 1


async def test_past_knows_ancestors_and_nothing_else(open_log) -> None:
    seen = {}
    a, absent = make("a"), make("absent")
    b, beside = make("b", [a]), make("beside", [a])
    c = make("c", [b])

    def authorize(message, did, past) -> bool:
        assert not any(past.is_ancestor(*ids) for ids in ((absent.id,), (absent.id, a.id), (absent.id, absent.id), (a.id, absent.id)))
        assert past.get(absent.id) is None
        seen[message.payload] = (
            past.is_ancestor(a.id),
            past.is_ancestor(b.id),
            past.is_ancestor(a.id, b.id),
            past.is_ancestor(b.id, a.id),
            past.get(beside.id),
            past.get(a.id),
            [entry.payload for entry in past.ancestors()],
        )
        return True

    async with open_log(authorize=authorize) as log:
        await log.insert_many([entry.value for entry in (a, beside, b)])
        await log.insert(c.value)
    assert seen["a"] == (False, False, False, False, None, None, [])
    assert seen["b"] == (True, False, False, False, None, a, ["a"])
    assert seen["c"] == (True, True, True, False, None, a, ["b", "a"])


async def test_a_coroutine_function_as_the_rule_is_refused_at_opening() -> None:
    async def authorize(message, did) -> bool:
        return False

    with pytest.raises(LocalProtocolError, match="always be yes") as raised:
        async with gossiplog.open(":memory:", topic="a", authorize=authorize):
            pass
    assert "past" in str(raised.value.hint)


async def test_what_is_refused_is_logged_once(open_log, caplog) -> None:
    refused = make("no")
    with caplog.at_level("INFO", "gossiplog.application"):
        async with open_log(authorize=lambda message, did: message.payload != "no") as log:
            for _ in range(3):
                await log.insert(refused.value)
            await trio.lowlevel.checkpoint()
    assert [record.getMessage() for record in caplog.records] == [
        f"entry {refused.id} of {refused.author} refused: {refused.author} is not authorised"
    ]


async def test_a_sync_leaves_out_what_is_refused_and_does_not_ask_for_it_again(open_log) -> None:
    a = make("a")
    b = make("b", [a], SIGNERS[1])
    c, d = make("c", [b]), make("d", [a])
    async with open_log("all") as source, open_log("some", authorize=lambda message, did: did == SIGNERS[0].did) as target:
        await source.insert_many([entry.value for entry in (a, b, c, d)])
        first = await target.sync(source)
        assert (first.entries, first.quarantined, first.rejected) == (2, 2, 0)
        await source.insert(make("e", [c]).value)
        again = await target.sync(source)
        assert (again.entries, again.rejected, again.orphans) == (0, 0, 0)
        assert again.complete
        await assert_log_is(target, [a, d])
