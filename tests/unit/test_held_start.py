"""Start offsets that are used again while merges wait for other instances."""

from streamrt.records import TopicPartition
from streamrt.runs.start_positions import HeldStart, Start

PLACES = frozenset({TopicPartition("orders", 0)})


def test_a19_kafka_is_not_asked_again_while_all_partitions_wait() -> None:
    """Ten times a second for a minute: thirty requests instead of 600, and none for other partitions or generations."""
    now = [0.0]
    held = HeldStart(lambda: now[0])
    finds = 0
    for tick in range(600):
        now[0] = tick / 10
        start = held.get(1, PLACES)
        if start is None:
            finds += 1
            start = Start({}, {}, frozenset())
        held.hold(1, PLACES, start)
    assert finds == 30
    assert held.get(1, PLACES) is not None
    assert held.get(2, PLACES) is None
    assert held.get(1, frozenset()) is None
    held.drop()
    assert held.get(1, PLACES) is None
