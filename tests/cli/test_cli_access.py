"""`access`: founders, grants, removals and standings from the command line."""

from pathlib import Path

from cli_support import SEEDS, Run

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
    assert cli("append", "team.db", "1", "--key", "bob", "--json", code=6).error["kind"] == "unauthorised"
    node = cli("access", "grant", "team.db", DIDS["bob"], "--device", "-q", "--key", "alice").out.strip()
    entry = cli("append", "-q", "team.db", "1", "--key", "bob").out.strip()
    checked = cli("access", "check", "team.db", entry[:12]).record
    assert (checked["counts"], checked["node"], checked["person"]) == (True, node, DIDS["alice"])
    revoked = cli("access", "revoke", "team.db", node[:10], "--keep-nothing", "--key", "alice").record
    assert revoked["revoke"] == node
    assert revoked["keep"] == []
    void = cli("access", "check", "team.db", entry, code=7).record
    assert (void["counts"], void["revokedBy"]) == (False, [revoked["id"]])
    assert [each["held"] for each in cli("access", "show", "team.db").lines] == [True, False]
    assert cli("access", "show", "-q", "team.db").out.split() == [DIDS["alice"]]
    cli("access", "admit", "team.db", entry[:12], "--key", "alice")
    assert cli("access", "check", "team.db", entry).record["counts"] is True
    assert [each["kind"] for each in cli("access", "log", "team.db").lines] == ["grant", "revoke", "admit"]
    assert "removed by" in cli("access", "show", "team.db", "--table").out


def test_what_cannot_be_is_said(cli: Run) -> None:
    cli("init", "plain.db", "--topic", NAME)
    assert "no members" in cli("access", "show", "plain.db", "--json", code=1).error["message"]
    assert "Ed25519" in cli("init", "team.db", "--topic", NAME, "--founder", "did:key:z6Mk", "--json", code=1).error["message"]
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
    cli("access", "grant", "team.db", DIDS["bob"], "--key", "alice")
    cli("init", "other.db", "--topic", topic)
    assert "not here yet" in cli("access", "show", "other.db", "--json", code=1).error["message"]
    assert "no policy yet" in cli("append", "other.db", "1", "--key", "bob", "--json", code=6).error["message"]
    cli("sync", "other.db", "team.db")
    cli("append", "other.db", "1", "--key", "bob")
    cli("access", "leave", "other.db", "--key", "bob")
    assert "was removed by" in cli("append", "other.db", "1", "--key", "bob", "--json", code=6).error["message"]
