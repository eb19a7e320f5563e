"""What it takes to publish a log in a folder, to publish again, to clone it, and to check a proof: `python -m benchmarks.bucket`.

With `--s3` the bucket is in an S3 server, moto's, on the same machine, whose own time is not counted. Where nginx is installed, the folder
is also cloned from it.

Cloning is measured beside `insert_many` of the same VALUEs: that is what verifying and storing them costs in any case. When the log is
published, two others are copies of it; then 1 % is appended, published, inserted in one of the two and taken from the bucket by the other,
in five turns, so that both see the same load and logs of the same size. Texts have 14 words, so that there is something to compress.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

import gossiplog
from gossiplog.bucket import Published, Storage, open_storage, publish
from gossiplog.errors import GossipLogError
from gossiplog.tlog.note import publisher_of
from gossiplog.tlog.proof import Proof, check_proof

from .measure import Figure, Goal, Stopwatch, machine, versions, write_results

SEED = 1
SIGNER = gossiplog.Ed25519Signer.from_seed(bytes([SEED]) * 32)
TOPIC = "bucket.example.com"
TURNS = 5
LIVE_TURNS = 3
LIVE_ENTRIES = 3_000
RESULTS = Path(__file__).with_name("results")
WORDS = ["".join(random.Random(number).choices("etaoinshrdlu", k=2 + number % 8)) for number in range(2_000)]


def payloads(rng: random.Random, count: int) -> list[dict[str, str]]:
    return [{"op": "say", "text": " ".join(rng.choices(WORDS, k=14))} for _ in range(count)]


def bytes_below(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.rglob(pattern) if path.is_file())


@contextmanager
def s3_bucket(port: int = 15_789) -> Iterator[str]:
    """Run an S3 server, and name a place in it."""
    program = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    os.environ.update(keys | {"AWS_ENDPOINT": f"http://127.0.0.1:{port}"})
    server = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for attempt in range(100):
            try:
                urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/benchmark", method="PUT")).close()
                break
            except OSError:
                if attempt == 99:
                    raise
                time.sleep(0.1)
        yield "s3://benchmark/app"
    finally:
        server.terminate()
        server.wait()


async def append_beside(folder: Path, bucket: Path | str, count: int, *, is_published: bool) -> float:
    """Append entries one by one, while another process publishes the log or not; return the CPU time of appending, in seconds."""
    signer = gossiplog.Ed25519Signer.from_seed(os.urandom(32))
    command = [sys.executable, "-m", "gossiplog", "publish", str(folder / "live.db"), str(bucket), "--every", "1"]
    keys = os.environ | {"GOSSIPLOG_KEY_DIR": str(folder)}
    folder.mkdir(mode=0o700)
    signer.save(folder / "me.pem")
    async with gossiplog.open(folder / "live.db", topic=TOPIC, signer=signer) as log:
        await log.append_many(payloads(random.Random(SEED), 100))
        publisher = subprocess.Popen(command, env=keys, stdout=subprocess.DEVNULL) if is_published else None
        try:
            texts = payloads(random.Random(SEED), count)
            await trio.sleep(2)
            with Stopwatch() as appending:
                for text in texts:
                    await log.append(text)
            if publisher is not None:
                assert publisher.poll() is None, "the publisher ended"
        finally:
            if publisher is not None:
                publisher.terminate()
                publisher.wait()
    return appending.cpu_s


@contextmanager
def web_server(folder: Path, port: int = 15_790) -> Iterator[str | None]:
    """Have nginx serve a folder, and name its URL; None if it is not installed."""
    nginx = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if nginx is None:
        yield None
        return
    own = folder.parent / "nginx"
    own.mkdir()
    paths = "".join(f"{kind}_temp_path {own}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    server = f"server {{ listen 127.0.0.1:{port}; root {folder}; }}"
    settings = f"daemon off; pid {own}/pid; worker_processes 1; events {{}} http {{ access_log off; {paths} {server} }}"
    (own / "conf").write_text(settings)
    user = ["-g", "user root;"] if os.geteuid() == 0 else []
    process = subprocess.Popen([nginx, "-e", str(own / "log"), "-c", str(own / "conf"), *user])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


class Counted:
    """A storage, and the requests that were made of it, by what they do and to what."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.requests: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if name not in ("read", "write", "swap", "list", "remove"):
            return found

        def call(path: Any, *given: Any) -> Any:
            part = str(path).partition("/1/")[2]
            what = "bundles" if "tile/entries" in part else "tiles" if part.startswith("tile") else "others"
            self.requests[f"{name} {what}"] += 1
            return found(path, *given)

        return call


