"""Through PgBouncer, which hands each transaction to any connection of the server's."""

import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing
from log_support import SIGNERS, TOPIC, all_of, assert_whole, make_history, opened
from ports import free_port
from postgres_support import PostgresServer

import gossiplog

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed: `apt-get install pgbouncer`"),
]


@pytest.fixture(scope="module", params=["transaction", "session"])
def pooler(request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A pooler in front of the server, with two connections for all."""
    folder = tmp_path_factory.mktemp("pooler")
    port = free_port()
    lines = [
        "[databases]",
        f"* = host={postgres.folder} port={postgres.port}",
        "[pgbouncer]",
        f"pool_mode = {request.param}",
        f"default_pool_size = {4 if request.param == 'transaction' else 16}",
        "listen_addr = 127.0.0.1",
        f"listen_port = {port}",
        "unix_socket_dir =",
        "auth_type = trust",
        "user = nobody" if os.geteuid() == 0 else "",
        f"auth_file = {folder}/users",
        "ignore_startup_parameters = search_path",
        # How long it waits before it tries again to reach a server that was away.
        "server_login_retry = 1",
    ]
    (folder / "pgbouncer.ini").write_text("\n".join(lines))
    (folder / "users").write_text('"gossiplog" ""\n')
    make_readable(folder)
    assert PGBOUNCER is not None
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([PGBOUNCER, str(folder / "pgbouncer.ini")], stdout=log, stderr=log)
    try:
        while not answers(port):
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.02)
        yield PooledServer(postgres, port)
    finally:
        process.terminate()
        process.wait()


class PooledServer:
    """The server as it is seen through the pooler."""

    def __init__(self, server: PostgresServer, port: int) -> None:
        self.server = server
        self._port = port

    def new_log(self) -> str:
        name = self.server.new_log().rpartition("log=")[2]
        return f"postgresql://gossiplog@127.0.0.1:{self._port}/postgres?log={name}"


def make_readable(folder: Path) -> None:
    if os.geteuid() == 0:
        owner = pwd.getpwnam("nobody")
        for path in (folder, *folder.iterdir()):
            os.chown(path, owner.pw_uid, owner.pw_gid)
        for parent in list(folder.parents)[:3]:
            if parent != Path("/tmp"):
                parent.chmod(parent.stat().st_mode | 0o011)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_log_works_through_a_pooler(pooler) -> None:
    url = pooler.new_log()

    async def apply(entries, tx) -> None:
        assert await tx.execute("SELECT $1::integer", (len(entries),)) == [(len(entries),)]

    async with opened(url, apply=apply) as log, opened(url, signer=SIGNERS[1]) as other:
        assert log._store._database._connections.is_pooled
        await log.append_many(range(30))
        await other.insert_many([entry.value for entry in make_history(Random(3), 200)])
        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon((log if number % 2 else other).append, number)
            for _ in range(10):
                nursery.start_soon(all_of, log)
        await assert_whole(log)
        assert await log.count() == 290
        assert (await log.fsck(repair=True)).is_clean
        async with other.subscribe(cursor="x") as events:
            for _ in range(20):
                last = await anext(events)
            await events.ack(last)
            assert other.poll_s < 1
    async with opened(url, read_only=True) as log:
        await assert_whole(log)


async def test_settings_of_ours_stay_within_our_transactions(pooler) -> None:
    import asyncpg

    def look() -> list[tuple[str, str]]:
        import asyncio

        async def run() -> list[tuple[str, str]]:
            connection = await asyncpg.connect(url.partition("?")[0], statement_cache_size=0)
            try:
                names = "('enable_seqscan', 'lock_timeout', 'synchronous_commit', 'statement_timeout')"
                rows = await connection.fetch(f"SELECT name, setting FROM pg_settings WHERE name IN {names} AND source = 'session'")
                return [tuple(row) for row in rows]
            finally:
                await connection.close()

        return asyncio.run(run())

    url = pooler.new_log()
    async with opened(url) as log:
        await log.append_many(range(10))
        for _ in range(6):
            assert await trio.to_thread.run_sync(look) == []


COMMANDS = (["stat"], ["append", "7"], ["migrate", "--dry-run"], ["fsck"], ["log"], ["append", "8"])


async def test_processes_follow_each_other_through_one_connection_of_the_servers(pooler, tmp_path) -> None:
    """What one process leaves behind on the server's connection must not meet the next one's."""
    url = pooler.new_log()
    environment = {**os.environ, "PYTHONPATH": str(Path(gossiplog.__file__).parents[1]), "GOSSIPLOG_KEY_DIR": str(tmp_path / "keys")}
    (tmp_path / "keys").mkdir(mode=0o700)
    SIGNERS[0].save(tmp_path / "keys" / "alice.pem")

    async def run(*arguments: str) -> str:
        ran = await trio.run_process(
            [sys.executable, "-m", "gossiplog", *arguments], env=environment, capture_stdout=True, capture_stderr=True, check=False
        )
        assert ran.returncode == 0, (arguments, ran.stderr.decode())
        return ran.stdout.decode()

    await run("init", url, "--topic", TOPIC)
    for name, *rest in COMMANDS:
        await run(name, url, *rest)
    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(run, "append", url, str(number))
    assert len((await run("log", url, "-q")).split()) == 6


async def test_writers_behind_a_pooler_wait_for_a_server_that_was_killed(pooler) -> None:
    url = pooler.new_log()
    async with opened(url) as log, opened(url, signer=SIGNERS[1]) as other:
        await log.append("before")
        done: list[object] = []

        async def append(writer, number: int) -> None:
            done.append((await writer.append(number)).message.payload)

        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(append, log, number)
            await trio.to_thread.run_sync(pooler.server.kill)
            for number in range(4, 8):
                nursery.start_soon(append, other, number)
            await trio.testing.wait_all_tasks_blocked(0.02)
            await trio.to_thread.run_sync(pooler.server.start)
        assert sorted(done) == list(range(8))
        await assert_whole(log)
