"""Every reader of a bucket before every fault: each fault is named by object and cause, what is valid is taken, nothing is half written.

The publisher's log had 400, 500 and 600 entries. Readers that remember have seen 500 of them; the bucket has 600, and a fault.
"""

import json
import os
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner
from log_support import SIGNERS, TOPIC
from network_support import eventually

import gossiplog
from gossiplog.arrow.columns import Page
from gossiplog.bucket import Cosigner, WitnessPlace, cosign_published, look, open_storage
from gossiplog.bucket.folder import Folder
from gossiplog.cli.app import root
from gossiplog.entry import Ed25519Signer
from gossiplog.entry.envelope import skim_key
from gossiplog.errors import GossipLogError
from gossiplog.spark.source.places import scan_of
from gossiplog.tlog.note import Checkpoint, Note, NoteSignature, Origin, parse_checkpoint, publisher_of
from gossiplog.tlog.witness import WitnessRefusal

OURS, THEIRS = (publisher_of(signer) for signer in SIGNERS[:2])
READER, WITNESS = SIGNERS[2], Ed25519Signer.from_seed(b"w" * 32)
TAIL, EDGE, ABOVE, INNER, BUNDLE = "values/000.p/600", "tile/0/002.p/88", "tile/1/000.p/2", "tile/0/001", "tile/entries/001"
LAST_BUNDLE = "tile/entries/002.p/88"
PROVED = 450


