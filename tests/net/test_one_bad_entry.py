"""One bad entry among good ones costs nobody else anything, by whatever way it comes in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner
from mesh_support import TCP, a_peer
from network_support import TOPIC, eventually, fetch, memory_log, until_has

import gossiplog.aio
import gossiplog.blocking
from gossiplog.archive import entry_to_line
from gossiplog.cli.app import root
from gossiplog.codec.base58 import encode_base58
from gossiplog.entry import Ed25519Signer, Outcome, validate
from gossiplog.entry import schemes as schemes_module
from gossiplog.entry.envelope import build_value, signed_bytes
from gossiplog.entry.message import Entry
from gossiplog.entry.rules import NESTING_MAX
from gossiplog.entry.schemes import SignatureScheme, register_scheme

SCHEMES = {"ed25519", "broken"}
GOOD = [{"n": n} for n in range(4)]


class Broken:
    """A scheme that accepts everything, until it raises about everything."""

    is_broken = False

    def verify(self, public_key: bytes, signed: bytes) -> bool:
        if self.is_broken:
            raise ZeroDivisionError("of a scheme")
        return True


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broken]:
    monkeypatch.setattr(schemes_module, "_SCHEMES", dict(schemes_module._SCHEMES))
    scheme = Broken()
    register_scheme(SignatureScheme("broken", 0x1234, scheme.verify, 65, frozenset({"raw"})))
    yield scheme


BAD = build_value("raw", "did:key:z" + encode_base58(b"\xb4\x24" + bytes(32)), bytes(65), TOPIC, 1, (), b"\x01")


def deep(seed: int = 9) -> bytes:
    """The deepest payload there may be, whose message is one level deeper, signed in dag-json."""
    signer = Ed25519Signer(bytes([seed]) * 32, codec="dag-json")
    payload = b"\x81" * NESTING_MAX + b"\x01"
    return build_value("dag-json", signer.did, signer.sign(signed_bytes("dag-json", TOPIC, 1, (), payload)), TOPIC, 1, (), payload)


def good_values(count: int) -> list[bytes]:
    signers = [Ed25519Signer(bytes([100 + number]) * 32) for number in range(count)]
    return [
        build_value("dag-cbor", each.did, each.sign(signed_bytes("dag-cbor", TOPIC, 1, (), b"\x01")), TOPIC, 1, (), b"\x01")
        for each in signers
    ]


async def test_a_sync_takes_what_stands_beside_an_entry_that_cannot_be_verified(broken: Broken) -> None:
    async with memory_log(1, schemes=SCHEMES) as source, memory_log(2, schemes=SCHEMES) as target:
        await source.append_many(GOOD)
        assert (await source.insert(BAD)).accepted
        broken.is_broken = True
        result = await target.sync(source)
        assert (result.entries, result.unsupported, result.rejected) == (4, 1, 0)


async def test_a_hub_takes_what_stands_beside_an_entry_that_cannot_be_verified(broken: Broken) -> None:
    async with (
        memory_log(1, schemes=SCHEMES) as hub_log,
        memory_log(2, schemes=SCHEMES) as client,
        memory_log(3) as other,
        hub_log.listen("127.0.0.1:0") as hub,
    ):
        before = await client.append_many(GOOD)
        await client.insert(BAD)
        broken.is_broken = True
        async with client.connect(hub.urls[0]), other.connect(hub.urls[0]):
            await until_has(hub_log, before)
            # And of what comes afterwards whatever is not built on it.
            await until_has(other, before)
            await until_has(client, [await other.append("after")])


async def test_the_deepest_entry_in_dag_json_goes_wherever_others_go(tmp_path: Path) -> None:
    path = str(tmp_path / "blocking.db")
    with gossiplog.blocking.open(path, topic=TOPIC) as log:
        verdicts = log.insert_many([*good_values(2), deep(), *good_values(4)[2:]])
        assert [verdict.outcome for verdict in verdicts] == [Outcome.ACCEPT] * 5
    async with gossiplog.open(path, topic=TOPIC) as log, memory_log(1) as hub_log, memory_log(2) as other:
        async with hub_log.listen("127.0.0.1:0") as hub, log.connect(hub.urls[0]), other.connect(hub.urls[0]):
            await until_has(other, [entry async for entry in log.iterate()])
            verdict = validate(deep(8))
            assert verdict.entry is not None
            await log.insert(deep(8))
            await until_has(other, [verdict.entry])
        assert await other.root() == await log.root()
        assert (await hub_log.sync(log)).entries == 0


def forged_value() -> bytes:
    value = bytearray(good_values(1)[0])
    value[80] ^= 1
    return bytes(value)


async def test_a_mesh_takes_what_stands_beside_an_entry_that_cannot_be_verified(broken: Broken) -> None:
    async with memory_log(1, schemes=SCHEMES) as log, memory_log(2, schemes=SCHEMES) as other:
        before = await log.append_many(GOOD)
        assert (await log.insert(BAD)).accepted
        broken.is_broken = True
        async with a_peer(log=log, listen=(TCP,)) as mesh, a_peer(*mesh.host.announced, log=other, listen=(TCP,)):
            await until_has(other, before)
            # Gossiped, not synced.
            await until_has(log, [await other.append("after")])
            await eventually(lambda: mesh.service.state().offences == {})


async def test_posts_are_taken_beside_one_that_cannot_be_verified_and_one_that_is_forged(broken: Broken) -> None:
    async with memory_log(1, schemes=SCHEMES) as log, memory_log(2) as other, log.listen("127.0.0.1:0") as hub:
        broken.is_broken = True
        values = [*good_values(2), BAD, forged_value(), *good_values(4)[2:]]
        statuses: dict[bytes, int] = {}

        async def post(value: bytes) -> None:
            headers = {"content-type": "application/json"}
            answer = await fetch(hub, "/api/messages", method="POST", headers=headers, body=entry_to_line(Entry.decode(value)))
            statuses[value] = answer.status

        async with other.connect(hub.urls[0]):
            async with trio.open_nursery() as nursery:
                for value in values:
                    nursery.start_soon(post, value)
            assert [statuses[value] for value in values] == [201, 201, 400, 400, 201, 201]
            await until_has(other, [Entry.decode(value) for value in good_values(4)])
        assert await log.count() == 4


def test_an_import_takes_what_stands_beside_a_forged_entry(tmp_path: Path) -> None:
    path, file = str(tmp_path / "imported.db"), tmp_path / "some.jsonl"
    lines = [entry_to_line(Entry.decode(value)) for value in (*good_values(2), forged_value(), deep(), *good_values(4)[2:])]
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    with gossiplog.blocking.open(path, topic=TOPIC):
        pass
    CliRunner().invoke(root, ["import", path, str(file)], prog_name="gossiplog")
    with gossiplog.blocking.open(path, topic=TOPIC) as log:
        assert log.count() == 5


def test_asyncio_takes_what_stands_beside_a_forged_entry(tmp_path: Path) -> None:
    async def insert() -> None:
        async with gossiplog.aio.open(str(tmp_path / "asyncio.db"), topic=TOPIC) as log:
            verdicts = await log.insert_many([*good_values(2), forged_value(), deep(), *good_values(4)[2:]])
            assert [verdict.outcome is Outcome.ACCEPT for verdict in verdicts] == [True, True, False, True, True, True]
            assert await log.count() == 5

    asyncio.run(insert())
