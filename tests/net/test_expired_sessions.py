"""A session whose snapshot the store took back, to tidy up: it ends without blame, and the peer comes again."""

import logging
from pathlib import Path

import pytest
import trio
from hostile_client import muxed
from network_support import PATIENCE_S, TOPIC, memory_log, signer

import gossiplog
from gossiplog.errors import StreamReset
from gossiplog.net.ground.protocol_ids import reconcile_protocol
from gossiplog.reconcile import messages


async def test_a_reconciliation_on_a_snapshot_that_has_expired_is_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # At each commit.
    monkeypatch.setattr("gossiplog.store.sqlite.store.WAL_BYTES_MAX", 0)
    caplog.set_level(logging.DEBUG, "gossiplog")
    async with (
        gossiplog.open(tmp_path / "hub.db", topic=TOPIC, signer=signer(1)) as hub_log,
        memory_log(2) as other,
        hub_log.listen("127.0.0.1:0") as hub,
        muxed(hub) as connection,
    ):
        wanted = await hub_log.append_many(range(20))
        await other.append_many(range(20))
        with trio.fail_after(PATIENCE_S):
            stream = await connection.open_stream([reconcile_protocol(TOPIC)])
            symbols = messages.pack((await other.sketch()).sketch, 0, 1)
            await stream.send_all(messages.encode(messages.Hello(20, symbols, takes=True)))
            assert await stream.receive_some(), "the hub has its snapshot, and answers"
            await hub_log.append("the snapshot expires")
            await stream.send_all(messages.encode(messages.Want([wanted[0].key], 0)))
            with pytest.raises(StreamReset):
                while await stream.receive_some():
                    pass
            while not (said := [record for record in caplog.records if "has expired" in record.getMessage()]):
                await trio.sleep(0.01)
        assert max(record.levelno for record in said) < logging.WARNING
