"""What a doctor says of figures: each thing that can be wrong is named by its check, and healthy figures are called healthy."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gossiplog.glass.doctor import (
    SEVERITIES,
    Certificate,
    Clock,
    Diagnosis,
    DiskSpace,
    LogFigures,
    NetworkFigures,
    Vitals,
    examine,
    findings_from,
)
from gossiplog.glass.scene import PeerLink

TOPIC = "glass.example.com"
PEER = PeerLink("12D3KooWone", "mesh", "/meshsub/1.1.0", (TOPIC,), is_pushing=True, score=3.0)
NETWORK = NetworkFigures(TOPIC, (PEER,), is_in_mesh=True, degree=1)
HEALTHY = Vitals(
    version="1.0",
    our_version="1.0",
    clock=Clock(0.2, 1.0),
    disk=DiskSpace(50 * 2**30, 100 * 2**30),
    files=(30, 16_384),
    certificate=Certificate("log.example.com", 80 * 86_400.0),
    log=LogFigures(1_000, 2, looked_at=64),
    network=NETWORK,
)


def worst(findings: Sequence[Diagnosis]) -> str:
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default="ok")


def peer(**changed: Any) -> Vitals:
    return replace(HEALTHY, network=replace(NETWORK, peers=(replace(PEER, **changed),)))


def network(**changed: Any) -> Vitals:
    return replace(HEALTHY, network=replace(NETWORK, **changed))


def log(**changed: Any) -> Vitals:
    return replace(HEALTHY, log=LogFigures(1_000, **{"heads": 2, **changed}))


def test_healthy_figures_are_healthy_and_say_what_was_looked_at() -> None:
    findings = examine(HEALTHY)
    assert {finding.severity for finding in findings} == {"ok"}
    looked_at = "version clock disk files certificate heads tree quarantine set-aside store peers mesh scores queues"
    assert [finding.check for finding in findings] == looked_at.split()
    assert worst(findings) == "ok"
    assert not any(finding.advice for finding in findings)


def test_nothing_is_said_of_what_was_not_looked_at() -> None:
    assert examine(Vitals()) == []
    assert worst([]) == "ok"


@pytest.mark.parametrize(
    ("vitals", "check", "severity"),
    [
        (replace(HEALTHY, clock=Clock(-30.0, 1.0)), "clock", "warning"),
        (replace(HEALTHY, clock=Clock(400.0, 1.0)), "clock", "error"),
        (replace(HEALTHY, disk=DiskSpace(2**29, 100 * 2**30)), "disk", "warning"),
        (replace(HEALTHY, disk=DiskSpace(2**20, 100 * 2**30)), "disk", "error"),
        (replace(HEALTHY, files=(850, 1_000)), "files", "warning"),
        (replace(HEALTHY, files=(1_000, 1_000)), "files", "error"),
        (replace(HEALTHY, our_version="1.1"), "version", "note"),
        (replace(HEALTHY, certificate=Certificate("a", 10 * 86_400.0)), "certificate", "warning"),
        (replace(HEALTHY, certificate=Certificate("a", -1.0)), "certificate", "error"),
        (log(heads=1_001), "heads", "warning"),
        (log(looked_at=64, faults=["entry x is damaged"]), "tree", "error"),
        (log(quarantined=3), "quarantine", "warning"),
        (log(quarantined=3, quarantined_lately=1), "quarantine", "error"),
        (log(set_aside={"app": 2}), "set-aside", "warning"),
        (network(is_disk_full=True), "store", "error"),
        (network(store_trouble="the store does not answer"), "store", "error"),
        (network(peers=()), "peers", "error"),
        (network(peers=(), is_in_mesh=False), "peers", "note"),
        (network(hubs=("ws://a",)), "peers", "error"),
        (network(dials={"/ip4/10.0.0.1/tcp/1": "refused"}), "dials", "warning"),
        (network(degree=0, is_spread=False), "mesh", "error"),
        (network(banned={"12D3KooWtwo": "signature: wrong"}), "bans", "warning"),
        (network(quiet_s=7_200.0), "quiet", "note"),
        (network(waiting=5_000), "queues", "note"),
        (network(misplaced="app.db is not there any more"), "store", "error"),
        (peer(topics=("other.example.com",), is_pushing=False), "topic", "warning"),
        (peer(topics=(), protocol=None), "protocol", "warning"),
        (peer(score=-12.0), "scores", "warning"),
        (peer(score=-90.0, is_heeded=False), "scores", "error"),
        (peer(queued_bytes=3 * 2**20), "queues", "warning"),
        (peer(dropped=4), "queues", "note"),
        (peer(refused=1), "refused", "warning"),
    ],
)
def test_what_is_wrong_is_named_by_its_check_alone_and_advised_on(vitals: Vitals, check: str, severity: str) -> None:
    found = [finding for finding in examine(vitals) if finding.severity != "ok"]
    assert {finding.check for finding in found} - {"mesh"} == {check} - {"mesh"}
    (named,) = [finding for finding in found if finding.check == check]
    assert (named.severity, bool(named.advice)) == (severity, True)
    assert worst(examine(vitals)) == severity or check in ("topic", "protocol", "scores")


def test_half_of_a_mesh_is_a_warning() -> None:
    peers = tuple(replace(PEER, peer=str(number)) for number in range(6))
    assert worst(examine(network(peers=peers, degree=3, is_spread=False))) == "warning"
    assert worst(examine(network(peers=peers, degree=4))) == "ok"


def test_findings_survive_json_and_an_answer_that_is_none_gives_none() -> None:
    findings = examine(peer(score=-12.0))
    assert findings_from({"findings": [finding.record() for finding in findings]}) == findings
    for answer in (None, [], {"findings": 3}, {"findings": [{"severity": "dreadful"}, 7]}):
        assert findings_from(answer) == list[Diagnosis]()


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("cannot connect to ws://a: the hub answered 401 Unauthorized", "--token-file"),
        ("the server answered 404 Not Found", "/TOPIC"),
        ("certificate verify failed: self-signed certificate", "--tls-ca"),
        ("it has our own peer id: it is this server itself, or one with a copy of its key", "a key of its own"),
        ("no answer within 10 s", "firewall"),
        ("Connection refused", "is the server running"),
        ("TLS failed: certificate verify failed: IP address mismatch, certificate is not valid for '127.0.0.1'.", "another name"),
        ("TLS failed: certificate verify failed: certificate has expired", "renew"),
        ("TLS failed: wrong version number", "ws:// do not"),
        ("the server closed the connection during the handshake", "wss://"),
        ("the server does not speak WebSocket: bad", "wss://"),
        ("the server refused with HTTP status 400", "wss://"),
        ("the server refused with HTTP status 429: you may create 2 logs a minute", "as it says"),
        ("the server refused with HTTP status 507: the logs here take 81,920 bytes, of 81,919", "no room"),
    ],
)
def test_advice_on_an_address_that_cannot_be_reached_fits_the_reason(reason: str, word: str) -> None:
    [finding] = [one for one in examine(network(dials={"ws://a": reason})) if one.check == "dials"]
    assert word in finding.advice