@dataclass
class World:
    """A bucket in one place, which is made anew for each test, and what readers remember of it.

    Attributes:
        values: What the publisher has.
        states: Copies of the bucket, by how many entries it had, and one of another publisher.
        memory: A log, beside it what it knows of buckets.
        since: Where a scan stopped.
    """

    folder: Path
    values: list[bytes] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    since: str = ""

    @property
    def place(self) -> Path:
        return self.folder / "bucket"

    @property
    def tree(self) -> Path:
        return self.place / OURS / "1"

    def show(self, state: object) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.folder / str(state), self.place)

    def remembering(self) -> Path:
        """Return a log that has seen 500 entries here."""
        target = self.folder / "reader.db"
        for path in self.folder.glob("reader.db*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copyfile(self.folder / "memory.db", target)
        shutil.copytree(self.folder / "memory.db-buckets", self.folder / "reader.db-buckets")
        return target


async def _publish(log: gossiplog.GossipLog, world: World, name: object, count: int) -> None:
    await log.append_many([{"n": n} for n in range(await log.count(), count)])
    await log.publish(world.place)
    shutil.copytree(world.place, world.folder / str(name))


async def _make(world: World) -> None:
    async with gossiplog.open(world.folder / "ours.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
        await _publish(log, world, 400, 400)
        await _publish(log, world, 500, 500)
        async with gossiplog.open(world.folder / "memory.db", topic=TOPIC, durability="off") as memory:
            assert (await memory.sync(world.place)).taken.entries == 500
        world.since = json.dumps((await look(open_storage(world.place))).to_json())
        await cosigned(world, world.folder / "witness")
        await _publish(log, world, 600, 600)
        found = [entry async for entry in log.iterate()]
        world.values, world.ids = [entry.value for entry in found], [entry.id for entry in found]
    for name, signer in ((OURS, SIGNERS[0]), (THEIRS, SIGNERS[1])):
        shutil.rmtree(world.place)
        async with gossiplog.open(":memory:", topic=TOPIC, signer=signer) as other:
            await other.append_many([{"other": n} for n in range(600)])
            await _publish(other, world, "forked" if name == OURS else "theirs", 600)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("world"))
    trio.run(_make, world)
    READER.save(world.folder / "reader.pem")
    return world


@pytest.fixture
def world(made: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("GOSSIPLOG_KEY_FILE", str(made.folder / "reader.pem"))
    made.show(600)
    return made


def run(world: World, *arguments: object) -> tuple[list[object], list[str]]:
    """Run a command; return its records, and what it says is wrong."""
    result = CliRunner().invoke(root, [*map(str, arguments), "--json"], prog_name="gossiplog")
    assert "Traceback" not in result.stderr
    assert result.exit_code in (0, 1, 3, 5), (result.exit_code, result.stderr)
    records = [json.loads(line) for line in result.stdout.splitlines()]
    error = json.loads(result.stderr)["error"] if result.stderr.startswith("{") else None
    return records, [] if error is None else [f"{error['kind']}: {error['message']}"]


async def values_in(location: Path) -> list[bytes]:
    async with gossiplog.open(location, read_only=True) as log:
        return [entry.value async for entry in log.iterate()]


def told(record: object) -> list[str]:
    return [f"{fault['kind']}: {fault['reason']}" for each in record["publishers"] for fault in each["faults"]]  # type: ignore[index]


def clone(world: World) -> list[str]:
    target = world.folder / "cloned.db"
    for path in world.folder.glob("cloned.db*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    records, errors = run(world, "clone", world.place, target, "--topic", TOPIC)
    if errors:
        assert not list(world.folder.glob("cloned.db*")), "half written"
        return errors
    assert set(trio.run(values_in, target)) <= known(world)
    return told(records[0])


def known(world: World) -> set[bytes]:
    """All that was ever signed: a fork's entries are taken too, as each proves itself."""
    return {*world.values, *trio.run(others, world)}


async def others(world: World) -> list[bytes]:
    found = []
    for name in ("forked", "theirs"):
        async with gossiplog.open(":memory:", topic=TOPIC) as log:
            await log.sync(world.folder / name)
            found += [entry.value async for entry in log.iterate()]
    return found


def sync(world: World) -> list[str]:
    target = world.remembering()
    before = trio.run(values_in, target)
    records, errors = run(world, "sync", target, world.place)
    assert set(before) <= set(trio.run(values_in, target)) <= known(world)
    return errors or told(records[0])


def verify(world: World) -> list[str]:
    records, errors = run(world, "verify", world.place, "--topic", TOPIC, "--jobs", 1)
    return errors + [f"{each.get('place')}: {each['reason']}" for each in records if not each["accepted"]]  # type: ignore[attr-defined,index]


def stat(world: World) -> list[str]:
    records, errors = run(world, "stat", world.place)
    return errors + [fault for each in records for fault in each["faults"].values()]  # type: ignore[index]


def checkpoint(world: World) -> list[str]:
    records, errors = run(world, "checkpoint", world.place)
    return errors + [each["reason"] for each in records if not each["valid"]]  # type: ignore[index]


def prove(world: World) -> list[str]:
    target, log = world.folder / "x.tlog-proof", world.remembering()
    target.unlink(missing_ok=True)
    _, errors = run(world, "prove", log, world.ids[PROVED], "-o", target, "--from", world.place)
    assert target.exists() == (not errors), "half written"
    if not errors:
        (record,), errors = run(world, "check", target)
        assert (record["id"], errors) == (world.ids[PROVED], [])  # type: ignore[index]
    return errors


def _scan(world: World, **options: str) -> list[str]:
    def rows(page: Page) -> list[tuple[bytes | None, str | None]]:
        return list(zip(page.values, page.faults or [None] * len(page.values), strict=True))

    try:
        scan = scan_of(str(world.place), {"topic": TOPIC, **options})
        found = [row for part in scan.parts(None) for page in scan.read(part) for row in rows(page)]
    except GossipLogError as error:
        return [str(error)]
    assert {value for value, fault in found if not fault} <= known(world)
    return [fault for _, fault in found if fault]


def scan(world: World) -> list[str]:
    return _scan(world, prove="true")


def follow(world: World) -> list[str]:
    return _scan(world, since=world.since)


async def cosigned(world: World, folder: Path) -> list[str]:
    witness = Cosigner(folder, "witness.example.com/w1", WITNESS, publishers=None)

    async def ask(url: str, body: bytes) -> tuple[int, str, bytes]:
        try:
            return 200, "", (await witness.add(body)).encode()
        except WitnessRefusal as refusal:
            return refusal.status, "text/x.tlog.size" if refusal.size is not None else "", str(refusal.size or refusal).encode()

    with witness.locked():
        try:
            done = await cosign_published(open_storage(world.place), SIGNERS[0], [WitnessPlace("http://w", witness.key)], ask)
        except GossipLogError as error:
            return [str(error)]
    return list(done.refusals.values())


def witness(world: World) -> list[str]:
    shutil.rmtree(world.folder / "signing", ignore_errors=True)
    shutil.copytree(world.folder / "witness", world.folder / "signing")
    return trio.run(cosigned, world, world.folder / "signing")


def serve(world: World) -> list[str]:
    async def task() -> list[str]:
        async with (
            gossiplog.open(world.remembering(), durability="off") as log,
            log.keep_synced(world.place, signer=READER, every_s=60) as peer,
        ):
            await eventually(lambda: bool(peer.exchanged_at or peer.error))
            return [*peer.faults, *([peer.error] if peer.error else [])]

    return trio.run(task)


READERS = {each.__name__: each for each in (clone, sync, serve, verify, scan, follow, stat, checkpoint, prove, witness)}
OF_HEAD, OF_TREE = {*READERS}, {*READERS} - {"stat", "checkpoint"}
OF_TAIL = {"clone", "sync", "serve", "verify", "scan", "follow"}
WHO_REMEMBER = {"sync", "serve", "follow", "witness"}


def head(world: World, data: bytes) -> None:
    (world.place / OURS / "head").write_bytes(data)


def signed(world: World, checkpoint: Checkpoint, by: Ed25519Signer = SIGNERS[0]) -> None:
    """Show a checkpoint that may not be signed as it should."""
    text, key = checkpoint.to_text(), Origin(checkpoint.origin.topic, OURS, checkpoint.origin.generation).key
    name = str(checkpoint.origin)
    head(world, Note(text, (NoteSignature(name, type(key)(name, 1, key.public_key).key_id, by.sign(text.encode())),)).to_bytes())


def now(world: World) -> Checkpoint:
    return parse_checkpoint((world.tree / "checkpoint").read_bytes())[1]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def of(world: World, **changed: object) -> Checkpoint:
    known = now(world)
    origin = {"topic": known.origin.topic, "publisher": OURS, "generation": 1} | {k: v for k, v in changed.items() if k != "size"}
    return Checkpoint(Origin(**origin), changed.get("size", known.size), known.root)  # type: ignore[arg-type]


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def extra(world: World) -> None:
    for name in ("values/009", "values/000.p/4000", "values/notes", "tile/0/009", "tile/9/000.p/1", "tile/entries/000.p/3", "other/file"):
        (world.tree / name).parent.mkdir(parents=True, exist_ok=True)
        (world.tree / name).write_bytes(b"of nobody")
    for name in ("z6MkNot", "notes", THEIRS):
        (world.place / name).mkdir()
    (world.place / "README").write_text("of somebody")


def vanish(world: World) -> None:
    shutil.rmtree(world.place / OURS)
    shutil.copytree(world.folder / "theirs" / THEIRS, world.place / THEIRS)


@dataclass(frozen=True)
class Fault:
    """What is done to the bucket, which readers can notice it, and what they have to say; more ways to say it are told apart by `|`."""

    damage: Callable[[World], object]
    says: str
    seen_by: set[str]
    but: dict[str, str] = field(default_factory=dict)


@dataclass
class Web(World):
    """The same, behind a web server."""

    url: str = ""

    @property
    def place(self) -> Path:
        return self.url  # type: ignore[return-value]


def at(name: str, damage: Callable[[Path], object], seen_by: set[str], says: str = "{}", **but: str) -> Fault:
    return Fault(lambda world: damage(world.tree / name), says.format(name), seen_by, but)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b".")


GONE = "nothing is published"
FAULTS = {
    "nothing": Fault(lambda world: None, "", set()),
    "extra-objects": Fault(extra, "", set()),
    # head
    "head-flip": Fault(lambda world: flip(world.place / OURS / "head", 200), "head", OF_HEAD),
    "head-cut": Fault(lambda world: cut(world.place / OURS / "head"), "head: ", OF_HEAD),
    "head-empty": Fault(lambda world: head(world, b""), "head: ", OF_HEAD),
    "head-is-a-folder": Fault(lambda world: folder_instead(world.place / OURS / "head"), "head is no plain file", OF_HEAD),
    "head-missing": Fault(
        lambda world: (world.place / OURS / "head").unlink(),
        "head is missing",
        OF_HEAD - {"checkpoint"},
        dict.fromkeys(("clone", "verify", "scan", "stat"), GONE) | {"prove": "no entry .* is published at"},
    ),
    "rolled-back": Fault(
        lambda world: world.show(400),
        "went back to 400 entries|has signed 500 entries, and 400",
        WHO_REMEMBER | {"prove"},
        {"prove": "no entry .* is published at"},
    ),
    "forked": Fault(
        lambda world: world.show("forked"),
        "has signed two logs|answered 422",
        WHO_REMEMBER | {"prove"},
        {"prove": "no entry .* is published at"},
    ),
    "other-topic": Fault(
        lambda world: signed(world, of(world, topic="other.example.com")),
        "other.example.com",
        OF_HEAD - {"stat", "checkpoint", "witness"},
        {"prove": "no entry .* is published at"},
    ),
    "key-of-another": Fault(lambda world: signed(world, of(world), by=SIGNERS[1]), "head: the signature of", OF_HEAD),
    "anothers-checkpoint": Fault(
        lambda world: shutil.copyfile(world.folder / "theirs" / THEIRS / "head", world.place / OURS / "head"),
        "head: a checkpoint of",
        OF_HEAD,
    ),
    "generation-too-large": Fault(lambda world: signed(world, of(world, generation=10**19 - 1)), "head: .* is no origin", OF_HEAD),
    "generation-of-54-bits": Fault(lambda world: signed(world, of(world, generation=2**53)), "head: .* is no origin", OF_HEAD),
    "size-of-54-bits": Fault(lambda world: signed(world, of(world, size=2**53)), "head: .* is no size of a tree", OF_HEAD),
    # tiles
    "edge-missing": at(EDGE, Path.unlink, OF_TREE, "{} is missing"),
    "edge-flip": at(EDGE, lambda path: flip(path, 40), OF_TREE, "{}.*not of the root"),
    "edge-cut": at(EDGE, cut, OF_TREE, "{}: 1,408 bytes"),
    "edge-empty": at(EDGE, lambda path: path.write_bytes(b""), OF_TREE, "{}: 0 bytes"),
    "edge-is-a-folder": at(EDGE, folder_instead, OF_TREE, "{} is no plain file"),
    "above-flip": at(ABOVE, lambda path: flip(path, 40), OF_TREE, "{}.*not of the root"),
    "inner-missing": at(INNER, Path.unlink, WHO_REMEMBER | {"prove", "verify"}, "{} is missing"),
    "inner-flip": at(INNER, lambda path: flip(path, 40), WHO_REMEMBER | {"prove", "verify"}, "{}: not of the root"),
    "inner-longer": at(INNER, longer, WHO_REMEMBER | {"prove", "verify"}, "{} has 8,193 bytes"),
    "bundle-missing": at(BUNDLE, Path.unlink, {"prove", "verify"}, "leaves 256 to 511 are missing", verify=f"{BUNDLE} is missing"),
    "bundle-flip": at(
        BUNDLE,
        lambda path: flip(path, 54 * (PROVED - 256) + 20),
        {"prove", "verify"},
        "leaves 256 to 511 are missing or wrong",
        verify=f"{BUNDLE}: not of the root",
    ),
    "bundle-length-flip": at(BUNDLE, lambda path: flip(path, 54 * 255 + 1), {"verify"}, "{}: not of the root"),
    "last-bundle-longer": at(LAST_BUNDLE, longer, {"verify"}, "{}: not of the root"),
    # checkpoint
    "checkpoint-missing": at("checkpoint", Path.unlink, {"verify"}, "1/checkpoint is missing"),
    "checkpoint-flip": at("checkpoint", lambda path: flip(path, 200), {"verify"}, "1/checkpoint: "),
    "checkpoint-of-another": Fault(
        lambda world: shutil.copyfile(world.folder / "theirs" / THEIRS / "head", world.tree / "checkpoint"),
        "1/checkpoint: not of the tree in head",
        {"verify"},
    ),
    # segments
    "tail-missing": at(TAIL, Path.unlink, OF_TAIL, "{} is missing"),
    "tail-flip": at(TAIL, lambda path: flip(path, path.stat().st_size - 4_000), OF_TAIL, "{}: "),
    "tail-cut": at(TAIL, cut, OF_TAIL, "{}: "),
    "tail-empty": at(TAIL, lambda path: path.write_bytes(b""), OF_TAIL, "{}: "),
    "tail-is-a-folder": at(TAIL, folder_instead, OF_TAIL, "{} is no plain file"),
    "tail-of-another": Fault(
        lambda world: shutil.copyfile(world.folder / "theirs" / THEIRS / "1" / TAIL, world.tree / TAIL),
        f"{TAIL}: not the VALUE",
        OF_TAIL - {"follow"},
    ),
    "tail-of-a-fork": Fault(
        lambda world: shutil.copyfile(world.folder / "forked" / OURS / "1" / TAIL, world.tree / TAIL),
        f"{TAIL}: not the VALUE",
        OF_TAIL - {"follow"},
    ),
    # What a listing no longer shows, only those who have seen it can miss.
    "publisher-gone": Fault(
        vanish,
        f"{OURS}/head is missing",
        WHO_REMEMBER | {"prove"},
        {"prove": "no entry .* is published at", "follow": "(head is|are) missing"},
    ),
}


STAYS = {"head-is-a-folder", "edge-is-a-folder", "tail-is-a-folder", "forked", "other-topic"}
"""What its user has to remove by hand: `publish --again` refuses, as it is not of this log, or no file can be put there."""


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", FAULTS)
def test_each_reader_names_what_it_can_see_and_accepts_nothing_else(world: World, name: str, reader: str) -> None:
    fault = FAULTS[name]
    fault.damage(world)
    found = READERS[reader](world)
    if reader not in fault.seen_by:
        assert found == []
        return
    said = fault.but.get(reader, fault.says)
    assert found
    assert all(re.search(said, each) for each in found), found
    # A log that was only read is blamed for nothing.
    assert not any(".db" in each for each in found)


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in STAYS])
def test_the_publisher_mends_what_is_wrong(world: World, name: str) -> None:
    FAULTS[name].damage(world)
    shutil.rmtree(world.folder / "mending.db-buckets", ignore_errors=True)
    shutil.copytree(world.folder / "ours.db-buckets", world.folder / "mending.db-buckets")
    shutil.copyfile(world.folder / "ours.db", world.folder / "mending.db")

    async def mend() -> list[bytes]:
        async with gossiplog.open(world.folder / "mending.db", signer=SIGNERS[0]) as log:
            await log.publish(world.place, again=True)
        async with gossiplog.open(":memory:", topic=TOPIC) as reader:
            assert (await reader.sync(world.place / OURS)).taken.faults == []
            return [entry.value async for entry in reader.iterate()]

    assert trio.run(mend) == sorted(world.values, key=skim_key)
    assert verify(world) == []


