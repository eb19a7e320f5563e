"""`serve` as it is configured: options, environment and file say the same; logs come and go; it ends in time."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
import trio
from click.testing import CliRunner
from network_support import make_certificate

import gossiplog
from gossiplog.cli.app import root
from gossiplog.cli.configured import PREFIX, configurable
from gossiplog.cli.net.serve import serve
from gossiplog.cli.options import PlaceType
from gossiplog.entry import Ed25519Signer
from gossiplog.net.ground.access import hash_token

REPOSITORY = Path(__file__).parents[2]
WAIT_S = 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_gossiplog: None) -> Path:
    """A folder to be in, with two logs and a key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("GOSSIPLOG_KEY_DIR", str(tmp_path / "keys"))
    for name in ("one", "two"):
        trio.run(make_log, f"{name}.db", f"{name}.example.com")
    return tmp_path


async def make_log(path: str, topic: str) -> None:
    async with gossiplog.open(path, topic=topic, signer=Ed25519Signer.from_seed(bytes(32))) as log:
        await log.append(topic)


def ran(*args: str, code: int = 0, env: dict[str, str] | None = None) -> Any:
    done = CliRunner().invoke(root, args, env=env)
    assert done.exit_code == code, done.stderr
    return json.loads(done.stdout.splitlines()[0]) if code == 0 else done.stderr


def value_of(param: click.Parameter) -> Any:
    """Something that is not the default."""
    if isinstance(param, click.Option) and param.is_flag:
        return True
    if isinstance(param.type, click.IntRange | click.FloatRange):
        return 7
    if isinstance(param.type, click.Choice):
        return list(param.type.choices)[-1]
    if param.metavar == "ADDRESS":
        return ["127.0.0.2", "::2"] if param.multiple else "127.0.0.2"
    if param.metavar == "HOST:PORT":
        return [":1", ":2"]
    if param.metavar == "URL#VKEY":
        return [f"http://{name}#a+0aa33f82+BBMarSKx/zmaOkeYva/YHMcXarlwki5dKW9HzHVyyUxH" for name in "ab"]
    if param.name == "origins":
        return ["https://a.example.com", "null"]
    return ["a", "b"] if param.multiple or param.nargs == -1 else "a"


def parsed(args: list[str]) -> dict[str, Any]:
    return serve.make_context("serve", args).params


def test_every_option_is_the_same_from_the_command_line_the_environment_and_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = configurable(serve)
    assert {"logs", "listen", "access", "allow", "p2p", "per-address", "log-format", "verbose", "json", "table"} <= set(known)
    for name, param in known.items():
        value = value_of(param)
        logs = [] if name == "logs" else ["x.db"]
        if name == "logs":
            args = list(value)
        elif value is True:
            args = [f"--{name}"]
        else:
            args = [part for one in (value if isinstance(value, list) else [value]) for part in (f"--{name}", str(one))]
        expected = parsed([*logs, *args])
        assert expected != parsed(["x.db"]), name
        file = tmp_path / "serve.toml"
        file.write_text(f"{name} = {json.dumps(value)}\n")
        from_file = parsed([*logs, "--config", str(file)])
        assert from_file == {**expected, "config": str(file)}, name
        text = "1" if value is True else " ".join(value) if isinstance(value, list) else str(value)
        with monkeypatch.context() as patch:
            patch.setenv(PREFIX + name.upper().replace("-", "_"), text)
            assert parsed(logs) == expected, name


