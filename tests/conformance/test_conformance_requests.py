"""Each store answers all that `store/base.py` lists, and nothing is asked that is not listed there."""

import inspect
from itertools import chain

import pytest
from conformance.conftest import STORES

from gossiplog.log import fsck_requests, requests
from gossiplog.plan import Request
from gossiplog.store.base import READS, WRITES
from gossiplog.store.memory import fsck as memory_fsck
from gossiplog.store.memory import state as memory
from gossiplog.store.postgres import answers as postgres
from gossiplog.store.postgres import writes as postgres_writes
from gossiplog.store.sqlite import answers as sqlite
from gossiplog.tree import node

ANSWERED = {
    "memory": (memory.ANSWERS, memory.WRITES, memory_fsck.FSCK_ANSWERS),
    "sqlite": (sqlite.ANSWERS,),
    "postgres": (postgres.ANSWERS, postgres_writes.WRITES),
}


@pytest.mark.parametrize("store", STORES)
def test_store_answers_exactly_what_the_contract_lists(store: str) -> None:
    answered = list(chain.from_iterable(ANSWERED[store]))
    assert len(answered) == len(set(answered)), "answered in two places"
    assert set(answered) == {*READS, *WRITES}


def test_contract_lists_every_request_once() -> None:
    defined = {
        each
        for module in (requests, fsck_requests, node)
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, Request) and each is not Request
    }
    assert {*READS, *WRITES} == defined
    assert len(READS) + len(WRITES) == len(defined)
