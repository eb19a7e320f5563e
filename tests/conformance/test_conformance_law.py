"""The law: which entries a log holds does not depend on what any application makes of them."""

import contextlib
import re
from pathlib import Path
from random import Random

import pytest
from conformance.conftest import OpenLog
from log_support import SIGNERS, all_of, assert_log_is, make, make_history

from gossiplog import Application, Reject

GUIDE = Path(__file__).parents[2] / "docs" / "library.md"
POISON = [
    "hello",
    None,
    True,
    0,
    -1.5,
    b"bytes",
    [],
    [["op", "set"]],
    {},
    {"op": None},
    {"op": "unset"},
    {"op": "set"},
    {"op": "set", "key": "a"},
    {"op": "set", "key": None, "value": {}},
    {"op": "set", "key": ["a"], "value": 1},
    {"op": "set", "key": {"a": 1}, "value": 1},
    {"op": "set", "key": "a", "value": [1]},
    {"op": "set", "key": "a", "value": {"b": 2}},
    {"op": "set", "key": "a", "value": 2.0**63},
    {"op": "set", "key": "a", "value": -(2.0**63)},
    {"op": ["set"], "key": "a", "value": 1},
]
"""Payloads that anybody may sign, and of which the application of the guide can make nothing."""


def guide_application() -> Application:
    program, *_ = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    exec(program.partition("async def main")[0], names)
    application = names["items"]
    assert isinstance(application, Application)
    return application


async def test_no_payload_stops_the_application_of_the_guide(open_log: OpenLog) -> None:
    good = [make({"op": "set", "key": f"k{number}", "value": number}) for number in range(10)]
    poison = [make(payload, good[:1], SIGNERS[1]) for payload in POISON]
    after = [make({"op": "set", "key": f"after{number}", "value": number}, [each]) for number, each in enumerate(poison)]
    async with open_log(app=guide_application()) as log:
        verdicts = await log.insert_many([entry.value for entry in (*good, *poison, *after)])
        assert all(verdict.is_new for verdict in verdicts)
        await assert_log_is(log, [*good, *poison, *after])
        aside = [record.key async for record in log.set_aside()]
        # A database that minds the types of its columns less sets fewer aside.
        assert len(aside) >= len(POISON) - 2 and set(aside) <= {entry.key for entry in poison}
        for payload in POISON:
            with contextlib.suppress(Exception):
                await log.append(payload)
        for _ in range(2):
            assert await log.query("SELECT count(*) FROM items WHERE key <> 'a'") == [(len(good) + len(after),)]
            await log.rebuild()
        assert [record.key async for record in log.set_aside()] == aside


def raising(entries, tx) -> None:
    raise ZeroDivisionError


async def raising_often(entries, tx) -> None:
    for entry in entries:
        if isinstance(entry.payload, int) and entry.payload % 3 == 0:
            raise Reject("a third", id=entry.id)
        await tx.execute("SELECT $1", (1,))


def broken_statements(entries, tx) -> None:
    tx.execute("INSERT INTO no_such_table VALUES (1)")


def swallowing(entries, tx) -> None:
    for _ in entries:
        try:
            tx.execute("nonsense")
        except Exception:
            tx.execute("SELECT 1")


@pytest.mark.parametrize("apply", [raising, raising_often, broken_statements, swallowing], ids=lambda apply: apply.__name__)
async def test_replicas_with_any_application_have_equal_roots(open_log: OpenLog, apply) -> None:
    history = make_history(Random(14), 60)
    async with open_log("plain") as plain, open_log("broken", apply=apply) as broken:
        await plain.insert_many([entry.value for entry in history])
        for low in range(0, len(history), 13):
            await broken.insert_many([entry.value for entry in history[low : low + 13]])
        assert await broken.root() == await plain.root()
        assert await broken.heads() == await plain.heads()
        more = make("more", await all_of(plain))
        await plain.insert(more.value)
        result = await broken.sync(plain)
        assert (result.entries, result.complete) == (1, True)
        assert await broken.root() == await plain.root()
