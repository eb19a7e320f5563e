"""Folders of logs, as a user types them: `serve --dir`, `sync --all` and `stat`."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_support import COLD, Run

from gossiplog.net.ground.access import hash_token
from gossiplog.store.places import file_of

ACCESS = f"""
[tokens]
editor = "{hash_token("secret")}"
[default.tokens]
editor = ["connect", "pull", "push", "create"]
"""


def make(cli: Run, folder: str, *topics: str, payload: str = "1") -> None:
    Path(folder).mkdir(exist_ok=True)
    for topic in topics:
        cli("init", f"{folder}/{file_of(topic)}", "--topic", topic)
        cli("append", f"{folder}/{file_of(topic)}", payload)


@contextmanager
def serving(folder: str, *options: str) -> Iterator[tuple[str, Any]]:
    command = [*COLD, "serve", "--dir", folder, "--listen", "127.0.0.1:0", "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}) as server:
        try:
            assert server.stdout is not None
            told = json.loads(server.stdout.readline())
            yield told["urls"][0].removesuffix("/TOPIC"), told
            server.send_signal(signal.SIGTERM)
            assert server.wait(10) == 0
        finally:
            server.kill()


def test_logs_of_two_folders_are_made_equal_and_added_up(cli: Run, folder: Path) -> None:
    make(cli, "ours", "both", "Only:ours", "X" * 100)
    make(cli, "theirs", "both", "only.theirs", payload="2")
    cli("init", "theirs/mine.db", "--topic", "another")
    cli("init", "ours/mine.db", "--topic", "mine")
    refused = cli("sync", "--all", "ours", "theirs", "--json", code=1)
    found = {each["topic"]: each for each in refused.lines}
    assert found.keys() == {"both", "mine"}
    assert (found["both"]["pulled"], found["both"]["pushed"], found["both"]["equal"]) == (1, 1, True)
    assert found["mine"]["error"]["kind"] == "topic-mismatch"
    (folder / "theirs" / "mine.db").unlink()
    done = cli("sync", "--all", "ours", "theirs", "--create", "--pull", "--json").lines
    assert {each["topic"] for each in done} == {"both", "mine", "only.theirs"} - {"mine"}
    cli("sync", "--all", "ours", "theirs", "--create", "--push", "--table")
    *rows, total = cli("stat", "ours", "--json").lines
    *others, same = cli("stat", "theirs", "--json").lines
    assert total == same | {"bytes": total["bytes"]} == {"logs": 5, "count": 5, "bytes": sum(each["bytes"] for each in rows)}
    assert [each["root"] for each in rows] == [each["root"] for each in others]
    (folder / "ours" / "damaged.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    shown = cli("stat", "ours", "--table", code=1).out
    assert "in all  6 logs, 5 entries" in shown and "damaged" in shown
    for wrong in (["--heal"], ["--dry-run"], ["--follow"], ["--key", "alice"]):
        cli("sync", "--all", "ours", "theirs", *wrong, code=2)
    cli("sync", "ours/both.db", "theirs/both.db", "--create", code=2)


def test_logs_of_a_folder_meet_in_buckets(cli: Run) -> None:
    make(cli, "ours", "a", "B:1")
    assert cli("sync", "--all", "ours", "share/{topic}", "--json").lines == []
    assert [each["published"] for each in cli("sync", "--all", "ours", "share/{topic}", "--create", "--json").lines] == [1, 1]
    Path("theirs").mkdir()
    taken = cli("sync", "--all", "theirs", "share/{topic}", "--create", "--pull", "--json").lines
    assert {each["topic"]: each["added"] for each in taken} == {"a": 1, "B:1": 1}
    cli("sync", "--all", "ours", "share/{topic}.x", code=2)


@pytest.mark.slow
def test_a_server_for_a_folder_is_synced_with_and_creates_by_right(cli: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(cli, "ours", "doc-1", "other")
    make(cli, "theirs", "doc-2")
    (folder / "access.toml").write_text(ACCESS)
    with serving("theirs", "--access", "access.toml", "--create", "doc-*", "--most-open", "2") as (url, told):
        assert told["logs"] == 1
        # Who has no rights is not shown which logs there are.
        assert cli("sync", "--all", "ours", url, "--json").lines == []
        assert "401" in cli("sync", "--all", "ours", url, "--create", "--json", code=4).lines[0]["error"]["message"]
        monkeypatch.setenv("GOSSIPLOG_TOKEN", "secret")
        assert cli("sync", "--all", "ours", url, "--json").lines == []
        done = cli("sync", "--all", "ours", url, "--create", "--json", code=4)
        found = {each["topic"]: each for each in done.lines}
        assert found["doc-1"]["pushed"] == 1 and found["doc-2"]["pulled"] == 1
        assert "404" in found["other"]["error"]["message"]
    assert sorted(each.name for each in (folder / "theirs").glob("*.db")) == ["doc-1.db", "doc-2.db"]
    assert cli("stat", "theirs/doc-1.db", "--json").record["root"] == cli("stat", "ours/doc-1.db", "--json").record["root"]
