"""Why servers store what is void: a model of a hub that declines it loses what counts, and its clients never have what it has."""

from declining_model import DecliningWorld


def test_hub_that_declines_void_entries_is_worse_off_than_one_that_stores_them() -> None:
    worlds = [DecliningWorld(seed).figures() for seed in (*range(30), 915)]
    assert worlds[-1]["count, and are lost"] == 1
    for what in ("declined at the end", "void data that no admin can admit", "void, and here for an entry that counts"):
        assert sum(world[what] for world in worlds) > 10, what
    assert sum(world["replicas that never agree with the hub"] for world in worlds) > 10
    assert not any(world["replicas that never agree with one that stores"] for world in worlds)
