"""What the reference signs, we accept, keep unchanged, and put into the same tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from interop_support import CODECS, SEEDS, TOPIC, Reference, portable_payloads, root_of

import gossiplog

pytestmark = pytest.mark.slow


async def test_every_kind_of_payload_that_it_appends_is_accepted(reference: Reference) -> None:
    await reference.ask("open", log="theirs", topic=TOPIC)
    async with gossiplog.open(":memory:", topic=TOPIC) as log:
        for n, payload in enumerate(portable_payloads()):
            for codec in CODECS:
                made = await reference.ask("append", log="theirs", seed=SEEDS[n % len(SEEDS)].hex(), codec=codec, payload=payload.hex())
                verdict = await log.insert(bytes.fromhex(made["value"]))
                assert verdict.is_new, (payload, codec, verdict)
                assert verdict.entry is not None
                assert verdict.entry.id == made["id"]
                assert verdict.entry.signature.codec == codec
                assert verdict.entry.payload_bytes == payload
        assert await root_of(log) == await reference.root("theirs")
        assert await log.heads() == await reference.ask("heads", log="theirs")


async def test_a_thousand_random_entries_with_forks_are_accepted(reference: Reference, tmp_path: Path) -> None:
    made = await reference.ask("random", topic=TOPIC, seed=1, replicas=3, count=1_000, seeds=[seed.hex() for seed in SEEDS])
    assert all(root == made["roots"][0] for root in made["roots"])
    exported = await reference.export(made["log"])
    assert len(exported) == 1_000
    async with gossiplog.open(tmp_path / "ours.db", topic=TOPIC) as log:
        verdicts = await log.insert_many([value for _, value in exported])
        refused = [verdict for verdict in verdicts if not verdict.is_new]
        assert not refused, refused[:3]
        assert [(entry.id, entry.value) async for entry in log.iterate()] == exported
        assert await root_of(log) == await reference.root(made["log"])
        assert await log.heads() == await reference.ask("heads", log=made["log"])
        parents = [len(entry.parent_keys) async for entry in log.iterate()]
        assert max(parents) > 1
        children = [len(await log.children(id)) for id, _ in exported]
        assert max(children) > 1
