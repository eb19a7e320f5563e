"""Session keys of EIP-712 and sessions by EIP-712 and SIWE: the reference's vectors, our own signers, and what is refused."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

import gossiplog
from gossiplog import Ed25519Signer, Outcome
from gossiplog.archive import entry_to_line
from gossiplog.codec import pcf
from gossiplog.entry import sign_entry, validate
from gossiplog.entry.envelope import build_value, parse_envelope
from gossiplog.entry.message_id import decode_id
from gossiplog.entry.rules import next_clock
from gossiplog.errors import LocalProtocolError
from gossiplog.ethereum import SCHEME, Eip712Signer, Wallet, is_session_authorised, register
from gossiplog.ethereum.keys import is_address, keccak
from gossiplog.ethereum.typed_data import Untypable, encode_arguments

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "secp256k1-eip712.json").read_text())["cases"]
BOTH = frozenset({"ed25519", SCHEME})
TOPIC = "eip712.example.com"
KEY = bytes([9]) * 32
WALLET = Wallet(bytes([7]) * 32)
HOW = "(GOSSIPLOG_SCHEMES=eip712, or `schemes` of gossiplog.open, accepts it)"
CONTEXT = {"timestamp": 1_700_000_000_000}


@pytest.fixture(autouse=True)
def registered() -> None:
    register()


def action(**fields: Any) -> dict[str, Any]:
    return {"type": "action", "did": WALLET.did, "name": "post", "args": ["hello", 7, True], "context": CONTEXT} | fields


def signed(payload: Any, signer: Any = None) -> bytes:
    return sign_entry(signer or Eip712Signer(KEY), TOPIC, 1, [], pcf.encode(payload)).value


@pytest.mark.parametrize("case", VECTORS)
def test_entry_of_the_reference_verifies_and_is_what_we_sign(case: dict[str, Any]) -> None:
    message, signer = case["message"], Eip712Signer(bytes.fromhex(case["privateKey"]))
    parents = [decode_id(parent) for parent in message["parents"]]
    payload = pcf.encode(message["payload"])
    signature = bytes.fromhex(case["signature"])
    value = build_value(case["codec"], case["did"], signature, message["topic"], message["clock"], parents, payload)
    entry = sign_entry(signer, message["topic"], message["clock"], parents, payload)
    assert (signer.did, signer.codec) == (case["did"], case["codec"])
    # r and s of a deterministic nonce, and v.
    assert parse_envelope(entry.value).signature == signature
    if next_clock(parents) == message["clock"]:
        assert validate(value, schemes=BOTH).accepted
    damaged = bytearray(signature)
    damaged[5] ^= 1
    value = build_value(case["codec"], case["did"], bytes(damaged), message["topic"], message["clock"], parents, payload)
    assert not validate(value, schemes=BOTH).accepted


@pytest.mark.parametrize(
    "changed",
    [{"name": "other"}, {"args": ["hello", 8, True]}, {"context": {"timestamp": 1}}, {"context": CONTEXT | {"blockhash": "0x"}}],
)
def test_signature_covers_what_it_should(changed: dict[str, Any]) -> None:
    entry = parse_envelope(signed(action()))
    assert validate(signed(action()), schemes=BOTH).accepted
    forged = build_value(entry.codec, entry.did, entry.signature, TOPIC, 1, [], pcf.encode(action(**changed)))
    assert (validate(forged, schemes=BOTH).outcome, validate(forged, schemes=BOTH).rule) == (Outcome.REJECT, "signature")


def test_nothing_of_the_payload_raises() -> None:
    good = parse_envelope(signed(action()))
    payloads = [None, 1, "action", [], {}, action(did=7), action(did="did:pkh:eip155:1:0x12"), action(args="abc"), action(args=[None])]
    payloads += [action(args=[[]]), action(args=[0.5]), action(context=None), action(context={}), action(context={"timestamp": -1})]
    payloads += [action(context={"timestamp": "1"}), action(type="session"), action(type="snapshot"), action(args=[2**53])]
    payloads += [action(args=["0x58DA990A8F4A3a6ca7cb6315d68a140105917353"]), action(name=3)]
    for payload in payloads:
        for codec in ("canvas-action-eip712", "canvas-session-eip712"):
            value = build_value(codec, good.did, good.signature, TOPIC, 1, [], pcf.encode(payload))
            verdict = validate(value, schemes=BOTH)
            # Nobody's fault: the reference takes some of these, which it never makes.
            assert (verdict.outcome, verdict.rule) == (Outcome.IGNORE, "scheme")
    compact = build_value(good.codec, good.did, good.signature[:64], TOPIC, 1, [], pcf.encode(action()))
    assert validate(compact, schemes=BOTH).rule == "scheme"
    for signature in (bytes(65), b"\xff" * 65, good.signature[:64] + b"\x1d"):
        value = build_value(good.codec, good.did, signature, TOPIC, 1, [], pcf.encode(action()))
        assert validate(value, schemes=BOTH).rule == "signature"


def test_signer_refuses_what_it_cannot_sign_and_shows_no_key() -> None:
    with pytest.raises(LocalProtocolError, match="cannot sign this payload"):
        signed({"any": "thing"})
    with pytest.raises(LocalProtocolError, match="expected canvas-action"):
        Eip712Signer(KEY, codec="dag-cbor")
    assert KEY.hex() not in repr(Eip712Signer(KEY)) + repr(WALLET)


@pytest.mark.parametrize("kind", ["eip712", "siwe"])
def test_session_is_authorised_by_its_wallet_and_nobody_else(kind: str) -> None:
    signer = Eip712Signer(KEY) if kind == "eip712" else Ed25519Signer.from_seed(KEY)
    for duration in (None, 60_000):
        payload = WALLET.authorise(TOPIC, signer.did, 1_700_000_000_123, duration, nonce="abcdefgh")
        assert is_session_authorised(TOPIC, payload)
        assert validate(signed(payload, signer.session if kind == "eip712" else signer), schemes=BOTH).accepted
        assert not is_session_authorised("other.example.com", payload)
        assert not is_session_authorised(TOPIC, payload | {"did": Wallet(bytes([8]) * 32).did})
        assert not is_session_authorised(TOPIC, payload | {"context": {"timestamp": 1}})
        assert not is_session_authorised(TOPIC, payload | {"authorizationData": {}})
        assert not is_session_authorised(TOPIC, {"type": "session"})


def test_session_for_a_topic_with_a_colon_is_the_reference_s() -> None:
    """0.16.1 names the resource `canvas://BASE#REST`, and with nothing behind the colon an empty one."""
    cases = json.loads((Path(__file__).parents[2] / "vectors" / "ref-0.16.1-siwe.json").read_text())["cases"]
    assert [case["topic"].partition("example.com")[2] for case in cases[:4]] == ["", ":v1", ":v1:deadbeef", ":"]
    for case in cases:
        payload = pcf.decode(bytes.fromhex(case["session"]))
        assert is_session_authorised(case["topic"], payload)
        assert not any(is_session_authorised(other["topic"], payload) for other in cases if other is not case)


def test_log_says_which_schemes_it_accepts() -> None:
    refused = validate(signed(action()))
    assert (refused.outcome, refused.rule) == (Outcome.IGNORE, "scheme")
    assert refused.reason == f"signature scheme eip712 is not accepted here {HOW}"


def test_without_the_extra_entries_are_ignored_and_the_verdict_names_it() -> None:
    script = f"""
