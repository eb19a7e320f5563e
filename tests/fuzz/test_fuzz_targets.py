import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from . import run
from .mutate import mutate
from .targets import TARGETS

BY_NAME = {target.name: target for target in TARGETS}


@pytest.mark.parametrize("name", BY_NAME)
def test_every_seed_passes(name):
    for seed in BY_NAME[name].seeds:
        BY_NAME[name].function(seed)


@pytest.mark.parametrize("name", BY_NAME)
def test_mutated_seeds_raise_nothing_else(name):
    rng = random.Random(1)
    for _ in range(300):
        BY_NAME[name].function(mutate(rng, BY_NAME[name].seeds))


@pytest.mark.parametrize("name", BY_NAME)
def test_any_bytes_raise_nothing_else(name):
    target = BY_NAME[name]

    @settings(max_examples=60, deadline=None)
    @given(st.binary(max_size=120) | st.text(max_size=40).map(str.encode))
    def any_bytes(data):
        target.function(data)

    any_bytes()


def test_a_run_is_the_same_again_for_the_same_seed(capsys):
    assert run.main(["clock", "--runs", "50", "--seed", "3"]) == 0
    assert "clock: 50 inputs, seed 3" in capsys.readouterr().out


def test_a_failure_is_reported_with_the_command_that_repeats_it(capsys, monkeypatch):
    def always_fails(data):
        raise ZeroDivisionError

    broken = run.Target("clock", always_fails, (b"\1",))
    monkeypatch.setattr(run, "TARGETS", (broken,))
    assert run.main(["clock", "--runs", "50"]) == 1
    assert "python -m tests.fuzz.run clock --input" in capsys.readouterr().out
    with pytest.raises(ZeroDivisionError):
        run.main(["clock", "--input", "01"])
