"""Scans without Spark: how a log and files are cut into parts, what each part reads, and what becomes of rows that hold no entry."""

import contextlib
import gzip
import json
import pickle
import sqlite3
from pathlib import Path

import pytest
from log_support import SIGNERS, make
from spark_support import Foreign, Log, write_car, write_log

from gossiplog.archive import entry_to_line
from gossiplog.arrow.columns import COLUMNS, Page, SourceRow, paged, to_batches
from gossiplog.arrow.payload import flat_items, joined, payload_text
from gossiplog.codec import dag_json, pcf
from gossiplog.entry import Entry, encode_id
from gossiplog.entry.envelope import build_value, parse_envelope, skim, skim_key
from gossiplog.entry.message_id import message_key
from gossiplog.entry.rules import CLOCK_MAX
from gossiplog.errors import DecodeError, LocalProtocolError
from gossiplog.spark.source.archive_scan import ArchiveScan
from gossiplog.spark.source.places import scan_of
from gossiplog.spark.source.run_plan import last_seq
from gossiplog.spark.source.scan import Scan, Selection, selection_of
from gossiplog.spark.source.store_scan import SeqRange, StoreScan
from gossiplog.tree import leaf_hash

COUNTS = (1, 2, 7, 200)


def read(scan: Scan, count: int = 1) -> list[SourceRow]:
    """Everything that a scan reads in so many parts, each of which went to another process and back."""
    return [row for part in scan.parts(count) for page in scan.read(pickle.loads(pickle.dumps(part))) for row in page.rows()]


@pytest.mark.parametrize("count", COUNTS)
def test_log_is_read_in_the_order_of_keys_whatever_the_parts(whole: Log, count: int) -> None:
    rows = read(StoreScan(whole.path, Selection()), count)
    assert [row.key for row in rows] == sorted(whole.by_key)
    assert all(row.value == whole.by_key[row.key or b""].value and row.fault is None for row in rows)
    assert sorted(row.seq or 0 for row in rows) == list(range(1, 401))


@pytest.mark.parametrize("is_damaged", [False, True])
def test_large_values_come_in_small_pages_and_none_is_lost(tmp_path: Path, is_damaged: bool) -> None:
    log = write_log(tmp_path / "large.db", [make({"number": number, "data": bytes(1_000_000)}) for number in range(40)])
    lost = []
    if is_damaged:
        with contextlib.closing(sqlite3.connect(log.path)) as database, database:
            lost = [30]
            database.execute("UPDATE gossiplog_entries SET value = 'a text' WHERE seq = 30")
    scan = StoreScan(log.path, Selection())
    for part in [*scan.parts(1), SeqRange(0, 40)]:
        pages = list(scan.read(part))
        rows = [row for page in pages for row in page.rows()]
        assert sorted(row.seq or 0 for row in rows) == list(range(1, 41))
        assert [row.seq for row in rows if row.value is None] == lost
        assert max(sum(len(value or b"") for value in page.values) for page in pages) < 10_000_000


def test_log_is_cut_into_even_parts(whole: Log) -> None:
    scan = StoreScan(whole.path, Selection())
    sizes = [sum(len(page.keys) for page in scan.read(part)) for part in scan.parts(5)]
    assert len(sizes) == 5
    assert min(sizes) > 400 / 5 / 4


