"""What others wrote speaks neither to the terminal nor turns around what stands beside it, by whatever way it comes to be shown."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_support import Run

from gossiplog.cli.journal import TEXT_CHARS_MAX, write_journal
from gossiplog.cli.output import escaped, shown
from gossiplog.net.ground.journal import note

EVIL = "\x1b]0;owned\x07\x9b31m\u202egnp.exe\u2066\u200f\x7f\r\x1b[2J"
UNSEEN = [*map(chr, range(32)), "\x7f", "\x9b", "\u202e", "\u2066", "\u200f", "\u2028", "\ufeff"]


def is_clean(text: str) -> bool:
    return not any(each in text for each in UNSEEN if each not in "\n\t")


@contextmanager
def liar(answer: bytes) -> Iterator[int]:
    """A server that sends the same to everybody."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_quoted_path_or_argument_is_escaped_in_errors(cli: Run, app: str) -> None:
    evil = EVIL.replace("/", "")
    commands = (
        ("stat", f"{evil}.db"),
        ("show", app, evil),
        ("serve", app, "--p2p", f"/ip4/{evil}"),
        ("serve", app, "--listen", evil),
        ("append", app, "--key", evil, "1"),
        ("sync", app, f"ws://{evil}"),
        ("peers", evil),
        (evil,),
    )
    for command in commands:
        code = 1 if command[0] in ("stat", "append") else 2
        err = cli(*command, code=code).err
        assert is_clean(err), (command, err)
        assert "owned" in err


@pytest.mark.parametrize("scheme", ["", "HTTP/1.1 200 "])
def test_liars_answer_is_escaped(cli: Run, app: str, scheme: str) -> None:
    with liar(f"{scheme}{EVIL}\r\n\r\n".encode()) as port:
        for command in (("peers", f"ws://127.0.0.1:{port}"), ("sync", app, f"ws://127.0.0.1:{port}")):
            assert is_clean(cli(*command, code=4).err)


def test_tables_and_json_lines_say_the_same_without_what_cannot_be_seen(cli: Run, app: str) -> None:
    payload = {"text": f"{EVIL} 🏳️‍🌈 grüße"}
    id = cli("append", app, "-q", json.dumps(payload)).out.strip()
    for command in (("log", app, "--limit", "1", "--reverse"), ("show", app, id)):
        lines = cli(*command, "--json")
        assert is_clean(lines.out)
        assert lines.record["message"]["payload"] == payload
        assert "grüße" in lines.out
        table = cli(*command, "--table")
        assert is_clean(table.out)
        assert "owned" in table.out
    copy = cli("log", app, "--json").out
    cli("init", "copy.db", "--topic", "cli.example")
    Path("copy.jsonl").write_text(copy)
    cli("import", "copy.db", "copy.jsonl")
    assert cli("show", "copy.db", id, "--json").record["message"]["payload"] == payload


def test_what_programs_read_is_as_true_as_before() -> None:
    for text in (EVIL, "🏳️‍🌈", "\U000e0041", "plain"):
        line = json.dumps({"x": text}, ensure_ascii=False)
        assert json.loads(escaped(line)) == {"x": text}
        assert escaped(line).isprintable()


def test_colours_stay_and_other_sequences_go() -> None:
    assert shown("\x1b[31mred\x1b[0m\n\x1b[2J", is_coloured=True) == "\x1b[31mred\x1b[0m\n\\u001b[2J"
    assert shown("\x1b[31mred") == "\\u001b[31mred"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_servers_log_is_escaped(log_format: str, capsys: pytest.CaptureFixture[str], restore_logging: Callable[[], None]) -> None:
    write_journal(log_format)
    note("connection refused", address=EVIL, reason=f"because {EVIL}")
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        note("fault", level=logging.ERROR, error=error)
    err = capsys.readouterr().err
    assert "owned" in err
    assert is_clean(err)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_servers_log_says_nothing_at_length(
    log_format: str, capsys: pytest.CaptureFixture[str], restore_logging: Callable[[], None]
) -> None:
    write_journal(log_format)
    long = "x" * 1_000_000
    logging.getLogger("gossiplog.application").warning("application %s: %s", "app", f"{long} the end")
    note("refused", reason=f"{long} the end", many=[long] * 3, few=[1, "a"], number=7)
    try:
        raise ValueError(f"{long} the end")
    except ValueError as error:
        note("fault", level=logging.ERROR, error=error)
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) < 3 * TEXT_CHARS_MAX
    assert all(
        any(line.rstrip('"}').endswith("the end") or "the end" in line for line in lines if word in line) for word in ("app", "refused")
    )
    if log_format == "json":
        assert json.loads(lines[1])["few"] == [1, "a"] and json.loads(lines[1])["number"] == 7


@pytest.fixture
def restore_logging() -> Iterator[Callable[[], None]]:
    logger = logging.getLogger("gossiplog")
    before = logger.handlers, logger.level, logger.propagate
    yield lambda: None
    logger.handlers, logger.level, logger.propagate = before[0], before[1], before[2]


def test_names_of_files_that_are_no_utf_8_are_names(cli: Run, app: str, tmp_path: Path) -> None:
    def named(name: str) -> str:
        return str(tmp_path / f"{name}\udcff")

    log, copy, bucket, lines, clone = map(named, ("log", "copy", "bucket", "lines", "clone"))
    for command in (
        ("init", log, "--topic", "names.example"),
        ("append", log, "1"),
        ("copy", log, copy),
        ("sync", copy, log),
        ("publish", log, bucket),
        ("sync", copy, f"{bucket}/"),
        ("clone", bucket, clone),
        ("export", log, "-o", f"{lines}.jsonl"),
        ("import", clone, f"{lines}.jsonl"),
        ("verify", copy),
        ("salvage", log, named("saved")),
        ("fsck", named("saved")),
        ("stat", clone),
        ("stat", bucket),
    ):
        cli(*command)
    assert "UTF-8" in cli("spark", "stats", log, code=1).err
