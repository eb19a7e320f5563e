"""Parameters from TOML: what is left out stays, what is wrong is named, and what a mesh runs is what the attacks were measured with."""

import tomllib
from random import Random

import pytest

from gossiplog.errors import LocalProtocolError
from gossiplog.pubsub import GossipsubParams, ScoreParams
from gossiplog.pubsub.params import MESH_PARAMS
from gossiplog.pubsub.tables import as_toml, overlaid
from gossiplog.sim.routing.run import router_factory
from gossiplog.sim.scenario import load_scenario

MESH = MESH_PARAMS["gossipsub"]


@pytest.mark.parametrize("router", MESH_PARAMS)
def test_printed_defaults_are_a_file_that_changes_nothing(router):
    assert overlaid(MESH_PARAMS[router], tomllib.loads(as_toml(MESH_PARAMS[router])), "") == MESH_PARAMS[router]


def test_a_file_changes_what_it_names_and_nothing_else():
    text = 'D = 7\nidontwant_bytes_min = 9\n[score]\nip_colocation_exempt = ["10.0.0.0/8"]\n[score.thresholds]\ngraylist = -200\n'
    params = overlaid(MESH, tomllib.loads(text), "")
    assert (params.D, params.score.ip_colocation_exempt, params.score.thresholds.graylist) == (7, ("10.0.0.0/8",), -200.0)
    assert params.score.default_topic == MESH.score.default_topic
    assert params.score.thresholds.accept_px == MESH.score.thresholds.accept_px
    assert overlaid(MESH, {"score": False}, "").score is None
    assert overlaid(GossipsubParams(), {"score": {}}, "").score == ScoreParams()
    of_topic = overlaid(MESH, {"score": {"topics": {"t": {"topic_weight": 2}}}}, "").score.topics["t"]
    assert of_topic.topic_weight == 2.0


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"Dlow": 3}, "Dlow: unknown key; did you mean D_lo?"),
        ({"D": 6.5}, "D: 6.5, expected a whole number"),
        ({"heartbeat_s": "1"}, "heartbeat_s: '1', expected a number"),
        ({"px_enabled": 1}, "px_enabled: 1, expected true or false"),
        ({"protocols": "floodsub"}, "protocols: 'floodsub', expected an array"),
        ({"protocols": [3]}, r"protocols\[0\]: 3, expected a string"),
        ({"score": 3}, "score: 3, expected a table"),
        ({"score": {"thresholds": {"grey": -3}}}, "score.thresholds.grey: unknown key"),
        ({"score": {"thresholds": {"gossip": 3}}}, "score.thresholds: parameters break the rule"),
        ({"score": {"ip_colocation_exempt": ["home"]}}, "score: ip_colocation_exempt: 'home'"),
        ({"D": 60}, "parameters break the rule: 0 <= D_lo <= D <= D_hi"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(table, complaint):
    with pytest.raises(LocalProtocolError, match=complaint):
        overlaid(MESH, table, "")


@pytest.mark.parametrize("name", ["sybil", "eclipse", "cold-boot", "covert-flash", "degradation"])
def test_attacks_are_measured_with_what_a_mesh_runs(name):
    table = load_scenario(name).params["gossipsub"]
    assert router_factory("gossipsub", table, is_validating=True)(Random(1)).params == MESH
