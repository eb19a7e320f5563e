"""`gossiplog serve` as a process, and the commands that talk to it."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner
from damage_support import damage
from network_support import answering, make_certificate, signer
from ports import free_port

import gossiplog
from gossiplog.cli.app import root

REPOSITORY = Path(__file__).parents[2]
TOPIC = "cli.example"
WAIT_S = 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_gossiplog: None) -> Path:
    """A folder to be in, with three logs: two with entries of their own, an empty one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    # What a server does to the log of its process is undone after a test that runs it in ours.
    logger = logging.getLogger("gossiplog")
    for attribute in ("handlers", "level", "propagate"):
        monkeypatch.setattr(logger, attribute, getattr(logger, attribute))
    for name, count in (("hub", 30), ("app", 20), ("empty", 0)):
        make_log(f"{name}.db", TOPIC, count)
    return tmp_path


def make_log(path: str, topic: str, count: int) -> None:
    async def make() -> None:
        async with gossiplog.open(path, topic=topic, signer=signer(1)) as log:
            await log.append_many([f"{path} {n}" for n in range(count)])

    trio.run(make)


def count_of(path: str) -> int:
    async def count() -> int:
        async with gossiplog.open(path, create=False) as log:
            assert (await log.fsck()).is_clean
            return await log.count()

    return trio.run(count)


def wait_for_count(path: str, count: int) -> None:
    """Wait until the log that another process writes has so many entries, however they came."""

    async def wait() -> None:
        async with gossiplog.open(path, create=False, read_only=True) as log:
            with trio.fail_after(WAIT_S):
                while await log.count() < count:
                    await trio.sleep(0.02)

    trio.run(wait)


def ran(*args: str, code: int = 0) -> list[Any]:
    """Run a command to its end, in this process; return the lines of JSON that it printed."""
    done = CliRunner().invoke(root, args, prog_name="gossiplog")
    assert done.exit_code == code, f"{args}: {done.exit_code}\n{done.stdout}\n{done.stderr}"
    return [json.loads(line) for line in done.stdout.splitlines()] if code == 0 else [json.loads(done.stderr.splitlines()[-1])]


def command(*args: str) -> list[str]:
    return ["gossiplog", *args]