OPTIONS = (
    {"minClock": "20"},
    {"maxClock": "20"},
    {"minClock": "30", "maxClock": "31"},
    {"minClock": "200"},
    {"minSeq": "390"},
    {"maxSeq": "10"},
    {"minSeq": "11", "maxSeq": "11"},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_choose_the_entries_that_they_say(whole: Log, options: dict[str, str]) -> None:
    everything = read(StoreScan(whole.path, Selection()))
    clocks = range(int(options.get("minClock", 0)), int(options.get("maxClock", 10**9)) + 1)
    seqs = range(int(options.get("minSeq", 1)), int(options.get("maxSeq", 10**9)) + 1)
    wanted = [row for row in everything if row.seq in seqs and Entry(row.key or b"", b"").clock in clocks]
    for count in (1, 7):
        found = read(StoreScan(whole.path, selection_of(options)), count)
        # What is new since an insertion number comes in the order of these.
        assert (sorted(found, key=lambda row: row.key or b"") if "minSeq" in options else found) == wanted


def test_ids_bound_a_scan_as_a_range_on_the_command_line_does(whole: Log, tmp_path: Path) -> None:
    keys = sorted(whole.by_key)
    options = {"from": encode_id(keys[100]), "to": encode_id(keys[200])}
    assert [row.key for row in read(StoreScan(whole.path, selection_of(options)), 3)] == keys[101:201]
    path = tmp_path / "all.jsonl"
    path.write_bytes(b"".join(entry_to_line(entry) + b"\n" for entry in whole.entries))
    assert sorted(row.key or b"" for row in read(ArchiveScan(str(path), selection_of(options)))) == keys[101:201]


def test_single_ids_are_looked_up(whole: Log) -> None:
    keys = sorted(whole.by_key)[5:300:7]
    ids = ",".join([*map(encode_id, keys), "0" * 32])
    assert [row.key for row in read(StoreScan(whole.path, selection_of({"ids": ids})), 4)] == keys


@pytest.mark.parametrize(
    "options", [{"minClock": "-1"}, {"minClock": "x"}, {"from": "0"}, {"ids": "zz"}, {"maxSeq": "1e3"}, {"minSeq": "²"}]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(LocalProtocolError, match=next(iter(options))):
        selection_of(options)


def test_a_file_may_not_expand_to_a_size_that_is_no_number(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    for size in ("x", "0", "1.5"):
        with pytest.raises(LocalProtocolError, match="option maxBytes"):
            scan_of(str(tmp_path / "a.jsonl"), {"maxBytes": size})


@pytest.mark.parametrize("count", COUNTS)
def test_damaged_rows_of_a_log_are_faults_and_none_is_lost(damaged: Log, count: int) -> None:
    rows = read(StoreScan(damaged.path, Selection()), count)
    faults = {row.place: row.fault for row in rows if row.value is None}
    assert len(rows) == 400
    assert set(faults) == {"seq 30", "seq 40", "leaf 'a text for a key'"}
    assert faults["seq 30"] == "VALUE is not bytes"
    assert "missing" in (faults["seq 40"] or "")
    assert next(row for row in rows if row.seq == 20).value == b"\xff\0"


def test_tail_is_read_in_the_order_of_insertion(whole: Log) -> None:
    assert last_seq(whole.path, None) == 400
    rows = [row for page in StoreScan(whole.path, Selection()).read(SeqRange(10, 390)) for row in page.rows()]
    assert [row.seq for row in rows] == list(range(11, 391))
    assert [Entry.stored(row.value or b"").key for row in rows[:2]] == [entry.key for entry in whole.entries[10:12]]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", ["e.jsonl", "e.car", "e.hex", "e.jsonl.gz", "e.car.gz"])
def test_files_hold_the_same_entries_whatever_the_parts(
    whole: Log, tmp_path: Path, name: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossiplog.spark.source.archive_scan._PART_BYTES_MIN", 300)
    path = tmp_path / name.removesuffix(".gz")
    if ".jsonl" in name:
        path.write_bytes(b"".join(entry_to_line(entry) + b"\n" for entry in whole.entries))
    elif ".hex" in name:
        path.write_text("".join(entry.value.hex() + "\n" for entry in whole.entries))
    else:
        write_car(path, whole.entries)
    if name.endswith(".gz"):
        path = Path(f"{path}.gz")
        path.write_bytes(gzip.compress((tmp_path / path.stem).read_bytes()))
    rows = read(ArchiveScan(str(path), Selection()), count)
    assert [row.value for row in rows] == [entry.value for entry in whole.entries]
    assert all((row.place or "").startswith(path.name) and row.fault is None for row in rows)


@pytest.mark.parametrize("count", COUNTS)
def test_lines_that_are_no_entries_are_faults_with_what_stands_there(foreign: Foreign, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossiplog.spark.source.archive_scan._PART_BYTES_MIN", 100)
    rows = read(ArchiveScan(foreign.path, Selection()), count)
    assert len(rows) == len(foreign.rules)
    faults = [row for row in rows if row.fault is not None]
    assert [row.source for row in faults] == [b"{not json", b"\xff\xfe\x00"]
    start = Path(foreign.path).read_bytes().index(b"{not json")
    assert faults[0].place == f"foreign.jsonl: byte {start}"


def test_damage_in_a_car_file_is_found(whole: Log, tmp_path: Path) -> None:
    path = write_car(tmp_path / "e.car", whole.entries)
    data = bytearray(path.read_bytes())
    at = data.index(whole.entries[123].value) + 50
    data[at] ^= 1
    path.write_bytes(data)
    for count in COUNTS:
        rows = read(ArchiveScan(str(path), Selection()), count)
        (fault,) = [row for row in rows if row.fault is not None]
        assert len(rows) == 400
        assert "does not hash" in (fault.fault or "")
    path.write_bytes(data[:-10])
    for count in COUNTS:
        faults = [row.fault or "" for row in read(ArchiveScan(str(path), Selection()), count) if row.fault is not None]
        assert any("ends inside" in fault for fault in faults)
        assert any("root" in fault for fault in faults)


def test_garbage_instead_of_a_length_ends_a_car_file_with_a_fault(whole: Log, tmp_path: Path) -> None:
    path = write_car(tmp_path / "e.car", whole.entries[:10])
    path.write_bytes(path.read_bytes() + b"\x01garbage")
    rows = read(ArchiveScan(str(path), Selection()), 3)
    assert [row.value for row in rows[:10]] == [entry.value for entry in whole.entries[:10]]
    assert ["makes no sense" in (row.fault or "") for row in rows[10:]] == [True]


def test_compressed_file_that_is_damaged_is_a_fault(whole: Log, tmp_path: Path) -> None:
    data = gzip.compress(b"".join(entry_to_line(entry) + b"\n" for entry in whole.entries))
    (tmp_path / "cut.jsonl.gz").write_bytes(data[: len(data) // 2])
    rows = read(ArchiveScan(str(tmp_path / "cut.jsonl.gz"), Selection()), 3)
    assert [row.fault is None for row in rows] == [True] * (len(rows) - 1) + [False]
    (tmp_path / "cut.jsonl.gz").write_bytes(b"\x1f\x8b garbage")
    assert [row.value for row in read(ArchiveScan(str(tmp_path / "cut.jsonl.gz"), Selection()))] == [None]


def test_folders_and_patterns_name_several_files(whole: Log, tmp_path: Path) -> None:
    for number in range(3):
        part = whole.entries[number::3]
        (tmp_path / f"{number}.jsonl").write_bytes(b"".join(entry_to_line(entry) + b"\n" for entry in part))
    (tmp_path / "readme.txt").write_text("no entries")
    expected = sorted(entry.value for entry in whole.entries)
    assert sorted(row.value or b"" for row in read(ArchiveScan(str(tmp_path), Selection()))) == expected
    assert sorted(row.value or b"" for row in read(ArchiveScan(f"{tmp_path}/*.jsonl", Selection()))) == expected
    with pytest.raises(LocalProtocolError, match="no file of entries"):
        ArchiveScan(f"{tmp_path}/*.car", Selection()).parts(1)


def test_batches_have_exactly_the_columns_asked_for(whole: Log) -> None:
    rows = read(StoreScan(whole.path, Selection()))
    (batch,) = to_batches(paged(rows), list(COLUMNS))
    table = batch.to_pydict()
    assert list(table) == list(COLUMNS)
    for at, row in enumerate(rows):
        entry = whole.by_key[row.key or b""]
        assert table["id"][at] == entry.id
        assert table["clock"][at] == entry.clock
        assert table["topic"][at] == entry.topic
        assert table["author"][at] == entry.signature.public_key
        assert table["codec"][at] == entry.signature.codec
        assert table["signature"][at] == entry.signature.signature
        assert tuple(table["parents"][at]) == entry.message.parents
        assert tuple(table["parent_keys"][at]) == entry.parent_keys
        assert table["payload"][at] == dag_json.encode(entry.message.payload).decode()
        assert table["hash"][at] == leaf_hash(entry.key, entry.value)
        assert table["bytes"][at] == len(entry.value)
        assert table["value"][at] == entry.value
    for name in COLUMNS:
        assert next(to_batches(paged(rows), [name])).to_pydict() == {name: table[name]}


def test_payloads_come_out_as_dag_json_writes_them() -> None:
    vectors = json.loads((Path(__file__).parents[1] / "vectors" / "dag-json.json").read_text())
    numbers = [0.5, 1e21, 1e-7, -(2**53), 2.0**53, 123456789.125]
    payloads = [{"a": number} for number in numbers] + [
        "\u2028",
        '"\\\x1f\x7f',
        {"b": 1, "a": {"é": [], "a": {}}},
        {"\U00010000": 1, "\uffff": 2},
        {},
        {"b": "x" * 30, "a": 'say "so"\n', "n": -1, "long": "y" * 300},
        {"s": 23, "t": 24, "u": 256, "v": 65536, "w": 2**32, "x": True, "y": False, "z": None},
        {"key of more than twenty-three characters": 1, "é": "è"},
    ]
    payloads += [b"\0", {"x": [b"1"]}, [[["deep"]]], 2**64 - 1, -(2**64), {"/": 5}, "/", None]
    assert vectors
    for payload in payloads:
        data = pcf.encode(payload)
        assert payload_text(b"head" + data, 4) == dag_json.encode(payload).decode(), payload


def test_ids_and_clocks_of_what_is_no_key_are_null() -> None:
    keys = [b"\x01" + bytes(range(19)), None, b"short", b"\xff" * 20, b""]
    (batch,) = to_batches([Page(keys, [None] * 5)], ["id", "key", "clock", "parents", "place"])
    table = batch.to_pydict()
    assert table["id"] == [encode_id(keys[0] or b""), None, None, "v" * 32, None]
    assert table["clock"] == [1, None, None, None, None] or table["clock"][0] == 1
    assert table["parents"] == [None] * 5


def test_usual_payloads_take_the_short_way_and_give_what_the_long_one_gives() -> None:
    usual = {"b": "x" * 30, "aa": 'say "so"\n\x7f', "t": 24, "x": True, "z": None, "long": "y" * 300}
    data = pcf.encode(usual)
    items = flat_items(data, 0)
    assert items is not None
    assert joined(items) == dag_json.encode(usual).decode()
    # What is cut short, followed by something, or not in its only form goes the long way, which says what is wrong.
    broken = [
        data[:-1],
        data + b"\0",
        b"\xa1\x61a\x18\x05",
        b"\xa1\x61a\x78\x01x",
        b"\xa2\x61b\x01\x61a\x02",
        b"\xa1\x61/\x01",
        b"",
        b"\xa1",
    ]
    assert [flat_items(each, 0) for each in broken] == [None] * len(broken)
    assert [flat_items(pcf.encode(each), 0) for each in ([], "text", {"a": []}, {"a": 0.5}, {"a": b""}, {"a": "é"})] == [None] * 6


def test_author_and_payload_are_found_without_a_proof(whole: Log, skewed: Log) -> None:
    for entry in [*whole.entries, *skewed.entries]:
        envelope = parse_envelope(entry.value, 1 << 20)
        assert skim(entry.value) == (envelope.did, envelope.payload_at)
        assert skim_key(entry.value) == entry.key
    for size in range(0, 200, 7):
        with contextlib.suppress(DecodeError):
            skim(whole.entries[0].value[:size])
        with contextlib.suppress(DecodeError):
            skim_key(whole.entries[0].value[:size])
    for clock in (2, 23, 24, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, CLOCK_MAX):
        parent = message_key(clock - 1, b"")
        value = build_value("dag-cbor", SIGNERS[0].did, bytes(64), "t.example.com", clock, [parent], b"\xf6")
        assert skim_key(value) == Entry.stored(value).key