@dataclass
class Turn:
    """What 1 % more costs: CPU times of an entry in µs, and what was published."""

    insert: float
    clone: float
    publish_ms: float
    published: Published
    requests: Counter[str]


async def take_turns(log: gossiplog.GossipLog, rng: random.Random, count: int, place: str, folder: Path) -> list[Turn]:
    """Append 1 %, publish it, insert it in one other log, and take it from the bucket in another; and so on."""
    turns = []
    async with gossiplog.open(folder / "inserted.db") as inserted, gossiplog.open(folder / "cloned.db") as cloned:
        await cloned.sync(place)
        for _ in range(TURNS):
            values = [entry.value for entry in await log.append_many(payloads(rng, count // 100))]
            counted = Counted(open_storage(place))
            with Stopwatch() as publishing:
                published = await publish(log, counted, SIGNER)
            with Stopwatch() as inserting:
                for at in range(0, len(values), 4_096):
                    await inserted.insert_many(values[at : at + 4_096])
            with Stopwatch() as cloning:
                await cloned.sync(place)
            each = 1e6 / len(values)
            turns.append(Turn(inserting.cpu_s * each, cloning.cpu_s * each, publishing.cpu_s * 1e3, published, counted.requests))
        assert await inserted.root() == await cloned.root() == await log.root()
    return turns


async def clone_whole(place: str, location: Path, count: int) -> Stopwatch:
    """Clone a log at a stretch, as a user does."""
    with Stopwatch() as cloning:
        report = await gossiplog.clone(place, location)
    assert report.entries == count and not report.faults
    return cloning


async def first_readable(place: str, location: Path) -> Stopwatch:
    """Begin to clone, until another reader finds entries."""
    with Stopwatch() as watch:
        await _first_readable(place, location)
    return watch


async def _first_readable(place: str, location: Path) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gossiplog.clone, place, location)
        while True:
            await trio.sleep(0.01)
            with suppress(GossipLogError):
                async with gossiplog.open(location, read_only=True) as reader:
                    if await reader.count():
                        break
        nursery.cancel_scope.cancel()


async def measure(count: int, folder: Path, place: str | None = None, kept: Path | None = None) -> list[Figure]:
    """Append the entries, publish them in a place, or else in a folder, and clone them."""
    rng, load = random.Random(SEED), [os.getloadavg()[0]]
    bucket = place or str(folder / "bucket")
    if kept is not None and kept.exists():
        shutil.copyfile(kept, folder / "log.db")
    async with gossiplog.open(folder / "log.db", topic=TOPIC, signer=SIGNER, durability="off") as log:
        while rest := count - await log.count():
            await log.append_many(payloads(rng, min(1_000, rest)))
        with Stopwatch() as publishing:
            first = await log.publish(bucket)
    for copy in (folder / "inserted.db", folder / "cloned.db", *([] if kept is None or kept.exists() else [kept])):
        shutil.copyfile(folder / "log.db", copy)
    async with gossiplog.open(folder / "log.db", signer=SIGNER, durability="off") as log:
        turns = await take_turns(log, rng, count, bucket, folder)
        proof = await log.prove((await log.heads())[0])
        total, raw = await log.count(), sum([len(entry.value) async for entry in log.iterate()])
    print(turns[-1].requests, flush=True)
    with Stopwatch() as checking:
        for _ in range(200):
            check_proof(Proof.parse(proof))
    readable = [await first_readable(bucket, folder / f"first-{turn}.db") for turn in range(LIVE_TURNS)]
    live = []
    for turn in range(LIVE_TURNS):
        cpu = {}
        for is_published in (False, True) if turn % 2 else (True, False):
            where = folder / f"live-{turn}-{is_published}"
            cpu[is_published] = await append_beside(where, f"{bucket}-live-{turn}", LIVE_ENTRIES, is_published=is_published)
        live.append(cpu[True] / cpu[False])
    more_bytes = [turn.published.written_bytes / first.written_bytes for turn in turns]
    beside, check_ms = len(proof) - len(Proof.parse(proof).value) * 4 / 3, checking.cpu_s / 200 * 1e3
    name = f"of {total:,} entries"

    def requests(*kinds: str) -> list[float]:
        return [float(sum(count for kind, count in turn.requests.items() if kind in kinds)) for turn in turns]

    reads = [f"{what} {of}" for what in ("read", "list", "remove") for of in ("tiles", "bundles", "others")]
    figures = [
        Figure("bucket.publish", f"publish a log of {count:,} entries", "µs CPU/entry", [publishing.cpu_s / count * 1e6], load=load),
        Figure("bucket.again.bytes", "publish 1 % more: bytes, of the first time's", "", more_bytes, Goal(at_most=0.02)),
        Figure(
            "bucket.again.objects",
            "the same: segments, checkpoint and head written",
            "",
            requests("write others", "swap others"),
            Goal(at_most=10),
        ),
        Figure(
            "bucket.again.tiles",
            "the same: tiles and bundles written; C2SP wants one each for 256 entries",
            "",
            requests("write tiles", "write bundles"),
        ),
        Figure("bucket.again.reads", "the same: requests that read, list or remove", "", requests(*reads)),
        Figure("bucket.again", "the same", "ms CPU", [turn.publish_ms for turn in turns], load=load),
        Figure(
            "bucket.append",
            "append while it is published once a second, by appending alone",
            "× CPU",
            live,
            Goal(at_most=1.03),
            load=load,
        ),
        Figure(
            "bucket.clone",
            "take 1 % more from it, in turns with the next",
            "µs CPU/entry",
            [turn.clone for turn in turns],
            load=load,
        ),
        Figure("bucket.insert", "verify and insert the same VALUEs", "µs CPU/entry", [turn.insert for turn in turns], load=load),
        Figure(
            "bucket.clone.rate",
            "a clone's rate by CPU time, of inserting alone",
            "",
            [turn.insert / turn.clone for turn in turns],
            Goal(at_least=0.9),
            load=load,
        ),
        Figure("bucket.clone.first", "until another reader finds entries", "s CPU", [each.cpu_s for each in readable], load=load),
        Figure(
            "bucket.clone.first.wall", "the same", "s", [each.wall_s for each in readable], Goal(at_most=1), needs_quiet=True, load=load
        ),
        Figure("bucket.proof.size", "a proof, beside VALUE in base64", "bytes", [beside], Goal(at_most=1_500)),
        Figure("bucket.proof.check", "check a proof, the entry's signature included", "ms CPU", [check_ms], Goal(at_most=1), load=load),
    ]
    if place is None:
        segments = bytes_below(Path(bucket), "values/**/*")
        figures += [
            Figure("bucket.publish.size", "segments, of the VALUEs' bytes", "", [segments / raw], Goal(at_most=0.55)),
            Figure("bucket.size", "all objects, of the VALUEs' bytes", "", [bytes_below(Path(bucket), "*") / raw]),
        ]
        with web_server(Path(bucket)) as url:
            if url is not None:
                cloning = await clone_whole(f"{url}/{publisher_of(SIGNER)}", folder / "web.db", total)
                what = f"clone {name} from nginx, at a stretch"
                figures += [
                    Figure("bucket.clone.web", what, "s CPU", [cloning.cpu_s], load=load),
                    Figure("bucket.clone.web.wall", "the same", "s", [cloning.wall_s], Goal(at_most=75), needs_quiet=True, load=load),
                ]
    print(*figures, sep="\n", flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bucket", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--s3", action="store_true", help="in an S3 server rather than a folder")
    parser.add_argument("--log", type=Path, metavar="FILE", help="keeps the log of COUNT entries for the next run")
    parser.add_argument("--dry", action="store_true", help="write no results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, s3_bucket() if options.s3 else nullcontext() as place:
        figures = trio.run(measure, options.count, Path(folder), place, options.log)
    if options.dry:
        return
    header = {
        "command": f"python -m benchmarks.bucket --count {options.count}{' --s3' * options.s3}",
        "machine": machine(),
        "versions": versions(),
        "seed": SEED,
        "entries": options.count,
    }
    name, title = ("bucket-s3", "A log in a bucket of an S3 server") if options.s3 else ("bucket", "A log in a bucket")
    write_results(RESULTS / name, title, header, figures)


if __name__ == "__main__":
    main()