@contextmanager
def serving(*args: str, code: int = 0, program: Sequence[str] = ("gossiplog",)) -> Iterator[dict[str, Any]]:
    """Run `gossiplog serve` for the length of a block; yields what it says first, and `log`, filled with its log at the end."""
    process = subprocess.Popen([*program, "serve", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said: dict[str, Any] = {"pid": process.pid}
    try:
        said |= json.loads(process.stdout.readline())
        yield said
    finally:
        process.send_signal(signal.SIGINT)
        _, said["log"] = process.communicate(timeout=WAIT_S)
    assert process.returncode == code, said["log"]


def test_a_damaged_log_is_healed_from_a_hub(folder: Path) -> None:
    ran("copy", "hub.db", "bad.db", "--json")
    damage(folder / "bad.db", "UPDATE gossiplog_entries SET value = x'00' WHERE seq = 3", "DELETE FROM gossiplog_entries WHERE seq = 20")
    (folder / "torn.db").write_bytes(bytes(4096) + (folder / "bad.db").read_bytes()[4096:])
    with serving("hub.db", "--listen", "127.0.0.1:0") as server:
        for name, is_rebuilt in (("bad.db", False), ("torn.db", True)):
            (report,) = ran("sync", name, server["urls"][0], "--heal", "--json")
            assert report["equal"] and report["healed"]["clean"] and report["healed"]["waiting"] == 0
            assert (report["healed"]["damagedFile"] is not None) is is_rebuilt
            assert count_of(name) == 30


def test_sync_with_a_server_moves_entries_both_ways_once(folder: Path) -> None:
    with serving("hub.db", "--listen", "127.0.0.1:0") as server:
        assert (server["serving"], server["entries"]) == (TOPIC, 30)
        (done,) = ran("sync", "app.db", server["urls"][0], "--json")
        assert (done["pulled"], done["pushed"], done["equal"]) == (30, 20, True)
        assert done["roundTrips"] >= 1
        assert done["bytesPerEntry"] > 100
        assert done["seconds"] > 0
        (again,) = ran("sync", "app.db", server["urls"][0], "--json")
        assert (again["pulled"], again["pushed"], again["roundTrips"]) == (0, 0, 1)
        (count,) = [json.loads(urllib.request.urlopen(server["urls"][0].replace("ws", "http", 1) + "/api/messages/count").read())]
        assert count == {"count": 50}
    assert count_of("hub.db") == count_of("app.db") == 50
    assert "Traceback" not in server["log"]


SMALL_DISK = """
import subprocess, sys
from gossiplog.cli import main

COMMAND = [sys.executable, "-m", "gossiplog"]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", "small"], check=True)
if "init" in sys.argv:
    assert not subprocess.run([*COMMAND, "init", "small/app.db", "--topic", sys.argv.pop()]).returncode
    sys.argv.remove("init")
try:
    main()
finally:
    subprocess.run(["mount", "-o", "remount,size=9m", "small"], check=True)
    subprocess.run([*COMMAND, *sys.argv[1:]], stdout=subprocess.DEVNULL, check=True)
    subprocess.run([*COMMAND, "stat", "small/app.db", "--json"], check=True)
"""
"""A disk that nobody else sees, and that is gone with the process; it is enlarged for the second run."""


@pytest.mark.slow
def test_every_command_that_fills_a_log_says_that_the_disk_is_full_and_goes_on_later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSIPLOG_KEY_DIR", str(folder / "keys"))
    make_log("large.db", TOPIC, 4_000)
    ran("key", "new", "laptop")
    ran("publish", "large.db", "bucket")
    ran("export", "large.db", "-o", "large.jsonl")
    Path("small").mkdir()
    alone = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--mount"]
    if subprocess.run([*alone, "mount", "-t", "tmpfs", "none", "small"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a small disk, not even in a namespace")
    with serving("large.db", "--listen", "127.0.0.1:0") as server:
        (url,) = server["urls"]
        for args in (
            ("copy", "large.db", "small/app.db"),
            ("clone", "bucket", "small/app.db"),
            ("import", "small/app.db", "large.jsonl", "init", TOPIC),
            ("sync", "small/app.db", "large.db", "init", TOPIC),
            ("sync", "small/app.db", "bucket", "--pull", "init", TOPIC),
            ("sync", "small/app.db", url, "init", TOPIC),
            ("publish", "large.db", "small/app.db"),
            ("sync", "large.db", "small/app.db/", "--push"),
        ):
            full = subprocess.run([*alone, sys.executable, "-c", SMALL_DISK, *args], capture_output=True, text=True, check=False)
            assert full.returncode == 5, (args, full.stderr)
            (error,) = [line for line in full.stderr.splitlines() if line.startswith("error")]
            assert re.search("no space left for small/app.db|small/app.db/.*: No space left on device", error), error
            assert json.loads(full.stdout.splitlines()[-1])["count"] == 4_000


def test_a_dry_run_tells_what_a_sync_with_a_server_would_move_and_cost(folder: Path) -> None:
    with serving("hub.db", "--listen", "127.0.0.1:0") as server:
        (told,) = ran("sync", "app.db", server["urls"][0], "--dry-run", "--json")
        assert (told["pulled"], told["pushed"], told["dryRun"]) == (30, 20, True)
        assert count_of("app.db") == 20
        (done,) = ran("sync", "app.db", server["urls"][0], "--json")
        assert (done["pulled"], done["pushed"]) == (30, 20)
        assert told["bytesExpected"] == pytest.approx(done["bytesSent"] + done["bytesReceived"], rel=0.25)


def test_peers_tell_what_cannot_be_reached(folder: Path) -> None:
    port = free_port()
    with serving("hub.db", "--listen", "127.0.0.1:0", "--connect", f"ws://127.0.0.1:{port}") as server:
        (url,) = server["urls"]
        while not (troubles := ran("peers", url)):
            pass
        assert troubles[0]["dial"]["address"] == f"ws://127.0.0.1:{port}"
        shown = CliRunner().invoke(root, ["peers", url, "--table"]).stdout
        assert f"cannot reach ws://127.0.0.1:{port}: " in shown
        with subprocess.Popen(command("peers", url, "--watch", "--json"), stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stdout is not None
            tries = [json.loads(watching.stdout.readline())["dial"]["tries"] for _ in range(3)]
            watching.send_signal(signal.SIGINT)
        assert tries == sorted(tries)


def test_facts_of_a_running_server_are_in_its_file(folder: Path) -> None:
    with serving("hub.db", "--listen", "127.0.0.1:0", "--facts", "facts.jsonl") as server:
        ran("sync", "app.db", server["urls"][0], "--json")
    facts = [json.loads(line) for line in Path("facts.jsonl").read_text("utf-8").splitlines()]
    assert [fact["seq"] for fact in facts] == list(range(len(facts)))
    kinds = [fact["kind"] for fact in facts]
    assert (kinds[0], kinds[-1], kinds.count("deliver")) == ("start", "stop", 20)


def test_page_appends_what_a_key_of_the_keyring_signs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSIPLOG_KEY_DIR", str(folder / "keys"))
    options = ["hub.db", "--listen", "127.0.0.1:0", "--dashboard", "--dashboard-append"]
    without = CliRunner().invoke(root, ["serve", *options])
    assert without.exit_code != 0 and "no key to sign with" in without.output
    (did,) = (key["did"] for key in ran("key", "new", "ann", "--json"))
    with serving(*options) as server:
        url = server["urls"][0].replace("ws://", "http://") + "/api/append"
        request = urllib.request.Request(url, b'{"payload": "from the page"}', {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            id = json.load(answer)["id"]
    (shown,) = ran("show", "hub.db", id, "--json")
    assert shown["message"]["payload"] == "from the page"
    assert did in json.dumps(shown)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--dashboard-append"], "needs --dashboard"),
        (["--key", "ann"], "needs --dashboard-append"),
        (["--dashboard", "--no-api"], "needs HTTP"),
        (["--dashboard", "--dashboard-watch", "nowhere"], "what `gossiplog serve` prints"),
        (["--facts", "none/facts.jsonl"], "No such file"),
    ],
)
def test_options_of_looking_in_that_come_to_nothing_are_refused(folder: Path, options: list[str], said: str) -> None:
    result = CliRunner().invoke(root, ["serve", "hub.db", *options])
    assert result.exit_code == 2 and said in result.output


def test_peers_of_a_running_server_are_listed(folder: Path) -> None:
    with serving("hub.db", "--listen", "127.0.0.1:0") as server:
        (url,) = server["urls"]
        assert ran("peers", url) == []
        with subprocess.Popen(command("sync", "app.db", url, "--follow"), stderr=subprocess.DEVNULL) as follower:
            while not (links := ran("peers", url)):
                assert follower.poll() is None
            follower.send_signal(signal.SIGINT)
        (link,) = links
        assert (link["kind"], link["outbound"], link["address"]) == ("client", False, "127.0.0.1")
        (failure,) = ran("peers", f"{url}/no/such/place", "--json", code=4)
        assert "404" in failure["error"]["message"]
    (failure,) = ran("peers", url, "--json", code=4)
    assert failure["error"]["kind"] == "cannot-connect"
    (failure,) = ran("peers", "app.db", "--json", code=2)
    assert "not the URL of a server" in failure["error"]["message"]


@pytest.mark.parametrize(
    "answer", ["{}", "7", '["x"]', "[{}]", '[{"peer":1,"since":"now"}]', '[{"peer":1,"counts":7}]', "[{", '[{"peer":1,"since":1e99}]']
)
def test_server_that_answers_peers_with_something_else_is_said_to(answer: str) -> None:
    with answering(answer) as url:
        result = CliRunner().invoke(root, ["peers", url, "--json"])
    assert result.exit_code == 4
    assert json.loads(result.stderr)["error"]["kind"] in ("protocol", "cannot-connect")


def test_directions_are_kept_apart(folder: Path) -> None:
    with serving("hub.db", "--listen", "127.0.0.1:0") as server:
        (pulled,) = ran("sync", "empty.db", server["urls"][0], "--pull", "--json")
        assert (pulled["pulled"], pulled["pushed"], pulled["equal"]) == (30, None, True)
        (pushed,) = ran("sync", "app.db", server["urls"][0], "--push", "--json")
        assert (pushed["pulled"], pushed["pushed"], pushed["equal"]) == (None, 20, False)


def test_ctrl_c_ends_a_server_in_good_order(folder: Path) -> None:
    with serving("hub.db", "--listen", "127.0.0.1:0", "--log-format", "json") as server:
        ran("sync", "app.db", server["urls"][0])
    events = [json.loads(line) for line in server["log"].splitlines() if line.startswith("{")]
    assert {"client connected", "client gone"} <= {event["event"] for event in events}
    assert all(event["time"].endswith("Z") and event["level"] for event in events)
    # What was received is stored, and the file is whole and free.
    assert count_of("hub.db") == 50


def test_follow_stays_and_brings_what_is_new(folder: Path) -> None:
    with serving("hub.db", "--listen", "127.0.0.1:0") as server, serving_follow("empty.db", server["urls"][0]):
        # A third replica gives the hub something, which the follower gets.
        ran("sync", "app.db", server["urls"][0])
        url = server["urls"][0].replace("ws", "http", 1)
        (link,) = [each for each in json.loads(urllib.request.urlopen(f"{url}/api/connections").read()) if each["pushing"]]
        assert link["kind"] == "client"
        wait_for_count("empty.db", 50)
    assert count_of("hub.db") == count_of("empty.db") == 50


class Follower:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def wait_for(self, text: str) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if text in line:
                return
        raise AssertionError(f"{text!r} was not logged")


@contextmanager
def serving_follow(log: str, url: str) -> Iterator[Follower]:
    process = subprocess.Popen(command("sync", log, url, "--follow"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    follower = Follower(process)
    try:
        follower.wait_for("synced")
        yield follower
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT_S)
    assert process.returncode == 0


def test_servers_are_chained_and_several_logs_have_paths(folder: Path) -> None:
    make_log("chat.db", "chat.example", 1)
    with serving("hub.db", "chat.db", "--listen", "127.0.0.1:0") as server:
        assert server["urls"][0].endswith(f"/{TOPIC}")
        with serving("app.db", "--listen", "127.0.0.1:0", "--connect", server["urls"][0]) as chained:
            # The chained server is itself still pulling: what it serves grows, until it has what the hub has.
            attempts = (ran("sync", "empty.db", chained["urls"][0], "--json")[0] for _ in range(WAIT_S))
            assert any(done["equal"] and count_of("empty.db") == 50 for done in attempts)
        base = server["urls"][0].removesuffix(f"/{TOPIC}")
        assert ran("sync", "empty.db", f"{base}/none", "--json", code=4)[0]["error"]["kind"] == "cannot-connect"


def test_tls_is_served_and_checked(folder: Path) -> None:
    cert, key = make_certificate(folder)
    with serving("hub.db", "--listen", "127.0.0.1:0", "--tls-cert", str(cert), "--tls-key", str(key)) as server:
        url = server["urls"][0]
        assert url.startswith("wss://")
        assert ran("sync", "app.db", url, "--tls-ca", str(cert), "--json")[0]["equal"]
        assert "TLS" in ran("sync", "app.db", url, "--json", code=4)[0]["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (("serve", "none.db"), 1, "log-not-found"),
        (("serve", "hub.db", "--listen", "nonsense"), 2, "usage"),
        (("serve", "hub.db", "--listen", "nonsense", "--check"), 2, "usage"),
        (("witness", "folder", "--name", "w", "--anybody", "--listen", "nonsense"), 2, "usage"),
        (("testnet", "--listen", "nonsense"), 2, "usage"),
        (("sim", "play", "app.db", "--listen", "nonsense"), 2, "usage"),
        (("spark", "diff", "app.db", ""), 2, "usage"),
        (("export", "app.db", "-o", "app.parquet", "--columns", "id,none"), 2, "usage"),
        (("stat", "app.db", "--topic", "t.example.com"), 2, "usage"),
        (("serve", "hub.db", "--tls-key", "x.pem"), 2, "usage"),
        (("serve", "hub.db", "--tls-cert", "none.pem"), 2, "tls"),
        (("sync", "app.db", "ws://127.0.0.1:9"), 4, "cannot-connect"),
        (("sync", "app.db", "http://127.0.0.1:9"), 2, "usage"),
        (("sync", "app.db", "ws://127.0.0.1:9", "--dry-run"), 4, "cannot-connect"),
        (("sync", "app.db", "ws://127.0.0.1:9", "--dry-run", "--follow"), 2, "usage"),
        (("sync", "app.db", "hub.db", "--follow"), 2, "usage"),
    ],
)
def test_mistakes_have_their_exit_codes(folder: Path, arguments: tuple[str, ...], code: int, kind: str) -> None:
    done = CliRunner().invoke(root, [*arguments, "--json"], prog_name="gossiplog")
    assert done.exit_code == code, done.stderr
    error = json.loads(done.stderr)["error"]
    assert error["kind"] == kind
    assert error["message"]


def test_address_in_use_says_so(folder: Path) -> None:
    with serving("hub.db", "--listen", "127.0.0.1:0") as server:
        address = server["urls"][0].removeprefix("ws://")
        error = ran("serve", "app.db", "--listen", address, "--json", code=4)[0]["error"]
        assert error["kind"] == "cannot-listen"
        assert "in use" in error["message"]


def test_bootstrap_peer_that_is_not_there_is_said_to_be_missing_once(folder: Path) -> None:
    missing = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWPjceQrSwdWXPyLLeABRXmuqt69Rg3sBYbU1Nft9HyQ6X"
    serving = command("serve", "app.db", "--bootstrap", missing, "--log-format", "json", "--verbose")
    with subprocess.Popen(serving, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        events = (json.loads(line) for line in process.stderr)
        failures = (event for event in events if event["event"] == "peer not reached")
        tries = [(event["level"], event["address"], event["reason"]) for event in islice(failures, 2)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT_S)
    assert tries == [("warning", missing, "Connection refused"), ("debug", missing, "Connection refused")]
    (failure,) = ran("serve", "app.db", "--verbose", "--quiet", "--json", code=2)
    assert "--verbose" in failure["error"]["message"]


def test_hub_that_is_damaged_is_said_to_be_with_advice_that_can_be_followed(folder: Path) -> None:
    with sqlite3.connect("hub.db") as database:
        ((value,),) = database.execute("SELECT value FROM gossiplog_entries WHERE seq = 20").fetchall()
        database.execute("UPDATE gossiplog_entries SET value = ? WHERE seq = 20", (value.replace(b"hub.db 19", b"hub.db 91"),))
    database.close()
    with serving("hub.db", "--listen", "127.0.0.1:0") as server:
        (url,) = server["urls"]
        for _ in range(2):
            done = CliRunner().invoke(root, ["sync", "empty.db", url, "--json"], prog_name="gossiplog")
            assert done.exit_code in (3, 5)
            told = json.loads(done.stdout or "{}").get("leftOut") or json.loads(done.stderr)["error"]
            assert told.get("reason") or told.get("rejected") or told["message"]
            assert f"verify {url}" not in done.stdout + done.stderr


def test_log_that_is_served_cannot_be_appended_to_and_what_can_be_done_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSIPLOG_KEY_DIR", str(folder / "keys"))
    ran("key", "new", "me", "--json")
    # A process of its own: its number is told.
    with serving("hub.db", "--listen", "127.0.0.1:0", program=(sys.executable, "-m", "gossiplog")) as server:
        (refused,) = ran("append", "hub.db", "1", "--json", code=1)
        assert (refused["error"]["kind"], str(server["pid"]) in refused["error"]["message"]) == ("busy", True)
        assert "gossiplog sync" in refused["error"]["hint"]
        # Which works.
        ran("append", "empty.db", "1", "--json")
        (done,) = ran("sync", "empty.db", server["urls"][0], "--json")
        assert (done["pushed"], done["equal"], done["leftOut"]) == (1, True, None)
    assert count_of("hub.db") == 31


def test_members_are_decided_through_a_server_with_its_own_authority_and_a_token(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSIPLOG_KEY_DIR", str(folder / "keys"))
    ((founder,), (other,)) = ((key["did"] for key in ran("key", "new", name, "--json")) for name in ("founder", "other"))
    ran("init", "team.db", "--topic", "team.example.com", "--founder", founder, "--json")
    (token,) = ran("token", "x", "--json")
    (folder / "x.token").write_text(token["token"])
    (folder / "members.toml").write_text(
        f"[default]\nanonymous = []\ntokens.x = ['connect', 'pull', 'push', 'post']\n[tokens]\nx = '{token['hash']}'\n"
    )
    cert, key = make_certificate(folder)
    tls = ("--tls-cert", str(cert), "--tls-key", str(key))
    with serving("team.db", "--listen", "127.0.0.1:0", "--access", "members.toml", *tls) as server:
        (url,) = server["urls"]
        reach = ("--tls-ca", str(cert), "--token-file", "x.token", "--json")
        ran("access", "grant", url, other, "--key", "founder", *reach)
        assert len(ran("access", "show", url, *reach)) == 2
        assert ran("access", "show", url, "--json", code=4)[0]["error"]["kind"] == "cannot-connect"
    assert "for a server" in ran("access", "show", "team.db", *reach, code=2)[0]["error"]["message"]


def test_members_are_decided_through_a_running_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is locked by its server; what is signed here is taken there, and a member who was removed is refused."""
    monkeypatch.setenv("GOSSIPLOG_KEY_DIR", str(folder / "keys"))
    ((founder,), (other,)) = ((key["did"] for key in ran("key", "new", name, "--json")) for name in ("founder", "other"))
    ran("init", "team.db", "--topic", "team.example.com", "--founder", founder, "--json")
    (folder / "members.toml").write_text("[default]\nanonymous = []\n")
    with serving("team.db", "--listen", "127.0.0.1:0", "--access", "members.toml") as server:
        (url,) = server["urls"]
        (granted,) = ran("access", "grant", url, other, "--role", "read", "--key", "founder", "--json")
        assert [each["role"] for each in ran("access", "show", url, "--key", "founder", "--json")] == ["admin", "read"]
        (revoked,) = ran("access", "revoke", url, granted["id"][:10], "--key", "founder", "--json")
        assert [each["kind"] for each in ran("access", "log", url, "--key", "founder", "--json")] == ["grant", "revoke"]
        (checked,) = ran("access", "check", url, revoked["id"], "--key", "founder", "--json")
        assert checked["counts"] is True
        ran("access", "grant", url, other, "--key", "other", "--json", code=4)
    assert [each["held"] for each in ran("access", "show", "team.db", "--json")] == [True, False]