def test_command_line_counts_before_the_environment_and_that_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "serve.toml"
    file.write_text("per-address = 1\nconnections = 1\npeers = 1\n")
    monkeypatch.setenv("GOSSIPLOG_PER_ADDRESS", "2")
    monkeypatch.setenv("GOSSIPLOG_CONNECTIONS", "2")
    params = parsed(["x.db", "--config", str(file), "--connections", "3"])
    assert (params["target"], params["per_address"], params["connections"]) == (1, 2, 3)


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with the words that name it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_every_command_refuses_an_empty_place_and_a_name_that_is_too_long(folder: Path) -> None:
    tried = 0
    for path, command in commands(root):
        arguments = [param for param in command.params if isinstance(param, click.Argument)]
        for param in command.params:
            assert not isinstance(param.type, click.Path) or isinstance(param.type, PlaceType), (path, param.name)
            if not isinstance(param.type, PlaceType):
                continue
            tried += 1
            for place, fault in (("", "an empty path names nothing"), ("n" * 300, "is no path: File name too long")):
                words = [param.opts[0], place] if isinstance(param, click.Option) else [place] * (arguments.index(param) + 1)
                result = CliRunner().invoke(root, [*path, *words], prog_name="gossiplog")
                assert result.exit_code == 2, (path, param.name, result.output)
                assert fault in result.stderr, (path, param.name, result.stderr)
    assert tried > 60


