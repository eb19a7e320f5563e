"""Damaged files × every command: each ends with a documented exit code, salvage saves what is there, and a healthy peer heals the rest."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import trio
from click.testing import CliRunner
from damage_support import Pages, damage, send_back
from log_support import FILES, SIGNERS, TOPIC, make_history, opened, remove_log

from gossiplog.cli.app import root
from gossiplog.entry import Ed25519Signer, Entry
from gossiplog.log.requests import Quarantined, WriteQuarantine
from gossiplog.plan import ask

COUNT = 240
DEADLINE_S = 60
Damage = Callable[[Path], None]


def noise(name: str, which: int | None = None, *, fill: bytes | None = None, size: int | None = None) -> Damage:
    """Overwrite the root page of a table or an index, or one of its leaf pages."""

    def apply(path: Path) -> None:
        pages = Pages(path)
        page = pages.roots[name] if which is None else pages.leaves(name)[which]
        pages.fill(page, (Random(page).randbytes(pages.size) if fill is None else fill * pages.size)[: size or pages.size])
        pages.write()

    return apply


def overwrite(at: int, data: bytes, suffix: str = "") -> Damage:
    """Overwrite bytes at a place of the file, counted from its end if negative."""

    def apply(path: Path) -> None:
        file = path.with_name(path.name + suffix)
        whole = bytearray(file.read_bytes())
        begin = at if at >= 0 else len(whole) + at
        whole[begin : begin + len(data)] = data
        file.write_bytes(bytes(whole))

    return apply


def cut(share: float, suffix: str = "") -> Damage:
    """Keep this share of the file."""

    def apply(path: Path) -> None:
        file = path.with_name(path.name + suffix)
        whole = file.read_bytes()
        file.write_bytes(whole[: int(len(whole) * share)])

    return apply


def point(name: str, child: int, target: Callable[[Pages], int]) -> Damage:
    """Have the root of a table lead elsewhere."""

    def apply(path: Path) -> None:
        pages = Pages(path)
        pages.point(pages.roots[name], child, target(pages))
        pages.write()

    return apply


def change(*statements: str) -> Damage:
    return lambda path: damage(path, *statements)


TABLES = ("log", "entries", "leaves", "nodes", "heads", "positions", "links", "cursors", "quarantine", "generation")
DAMAGES: dict[str, Damage] = {
    **{f"noise for the root of {name}": noise(f"gossiplog_{name}") for name in (*TABLES, "links_up", "links_to")},
    **{f"noise for leaf {which} of the entries": noise("gossiplog_entries", which) for which in (0, 3, -1)},
    **{f"zeros for leaf {which} of the entries": noise("gossiplog_entries", which, fill=b"\0") for which in (0, 5, -1)},
    **{f"a torn header of leaf {which} of the entries": noise("gossiplog_entries", which, size=12) for which in (1, 8)},
    **{f"noise for leaf {which} of the leaves": noise("gossiplog_leaves", which) for which in (0, 2, -1)},
    "noise for a leaf of the positions": noise("gossiplog_positions", -1),
    "noise for a leaf of the nodes": noise("gossiplog_nodes", -1, fill=b"\xaa"),
    "no magic": overwrite(0, bytes(16)),
    "a letter of the schema": lambda path: path.write_bytes(path.read_bytes().replace(b"seq INTEGER NOT", b"seq INTEGRR NOT", 1)),
    "another page size": overwrite(16, b"\x80\x00"),
    "no page size": overwrite(16, b"\x00\x03"),
    "another owner": overwrite(68, b"\0\0\0\7"),
    "an earlier schema": overwrite(60, b"\0\0\0\0"),
    "noise for the header": overwrite(0, Random(1).randbytes(100)),
    "noise for the first page": overwrite(0, Random(2).randbytes(4096)),
    "zeros for the first page": overwrite(0, bytes(4096)),
    "half a file": cut(0.5),
    "the beginning of a file": cut(0.2),
    "a file that lost some bytes": lambda path: path.write_bytes(path.read_bytes()[:9_000] + path.read_bytes()[9_777:]),
    "a file without its last page": cut(0.99),
    "a page more of nothing": overwrite(10**7, bytes(4096)),
    "the last rows lead back": send_back,
    "the last keys lead back": lambda path: send_back(path, "gossiplog_leaves"),
    "the first rows lead to the root": point("gossiplog_entries", 0, lambda pages: pages.roots["gossiplog_entries"]),
    "rows lead to another table": point("gossiplog_entries", 4, lambda pages: pages.leaves("gossiplog_leaves")[0]),
    "rows lead nowhere": point("gossiplog_entries", 2, lambda pages: pages.count + 99),
    "rows are swapped": point("gossiplog_entries", 2, lambda pages: pages.leaves("gossiplog_entries")[7]),
    "an early row is gone": change("DELETE FROM gossiplog_entries WHERE seq = 3"),
    "a late row is gone": change(f"DELETE FROM gossiplog_entries WHERE seq = {COUNT - 1}"),
    "many rows are gone": change("DELETE FROM gossiplog_entries WHERE seq % 7 = 0"),
    "all rows are gone but one": change("DELETE FROM gossiplog_entries WHERE seq > 1"),
    "an early value is another": change("UPDATE gossiplog_entries SET value = x'00' WHERE seq = 5"),
    "a bit of a value": change("UPDATE gossiplog_entries SET value = CAST(replace(hex(value), 'A', 'B') AS BLOB) WHERE seq = 90"),
    "a value is a text": change("UPDATE gossiplog_entries SET value = CAST(value AS TEXT) WHERE seq = 70"),
    "a value is a number": change("UPDATE gossiplog_entries SET value = 7 WHERE seq = 71"),
    "values changed places": change("UPDATE gossiplog_entries SET seq = -seq WHERE seq < 20"),
    "a row is there twice": change("INSERT INTO gossiplog_entries SELECT seq + 9000, value FROM gossiplog_entries WHERE seq = 50"),
    "no heads": change("DELETE FROM gossiplog_heads"),
    "no tree": change("DELETE FROM gossiplog_nodes"),
    "a wrong root": change("UPDATE gossiplog_nodes SET hash = zeroblob(16) WHERE key = x''"),
    "no leaves": change("DELETE FROM gossiplog_leaves"),
    "keys of other entries": change("UPDATE gossiplog_leaves SET seq = seq + 1 WHERE seq < 40"),
    "no positions": change("DELETE FROM gossiplog_positions"),
    "a log of no topic": change("DELETE FROM gossiplog_log"),
    "a header of the write-ahead log": overwrite(0, Random(3).randbytes(32), "-wal"),
    "a frame of the write-ahead log": overwrite(32 + 24, Random(4).randbytes(4096), "-wal"),
    "a checksum of the write-ahead log": overwrite(32 + 16, bytes(8), "-wal"),
    "half a write-ahead log": cut(0.5, "-wal"),
    "an empty file with a write-ahead log": cut(0),
    "the header of a file with a write-ahead log": cut(0.001),
    "half a file with a write-ahead log": cut(0.5),
    "noise for the header of a file with a write-ahead log": overwrite(0, Random(1).randbytes(100)),
    "a journal of something else": lambda path: path.with_name(path.name + "-journal").write_bytes(Random(5).randbytes(5_000)),
    "an index of nothing": lambda path: path.with_name(path.name + "-shm").write_bytes(Random(6).randbytes(5_000)),
}
FEW = [
    "noise for the root of entries",
    "noise for leaf 3 of the entries",
    "a torn header of leaf 8 of the entries",
    "noise for the first page",
    "the last rows lead back",
    "an early value is another",
    "keys of other entries",
    "a frame of the write-ahead log",
    "the beginning of a file",
    "a file that lost some bytes",
]
READING = [
    ["stat"],
    ["heads"],
    ["log"],
    ["log", "--reverse"],
    ["show", "ID"],
    ["explain", "ID"],
    ["ancestors", "ID"],
    ["graph"],
    ["verify"],
    ["fsck"],
    ["fsck", "--repair", "--dry-run"],
    ["replay"],
    ["export", "-o", "OUT.car"],
    ["copy", "TARGET"],
    ["sync", "--pull", "HEALTHY", "FIRST"],
    ["quarantine", "ls"],
    ["migrate", "--dry-run"],
    ["salvage", "TARGET", "--topic", TOPIC],
]
"""LOG comes after the name; FIRST says that it comes last. None of them changes anything in LOG's folder."""
WRITING = [
    ["append", "7"],
    ["quarantine", "retry"],
    ["fsck", "--repair"],
]


