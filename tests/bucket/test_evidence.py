"""Proofs and checkpoints, before readers that have nothing of ours: the verifier of docs/evidence.md."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from log_support import SIGNERS, TOPIC

import gossiplog
from gossiplog.errors import NotFound
from gossiplog.gossip_log import GossipLog
from gossiplog.tlog.note import publisher_of
from gossiplog.tlog.proof import Proof, check_proof

PAGE = Path(__file__).parents[2] / "docs" / "evidence.md"
OURS = publisher_of(SIGNERS[0])


@pytest.fixture
def verifier(tmp_path: Path) -> Path:
    text = PAGE.read_text("utf-8").partition("<!-- verify.py")[2].partition("```python\n")[2].partition("```\n")[0]
    assert text.count("\n") <= 250
    assert "gossiplog" not in text
    path = tmp_path / "verify.py"
    path.write_text(text, "utf-8")
    return path


def verify(verifier: Path, place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(verifier), str(place)], capture_output=True, text=True)


async def test_a_proof_is_accepted_by_the_verifier_of_the_page(log: GossipLog, bucket: Path, tmp_path: Path, verifier: Path) -> None:
    entries = [entry async for entry in log.iterate()]
    await log.publish(bucket)
    for entry in (entries[0], entries[255], entries[699]):
        (tmp_path / "x.tlog-proof").write_bytes(await log.prove(entry.id))
        ran = verify(verifier, tmp_path / "x.tlog-proof")
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout == f"{entry.id}, by {entry.author}, is entry {entries.index(entry)} of 700 in {TOPIC}/{OURS}/1\n"


async def test_a_folder_is_accepted_by_the_verifier_of_the_page(bucket: Path, tmp_path: Path, verifier: Path) -> None:
    async with gossiplog.open(":memory:", topic=TOPIC, signer=SIGNERS[0]) as log:
        for size in (0, 1, 256, 4_097):
            await log.append_many([{"n": n} for n in range(await log.count(), size)])
            await log.publish(bucket)
            ran = verify(verifier, bucket / OURS)
            assert ran.returncode == 0, ran.stderr
            assert ran.stdout.startswith(f"{size} entries in {TOPIC}/{OURS}/1")
    segment = bucket / OURS / "1" / "values" / "000"
    data = bytearray(segment.read_bytes())
    data[5_000] ^= 1
    segment.write_bytes(data)
    assert verify(verifier, bucket / OURS).returncode != 0


async def test_no_damaged_proof_is_accepted(log: GossipLog, bucket: Path) -> None:
    entry = await log.append({"said": "this"})
    await log.publish(bucket)
    proof = await log.prove(entry.id, bucket)
    assert check_proof(Proof.parse(proof)).entry == entry
    random = Random(1)
    for _ in range(2_000):
        damaged = bytearray(proof)
        match random.randrange(3):
            case 0:
                damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
            case 1:
                del damaged[random.randrange(len(damaged)) :]
            case _:
                at = random.randrange(len(damaged))
                del damaged[at : at + random.randrange(1, 9)]
        with pytest.raises(gossiplog.errors.DecodeError):
            check_proof(Proof.parse(bytes(damaged)))


async def test_a_proof_of_one_entry_proves_no_other(log: GossipLog, bucket: Path) -> None:
    entries = [entry async for entry in log.iterate(limit=2)]
    await log.publish(bucket)
    one, other = [Proof.parse(await log.prove(entry.id)) for entry in entries]
    swapped = Proof(one.value, other.index, other.hashes, other.checkpoint), Proof(other.value, other.index, one.hashes, one.checkpoint)
    for mixed in swapped:
        with pytest.raises(gossiplog.errors.DecodeError, match="is not leaf"):
            check_proof(mixed)


async def test_an_entry_that_others_published_is_found_wherever_it_stands(log: GossipLog, bucket: Path, tmp_path: Path) -> None:
    await log.publish(bucket)
    async with gossiplog.open(tmp_path / "theirs.db", topic=TOPIC, signer=SIGNERS[1], durability="off") as theirs:
        await theirs.append_many([{"before": n} for n in range(300)])
        await theirs.sync(bucket)
        ids = [entry.id async for entry in log.iterate(limit=1)]
        assert check_proof(Proof.parse(await theirs.prove(ids[0]))).entry.id == ids[0]
        late = await theirs.append("not published")
        with pytest.raises(NotFound):
            await theirs.prove(late.id)
