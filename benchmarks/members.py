"""What members cost: `python -m benchmarks.members`.

Entries of 10,000 members are taken in by a log with a policy and by one without, in turns, with as many other entries before them, and once
more after 100 removals. The members of 10,000 grants and 100 removals are evaluated from nothing. And in a large log 1,000 entries of a
removed member are made void: before they come, after they were applied by an application that can undo them, and by one that cannot.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio

import gossiplog
from gossiplog import Application, Entry, GossipLog, Policy
from gossiplog.access import NOTHING, Grant, Members, Revoke, encode_said
from gossiplog.codec import pcf
from gossiplog.entry.message_id import decode_id
from gossiplog.entry.rules import next_clock
from gossiplog.entry.signing import Ed25519Signer, sign_entry

from .measure import Figure, Goal, Stopwatch, machine, versions, write_results

SEED = 1
TURNS = 9
VOID = 1_000
RESULTS = Path(__file__).with_name("results")
FOUNDER = Ed25519Signer.from_seed(bytes(32))


def chain(topic: str, parent: bytes, said: Sequence[tuple[Ed25519Signer, Any]]) -> list[Entry]:
    """Sign payloads, each on top of the one before."""
    entries = []
    for signer, payload in said:
        entries.append(sign_entry(signer, topic, next_clock([parent]), [parent], pcf.encode(payload)))
        parent = entries[-1].key
    return entries


async def ingest(members: int, count: int, removals: int, folder: Path) -> list[Figure]:
    """Take in the same data with and without a policy, in turns, after others were removed."""
    rng, load = random.Random(SEED), [os.getloadavg()[0]]
    signers = [Ed25519Signer.from_seed(rng.randbytes(32)) for _ in range(members)]
    data = [(rng.choice(signers[removals:]), {"text": rng.randbytes(100).hex()}) for _ in range(count)]
    policy = Policy((FOUNDER.did,), salt=bytes(16))
    prepared = {}
    for topic in (policy.topic("members.example.com"), "members.example.com"):
        has_policy = topic != "members.example.com"
        first = policy.entry(topic) if has_policy else sign_entry(FOUNDER, topic, 1, [], pcf.encode({}))
        grants = [encode_said(Grant(signer.did, "write", FOUNDER.did)) for signer in signers]
        before = chain(topic, first.key, [(FOUNDER, said if has_policy else {"data": said}) for said in grants])
        gone = [encode_said(Revoke(entry.id, FOUNDER.did)) for entry in before[:removals]]
        before += chain(topic, before[-1].key, [(FOUNDER, said if has_policy else {"data": said}) for said in gone])
        prepared[topic] = [[entry.value for entry in each] for each in ([first, *before], chain(topic, before[-1].key, data))]
    rates: dict[str, list[float]] = {topic: [] for topic in prepared}
    for turn in range(TURNS):
        for topic in sorted(prepared, reverse=bool(turn % 2)):
            before, values = prepared[topic]
            async with gossiplog.open(folder / f"{turn} {len(topic)}.db", topic=topic, durability="off") as log:
                for low in range(0, len(before), 1_000):
                    await log.insert_many(before[low : low + 1_000])
                # Else what came before is looked through in the turns of either.
                gc.collect()
                with Stopwatch() as watch:
                    for low in range(0, count, 500):
                        await log.insert_many(values[low : low + 500])
            rates[topic].append(count / watch.cpu_s)
    with_policy, without = rates.values()
    shares = [100 * ours / theirs for ours, theirs in zip(with_policy, without, strict=True)]
    name = "members.ingest" + ("-after-removals" if removals else "")
    what = f"ingest of {count:,} entries by {members:,} members" + (f", {removals} of whom were removed before" if removals else "")
    return [
        Figure(name, what, "entries/s CPU", with_policy, load=load),
        Figure(f"{name}-share", f"{what}, in that of a log without a policy", "%", shares, Goal(at_least=90), load=load),
    ]


def evaluate(grants: int, removals: int) -> Figure:
    """Find who is a member from the control entries alone."""
    rng = random.Random(SEED)
    samples = []
    for _ in range(TURNS):
        members = Members(Policy((FOUNDER.did,), salt=bytes(16)))
        view, names = NOTHING, [FOUNDER.did]
        for number in range(grants + removals):
            key = (number + 1).to_bytes(20)
            if number < grants:
                above = rng.choice(names[-50:])
                above = above if len(members.nodes[above].path) < 8 else FOUNDER.did
                control = members.add(key, Grant(f"did {number}", "admin", above), view, NOTHING)
                names.append(control.id)
            else:
                control = members.add(key, Revoke(rng.choice(names[1:]), FOUNDER.did), view, view)
            view = control.view_after
        with Stopwatch() as watch:
            held = sum(not members.bars_of_node(node) for node in members.nodes.values())
        assert 0 < held < grants
        samples.append(1_000 * watch.cpu_s)
    return Figure("members.evaluate", f"the state of {grants:,} nodes, {removals} of them removed", "ms CPU", samples, Goal(at_most=100))


async def remove(count: int, folder: Path) -> list[Figure]:
    """Make 1,000 entries void in a large log, in three ways; says how often an application began anew."""
    resets: list[str] = []

    def application(name: str, **options: Any) -> Application:
        def reset(tx: Any) -> None:
            resets.append(name)
            tx.execute("DROP TABLE IF EXISTS counted")
            tx.execute("CREATE TABLE counted (id INTEGER PRIMARY KEY, number INTEGER)")
            tx.execute("INSERT INTO counted VALUES (1, 0)")

        def apply(entries: list[Entry], tx: Any) -> None:
            tx.execute("UPDATE counted SET number = number + $1", (len(list(entries)),))

        return Application("counted", 1, apply, reset, order_free=True, **options)

    def undo(entries: list[Entry], tx: Any) -> None:
        tx.execute("UPDATE counted SET number = number - $1", (len(list(entries)),))

    path = folder / "large.db"
    removed = [Ed25519Signer.from_seed(bytes([number]) * 32) for number in (1, 2, 3)]
    options = {"topic": "members.example.com", "policy": Policy((FOUNDER.did,)), "signer": FOUNDER, "durability": "off"}
    async with gossiplog.open(path, **options) as log:
        topic = log.topic
        nodes = [await log.grant(signer.did) for signer in removed]
        for _ in range(count // 1_000):
            await log.append_many([{"text": "x" * 100}] * 1_000)
    void = [chain(topic, nodes[-1].key, [(signer, {"late": number}) for number in range(VOID)]) for signer in removed]

    async def make_void(log: GossipLog, number: int, *, is_known: bool) -> tuple[float, int]:
        heads = [decode_id(id) for id in await log.heads()]
        revocation = chain_of(topic, heads, encode_said(Revoke(nodes[number].id, FOUNDER.did)))
        values, begun = [entry.value for entry in void[number]], len(resets)
        if not is_known:
            await log.insert_many(values)
        # Not what verifies signatures in other processes.
        spent = -time.process_time()
        await log.insert(revocation.value)
        if is_known:
            await log.insert_many(values)
        spent += time.process_time()
        ((counted,),) = await log.query("SELECT number FROM counted")
        assert counted == count // 1_000 * 1_000, counted
        assert not (await log.standing(void[number][0].id)).counts
        return spent, len(resets) - begun

    figures = []
    for number, (what, is_known, more) in enumerate(
        (
            ("that come after their removal", True, {}),
            ("that were applied, with an application that undoes", False, {"undo": undo}),
            ("that were applied, with one that is built anew", False, {}),
        )
    ):
        load = [os.getloadavg()[0]]
        async with gossiplog.open(path, signer=FOUNDER, app=application(what, **more), durability="off") as log:
            spent, times = await make_void(log, number, is_known=is_known)
        goal = Goal(at_most=0) if number < 2 else None
        what = f"{VOID:,} of {count:,} entries made void {what}"
        figures += [
            Figure(f"members.void-{number}", what, "s CPU", [spent], load=load),
            Figure(f"members.void-{number}.rebuilds", f"{what}: times that tables were built anew", "", [times], goal, load=load),
        ]
    load = [os.getloadavg()[0]]
    async with gossiplog.open(path, signer=FOUNDER, durability="off") as log:
        with Stopwatch() as watch:
            await log.revoke((await log.grant(removed[0].did)).id)
            await log.revoke(nodes[0].id, keep=[])
    what = f"a removal that keeps nothing of a member who was in from the beginning, in {count:,} entries"
    return [*figures, Figure("members.keep-nothing", what, "s CPU", [watch.cpu_s], load=load)]


def chain_of(topic: str, parents: list[bytes], said: Any) -> Entry:
    """Sign what the founder says on top of some entries."""
    return sign_entry(FOUNDER, topic, next_clock(parents), sorted(parents), pcf.encode(said))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.members", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=10_000)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=1_000_000)
    parser.add_argument("--dry", action="store_true", help="write no results")
    options = parser.parse_args()
    figures = [evaluate(options.members, 100)]
    print(*figures, sep="\n", flush=True)
    for function, numbers in (
        (ingest, (options.members, options.count, 0)),
        (ingest, (options.members, options.count, 100)),
        (remove, (options.large,)),
    ):
        with tempfile.TemporaryDirectory() as folder:
            found = trio.run(function, *numbers, Path(folder))  # type: ignore[arg-type]
        print(*found, sep="\n", flush=True)
        figures += found
    if options.dry:
        return
    header = {"command": "python -m benchmarks.members", "machine": machine(), "versions": versions(), "seed": SEED}
    write_results(RESULTS / "members", "Members", header, figures)


if __name__ == "__main__":
    main()
