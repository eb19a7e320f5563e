"""log, show, explain, heads, ancestors, graph and stat."""

import json
import os
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_support import SEEDS, TOPIC, Run

from gossiplog.entry import Ed25519Signer

ALICE = Ed25519Signer.from_seed(SEEDS["alice"]).did
BOB = Ed25519Signer.from_seed(SEEDS["bob"]).did


def ids_of(cli: Run, log: str) -> list[str]:
    return cli("log", log, "-q").out.split()


def test_log_lists_entries_in_causal_order(cli: Run, app: str) -> None:
    lines = cli("log", app, "--json").lines
    assert [line["message"]["payload"] for line in lines] == [1, 2, 3, 4, 5]
    assert lines[1]["message"]["parents"] == [lines[0]["id"]]
    assert set(lines[0]) == {"id", "signature", "message"}
    assert set(lines[0]["signature"]) == {"codec", "publicKey", "signature"}
    assert set(lines[0]["message"]) == {"topic", "clock", "parents", "payload"}


def test_log_follows_its_bounds(cli: Run, app: str) -> None:
    ids = ids_of(cli, app)
    assert cli("log", app, "-q", "--after", ids[1]).out.split() == ids[2:]
    assert cli("log", app, "-q", "--before", ids[1][:20]).out.split() == ids[:1]
    assert cli("log", app, "-q", "--reverse", "--limit", "2").out.split() == [ids[4], ids[3]]
    assert cli("log", app, "-q", "--follow", "--limit", "5").out.split() == ids


def test_log_tells_authors_apart(cli: Run, app: str, forked: str) -> None:
    lines = cli("log", forked, "--author", BOB).lines
    assert [line["message"]["payload"] for line in lines] == ["b1", "b2"]
    assert len(cli("log", forked, "--author", BOB[-8:], "--limit", "1").lines) == 1
    assert cli("log", forked, "--author", "did:key:zNobody").out == ""


def test_log_table_has_a_heading_and_whole_payloads_in_a_pipe(cli: Run, app: str) -> None:
    cli("append", app, json.dumps("x" * 500))
    lines = cli("log", app, "--table").out.splitlines()
    assert lines[0].split() == ["id", "clock", "author", "payload"]
    assert len(lines) == 7
    assert lines[-1].endswith('"' + "x" * 500 + '"')


def test_table_shows_no_control_characters_of_a_payload(cli: Run, app: str) -> None:
    cli("append", app, json.dumps("\x1b[31m\x9b\u202eevil\x7f"))
    for command in (["log", app, "--table"], ["graph", app], ["heads", app, "--table"]):
        out = cli(*command).out
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out), command


def test_follow_and_reverse_contradict_each_other(cli: Run, app: str) -> None:
    cli("log", app, "--follow", "--reverse", code=2)


def test_show_finds_an_entry_by_the_beginning_of_its_id(cli: Run, app: str) -> None:
    ids = ids_of(cli, app)
    assert cli("show", app, ids[2][:10].upper(), "--json").record["id"] == ids[2]
    assert f"id         {ids[2]}" in cli("show", app, ids[2], "--table").out


@pytest.mark.parametrize(
    ("prefix", "kind", "code"), [("0", "ambiguous-id", 1), ("vvv", "not-found", 1), ("xyz", "usage", 2), ("0" * 33, "usage", 2)]
)
def test_prefix_that_names_no_single_entry_is_explained(cli: Run, app: str, prefix: str, kind: str, code: int) -> None:
    error = cli("show", app, prefix, "--json", code=code).error
    assert error["kind"] == kind
    assert error["hint"]


def test_show_hex_is_what_verify_values_takes(cli: Run, app: str) -> None:
    id = ids_of(cli, app)[3]
    value = cli("show", app, id, "--hex").out
    assert cli("verify", "--json", "--values", "-", input=value).record == {"id": id, "accepted": True, "rule": None, "reason": None}


def test_explain_names_parents_children_and_the_verdict(cli: Run, app: str, forked: str) -> None:
    cli("sync", app, forked)
    ids = ids_of(cli, app)
    record = cli("explain", app, ids[1]).record
    assert record["verdict"] == {"accepted": True, "rule": None, "reason": None}
    assert record["parents"] == [{"id": ids[0], "present": True}]
    assert len(record["children"]) == 2
    assert record["author"] == ALICE
    assert record["isHead"] is False
    text = cli("explain", app, ids[1], "--table").out
    assert f"{ids[0]} here" in text
    assert "verdict    accepted" in text
    assert "none: a beginning" in cli("explain", app, ids[0], "--table").out


def test_heads_are_what_nobody_built_on(cli: Run, app: str, forked: str) -> None:
    assert [line["id"] for line in cli("heads", app).lines] == [ids_of(cli, app)[-1]]
    cli("sync", app, forked)
    lines = cli("heads", app).lines
    assert {line["author"] for line in lines} == {ALICE, BOB}
    cli("append", app, '"merge"')
    assert len(cli("heads", app).lines) == 1


