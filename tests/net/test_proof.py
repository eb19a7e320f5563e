"""A did that lets its holder in: what is signed counts once, for one server and one log, and all else is refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from network_support import TOPIC, eventually, fetch, memory_log, signer, until_count

from gossiplog.codec.base58 import encode_base58
from gossiplog.codec.did import encode_did
from gossiplog.entry import Ed25519Signer
from gossiplog.entry.ed25519 import verify_signed, verify_strictly
from gossiplog.errors import LocalProtocolError
from gossiplog.net.ground import proof as proof_module
from gossiplog.net.ground.access import Access, Caller
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.ground.proof import ANSWERED_MAX, statement
from gossiplog.net.hub.client import fetch_token, parse_url
from gossiplog.net.hub.exchange import exchange
from gossiplog.net.hub.server import Hub
from gossiplog.net.transport.http_names import Names

ALICE, BOB = signer(2), signer(3)
JSON = {"content-type": "application/json"}


def limits(*, hosts: frozenset[str] = frozenset(), **rules: Any) -> HubLimits:
    """Rules by which Alice may do all but watch, and who is nobody nothing."""
    rights = ["connect", "pull", "push", "post"]
    return HubLimits(access=Access.parse({"default": {"dids": {ALICE.did: rights}, **rules}}), hosts=hosts)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def challenge_of(hub: Hub, api: str = "/api") -> str:
    answer = await fetch(hub, f"{api}/challenge")
    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    return str(answer.json["challenge"])


async def prove(hub: Hub, identity: Ed25519Signer = ALICE, *, api: str = "/api", **changed: str) -> tuple[int, str]:
    """Prove a did, with something changed in what is signed (`topic`) or brought; return the status, and the token or the reason."""
    challenge = changed.get("challenge") or await challenge_of(hub, api)
    host = changed.get("host", f"localhost:{hub.port}")
    signature = identity.sign(statement(identity.did, host, changed.get("topic", TOPIC), challenge)).hex()
    body = {"did": identity.did, "host": host, "challenge": challenge, "signature": signature}
    body |= {name: value for name, value in changed.items() if name in body}
    answer = await fetch(hub, f"{api}/token", method="POST", headers=JSON, body=json.dumps(body).encode())
    return answer.status, answer.json["token"] if answer.status == 200 else answer.body.decode().strip()


async def test_did_lets_its_holder_connect_sync_and_ask_and_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async with memory_log(1) as log, memory_log(2) as client, memory_log(3) as other, log.listen("127.0.0.1:0", limits=limits()) as hub:
        await log.append_many(range(5))
        async with client.connect(hub.urls[0], identity=ALICE) as link:
            await until_count(client, 5)
            assert link.error is None
        assert (await exchange(client, parse_url(hub.urls[0], identity=ALICE))).is_equal
        token = await fetch_token(parse_url(hub.urls[0], identity=ALICE))
        assert token is not None
        assert (await fetch(hub, f"/api/heads?token={token}")).status == 200
        refused = await fetch(hub, "/api/connections", headers=bearer(token))
        assert (refused.status, refused.body) == (403, b"this token does not allow to watch\n")
        without = await fetch(hub, "/api/heads")
        assert without.status == 401
        assert b"a did gets one for the answer to api/challenge" in without.body
        async with other.connect(hub.urls[0], identity=BOB) as link:
            await eventually(lambda: link.error)
            assert f"{BOB.did} is not let in here" in (link.error or "")
        assert await other.count() == 0
    assert token not in "".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)


async def test_hub_that_knows_no_dids_is_connected_to_without_proof() -> None:
    async with memory_log(1) as log, memory_log(2) as client:
        async with log.listen("127.0.0.1:0") as hub:
            await log.append("for everybody")
            assert (await fetch(hub, "/api/challenge")).status == 404
            assert await fetch_token(parse_url(hub.urls[0], identity=ALICE)) is None
            assert (await exchange(client, parse_url(hub.urls[0], identity=ALICE))).is_equal
        async with log.listen("127.0.0.1:0", has_api=False) as hub:
            assert (await exchange(client, parse_url(hub.urls[0], identity=ALICE))).is_equal


async def test_answer_counts_once() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=limits()) as hub:
        challenge = await challenge_of(hub)
        assert (await prove(hub, challenge=challenge))[0] == 200
        assert await prove(hub, challenge=challenge) == (401, "this challenge was answered before: ask for another")
        assert (await prove(hub, challenge=challenge.upper()))[0] == 401
        assert (await prove(hub, challenge=challenge + " "))[0] == 401


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"topic": "another.example.com"}, "the signature does not verify"),
        ({"signature": "00" * 64}, "the signature does not verify"),
        ({"signature": ""}, "the signature does not verify"),
        ({"did": BOB.did}, "the signature does not verify"),
        ({"did": "did:key:zNothing"}, "this is no did:key of an Ed25519 key"),
        ({"host": "hub.example.com"}, "this was signed for hub.example.com, which is no name of this server"),
        ({"host": "localhost:1"}, "this was signed for localhost:1, which is no name of this server"),
        ({"challenge": "00" * 57}, "this challenge is not of this server"),
        ({"challenge": "nonsense"}, "this challenge is not of this server"),
    ],
)
async def test_proof_that_is_none_is_refused_with_its_reason(changed: dict[str, str], reason: str) -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=limits()) as hub:
        status, said = await prove(hub, **changed)
        assert status == 401
        assert said.startswith(reason)


async def test_one_who_is_not_named_is_refused_after_the_proof_alone() -> None:
    """Else anybody could ask who is let in."""
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=limits()) as hub:
        assert await prove(hub, BOB) == (403, f"{BOB.did} is not let in here")
        for did in (ALICE.did, BOB.did):
            assert await prove(hub, signer(9), did=did) == (401, "the signature does not verify")


async def test_keys_that_sign_anything_and_other_spellings_of_a_key_prove_nothing() -> None:
    nobody = bytes([1]) + bytes(31)
    anything = nobody + bytes(32)
    assert verify_signed(nobody, anything + b"whatever it is")
    assert not verify_strictly(nobody, anything, b"whatever it is")
    small = encode_did(0xED, nobody)
    padded = "did:key:z" + encode_base58(b"\xed\x81\x00" + ALICE.public_key)
    with pytest.raises(LocalProtocolError, match="is no did:key of an Ed25519 key"):
        Access.parse({"default": {"dids": {padded: ["pull"]}}})
    access = Access.parse({"default": {"dids": {small: ["pull"]}}})
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=HubLimits(access=access)) as hub:
        assert await prove(hub, did=small, signature=anything.hex()) == (401, "the signature does not verify")
        assert (await prove(hub, did=padded))[0] == 401


async def test_what_is_too_late_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=limits()) as hub:
        with monkeypatch.context() as patched:
            patched.setattr(proof_module, "CHALLENGE_S", -0.001)
            status, said = await prove(hub)
            assert (status, said) == (401, "this challenge is not of this server, or more than a minute old: ask for another")
        with monkeypatch.context() as patched:
            patched.setattr(proof_module, "TOKEN_S", -0.001)
            _, token = await prove(hub)
        answer = await fetch(hub, "/api/heads", headers=bearer(token))
        assert (answer.status, answer.body) == (401, b"this token has expired: prove your did again\n")


async def test_token_is_for_one_log_and_one_server_and_cannot_be_changed() -> None:
    async with (
        memory_log(1) as log,
        memory_log(1, topic="other.example.com") as second,
        log.listen("127.0.0.1:0", limits=limits()) as hub,
        second.listen("127.0.0.1:0", limits=limits()) as another,
        hub.logs.pinned(second),
    ):
        _, token = await prove(hub, api=f"/{TOPIC}/api")
        unknown = (401, b"this token is not known here, or not for this log\n")
        assert (await fetch(hub, f"/{TOPIC}/api/heads", headers=bearer(token))).status == 200
        at_other = await fetch(hub, "/other.example.com/api/heads", headers=bearer(token))
        elsewhere = await fetch(another, "/api/heads", headers=bearer(token))
        assert (at_other.status, at_other.body) == (elsewhere.status, elsewhere.body) == unknown
        # What was signed for one of the logs is no proof for the other.
        assert await prove(hub, api="/other.example.com/api") == (401, "the signature does not verify")
        _, name, deadline, mac = token.split(".")
        later = f"{int(deadline, 16) + 10**9:x}"
        theirs = BOB.did.removeprefix("did:key:")
        forged = [(name, later, mac), (theirs, deadline, mac), (name, deadline, mac[:-1]), (name, deadline, ""), (name, "", mac)]
        for parts in [*forged, ("", "", ""), ("é", "\udcff", "…")]:
            rights = Caller(hub.admission.limits.access, ".".join(("did", *parts))).refusal(TOPIC, "pull")
            assert rights is not None
            assert rights.status == 401
        # A challenge of another server, and one that another passed on: its client signed for the host that it had dialled.
        assert (await prove(hub, challenge=await challenge_of(another), api=f"/{TOPIC}/api"))[0] == 401
        relayed, said = await prove(hub, host=f"127.0.0.1:{another.port}", api=f"/{TOPIC}/api")
        assert relayed == 401
        assert "which is no name of this server" in said


def test_server_is_meant_by_its_own_address_and_the_names_it_was_given() -> None:
    plain = Names(HubLimits(), None, is_tls=False)
    named = Names(HubLimits(hosts=frozenset({"hub.example.com"})), "127.0.0.1", is_tls=True)
    loopback = ("127.0.0.1", 8080)
    for names, host, local, is_meant in [
        (plain, "127.0.0.1:8080", loopback, True),
        (plain, "localhost:8080", loopback, True),
        (plain, "[::1]:8080", ("::1", 8080), True),
        (plain, "192.0.2.1", ("::ffff:192.0.2.1", 80), True),
        (plain, "127.0.0.1:8081", loopback, False),
        (plain, "localhost", loopback, False),
        (plain, "localhost:8080", ("192.0.2.1", 8080), False),
        (plain, "192.0.2.2:8080", loopback, False),
        (plain, "evil.example.com:8080", loopback, False),
        (named, "hub.example.com", loopback, True),
        (named, "HUB.example.com:8443", loopback, True),
        (named, "127.0.0.1", ("127.0.0.1", 443), True),
        (named, "127.0.0.1:8443", ("127.0.0.1", 443), False),
        (named, "hub.example.com.evil.example.com", loopback, False),
        # With a certificate of its own a server answers under any name; but nobody means it by any.
        (Names(HubLimits(), None, is_tls=True), "evil.example.com", loopback, False),
        (Names(HubLimits(hosts=frozenset({"*"})), None, is_tls=False), "any.example.com", loopback, True),
    ]:
        assert names.are_ours(host, local) == is_meant, (host, local)


async def test_flood_of_challenges_and_answers_leaves_nothing() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=limits()) as hub:
        proofs = hub.admission.limits.access.proofs
        assert len({proofs.challenge() for _ in range(10_000)}) == 10_000
        for number in range(20):
            assert (await prove(hub, Ed25519Signer.from_seed(bytes([number]) * 31 + b"\1")))[0] == 403
        assert proofs._answered == {}
        given = [(await prove(hub))[0] for _ in range(ANSWERED_MAX + 1)]
        assert given == [200] * ANSWERED_MAX + [429]
        assert len(proofs._answered[ALICE.did]) == ANSWERED_MAX


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400), (b"[]", 400), (b"{}", 400), (b"[" * 4_000, 400), (b"null", 400), (b"x" * 5_000, 413),
        (b'{"did":1,"host":"h","challenge":"c","signature":"00"}', 400),
        (b'{"did":"d","host":"h","challenge":"c","signature":"xx"}', 400),
        (b'{"did":"d","host":"h\\n","challenge":"c","signature":"00"}', 400),
        (b'{"did":"d","host":"h","challenge":"c","signature":"00","more":1}', 400),
    ],
)  # fmt: skip
async def test_what_is_no_proof_is_refused(body: bytes, status: int) -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=limits()) as hub:
        assert (await fetch(hub, "/api/token", method="POST", headers=JSON, body=body)).status == status


async def test_rights_that_are_taken_from_a_did_are_gone_with_the_next_request() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=limits()) as hub:
        _, token = await prove(hub)
        assert (await fetch(hub, "/api/heads", headers=bearer(token))).status == 200
        hub.admission.limits.access.replace(Access.parse({"default": {"dids": {BOB.did: ["pull"]}}}))
        assert (await fetch(hub, "/api/heads", headers=bearer(token))).status == 403


async def test_hub_that_answers_nonsense_is_said_to() -> None:
    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            asked = await stream.receive_some()
            said = said_of["challenge" if b"challenge" in asked else "token"]
            await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(said) + said)

    good = b'{"challenge":"c","topic":"t"}'
    cases = [(b"[]", b"", "else than a challenge"), (b'{"challenge":"a\\nb","topic":"t"}', b"", "else than a challenge")]
    cases += [(good, b"{}", "else than a token"), (good, b'{"token":"a b"}', "else than a token"), (b"x" * 20_000, b"", "more than 16384")]
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, answer, [listener])
        url = f"ws://127.0.0.1:{listener.socket.getsockname()[1]}"
        async with memory_log(2) as client:
            for challenge, token, reason in cases:
                said_of = {"challenge": challenge, "token": token}
                with pytest.raises(Exception, match=reason):
                    await exchange(client, parse_url(url, identity=ALICE))
        nursery.cancel_scope.cancel()


async def test_headers_that_let_a_client_through_a_proxy_go_with_its_proof() -> None:
    heads: list[bytes] = []

    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            heads.append(await stream.receive_some())
            said = b'{"challenge":"c","topic":"t","token":"word"}'
            await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(said) + said)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, answer, [listener])
        url = parse_url(f"ws://127.0.0.1:{listener.socket.getsockname()[1]}", headers={"X-Key": "ours"}, identity=ALICE)
        assert await fetch_token(url) == "word"
        nursery.cancel_scope.cancel()
    assert [head.partition(b" HTTP")[0] for head in heads] == [b"GET /api/challenge", b"POST /api/token"]
    assert all(b"X-Key: ours" in head for head in heads)
