"""Metrics, sizes and reports."""

import math
from dataclasses import replace
from typing import Any

import pytest

from gossiplog.codec.base58 import encode_base58
from gossiplog.pubsub import rpc as overlay
from gossiplog.pubsub.rpc import Control, Extensions, IHave, Message, PeerRecord, Prune, Rpc, Subscription
from gossiplog.pubsub.wire.rpc_codec import Wire
from gossiplog.sim.measure.metrics import Metrics, percentile
from gossiplog.sim.measure.report import as_row, compare_table, describe, mean_rows, without_attack
from gossiplog.sim.measure.sizes import PEER_ID_BYTES, parts_of, rpc_bytes
from gossiplog.sim.routing.run import ScenarioRun, run_row, run_scenario
from gossiplog.sim.scenario import Attack, PublishSpec, Scenario


def test_percentile_is_the_nearest_rank() -> None:
    assert math.isnan(percentile([], 0.5))
    assert percentile([1.0], 0.99) == 1.0
    assert percentile([float(n) for n in range(100)], 0.5) == 50.0
    assert percentile([float(n) for n in range(100)], 0.99) == 99.0


def test_missing_are_those_who_were_up_all_the_time() -> None:
    metrics = Metrics(nodes=6, honest=5)
    for node in range(4):
        metrics.on_up(0.0, node)
    number = metrics.on_publish(1.0, 0)
    metrics.on_deliver(1.1, 1, 0, number)
    metrics.on_down(2.0, 3)  # crashed later
    metrics.on_up(3.0, 4)  # came later
    assert metrics.missing(number) == [2]
    metrics.on_up(4.0, 3)  # and came back with nothing
    assert metrics.missing(number) == [2]
    metrics.on_deliver(5.0, 2, 1, number)
    metrics.on_deliver(5.0, 5, 1, number)  # a malicious node: no latency of its counts
    assert metrics.missing(number) == []
    assert list(metrics.latencies_s) == pytest.approx([0.1, 4.0])
    assert metrics.last_hop(number) == 2


def test_what_a_node_got_before_it_was_restarted_is_not_counted_again() -> None:
    metrics = Metrics(nodes=3, honest=3)
    metrics.on_publish(1.0, 0)
    metrics.on_deliver(1.1, 1, 0, 0)
    metrics.on_down(2.0, 1)
    metrics.on_up(3.0, 1)
    metrics.on_deliver(4.0, 1, 0, 0)
    metrics.on_deliver(4.0, 2, 1, 0)
    metrics.on_down(5.0, 0)
    metrics.on_up(6.0, 0)
    metrics.on_deliver(7.0, 0, 2, 0)  # to its publisher, who knows nothing of it any more
    summary = metrics.summary()
    assert (summary.delivered, summary.counters["deliver"]) == (2, 3)
    assert metrics.last_hop(0) == 2


def test_redundancy_is_payloads_over_receipts_less_one() -> None:
    metrics = Metrics(5, 5)
    number = metrics.on_publish(0.0, 0)
    assert metrics.rmr(number) == 0.0
    metrics.copies[number] = 6
    for node in (1, 2, 3, 4):
        metrics.on_deliver(0.1, node, 0, number)
    assert metrics.rmr(number) == 0.5
    assert metrics.summary().rmr == 0.5


PEER: Any = encode_base58(b"\x00\x24" + bytes(range(PEER_ID_BYTES - 2)))
TOPIC: Any = "topic"
ID: Any = b"\x01" * 20
RECORDS = (PeerRecord(PEER, b"r" * 100), PeerRecord(PEER))


OVERLAY = [
    overlay.GetNodes(TOPIC),
    overlay.Nodes(TOPIC, (PEER,)),
    overlay.WalkJoin(TOPIC, PEER, 6),
    overlay.ForwardJoin(TOPIC, PEER, 3),
    overlay.Neighbor(TOPIC, overlay.NeighborKind.REQUEST, True, 2, (PEER,)),
    overlay.Neighbor(TOPIC, overlay.NeighborKind.LINKS, False, 0, ()),
    overlay.LinkEnded(TOPIC),
    overlay.Leaving(TOPIC, PEER, 2),
    overlay.Shuffle(TOPIC, PEER, (PEER, PEER), 6),
    overlay.ShuffleReply(TOPIC, (PEER,)),
    overlay.TreeIHave(TOPIC, ((ID, 3),)),
    overlay.TreeGraft(TOPIC, (ID,)),
    overlay.TreePrune(TOPIC),
]


