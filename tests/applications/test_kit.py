"""The kit: replicas of each part agree on histories by chance, and what is malformed is found to be."""

import subprocess
import sys
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest
from access_support import DIDS, SIGNERS
from kit_support import APPLICATIONS, LIKES, OPERATIONS
from multiformats import CID

import gossiplog
from gossiplog import kit
from gossiplog.errors import LocalProtocolError
from gossiplog.testing import Author, NotConvergent, check_convergence


@pytest.mark.parametrize("name", APPLICATIONS)
def test_part_converges(name: str) -> None:
    check_convergence(APPLICATIONS[name], OPERATIONS[name], seeds=range(15), other_processes=name == "all")


@pytest.mark.parametrize("name", APPLICATIONS)
def test_part_converges_while_members_come_and_go(name: str) -> None:
    check_convergence(APPLICATIONS[name], OPERATIONS[name], policy=True, seeds=range(10), other_processes=name == "all")


@pytest.mark.parametrize("name", APPLICATIONS)
async def test_void_entries_leave_no_trace_in_a_part(name: str) -> None:
    random, reads = Random(name), [f"SELECT id FROM {table} ORDER BY id" for table in ("words_list", "folder_files", "pages_edits")]

    async def contents(log: gossiplog.GossipLog) -> dict[str, list[str]]:
        names = await log.query("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        return {table: sorted(map(repr, await log.query(f'SELECT * FROM "{table}"'))) for (table,) in names}

    async def write(log: gossiplog.GossipLog, signer: gossiplog.Ed25519Signer) -> None:
        for _ in range(12):
            tables = await contents(log)
            rows = {sql: await log.query(sql) if sql.split()[3] in tables else [] for sql in reads}
            await log.append(OPERATIONS[name](Author(random, signer.did, [], rows.__getitem__)), signer=signer)

    options = {"app": APPLICATIONS[name], "signer": SIGNERS[0]}
    async with gossiplog.open(":memory:", topic="team.example.com", policy=gossiplog.Policy([DIDS[0]]), **options) as log:
        node = await log.grant(DIDS[1])
        await write(log, SIGNERS[0])
        before = await contents(log)
        async with gossiplog.open(":memory:", topic=log.topic, app=APPLICATIONS[name]) as other:
            await other.sync(log)
            await write(other, SIGNERS[1])
            await log.sync(other)
            assert await contents(log) == await contents(other) != before
            await log.revoke(node.id, keep=[])
            await other.sync(log)
            assert await contents(log) == await contents(other) == before


def test_order_matters_to_a_set_and_the_checker_knows() -> None:
    application = replace(APPLICATIONS["set"], order_free=True)
    with pytest.raises(NotConvergent) as caught:
        check_convergence(application, OPERATIONS["set"])
    assert caught.value.kind == "order_free"
    assert [name for name in APPLICATIONS if APPLICATIONS[name].order_free] == ["map", "counter", "list", "files"]


@pytest.mark.slow
@pytest.mark.parametrize("name", APPLICATIONS)
def test_part_converges_over_a_thousand_histories(name: str) -> None:
    check_convergence(APPLICATIONS[name], OPERATIONS[name], seeds=range(1_000))


@pytest.mark.parametrize("names", [("",), ("Upper",), ("a b",), ("1a",), ("a" * 41,), ("a", "a")])
def test_names_of_parts_are_names_of_tables(names: tuple[str, ...]) -> None:
    with pytest.raises(LocalProtocolError):
        kit.compose("app", 1, *[kit.Counter(name) for name in names])


def test_what_a_counter_adds_up_to_stays_within_a_database() -> None:
    """2^32 entries of the greatest step are below 2^63, and no log has as many."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"key": "a", "by": 2**31}, LIKES.operations["add"])
    msgspec.convert({"key": "a", "by": 2**31 - 1}, LIKES.operations["add"])


def test_values_may_be_any_type_that_msgspec_knows() -> None:
    dates = kit.Map("dates", dict[str, set[str]])
    application = kit.compose("dates", 1, dates)
    check_convergence(application, [dates.put("a", {"x": {"one", "two"}}), dates.remove("a")], seeds=range(10), other_processes=False)


def test_without_its_extra_it_says_what_to_install() -> None:
    program = """
import sys
sys.modules["msgspec"] = None
from gossiplog.errors import LocalProtocolError
try:
    import gossiplog.kit
except LocalProtocolError as error:
    print(error, error.hint, sep="; ")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "gossiplog.kit needs msgspec, which is not installed; pip install 'gossiplog[kit]'\n"


@pytest.mark.parametrize("value", [CID.decode("bafkqaaa"), [object()], {"a": 1j}], ids=["a link", "an object", "a complex number"])
def test_a_value_without_json_is_refused_before_it_is_signed(value: object) -> None:
    for refused in (lambda: kit.Map("things", Any).put("a", value), lambda: kit.List("things", Any).insert(value)):
        with pytest.raises(LocalProtocolError, match="no value for a part"):
            refused()
