"""Backup, restore and upgrade as docs/operations.md tells them, with real processes: nothing that was acknowledged is lost."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import gossiplog

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TOPIC = "app.example.com"
WAIT_S = 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_gossiplog: None) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("GOSSIPLOG_KEY_DIR", str(tmp_path / "keys"))
    ran("key", "new", "me")
    ran("init", "app.db", "--topic", TOPIC)
    return tmp_path


def ran(*args: str, code: int = 0) -> list[Any]:
    """Run a command, and return what it says in JSON."""
    done = subprocess.run(["gossiplog", *args, "--json"], capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert done.returncode == code, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@contextmanager
def serving(*args: str, ends: bool = True) -> Iterator[str]:
    """`gossiplog serve app.db`; killed at the end, unless it ends by itself."""
    command = [sys.executable, "-m", "gossiplog", "serve", "app.db", "--listen", "127.0.0.1:0", "--json", "-q", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["urls"][0]
            if ends:
                process.terminate()
                assert process.wait(WAIT_S) == 0
        finally:
            process.kill()


def post(url: str, *payloads: int) -> set[str]:
    return {ran("append", url, str(payload))[0]["id"] for payload in payloads}


def ids(log: str) -> set[str]:
    async def read() -> set[str]:
        async with gossiplog.open(log, read_only=True) as opened:
            assert (await opened.fsck()).is_clean
            return {entry.id async for entry in opened.iterate()}

    return trio.run(read)


def test_a_backup_that_is_made_beside_the_server_is_restored_and_clients_give_back_what_it_lacks(folder: Path) -> None:
    with serving(ends=False) as url:
        kept = post(url, 1, 2)
        ran("copy", "app.db", "backup.db")
        kept |= post(url, 3)
        ran("copy", "app.db", "backup.db")
        assert ids("backup.db") == kept
        late = post(url, 4)
        ran("init", "client.db", "--topic", TOPIC)
        assert ran("sync", "client.db", url)[0]["equal"]
    # The disk gives up.
    with Path("app.db").open("r+b") as file:
        file.write(os.urandom(8_192))
    check = subprocess.run([sys.executable, "-m", "gossiplog", "serve", "app.db", "--check"], capture_output=True, text=True, check=False)
    assert check.returncode != 0
    assert "Traceback" not in check.stderr
    for name in ("app.db", "app.db-wal", "app.db-shm"):
        if Path(name).exists():
            Path(name).rename(f"broken-{name}")
    ran("copy", "backup.db", "app.db")
    ran("serve", "app.db", "--check")
    with serving() as url:
        assert {entry["id"] for entry in ran("log", "app.db")} == kept
        given = ran("sync", "client.db", url)[0]
        assert (given["pulled"], given["pushed"], given["equal"]) == (0, 1, True)
        new = post(url, 5)
    assert ids("app.db") == kept | late | new


def test_a_log_of_an_older_version_is_checked_and_brought_up_to_date_when_it_is_served(folder: Path) -> None:
    kept = {ran("append", "app.db", str(number))[0]["id"] for number in range(3)}
    shutil.copy("app.db", "before.db")
    database = sqlite3.connect("app.db")
    later = ("applications", "set_aside", "sketch", "members", "touched", "void")
    database.executescript("".join(f"DROP TABLE gossiplog_{name}; " for name in later) + "PRAGMA user_version = 2;")
    database.close()
    (looked_at,) = ran("serve", "app.db", "--check")[0]["logs"]
    assert looked_at["pending"] == ["0003_sketch", "0004_applications", "0005_members"]
    assert "serving migrates it for good" in subprocess.run(
        [sys.executable, "-m", "gossiplog", "serve", "app.db", "--check", "--table"], capture_output=True, text=True, check=True
    ).stdout.replace("\n", " ")
    # The check changed nothing.
    assert ran("migrate", "app.db", "--dry-run")[0]["pending"] == looked_at["pending"]
    with serving() as url:
        kept |= post(url, 3)
    assert ids("app.db") == kept
    assert ran("serve", "app.db", "--check")[0]["logs"][0]["entries"] == 4
