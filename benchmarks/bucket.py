"""What it takes to publish a log in a folder, to publish again, to clone it, and to check a proof: `python -m benchmarks.bucket`.

With `--s3` the bucket is in an S3 server, moto's, on the same machine, whose own time is not counted.

Cloning is measured beside `insert_many` of the same VALUEs, in turns: that is what verifying and storing them costs in any case. Texts
have 14 words, so that there is something to compress.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import trio

import gossiplog
from gossiplog.tlog.proof import Proof, check_proof

from .measure import Figure, Goal, Stopwatch, machine, versions, write_results

SEED = 1
TOPIC = "bucket.example.com"
REPETITIONS = 3
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


async def measure(count: int, folder: Path, repetitions: int = REPETITIONS, place: str | None = None) -> list[Figure]:
    """Append the entries, publish them in a place, or else in a folder, and clone them."""
    rng, load = random.Random(SEED), [os.getloadavg()[0]]
    bucket = place or folder / "bucket"
    signer = gossiplog.Ed25519Signer.from_seed(bytes([SEED]) * 32)
    async with gossiplog.open(folder / "log.db", topic=TOPIC, signer=signer, durability="off") as log:
        for start in range(0, count, 1_000):
            await log.append_many(payloads(rng, min(1_000, count - start)))
        with Stopwatch() as publishing:
            first = await log.publish(bucket)
        await log.append_many(payloads(rng, count // 100))
        with Stopwatch() as again:
            second = await log.publish(bucket)
        values = [entry.value async for entry in log.iterate()]
        proof = await log.prove((await log.heads())[0])
    raw = sum(map(len, values))
    with Stopwatch() as checking:
        for _ in range(200):
            check_proof(Proof.parse(proof))
    clones, inserts, ratios = [], [], []
    for turn in range(repetitions):
        async with gossiplog.open(folder / f"insert-{turn}.db", topic=TOPIC) as other:
            with Stopwatch() as inserting:
                for at in range(0, len(values), 4_096):
                    await other.insert_many(values[at : at + 4_096])
        with Stopwatch() as cloning:
            report = await gossiplog.clone(bucket, folder / f"clone-{turn}.db")
        assert report.entries == len(values) and not report.faults
        clones.append(cloning.cpu_s / len(values) * 1e6)
        inserts.append(inserting.cpu_s / len(values) * 1e6)
        ratios.append(inserting.cpu_s / cloning.cpu_s)
    beside_ratios = []
    for turn in range(repetitions):
        cpu = {}
        for is_published in (False, True) if turn % 2 else (True, False):
            live = folder / f"live-{turn}-{is_published}"
            cpu[is_published] = await append_beside(live, f"{bucket}-live-{turn}", count // 50, is_published=is_published)
        beside_ratios.append(cpu[True] / cpu[False])
    more_bytes = second.written_bytes / first.written_bytes
    beside, check_ms = len(proof) - len(Proof.parse(proof).value) * 4 / 3, checking.cpu_s / 200 * 1e3
    name = f"of {count:,} entries"
    figures = [
        Figure("bucket.publish", f"publish a log {name}", "µs CPU/entry", [publishing.cpu_s / count * 1e6], load=load),
        Figure(
            "bucket.again.bytes",
            "publish 1 % more: bytes, of the first time's",
            "",
            [more_bytes],
            Goal(at_most=0.02),
        ),
        Figure("bucket.again.objects", "publish 1 % more: objects written", "", [float(second.objects)], Goal(at_most=10)),
        Figure("bucket.again", "publish 1 % more", "ms CPU", [again.cpu_s * 1e3], load=load),
        Figure(
            "bucket.append",
            "append while it is published once a second, by appending alone",
            "× CPU",
            beside_ratios,
            Goal(at_most=1.03),
            load=load,
        ),
        Figure("bucket.clone", f"clone a log {name}", "µs CPU/entry", clones, load=load),
        Figure("bucket.insert", "verify and insert the same VALUEs", "µs CPU/entry", inserts, load=load),
        Figure("bucket.clone.rate", "a clone's rate by CPU time, of inserting alone", "", ratios, Goal(at_least=0.9), load=load),
        Figure("bucket.proof.size", "a proof, beside VALUE in base64", "bytes", [beside], Goal(at_most=1_500)),
        Figure(
            "bucket.proof.check",
            "check a proof, the entry's signature included",
            "ms CPU",
            [check_ms],
            Goal(at_most=1),
            load=load,
        ),
    ]
    if isinstance(bucket, Path):
        segments = bytes_below(bucket, "values/**/*")
        figures += [
            Figure("bucket.publish.size", "segments, of the VALUEs' bytes", "", [segments / raw], Goal(at_most=0.55)),
            Figure("bucket.size", "all objects, of the VALUEs' bytes", "", [bytes_below(bucket, "*") / raw]),
        ]
    print(*figures, sep="\n", flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bucket", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="of cloning and inserting")
    parser.add_argument("--s3", action="store_true", help="in an S3 server rather than a folder")
    parser.add_argument("--dry", action="store_true", help="write no results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, s3_bucket() if options.s3 else nullcontext() as place:
        figures = trio.run(measure, options.count, Path(folder), options.repetitions, place)
    if options.dry:
        return
    header = {
        "command": f"python -m benchmarks.bucket --count {options.count} --repetitions {options.repetitions}{' --s3' * options.s3}",
        "machine": machine(),
        "versions": versions(),
        "seed": SEED,
        "entries": options.count,
    }
    name, title = ("bucket-s3", "A log in a bucket of an S3 server") if options.s3 else ("bucket", "A log in a bucket")
    write_results(RESULTS / name, title, header, figures)


if __name__ == "__main__":
    main()
