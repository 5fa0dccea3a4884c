"""How often an event is admitted."""

from streamrt.common.throttle import Throttle


def test_a_throttle_lets_through_after_its_interval() -> None:
    now = [0.0]
    throttle = Throttle(10.0, clock=lambda: now[0])
    assert throttle.admit("a")
    now[0] = 9.9
    assert not throttle.admit("a")
    now[0] = 10.0
    assert throttle.admit("a")


def test_a_throttle_does_not_grow_for_ever() -> None:
    throttle = Throttle(10.0, clock=lambda: 0.0)
    for number in range(10_000):
        assert throttle.admit(number)
    assert len(throttle._next_at) <= 256


def test_a_throttle_counts_what_it_rejects() -> None:
    now = [0.0]
    throttle = Throttle(10.0, clock=lambda: now[0])
    assert (throttle.admit(), throttle.rejected) == (True, 0)
    for now[0] in (1.0, 9.0):
        assert not throttle.admit()
    now[0] = 10.0
    assert (throttle.admit(), throttle.rejected) == (True, 2)
    now[0] = 20.0
    assert (throttle.admit(), throttle.rejected) == (True, 0)
