"""What it takes to publish a log in a folder, to publish again, to clone it, and to check a proof: `python -m benchmarks.bucket`.

With `--s3` the bucket is in an S3 server, moto's, on the same machine, whose own time is not counted. Where nginx is installed, the folder
is also cloned from it.

Cloning is measured beside `insert_many` of the same VALUEs: that is what verifying and storing them costs in any case. Appending,
publishing, inserting and cloning take turns, a tenth of the entries each, so that they see the same load and logs of the same size.
Texts have 14 words, so that there is something to compress.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

import gossiplog
from gossiplog.bucket import Storage, open_storage, publish
from gossiplog.errors import GossipLogError
from gossiplog.tlog.note import publisher_of
from gossiplog.tlog.proof import Proof, check_proof

from .measure import Figure, Goal, Stopwatch, machine, versions, write_results

SEED = 1
TOPIC = "bucket.example.com"
TURNS = 10
LIVE_TURNS = 5
LIVE_ENTRIES = 5_000
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
class Turns:
    """CPU times of an entry, in µs, one a turn, and how many bytes were published in all."""

    publish: list[float] = field(default_factory=list)
    insert: list[float] = field(default_factory=list)
    clone: list[float] = field(default_factory=list)
    written_bytes: int = 0


async def take_turns(log: gossiplog.GossipLog, rng: random.Random, count: int, place: str, folder: Path) -> Turns:
    """Append a tenth of the entries, publish it, insert it in one other log, and take it from the bucket in another; and so on."""
    turns = Turns()
    async with (
        gossiplog.open(folder / "inserted.db", topic=TOPIC) as inserted,
        gossiplog.open(folder / "cloned.db", topic=TOPIC) as cloned,
    ):
        for turn in range(TURNS):
            end = count * (turn + 1) // TURNS
            values: list[bytes] = []
            while rest := end - await log.count():
                values += [entry.value for entry in await log.append_many(payloads(rng, min(1_000, rest)))]
            with Stopwatch() as publishing:
                turns.written_bytes += (await log.publish(place)).written_bytes
            with Stopwatch() as inserting:
                for at in range(0, len(values), 4_096):
                    await inserted.insert_many(values[at : at + 4_096])
            with Stopwatch() as cloning:
                await cloned.sync(place)
            for samples, watch in ((turns.publish, publishing), (turns.insert, inserting), (turns.clone, cloning)):
                samples.append(watch.cpu_s / len(values) * 1e6)
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


async def measure(count: int, folder: Path, place: str | None = None) -> list[Figure]:
    """Append the entries, publish them in a place, or else in a folder, and clone them."""
    rng, load = random.Random(SEED), [os.getloadavg()[0]]
    bucket = place or str(folder / "bucket")
    signer = gossiplog.Ed25519Signer.from_seed(bytes([SEED]) * 32)
    async with gossiplog.open(folder / "log.db", topic=TOPIC, signer=signer, durability="off") as log:
        turns = await take_turns(log, rng, count, bucket, folder)
        more = await log.append_many(payloads(rng, count // 100))
        counted = Counted(open_storage(bucket))
        with Stopwatch() as again:
            second = await publish(log, counted, signer)
        proof = await log.prove(more[-1].id)
        total, raw = await log.count(), sum([len(entry.value) async for entry in log.iterate()])
    print(counted.requests, flush=True)
    with Stopwatch() as checking:
        for _ in range(200):
            check_proof(Proof.parse(proof))
    first = [await first_readable(bucket, folder / f"first-{turn}.db") for turn in range(LIVE_TURNS)]
    live = []
    for turn in range(LIVE_TURNS):
        cpu = {}
        for is_published in (False, True) if turn % 2 else (True, False):
            where = folder / f"live-{turn}-{is_published}"
            cpu[is_published] = await append_beside(where, f"{bucket}-live-{turn}", LIVE_ENTRIES, is_published=is_published)
        live.append(cpu[True] / cpu[False])
    more_bytes = second.written_bytes / turns.written_bytes
    tiles = sum(counted.requests[f"write {what}"] for what in ("tiles", "bundles"))
    beside, check_ms = len(proof) - len(Proof.parse(proof).value) * 4 / 3, checking.cpu_s / 200 * 1e3
    name = f"of {count:,} entries"
    figures = [
        Figure("bucket.publish", f"publish a log {name}", "µs CPU/entry", turns.publish, load=load),
        Figure("bucket.again.bytes", "publish 1 % more: bytes, of the first time's", "", [more_bytes], Goal(at_most=0.02)),
        Figure(
            "bucket.again.objects",
            "the same: segments, checkpoint and head written",
            "",
            [float(second.objects + 1 - tiles)],
            Goal(at_most=10),
        ),
        Figure("bucket.again.tiles", "the same: tiles and bundles written; C2SP wants one each for 256 entries", "", [float(tiles)]),
        Figure(
            "bucket.again.reads",
            "the same: requests that read, list or remove",
            "",
            [float(sum(n for what, n in counted.requests.items() if what.startswith(("read", "list", "remove"))))],
        ),
        Figure("bucket.again", "publish 1 % more", "ms CPU", [again.cpu_s * 1e3], load=load),
        Figure(
            "bucket.append",
            "append while it is published once a second, by appending alone",
            "× CPU",
            live,
            Goal(at_most=1.03),
            load=load,
        ),
        Figure("bucket.clone", "clone, in turns with the next", "µs CPU/entry", turns.clone, load=load),
        Figure("bucket.insert", "verify and insert the same VALUEs", "µs CPU/entry", turns.insert, load=load),
        Figure(
            "bucket.clone.rate",
            "a clone's rate by CPU time, of inserting alone",
            "",
            [insert / clone for insert, clone in zip(turns.insert, turns.clone, strict=True)],
            Goal(at_least=0.9),
            load=load,
        ),
        Figure("bucket.clone.first", "until another reader finds entries", "s CPU", [each.cpu_s for each in first], load=load),
        Figure("bucket.clone.first.wall", "the same", "s", [each.wall_s for each in first], Goal(at_most=1), needs_quiet=True, load=load),
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
                cloning = await clone_whole(f"{url}/{publisher_of(signer)}", folder / "web.db", total)
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
    parser.add_argument("--dry", action="store_true", help="write no results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, s3_bucket() if options.s3 else nullcontext() as place:
        figures = trio.run(measure, options.count, Path(folder), place)
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