PARTS = [
    Rpc((Message(ID, TOPIC, b"x" * 300),)),
    Rpc(subscriptions=(Subscription(TOPIC, True), Subscription(TOPIC, False))),
    Rpc(control=Control(ihave=(IHave(TOPIC, (ID,) * 30), IHave(TOPIC, ())))),
    Rpc(control=Control(iwant=(ID,) * 9, idontwant=(ID,))),
    Rpc(control=Control(graft=(TOPIC, TOPIC))),
    Rpc(control=Control(prune=(Prune(TOPIC, RECORDS, 60), Prune(TOPIC, (), 0), Prune(TOPIC, (), 3600), Prune(TOPIC)))),
    Rpc(control=Control(choke=(TOPIC,), unchoke=(TOPIC,))),
    Rpc(control=Control(extensions=Extensions())),
    Rpc(control=Control(extensions=Extensions(test=True))),
    Rpc(is_test=True),
    Rpc((Message(ID, TOPIC, b"x"),), hops=200),
    *(Rpc(overlay=(part,)) for part in OVERLAY),
]


@pytest.mark.parametrize("rpc", PARTS, ids=lambda rpc: type(rpc).__name__)
def test_size_is_that_of_the_encoded_frame(rpc: Rpc) -> None:
    assert [rpc_bytes(rpc)] == [len(frame) for frame in Wire().encode(rpc)]


def test_every_part_of_an_rpc_is_named_and_weighed() -> None:
    control = Control((IHave(TOPIC, (ID,)),), (ID,), (TOPIC,), (Prune(TOPIC),), (ID,), (TOPIC,), (TOPIC,), Extensions(test=True))
    whole = Rpc((Message(ID, TOPIC, b"x"),), (Subscription(TOPIC, True),), control, tuple(OVERLAY), hops=3, is_test=True)
    names = [name for name, _, _ in parts_of(whole)]
    assert names == [
        "subscription", "ihave", "iwant", "graft", "prune", "idontwant", "choke", "unchoke", "extensions",
        "getnodes", "nodes", "join", "forwardjoin", "neighbor", "neighbor", "disconnect", "leave",
        "shuffle", "shufflereply", "ihave", "graft", "prune", "test",
    ]  # fmt: skip
    assert [rpc_bytes(whole)] == [len(frame) for frame in Wire().encode(whole)]


SMALL = Scenario("small", nodes=12, publish=PublishSpec(messages=4, start_s=3.0, linger_s=2.0))


def test_summary_has_the_shape_of_simsub() -> None:
    text = describe(run_scenario(SMALL, 5))
    lines = dict(line.split(": ", 1) for line in text.splitlines()[1:])
    assert text.startswith("=== simulation summary ===\n")
    assert lines["nodes"] == "12"
    assert lines["messages"] == "4"
    assert lines["deliver"] == "48"
    assert lines["seed"] == "5"
    assert lines["missed"] == "0 of 44 receipts"
    assert "interrupted" not in text


def test_interrupted_run_shows_what_it_has() -> None:
    run = ScenarioRun(SMALL, 1)

    def interrupt() -> None:
        raise KeyboardInterrupt

    run.network.at(3.15, interrupt)
    with pytest.raises(KeyboardInterrupt):
        run.work()
    result = run.result()
    assert result.summary.published == 2
    assert len(result.degrees) == 12
    assert "interrupted at 3.15 s of 5.40 s" in describe(result)


def test_run_without_deliveries_has_no_latency() -> None:
    lonely = run_scenario(replace(SMALL, nodes=2, attack=Attack()), 1)
    row = as_row(replace(lonely, summary=replace(lonely.summary, p50_s=math.nan)))
    assert row["p50_s"] is None
    assert "–" in compare_table([row])


def test_means_take_the_worst_hop_and_the_sum_of_missed() -> None:
    rows = [run_row((SMALL, seed)) for seed in (1, 2, 3)]
    mean = mean_rows(rows)
    assert mean["seeds"] == 3
    assert mean["last_hop"] == max(row["last_hop"] for row in rows)
    assert mean["rmr"] == pytest.approx(sum(row["rmr"] for row in rows) / 3)
    assert compare_table([mean]).splitlines()[2].startswith("gossipsub")


def test_attack_is_measured_against_the_same_scenario_without_it() -> None:
    assert without_attack(replace(SMALL, attack=Attack(nodes=3))) == SMALL
