"""Small things that people stumbled over: what is said, and where."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
import trio
from cli_support import Run

import gossiplog
from gossiplog.cli.exits import ExitCode
from gossiplog.cli.net.sync import _judge, left_out_record
from gossiplog.cli.output import Output
from gossiplog.entry.message_id import encode_id
from gossiplog.errors import LocalProtocolError, LogBusy
from gossiplog.sync.result import Ending, SyncResult


def test_payload_with_single_or_lost_quotes_is_explained(cli: Run, app: str) -> None:
    for payload in ("{'a':1}", "{a:1}", "['x']", "{\"a\":'x'}"):
        assert "'{\"a\":1}'" in cli("append", app, payload, code=1).err
    assert "'\"hello\"'" in cli("append", app, "hello", code=1).err
    assert "hint" not in cli("append", app, '{"a":1,}', code=1).err


def test_empty_input_is_no_payload(cli: Run, app: str) -> None:
    for args in ((app,), (app, "-"), (app, "")):
        assert cli("append", *args, input="", code=1).err == "error: no payload: the input is empty\n"


@pytest.mark.parametrize("url", ["ws:/127.0.0.1:8080", "wss:example.com", "http:/example.com/app", "postgresql:/db/app?log=a"])
def test_url_that_lacks_a_slash_is_taken_for_no_file(cli: Run, app: str, url: str) -> None:
    for args in (("append", url, "1"), ("sync", app, url), ("init", url, "--topic", "a.example"), ("doctor", url)):
        error = cli(*args, code=2).err
        assert f"{url} is neither a path nor a URL" in error
        assert "two slashes" in error
    cli("init", "./ws:app.db", "--topic", "a.example")


def test_piped_verify_sums_up_on_stderr(cli: Run, app: str) -> None:
    piped = cli("verify", app)
    assert len(piped.lines) == 5
    assert piped.err == "5 entries, all valid\n"
    assert cli("verify", app, "--json").err == ""
    assert cli("verify", app, "--table").out == "5 entries, all valid\n"


def test_one_entry_is_no_plural(cli: Run) -> None:
    cli("init", "one.db", "--topic", "one.example")
    cli("append", "one.db", "1")
    assert "one.example, 1 entry<" in cli("graph", "one.db", "--format", "svg").out
    assert cli("verify", "one.db", "--table").out == "1 entry, all valid\n"


def test_log_that_is_opened_outside_of_trio_is_not_left_locked(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    async def open_once() -> None:
        async with gossiplog.open(path, topic="a.example"):
            pass

    def open_without_a_loop() -> None:
        with gossiplog.open(path, topic="a.example"):  # type: ignore[attr-defined]
            pass

    for _ in range(2):
        with pytest.raises(LocalProtocolError, match="needs a task of trio") as caught:
            asyncio.run(open_once())
        assert "gossiplog.aio.open" in (caught.value.hint or "")
        with pytest.raises(LocalProtocolError, match="needs a task of trio") as caught:
            open_without_a_loop()
        assert "gossiplog.blocking.open" in (caught.value.hint or "")
    assert not path.exists()
    trio.run(open_once)


def test_own_process_is_not_named_as_if_it_were_another(tmp_path: Path) -> None:
    async def open_twice() -> None:
        async with gossiplog.open(tmp_path / "a.db", topic="a.example"):
            with pytest.raises(LogBusy, match="this process has") as caught:
                async with gossiplog.open(tmp_path / "a.db"):
                    pass
            assert str(os.getpid()) not in str(caught.value)

    trio.run(open_twice)


def test_entries_of_a_hub_that_are_not_valid_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    key = bytes([7]) * 20
    result = SyncResult(ending=Ending.COMPLETE, rejected=1, rejected_keys=(key,))
    assert _judge(result, "ws://hub.example.com", Output(is_json=False)) == ExitCode.INTEGRITY
    said = capsys.readouterr().err
    assert said == f"1 entry of ws://hub.example.com not valid, and left out; the first of them: {encode_id(key)}\n"
    record = left_out_record(result)
    assert record is not None
    assert (record["rejected"], record["rejectedIds"]) == (1, [encode_id(key)])
    assert _judge(result, "other.db", Output(is_json=False)) == ExitCode.INTEGRITY
    assert "`gossiplog verify other.db` names them" in capsys.readouterr().err