@pytest.fixture(scope="module")
def truth() -> list[Entry]:
    return make_history(Random(8), COUNT)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, truth: list[Entry]) -> Path:
    """A log, of which a part lies in the write-ahead log still, as a crash leaves it."""
    folder = tmp_path_factory.mktemp("whole")

    async def write() -> None:
        held = Quarantined(truth[-1].key, truth[-1].value, "parents", "missing", 0.0)
        half = COUNT * 3 // 4
        async with opened(folder / "app.db") as log:
            await log.insert_many([entry.value for entry in truth[:half]])
            async with log.subscribe(cursor="follower") as events:
                await events.ack(await anext(events))
        async with opened(folder / "app.db") as log:
            await log.insert_many([entry.value for entry in truth[half:-1]])
            await log._store.write(ask(WriteQuarantine([held], [])))
            for suffix in ("", "-wal"):
                (folder / f"crashed.db{suffix}").write_bytes((folder / f"app.db{suffix}").read_bytes())
        async with opened(folder / "healthy.db") as healthy:
            await healthy.insert_many([entry.value for entry in truth[:-1]])

    trio.run(write)
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Path) -> Path:
    """A folder with a keyring and a healthy replica."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOSSIPLOG_KEY_DIR", str(tmp_path / "keys"))
    (tmp_path / "keys").mkdir(mode=0o700)
    Ed25519Signer.from_seed(b"\x01" * 32).save(tmp_path / "keys" / "alice.pem")
    (tmp_path / "healthy.db").write_bytes((whole / "healthy.db").read_bytes())
    return tmp_path


class Damaged:
    """Makes the damaged file anew for each command, and runs commands on it."""

    def __init__(self, place: Path, whole: Path, name: str) -> None:
        self.name = name
        self.path = place / "bad.db"
        self._place = place
        source = whole / ("crashed.db" if "write-ahead" in name else "app.db")
        remove_log(self.path)
        for suffix in FILES:
            if (file := source.with_name(source.name + suffix)).exists() and suffix != "-lock":
                self.path.with_name(self.path.name + suffix).write_bytes(file.read_bytes())
        DAMAGES[name](self.path)
        self.lay = self.lies()
        self._files = {suffix: file.read_bytes() for suffix in FILES if (file := self._file(suffix)).exists()}

    def _file(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def renew(self) -> None:
        remove_log(self.path)
        for suffix, data in self._files.items():
            self._file(suffix).write_bytes(data)

    def lies(self) -> dict[str, bytes]:
        """What lies at the log's path and beside it."""
        return {file.name: file.read_bytes() for file in self._place.glob(f"{self.path.name}*")}

    def bytes(self) -> bytes:
        return b"".join(self._files.values())

    def run(self, *arguments: str, codes: tuple[int, ...] = (0, 1, 3, 5)) -> str:
        began = time.monotonic()
        ran = CliRunner().invoke(root, list(arguments), prog_name="gossiplog")
        said = f"{self.name}: {' '.join(arguments)}: {ran.exit_code}\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}"
        assert ran.exit_code in codes, said
        assert "Traceback" not in ran.stderr and "fault of gossiplog" not in ran.stderr, said
        # 1 is also what `quarantine retry` leaves with where something stays there.
        assert ran.exit_code in (0, 3) or "error:" in ran.stderr or arguments[1] == "retry", said
        assert time.monotonic() - began < DEADLINE_S, said
        return ran.stdout


