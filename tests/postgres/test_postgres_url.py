"""URLs: what is understood, what is refused, and that nothing secret is ever shown."""

import socket
import time

import pytest

import gossiplog
from gossiplog.cli.options import Location
from gossiplog.errors import LocalProtocolError, StoreError
from gossiplog.store.postgres.connection import _keep_alive
from gossiplog.store.postgres.url import PostgresUrl, is_postgres_url, without_secrets

SECRET = "hunter2"


def test_the_log_is_taken_out_of_the_url_and_the_rest_is_left_for_the_driver() -> None:
    url = PostgresUrl.parse("postgresql://user:hunter2@db.example.com:5433/app?log=notes&sslmode=verify-full&statement_timeout=5000")
    assert url.log == "notes"
    assert url.dsn == "postgresql://user:hunter2@db.example.com:5433/app?sslmode=verify-full&statement_timeout=5000"
    assert url.settings == {"statement_timeout"}
    assert (url.schema, url.quoted_schema) == ("gossiplog_notes", '"gossiplog_notes"')
    assert url.location == "postgresql://user@db.example.com:5433/app?log=notes"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://user:hunter2@host/db?log=a",
        "postgresql://host/db?log=a&user=u&password=hunter2",
        "postgres://user:hunter2@h1:1,h2:2/db?log=a&sslpassword=hunter2&passfile=/hunter2",
        "postgresql://user:hunter2@/db?log=a&host=/run/postgresql&port=5433",
        "postgresql:///?log=a&service=prod&sslkey=hunter2",
    ],
)
def test_nothing_secret_is_shown(text) -> None:
    url = PostgresUrl.parse(text)
    location = Location.parse(text)
    for shown in (url.location, repr(url), str(location), f"{location}", without_secrets(text)):
        assert SECRET not in shown
    assert location.full == text
    assert SECRET in url.dsn


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://host/db",
        "postgresql://host/db?log=",
        "postgresql://host/db?log=a&log=b",
        "postgresql://user:hunter2@host/db",
        "postgresql://user:hunt/er2@host/db?log=a",
        "postgresql://user:hunt@er2@host/db?log=a",
        "postgresql://user:hunt#er2@host/db?log=a",
        "postgresql://user:hunt?er2@host/db?log=a",
        "postgresql://user:hun%00ter2@host/db?log=a",
        "postgresql://host/db?log=a%00b",
        "postgresql://host:hunter2/db?log=a",
        "postgresql://host:0/db?log=a",
        "postgresql://[::1/db?log=a",
        "postgresql://host/db?log",
        "postgresql://host/db?log=" + "a" * 54,
        "postgresql://host/db?log=" + "ä" * 27,
        "postgresql://host/db?log=a%0Ab",
        "postgresql://host/db?log=a%1Bb",
    ],
)
def test_what_is_wrong_is_refused_without_a_secret_in_the_message(text) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        PostgresUrl.parse(text)
    for part in ("hunter2", "hunt", "er2"):
        assert part not in str(caught.value)
        assert part not in without_secrets(text)


def test_a_name_of_any_letters_is_quoted() -> None:
    url = PostgresUrl.parse("postgresql://host/db?log=" + "A%22%20b;%20DROP%20TABLE%20x--%7Blog%7D%20%E2%82%AC")
    assert url.log == 'A" b; DROP TABLE x--{log} €'
    assert url.quoted_schema == '"gossiplog_A"" b; DROP TABLE x--{log} €"'


def test_a_port_alone_and_a_lone_slash_mean_what_they_mean_to_libpq() -> None:
    assert PostgresUrl.parse("postgresql://u@:5433/db?log=a").dsn == "postgresql://u@/db?port=5433"
    assert PostgresUrl.parse("postgresql:///?log=a").dsn == "postgresql://"


def test_other_schemes_are_not_ours() -> None:
    assert is_postgres_url("postgresql://x") and is_postgres_url("postgres://x")
    assert not is_postgres_url("postgresql.db") and not is_postgres_url("mysql://x") and not is_postgres_url("postgres:x")


@pytest.mark.parametrize(
    "text",
    [
        "postgresql:///db?log=a&host=./sock",
        "postgresql:///db?log=a&host=../run/postgresql",
        "postgresql:///db?log=a&host=run/postgresql",
        "postgresql:///db?log=a&host=/run/postgresql,./sock",
        "postgresql://.%2Fhunter2/db?log=a",
        "postgresql://u:hunter2%2F,h/db?log=a",
    ],
)
def test_a_relative_folder_of_a_socket_is_refused_with_what_to_write(text) -> None:
    with pytest.raises(LocalProtocolError, match="relative path") as caught:
        PostgresUrl.parse(text)
    assert "/run/postgresql" in (caught.value.hint or "") and SECRET not in str(caught.value)


@pytest.mark.parametrize("host", ["./sock", "a..b", "é" * 64, "." * 3])
async def test_what_cannot_be_a_host_in_the_environment_is_the_callers_mistake(host, monkeypatch) -> None:
    monkeypatch.setenv("PGHOST", host)
    with pytest.raises(LocalProtocolError, match="neither a name nor the absolute path"):
        async with gossiplog.open("postgresql:///db?log=a"):
            pass


def test_what_libpq_has_of_the_connection_itself_is_not_left_to_the_driver() -> None:
    url = PostgresUrl.parse("postgresql://host/db?log=a&connect_timeout=3&keepalives=1&keepalives_idle=20&tcp_user_timeout=900")
    assert url.dsn == "postgresql://host/db" and url.settings == frozenset()
    assert url.connection == {"connect_timeout": 3, "keepalives": 1, "keepalives_idle": 20, "tcp_user_timeout": 900}
    for wrong in ("", "3s", "1e3", "99999999999", "٣"):
        with pytest.raises(LocalProtocolError, match="connect_timeout is not a whole number"):
            PostgresUrl.parse(f"postgresql://host/db?log=a&connect_timeout={wrong}")


async def test_connecting_takes_as_long_as_the_url_says() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(StoreError):
            async with gossiplog.open(f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/db?log=a&connect_timeout=2&sslmode=disable"):
                pass
        assert 1 < time.monotonic() - began < 8


@pytest.mark.parametrize(("chosen", "expected"), [({}, (1, None)), ({"keepalives": 0}, (0, None)), ({"keepalives_idle": 21}, (1, 21))])
def test_keepalives_are_on_unless_they_are_turned_off(chosen, expected) -> None:
    with socket.socket() as place:
        _keep_alive(place, chosen)
        assert place.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == expected[0]
        assert expected[1] is None or place.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == expected[1]
