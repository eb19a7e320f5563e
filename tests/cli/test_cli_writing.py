"""init, append and the keys."""

import stat
from pathlib import Path

import pytest
from cli_support import SEEDS, TOPIC, Run

from gossiplog.entry import Ed25519Signer


def test_init_creates_a_log_once(cli: Run) -> None:
    assert cli("init", "app.db", "--topic", TOPIC).record == {"log": "app.db", "topic": TOPIC, "created": True}
    assert cli("init", "app.db", "--topic", TOPIC).record["created"] is False
    assert cli("init", "app.db", "--topic", "other", "--json", code=1).error["kind"] == "topic-mismatch"


@pytest.mark.parametrize("topic", ["", "a b", "..", "x" * 129, "é"])
def test_init_refuses_what_is_no_topic(cli: Run, topic: str) -> None:
    assert cli("init", "app.db", "--topic", topic, code=2).out == ""
    assert not Path("app.db").exists()


def test_append_prints_the_id_that_the_log_then_has(cli: Run, app: str) -> None:
    record = cli("append", app, '{"op":"set"}').record
    assert record["clock"] == 6
    shown = cli("show", app, record["id"], "--json").record
    assert shown["message"]["payload"] == {"op": "set"}
    assert shown["signature"]["publicKey"] == Ed25519Signer.from_seed(SEEDS["alice"]).did


def test_append_quietly_prints_the_id_alone(cli: Run, app: str) -> None:
    id = cli("append", "-q", app, "1").out
    assert cli("heads", "-q", app).out == id


@pytest.mark.parametrize("args", [(), ("-",)])
def test_append_reads_stdin(cli: Run, app: str, args: tuple[str, ...]) -> None:
    id = cli("append", app, *args, input='\n {"from": "stdin"}\n').record["id"]
    assert cli("show", app, id, "--json").record["message"]["payload"] == {"from": "stdin"}


def test_append_takes_bytes_links_and_javascript_numbers(cli: Run, app: str) -> None:
    cid = "bafyreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
    payload = f'{{"a":{{"/":{{"bytes":"aGk"}}}},"b":{{"/":"{cid}"}},"c":1.0}}'
    id = cli("append", app, payload).record["id"]
    shown = cli("show", app, id, "--json").record["message"]["payload"]
    assert shown == {"a": {"/": {"bytes": "aGk"}}, "b": {"/": cid}, "c": 1}


@pytest.mark.parametrize("payload", ["hello", "{", '{"a":1,"a":2}', "NaN", "1e999", '{"/":5} x', "[" * 100_000, '"\\ud800"'])
def test_append_refuses_what_is_no_payload_and_adds_nothing(cli: Run, app: str, payload: str) -> None:
    assert cli("append", app, payload, "--json", code=1).error["kind"] == "payload"
    assert cli("stat", app).record["count"] == 5


def test_append_names_the_path_of_what_cannot_be_stored(cli: Run, app: str) -> None:
    error = cli("append", app, '{"list":[{"__proto__":1}]}', "--json", code=1).error
    assert "$.list[0]" in error["message"]


def test_append_lines_says_which_line_was_bad_and_keeps_those_before(cli: Run, app: str) -> None:
    ran = cli("append", app, "--lines", "--json", input='"six"\n\n"seven"\nnot json\n"nine"\n', code=1)
    assert len(ran.lines) == 2
    assert ran.error["message"].startswith("line 4:")
    assert "lines 1 to 3 are kept" in ran.error["hint"]
    assert "tail -n +4" in ran.error["hint"]
    assert cli("stat", app).record["count"] == 7


def test_append_lines_keeps_the_lines_before_one_that_is_too_large(cli: Run, app: str) -> None:
    ran = cli("append", app, "--lines", input='"six"\n"' + "x" * 70_000 + '"\n"eight"\n', code=1)
    assert ran.err.startswith("error: line 2:")
    assert cli("stat", app).record["count"] == 6


def test_append_lines_commits_in_batches(cli: Run, app: str) -> None:
    ran = cli("append", app, "--lines", "--batch", "3", input="".join(f"{n}\n" for n in range(10)))
    assert [line["clock"] for line in ran.lines] == list(range(6, 16))


def test_append_without_a_key_says_how_to_make_one(cli: Run, app: str, tmp_path: Path) -> None:
    (tmp_path / "keys" / "alice.pem").unlink()
    error = cli("append", app, "1", "--json", code=1).error
    assert error["kind"] == "key"
    assert "gossiplog key new" in error["hint"]


def test_append_with_several_keys_wants_one_chosen(cli: Run, app: str) -> None:
    cli("key", "new", "zoe")
    assert "--key alice" in cli("append", app, "1", code=1).err
    id = cli("append", app, "1", "--key", "zoe").record["id"]
    did = cli("key", "show", "zoe").record["did"]
    assert cli("show", app, id, "--json").record["signature"]["publicKey"] == did


def test_append_to_a_log_that_is_missing_says_how_to_create_it(cli: Run) -> None:
    error = cli("append", "none.db", "1", "--json", code=1).error
    assert error["kind"] == "log-not-found"
    assert error["message"] == "no log at none.db"
    assert "gossiplog init none.db --topic" in error["hint"]


def test_payload_and_lines_together_are_wrong_usage(cli: Run, app: str) -> None:
    assert cli("append", app, "1", "--lines", "--json", code=2).error["kind"] == "usage"


def test_key_new_makes_a_private_file(cli: Run, tmp_path: Path) -> None:
    record = cli("key", "new", "laptop").record
    assert record["did"].startswith("did:key:z6Mk")
    assert stat.S_IMODE(Path(record["file"]).stat().st_mode) == 0o600
    assert {line["name"] for line in cli("key", "list").lines} == {"alice", "laptop"}
    cli("key", "new", "laptop", code=1)


def test_key_that_others_can_read_is_listed_as_unusable(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "keys" / "alice.pem").chmod(0o644)
    ran = cli("key", "list", code=1)
    assert "error" in ran.record
    assert "chmod 600" in cli("key", "show", "alice", code=1).err


def test_key_goes_out_and_in_again_with_a_passphrase(cli: Run) -> None:
    cli("key", "export", "alice", "-o", "a.pem", "--passphrase", input="secret\nsecret\n")
    assert stat.S_IMODE(Path("a.pem").stat().st_mode) == 0o600
    assert "ENCRYPTED" in Path("a.pem").read_text()
    imported = cli("key", "import", "again", "a.pem", input="secret\n").out
    assert Ed25519Signer.from_seed(SEEDS["alice"]).did in imported
    cli("key", "import", "never", "a.pem", input="wrong\n", code=1)
    cli("key", "export", "alice", "-o", "a.pem", code=1)


def test_key_is_imported_from_a_seed_on_stdin(cli: Run) -> None:
    assert cli("key", "import", "bob", input=SEEDS["bob"].hex() + "\n").record["did"] == Ed25519Signer.from_seed(SEEDS["bob"]).did


@pytest.mark.parametrize("text", ["", "00" * 31, "zz" * 32, "-----BEGIN PRIVATE KEY-----\nnope\n", "x" * 70_000])
def test_key_import_refuses_what_is_no_key_without_repeating_it(cli: Run, text: str) -> None:
    ran = cli("key", "import", "bad", input=text, code=1)
    assert "00" * 31 not in ran.err
    assert [line["name"] for line in cli("key", "list").lines] == ["alice"]


def test_public_half_alone_can_be_exported(cli: Run) -> None:
    out = cli("key", "export", "alice", "--public", "-o", "-").out
    assert out.startswith("-----BEGIN PUBLIC KEY-----")
