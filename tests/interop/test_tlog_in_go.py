"""Our checkpoints, tiles and proofs before Go's own verifiers, golang.org/x/mod/sumdb and transparency-dev's; and theirs before ours."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from log_support import SIGNERS, TOPIC, make
from native_support import build_tlog

import gossiplog
from gossiplog.bucket import Cosigner
from gossiplog.entry import Ed25519Signer, Entry
from gossiplog.errors import DecodeError
from gossiplog.tlog.growth import leaf_of
from gossiplog.tlog.merkle import EMPTY_ROOT, consistency_ranges, leaf_hash, root_of
from gossiplog.tlog.note import COSIGNATURE, Checkpoint, Note, Origin, VerifierKey, parse_checkpoint, publisher_of
from gossiplog.tlog.proof import Proof, WitnessPolicy, check_proof
from gossiplog.tlog.witness import AddCheckpoint, WitnessRefusal

pytestmark = pytest.mark.slow

OURS = publisher_of(SIGNERS[0])
KEY = Origin(TOPIC, OURS, 1).key
WITNESS = Ed25519Signer.from_seed(b"w" * 32)
DAMAGES = 10_000


class Go:
    """The program, which answers line by line."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([build_tlog()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self, *words: object) -> tuple[bool, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        said, _, rest = self._process.stdout.readline().strip().partition(" ")
        assert said in ("ok", "no"), rest
        return said == "ok", rest

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def decoded(proof: bytes) -> list[bytes]:
    """What stands in a proof after the extra data, its base64 read as laxly as Go does."""
    words = proof.partition(b"\nindex ")[2].split()
    return [base64.b64decode(word) if len(word) % 4 == 0 and len(word) > 40 else word for word in words]


@pytest.fixture(scope="module")
def go() -> Iterator[Go]:
    program = Go()
    yield program
    program.close()


def secret(signer: Ed25519Signer, seed: bytes, name: str) -> str:
    """A key as Go's notes keep one."""
    key = VerifierKey(name, 1, signer.public_key)
    return f"PRIVATE+KEY+{name}+{key.key_id.hex()}+{base64.b64encode(bytes([1]) + seed).decode()}"