def test_a_listing_that_lags_hides_no_publisher_that_was_seen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = Folder.list

    async def lagging(self: Folder, path: str) -> tuple[list[str], list[str]]:
        folders, files = await listed(self, path)
        return [name for name in folders if name != OURS], files

    monkeypatch.setattr(Folder, "list", lagging)
    for reader in (sync, serve, follow):
        world.show(600)
        shutil.copytree(world.folder / "theirs" / THEIRS, world.place / THEIRS)
        assert reader(world) == []
        assert {*trio.run(values_in, world.folder / "reader.db")} >= {*world.values}


class Unavailable(SimpleHTTPRequestHandler):
    """A folder behind a web server that answers 503 where a name has this in it."""

    busy = "nothing"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if self.busy in self.path:
            self.send_error(503)
        elif not path.is_file():
            self.send_error(404)
        else:
            data, size = path.read_bytes(), path.stat().st_size
            first, last = self.headers.get("Range", f"bytes=0-{size}").removeprefix("bytes=").split("-")
            part = data[int(first) : int(last) + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{size}")
            self.send_header("Content-Length", str(len(part)))
            self.send_header("Last-Modified", self.date_time_string(0))
            self.end_headers()
            self.wfile.write(part)


@pytest.mark.parametrize("busy", ["head", EDGE, TAIL])
def test_each_reader_names_the_object_that_is_not_available(world: World, monkeypatch: pytest.MonkeyPatch, busy: str) -> None:
    monkeypatch.setattr("gossiplog.bucket.objects._RETRIES", {"max_retries": 0, "retry_timeout": timedelta(seconds=1)})
    handler = type("Handler", (Unavailable,), {"busy": busy})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=world.place)) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            web = Web(world.folder, world.values, world.ids, world.since, f"http://127.0.0.1:{server.server_port}/{OURS}")
            readers = {"head": OF_HEAD - {"witness"}, EDGE: {"clone", "verify", "scan", "prove"}, TAIL: {"clone", "verify", "scan"}}[busy]
            for reader in sorted(readers - {"follow", "sync", "serve"}):
                found = READERS[reader](web)
                assert found, reader
                assert all(f"/{busy}" in each and "503" in each for each in found), (reader, found)
        finally:
            server.shutdown()


