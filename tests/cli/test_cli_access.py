"""`access`: founders, grants, removals and standings from the command line."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_support import SEEDS, WARM, Run

from gossiplog.entry import Ed25519Signer

NAME = "team.example.com"
DIDS = {name: Ed25519Signer.from_seed(seed).did for name, seed in SEEDS.items()}


def found(cli: Run, *more: str) -> str:
    """Make a log that alice has founded, with bob's key beside hers; return its topic."""
    cli("key", "import", "bob", input=SEEDS["bob"].hex(), code=1 if Path("team.db").exists() else 0)
    return str(cli("init", "team.db", "--topic", NAME, "--founder", DIDS["alice"], *more).record["topic"])


def test_a_member_is_let_in_and_removed(cli: Run) -> None:
    topic = found(cli)
    assert topic.startswith(f"{NAME}.")
    assert found(cli) == topic
    for append in (["1"], ["--lines"]):
        error = cli("append", "team.db", *append, "--key", "bob", "--json", input="1\n", code=6).error
        assert error["kind"] == "unauthorised"
    node = cli("access", "grant", "team.db", DIDS["bob"], "--device", "-q", "--key", "alice").out.strip()
    entry = cli("append", "-q", "team.db", "1", "--key", "bob").out.strip()
    cli("copy", "team.db", "apart.db")
    checked = cli("access", "check", "team.db", entry[:12]).record
    assert (checked["counts"], checked["node"], checked["person"]) == (True, node, DIDS["alice"])
    revoked = cli("access", "revoke", "team.db", node[:10], "--keep-nothing", "--key", "alice").record
    assert revoked["revoke"] == node
    assert revoked["keep"] == []
    void = cli("access", "check", "team.db", entry, code=7).record
    assert (void["counts"], void["revokedBy"]) == (False, [revoked["id"]])
    for command in (["log"], ["graph"], ["ancestors", str(revoked["id"])]):
        table = cli(command[0], "team.db", *command[1:], *(["--table"] if command != ["graph"] else [])).out
        (line,) = (line for line in table.splitlines() if entry[:12] in line)
        assert "(void) 1" in line, command
    late = cli("append", "-q", "apart.db", "2", "--key", "bob").out.strip()
    cli("sync", "team.db", "apart.db", "--pull")
    assert {each["id"]: each["void"] for each in cli("heads", "team.db").lines} == {late: True, revoked["id"]: False}
    assert "(void) 2" in cli("heads", "team.db", "--table").out
    assert cli("explain", "team.db", entry).record["standing"]["revokedBy"] == [revoked["id"]]
    for shown_as in ("explain", "show"):
        assert f"void by the removal {revoked['id']}" in cli(shown_as, "team.db", entry, "--table").out
    shown = cli("access", "show", "team.db").lines
    assert [each["held"] for each in shown] == [True, False]
    assert all(each.keys() == {"node", "did", "role", "person", "path", "held", "removedBy"} for each in shown)
    assert cli("access", "show", "-q", "team.db").out.split() == [DIDS["alice"]]
    cli("access", "admit", "team.db", entry[:12], "--key", "alice")
    checked = cli("access", "check", "team.db", entry).record
    assert checked["counts"] is True
    said = cli("access", "log", "team.db").lines
    assert [each["kind"] for each in said] == ["grant", "revoke", "admit"]
    assert not {"names", "revoked_by"} & {name for each in (checked, *said) for name in each}
    assert "removed by" in cli("access", "show", "team.db", "--table").out


def test_what_cannot_be_is_said(cli: Run) -> None:
    cli("init", "plain.db", "--topic", NAME)
    assert "no members" in cli("access", "show", "plain.db", "--json", code=1).error["message"]
    assert "Ed25519" in cli("init", "team.db", "--topic", NAME, "--founder", "did:key:z6Mk", "--json", code=2).error["message"]
    assert not Path("team.db").exists()
    cli("init", "team.db", "--topic", NAME, "--k", "2", code=2)
    found(cli)
    assert (
        "holds no admin's node above"
        in cli("access", "revoke", "team.db", DIDS["alice"], "--key", "bob", "--json", code=1).error["message"]
    )
    assert "no did:key" in cli("access", "grant", "team.db", "did:web:a", "--key", "alice", "--json", code=1).error["message"]
    cli("access", "revoke", "team.db", DIDS["alice"], "--keep", "0", "--keep-nothing", "--key", "alice", code=2)


def test_a_replica_joins_by_the_whole_topic(cli: Run) -> None:
    topic = found(cli)
    assert topic in cli("init", "team.db", "--topic", NAME, "--founder", DIDS["alice"], "--table").out
    cli("access", "grant", "team.db", DIDS["bob"], "--key", "alice")
    cli("init", "other.db", "--topic", topic)
    assert "not here yet" in cli("access", "show", "other.db", "--json", code=1).error["message"]
    assert "no policy yet" in cli("append", "other.db", "1", "--key", "bob", "--json", code=6).error["message"]
    cli("sync", "other.db", "team.db")
    cli("append", "other.db", "1", "--key", "bob")
    cli("access", "leave", "other.db", "--key", "bob")
    assert "was removed by" in cli("append", "other.db", "1", "--key", "bob", "--json", code=6).error["message"]


