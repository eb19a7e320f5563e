"""The kit: replicas of each part agree on histories by chance, and what is malformed is found to be."""

import subprocess
import sys
from dataclasses import replace

import msgspec
import pytest
from kit_support import APPLICATIONS, LIKES, OPERATIONS

from gossiplog import kit
from gossiplog.errors import LocalProtocolError
from gossiplog.testing import NotConvergent, check_convergence


@pytest.mark.parametrize("name", APPLICATIONS)
def test_part_converges(name: str) -> None:
    check_convergence(APPLICATIONS[name], OPERATIONS[name], seeds=range(15), other_processes=name == "all")


def test_order_matters_to_a_set_and_the_checker_knows() -> None:
    application = replace(APPLICATIONS["set"], order_free=True)
    with pytest.raises(NotConvergent) as caught:
        check_convergence(application, OPERATIONS["set"])
    assert caught.value.kind == "order_free"
    assert [name for name in APPLICATIONS if APPLICATIONS[name].order_free] == ["map", "counter", "list", "files"]


@pytest.mark.slow
@pytest.mark.parametrize("name", APPLICATIONS)
def test_part_converges_over_a_thousand_histories(name: str) -> None:
    check_convergence(APPLICATIONS[name], OPERATIONS[name], seeds=range(1_000))


@pytest.mark.parametrize("names", [("",), ("Upper",), ("a b",), ("1a",), ("a" * 41,), ("a", "a")])
def test_names_of_parts_are_names_of_tables(names: tuple[str, ...]) -> None:
    with pytest.raises(LocalProtocolError):
        kit.compose("app", 1, *[kit.Counter(name) for name in names])


def test_what_a_counter_adds_up_to_stays_within_a_database() -> None:
    """2^32 entries of the greatest step are below 2^63, and no log has as many."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"key": "a", "by": 2**31}, LIKES.operations["add"])
    msgspec.convert({"key": "a", "by": 2**31 - 1}, LIKES.operations["add"])


def test_values_may_be_any_type_that_msgspec_knows() -> None:
    dates = kit.Map("dates", dict[str, set[str]])
    application = kit.compose("dates", 1, dates)
    check_convergence(application, [dates.put("a", {"x": {"one", "two"}}), dates.remove("a")], seeds=range(10), other_processes=False)


def test_without_its_extra_it_says_what_to_install() -> None:
    program = """
import sys
sys.modules["msgspec"] = None
from gossiplog.errors import LocalProtocolError
try:
    import gossiplog.kit
except LocalProtocolError as error:
    print(error, error.hint, sep="; ")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "gossiplog.kit needs msgspec, which is not installed; pip install 'gossiplog[kit]'\n"
