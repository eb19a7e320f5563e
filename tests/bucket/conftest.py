"""A log with some entries, and a folder to publish it in."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from log_support import SIGNERS, TOPIC
from s3_support import s3, s3_server  # noqa: F401  fixtures

import gossiplog
from gossiplog.gossip_log import GossipLog


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[GossipLog]:
    async with gossiplog.open(tmp_path / "ours.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
        await log.append_many([{"n": n} for n in range(700)])
        yield log


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    return tmp_path / "bucket"
