"""Who may connect."""

from __future__ import annotations

import pytest
import trio

from gossiplog.net.ground.admission import IDLE_S, Admission, HubLimits, Refused, Worth, client_address


async def test_address_has_so_many_connections_and_gets_them_back() -> None:
    admission = Admission(HubLimits(connections_per_address=2))
    with admission.connection("203.0.113.1"):
        with admission.connection("203.0.113.1"):
            with pytest.raises(Refused, match="2 connections"), admission.connection("203.0.113.1"):
                raise AssertionError
            with admission.connection("203.0.113.2"):
                assert admission.open == 3
        with admission.connection("203.0.113.1"):
            assert admission.open == 2
    assert admission.open == 0


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "198.51.100.1"])
async def test_loopback_and_proxies_are_not_counted(address: str) -> None:
    admission = Admission(HubLimits(connections_per_address=1, proxies=frozenset({"198.51.100.1"})))
    with admission.connection(address), admission.connection(address), admission.connection(address):
        assert admission.open == 3


async def test_ipv6_counts_by_the_network_of_64_bits() -> None:
    admission = Admission(HubLimits(connections_per_address=1))
    with admission.connection("2001:db8::1"):
        with pytest.raises(Refused), admission.connection("2001:db8::ffff:2"):
            raise AssertionError
        with admission.connection("2001:db8:0:1::1"):
            pass


async def test_there_is_an_end_to_all_connections() -> None:
    admission = Admission(HubLimits(connections_max=2))
    with (
        admission.connection("127.0.0.1"),
        admission.connection("203.0.113.1"),
        pytest.raises(Refused, match="are open"),
        admission.connection("203.0.113.2"),
    ):
        raise AssertionError


async def test_ban_keeps_an_address_out_for_its_time(autojump_clock: trio.testing.MockClock) -> None:
    admission = Admission(HubLimits())
    admission.ban("203.0.113.1", trio.current_time() + 600)
    admission.ban("127.0.0.1", trio.current_time() + 600)
    with pytest.raises(Refused, match="banned"), admission.connection("203.0.113.1"):
        raise AssertionError
    with admission.connection("127.0.0.1"), admission.connection("203.0.113.2"):
        pass
    await trio.sleep(601)
    with admission.connection("203.0.113.1"):
        pass


async def test_bans_have_a_maximum() -> None:
    admission = Admission(HubLimits())
    for number in range(5_000):
        admission.ban(f"203.0.{number // 250}.{number % 250}", trio.current_time() + 600)
    assert len(admission._banned) == 4_096


async def test_oldest_handshake_makes_room() -> None:
    admission = Admission(HubLimits(half_open_max=2))
    ended: list[int] = []

    async def shake(number: int, task_status: trio.TaskStatus[None]) -> None:
        with admission.handshake() as scope:
            task_status.started()
            await trio.sleep_forever()
        assert scope.cancelled_caught
        ended.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(4):
            await nursery.start(shake, number)
        await trio.testing.wait_all_tasks_blocked()
        assert ended == [0, 1]
        assert admission.half_open == 2
        nursery.cancel_scope.cancel()


async def test_handshake_that_takes_too_long_is_ended(autojump_clock: trio.testing.MockClock) -> None:
    admission = Admission(HubLimits(handshake_s=5.0))
    with admission.handshake() as scope:
        await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(5.0)
    assert admission.half_open == 0


@pytest.mark.parametrize(
    ("remote", "forwarded", "client"),
    [
        ("203.0.113.9", ["1.2.3.4"], "203.0.113.9"),
        ("10.0.0.1", ["1.2.3.4"], "1.2.3.4"),
        ("10.0.0.1", ["6.6.6.6", " 1.2.3.4 "], "1.2.3.4"),
        ("10.0.0.1", ["6.6.6.6", "1.2.3.4", "10.0.0.2"], "1.2.3.4"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["nonsense"], "10.0.0.1"),
        ("10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("::ffff:203.0.113.9", [], "203.0.113.9"),
        ("::ffff:10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["::ffff:203.0.113.9"], "203.0.113.9"),
        ("testclient", ["203.0.113.9"], "127.0.0.1"),
    ],
)
def test_client_behind_proxies_is_the_last_that_is_none(remote: str, forwarded: list[str], client: str) -> None:
    assert client_address(remote, forwarded, {"10.0.0.1", "10.0.0.2"}) == client


def test_origins_are_those_named() -> None:
    limits = HubLimits(origins=frozenset({"https://a.example"}))
    assert limits.names_origin("https://a.example")
    assert not limits.names_origin("https://b.example")
    assert HubLimits(origins=frozenset({"*"})).names_origin("https://b.example")
    assert not HubLimits().names_origin("https://b.example")


async def test_idle_places_go_to_newcomers_and_useful_ones_stay(autojump_clock: trio.testing.MockClock) -> None:
    admission = Admission(HubLimits(connections_max=6))
    gone: list[str] = []

    async def occupy(address: str, worth: Worth) -> None:
        with admission.connection(address) as place:
            place.worth = lambda: worth
            await trio.sleep_forever()
        gone.append(address)

    async with trio.open_nursery() as nursery:
        for address, worth in (
            ("203.0.113.1", Worth.DELIVERED),
            ("203.0.113.2", Worth.TALKS),
            ("203.0.113.3", Worth.NOTHING),
            ("203.0.113.4", Worth.NOTHING),
            ("203.0.113.4", Worth.TALKS),
            ("203.0.113.4", Worth.TALKS),
        ):
            nursery.start_soon(occupy, address, worth)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Refused, match="6 connections"), admission.connection("203.0.113.9"):
            raise AssertionError("nobody has been idle for long")
        await trio.sleep(IDLE_S)
        for number in range(3):
            nursery.start_soon(occupy, f"203.0.113.{10 + number}", Worth.DELIVERED)
            await trio.testing.wait_all_tasks_blocked()
        # The silent one of the largest crowd, the other silent one, then one of those who only talk from where there are more.
        assert gone == ["203.0.113.4", "203.0.113.3", "203.0.113.4"]
        assert admission.open == 6
        nursery.cancel_scope.cancel()
    assert admission.open == 0


async def test_places_are_not_taken_from_those_who_talk_for_those_who_are_as_well_off(autojump_clock: trio.testing.MockClock) -> None:
    admission = Admission(HubLimits(connections_max=2))
    async with trio.open_nursery() as nursery:

        async def occupy(address: str) -> None:
            with admission.connection(address):
                await trio.sleep_forever()

        nursery.start_soon(occupy, "203.0.113.1")
        nursery.start_soon(occupy, "203.0.113.2")
        await trio.sleep(2 * IDLE_S)
        with pytest.raises(Refused), admission.connection("203.0.113.3"):
            raise AssertionError
        nursery.cancel_scope.cancel()
