"""Write tests/vectors/access.json: forms of control entries, and histories judged by the model. Run from the root of the repository."""

from __future__ import annotations

import json
from pathlib import Path

from access_support import DIDS, sign_story, story

from gossiplog.access import Admit, Grant, Policy, Revoke, encode_said
from gossiplog.codec import pcf
from gossiplog.entry.message_id import encode_id

ID = encode_id(bytes([1]) + bytes(19))
FORMS = {
    "grant": Grant(DIDS[1], "admin", DIDS[0]),
    "grant of a device": Grant(DIDS[1], "write", ID, device=True),
    "revoke": Revoke(ID, DIDS[0]),
    "revoke, keep and adopt": Revoke(ID, DIDS[0], (ID,), (ID,)),
    "revoke, keep nothing": Revoke(ID, DIDS[0], ()),
    "leave": Revoke(DIDS[0], DIDS[0]),
    "admit": Admit((ID,), DIDS[0]),
}
REFUSED = {
    "an unknown key": {"grant": DIDS[1], "role": "read", "under": ID, "until": 1},
    "an unknown role": {"grant": DIDS[1], "role": "owner", "under": ID},
    "no under": {"grant": DIDS[1], "role": "read"},
    "device false": {"grant": DIDS[1], "role": "read", "under": ID, "device": False},
    "a did of small order": {"grant": "did:key:z6MkeTG3bFFSLYVU7VqhgZxqr6YzpaGrQtFMh1uvqGy1vDnP", "role": "read", "under": ID},
    "a padded did": {"grant": "did:key:z" + "3" + DIDS[1][9:], "role": "read", "under": ID},
    "adopt nothing": {"revoke": ID, "under": DIDS[0], "adopt": []},
    "keep twice": {"revoke": ID, "under": DIDS[0], "keep": [ID, ID]},
    "keep no id": {"revoke": ID, "under": DIDS[0], "keep": [ID[1:]]},
    "admit nothing": {"admit": [], "under": DIDS[0]},
    "two things": {"admit": [ID], "grant": DIDS[1], "role": "read", "under": DIDS[0]},
    "no map": [ID],
}


def write() -> None:
    policies = []
    for founders, k in ((1, 1), (3, 2), (4, 4)):
        policy = Policy(tuple(DIDS[:founders]), k, bytes(range(16)))
        topic = policy.topic("team.example.com")
        entry = policy.entry(topic)
        fields = {"founders": list(policy.founders), "k": k, "salt": policy.salt.hex()}
        policies.append({**fields, "hash": policy.hash.hex(), "topic": topic, "id": entry.id, "value": entry.value.hex()})
    histories = []
    for seed in (2, 3, 5, 391):
        told = story(seed, 28 if seed < 391 else 40)
        counts = told.standings()
        entries = []
        for step, (entry, belongs) in zip(told.steps, sign_story(told, "team.example.com"), strict=True):
            entries.append({"id": entry.id, "value": entry.value.hex(), "belongs": belongs, "counts": counts.get(step.id, belongs)})
        histories.append({"topic": told.policy.topic("team.example.com"), "entries": entries})
    vectors = {
        "origin": "tests/support/make_access_vectors.py; what belongs and what counts is the answer of tests/support/access_model.py",
        "policies": policies,
        "forms": {name: pcf.encode(encode_said(said)).hex() for name, said in FORMS.items()},
        "refused": {name: pcf.encode({"gossiplog.access": body}).hex() for name, body in REFUSED.items()},
        "histories": histories,
    }
    Path("tests/vectors/access.json").write_text(json.dumps(vectors, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    write()