def check_commands(damaged: Damaged, entry_id: str) -> None:
    """Every command, each on the file as it was damaged; those that read leave the folder as it was."""
    for command in READING + WRITING:
        damaged.renew()
        run_one(damaged, entry_id, command)
        if command in READING:
            assert damaged.lies() == damaged.lay, (damaged.name, command)


def run_one(damaged: Damaged, entry_id: str, command: list[str]) -> None:
    name, *rest = command
    places = {"ID": entry_id, "OUT.car": "out.car", "TARGET": "target.db", "HEALTHY": "healthy.db"}
    rest = [places.get(word, word) for word in rest]
    if rest[-1:] == ["FIRST"]:
        arguments = [name, *rest[:-1], str(damaged.path)]
    elif name == "quarantine":
        arguments = [name, *rest, str(damaged.path)]
    else:
        arguments = [name, str(damaged.path), *rest]
    damaged.run(*arguments)
    remove_log(damaged.path.with_name("target.db"))


@pytest.mark.parametrize("name", DAMAGES)
def test_reading_a_damaged_file_leaves_its_folder_as_it_was(place, whole, truth, name) -> None:
    damaged = Damaged(place, whole, name)
    for command in (["stat"], ["log", "--limit", "1"]):
        damaged.renew()
        run_one(damaged, truth[100].id, command)
        assert damaged.lies() == damaged.lay, command


