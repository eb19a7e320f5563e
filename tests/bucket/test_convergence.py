"""Five replicas that append at the same time: in two polls each has all, through S3 and through folders that another program copies."""

import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest
from log_support import TOPIC

import gossiplog
from gossiplog.bucket.kept import Kept, TakenState
from gossiplog.entry import Ed25519Signer
from gossiplog.gossip_log import GossipLog
from gossiplog.tlog.note import Checkpoint, Origin, publisher_of
from gossiplog.tlog.segment import parse_index, unpack

REPLICAS = 5
SIZES = [200, pytest.param(20_000, marks=pytest.mark.slow)]


async def converge(tmp_path: Path, size: int, place_of: Callable[[int], str], between: Callable[[], Awaitable[None]]) -> None:
    signers = [Ed25519Signer.from_seed(bytes([50 + number]) * 32) for number in range(REPLICAS)]
    async with AsyncExitStack() as stack:
        logs: list[GossipLog] = []
        for number, signer in enumerate(signers):
            location = tmp_path / f"{number}.db"
            logs.append(await stack.enter_async_context(gossiplog.open(location, topic=TOPIC, signer=signer, durability="off")))
            for start in range(0, size, 1_000):
                await logs[-1].append_many([{"by": number, "n": n} for n in range(start, min(start + 1_000, size))])
        for _ in range(2):
            for number, log in enumerate(logs):
                done = await log.sync(place_of(number))
                assert done.taken.faults == []
            await between()
        assert len({(await log.root()).hash for log in logs}) == 1
        assert await logs[0].count() == REPLICAS * size


@pytest.mark.parametrize("size", SIZES)
async def test_five_replicas_converge_in_two_polls_of_s3(s3: str, tmp_path: Path, size: int) -> None:
    async def nothing() -> None:
        pass

    await converge(tmp_path, size, lambda number: s3, nothing)


@pytest.mark.parametrize("size", SIZES)
async def test_five_replicas_converge_in_two_polls_of_folders_that_another_program_copies(tmp_path: Path, size: int) -> None:
    folders = [tmp_path / f"folder{number}" for number in range(REPLICAS)]

    async def copy() -> None:
        """Copy to each folder what the others' owners have published, one file after the other, in any order."""
        owners = [publisher_of(Ed25519Signer.from_seed(bytes([50 + number]) * 32)) for number in range(REPLICAS)]
        for number, owner in enumerate(owners):
            files = [path for path in (folders[number] / owner).rglob("*") if path.is_file()]
            Random(number).shuffle(files)
            for path in files:
                for there in folders[:number] + folders[number + 1 :]:
                    target = there / path.relative_to(folders[number])
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target)

    await converge(tmp_path, size, lambda number: str(folders[number]), copy)


def values_in(segment: bytes) -> list[bytes]:
    frames = parse_index(segment, len(segment), 300)
    return [value for frame in frames for value in unpack(segment[frame.offset : frame.offset + frame.length], frame)]


@pytest.mark.parametrize("damages", [150, pytest.param(int(os.environ.get("DAMAGES", "10000")), marks=pytest.mark.slow)])
async def test_flips_truncations_omissions_and_rollbacks_are_named_and_change_nothing(bucket: Path, tmp_path: Path, damages: int) -> None:
    signer, random = Ed25519Signer.from_seed(b"d" * 32), Random(damages)
    ours, states = publisher_of(signer), dict[Path, list[bytes]]()
    async with (
        gossiplog.open(tmp_path / "a.db", topic=TOPIC, signer=signer, durability="off") as log,
        gossiplog.open(":memory:", topic=TOPIC) as reader,
    ):
        for _ in range(3):
            await log.append_many([{"n": n} for n in range(100)])
            await log.publish(bucket)
            for path in (bucket / ours).rglob("*"):
                if path.is_file() and path.name not in ("lock", "checkpoint"):
                    states.setdefault(path, []).append(path.read_bytes())
        await reader.sync(bucket)
        root, kept = await reader.root(), Kept.beside(reader)
        # What a reader of the newest checkpoint reads.
        live = [bucket / ours / name for name in ("head", "1/tile/0/001.p/44", "1/tile/1/000.p/1", "1/values/000.p/300")]
        same = 0
        for turn in range(damages):
            path = random.choice(live)
            data = path.read_bytes()
            damage = random.choice(["flip", "cut", "omit", "back"] if path.name == "head" else ["flip", "cut", "omit"])
            kept.keep_taken(
                str(bucket), {ours: TakenState(Checkpoint(Origin(TOPIC, ours, 1), 300, b""), 0)} if damage in ("back", "omit") else {}
            )
            match damage:
                case "flip":
                    flipped = bytearray(data)
                    flipped[random.randrange(len(data))] ^= 1 << random.randrange(8)
                    path.write_bytes(flipped)
                case "cut":
                    path.write_bytes(data[: random.randrange(len(data))])
                case "back":
                    path.write_bytes(random.choice(states[path][:-1]))
                case _:
                    path.unlink()
            taken = (await reader.sync(bucket)).taken
            kinds = {fault.kind for fault in taken.faults}
            wanted = {"flip": {"damaged"}, "cut": {"damaged"}, "omit": {"missing"}, "back": {"rolled-back"}}[damage]
            # The bits after the end of a frame's stream, up to the next whole byte, mean nothing.
            is_same = damage == "flip" and path.name == "300" and not kinds and values_in(path.read_bytes()) == values_in(data)
            assert kinds == wanted or is_same, (turn, damage, path, taken.faults)
            assert all(str(bucket) in fault.reason for fault in taken.faults)
            same += is_same
            assert (await reader.root(), taken.entries) == (root, 0)
            path.write_bytes(data)
        assert same <= damages // 1_000 + 1
        kept.keep_taken(str(bucket), {})
        assert (await reader.sync(bucket)).taken.faults == []
