"""Entries as the two versions of the reference see them, and what becomes of them here.

The vectors say of each whether 0.16.1 and 0.13.14 keep it and serve the same bytes.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import gossiplog.blocking
from gossiplog.entry import Outcome, Verdict, is_topic, validate
from gossiplog.entry.rules import NESTING_MAX, TOPIC_CHARS_MAX

FOLDER = Path(__file__).parents[2] / "vectors"
CASES = [case for name in ("envelope", "forms") for case in json.loads((FOLDER / f"ref-0.16.1-{name}.json").read_text())["cases"]]
WITH_SNAPSHOTS = {"ed25519", "canvas-snapshot"}
DEEPER = {f"nest {levels} arrays" for levels in (1025, 1400, 2000)}
HEX = "b5" * 32


def serves(case: dict[str, Any], version: str) -> bool:
    return (case[version] or {}).get("served") == "same"


def verdict_of(case: dict[str, Any], **options: Any) -> Verdict:
    return validate(bytes.fromhex(case["value"]), topic=case.get("topic", "interop.test"), **options)


def is_our_topic(case: dict[str, Any]) -> bool:
    return is_topic(case.get("topic", "interop.test"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_both_versions_serve_is_accepted_and_what_either_keeps_is_nobodys_fault(case: dict[str, Any]) -> None:
    verdict = verdict_of(case)
    if serves(case, "js0161") and serves(case, "js01314") and is_our_topic(case):
        # What is deeper is a stated deviation.
        assert verdict.outcome is (Outcome.IGNORE if case["name"] in DEEPER else Outcome.ACCEPT), verdict
    elif (serves(case, "js0161") or serves(case, "js01314")) and is_our_topic(case):
        assert verdict.outcome is not Outcome.REJECT, verdict
        assert verdict.accepted or verdict.rule in ("portable", "scheme"), verdict


def test_the_vectors_are_what_this_test_takes_them_for() -> None:
    kept = [case for case in CASES if serves(case, "js0161") and not serves(case, "js01314")]
    assert len(CASES) == 127
    assert len(kept) > 40
    assert NESTING_MAX == 1024
    assert {case["topic"] for case in CASES if "topic" in case and not is_our_topic(case)} >= {".", "..", "x" * (TOPIC_CHARS_MAX + 1)}


def unsigned(case: dict[str, Any]) -> bytes:
    """A snapshot of the vectors, in a topic as applications have it."""
    value, topic = bytes.fromhex(case["value"]), f"app.example.com:{HEX}".encode()
    return value.replace(b"\x6cinterop.test", b"\x78" + bytes([len(topic)]) + topic)


SNAPSHOTS = {
    case["name"]: unsigned(case)
    for case in CASES
    if case["name"].startswith("snapshot") and b"\x6cinterop.test" in bytes.fromhex(case["value"])
}
TOPIC = f"app.example.com:{HEX}"


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_snapshots_of_exactly_that_form_are_accepted_where_they_are_switched_on(name: str) -> None:
    verdict = validate(SNAPSHOTS[name], topic=TOPIC, schemes=WITH_SNAPSHOTS)
    good = {"snapshot, Canvas verify", "snapshot, default verify", "snapshot with models", "snapshot without models"}
    good |= {"snapshot extra field", "snapshot models not bytes", "snapshot effects []", "snapshot after entries"}
    assert verdict.accepted == (name in good), verdict
    off = validate(SNAPSHOTS[name], topic=TOPIC)
    assert not off.accepted
    if name in good:
        assert (off.outcome, off.rule) == (Outcome.IGNORE, "scheme")
        assert "canvas-snapshot" in str(off.reason)
    elsewhere = validate(SNAPSHOTS[name].replace(b":" + HEX.encode(), b"." + HEX.encode()), schemes=WITH_SNAPSHOTS)
    assert not elsewhere.accepted


async def test_a_log_with_a_snapshot_is_a_log_like_others(tmp_path: Path) -> None:
    snapshot = SNAPSHOTS["snapshot, Canvas verify"]
    schemes = frozenset(WITH_SNAPSHOTS)
    signers = [gossiplog.Ed25519Signer.from_seed(bytes([number]) * 32) for number in (1, 2)]
    async with (
        gossiplog.open(tmp_path / "one.db", topic=TOPIC, signer=signers[0], schemes=schemes) as one,
        gossiplog.open(":memory:", topic=TOPIC, signer=signers[1], schemes=schemes) as two,
        gossiplog.open(":memory:", topic=TOPIC) as plain,
    ):
        (verdict,) = await one.insert_many([snapshot])
        assert verdict.accepted
        assert verdict.entry is not None
        first = verdict.entry
        child = await one.append({"n": 1})
        assert (first.clock, child.clock, child.message.parents) == (0, 1, (first.id,))
        assert first.author == ""
        assert await one.is_ancestor(first.id, child.id)
        assert (await two.sync(one)).entries == 2
        assert await two.root() == await one.root()
        grandchild = await two.append({"n": 2})
        assert (await one.sync(two)).entries == 1
        assert await one.is_ancestor(first.id, grandchild.id)
        assert [entry.id async for entry in one.iterate()] == [first.id, child.id, grandchild.id]
        result = await plain.sync(one)
        assert (result.entries, result.rejected, result.unsupported) == (0, 0, 1)


def test_fsck_finds_a_snapshot_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_gossiplog: None) -> None:
    with gossiplog.blocking.open(tmp_path / "one.db", topic=TOPIC, schemes=frozenset(WITH_SNAPSHOTS)) as log:
        assert log.insert(SNAPSHOTS["snapshot, Canvas verify"]).accepted
    monkeypatch.setenv("GOSSIPLOG_SCHEMES", "canvas-snapshot")
    command = ["gossiplog", "fsck", str(tmp_path / "one.db")]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout)["valid"] == 1