def test_ancestors_come_nearest_first(cli: Run, app: str) -> None:
    ids = ids_of(cli, app)
    assert cli("ancestors", app, ids[4], "-q").out.split() == ids[3::-1]
    assert cli("ancestors", app, ids[4], "-q", "--limit", "2").out.split() == ids[3:1:-1]
    assert cli("ancestors", app, ids[0]).out == ""
    assert [line["message"]["payload"] for line in cli("ancestors", app, ids[2]).lines] == [2, 1]


def test_ancestors_of_answers_a_question(cli: Run, app: str, forked: str) -> None:
    cli("sync", app, forked)
    first, mine = ids_of(cli, app)[0], cli("log", app, "-q", "--author", ALICE).out.split()[-1]
    his = cli("log", app, "-q", "--author", BOB).out.split()[-1]
    assert cli("ancestors", app, first, "--of", his).record == {"id": first, "of": his, "isAncestor": True}
    assert cli("ancestors", app, mine, "--of", his).record["isAncestor"] is False
    cli("ancestors", app, mine, "--of", his, "--exit-code", code=1)
    cli("ancestors", app, first, "--of", his, "--exit-code")


def test_stat_has_the_documented_fields(cli: Run, app: str) -> None:
    record = cli("stat", app, "--json").record
    assert record == {
        "topic": TOPIC,
        "count": 5,
        "clock": 6,
        "heads": [ids_of(cli, app)[-1]],
        "root": {"level": record["root"]["level"], "hash": record["root"]["hash"]},
        "bytes": record["bytes"],
        "set_aside": {},
    }
    assert re.fullmatch("[0-9a-f]{32}", record["root"]["hash"])
    assert record["bytes"] >= Path(app).stat().st_size


def test_empty_log_can_be_looked_at_from_every_side(cli: Run) -> None:
    cli("init", "e.db", "--topic", TOPIC)
    assert cli("stat", "e.db", "--json").record["clock"] == 1
    for command in ("log", "heads", "graph", "verify", "fsck"):
        cli(command, "e.db")
    assert cli("log", "e.db", "--table").err == "no entries\n"
    for suffix in ("jsonl", "car"):
        cli("export", "e.db", "-o", f"e.{suffix}")


def test_graph_draws_the_fork(cli: Run, app: str, forked: str) -> None:
    cli("sync", app, forked)
    cli("append", app, '"merge"')
    lines = cli("graph", app).out.splitlines()
    assert "├─╮" in lines
    assert "├─╯" in lines
    assert lines[0].startswith("◉")
    assert cli("graph", app, "--ascii").out.isascii()


def test_graph_says_what_it_left_out(cli: Run, app: str) -> None:
    ran = cli("graph", app, "--limit", "2")
    assert "the newest 2 of 5" in ran.err
    assert ran.out.splitlines()[-1] == "⋮"


def test_graph_names_a_file_whose_name_is_no_text(cli: Run, app: str) -> None:
    name = os.fsdecode(b"caf\xe9.db")
    shutil.copy(app, name)
    cli("graph", name, "-o", "g.svg")
    assert "caf\\udce9.db" in Path("g.svg").read_text("utf-8")


def test_graph_formats_are_well_formed(cli: Run, app: str) -> None:
    ElementTree.fromstring(cli("graph", app, "--format", "svg").out)
    cli("graph", app, "-o", "g.html")
    assert Path("g.html").read_text().startswith("<!doctype html>")
    assert cli("graph", app, "--format", "dot").out.startswith("digraph log {")


@pytest.mark.parametrize("command", ["log", "stat", "heads", "graph", "fsck", "verify", "replay", "show", "explain", "ancestors", "export"])
def test_every_command_says_what_to_do_about_a_missing_log(cli: Run, command: str) -> None:
    extra = {"show": ["0"], "explain": ["0"], "ancestors": ["0"], "export": ["-o", "x.car"]}.get(command, [])
    ran = cli(command, "missing.db", *extra, code=1)
    assert "no log at missing.db" in ran.err
    assert "gossiplog init missing.db --topic" in ran.err
    assert not Path("missing.db").exists()


def test_foreign_file_is_left_alone(cli: Run) -> None:
    Path("notes.txt").write_text("not a log, but something that somebody wants to keep")
    assert cli("log", "notes.txt", "--json", code=1).error["kind"] == "foreign-file"
    cli("init", "notes.txt", "--topic", TOPIC, code=1)
    assert Path("notes.txt").read_text().startswith("not a log")


@pytest.mark.parametrize("path", [":memory:", "https://example.com/log", "."])
def test_what_cannot_be_a_log_is_said_to_be_none(cli: Run, path: str) -> None:
    ran = cli("heads", path, code=1 if path == "." else 2)
    assert "hint: LOG is the path of a SQLite file" in ran.err
