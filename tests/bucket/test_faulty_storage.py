"""Storage that answers 503, lists late, loses a write or lags behind; and several who write or read at once."""

import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

import pytest
import trio
from log_support import SIGNERS, TOPIC, make

import gossiplog
from gossiplog.bucket import exchange, publish, take
from gossiplog.bucket.folder import Folder
from gossiplog.bucket.kept import Kept, TakenState
from gossiplog.entry import Ed25519Signer, SignatureScheme, ed25519, register_scheme
from gossiplog.errors import BucketError
from gossiplog.gossip_log import GossipLog
from gossiplog.tlog.note import Checkpoint, Origin, publisher_of

OURS, THEIRS = publisher_of(SIGNERS[0]), publisher_of(SIGNERS[1])


_SWAPPING = trio.Lock()


class Faulty(Folder):
    """Storage without locks, and with faults: calls fail, listings and objects are those of some time ago, writes are lost."""

    has_locks = False

    def __init__(self, root: Path, seed: int, *, fails: float = 0.0, lags: float = 0.0, loses: float = 0.0) -> None:
        super().__init__(root)
        self.random = Random(seed)
        self.fails, self.lags, self.loses = fails, lags, loses
        self.before: dict[str, tuple[bytes, int] | None] = {}
        self.listed: dict[str, tuple[list[str], list[str]]] = {}

    def _fail(self, path: str) -> None:
        if self.random.random() < self.fails:
            raise BucketError(f"{self.url}/{path}: 503 Slow Down")

    async def read(self, path: str, offset: int, length: int) -> tuple[bytes, int] | None:
        self._fail(path)
        now = await super().read(path, offset, length)
        key = f"{path} {offset} {length}"
        found = self.before.get(key) if key in self.before and self.random.random() < self.lags else now
        self.before[key] = now
        return found

    async def write(self, path: str, data: bytes) -> None:
        self._fail(path)
        if self.random.random() >= self.loses:
            await super().write(path, data)

    async def swap(self, path: str, data: bytes, expected: bytes | None) -> bool:
        self._fail(path)
        async with _SWAPPING:
            return await super().swap(path, data, expected)

    @asynccontextmanager
    async def lock(self, publisher: str) -> AsyncIterator[None]:
        (self.root / publisher / "drafts").mkdir(parents=True, exist_ok=True)
        yield

    async def list(self, path: str) -> tuple[list[str], list[str]]:
        self._fail(path)
        now = await super().list(path)
        found = self.listed.get(path, ([], [])) if self.random.random() < self.lags else now
        self.listed[path] = now
        return found

    async def remove(self, paths: Sequence[str]) -> None:
        self._fail(paths[0])
        await super().remove(paths)


async def again_and_again(action: object, tries: int = 200) -> None:
    """Do what may fail until it does not."""
    for _ in range(tries):
        try:
            return await action()  # type: ignore[operator, no-any-return]
        except BucketError:
            continue
    raise AssertionError("it never came through")


