"""Plans that are tried again where they were not answered."""

import pytest

from gossiplog.errors import DamagedLog
from gossiplog.log.requests import ReadHeads
from gossiplog.plan import Plan, Resumable, ask, run_plan


def count_heads(times: int) -> Plan[int]:
    count = 0
    for _ in range(times):
        count += len((yield from ask(ReadHeads())))
    return count


def test_plan_goes_on_from_the_request_that_was_not_answered() -> None:
    resumable, answers = Resumable(count_heads(3)), iter([[b"a"], None, [b"a", b"b"], [b"c"]])

    def answer(_: object) -> list[bytes]:
        found = next(answers)
        if found is None:
            raise ConnectionError
        return found

    with pytest.raises(ConnectionError):
        run_plan(resumable.run(), answer)
    assert resumable.has_answer
    assert run_plan(resumable.run(), answer) == 4


def test_plan_that_refused_an_answer_refuses_again_and_has_no_result() -> None:
    def refuse() -> Plan[int]:
        yield from ask(ReadHeads())
        raise DamagedLog("a head of nothing")

    resumable = Resumable(refuse())
    for _ in range(2):
        with pytest.raises(DamagedLog, match="a head of nothing"):
            run_plan(resumable.run(), lambda _: [])


def test_plan_that_has_a_result_has_it_still() -> None:
    resumable = Resumable(count_heads(1))
    assert [run_plan(resumable.run(), lambda _: [b"a"]) for _ in range(2)] == [1, 1]
    assert run_plan(Resumable(count_heads(0)).run(), lambda _: []) == 0
