"""Signatures verified by real processes beside this one: the verdicts are the same, whatever becomes of them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from log_support import TOPIC, make, opened

from gossiplog.entry.validation import Outcome, validate_many
from gossiplog.replica import log as replica_log
from gossiplog.replica import signatures
from gossiplog.replica.signatures import FEW, Verifiers

DEADLINE_S = 60.0


@pytest.fixture
def verifiers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Verifiers]:
    """Two processes that are started by the first signatures."""
    monkeypatch.setattr(signatures, "_BEFORE_START", 0)
    verifiers = Verifiers(2)
    yield verifiers
    verifiers.close()


def claims(values: list[bytes]) -> list[tuple[bytes, bytes]]:
    """What of some VALUEs is verified apart."""
    taken: list[tuple[bytes, bytes]] = []
    validate_many(values, topic=TOPIC, verify_apart=taken.extend)
    return taken


def wait_until_begun(verifiers: Verifiers) -> None:
    for process in list(verifiers._starting):
        assert process.stdout is not None
        assert signatures._is_ready(process.stdout, select.POLLIN, DEADLINE_S)


def wait_ended(pid: int) -> None:
    """Wait until a process is gone, or somebody could wait for it."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(1e3 * DEADLINE_S)
    os.close(descriptor)


VALUES = [make(number).value for number in range(FEW)]
BROKEN = VALUES[3][:80] + bytes([VALUES[3][80] ^ 1]) + VALUES[3][81:]


def test_verdicts_of_other_processes_are_those_of_this_one(verifiers: Verifiers) -> None:
    values = [*VALUES, BROKEN, b"no entry", VALUES[0]]
    expected = validate_many(values, topic=TOPIC)
    assert [verdict.outcome for verdict in expected[FEW:]] == [Outcome.REJECT, Outcome.REJECT, Outcome.ACCEPT]
    assert verifiers.verify(claims(values)) is None
    wait_until_begun(verifiers)
    assert verifiers.verify(claims(values)) == b"\1" * FEW + b"\0\1"
    assert validate_many(values, topic=TOPIC, verify_apart=verifiers.verify) == expected
    assert verifiers.verify(claims(VALUES[1:])) is None


def test_processes_that_were_killed_are_done_without_and_started_again(verifiers: Verifiers) -> None:
    asked = claims(VALUES)
    assert verifiers.verify(asked) is None
    wait_until_begun(verifiers)
    first = verifiers.pids
    assert len(first) == 2
    assert verifiers.verify(asked) == b"\1" * FEW
    for pid in first:
        os.kill(pid, signal.SIGKILL)
        wait_ended(pid)
    # Each is found out when it is its turn; then there is none, and new ones are started.
    assert [verifiers.verify(asked) for _ in range(3)] == [None, None, None]
    assert not set(verifiers.pids) & set(first)
    wait_until_begun(verifiers)
    assert verifiers.verify(asked) == b"\1" * FEW


@pytest.mark.parametrize("count", [FEW, 100_000])
def test_a_process_that_stands_still_is_not_waited_for_for_ever(verifiers: Verifiers, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    asked = claims(VALUES)
    assert verifiers.verify(asked) is None
    wait_until_begun(verifiers)
    monkeypatch.setattr(signatures, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(signatures, "_CLOSE_S", 0.05)
    for pid in verifiers.pids:
        os.kill(pid, signal.SIGSTOP)
    # The larger request is more than a pipe holds.
    assert [verifiers.verify(asked * (count // len(asked))) for _ in range(2)] == [None, None]
    assert verifiers.pids == []


def test_where_no_process_can_be_had_none_is_tried_again(verifiers: Verifiers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert verifiers.verify(claims(VALUES)) is None
    monkeypatch.undo()
    assert verifiers.verify(claims(VALUES)) is None
    assert verifiers.pids == []


@pytest.mark.parametrize("executable", ["/usr/bin/uwsgi", "", None])
def test_a_program_with_python_inside_is_not_started_again(monkeypatch: pytest.MonkeyPatch, executable: str | None) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    assert signatures._processes_max() == 0


async def test_a_log_takes_entries_in_while_the_rest_is_verified(tmp_path, verifiers: Verifiers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_log, "verifiers", verifiers)
    chain = [make(0)]
    while len(chain) < 1_300:
        chain.append(make(len(chain), [chain[-1]]))
    values = [entry.value for entry in chain]
    broken = values[600][:80] + bytes([values[600][80] ^ 1]) + values[600][81:]
    async with opened(tmp_path / "a.db") as log, opened(tmp_path / "b.db") as whole:
        await log.insert_many(values[:300])
        wait_until_begun(verifiers)
        commits: list[int] = []
        with log.watch_commits(lambda entries: commits.append(len(entries))):
            verdicts = await log.insert_many([*values[:600], broken, *values[601:]])
            assert verifiers.are_running
            assert sum(commits) == 300
            await log.insert_many(values[600:1_300])
            # One call that is no longer than a commit is one.
            assert commits[-1] == 700
        assert [verdict.outcome for verdict in verdicts] == [Outcome.ACCEPT] * 600 + [Outcome.REJECT] + [Outcome.IGNORE] * 699
        assert [verdict.is_new for verdict in verdicts] == [False] * 300 + [True] * 300 + [False] * 700
        await whole.insert_many(values)
        assert await log.root() == await whole.root()


_PARENT = """
import os, select, sys
from gossiplog.replica import signatures
signatures._BEFORE_START = 0
signatures.verifiers.__init__(2)
claims = [(bytes(32), bytes(100))] * 64
assert signatures.verifiers.verify(claims) is None
assert all(signatures._is_ready(process.stdout, select.POLLIN, 60) for process in signatures.verifiers._starting)
assert signatures.verifiers.verify(claims) == bytes(64)
if (child := os.fork()) == 0:
    os._exit(len(signatures.verifiers.pids))
assert os.waitpid(child, 0)[1] == 0
assert signatures.verifiers.verify(claims) == bytes(64)
print(*signatures.verifiers.pids, flush=True)
sys.stdin.read()
"""


def test_a_fork_has_none_and_none_outlives_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        # Ctrl-C is for the parent alone.
        assert all(os.getpgid(pid) == pid for pid in pids)
        parent.kill()
    for pid in pids:
        wait_ended(pid)