@pytest.mark.parametrize("seed", range(2))
async def test_two_writers_converge_through_storage_that_fails_and_lags(bucket: Path, tmp_path: Path, seed: int) -> None:
    async with (
        gossiplog.open(tmp_path / "a.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as one,
        gossiplog.open(tmp_path / "b.db", topic=TOPIC, signer=SIGNERS[1], durability="off") as other,
    ):
        places = [Faulty(bucket, 2 * seed + n, fails=0.1, lags=0.3) for n in range(2)]
        for turn in range(4):
            for log, signer, storage in zip((one, other), SIGNERS, places, strict=False):
                await log.append_many([{"turn": turn, "n": n} for n in range(90)])

                async def both(log: GossipLog = log, signer: Ed25519Signer = signer, storage: Faulty = storage) -> None:
                    await exchange(log, storage, signer)

                await again_and_again(both)
        for _ in range(3):
            for log in (one, other):
                taken = (await log.sync(bucket)).taken
                assert [fault for fault in taken.faults if fault.kind not in ("missing", "rolled-back", "unreadable")] == []
        assert await one.root() == await other.root()
        assert await one.count() == 720
    async with gossiplog.open(":memory:", topic=TOPIC) as reader:
        assert (await reader.sync(bucket)).taken.faults == []
        assert await reader.count() == 720


async def test_a_write_that_was_lost_is_named_and_mended(log: GossipLog, bucket: Path) -> None:
    for seed in range(4):
        place = bucket / str(seed)
        await publish(log, Faulty(place, seed, loses=0.3), SIGNERS[0])
        async with gossiplog.open(":memory:", topic=TOPIC) as reader:
            taken = (await reader.sync(place)).taken
            assert all(fault.kind == "missing" and str(place) in fault.reason for fault in taken.faults)
            assert await reader.count() == 700 or taken.faults
            await log.publish(place, again=True)
            assert (await reader.sync(place)).taken.faults == []
            assert await reader.count() == 700


async def test_a_publisher_that_is_listed_late_comes_with_the_next_poll(log: GossipLog, bucket: Path) -> None:
    late = Faulty(bucket, 1, lags=1.0)
    async with gossiplog.open(":memory:", topic=TOPIC) as reader:
        await log.publish(bucket)
        taken = await take(reader, late)
        assert (taken.publishers, taken.faults) == ([], [])
        assert (await take(reader, late)).entries == 700


async def test_a_publisher_whose_reads_lag_signs_nothing_that_contradicts_itself(log: GossipLog, bucket: Path) -> None:
    storage = Faulty(bucket, 5, lags=0.7)
    for n in range(12):
        await log.append({"n": n})

        async def once() -> None:
            await publish(log, storage, SIGNERS[0])

        await again_and_again(once)
    signed = Kept.beside(log).signed(OURS)
    assert signed is not None
    assert len({step.checkpoint.size for step in signed.steps}) == len(signed.steps)
    async with gossiplog.open(":memory:", topic=TOPIC) as reader:
        assert (await reader.sync(bucket)).taken.faults == []
        assert await reader.count() == 712


class Busy(SimpleHTTPRequestHandler):
    """Files, and now and then 503."""

    random = Random(3)

    def do_GET(self) -> None:
        if self.random.random() < 0.4:
            self.send_response(503)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        start, _, end = (self.headers.get("range") or "bytes=0-").removeprefix("bytes=").partition("-")
        try:
            data = Path(self.translate_path(self.path)).read_bytes()
        except OSError:
            self.send_error(404)
            return
        part = data[int(start) : int(end) + 1 if end else None]
        self.send_response(206)
        self.send_header("content-length", str(len(part)))
        self.send_header("content-range", f"bytes {start}-{int(start) + len(part) - 1}/{len(data)}")
        self.send_header("last-modified", "Tue, 24 Nov 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


class Plain(SimpleHTTPRequestHandler):
    """Python's own web server, which knows nothing of ranges."""

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path, handler: type[SimpleHTTPRequestHandler]) -> Iterator[str]:
    folder.mkdir(exist_ok=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def busy_web(bucket: Path) -> Iterator[str]:
    with served(bucket, Busy) as url:
        yield url


@pytest.fixture
def plain_web(bucket: Path) -> Iterator[str]:
    with served(bucket, Plain) as url:
        yield url


async def test_a_web_server_without_ranges_is_read_and_proved_from(log: GossipLog, bucket: Path, plain_web: str) -> None:
    await log.publish(bucket)
    async with gossiplog.open(":memory:", topic=TOPIC) as reader:
        taken = (await reader.sync(f"{plain_web}/{OURS}")).taken
        assert (taken.faults, await reader.count()) == ([], 700)
        await log.append_many([{"n": n} for n in range(700, 800)])
        await log.publish(bucket)
        assert (await reader.sync(f"{plain_web}/{OURS}")).taken.entries == 100
        assert len(await reader.prove((await reader.heads())[0], f"{plain_web}/{OURS}")) > 300
        (bucket / OURS / "head").write_bytes(bytes(10_000_000))
        with pytest.raises(BucketError, match="10,000,000 bytes"):
            await reader.prove((await reader.heads())[0], f"{plain_web}/{OURS}")


async def test_from_behind_a_web_server_a_log_only_takes(log: GossipLog, bucket: Path, plain_web: str) -> None:
    await log.publish(bucket)
    url = f"{plain_web}/{OURS}"
    async with gossiplog.open(":memory:", topic=TOPIC, signer=SIGNERS[1]) as reader:
        done = await reader.sync(url)
        assert (done.taken.entries, done.published) == (700, None)
        await log.append("more")
        await log.publish(bucket)
        for publishes in (reader.sync(url, signer=SIGNERS[1]), reader.publish(url)):
            with pytest.raises(BucketError, match="not written to"):
                await publishes
        with pytest.raises(BucketError, match="not written to"):
            async with reader.keep_synced(url):
                pytest.fail("nothing can be published there")
        assert await reader.count() == 700, "what cannot be done whole is not begun"


async def test_a_web_server_that_answers_503_is_asked_again(log: GossipLog, bucket: Path, busy_web: str) -> None:
    await log.publish(bucket)
    async with gossiplog.open(":memory:", topic=TOPIC) as reader:
        taken = (await reader.sync(f"{busy_web}/{OURS}")).taken
        assert (taken.faults, await reader.count()) == ([], 700)


async def test_of_two_logs_of_one_key_without_locks_the_first_one_writes(log: GossipLog, bucket: Path, tmp_path: Path) -> None:
    storage = Faulty(bucket, 1)
    await publish(log, storage, SIGNERS[0])
    async with gossiplog.open(tmp_path / "other.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as other:
        await other.append_many([{"other": n} for n in range(900)])
        before = {path: path.read_bytes() for path in bucket.rglob("*") if path.is_file()}
        with pytest.raises(BucketError, match="another log"):
            await publish(other, storage, SIGNERS[0])
        assert before == {path: path.read_bytes() for path in bucket.rglob("*") if path.is_file()}
    await log.append("more")
    assert (await publish(log, storage, SIGNERS[0])).size == 701


async def test_two_logs_of_one_key_that_start_at_once_without_locks(bucket: Path, tmp_path: Path) -> None:
    for seed in range(6):
        outcomes: list[str] = []
        place = bucket / str(seed)
        async with (
            gossiplog.open(tmp_path / f"a{seed}.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as one,
            gossiplog.open(tmp_path / f"b{seed}.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as other,
        ):

            async def start(log: GossipLog, name: str, place: Path = place, seed: int = seed, outcomes: list[str] = outcomes) -> None:
                await log.append_many([{name: n} for n in range(300)])
                try:
                    await publish(log, Faulty(place, seed), SIGNERS[0])
                    outcomes.append(name)
                except BucketError as error:
                    assert "another log" in str(error) or "changed by another" in str(error)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(start, one, "one")
                nursery.start_soon(start, other, "other")
            assert len(outcomes) == 1
            async with gossiplog.open(":memory:", topic=TOPIC) as reader:
                assert (await reader.sync(place)).taken.faults == []
                assert await reader.root() == await (one if outcomes == ["one"] else other).root()


async def test_one_log_that_is_published_twice_at_once_without_locks(log: GossipLog, bucket: Path) -> None:
    async def start(seed: int) -> None:
        try:
            await publish(log, Faulty(bucket, seed), SIGNERS[0])
        except BucketError as error:
            assert "changed by another publisher" in str(error)
            assert error.hint == "run it again"

    for turn in range(5):
        await log.append({"turn": turn})
        async with trio.open_nursery() as nursery:
            for seed in range(3):
                nursery.start_soon(start, seed)
    await publish(log, Faulty(bucket, 9), SIGNERS[0])
    async with gossiplog.open(":memory:", topic=TOPIC) as reader:
        assert (await reader.sync(bucket)).taken.faults == []
        assert await reader.root() == await log.root()


async def test_what_is_kept_beside_a_log_was_lost_and_again_takes_the_place_over(log: GossipLog, bucket: Path) -> None:
    storage = Faulty(bucket, 1)
    await publish(log, storage, SIGNERS[0])
    (bucket / OURS / "owner").write_text("somebody else's")
    kept = Kept.beside(log)
    assert kept.folder is not None
    (kept.folder / f"signed-{OURS}.json").unlink()
    with pytest.raises(BucketError, match="another log writes") as refused:
        await publish(log, storage, SIGNERS[0])
    assert "--again" in str(refused.value.hint)
    assert (await publish(log, storage, SIGNERS[0], again=True)).size == 700
    await log.append("more")
    assert (await publish(log, storage, SIGNERS[0])).size == 701


async def test_entries_of_a_scheme_that_is_accepted_later_are_asked_for_again(bucket: Path, tmp_path: Path) -> None:
    scheme = SignatureScheme("later", 0x3F01, ed25519.verify_signed, ed25519.SIGNATURE_BYTES)
    register_scheme(scheme)
    from gossiplog.codec.did import encode_did

    class Later:
        codec = "dag-cbor"
        did = encode_did(0x3F01, SIGNERS[2].public_key)

        def sign(self, data: bytes) -> bytes:
            return SIGNERS[2].sign(data)

    both = frozenset({"ed25519", "later"})
    async with gossiplog.open(tmp_path / "a.db", topic=TOPIC, signer=SIGNERS[0], durability="off", schemes=both) as log:
        await log.insert_many([make(n).value for n in range(4_200)])
        theirs = await log.append("of a scheme that few know", signer=Later())
        await log.append_many([{"after": n} for n in range(100)])
        await log.publish(bucket)
    location = tmp_path / "reader.db"
    async with gossiplog.open(location, topic=TOPIC, durability="off") as reader:
        (taken,) = (await reader.sync(bucket)).taken.publishers
        left_out = taken.left_out
        assert 1 < left_out == 4_301 - await reader.count(), "it and what descends from it"
        (taken,) = (await reader.sync(bucket)).taken.publishers
        assert (taken.left_out, taken.known) == (0, 0), "a poll asks for nothing again"
    async with gossiplog.open(location, topic=TOPIC, durability="off", schemes=both) as reader:
        (taken,) = (await reader.sync(bucket)).taken.publishers
        assert (taken.left_out, taken.entries, await reader.count()) == (0, left_out, 4_301)
        assert taken.known <= 4_096, "from that segment on, and not from the beginning"
        assert await reader.has(theirs.id)
        (taken,) = (await reader.sync(bucket)).taken.publishers
        assert (taken.entries, taken.known) == (0, 0)


async def test_publishers_are_read_at_once_and_what_several_have_is_verified_once(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [make(n) for n in range(300)]
    for number, signer in enumerate(SIGNERS[:3]):
        async with gossiplog.open(tmp_path / f"{number}.db", topic=TOPIC, signer=signer, durability="off") as log:
            await log.insert_many([entry.value for entry in entries])
            await log.append({"own": number})
            await log.publish(bucket)
    reading, most, told = 0, 0, list[tuple[int, int]]()

    class Counting(Folder):
        async def read(self, path: str, offset: int, length: int) -> tuple[bytes, int] | None:
            nonlocal reading, most
            reading += 1
            most = max(most, reading)
            try:
                return await super().read(path, offset, length)
            finally:
                reading -= 1

    async with gossiplog.open(":memory:", topic=TOPIC) as reader:
        verified = 0
        insert_many = reader.insert_many

        async def count(values: Sequence[bytes]) -> object:
            nonlocal verified
            verified += len(values)
            return await insert_many(values)

        monkeypatch.setattr(reader, "insert_many", count)
        report = await take(reader, Counting(bucket), on_progress=lambda at, size: told.append((at, size)))
        assert [each.publisher for each in report.publishers] == sorted(each.publisher for each in report.publishers)
        assert (report.entries, verified, report.faults) == (303, 303, [])
        assert told[-1] == (903, 903)
        assert most >= 2


class Reads(Folder):
    """Notes what is read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.paths: list[str] = []

    async def read(self, path: str, offset: int, length: int) -> tuple[bytes, int] | None:
        self.paths.append(path.removeprefix(f"{OURS}/1/"))
        return await super().read(path, offset, length)

    def segments(self) -> list[str]:
        """Return the segments read since the last call."""
        found, self.paths = sorted({path for path in self.paths if path.startswith("values/")}), []
        return found


async def test_only_the_segments_with_holes_and_what_is_new_are_read_again(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, values = Reads(bucket), bucket / OURS / "1" / "values"
    async with gossiplog.open(tmp_path / "a.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
        await log.append_many([{"n": n} for n in range(4 * 4096 + 700)])
        await log.publish(bucket)
        lost = {name: (values / name).read_bytes() for name in ("001", "003")}
        for name in lost:
            (values / name).unlink()
        async with gossiplog.open(tmp_path / "reader.db", topic=TOPIC, durability="off") as reader:
            (taken,) = (await take(reader, storage)).publishers
            assert storage.segments() == ["values/000", "values/001", "values/002", "values/003", "values/004.p/700"]
            assert [fault.kind for fault in taken.faults] == ["missing", "missing"]
            for _ in range(2):
                (taken,) = (await take(reader, storage)).publishers
                assert storage.segments() == ["values/001", "values/003"], "an idle poll reads nothing else"
                assert [fault.kind for fault in taken.faults] == ["missing", "missing"], "and names both each time"
                assert not taken.is_complete
            await log.append("more")
            await log.publish(bucket)
            (taken,) = (await take(reader, storage)).publishers
            assert "values/002" not in storage.segments()
        async with gossiplog.open(":memory:", topic=TOPIC) as reader:
            with monkeypatch.context() as patch:
                patch.setattr("gossiplog.bucket.kept._HOLES_MAX", 1)
                await take(reader, storage)
                storage.segments()
                await take(reader, storage)
                assert storage.segments() == ["values/001", "values/003", "values/004.p/701"], "from the second hole on everything"
        (values / "003").write_bytes(lost["003"])
        async with gossiplog.open(tmp_path / "reader.db", topic=TOPIC, durability="off") as reader:
            (taken,) = (await take(reader, storage)).publishers
            assert "values/002" not in storage.segments(), "also after a restart"
            assert (len(taken.faults), taken.entries) == (1, 0), "what comes after a hole descends from it"
            (values / "001").write_bytes(lost["001"])
            (taken,) = (await take(reader, storage)).publishers
            assert (taken.faults, taken.is_complete, await reader.count()) == ([], True, await log.count())
            storage.segments()
            await take(reader, storage)
            assert storage.segments() == []


def test_beyond_64_holes_everything_is_read_again() -> None:
    state = TakenState(Checkpoint(Origin(TOPIC, OURS, 1), 100 * 4096 + 5, bytes(32)), 0)
    state.advance(90 * 4096, range(3, 67))
    assert (state.taken, len(state.holes)) == (90 * 4096, 64)
    state.advance(91 * 4096, [80])
    assert (state.taken, len(state.holes)) == (80 * 4096, 64)
    assert [part.start for part in state.unread] == [*range(3 * 4096, 67 * 4096, 4096), 80 * 4096]
    state.go_back(3 * 4096 + 7)
    assert (state.taken, state.holes) == (3 * 4096 + 7, [3])
    state.advance(state.checkpoint.size, [100])
    assert (state.taken, state.holes) == (100 * 4096, [3]), "a tail with a hole is read again when it has grown"
    assert not state.is_complete
    state.taken, state.holes = state.checkpoint.size, ()
    assert state.is_complete