def test_check_looks_at_a_folder_of_logs_and_makes_none(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    for place, fault in (("file", "Not a directory"), ("file/below", "Not a directory"), ("loop", "Too many levels")):
        result = CliRunner().invoke(root, ["serve", "--dir", place, "--check"], prog_name="gossiplog")
        assert (result.exit_code, fault in result.stderr) == (1, True), (place, result.stderr)
    result = CliRunner().invoke(root, ["serve", "--dir", "new/logs", "--check"], prog_name="gossiplog")
    assert result.exit_code == 0, result.stderr
    assert not Path("new").exists()


def test_a_path_with_a_nul_in_a_file_of_options_is_wrong_usage(tmp_path: Path, folder: Path) -> None:
    file = tmp_path / "serve.toml"
    paths = {"logs": r'["a\u0000b"]'} | dict.fromkeys(("dir", "access", "tls-cert", "token-file", "facts", "peer-key"), r'"a\u0000b"')
    for name, value in paths.items():
        file.write_text(f"{name} = {value}\n")
        result = CliRunner().invoke(root, ["serve", "--config", str(file), "--check"], prog_name="gossiplog")
        assert result.exit_code == 2, (name, result.stderr)
        assert "it has a NUL" in result.stderr, name


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "one.db", "--publish-every"],
        ["publish", "one.db", "new", "--every"],
        ["testnet", "--loss"],
        ["testnet", "--latency-ms", "1"],
    ],
)
def test_nan_is_no_number(folder: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(root, [*arguments, "nan"], prog_name="gossiplog")
    assert (result.exit_code, "'nan' is not a number" in result.stderr) == (2, True)
    file = folder / "serve.toml"
    file.write_text("publish-every = nan\n")
    result = CliRunner().invoke(root, ["serve", "one.db", "--config", str(file), "--check"], prog_name="gossiplog")
    assert (result.exit_code, "not a number" in result.stderr) == (2, True)


def test_check_says_what_would_run_and_what_is_wrong(folder: Path) -> None:
    file = folder / "serve.toml"
    file.write_text('logs = ["one.db", "two.db"]\nlisten = ["127.0.0.1:0"]\nper-address = 3\n')
    record = ran("serve", "--config", str(file), "--check", "--json")
    assert [(log["topic"], log["entries"]) for log in record["logs"]] == [("one.example.com", 1), ("two.example.com", 1)]
    assert record["options"]["per-address"] == {"value": 3, "from": "file"}
    assert record["options"]["connections"] == {"value": 10_000, "from": "default"}
    record = ran("serve", "--config", str(file), "--check", "--json", env={"GOSSIPLOG_PER_ADDRESS": "4"})
    assert record["options"]["per-address"] == {"value": 4, "from": "environment"}
    assert record["options"]["json"] == {"value": True, "from": "option"}
    table = CliRunner().invoke(root, ["serve", "one.db", "--check", "--table"], prog_name="gossiplog").stdout
    assert "table  True  (option)" in table and "json" not in table
    (folder / "access.toml").write_text("[tokens]\nx = 'plain'\n")
    for text, reason in (
        ("per-adress = 3", "did you mean per-address?"),
        ("per-address = 'three'", "per-address is a whole number, not 'three'"),
        ("publish-every = 'often'", "publish-every is a number, not 'often'"),
        ("listen = 'here'", "listen is a list of strings"),
        ("verbose = 1", "verbose is true or false"),
        ("listen = ['here']", "is no address to listen on"),
        ("origin = ['app.example.com']", "'app.example.com' is no origin"),
        ("origin = ['https://app.example.com/page']", "is no origin"),
        ("host = ['https://hub.example.com']", "'https://hub.example.com' is no name"),
        ("proxy = ['caddy']", "'caddy' does not appear to be an IPv4 or IPv6 address"),
        ("access = 'access.toml'", "tokens.x is no hash"),
        ("per-address = [", "--config"),
    ):
        file.write_text(text + "\n")
        assert reason in ran("serve", "one.db", "--config", str(file), "--check", code=2)
    assert "no log at" in ran("serve", "none.db", "--check", code=1)
    (folder / "two.db").chmod(0o444)
    unprivileged = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    command = [*unprivileged, sys.executable, "-m", "gossiplog", "serve", "two.db", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "two.db cannot be written to" in done.stderr) == (1, True), done.stderr
    assert "one.db and ./one.db have one topic" in ran("serve", "one.db", "./one.db", "--check", code=1)


@contextmanager
def serving(*args: str) -> Iterator[tuple[subprocess.Popen[str], list[dict[str, Any]]]]:
    """Run `gossiplog serve`; yields the process and what it says first of each log."""
    process = subprocess.Popen(["gossiplog", "serve", *args, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        yield process, [json.loads(line)]
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=WAIT_S)


def asked(url: str) -> Any:
    import urllib.request

    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        return json.load(answer)


def topics(url: str) -> list[str]:
    found: list[str] = asked(url)["topics"]
    return found


def test_logs_come_and_go_at_a_hangup_and_a_broken_file_changes_nothing(folder: Path) -> None:
    file = folder / "serve.toml"
    file.write_text('logs = ["one.db"]\nlisten = ["127.0.0.1:0"]\n')
    with serving("--config", str(file)) as (process, (said,)):
        assert process.stdout is not None
        assert process.stderr is not None
        server = said["urls"][0].replace("ws://", "http://") + "/"
        file.write_text('logs = ["one.db", "two.db"]\n')
        process.send_signal(signal.SIGHUP)
        came = json.loads(process.stdout.readline())
        assert came["serving"] == "two.example.com"
        assert topics(server) == ["one.example.com", "two.example.com"]
        entry = ran("append", came["urls"][0], '"posted"', "--json") if ran("key", "new", "me", "--json") else None
        assert entry["clock"] == 2
        for text, reason in (("logs = [", "configuration not taken"), ('logs = ["two.db", "none.db"]', "log not served")):
            file.write_text(text)
            process.send_signal(signal.SIGHUP)
            while reason not in (line := process.stderr.readline()):
                assert line
            assert "reason=" in line
        while "configuration taken" not in (line := process.stderr.readline()):
            assert line
        assert topics(server) == ["two.example.com"]
        # What is served no longer is free for others.
        assert ran("append", "one.db", '"free"', "--json")["clock"] == 2
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_S)
        assert process.returncode == 0


def test_a_hangup_takes_all_that_the_files_say_or_nothing(folder: Path) -> None:
    file, rules = folder / "serve.toml", folder / "access.toml"
    good = 'logs = ["one.db"]\nlisten = ["127.0.0.1:0"]\naccess = "access.toml"\n'
    file.write_text(good)
    rules.write_text('[default]\nanonymous = ["pull"]\n')
    with serving("--config", str(file)) as (process, (said,)):
        assert process.stderr is not None
        heads = said["urls"][0].replace("ws://", "http://") + "/api/heads"
        nobody = "[default]\nanonymous = []\n"
        deep, long = "a = " + 5_000 * "[", "[default.quota]\nlog_bytes = " + 5_000 * "9"
        for text, allowed in ((good, deep), (good, long), (deep, nobody), ('logs = ["postgresql://["]', nobody)):
            file.write_text(text)
            rules.write_text(allowed)
            process.send_signal(signal.SIGHUP)
            line = process.stderr.readline()
            assert "configuration not taken" in line, line
            assert asked(heads)["heads"]


@pytest.mark.parametrize("name", ["access.toml", "serve.toml"])
def test_a_hangup_waits_for_nothing_that_lies_where_a_file_was(folder: Path, name: str) -> None:
    file, rules = folder / "serve.toml", folder / "access.toml"
    file.write_text('logs = ["one.db"]\nlisten = ["127.0.0.1:0"]\naccess = "access.toml"\n')
    rules.write_text('[default]\nanonymous = ["pull"]\n')
    with serving("--config", str(file)) as (process, (said,)):
        assert process.stderr is not None
        heads, place = said["urls"][0].replace("ws://", "http://") + "/api/heads", folder / name
        for kind in ("fifo", "folder", "device", "long"):
            place.rename(folder / f"{name}.before-{kind}")
            match kind:
                case "fifo":
                    os.mkfifo(place)
                case "folder":
                    place.mkdir()
                case "device":
                    place.symlink_to("/dev/zero")
                case _:
                    place.touch()
                    os.truncate(place, 2**31)
            process.send_signal(signal.SIGHUP)
            assert "configuration not taken" in process.stderr.readline()
            assert asked(heads)["heads"]


def test_what_counts_more_than_the_file_counts_more_at_a_hangup_too(folder: Path) -> None:
    file = folder / "serve.toml"
    file.write_text('logs = ["two.db"]\n')
    with serving("one.db", "--listen", "127.0.0.1:0", "--config", str(file)) as (process, (said,)):
        assert process.stderr is not None
        process.send_signal(signal.SIGHUP)
        assert "configuration taken  came=0  gone=0" in process.stderr.readline()
        assert topics(said["urls"][0].replace("ws://", "http://") + "/") == ["one.example.com"]


def test_sigterm_ends_a_server_in_time_though_a_log_that_comes_does_not_answer(folder: Path) -> None:
    file = folder / "serve.toml"
    file.write_text('logs = ["one.db"]\nlisten = ["127.0.0.1:0"]\n')
    with socket.create_server(("127.0.0.1", 0)) as silent, serving("--config", str(file)) as (process, _):
        silent.settimeout(WAIT_S)
        file.write_text(f'logs = ["one.db", "postgresql://127.0.0.1:{silent.getsockname()[1]}/db?log=x"]\n')
        process.send_signal(signal.SIGHUP)
        with silent.accept()[0]:
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT_S)
            assert process.returncode == 0
            assert time.monotonic() - began < 5


