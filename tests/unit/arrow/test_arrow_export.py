"""Entries as Arrow and Parquet without Spark, and what other programs make of the file."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trio
from click.testing import CliRunner
from log_support import make_history, opened

from gossiplog.archive import entry_to_line
from gossiplog.arrow import EXPORT_COLUMNS
from gossiplog.cli.app import root
from gossiplog.errors import LocalProtocolError

HISTORY = make_history(Random(8), 300)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    async def insert() -> None:
        async with opened(tmp_path / "app.db") as log:
            await log.insert_many([entry.value for entry in HISTORY])

    trio.run(insert)
    return tmp_path / "app.db"


def export(*args: str, code: int = 0) -> str:
    ran = CliRunner().invoke(root, ["export", *args], prog_name="gossiplog")
    assert ran.exit_code == code, ran.stderr
    return ran.stdout + ran.stderr


async def test_batches_hold_what_the_log_does(path: Path) -> None:
    async with opened(path) as log:
        table = pa.Table.from_batches([batch async for batch in log.to_arrow()])
        entries = [entry async for entry in log.iterate()]
    assert table.column_names == list(EXPORT_COLUMNS)
    assert table["id"].to_pylist() == [entry.id for entry in entries]
    assert table["value"].to_pylist() == [entry.value for entry in entries]
    lines = [json.loads(entry_to_line(entry)) for entry in entries]
    assert [json.loads(text) for text in table["payload"].to_pylist()] == [line["message"]["payload"] for line in lines]
    assert [sorted(ids) for ids in table["parents"].to_pylist()] == [sorted(line["message"]["parents"]) for line in lines]
    assert [entry.key for _, entry in sorted(zip(table["seq"].to_pylist(), entries, strict=True))] == [entry.key for entry in HISTORY]


async def test_batches_are_of_one_moment_and_small_where_values_are_large(tmp_path: Path) -> None:
    async with opened(":memory:") as log:
        await log.append_many([f"{number} {'x' * 60_000}" for number in range(300)])
        sizes = []
        async for batch in log.to_arrow(["value", "id"]):
            sizes.append(batch.num_rows)
            await log.append("meanwhile")
        assert sum(sizes) == 300
        assert max(sizes) < 290
        with pytest.raises(LocalProtocolError, match="none of"):
            log.to_arrow(["what"])
        assert [batch async for batch in log.to_arrow(after=max(await log.heads()))] == []


def test_duckdb_and_polars_read_what_was_exported(path: Path, tmp_path: Path) -> None:
    # Every process collects all tests, and this one alone needs them.
    import duckdb
    import polars

    file = str(tmp_path / "app.parquet")
    assert "300 entries" in export(str(path), "-o", file, "--table")
    by_author = duckdb.sql(f"SELECT author, count(*) FROM '{file}' GROUP BY author ORDER BY author").fetchall()
    assert sum(count for _, count in by_author) == 300
    numbers = duckdb.sql(f"SELECT sum(CAST(payload AS INTEGER)) FROM '{file}'").fetchall()
    assert numbers == [(sum(range(300)),)]
    heads = duckdb.sql(f"SELECT id FROM '{file}' EXCEPT SELECT unnest(parents) FROM '{file}'").fetchall()
    parents = {id for entry in HISTORY for id in entry.message.parents}
    assert {id for (id,) in heads} == {entry.id for entry in HISTORY} - parents
    frame = polars.scan_parquet(file).group_by("author").len().sort("author").collect()
    assert frame.rows() == by_author


def test_a_range_and_columns_can_be_chosen(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "part.parquet"
    ids = sorted(entry.id for entry in HISTORY)
    export(str(path), "-o", str(file), "--columns", "id,clock", "--range", f"{ids[10]}..{ids[20]}")
    table = pq.read_table(file)
    assert (table.column_names, table["id"].to_pylist()) == (["id", "clock"], ids[11:21])
    assert "none of" in export(str(path), "-o", str(file), "--columns", "id,what", code=2)
    assert pq.read_table(file).equals(table), "what is there stays when a later export fails"
    assert not list(tmp_path.glob("*.partial"))
    export(str(path), "-o", str(tmp_path / "a.car"), "--columns", "id", code=2)
    export(str(path), "-o", str(tmp_path / "a.parquet.gz"), code=2)


def test_without_the_extra_it_says_what_to_install(path: Path, tmp_path: Path) -> None:
    (tmp_path / "pyarrow").mkdir()
    (tmp_path / "pyarrow" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'pyarrow'\", name='pyarrow')\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "gossiplog", "export", str(path), "-o", str(tmp_path / "a.parquet")]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert (ran.returncode, "gossiplog[arrow]" in ran.stderr) == (1, True), ran.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_full_disk_is_said_of_the_file(path: Path, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"a.{ending}"
    (tmp_path / f"a.{ending}.partial").symlink_to("/dev/full")
    assert f"{file}: No space left on device" in export(str(path), "-o", str(file), code=5)
    assert not file.exists()