import sys, trio
sys.modules["coincurve"] = None
import gossiplog
async def main():
    async with gossiplog.open(":memory:", topic="{TOPIC}", schemes=frozenset({sorted(BOTH)!r})) as log:
        verdict = await log.insert(bytes.fromhex(sys.argv[1]))
        print(verdict.outcome.value, verdict.rule, verdict.reason)
    async with gossiplog.open(":memory:", topic="{TOPIC}") as log:
        verdict = await log.insert(bytes.fromhex(sys.argv[1]))
        print(verdict.outcome.value, verdict.rule, verdict.reason)
trio.run(main)
"""
    done = subprocess.run([sys.executable, "-c", script, signed(action()).hex()], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "ignore scheme codec canvas-action-eip712 needs the extra gossiplog[ethereum], which is not installed",
        f"ignore scheme codec canvas-action-eip712 is of signature scheme eip712, which is not accepted here {HOW}",
    ]


async def test_rest_of_a_log_goes_on_without_the_extra() -> None:
    signers: list[Any] = [Eip712Signer(KEY), Ed25519Signer.from_seed(KEY)]
    async with gossiplog.open(":memory:", topic=TOPIC, schemes=BOTH) as log:
        ours = await log.append("ours", signer=signers[1])
        typed = await log.append(action(), signer=signers[0])
        child = await log.append("after it", signer=signers[1])
    beside = sign_entry(signers[1], TOPIC, 1, [], pcf.encode("beside it"))
    async with gossiplog.open(":memory:", topic=TOPIC) as log:
        verdicts = await log.insert_many([entry.value for entry in (ours, typed, child, beside)])
        assert [(verdict.outcome, verdict.rule) for verdict in verdicts] == [
            (Outcome.ACCEPT, None),
            (Outcome.IGNORE, "scheme"),
            (Outcome.IGNORE, "parents"),
            (Outcome.ACCEPT, None),
        ]
        assert await log.count() == 2


def test_parts_are_those_of_the_specifications() -> None:
    assert keccak(b"").hex() == "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    assert is_address("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed")
    assert not is_address("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD")
    # "a", -1 and true: the text's place, the number in two's complement, the bool; then the text.
    words = [96, 2**256 - 1, 1, 1]
    assert encode_arguments(["a", -1, True]) == b"".join(n.to_bytes(32, "big") for n in words) + b"a".ljust(32, b"\0")
    with pytest.raises(Untypable):
        encode_arguments([float("nan")])


def test_command_line_accepts_what_the_environment_names(tmp_path: Path, warm_gossiplog: None) -> None:
    entries = [validate(signed(payload), schemes=BOTH).entry for payload in (action(), action(name="other"))]
    (tmp_path / "log.jsonl").write_bytes(b"\n".join(entry_to_line(entry) for entry in entries if entry is not None))

    def verify(schemes: str) -> tuple[int, str]:
        command = ["gossiplog", "verify", "log.jsonl", "--json"]
        environment = os.environ | {"GOSSIPLOG_SCHEMES": schemes}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    assert verify("eip712")[0] == 0
    code, said = verify("")
    assert code != 0
    assert "signature scheme eip712, which is not accepted here" in said
    code, said = verify("mine")
    assert code == 2
    assert "GOSSIPLOG_SCHEMES: no signature scheme is named 'mine'" in said


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A log of three entries, of which two are of the scheme, closed."""

    async def make() -> None:
        async with gossiplog.open(tmp_path / "mixed.db", topic=TOPIC, schemes=BOTH) as log:
            for number in range(3):
                signer = Ed25519Signer.from_seed(KEY) if number == 1 else Eip712Signer(KEY)
                await log.append(action(args=[str(number), number, True]), signer=signer)

    trio.run(make)
    return tmp_path / "mixed.db"


