"""`publish`, `clone`, `sync`, `checkpoint`, `prove` and `check`, as a user types them."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cli_support import SEEDS, TOPIC, Run


def test_two_writers_meet_in_a_folder(cli: Run, app: str) -> None:
    cli("key", "import", "bob", input=SEEDS["bob"].hex())
    assert cli("publish", app, "share", "--key", "alice", "--json").record["added"] == 5
    assert cli("clone", "share", "b.db", "--json").record["added"] == 5
    cli("append", "b.db", '"from bob"', "--key", "bob")
    done = cli("sync", "b.db", "share", "--key", "bob", "--json").record
    assert (done["added"], done["published"]) == (0, 6)
    done = cli("sync", app, "share", "--key", "alice", "--json").record
    assert (done["added"], done["published"]) == (1, 1)
    assert cli("stat", app, "--json").record["root"] == cli("stat", "b.db", "--json").record["root"]
    shown = cli("checkpoint", "share", "--json").lines
    assert [(each["size"], each["valid"]) for each in shown] == [(6, True), (6, True)]
    assert cli("sync", app, "share", "--pull", "--json").record["published"] is None
    assert cli("sync", app, "share", "--push", "--key", "alice", "--json").record["publishers"] == []


def test_a_proof_is_checked_without_the_log(cli: Run, app: str, folder: Path) -> None:
    id = cli("heads", "-q", app).out.strip()
    refused = cli("prove", app, id, "-o", "x.tlog-proof", "--json", code=1)
    assert refused.error["kind"] == "not-found"
    assert "gossiplog publish" in refused.error["hint"]
    cli("publish", app, "share")
    assert cli("prove", app, id[:8], "-o", "x.tlog-proof", "--json").record["id"] == id
    somebody = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
    cli("prove", app, id, "-o", "y.tlog-proof", "--publisher", somebody, "--json", code=1)
    assert not (folder / "y.tlog-proof").exists()
    (folder / app).unlink()
    found = cli("check", "x.tlog-proof", "--json").record
    assert (found["id"], found["index"], found["size"], found["entry"]["message"]["payload"]) == (id, 4, 5, 5)
    key = cli("checkpoint", "share", "--json").record["key"]
    (folder / "ok.policy").write_text(f"log {key}\nquorum none\n")
    cli("check", "x.tlog-proof", "--policy", "ok.policy")
    (folder / "bad.policy").write_text("quorum nobody\n")
    refused = cli("check", "x.tlog-proof", "--policy", "bad.policy", "--json", code=3)
    assert refused.error["kind"] == "proof"
    assert "line 1 of the policy" in refused.error["message"]
    publisher = found["publisher"]
    other = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
    assert cli("checkpoint", "share", "--publisher", publisher, "--json").record["size"] == 5
    assert cli("check", "x.tlog-proof", "--publisher", publisher, "--json").record["id"] == id
    assert publisher in cli("check", "x.tlog-proof", "--publisher", other, "--json", code=3).error["message"]
    assert cli("check", "x.tlog-proof", "--publisher", publisher.removeprefix("did:key:"), "--json").record["id"] == id
    for command in (("checkpoint", "share"), ("prove", app, id, "-o", "z"), ("check", "x.tlog-proof")):
        assert "publishers are Ed25519 keys" in cli(*command, "--publisher", "somebody", "--json", code=2).error["message"]
    assert "nothing is published at" in cli("checkpoint", "elsewhere/", "--json", code=1).error["message"]
    proof = folder / "x.tlog-proof"
    proof.write_bytes(proof.read_bytes().replace(b"index 4", b"index 3"))
    assert "is not leaf 3" in cli("check", "x.tlog-proof", "--json", code=3).error["message"]


def test_what_is_missing_or_damaged_has_its_exit_code(cli: Run, app: str, folder: Path) -> None:
    cli("publish", app, "share")
    (values,) = (folder / "share").glob("*/1/values/000.p/5")
    data = values.read_bytes()
    values.unlink()
    assert "missing: " in cli("clone", "share", "b.db", "--table", code=5).err
    values.write_bytes(data[:-1])
    ran = cli("clone", "share", "b.db", "--json", code=3)
    assert json.loads(ran.out)["publishers"][0]["faults"][0]["kind"] == "damaged"
    cli("publish", app, "share", "--again")
    assert cli("clone", "share", "b.db", "--json").record["added"] == 5


def test_places_that_are_no_bucket_are_named(cli: Run, app: str, folder: Path) -> None:
    assert cli("clone", "nothing", "b.db", "--json", code=1).error["hint"]
    for words in (("publish", app, app), ("publish", app, "ftp://example.com"), ("publish", app, "share", "--witness", "http://x")):
        assert "Invalid value for" in cli(*words, "--json", code=2).error["message"]
    for words in (("clone", "s3://", "b.db"), ("checkpoint", app), ("serve", app, "--check", "--publish", "ftp://example.com")):
        cli(*words, code=2)
    cli("sync", app, "share/", "--dry-run", code=2)
    assert "bucket ends in /" in cli("sync", app, "share", "--key", "alice", "--json", code=2).err
    cli("init", "other.db", "--topic", f"other.{TOPIC}")
    cli("publish", app, "share")
    assert "share has" not in cli("publish", "other.db", "share", code=1).out
    assert not (folder / "b.db").exists()


def test_stat_shows_a_bucket_and_commands_for_logs_name_what_reads_it(cli: Run, app: str, folder: Path) -> None:
    cli("publish", app, "share", "--key", "alice")
    ours, shown = cli("stat", app, "--json").record, cli("stat", "share", "--json").record
    assert (shown["topic"], shown["count"], shown["root"], shown["faults"]) == (ours["topic"], 5, ours["root"], {})
    cli("key", "import", "bob", input=SEEDS["bob"].hex())
    cli("clone", "share", "b.db")
    cli("append", "b.db", '"from bob"', "--key", "bob")
    cli("publish", "b.db", "share", "--key", "bob")
    shown = cli("stat", "share", "--json").record
    assert (shown["count"], shown["root"], sorted(each["count"] for each in shown["publishers"])) == (None, None, [5, 6])
    assert "6 to 11" in cli("stat", "share", "--table").out
    for command in (("fsck",), ("log",), ("heads",)):
        refused = cli(*command, "share", "--json", code=2).error
        assert refused["message"] == "share is a log in a bucket"
        assert "gossiplog clone share LOG" in refused["hint"]
    head = next((folder / "share").glob("*/head"))
    head.write_bytes(head.read_bytes()[:-9])
    assert next(iter(cli("stat", "share", "--json", code=3).record["faults"].values())).startswith("damaged: ")


def test_a_bucket_of_several_topics_is_read_by_topic(cli: Run, app: str, folder: Path) -> None:
    pytest.importorskip("pyarrow", reason="pip install 'gossiplog[arrow]'")
    cli("key", "import", "bob", input=SEEDS["bob"].hex())
    cli("init", "other.db", "--topic", "other.example.com")
    for log, key in ((app, "alice"), ("other.db", "bob")):
        cli("publish", log, "share", "--key", key)
    for command in (["stat", "share"], ["export", "share", "-o", "app.parquet"]):
        assert "--topic" in cli(*command, "--json", code=1).error["hint"]
        assert cli(*command, "--topic", TOPIC, "--json").record["count"] == 5


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
@pytest.mark.parametrize("command", [["prove", "app.db", "ID"], ["graph", "app.db"], ["export", "app.db"]])
def test_a_file_that_is_to_be_replaced_stays_if_the_disk_is_full(cli: Run, app: str, folder: Path, command: list[str]) -> None:
    cli("publish", app, "share")
    command = [cli("heads", "-q", app).out.strip() if each == "ID" else each for each in command]
    (folder / "out.jsonl").write_text("the earlier one")
    (folder / "out.jsonl.partial").symlink_to("/dev/full")
    assert "out.jsonl: No space left on device" in cli(*command, "-o", "out.jsonl", code=5).err
    assert (folder / "out.jsonl").read_text() == "the earlier one"
    # A pipe is no file that could be replaced.
    os.mkfifo("pipe.jsonl")
    with ThreadPoolExecutor() as reader:
        read = reader.submit(Path("pipe.jsonl").read_bytes)
        cli(*command, "-o", "pipe.jsonl")
        assert read.result()
    assert Path("pipe.jsonl").is_fifo()


def test_a_clone_of_one_topic_finds_no_fault_with_logs_of_others(cli: Run, app: str, folder: Path) -> None:
    cli("publish", app, "share", "--key", "alice")
    cli("key", "import", "bob", input=SEEDS["bob"].hex())
    cli("init", "other.db", "--topic", "other.example.com")
    cli("append", "other.db", "1", "--key", "bob")
    cli("publish", "other.db", "share", "--key", "bob")
    for _ in range(2):
        assert len(cli("clone", "share", "b.db", "--topic", TOPIC, "--json").record["publishers"]) == 1
    cli("sync", "b.db", "share", "--pull", code=5)
