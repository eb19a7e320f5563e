"""Entries of the reference's Ethereum session signers in our log, and ours in its: EIP-712 and SIWE."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from interop_support import Reference, run_reference

import gossiplog
from gossiplog import Ed25519Signer
from gossiplog.codec import pcf
from gossiplog.ethereum import SCHEME, Eip712Signer, Wallet, is_session_authorised

pytestmark = pytest.mark.slow

TOPIC = "ethereum.example.com"
BOTH = frozenset({"ed25519", SCHEME})
WALLET = Wallet(bytes([7]) * 32)
ARGUMENTS: list[list[Any]] = [
    [],
    ["", "a", "é🌍", "x" * 31, "x" * 32, "x" * 33],
    [0, 1, -1, 2**31, -(2**31), 2**53 - 1, -(2**53) + 1, True, False],
    ["0x58DA990A8F4A3a6ca7cb6315d68a140105917352", "0x58da990a8f4a3a6ca7cb6315d68a140105917352", "0x58da"],
    ["mixed", 1, "0x58DA990A8F4A3A6CA7CB6315D68A140105917352", False, "end"],
]


@pytest.fixture
async def node(installed_reference: None) -> AsyncIterator[Reference]:
    async with run_reference("ethereum.mjs") as running:
        await running.ask("open", log="theirs", topic=TOPIC)
        yield running


@pytest.mark.parametrize("kind", ["eip712", "siwe"])
async def test_entries_that_the_reference_signs_verify_here(node: Reference, kind: str) -> None:
    await node.ask("act", log="theirs", topic=TOPIC, kind=kind, args=pcf.encode(ARGUMENTS).hex())
    entries = await node.export("theirs")
    assert len(entries) == 1 + len(ARGUMENTS)
    async with gossiplog.open(":memory:", topic=TOPIC, schemes=BOTH) as log:
        verdicts = await log.insert_many([value for _, value in entries])
        assert [verdict.reason for verdict in verdicts] == [None] * len(entries)
        assert [verdict.entry.id for verdict in verdicts if verdict.entry] == [id for id, _ in entries]
        session = verdicts[0].entry
        assert session is not None
        assert is_session_authorised(TOPIC, session.message.payload)
        # A change anywhere after the signature breaks it.
        for _, value in entries:
            damaged = value.replace(b"timestamp\x1b\x00\x00\x01", b"timestamp\x1b\x00\x00\x02")
            if damaged != value:
                assert (await log.insert(damaged)).rule == "signature"


@pytest.mark.parametrize("kind", ["eip712", "siwe"])
async def test_entries_that_we_sign_verify_in_the_reference(node: Reference, kind: str) -> None:
    signer: Any = Eip712Signer(bytes([9]) * 32) if kind == "eip712" else Ed25519Signer.from_seed(bytes([9]) * 32)
    async with gossiplog.open(":memory:", topic=TOPIC, schemes=BOTH) as log:
        for duration in (None, 1_209_600_000):
            payload = WALLET.authorise(TOPIC, signer.did, 1_700_000_000_123, duration, nonce="abcdefgh12")
            assert await node.ask("verifySession", topic=TOPIC, kind=kind, payload=pcf.encode(payload).hex())
            assert not await node.ask("verifySession", topic="other", kind=kind, payload=pcf.encode(payload).hex())
            await log.append(payload, signer=signer.session if kind == "eip712" else signer)
        for args in ARGUMENTS:
            context = {"timestamp": 1_700_000_000_456} | ({"blockhash": "0xabc"} if args else {})
            await log.append({"type": "action", "did": WALLET.did, "name": "post", "args": args, "context": context}, signer=signer)
        ours = [entry async for entry in log.iterate()]
        answers = await node.insert("theirs", ours)
        assert answers == [entry.id for entry in ours]
