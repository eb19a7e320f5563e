"""The golden files of docs/spec/bucket.md: what is written today is what was written then, and what was written then can be read.

`python tests/bucket/test_bucket_vectors.py` writes them anew, which only a change of the format calls for.
"""

import base64
import json
from pathlib import Path

import trio
from log_support import SIGNERS, TOPIC, make

import gossiplog
from gossiplog.entry import Entry
from gossiplog.gossip_log import clone
from gossiplog.tlog.note import publisher_of
from gossiplog.tlog.proof import Proof, check_proof

VECTORS = Path(__file__).parents[1] / "vectors" / "bucket.json"


def entries() -> list[Entry]:
    made: list[Entry] = []
    for n in range(260):
        made.append(make({"n": n, "text": "some text that repeats"}, made[-1:], SIGNERS[n % 2]))
    return made


async def write(folder: Path) -> bytes:
    """Publish in two steps, and prove the last entry."""
    made = entries()
    async with gossiplog.open(":memory:", topic=TOPIC, signer=SIGNERS[0]) as log:
        for part in (made[:5], made[5:]):
            await log.insert_many([entry.value for entry in part])
            await log.publish(folder)
        return await log.prove(made[-1].id, folder)


def objects(folder: Path) -> dict[str, str]:
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode() for path in found}


async def test_what_is_written_is_what_the_golden_files_have(tmp_path: Path) -> None:
    golden = json.loads(VECTORS.read_text())
    proof = await write(tmp_path)
    assert proof.decode() == golden["proof"]
    found = objects(tmp_path)
    assert list(found) == list(golden["objects"])
    # Another zlib compresses to other bytes, which hold the same.
    assert {name: data for name, data in found.items() if "/values/" not in name} == {
        name: data for name, data in golden["objects"].items() if "/values/" not in name
    }


async def test_the_golden_files_can_be_read(tmp_path: Path) -> None:
    golden = json.loads(VECTORS.read_text())
    for name, data in golden["objects"].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(base64.b64decode(data))
    report = await clone(tmp_path, tmp_path / "theirs.db")
    assert (report.entries, report.faults) == (260, [])
    async with gossiplog.open(tmp_path / "theirs.db") as theirs:
        assert [entry async for entry in theirs.iterate()] == entries()
    evidence = check_proof(Proof.parse(golden["proof"].encode()))
    assert (evidence.entry, evidence.index, str(evidence.checkpoint.origin)) == (
        entries()[-1],
        259,
        f"{TOPIC}/{publisher_of(SIGNERS[0])}/1",
    )


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        golden_proof = trio.run(write, Path(place))
        record = {
            "origin": "written by this project; docs/spec/bucket.md describes each of them. Objects are in base64, by their paths",
            "topic": TOPIC,
            "objects": objects(Path(place)),
            "proof": golden_proof.decode(),
        }
        VECTORS.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
