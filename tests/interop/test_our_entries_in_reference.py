"""What we sign, the reference accepts, serves unchanged, and puts into the same tree."""

from __future__ import annotations

import random

import pytest
from interop_support import CODECS, SEEDS, TOPIC, Reference, chain, load_vectors, portable_payloads, random_payload, root_of

import gossiplog
from gossiplog import Ed25519Signer, Entry

pytestmark = pytest.mark.slow

TOPIC_OF_VECTORS = "t.example"
SIZES = (0, 1, 10, 1_000, 5_000)


async def assert_same_log(reference: Reference, entries: list[Entry], topic: str = TOPIC) -> None:
    """Insert entries, parents first, into a log of ours and one of the reference's, and compare everything that can be seen."""
    async with gossiplog.open(":memory:", topic=topic) as log:
        assert all(verdict.accepted for verdict in await log.insert_many([entry.value for entry in entries]))
        await reference.ask("open", log="theirs", topic=topic)
        assert await reference.insert("theirs", entries) == [entry.id for entry in entries]
        assert await reference.root("theirs") == await root_of(log)
        assert await reference.ask("heads", log="theirs") == await log.heads()
        assert await reference.export("theirs") == [(entry.id, entry.value) async for entry in log.iterate()]


async def test_every_kind_of_payload_is_accepted_in_both_codecs(reference: Reference) -> None:
    payloads = portable_payloads()
    assert len(payloads) > 50
    await assert_same_log(reference, chain(payloads))


async def test_entries_that_both_accept_make_the_same_log(reference: Reference) -> None:
    accepted = [Entry.decode(bytes.fromhex(case["value"])) for case in load_vectors("entries") if case["verdict"] == "accept"]
    assert len(accepted) > 10
    await assert_same_log(reference, sorted(accepted, key=lambda entry: entry.key), TOPIC_OF_VECTORS)


async def test_what_we_reject_the_reference_rejects_or_can_never_serve(reference: Reference) -> None:
    cases = [case for case in load_vectors("entries") if case["verdict"] == "reject"]
    assert len(cases) > 10
    for case in cases:
        value = bytes.fromhex(case["value"])
        assert not gossiplog.validate(value).accepted, case["name"]
        await reference.ask("open", log=case["name"], topic=TOPIC_OF_VECTORS)
        (answer,) = await reference.ask("insert", log=case["name"], values=[value.hex()])
        assert ("error" in answer) == (case["reference"] == "reject"), (case["name"], answer)
        if "error" not in answer:
            exported = await reference.ask("export", log=case["name"], may_fail=True)
            assert exported is None or [entry["value"] for entry in exported] != [value.hex()], case["name"]


async def test_appends_of_ours_with_forks_and_merges_are_accepted(reference: Reference) -> None:
    rng = random.Random(7)
    signers = [Ed25519Signer.from_seed(seed, codec=codec) for seed in SEEDS for codec in CODECS]
    async with (
        gossiplog.open(":memory:", topic=TOPIC) as one,
        gossiplog.open(":memory:", topic=TOPIC) as two,
        gossiplog.open(":memory:", topic=TOPIC) as three,
    ):
        logs = [one, two, three]
        for _ in range(300):
            await rng.choice(logs).append(random_payload(rng), signer=rng.choice(signers))
            if rng.random() < 0.2:
                source, target = rng.sample(logs, 2)
                await target.sync(source)
        await one.sync(two)
        await one.sync(three)
        entries = [entry async for entry in one.iterate()]
        assert max(len(entry.parent_keys) for entry in entries) > 1
    await assert_same_log(reference, entries)


async def test_roots_and_exports_are_equal_at_every_size(reference: Reference) -> None:
    signer = Ed25519Signer.from_seed(SEEDS[0])
    await reference.ask("open", log="theirs", topic=TOPIC)
    async with gossiplog.open(":memory:", topic=TOPIC, signer=signer) as log:
        for size in SIZES:
            grown = size - await log.count()
            entries = await log.append_many([{"n": n} for n in range(grown)])
            await reference.insert("theirs", entries)
            assert await reference.root("theirs") == await root_of(log)
            exported = await reference.export("theirs")
            assert exported == [(entry.id, entry.value) async for entry in log.iterate()]
            async with gossiplog.open(":memory:", topic=TOPIC) as copy:
                verdicts = await copy.insert_many([value for _, value in exported])
                assert all(verdict.is_new for verdict in verdicts)
                assert await root_of(copy) == await root_of(log)