async def published(folder: Path, size: int) -> tuple[list[Entry], list[bytes]]:
    """Publish entries in several steps, and prove some of them."""
    entries = [make(n) for n in range(size)]
    async with gossiplog.open(":memory:", topic=TOPIC, signer=SIGNERS[0]) as log:
        for end in (size // 3, size):
            await log.insert_many([entry.value for entry in entries[:end]])
            await log.publish(folder)
        places = sorted({0, size // 3, size // 2, size - 1})
        return [entries[at] for at in places], [await log.prove(entries[at].id, folder) for at in places]


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 4_096, 66_000])
async def test_go_accepts_what_we_publish(go: Go, tmp_path: Path, size: int) -> None:
    entries, proofs = await published(tmp_path / "bucket", size)
    if size <= 4_096:
        assert go.ask("folder", KEY, tmp_path / "bucket" / OURS / "1") == (True, f"{size} leaves")
    for entry, proof in zip(entries, proofs, strict=True):
        (tmp_path / "x.tlog-proof").write_bytes(proof)
        accepted, said = go.ask("proof", KEY, leaf_of(entry.value).hex(), tmp_path / "x.tlog-proof")
        assert accepted, said


async def test_go_refuses_what_is_damaged_as_we_do(go: Go, tmp_path: Path) -> None:
    (entry, *_), (proof, *_) = await published(tmp_path / "bucket", 700)
    folder = tmp_path / "bucket" / OURS / "1"
    # What the two read in common: neither the extra data, which Go is handed as a leaf, nor lines that both pass over.
    begin = proof.index(b"\nindex ") + 1
    random = Random(1)
    path = tmp_path / "x.tlog-proof"
    for _ in range(DAMAGES):
        damaged = bytearray(proof)
        damaged[random.randrange(begin, len(proof))] ^= 1 << random.randrange(8)
        with pytest.raises(DecodeError):
            check_proof(Proof.parse(bytes(damaged)))
        path.write_bytes(damaged)
        accepted, said = go.ask("proof", KEY, leaf_of(entry.value).hex(), path)
        # Go's base64 takes more than one text for the same bytes; ours takes one.
        assert not accepted or decoded(bytes(damaged)) == decoded(proof), (said, bytes(damaged))
    for name in ("checkpoint", "tile/0/000", "tile/0/002.p/188", "tile/1/000.p/2", "tile/entries/001"):
        data = (folder / name).read_bytes()
        for _ in range(20):
            damaged = bytearray(data)
            damaged[random.randrange(len(data))] ^= 1 << random.randrange(8)
            (folder / name).write_bytes(damaged)
            assert not go.ask("folder", KEY, folder)[0], name
        (folder / name).write_bytes(data)
    assert go.ask("folder", KEY, folder)[0]


def test_we_accept_a_checkpoint_that_go_signed(go: Go, tmp_path: Path) -> None:
    origin = Origin(TOPIC, OURS, 1)
    skey = secret(SIGNERS[0], bytes([1]) * 32, str(origin))
    accepted, said = go.ask("sign", skey, origin, 0, EMPTY_ROOT.hex())
    assert accepted, said
    note, checkpoint = parse_checkpoint(bytes.fromhex(said))
    assert checkpoint == Checkpoint(origin, 0, EMPTY_ROOT)
    assert note.verify(KEY) == 0


async def test_we_accept_the_cosignature_of_a_witness_in_go(go: Go, tmp_path: Path) -> None:
    (_, entry), (_, proof) = await published(tmp_path / "bucket", 2)
    accepted, said = go.ask("cosign", secret(WITNESS, b"w" * 32, "witness.example/w1"), tmp_path / "bucket" / OURS / "1" / "checkpoint")
    assert accepted, said
    parsed = Proof.parse(proof)
    key = VerifierKey("witness.example/w1", COSIGNATURE, WITNESS.public_key)
    policy = WitnessPolicy.parse(f"log {KEY}\nwitness W {key}\nquorum W\n".encode())
    evidence = check_proof(Proof(parsed.value, parsed.index, parsed.hashes, bytes.fromhex(said)), policy)
    assert evidence.entry == entry
    assert evidence.witnesses["W"] > 1_700_000_000
    with pytest.raises(DecodeError, match="not its quorum"):
        check_proof(parsed, policy)
    (tmp_path / "x.tlog-proof").write_bytes(Proof(parsed.value, parsed.index, parsed.hashes, bytes.fromhex(said)).to_bytes())
    assert go.ask("proof", KEY, leaf_of(entry.value).hex(), tmp_path / "x.tlog-proof")[0], "a line of another key changes nothing"


async def test_go_accepts_our_cosignatures_and_refuses_what_is_damaged_as_we_do(go: Go, tmp_path: Path) -> None:
    await published(tmp_path / "bucket", 700)
    note = (tmp_path / "bucket" / OURS / "head").read_bytes()
    (tmp_path / "state").mkdir()
    witness = Cosigner(tmp_path / "state", "witness.example/w1", WITNESS, publishers={OURS})
    line = await witness.add(AddCheckpoint(0, [], note).to_bytes())
    cosigned, path = note + line.encode(), tmp_path / "cosigned"
    path.write_bytes(cosigned)
    accepted, said = go.ask("cosigned", witness.key, path)
    assert accepted, said
    assert int(said) == Note.parse(cosigned).verify(witness.key)
    # The text and the witness's line: the line of the log is nothing to a verifier of the witness.
    text, random = cosigned.index(b"\n\n"), Random(3)
    places = [*range(text), *range(len(note), len(cosigned))]
    for _ in range(DAMAGES):
        damaged = bytearray(cosigned)
        damaged[random.choice(places)] ^= 1 << random.randrange(8)
        path.write_bytes(damaged)
        try:
            is_ours = Note.parse(bytes(damaged)).verify(witness.key) is not None
        except DecodeError:
            is_ours = False
        assert not is_ours, bytes(damaged)
        accepted, said = go.ask("cosigned", witness.key, path)
        assert not accepted or decoded(b"\nindex " + damaged[len(note) :]) == decoded(b"\nindex " + line.encode()), bytes(damaged)


async def test_our_witness_signs_for_a_log_in_go_of_any_origin(go: Go, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    key = VerifierKey("example.com/behind-the-sofa", 1, SIGNERS[0].public_key)
    witness = Cosigner(tmp_path / "state", "witness.example/w1", WITNESS, logs=[key])
    skey, leaves = secret(SIGNERS[0], bytes([1]) * 32, key.name), [leaf_hash(bytes([n])) for n in range(30)]
    for old, size in ((0, 7), (7, 7), (7, 30)):
        accepted, said = go.ask("sign", skey, key.name, size, root_of(leaves[:size]).hex())
        assert accepted, said
        proof = [root_of(leaves[start:end]) for start, end in consistency_ranges(old, size)] if old else []
        line = await witness.add(AddCheckpoint(old, proof, bytes.fromhex(said)).to_bytes())
        (tmp_path / "cosigned").write_bytes(bytes.fromhex(said) + line.encode())
        assert go.ask("cosigned", witness.key, tmp_path / "cosigned")[0]
    accepted, said = go.ask("sign", skey, key.name, 30, root_of(leaves[1:]).hex())
    with pytest.raises(WitnessRefusal, match="another tree"):
        await witness.add(AddCheckpoint(30, [], bytes.fromhex(said)).to_bytes())
