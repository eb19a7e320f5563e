"""A discovery that looks around ten times a second, so that what takes it a few rounds takes no seconds."""

import pytest

from gossiplog.net.discovery import discovery


@pytest.fixture(autouse=True)
def quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_TICK_S", 0.1)
