"""Trails: what programs do is signed and chained, by any number of threads, tasks and processes, and never at the program's expense."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

from gossiplog import blocking
from gossiplog.archive import line_to_value
from gossiplog.entry import Ed25519Signer, Entry
from gossiplog.entry.validation import validate
from gossiplog.errors import LocalProtocolError
from gossiplog.trail import Trail, TrailHandler

TOPIC = "trail.example.com"
SIGNER = Ed25519Signer.from_seed(b"t" * 32)


@pytest.fixture
def trail(tmp_path: Path) -> Trail:
    return Trail(tmp_path / "trail", topic=TOPIC, signer=SIGNER, program="test")


def entries(folder: Path) -> list[Entry]:
    """All that was written, each valid."""
    found = []
    for path in sorted((folder / "trail").glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            verdict = validate(line_to_value(line)[0], topic=TOPIC)
            assert verdict.entry is not None
            assert verdict.accepted
            found.append(verdict.entry)
    return found


def payloads(folder: Path) -> list[dict[str, Any]]:
    return [entry.payload for entry in entries(folder)]


def test_a_call_is_recorded_with_its_result_and_the_span_that_it_was_made_in(trail: Trail, tmp_path: Path) -> None:
    @trail.recorded
    def inner(a: int) -> int:
        return a + 1

    @trail.recorded
    def outer(a: int, *, b: str) -> int:
        return inner(a)

    assert outer(1, b="x") == 2
    assert trail.flush()
    first, second, result, end, *rest = payloads(tmp_path)
    assert (first["kind"], first["arguments"], first["options"], first["parent"]) == ("begin", [1], {"b": "x"}, None)
    assert (second["kind"], second["parent"]) == ("begin", first["span"])
    assert (result["kind"], result["result"], result["span"]) == ("returned", 2, second["span"])
    assert end["kind"] == "end"
    assert [each["kind"] for each in rest] == ["returned", "end"]
    assert (first["program"], first["process"]) == ("test", os.getpid())
    written = entries(tmp_path)
    assert [entry.message.parents for entry in written] == [(), *((entry.id,) for entry in written[:-1])]


def test_what_a_call_raises_is_recorded_and_raised(trail: Trail, tmp_path: Path) -> None:
    @trail.recorded
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert trail.flush()
    assert [(each["kind"], each.get("error")) for each in payloads(tmp_path)] == [("begin", None), ("raised", "ValueError: no")]


def test_logging_goes_into_the_trail_with_its_span(trail: Trail, tmp_path: Path) -> None:
    logger = logging.getLogger("trail.test")
    handler = TrailHandler(trail, logging.INFO)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    # Those of the tests would raise at a message that cannot be formatted.
    logger.propagate = False
    try:
        with trail.span("work", depth=1) as span:
            logger.info("counting %d", 7)
            logger.debug("not this")
            logger.info("%d", "no number")
            try:
                raise KeyError("k")
            except KeyError:
                logger.exception("failed")
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
    assert trail.flush()
    said = [each for each in payloads(tmp_path) if each["kind"] == "log"]
    assert [(each["message"], each["level"], each["span"]) for each in said[::2]] == [
        ("counting 7", "INFO", span),
        ("failed", "ERROR", span),
    ]
    assert "cannot be shown: TypeError" in said[1]["message"]
    assert said[2]["error"] == "KeyError: 'k'"


async def test_tasks_of_trio_and_asyncio_have_spans_of_their_own(trail: Trail, tmp_path: Path) -> None:
    @trail.recorded
    async def child(n: int) -> int:
        await trio.lowlevel.checkpoint()
        return n

    @trail.recorded
    async def parent() -> None:
        async with trio.open_nursery() as nursery:
            for n in range(5):
                nursery.start_soon(child, n)

    await parent()

    @trail.recorded
    async def leaf(n: int) -> int:
        await asyncio.sleep(0)
        return n

    @trail.recorded
    async def root() -> None:
        await asyncio.gather(*(leaf(n) for n in range(5)))

    await trio.to_thread.run_sync(asyncio.run, root())
    assert trail.flush()
    said = payloads(tmp_path)
    begins = {each["name"].rpartition(".")[2]: each["span"] for each in said if each["kind"] == "begin" and each["parent"] is None}
    by_parent = Counter(each["parent"] for each in said if each["kind"] == "begin")
    assert by_parent == {None: 2, begins["parent"]: 5, begins["root"]: 5}


def test_threads_record_at_once_in_one_chain(trail: Trail, tmp_path: Path) -> None:
    def work(number: int) -> None:
        for n in range(100):
            trail.record("step", number=number, n=n)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trail.flush(20)
    written = entries(tmp_path)
    assert len(written) == 800
    assert all(len(entry.message.parents) == 1 for entry in written[1:])
    for number in range(8):
        assert [entry.payload["n"] for entry in written if entry.payload["number"] == number] == list(range(100))


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -0.0, 2**200, -(2**53), "\ud800", "x" * 10**6, b"\0" * 10**6, Unshowable(), {1: {2: {3: {4: {5: 6}}}}}],
    ids=lambda value: type(value).__name__,
)
def test_whatever_is_recorded_fits_and_is_valid(trail: Trail, tmp_path: Path, value: Any) -> None:
    deep: list[Any] = []
    deep.append(deep)
    trail.record("odd", value=value, deep=deep, many=list(range(1_000)), at="never", kind="another", process="x")
    assert trail.flush()
    (entry,) = entries(tmp_path)
    assert len(entry.value) < 10_000
    assert (entry.payload["kind"], entry.payload["process"]) == ("odd", os.getpid())
    assert len(entry.payload["many"]) == 50


def test_a_full_queue_drops_and_says_so_and_never_waits(tmp_path: Path) -> None:
    trail = Trail(tmp_path / "trail", topic=TOPIC, signer=SIGNER, queue_max=10)
    began = time.monotonic()
    (tmp_path / "trail").write_text("a file where the folder should be")
    for n in range(20_000):
        trail.record("step", n=n)
    assert time.monotonic() - began < 30, "some 20 µs each, whatever becomes of them"
    trail.flush()
    assert trail.error is not None
    lost = trail.lost
    assert 10_000 < lost <= 20_000
    (tmp_path / "trail").unlink()
    trail.record("later")
    assert trail.flush()
    (said,) = payloads(tmp_path)
    assert (said["kind"], said["lost"]) == ("later", lost)


def test_a_disk_that_is_full_costs_the_program_nothing_and_no_line_is_cut(tmp_path: Path) -> None:
    program = (
        "import sys, resource, signal\nfrom gossiplog.trail import Trail\nfrom gossiplog.entry import Ed25519Signer\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "trail = Trail(sys.argv[1], topic='trail.example.com', signer=Ed25519Signer.generate())\n"
        "trail.record('first')\ntrail.flush()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))\n"
        "for n in range(20): trail.record('no room', n=n)\ntrail.flush()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "trail.record('last')\ntrail.flush()\nprint(trail.lost)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program, str(tmp_path / "trail")], capture_output=True, text=True, check=True)
    said = payloads(tmp_path)
    assert int(ran.stdout) > 0
    assert said[0]["kind"] == "first"
    assert said[-1]["kind"] == "last"
    assert len(said) + int(ran.stdout) == 22


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_processes_write_files_of_their_own_and_all_are_one_history(tmp_path: Path, method: str, warm_gossiplog: None) -> None:
    program = (
        "import multiprocessing, sys\nfrom gossiplog.trail import Trail\nfrom gossiplog.entry import Ed25519Signer\n"
        "def work(n):\n"
        "    trail = TRAIL if sys.argv[2] == 'fork' else make()\n"
        "    trail.record('work', number=n)\n"
        "    if sys.argv[2] == 'spawn': trail.flush()\n"
        "def make(): return Trail(sys.argv[1], topic='trail.example.com', signer=Ed25519Signer.from_seed(b't' * 32), program='many')\n"
        "if __name__ == '__main__':\n"
        "    TRAIL = make()\n    TRAIL.record('before')\n"
        "    import os; os.environ |= TRAIL.environment()\n"
        "    context = multiprocessing.get_context(sys.argv[2])\n"
        "    children = [context.Process(target=work, args=(n,)) for n in range(4)]\n"
        "    for child in children: child.start()\n    for child in children: child.join()\n"
        "    TRAIL.record('after')\n"
    )
    (tmp_path / "many.py").write_text(program)
    subprocess.run([sys.executable, str(tmp_path / "many.py"), str(tmp_path / "trail"), method], check=True)
    files = list((tmp_path / "trail").glob("many-*.jsonl"))
    assert len(files) == 5
    said = {json.dumps(entry.payload.get("number", entry.payload["kind"])): entry for entry in entries(tmp_path)}
    assert all(said[str(n)].message.parents == (said['"before"'].id,) for n in range(4)), "after what the parent had written"
    collected = b"".join(path.read_bytes() for path in sorted(files, reverse=True))
    subprocess.run(["gossiplog", "init", str(tmp_path / "all.db"), "--topic", TOPIC], capture_output=True, check=True)
    ran = subprocess.run(
        ["gossiplog", "import", str(tmp_path / "all.db"), "-", "--json"],
        input=collected,
        capture_output=True,
        check=True,
    )
    assert json.loads(ran.stdout.splitlines()[-1]) == {"added": 6, "known": 0, "failed": 0}
    with blocking.open(tmp_path / "all.db", read_only=True) as log:
        assert len(log.heads()) == 5, "forks are history"


def test_a_program_that_is_killed_leaves_whole_lines(tmp_path: Path) -> None:
    program = (
        "import sys, itertools\nfrom gossiplog.trail import Trail\nfrom gossiplog.entry import Ed25519Signer\n"
        "trail = Trail(sys.argv[1], topic='trail.example.com', signer=Ed25519Signer.generate())\n"
        "trail.record('begin')\ntrail.flush()\nprint('ready', flush=True)\n"
        "for n in itertools.count(): trail.record('step', n=n)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "trail")], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    (path,) = (tmp_path / "trail").glob("*.jsonl")
    for _ in range(1_000):
        if path.stat().st_size > 20_000:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"\n") + 1])
    assert len(entries(tmp_path)) > 20


def test_a_topic_that_is_malformed_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError):
        Trail(tmp_path, topic="no topic", signer=SIGNER)
