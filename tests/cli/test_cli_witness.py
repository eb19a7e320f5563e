"""`witness`, and what `publish`, `serve` and `check` make of witnesses, as processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_support import REPOSITORY, TOPIC, Run

from gossiplog.tlog.note import VerifierKey


def test_a_witness_cosigns_what_is_published_and_the_policy_wants_it(cli: Run, app: str, folder: Path) -> None:
    cli("key", "new", "wit")
    command = [sys.executable, "-m", "gossiplog", "witness", "state", "--name", "w.example/1", "--key", "wit", "--anybody", "--json"]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}
    )
    assert process.stdout is not None
    try:
        said = json.loads(process.stdout.readline())
        place = f"{said['urls'][0]}#{said['key']}"
        cli("witness", "state", "--name", "other", "--key", "wit", "--anybody", "--json", code=1)
        published = cli("publish", app, "share", "--key", "alice", "--witness", place, "--json").record
        assert (published["witnesses"], published["refusals"]) == (["w.example/1"], {})
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        process.stdout.close()
    id = cli("heads", "-q", app).out.strip()
    cli("prove", app, id, "-o", "x.tlog-proof")
    (folder / "p.policy").write_text(f"witness W {said['key']}\nquorum W\n")
    assert list(cli("check", "x.tlog-proof", "--policy", "p.policy", "--json").record["witnesses"]) == ["W"]
    other = VerifierKey("other", 4, bytes(range(32)))
    (folder / "p.policy").write_text(f"witness W {said['key']}\nwitness O {other}\ngroup G all W O\nquorum G\n")
    assert "not its quorum" in cli("check", "x.tlog-proof", "--policy", "p.policy", "--json", code=3).error["message"]
    cli("append", app, "6", "--key", "alice")
    published = cli("publish", app, "share", "--key", "alice", "--witness", place, "--json").record
    assert published["added"] == 1, "a witness that is away keeps nothing from being published"
    assert list(published["refusals"]) == ["w.example/1"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "nobody to sign for"),
        (("--publisher", "did:key:zQ3"), "publishers are Ed25519 keys"),
        (("--log", "nonsense"), "--log: "),
        (("--log", str(VerifierKey("w", 4, bytes(32)))), "the key of a witness"),
        (("--anybody", "--name", "a b"), "no spaces"),
    ],
)
def test_a_witness_says_what_it_lacks(cli: Run, folder: Path, options: tuple[str, ...], reason: str) -> None:
    assert reason in cli("witness", "state", "--name", "w", *options, code=2).err
    assert not (folder / "state").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--publish", "gopher://x"), "is no storage"),
        (("--publish", "share", "--witness", "http://x"), "names no witness"),
        (("--witness", "http://x#a+0aa33f82+BBMarSKx/zmaOkeYva/YHMcXarlwki5dKW9HzHVyyUxH"), "--witness needs --publish"),
        (("--publish", "share", "--key", "nobody"), "nobody"),
    ],
)
def test_serve_looks_at_its_bucket_before_it_serves(cli: Run, app: str, options: tuple[str, ...], reason: str) -> None:
    from click.testing import CliRunner

    from gossiplog.cli.app import root

    ran = CliRunner().invoke(root, ["serve", app, "--check", *options], prog_name="gossiplog")
    assert ran.exit_code == (1 if reason == "nobody" else 2)
    assert reason in ran.stderr
    assert "Traceback" not in ran.stderr


def test_several_logs_have_a_place_each(cli: Run, app: str) -> None:
    cli("init", "two.db", "--topic", f"two.{TOPIC}")
    assert "{topic}" in cli("serve", app, "two.db", "--check", "--publish", "share", code=2).err
    cli("serve", app, "two.db", "--check", "--publish", "share/{topic}")
