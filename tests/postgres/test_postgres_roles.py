"""Who may do what: the rights that docs/postgres.md names are enough, and no more; passwords and TLS from wherever they come."""

import asyncio
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
import trio
from log_support import TOPIC, assert_whole, opened
from network_support import make_certificate
from postgres_support import PostgresServer, running_server

import gossiplog
from gossiplog.errors import LocalProtocolError, ReadOnlyLog, StoreUnavailable
from gossiplog.store import pending_migrations

GUIDE = Path(__file__).parents[2] / "docs" / "postgres.md"
PASSWORD = "hunter2-%@/#?"
QUOTED = "hunter2-%25%40%2F%23%3F"


def grants(name: str, server_role: str, reader_role: str) -> str:
    """The statements of the guide, for these roles and this log."""
    (block,) = re.findall(r"```sql\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    return block.replace("gossiplog_app", f"gossiplog_{name}").replace("app_server", server_role).replace("app_reader", reader_role)


@pytest.fixture
async def granted(postgres: PostgresServer) -> tuple[str, str, str]:
    """A log's name, and the roles of a server peer and a reader."""
    tag = secrets.token_hex(3)
    name, server_role, reader_role = f"granted{tag}", f"server{tag}", f"reader{tag}"
    async with opened(postgres.url(name)) as log:
        await log.append_many(range(50))
    await trio.to_thread.run_sync(postgres.sql, f"CREATE ROLE {server_role} LOGIN; CREATE ROLE {reader_role} LOGIN")
    await trio.to_thread.run_sync(postgres.sql, grants(name, server_role, reader_role))
    return name, server_role, reader_role


async def test_a_server_peer_can_do_everything_with_the_rights_of_readme(postgres, granted) -> None:
    name, role, _ = granted
    async with opened(postgres.url(name, user=role)) as log:
        await log.append_many(range(50))
        async with log.subscribe(cursor="x") as events:
            await events.ack(await anext(events))
        await assert_whole(log)
        assert await log.size_bytes() > 0


async def test_a_repair_is_for_the_owner(postgres, granted) -> None:
    name, role, _ = granted
    await trio.to_thread.run_sync(postgres.sql, f"DELETE FROM gossiplog_{name}.heads")
    async with opened(postgres.url(name, user=role)) as log:
        assert not (await log.fsck()).is_clean
        with pytest.raises(StoreUnavailable, match="permission denied"):
            await log.fsck(repair=True)
    async with opened(postgres.url(name)) as log:
        report = await log.fsck(repair=True)
        assert report.is_clean and report.repaired is not None
        await assert_whole(log)
        assert await log.count() == 50


async def test_a_server_peer_may_not_change_tables_or_other_logs(postgres, granted) -> None:
    name, role, _ = granted

    def attempt(statement: str) -> None:
        async def run() -> None:
            connection = await asyncpg.connect(postgres.url(user=role))
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(run())

    log = f"gossiplog_{name}"
    for statement in (
        f"DROP TABLE {log}.links",
        f"TRUNCATE {log}.entries",
        f"DELETE FROM {log}.entries",
        f"UPDATE {log}.entries SET value = ''",
        f"UPDATE {log}.log SET topic = 'x'",
        f"CREATE TABLE {log}.x (a INT)",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await trio.to_thread.run_sync(attempt, statement)
    with pytest.raises(StoreUnavailable, match="permission denied"):
        async with opened(postgres.url(f"new{name}", user=role)):
            pass


async def test_a_reader_reads_and_is_told_why_it_does_not_write(postgres, granted) -> None:
    name, _, role = granted
    async with opened(postgres.url(name, user=role), read_only=True) as log:
        await assert_whole(log)
        assert await log.count() == 50
        async with log.subscribe() as events:
            assert (await anext(events)).message.payload == 0
    with pytest.raises(ReadOnlyLog, match=f"role {role} may not write") as caught:
        async with opened(postgres.url(name, user=role)):
            pass
    assert "entries: INSERT" in str(caught.value)


async def test_a_role_without_any_rights_is_told_so(postgres, granted) -> None:
    name, _, _ = granted
    other = f"other{secrets.token_hex(3)}"
    await trio.to_thread.run_sync(postgres.sql, f"CREATE ROLE {other} LOGIN")
    for options in ({"read_only": True}, {}):
        with pytest.raises(StoreUnavailable, match="permission denied") as caught:
            async with opened(postgres.url(name, user=other), **options):
                pass
        assert "docs/postgres.md" in caught.value.hint


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server that wants a password from whoever comes over TCP, and TLS if it was built with it."""
    with running_server(fsync="off") as server:
        server.sql(f"CREATE ROLE app LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
        speaks_tls = server.speaks_tls()
        if speaks_tls:
            certificate, key = make_own_certificate(server.folder)
            server.sql(f"ALTER SYSTEM SET ssl_cert_file = '{certificate}'")
            server.sql(f"ALTER SYSTEM SET ssl_key_file = '{key}'")
            server.sql("ALTER SYSTEM SET ssl = on")
        rule = "hostssl" if speaks_tls else "host"
        (server.data / "pg_hba.conf").write_text(f"local all all trust\n{rule} all all all scram-sha-256\n")
        server.stop()
        server.start()
        yield server


def make_own_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate and its key, which are the folder's owner's: a server takes no key of anybody else's."""
    certificate, key = make_certificate(folder)
    owner = folder.stat()
    key.chmod(0o600)
    os.chown(key, owner.st_uid, owner.st_gid)
    return certificate, key


def tcp(server: PostgresServer, auth: str, query: str = "") -> str:
    return f"postgresql://{auth}127.0.0.1:{server.port}/postgres?log=secure{secrets.token_hex(3)}{query}"


async def check(url: str) -> None:
    async with gossiplog.open(url, topic=TOPIC) as log:
        assert PASSWORD not in log.location and QUOTED not in log.location and "hunter2" not in log.location
        assert await log.count() == 0


async def test_a_password_in_the_url(secure) -> None:
    await check(tcp(secure, f"app:{QUOTED}@"))


async def test_a_password_and_a_user_from_the_environment(secure, monkeypatch) -> None:
    monkeypatch.setenv("PGUSER", "app")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    await check(tcp(secure, ""))
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", str(secure.port))
    monkeypatch.setenv("PGDATABASE", "postgres")
    await check(f"postgresql:///?log=secure{secrets.token_hex(3)}")


async def test_a_password_from_a_password_file(secure, monkeypatch, tmp_path) -> None:
    passfile = tmp_path / "pgpass"
    passfile.write_text(f"127.0.0.1:{secure.port}:*:app:{PASSWORD}\n")
    passfile.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passfile))
    await check(tcp(secure, "app@"))
    monkeypatch.delenv("PGPASSFILE")
    await check(tcp(secure, "app@", f"&passfile={passfile}"))