def test_token_alone_on_stdout_has_its_hash_on_stderr() -> None:
    made = CliRunner().invoke(root, ("token", "backup", "-q"))
    assert made.stderr == f'backup = "{hash_token(made.stdout.strip())}"\n'


def test_append_to_a_server_says_why_it_is_refused(folder: Path) -> None:
    ran("key", "new", "me", "--json")
    made = ran("token", "writer", "--json")
    (folder / "access.toml").write_text(f'[tokens]\nwriter = "{made["hash"]}"\n[default]\nanonymous = ["pull"]\ntokens.writer = ["post"]\n')
    (folder / "token").write_text(made["token"] + "\n")
    cert, key = map(str, make_certificate(folder))
    with serving("one.db", "--listen", "127.0.0.1:0", "--access", "access.toml", "--tls-cert", cert, "--tls-key", key) as (_, (said,)):
        url = said["urls"][0]
        distrusted = ran("append", url, "1", code=4)
        assert "certificate verify failed" in distrusted
        assert "trust its CA with --tls-ca FILE" in distrusted
        trusting = ("append", url, "1", "--tls-ca", cert)
        assert "post takes a token here" in ran(*trusting, code=6)
        assert ran(*trusting, "--token-file", "token", "--json")["clock"] == 2
        assert ran(*trusting, "--json", env={"GOSSIPLOG_TOKEN": made["token"]})["clock"] == 3
    assert "cannot ask" in ran(*trusting, code=4)
    assert "are for a server" in ran("append", "one.db", "1", "--tls-ca", cert, code=2)