async def test_entries_of_a_scheme_that_is_not_accepted_are_no_damage(mixed) -> None:
    async with gossiplog.open(mixed) as log:
        for repair in (False, True):
            report = await log.fsck(repair=repair)
            assert report.is_clean and (report.entries, report.valid, report.unsupported) == (3, 1, 2)
            assert "GOSSIPLOG_SCHEMES=eip712" in (report.unsupported_reason or "")
            assert (report.repaired, report.set_aside) == (None, 0)
        assert await log.count() == 3
    async with gossiplog.open(mixed, schemes=BOTH) as log:
        report = await log.fsck()
        assert (report.valid, report.unsupported, report.unsupported_reason) == (3, 0, None)


async def test_nothing_is_repaired_while_entries_cannot_be_verified(mixed) -> None:
    with contextlib.closing(sqlite3.connect(mixed)) as db:
        db.execute("DELETE FROM gossiplog_heads")
        db.commit()
    async with gossiplog.open(mixed) as log:
        assert not (await log.fsck()).is_clean
        with pytest.raises(LocalProtocolError, match=r"2 of 3 entries cannot be verified.*GOSSIPLOG_SCHEMES=eip712"):
            await log.fsck(repair=True)
        assert [held async for held in log.quarantine()] == []
    async with gossiplog.open(mixed, schemes=BOTH) as log:
        assert (await log.fsck(repair=True)).is_clean
        assert await log.count() == 3


async def test_a_changed_byte_of_an_entry_that_cannot_be_verified_is_damage(mixed) -> None:
    with contextlib.closing(sqlite3.connect(mixed)) as db:
        (value,) = db.execute("SELECT value FROM gossiplog_entries WHERE seq = 3").fetchone()
        db.execute("UPDATE gossiplog_entries SET value = ? WHERE seq = 3", [value.replace(b"post", b"pest")])
        db.commit()
    async with gossiplog.open(mixed) as log:
        report = await log.fsck()
        assert not report.is_clean and report.unsupported == 1
        assert any(each.kind == "entry" and each.where == "seq 3" for each in report.findings)


def test_commands_say_which_variable_is_missing_and_lose_nothing(mixed, monkeypatch, tmp_path, warm_gossiplog) -> None:
    monkeypatch.chdir(tmp_path)
    data = mixed.read_bytes()

    def run(*arguments: str) -> Any:
        # A process of its own: what a command accepts is set once.
        command = ["gossiplog", *arguments, "--json"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "GOSSIPLOG_SCHEMES": ""})

    assert json.loads(run("fsck", "mixed.db").stdout)["unsupported"] == 2
    saved = run("salvage", "mixed.db", "saved.db", "--topic", TOPIC)
    assert saved.returncode == 3 and json.loads(saved.stdout)["unsupported"] == 2 and "GOSSIPLOG_SCHEMES=eip712" in saved.stdout
    mixed.write_bytes(data[: len(data) // 2])
    damaged = mixed.read_bytes()
    (tmp_path / "other.db").write_bytes(data)
    healed = run("sync", "--heal", "mixed.db", "other.db")
    assert healed.returncode != 0 and mixed.read_bytes() == damaged
