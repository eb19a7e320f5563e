"""What reads or copies a whole log needs memory for a few pages of it, however large its entries are."""

import subprocess
import sys

import pytest
import trio
from log_support import SIGNERS, TOPIC, make

import gossiplog

COUNT = 201
GROWTH_MIB = 100
"""Of the 200 MiB that the log has. A page has 8 to 12 MiB, and exists as rows, as entries, and as what is written."""

OPERATIONS = {
    "iterate": "n = sum([1 async for _ in log.iterate()])",
    "subscribe": "async with log.subscribe() as events: n = sum([bool(await anext(events)) for _ in range(201)])",
    "fsck": "report = await log.fsck(); assert report.is_clean; n = report.entries",
    "copy": "async with gossiplog.open(target, topic=log.topic) as other: n = (await other.copy_from(log)).entries",
    "ancestors": "(tip,) = await log.heads(); n = 1 + len([1 async for _ in log.ancestors(tip)])",
    "retry": (
        "from gossiplog.log.requests import Quarantined, WriteQuarantine\n"
        "        from gossiplog.plan import ask\n"
        "        async with gossiplog.open(target, topic=log.topic) as other:\n"
        "            async for entry in log.iterate():\n"
        "                held = Quarantined(entry.key, entry.value, 'parents', '', 0.0)\n"
        "                await other._store.write(ask(WriteQuarantine([held], [])))\n"
        "            before = peak()\n"
        "            ids = [entry.id async for entry in log.iterate()]\n"
        "            n = len([1 async for _ in other.retrying(ids)])"
    ),
    "sync": "async with gossiplog.open(target, topic=log.topic) as other: n = (await other.sync(log)).entries",
}
MEASURE = """
import sys, gossiplog, trio
def peak(): return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
async def main():
    target = sys.argv[2]
    async with gossiplog.open(sys.argv[1]) as log:
        before = peak()
        OPERATION
        print(n, peak() - before)
trio.run(main)
"""
COMMANDS = {
    "export": ["export", "LOG", "-o", "TARGET.jsonl"],
    "init": ["init", "TARGET.db", "--topic", TOPIC],
    "import": ["import", "TARGET.db", "TARGET.jsonl"],
    "verify": ["verify", "TARGET.jsonl"],
    "verify log": ["verify", "LOG"],
}


@pytest.fixture(scope="module")
def large_log(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "log.db"

    async def fill():
        async with gossiplog.open(path, topic=TOPIC, signer=SIGNERS[0]) as log:
            for low in range(0, COUNT - 1, 20):
                verdicts = await log.insert_many([make([number, bytes(2**20)]).value for number in range(low, low + 20)])
                assert all(verdict.is_new for verdict in verdicts)
            await log.append("the parent of none")

    trio.run(fill)
    return path


def run_python(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_reading_all_of_a_log_of_large_entries_needs_few_of_them_in_memory(large_log, tmp_path, operation):
    count, growth = run_python(MEASURE.replace("OPERATION", OPERATIONS[operation]), large_log, tmp_path / "target.db").split()
    assert int(count) == COUNT
    assert float(growth) < GROWTH_MIB


COMMAND = """
import sys
from gossiplog.cli import main
def peak(): return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
sys.argv = ["gossiplog", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("MIB", peak() - before)
"""


@pytest.mark.slow
def test_files_of_large_entries_are_written_and_read_with_few_of_them_in_memory(large_log, tmp_path):
    for name, words in COMMANDS.items():
        places = [word.replace("LOG", str(large_log)).replace("TARGET", str(tmp_path / "target")) for word in words]
        growth = float(run_python(COMMAND, *places).rpartition("MIB")[2])
        assert growth < GROWTH_MIB, name