async def _two_publishers(folder: Path) -> None:
    async with gossiplog.open(folder / "ours.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
        await log.append_many([{"n": n} for n in range(4096 + 600)])
        await log.publish(folder / "bucket")
        async with gossiplog.open(folder / "theirs.db", topic=TOPIC, signer=SIGNERS[1], durability="off") as other:
            await other.sync(folder / "bucket")
            await other.append_many([{"theirs": n} for n in range(10)])
            await other.publish(folder / "bucket")


def test_verify_names_every_object_that_cannot_be_read_and_goes_on(tmp_path: Path) -> None:
    trio.run(_two_publishers, tmp_path)
    generation = tmp_path / "bucket" / THEIRS / "1" / "values"
    for name in ("000", "001.p/610"):
        folder_instead(generation / name)
    folder_instead(tmp_path / "bucket" / OURS / "head")
    result = CliRunner().invoke(root, ["verify", str(tmp_path / "bucket"), "--json", "--jobs", "1"])
    failed = [record for record in map(json.loads, result.stdout.splitlines()) if not record["accepted"]]
    assert [record["rule"] for record in failed] == ["unreadable"] * 3
    for record, name in zip(failed, (f"{OURS}/head", f"{THEIRS}/1/values/000", f"{THEIRS}/1/values/001.p/610"), strict=True):
        assert f"{name} is no plain file" in record["reason"]
    assert result.exit_code == 5


def test_verify_checks_each_of_two_trees_with_the_same_entries(tmp_path: Path) -> None:
    async def make() -> None:
        async with gossiplog.open(tmp_path / "log.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
            await log.append_many([{"n": n} for n in range(600)])
            for each in SIGNERS[:2]:
                await log.publish(tmp_path / "bucket", signer=each)

    trio.run(make)
    for publisher in (OURS, THEIRS):
        path = tmp_path / "bucket" / publisher / "1" / TAIL
        before = path.read_bytes()
        path.unlink()
        result = CliRunner().invoke(root, ["verify", str(tmp_path / "bucket"), "--json", "--jobs", "1"])
        assert f"{path} is missing" in result.stdout
        assert result.exit_code == 5
        path.write_bytes(before)
    result = CliRunner().invoke(root, ["verify", str(tmp_path / "bucket"), "--json", "--jobs", "1"])
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 600)


def test_what_one_publisher_lacks_and_another_has_is_told_and_nothing_is_incomplete(tmp_path: Path) -> None:
    trio.run(_two_publishers, tmp_path)
    segment = tmp_path / "bucket" / OURS / "1" / "values" / "000"
    before = segment.read_bytes()
    segment.unlink()
    arguments = ["clone", str(tmp_path / "bucket"), str(tmp_path / "reader.db")]
    result = CliRunner().invoke(root, [*arguments, "--table"])
    assert result.exit_code == 0, result.stderr
    assert f"missing: {segment} is missing" in result.stderr
    assert "has every entry nonetheless" in result.stderr
    assert len(trio.run(values_in, tmp_path / "reader.db")) == 4706
    # Nothing is left to be read again: another poll reads the checkpoints alone, and has nothing to tell.
    result = CliRunner().invoke(root, [*arguments, "--json"])
    (record,) = map(json.loads, result.stdout.splitlines())
    assert (result.exit_code, told(record), [each["complete"] for each in record["publishers"]]) == (0, [], [True, True])
    # If nobody has it, it is asked for until it is there.
    (tmp_path / "bucket" / THEIRS / "1" / "values" / "000").unlink()
    arguments[-1] = str(tmp_path / "other.db")
    for code in (5, 5):
        assert CliRunner().invoke(root, arguments).exit_code == code
    segment.write_bytes(before)
    # The other's tail may come before what it descends from; then the next run takes it.
    assert 0 in [CliRunner().invoke(root, arguments).exit_code for _ in range(2)]
    assert len(trio.run(values_in, tmp_path / "other.db")) == 4706
