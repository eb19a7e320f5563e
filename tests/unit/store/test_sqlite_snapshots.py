import trio

import gossiplog
from gossiplog.log import Ed25519Signer


async def test_snapshots_that_are_held_keep_no_other_read_waiting(tmp_path):
    async with gossiplog.open(tmp_path / "log.db", topic="a.example.com", signer=Ed25519Signer.from_seed(bytes(32))) as log:
        entry = await log.append(1)
        held = [log.snapshot() for _ in range(32)]
        for snapshot in held:
            await snapshot.__aenter__()
        with trio.fail_after(5):
            assert (await log.get(entry.id)).key == entry.key
            await log.append(2)
        for snapshot in held:
            await snapshot.__aexit__(None, None, None)
        assert len(log._store._idle) <= 4, "the connections of the snapshots are given back"
