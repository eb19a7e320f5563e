"""The example `examples/todo`: a stranger writes to its list. Its demo is run by tests/test_application_guides.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_support import EXAMPLES, poison_like, running_hub, stranger

TOPIC = "todo.example.com"


def test_nothing_that_a_stranger_writes_stops_it_or_changes_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_gossiplog: None
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES / "todo")
    from demo import Device

    with running_hub(tmp_path, TOPIC) as url, stranger(url, TOPIC) as log:
        phone = Device(tmp_path / "phone.db")
        try:
            phone.type("add bread")
            phone.wait_for("1 [ ] bread", ".")
            phone.type(f"online {url}")
            insert = {"part": "items", "op": "insert", "after": "0" * 32, "value": "nowhere"}
            element = {"part": "done", "op": "add", "element": "0" * 32}
            log.append_many([*poison_like(insert)[:40], *poison_like(element)])
            log.append({"part": "items", "op": "remove", "element": "0" * 32})
            log.append({"part": "items", "op": "insert", "after": None, "value": "last of all"})
            listed: list[str] = []
            while not any("last of all" in line for line in listed):
                phone.type("list")
                listed = [*iter(lambda: phone.process.stdout.readline().rstrip("\n"), ".")]
            assert any("[ ] bread" in line for line in listed)
        finally:
            phone.process.terminate()
            phone.process.communicate()