def test_key_of_the_keyring_lets_its_holder_in(folder: Path) -> None:
    """By each command that asks a server, and by a server that is a client of another."""
    dids = {name: ran("key", "new", name, "--json")["did"] for name in ("alice", "bob")}
    rights = '["connect", "pull", "push", "post", "watch"]'
    (folder / "access.toml").write_text(f'[default.dids]\n"{dids["alice"]}" = {rights}\n')
    ran("append", "one.db", "1", "--key", "alice", "--json")
    ran("init", "mine.db", "--topic", "one.example.com", "--json")
    ran("init", "other.db", "--topic", "one.example.com", "--json")
    with serving("one.db", "--listen", "127.0.0.1:0", "--access", "access.toml", "-v") as (process, (said,)):
        url = said["urls"][0]
        assert "to connect takes a token here" in ran("sync", "mine.db", url, code=4)
        assert f"{dids['bob']} is not let in here" in ran("sync", "mine.db", url, "--key", "bob", code=4)
        assert ran("sync", "mine.db", url, "--key", "alice", "--json")["pulled"] == 2
        assert ran("append", url, "2", "--key", "alice", "--json")["clock"] == 3
        assert "is not let in here" in ran("append", url, "2", "--key", "bob", code=4)
        token = ran("token", "--for", url, "--key", "alice", "--json")["token"]
        assert "401" in ran("peers", url, code=4)
        assert CliRunner().invoke(root, ["doctor", url, "--json"], env={"GOSSIPLOG_TOKEN": token}).exit_code in (0, 7)
        with serving("other.db", "--listen", "127.0.0.1:0", "--connect", url, "--key", "alice") as (_, (below,)):
            server = below["urls"][0].replace("ws://", "http://")
            deadline = time.monotonic() + WAIT_S
            while asked(f"{server}/api/messages/count")["count"] < 3:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        journal = process.stderr.read()
        assert token not in journal
        assert "proof refused" in journal
    assert "go with --for URL" in ran("token", "--key", "alice", code=2)
    assert "--key and --token-file exclude" in ran("sync", "mine.db", url, "--key", "alice", "--token-file", "x", code=2)
    (folder / "no-api.toml").write_text('no-api = true\naccess = "access.toml"\n')
    assert "HTTP" in ran("serve", "one.db", "--config", "no-api.toml", "--check", code=2)


def test_application_and_access_rule_run_in_the_server(folder: Path) -> None:
    (folder / "board.py").write_text(
        "async def apply(entries, tx):\n"
        "    with open('applied', 'a') as file:\n"
        "        file.writelines(f'{entry.message.payload}\\n' for entry in entries)\n"
        "def rule(message, did):\n"
        "    return message.payload != 'forbidden'\n"
    )
    ran("key", "new", "me", "--json")
    with serving("one.db", "--listen", "127.0.0.1:0", "--app", "board:apply", "--authorize", "board:rule") as (_, (said,)):
        assert ran("append", said["urls"][0], '"allowed"', "--json")["clock"] == 2
        assert "answered 400: access" in ran("append", said["urls"][0], '"forbidden"', code=6)
    assert "allowed" in (folder / "applied").read_text().splitlines()
    assert "cannot import" in ran("serve", "one.db", "--app", "nowhere:apply", "--check", code=1)


def test_sigterm_ends_a_server_in_time_though_a_client_reads_nothing(folder: Path) -> None:
    with serving("one.db", "--listen", "127.0.0.1:0") as (process, (said,)):
        port = int(said["urls"][0].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as stuck:
            stuck.sendall(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert stuck.recv(15).startswith(b"HTTP/1.1 200")
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT_S)
            assert process.returncode == 0
            # Five seconds, and what a machine with much to do takes to get there.
            assert time.monotonic() - began < 15