@contextmanager
def process(environment: dict[str, str], *args: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command beside the test, until the end of the block."""
    with subprocess.Popen([*WARM, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as running:
        try:
            yield running
        finally:
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=60)


def said(running: subprocess.Popen[str]) -> dict[str, Any]:
    assert running.stdout is not None
    record: dict[str, Any] = json.loads(running.stdout.readline())
    return record


@pytest.mark.slow
def test_a_code_lets_in_one_at_a_server_that_serves_members_alone(cli: Run, environment: dict[str, str]) -> None:
    found(cli)
    Path("closed.toml").write_text("[default]\nanonymous = []\n")
    with process(environment, "serve", "team.db", "--listen", "127.0.0.1:0", "--access", "closed.toml") as server:
        url = said(server)["urls"][0]
        assert "not let in" in cli("access", "show", url, "--key", "bob", "--json", code=4).error["message"]
        with process(environment, "access", "invite", url, "--device", "--role", "admin", "--key", "alice", "--json") as inviting:
            code = said(inviting)["code"]
            wrong = cli("access", "join", url, code[::-1], "--key", "bob", "--json", code=4).error["message"]
            assert "not let in" in wrong
            node = cli("access", "join", url, code.replace("-", "").lower(), "--role", "admin", "--key", "bob", "-q").out.strip()
            assert said(inviting) == {"node": node, "did": DIDS["bob"], "role": "admin"}
            assert inviting.wait(60) == 0
        again = ("access", "join", url, code, "--role", "admin", "--key", "bob", "--json")
        assert "not let in" in cli(*again, code=4).error["message"]
        members = cli("access", "show", url, "--key", "bob").lines
        assert [(each["did"], each["held"], each["person"]) for each in members if each["did"] in DIDS.values()] == [
            (DIDS["alice"], True, DIDS["alice"]),
            (DIDS["bob"], True, DIDS["alice"]),
        ]
        assert len(members) == 3 and cli("access", "grant", url, DIDS["alice"], "--key", "bob", "-q").out.strip()


@pytest.mark.slow
def test_a_code_is_refused_for_another_role_and_still_lets_in_for_its_own(cli: Run, environment: dict[str, str]) -> None:
    found(cli)
    with process(environment, "access", "invite", "team.db", "--key", "alice", "--json") as inviting:
        code = said(inviting)["code"]
        error = cli("access", "join", "team.db", code, "--role", "admin", "--key", "bob", "--json", code=6).error
        assert "not for the role admin" in error["message"] and "--role" in error["hint"]
        node = cli("access", "join", "team.db", code, "--key", "bob", "-q").out.strip()
        assert said(inviting) == {"node": node, "did": DIDS["bob"], "role": "write"}
        assert inviting.wait(60) == 0
    assert [each["node"] for each in cli("access", "show", "team.db").lines if each["held"]] == [DIDS["alice"], node]


@pytest.mark.slow
def test_a_code_is_worth_nothing_when_its_time_is_over(cli: Run, environment: dict[str, str]) -> None:
    found(cli)
    with process(environment, "access", "invite", "team.db", "--minutes", "0.02", "--key", "alice", "--json") as inviting:
        code = said(inviting)["code"]
        assert inviting.wait(60) == 6
    assert "its time is over" in cli("access", "join", "team.db", code, "--key", "bob", "--json", code=6).error["message"]
    with process(environment, "access", "invite", "team.db", "--key", "alice", "--json") as inviting:
        said(inviting)
    assert [each["held"] for each in cli("access", "show", "team.db").lines] == [True, False, False]
    assert "16 letters and digits" in cli("access", "join", "team.db", "K7QX", "--key", "bob", "--json", code=1).error["message"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["told to end", "the terminal closed"])
def test_an_inviter_that_is_told_to_end_takes_the_code_away(cli: Run, environment: dict[str, str], number: int) -> None:
    found(cli)
    with process(environment, "access", "invite", "team.db", "--key", "alice", "--json") as inviting:
        node = said(inviting)["node"]
        inviting.send_signal(number)
        assert inviting.wait(60) == 6
    assert [each["held"] for each in cli("access", "show", "team.db").lines if each["node"] == node] == [False]


@pytest.mark.slow
def test_a_server_may_restart_while_somebody_is_invited_and_only_one_of_two_is_let_in(cli: Run, environment: dict[str, str]) -> None:
    found(cli)
    cli("key", "new", "carol")
    with process(environment, "serve", "team.db", "--listen", "127.0.0.1:0") as server:
        url = said(server)["urls"][0]
        inviting = process(environment, "access", "invite", url, "--key", "alice", "--json")
        running = inviting.__enter__()
        code = said(running)["code"]
    time.sleep(2)
    assert running.poll() is None
    with process(environment, "serve", "team.db", "--listen", url.removeprefix("ws://")) as server:
        said(server)
        wrong = ("join", url, code[:-1] + ("0" if code[-1] != "0" else "1"), "--key", "carol", "--json")
        assert "belongs to no invitation" in cli("access", *wrong, code=6).error["message"]
        joins = [[*WARM, "access", "join", url, code, "--key", name, "--json"] for name in ("bob", "carol")]
        with contextlib.ExitStack() as stack:
            both = [stack.enter_context(subprocess.Popen(join, stderr=subprocess.PIPE, text=True, env=environment)) for join in joins]
            errors = [each.communicate(timeout=60)[1] for each in both]
        assert running.wait(60) == 0
        inviting.__exit__(None, None, None)
        # Whoever comes last may find that the code was used, rather than that somebody else was let in by it.
        assert sorted(each.returncode for each in both) == [0, 6], errors
        assert "the code" in errors[0] + errors[1]
        assert "was used" in cli("access", "join", url, code, "--key", "bob", "--json", code=6).error["message"]
        members = cli("access", "show", url).lines
        assert sum(each["held"] for each in members) == 2


def test_a_clumsy_founder_is_stopped(cli: Run) -> None:
    found(cli)
    cli("access", "grant", "team.db", DIDS["bob"], "--key", "alice")
    assert "already" in cli("access", "grant", "team.db", DIDS["bob"], "--key", "alice", "--json", code=1).error["message"]
    cli("access", "grant", "team.db", DIDS["bob"], "--role", "admin", "--key", "alice")
    assert cli("access", "revoke", "team.db", DIDS["bob"], "--key", "alice", "--json", code=1).error["hint"].startswith("name one of them")
    assert "founder" in cli("access", "leave", "team.db", "--key", "alice", "--json", code=1).error["message"]
    cli("access", "leave", "team.db", DIDS["alice"], "--key", "alice")
    assert "holds no node" in cli("access", "leave", "team.db", "--key", "alice", "--json", code=1).error["message"]


def test_a_did_is_drawn_as_a_qr_code(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    segno = pytest.importorskip("segno", reason="pip install 'gossiplog[qr]'")
    found(cli)
    drawn = cli("key", "show", "alice", "-q", "--qr")
    assert drawn.out.strip() == DIDS["alice"]
    modules = [list(row) for row in segno.make(DIDS["alice"], micro=False).matrix_iter(border=2)]
    bits = [[(0b00, 0b01, 0b10, 0b11)[" ▄▀█".index(each)] for each in line] for line in drawn.err.splitlines()]
    assert [[pair >> shift & 1 for pair in line] for line in bits for shift in (1, 0)][: len(modules)] == modules
    monkeypatch.setitem(sys.modules, "segno", None)
    # Nobody is invited then.
    assert "needs segno" in cli("access", "invite", "team.db", "--qr", "--key", "alice", "--json", code=1).error["message"]
    assert len(cli("access", "show", "team.db").lines) == 1


def test_what_a_removed_member_brings_by_file_is_void_and_is_shown_as_that(cli: Run) -> None:
    """A friend colludes: it takes the backdated entries, builds on them, and hands out its copy as CAR, lines and a database."""
    topic = found(cli)
    cli("key", "new", "carol")
    carol = cli("key", "show", "carol", "-q").out.strip()
    place = cli("access", "grant", "team.db", DIDS["bob"], "--role", "admin", "--key", "alice", "-q").out.strip()
    cli("access", "grant", "team.db", carol, "--key", "alice", "-q")
    for copy in ("bob.db", "carol.db"):
        cli("init", copy, "--topic", topic)
        cli("sync", copy, "team.db")
    removal = cli("access", "revoke", "team.db", place, "--key", "alice", "-q").out.strip()
    late = cli("append", "bob.db", '"backdated"', "--key", "bob", "-q").out.strip()
    key = cli("access", "grant", "bob.db", DIDS["alice"], "--role", "admin", "--key", "bob", "-q").out.strip()
    back = cli("access", "revoke", "bob.db", carol, "--key", "bob", "--json", code=1).error["message"]
    assert "holds no admin's node above" in back
    cli("sync", "carol.db", "bob.db")
    upon = cli("append", "carol.db", '"upon it"', "--key", "carol", "-q").out.strip()
    for number, kind in enumerate(("car", "jsonl")):
        cli("export", "carol.db", "-o", f"carol.{kind}")
        cli("init", f"copy{number}.db", "--topic", topic)
        cli("sync", f"copy{number}.db", "team.db")
        for _ in range(2):
            cli("import", f"copy{number}.db", f"carol.{kind}")
    cli("sync", "team.db", "carol.db")
    roots = {cli("stat", log, "--json").record["root"]["hash"] for log in ("team.db", "copy0.db", "copy1.db")}
    assert len(roots) == 1
    for log in ("team.db", "copy0.db", "copy1.db"):
        for id in (late, key):
            checked = cli("access", "check", log, id, "--json", code=7).lines[0]
            assert (checked["counts"], checked["revokedBy"]) == (False, [removal])
            assert removal in checked["reason"]
        assert cli("access", "check", log, upon, "--json").lines[0]["counts"]
        assert {each["id"]: each["counts"] for each in cli("access", "log", log, "--json").lines}[key] is False
        held = [each["did"] for each in cli("access", "show", log, "--json").lines if each["held"]]
        assert held == [DIDS["alice"], carol]
