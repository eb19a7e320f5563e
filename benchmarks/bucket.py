"""The goals of a log in a bucket, each of them measured, and a table of them: `python -m benchmarks.bucket`.

The pieces are the log (publish, publish again, clone, prove), the scan (of what tasks of Spark's read), the workers (Spark by one executor
and by two) and the tests (convergence, damages and kills, which hold or not). All of them take an hour on two quiet cores.

With `--s3` the bucket is in an S3 server, moto's, on the same machine, whose own time is not counted. Where nginx is installed, the folder
is also cloned from it.

Cloning is measured beside `insert_many` of the same VALUEs: that is what verifying and storing them costs in any case. When the log is
published, two others are copies of it; then 1 % is appended, published, inserted in one of the two and taken from the bucket by the other,
in five turns, so that both see the same load and logs of the same size. Texts have 14 words, so that there is something to compress.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

import gossiplog
from gossiplog.bucket import Cosigner, Published, Storage, WitnessPlace, cosign_published, open_storage, publish, take
from gossiplog.errors import GossipLogError
from gossiplog.tlog.note import publisher_of
from gossiplog.tlog.proof import Proof, check_proof

from .measure import Figure, Goal, Stopwatch, figure_of, machine, versions, write_results

SEED = 1
SIGNER = gossiplog.Ed25519Signer.from_seed(bytes([SEED]) * 32)
TOPIC = "bucket.example.com"
TURNS = 5
FIRST_TURNS = 3
LIVE_TURNS = 12
LIVE_ENTRIES = 1_000
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


async def append_beside(folder: Path, bucket: Path | str) -> list[float]:
    """Append entries one by one, in turns with and without another process that publishes the log every second; return ratios of CPU.

    A turn is short, so that both sides see the same load.
    """
    signer = gossiplog.Ed25519Signer.from_seed(os.urandom(32))
    folder.mkdir(mode=0o700)
    signer.save(folder / "me.pem")
    keys = os.environ | {"GOSSIPLOG_KEY_FILE": str(folder / "me.pem")}
    command = [sys.executable, "-c", _PUBLISHER, str(folder / "live.db"), str(bucket), str(folder / "me.pem")]
    found = []
    async with gossiplog.open(folder / "live.db", topic=TOPIC, signer=signer) as log:
        await log.append_many(payloads(random.Random(SEED), 100))
        with subprocess.Popen(command, env=keys, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as publisher:
            assert publisher.stdin is not None
            assert publisher.stdout is not None

            async def tell(word: bytes) -> None:
                publisher.stdin.write(word + b"\n")
                publisher.stdin.flush()
                assert await trio.to_thread.run_sync(publisher.stdout.readline) == b"ok\n"

            for turn in range(LIVE_TURNS):
                cpu = {}
                for word in (b"go", b"stop") if turn % 2 else (b"stop", b"go"):
                    await tell(word)
                    with Stopwatch() as appending:
                        for text in payloads(random.Random(turn), LIVE_ENTRIES):
                            await log.append(text)
                    cpu[word] = appending.cpu_s
                found.append(cpu[b"go"] / cpu[b"stop"])
            publisher.stdin.close()
    return found


_PUBLISHER = """
import sys, threading, trio, gossiplog
word, heard = "stop", threading.Event()

def listen():
    global word
    for line in sys.stdin:
        word = line.strip()
        heard.set()
    word = ""
    heard.set()

async def main():
    signer = gossiplog.Ed25519Signer.load(sys.argv[3])
    threading.Thread(target=listen, daemon=True).start()
    async with gossiplog.open(sys.argv[1], read_only=True) as log:
        while word:
            if word == "go":
                await log.publish(sys.argv[2], signer=signer)
            if heard.is_set():
                heard.clear()
                print("ok", flush=True)
            await trio.to_thread.run_sync(heard.wait, 1)

