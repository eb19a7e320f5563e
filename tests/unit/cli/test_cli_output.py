import errno
import fcntl
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from rich.cells import cell_len

from gossiplog import errors
from gossiplog.cli.exits import ExitCode, Failure, describe
from gossiplog.cli.output import Column, Listing, Output, clean, counted, cut, opened_output, wrap
from gossiplog.cli.posting import _refusal
from gossiplog.net.transport.http_request import HttpAnswer


def test_clean_leaves_printable_text_alone_and_spells_out_the_rest() -> None:
    assert clean("héllo 🌍 {}") == "héllo 🌍 {}"
    assert clean("\x1b[31m\u202e\n\x9b\U000e0001") == "\\u001b[31m\\u202e\\u000a\\u009b\\U000e0001"


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [("short", 10, "short"), ("abcdef", 4, "abc…"), ("日本語", 6, "日本語"), ("日本語", 5, "日本…"), ("x", 0, "")],
)
def test_cut_counts_columns_not_characters(text: str, width: int, expected: str) -> None:
    assert cut(text, width) == expected


def test_counted_knows_one_from_many() -> None:
    assert [counted(n, "entry", "entries") for n in (0, 1, 1234)] == ["0 entries", "1 entry", "1,234 entries"]


def test_columns_are_as_wide_as_the_first_rows_and_numbers_right(capsys: pytest.CaptureFixture[str]) -> None:
    columns = (Column("id"), Column("n", is_right=True), Column("text"))
    with Listing(Output(is_json=False), columns) as listing:
        listing.add({}, ("a", "1", "x"))
        listing.add({}, ("bbb", "1000", "y" * 300))
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading == "id      n  text"
    assert first == "a       1  x"
    assert second.startswith("bbb  1000  yyy")
    assert second.endswith("y" * 300), "there is no terminal to cut it for"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have stdout be a terminal of so many columns that takes colours."""

    def make(columns: int) -> None:
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    return make


_ADVICE = (Column("severity", styles={"error": "red", "ok": "green"}), Column("check"), Column("what to do"))
_TEXT = "the disk is full; make room: a log on a full disk takes nothing in, though what it has stays whole"


def bare(text: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


@pytest.mark.parametrize("is_terminal", [False, True])
def test_numbers_in_the_last_column_stand_right_as_well(is_terminal: bool, terminal, capsys: pytest.CaptureFixture[str]) -> None:
    if is_terminal:
        terminal(80)
    with Listing(Output(is_json=False), (Column("id"), Column("per s", is_right=True))) as listing:
        listing.add({}, ("a", "9"))
        listing.add({}, ("b", "1,000"))
    assert bare(capsys.readouterr().out) == ["id  per s", "a       9", "b   1,000"]


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_terminal_wraps_the_last_column_below_itself(columns: int, terminal, capsys: pytest.CaptureFixture[str]) -> None:
    terminal(columns)
    with Listing(Output(is_json=False), _ADVICE) as listing:
        listing.add({}, ("error", "disk", _TEXT))
        listing.add({}, ("ok", "日本", "fine"))
    out = capsys.readouterr().out
    assert "\x1b[31merror" in out
    heading, *lines = bare(out)
    start = heading.index("what to do")
    assert all(len(line) <= columns for line in lines) and "…" not in out
    assert " ".join(line[start:] for line in lines[:-1]) == _TEXT
    assert all(line[:start].strip() == "" for line in lines[1:-1])
    assert lines[-1] == "ok        日本   fine", "a wide character takes two columns, and a colour none"


def test_a_narrow_terminal_gives_a_text_its_own_lines(terminal, capsys: pytest.CaptureFixture[str]) -> None:
    terminal(40)
    with Listing(Output(is_json=False), _ADVICE) as listing:
        listing.add({}, ("error", "disk", _TEXT))
    _, first, *lines = bare(capsys.readouterr().out)
    assert first == "error     disk"
    assert " ".join(line.removeprefix("    ") for line in lines) == _TEXT and all(len(line) <= 40 for line in lines)


def test_a_payload_is_cut_on_a_terminal(terminal, capsys: pytest.CaptureFixture[str]) -> None:
    terminal(30)
    with Listing(Output(is_json=False), (Column("id"), Column("payload", is_cut=True))) as listing:
        listing.add({}, ("a", "x" * 300))
    assert bare(capsys.readouterr().out)[1] == "a   " + "x" * 25 + "…"


@pytest.mark.parametrize("width", range(1, 30))
def test_wrapping_loses_nothing(width: int) -> None:
    for text in ("", "a", "a b  c", "a-very-long-word-without-a-space and more", "日本語日本語 日本", " leading", "trailing "):
        lines = wrap(text, max(width, 2))
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
        assert all(cell_len(line) <= max(width, 2) for line in lines)


def test_rows_beyond_the_first_go_out_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    with Listing(Output(is_json=False), (Column("n"),)) as listing:
        for number in range(199):
            listing.add({}, (str(number),))
        assert capsys.readouterr().out == ""
        listing.add({}, ("199",))
        assert len(capsys.readouterr().out.splitlines()) == 201
        listing.add({}, ("200",))
        assert capsys.readouterr().out == "200\n"


def test_live_rows_wait_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Listing(Output(is_json=False), (Column("n"),), is_live=True) as listing:
        listing.add({}, ("1",))
        assert capsys.readouterr().out == "n\n1\n"


def test_json_and_quiet_rows(capsys: pytest.CaptureFixture[str]) -> None:
    with Listing(Output(is_json=True), (Column("n"),)) as listing:
        listing.add({"n": "é"}, ())
        listing.add(b'{"n":2}', ())
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"n": "é"}, {"n": 2}]
    with Listing(Output(is_json=True, is_quiet=True), (Column("n"),)) as listing:
        listing.add({"n": 1}, (), id="the-id")
    assert capsys.readouterr().out == "the-id\n"


def test_nothing_to_show_is_said_on_stderr_and_not_under_json(capsys: pytest.CaptureFixture[str]) -> None:
    with Listing(Output(is_json=False), (), empty="none"):
        pass
    assert capsys.readouterr() == ("", "none\n")
    with Listing(Output(is_json=True), (), empty="none"):
        pass
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (errors.LogNotFound("x"), "log-not-found", ExitCode.FAILED),
        (errors.DamagedLog("x"), "damaged-log", ExitCode.INTEGRITY),
        (errors.DecodeError("x"), "malformed", ExitCode.INTEGRITY),
        (errors.SyncAborted("x"), "sync-aborted", ExitCode.INCOMPLETE),
        (errors.RemoteProtocolError("x"), "protocol", ExitCode.NETWORK),
        (ConnectionResetError("x"), "network", ExitCode.NETWORK),
        (errors.NotAuthorised("x"), "unauthorised", ExitCode.UNAUTHORISED),
        (errors.LogBusy("x"), "busy", ExitCode.FAILED),
        (errors.CommitError("x"), "storage", ExitCode.FAILED),
        (errors.GossipLogError("x"), "failed", ExitCode.FAILED),
        (FileNotFoundError(2, "No such file", "a.car"), "file", ExitCode.FAILED),
        (OSError(errno.ENOSPC, "No space left on device", "a.car"), "storage-full", ExitCode.INCOMPLETE),
        (errors.StorageFull("x"), "storage-full", ExitCode.INCOMPLETE),
        (click.BadParameter("x"), "usage", ExitCode.USAGE),
        (Failure("x", code=ExitCode.INCOMPLETE), "incomplete", ExitCode.INCOMPLETE),
    ],
)
def test_every_error_has_its_exit_code(error: BaseException, kind: str, code: ExitCode) -> None:
    problem = describe(error)
    assert problem is not None
    assert (problem.kind, problem.code) == (kind, code)


def test_fault_of_the_program_is_none_of_the_users() -> None:
    assert describe(ZeroDivisionError()) is None


def test_an_append_over_a_quota_gets_no_promise_that_a_token_lets_it_in() -> None:
    error = _refusal(HttpAnswer(403, [], b"3 entries of did:key:z6Mk are here, the most that are taken"))
    assert "the most that are taken" in str(error)
    assert error.hint == "a right that you lack comes with --token-file FILE, GOSSIPLOG_TOKEN or your did"


def test_one_process_at_a_time_writes_a_file_and_it_is_never_seen_half(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    draft = path.with_name("out.jsonl.partial")
    draft.write_text("left by a process that was killed")
    with opened_output(str(path)) as file:
        file.write(b"first")
        with pytest.raises(BlockingIOError, match="another process is writing it"), opened_output(str(path)):
            raise AssertionError("it was opened")
        file.write(b" and last")
    assert path.read_bytes() == b"first and last"
    assert not draft.exists()
    with opened_output(str(path)) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


def test_a_draft_that_gets_its_name_while_it_is_opened_stays_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.jsonl"
    draft = path.with_name("out.jsonl.partial")
    draft.write_bytes(b"whole")
    flock = fcntl.flock

    def publish_first(*arguments: Any) -> None:
        draft.replace(path)
        flock(*arguments)

    monkeypatch.setattr(fcntl, "flock", publish_first)
    with pytest.raises(BlockingIOError), opened_output(str(path)):
        raise AssertionError("it was opened")
    assert path.read_bytes() == b"whole"


def test_a_file_system_without_locks_takes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with opened_output(str(tmp_path / "out.jsonl")) as file:
        file.write(b"all")
    assert (tmp_path / "out.jsonl").read_bytes() == b"all"


def test_every_error_of_the_tree_is_described() -> None:
    waiting = [errors.GossipLogError]
    while waiting:
        kind = waiting.pop()
        waiting += [each for each in kind.__subclasses__() if each.__module__ == errors.__name__]
        assert describe(kind.__new__(kind)) is not None
