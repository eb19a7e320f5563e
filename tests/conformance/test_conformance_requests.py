"""Each store answers every request that there is, once."""

import inspect
from itertools import chain

import pytest
from conformance.conftest import STORES

from gossiplog.log import fsck_requests, requests
from gossiplog.plan import Request
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


DEFINED = {
    each
    for module in (requests, fsck_requests, node)
    for each in vars(module).values()
    if inspect.isclass(each) and issubclass(each, Request) and each is not Request
}


@pytest.mark.parametrize("store", STORES)
def test_store_answers_each_request_in_one_place(store: str) -> None:
    answered = list(chain.from_iterable(ANSWERED[store]))
    assert len(answered) == len(set(answered)), "answered in two places"
    assert set(answered) == DEFINED