def check_salvage(damaged: Damaged, truth: list[Entry]) -> None:
    """Salvage saves every entry whose bytes are in the file, and proves itself."""
    damaged.renew()
    target = damaged.path.with_name("saved.db")
    remove_log(target)
    there = damaged.bytes()
    readable = {entry.key for entry in truth if entry.value in there}
    report = json.loads(damaged.run("salvage", str(damaged.path), str(target), "--json", "--topic", TOPIC, codes=(0, 3)))

    async def look() -> tuple[set[bytes], set[bytes]]:
        async with opened(target, topic=TOPIC) as log:
            assert (await log.fsck()).is_clean
            return {entry.key async for entry in log.iterate()}, {record.key async for record in log.quarantine()}

    kept, waiting = trio.run(look)
    assert readable <= kept | waiting, (damaged.name, len(readable), len(kept), len(waiting))
    assert report["clean"] and report["entries"] == len(kept)
    # Whatever is not there was told of, as far as anything in the file still knows of it.
    if len(kept) == COUNT:
        assert report["missing"] == [] and report["waiting"] == 0
    assert {path.read_bytes() for path in [damaged.path]} == {damaged._files[""]}


def check_heal(damaged: Damaged, truth: list[Entry]) -> None:
    """A healthy peer makes the roots equal and fsck clean, and nothing that was damaged is thrown away."""
    damaged.renew()
    report = json.loads(damaged.run("sync", "--heal", str(damaged.path), "healthy.db", "--json", codes=(0,)))
    assert report["equal"] and report["healed"]["clean"], report
    damaged.run("fsck", str(damaged.path), codes=(0,))

    async def look() -> set[bytes]:
        async with opened(damaged.path) as log:
            return {entry.key async for entry in log.iterate()}

    assert trio.run(look) >= {entry.key for entry in truth[:-1]}
    if report["healed"]["damagedFile"]:
        assert Path(report["healed"]["damagedFile"]).read_bytes()[:4096] == damaged._files[""][:4096]


@pytest.mark.parametrize("name", FEW)
def test_a_damaged_file_is_salvaged_and_healed(place, whole, truth, name) -> None:
    damaged = Damaged(place, whole, name)
    check_salvage(damaged, truth)
    check_heal(damaged, truth)


def test_every_command_ends_on_a_damaged_file(place, whole, truth) -> None:
    check_commands(Damaged(place, whole, "the last rows lead back"), truth[100].id)


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGES)
def test_any_damaged_file_ends_every_command_and_is_salvaged_and_healed(place, whole, truth, name) -> None:
    damaged = Damaged(place, whole, name)
    check_commands(damaged, truth[100].id)
    check_salvage(damaged, truth)
    check_heal(damaged, truth)


def test_there_are_enough_kinds_of_damage() -> None:
    assert len(DAMAGES) >= 56 and set(FEW) <= set(DAMAGES) and SIGNERS