trio.run(main)
"""


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


async def cosign(storage: Storage, folder: Path) -> None:
    """Have three witnesses sign what is published."""
    signers = [gossiplog.Ed25519Signer.from_seed(bytes([100 + number]) * 32) for number in range(3)]
    witnesses = [
        Cosigner(folder / f"witness-{number}", f"witness{number}.example.com", signer, publishers=None)
        for number, signer in enumerate(signers)
    ]

    async def ask(url: str, body: bytes) -> tuple[int, str, bytes]:
        return 200, "", (await witnesses[int(url[7])].add(body)).encode()

    with ExitStack() as stack:
        for each in witnesses:
            stack.enter_context(each.locked())
        places = [WitnessPlace(f"http://{number}", each.key) for number, each in enumerate(witnesses)]
        assert len((await cosign_published(storage, SIGNER, places, ask, seconds=60)).names) == 3


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
        await cosign(open_storage(bucket), folder)
        proof = await log.prove((await log.heads())[0])
        polling = Counted(open_storage(bucket))
        async with gossiplog.open(folder / "cloned.db") as cloned:
            assert (await take(cloned, polling)).entries == 0
        total, raw = await log.count(), sum([len(entry.value) async for entry in log.iterate()])
    print(turns[-1].requests, flush=True)
    with Stopwatch() as checking:
        for _ in range(200):
            check_proof(Proof.parse(proof))
    readable = [await first_readable(bucket, folder / f"first-{turn}.db") for turn in range(FIRST_TURNS)]
    live = await append_beside(folder / "live", f"{bucket}-live")
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
        Figure(
            "bucket.poll",
            "a poll that finds nothing, of one publisher: objects read",
            "",
            [float(sum(count for kind, count in polling.requests.items() if kind.startswith("read")))],
            Goal(at_most=1),
        ),
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
        Figure("bucket.proof.size", "a proof with three cosignatures, beside VALUE in base64", "bytes", [beside], Goal(at_most=1_500)),
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


def tested(name: str, what: str, test: str, **environment: str) -> Figure:
    """Run a slow test, which holds or not."""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-m", "slow", *test.split()]
    ran = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    print(ran.stdout[-2_000:] if ran.returncode else "", end="", flush=True)
    return Figure(name, what, "failed", [float(ran.returncode)], Goal(at_most=0), load=[os.getloadavg()[0]])


def tests(kills: int, damages: int) -> list[Figure]:
    """Run those goals that are tests."""
    return [
        tested(
            "bucket.converged",
            "5 replicas with 20,000 entries each, by S3 and by copied folders: not equal after 2 polls",
            "tests/bucket/test_convergence.py -k five_replicas",
        ),
        tested(
            "bucket.damages",
            f"{damages:,} flips, truncations, omissions, rollbacks: one accepted, or not named",
            "tests/bucket/test_convergence.py -k flips",
            DAMAGES=str(damages),
        ),
        tested(
            "bucket.kills",
            f"kill -9 of publish, clone and sync, {kills} times: anything lost, or to be cleaned by hand",
            "tests/bucket/test_crash.py",
            KILLS=str(kills),
            SEED="7",
        ),
    ]


def spark_workers(count: int, folder: Path) -> list[Figure]:
    """Have Spark verify a bucket by one executor and by two."""
    from .material import Setup
    from .spark import workers

    place = folder / "spark"
    (place / "scratch").mkdir(parents=True)
    return workers(Setup(count, count, 3, "normal", SEED, place / "scratch", place), count)


GOALS: Mapping[str, Sequence[str]] = {
    "clone from a static server, every signature checked": ("bucket.clone.web.wall", "bucket.clone.web"),
    "the same, rate by CPU time, of the verifier's": ("bucket.clone.rate",),
    "the same, first entries readable": ("bucket.clone.first.wall", "bucket.clone.first"),
    "size of segments, of the VALUEs'": ("bucket.publish.size",),
    "publish again after 1 % more: bytes": ("bucket.again.bytes",),
    "the same: objects of the log, and of C2SP": ("bucket.again.objects", "bucket.again.tiles"),
    "an idle poll, a publisher": ("bucket.poll",),
    "5 replicas, 100,000 entries, S3 and a copied folder": ("bucket.converged",),
    "append while publishing": ("bucket.append",),
    "proof with 3 cosignatures, beside VALUE": ("bucket.proof.size", "bucket.proof.check"),
    "Spark over a URL: scan, of a SQLite file": ("bucket-scan.key,value.ratio", "bucket-scan.columns.ratio"),
    "the same: verify": ("bucket-scan.verify.ratio",),
    "Spark: two workers, of one": ("spark.workers-speed", "spark.workers-cpu"),
    "10,000 flips, truncations, omissions, rollbacks": ("bucket.damages",),
    "500 × kill -9": ("bucket.kills",),
}
"""The table of goals, and the figures that each is held against; those after the first have no goal of their own, or another one."""


def goals_table(figures: Sequence[Figure]) -> str:
    """Return the goals as a table in Markdown, each row in it, whether it was measured or not."""
    found = {figure.name: figure for figure in figures}
    rows = ["| goal | figure | measured | at most, at least | met |", "|---|---|---:|---|---|"]
    for goal, names in GOALS.items():
        for name in names:
            figure = found.get(name)
            if figure is None:
                rows.append(f"| {goal} | `{name}` | not run | | |")
                continue
            met = "" if figure.goal is None else {None: "machine too busy to tell", True: "yes", False: "**no**"}[figure.is_met]
            rows.append(f"| {goal} | `{name}` | {figure.median:.3g} {figure.unit} | {figure.goal or ''} | {met} |")
    return "\n".join(rows)


PIECES = ("log", "scan", "workers", "tests")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bucket", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--s3", action="store_true", help="in an S3 server rather than a folder; the log alone")
    parser.add_argument("--log", type=Path, metavar="FILE", help="keeps the log of COUNT entries for the next run")
    parser.add_argument("--only", choices=PIECES, action="append", help="only this piece; repeatable")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--damages", type=int, default=10_000)
    parser.add_argument("--dry", action="store_true", help="write no results")
    options = parser.parse_args()
    pieces = ["log"] if options.s3 else options.only or PIECES
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder, s3_bucket() if options.s3 else nullcontext() as place:
        if "log" in pieces:
            (Path(folder) / "log").mkdir()
            figures += trio.run(measure, options.count, Path(folder) / "log", place, options.log)
            shutil.rmtree(Path(folder) / "log")
        if "scan" in pieces:
            from . import bucket_scan

            (Path(folder) / "scan").mkdir()
            figures += bucket_scan.measure(min(options.count, 100_000), Path(folder) / "scan")
        if "workers" in pieces:
            figures += spark_workers(options.count, Path(folder))
    if "tests" in pieces:
        figures += tests(options.kills, options.damages)
    name, title = ("bucket-s3", "A log in a bucket of an S3 server") if options.s3 else ("bucket", "A log in a bucket")
    stamp = f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, commit {versions()['gossiplog']}, load {os.getloadavg()[0]:.0f}"
    done, measured = dict.fromkeys(pieces, stamp), {figure.name for figure in figures}
    if options.only and (before := json.loads((RESULTS / "bucket.json").read_text("utf-8")))["entries"] == options.count:
        # What other runs have measured stays.
        figures += [figure_of(record) for record in before["figures"] if record["name"] not in measured]
        done = before.get("pieces", {}) | done
    table = "" if options.s3 else f"\n## Goals\n\n{goals_table(figures)}\n"
    print(table)
    if options.dry:
        return
    header = {
        "command": f"python -m benchmarks.bucket --count {options.count}{' --s3' * options.s3}",
        "pieces": done,
        "machine": machine(),
        "versions": versions(),
        "seed": SEED,
        "entries": options.count,
    }
    write_results(RESULTS / name, title, header, figures)
    with (RESULTS / f"{name}.md").open("a", encoding="utf-8") as page:
        page.write(table)


if __name__ == "__main__":
    main()