async def test_everything_from_a_service_file(secure, monkeypatch, tmp_path) -> None:
    services = tmp_path / "services.conf"
    services.write_text(f"[prod]\nhost=127.0.0.1\nport={secure.port}\nuser=app\ndbname=postgres\npassword={PASSWORD.replace('%', '%%')}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    await check(f"postgresql:///?service=prod&log=secure{secrets.token_hex(3)}")
    monkeypatch.setenv("PGSERVICE", "prod")
    await check(f"postgresql:///?log=secure{secrets.token_hex(3)}")


@pytest.mark.parametrize("auth", ["app:hunter2-wrong@", "app@", "nobody:hunter2@"])
async def test_a_wrong_password_is_not_let_in_and_not_shown(secure, auth) -> None:
    with pytest.raises(StoreUnavailable, match=r"does not let us in|cannot be reached") as caught:
        await check(tcp(secure, auth))
    assert "hunter2" not in f"{caught.value}{caught.value.hint}{caught.value.__cause__!r}"


async def test_tls_is_checked_as_the_url_says(secure) -> None:
    if not await trio.to_thread.run_sync(secure.speaks_tls):
        pytest.skip("this PostgreSQL was built without TLS; that of a distribution has it")
    root = f"{secure.folder}/cert.pem"
    await check(tcp(secure, f"app:{QUOTED}@", f"&sslmode=verify-full&sslrootcert={root}"))
    with pytest.raises(StoreUnavailable, match=r"not let us in|encryption"):
        await check(tcp(secure, f"app:{QUOTED}@", "&sslmode=disable"))
    with pytest.raises(StoreUnavailable, match="not let us in"):
        await pending_migrations(tcp(secure, "app:wrong@", f"&sslmode=verify-full&sslrootcert={root}"))
    folder = secure.folder / "other"
    folder.mkdir()
    other, _ = make_certificate(folder)
    with pytest.raises(StoreUnavailable, match="certificate"):
        await check(tcp(secure, f"app:{QUOTED}@", f"&sslmode=verify-full&sslrootcert={other}"))
    with pytest.raises(StoreUnavailable, match="No such file"):
        await check(tcp(secure, f"app:{QUOTED}@", "&sslmode=verify-full&sslrootcert=/no/such/file"))
    with pytest.raises(LocalProtocolError, match="sslmode"):
        await check(tcp(secure, f"app:{QUOTED}@", "&sslmode=nonsense"))
