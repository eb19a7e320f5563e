from random import Random

from gossiplog.limits import Backoff, TokenBucket


def test_delays_double_from_one_second_to_five_minutes():
    backoff = Backoff(Random(1))
    delays = [backoff.next() for _ in range(12)]
    for index, delay in enumerate(delays):
        low = min(300, 2**index)
        assert low <= delay <= min(300, low * 1.25)
    backoff.reset()
    assert backoff.next() <= 1.25


def test_two_replicas_do_not_come_back_together():
    assert Backoff(Random(1)).next() != Backoff(Random(2)).next()


def test_bucket_gives_what_it_saved_and_then_its_rate():
    bucket = TokenBucket(10, 20, 100.0)
    assert bucket.take(50, 100.0) == 20
    assert bucket.take(1, 100.0) == 0
    assert bucket.take(50, bucket.ready_at(100.0)) == 1
    assert bucket.take(50, 1_000.0) == 20
    bucket.give_back(50)
    assert bucket.take(50, 1_000.0) == 20
    bucket.give_back(1)
    assert bucket.ready_at(1_000.0) == 1_000.0


def test_clock_that_goes_back_gives_nothing():
    bucket = TokenBucket(10, 20, 100.0)
    bucket.take(20, 100.0)
    assert bucket.take(1, 50.0) == 0
    assert bucket.take(50, 100.2) == 2
