"""Stream-wide watermarks: the slowest busy partition, idle ones left out, and event time that runs on in silence."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamrt.models import TopicPartition
from streamrt.runtime.report import StoreTime
from streamrt.runtime.watermarks import QuietClock, Watermarks
from streamrt.state import StoreSpec, TimedTransaction
from streamrt.topics import Topic
from streamrt.topology import Executor, Node, Operator, OperatorContext, SourceOperator, TopologyBuilder

STORE = "windows"
FIRST, SECOND = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


@dataclass(frozen=True)
class Waiting(Operator):
    """An operator that does nothing but ask for a watermark."""

    name: ClassVar[str] = "waiting"
    idle_ms: int | None

    def build(self, child: Executor, node: Node, context: OperatorContext) -> Executor:
        return child

    def stores(self) -> tuple[StoreSpec, ...]:
        return (StoreSpec(STORE, transaction=TimedTransaction),)

    def watermarks(self) -> tuple[tuple[str, int | None], ...]:
        return ((STORE, self.idle_ms),)


def make(idle_ms: int | None = 100, places: tuple[TopicPartition, ...] = (FIRST, SECOND)) -> Watermarks:
    builder = TopologyBuilder()
    builder.add(builder.add_source(SourceOperator(Topic("clicks"))), Waiting(idle_ms))
    watermarks = Watermarks(builder.build())
    watermarks.assign(places, 0)
    return watermarks


def see(
    watermarks: Watermarks, place: TopicPartition, observed: int | None, now: int, deadline: int | None = None
) -> None:
    watermarks.report({(place, STORE): StoreTime(observed, deadline)}, now)


def at(watermarks: Watermarks, now: int) -> int | None:
    return watermarks.current(now)["clicks"].get(STORE)


def test_the_slowest_partition_counts() -> None:
    watermarks = make()
    see(watermarks, FIRST, 5_000, 10)
    see(watermarks, SECOND, 3_000, 10)
    assert at(watermarks, 10) == 3_000


def test_a_partition_without_records_holds_the_others_up_until_it_is_idle() -> None:
    watermarks = make(idle_ms=100)
    see(watermarks, FIRST, 5_000, 50)
    assert at(watermarks, 99) is None
    assert at(watermarks, 100) == 5_000


def test_an_idle_partition_comes_back() -> None:
    watermarks = make(idle_ms=100)
    see(watermarks, FIRST, 1_000, 0)
    see(watermarks, SECOND, 2_000, 0)
    see(watermarks, SECOND, 9_000, 120)
    assert at(watermarks, 120) == 9_000
    see(watermarks, FIRST, 4_000, 130)
    assert at(watermarks, 130) == 9_000, "a watermark never goes back"
    see(watermarks, SECOND, 10_000, 140)
    see(watermarks, FIRST, 9_500, 140)
    assert at(watermarks, 140) == 9_500


def test_what_a_store_remembers_counts_until_its_partition_is_known() -> None:
    watermarks = make(idle_ms=100)
    watermarks.report({(FIRST, STORE): StoreTime(None, None, 1_000)}, 0)
    see(watermarks, SECOND, 2_000, 90)
    assert at(watermarks, 90) == 1_000
    # The watermark was applied to the store, by a batch without a record that has a time.
    watermarks.report({(FIRST, STORE): StoreTime(None, None, 1_050)}, 95)
    assert at(watermarks, 110) == 2_000, "nothing has come from the first partition for 110 ms"


def test_event_time_runs_on_while_all_are_idle() -> None:
    watermarks = make(idle_ms=100)
    see(watermarks, FIRST, 1_000, 10)
    see(watermarks, SECOND, 2_000, 40)
    assert at(watermarks, 139) == 2_000, "the first partition is idle, the second is not"
    assert at(watermarks, 140) == 2_100
    assert at(watermarks, 1_040) == 3_000


def test_without_idle_timeout_nobody_is_left_out() -> None:
    watermarks = make(idle_ms=None)
    see(watermarks, FIRST, 1_000, 10)
    assert at(watermarks, 1_000_000) is None
    see(watermarks, SECOND, 500, 1_000_000)
    assert at(watermarks, 9_000_000) == 500


def test_a_partition_that_is_held_is_not_idle() -> None:
    watermarks = make(idle_ms=100)
    see(watermarks, FIRST, 1_000, 0)
    see(watermarks, SECOND, 2_000, 0)
    see(watermarks, SECOND, 8_000, 90)
    watermarks.hold([FIRST], 90)
    assert at(watermarks, 150) == 1_000


def test_tasks_are_due_when_their_deadline_is_reached() -> None:
    watermarks = make()
    assert watermarks.due(0) == {FIRST, SECOND}, "nobody knows yet what they wait for"
    see(watermarks, FIRST, 1_000, 0, deadline=2_000)
    see(watermarks, SECOND, 1_999, 0, deadline=None)
    assert watermarks.due(0) == set()
    see(watermarks, FIRST, 2_500, 10, deadline=2_000)
    see(watermarks, SECOND, 2_000, 10, deadline=None)
    assert watermarks.due(10) == {FIRST}
    see(watermarks, FIRST, 2_500, 10, deadline=3_000)
    assert watermarks.due(10) == set()


def test_an_assignment_forgets_what_others_have_now() -> None:
    watermarks = make()
    see(watermarks, FIRST, 1_000, 0)
    see(watermarks, SECOND, 9_000, 0)
    watermarks.assign([SECOND], 10)
    assert at(watermarks, 10) == 9_000
    see(watermarks, FIRST, 9_500, 10)
    assert watermarks.due(10) == set()


def test_nothing_is_wanted_without_operators_that_ask() -> None:
    builder = TopologyBuilder()
    builder.add_source(SourceOperator(Topic("clicks")))
    watermarks = Watermarks(builder.build())
    watermarks.assign([FIRST], 0)
    see(watermarks, FIRST, 5, 0)
    assert not watermarks.wanted
    assert watermarks.current(0) == {}
    assert watermarks.due(0) == set()


def test_the_clock_counts_quiet_time_only() -> None:
    clock = QuietClock()
    assert clock.caught_up(100.0) == 0
    assert clock.caught_up(100.25) == 250
    assert clock.caught_up(500.0) == 1_250, "of a long gap nobody knows whether it was quiet"
    assert clock.now == 1_250


@pytest.mark.parametrize("idle_ms", [None, 50])
@given(st.data())
def test_watermarks_never_go_back_nor_pass_the_newest_busy_partition(idle_ms: int | None, data: Any) -> None:
    watermarks = make(idle_ms)
    now, last = 0, None
    newest: dict[TopicPartition, int] = {}
    for _ in range(data.draw(st.integers(1, 20))):
        now += data.draw(st.integers(0, 40))
        place = data.draw(st.sampled_from([FIRST, SECOND]))
        seen = data.draw(st.integers(0, 1_000))
        newest[place] = max(seen, newest.get(place, 0))
        see(watermarks, place, newest[place], now)
        found = at(watermarks, now)
        if last is not None:
            assert found is not None
            assert found >= last
        if idle_ms is None:
            expected = min(newest.values()) if len(newest) == 2 else None
            assert found == expected
        elif found is not None:
            assert found <= max(newest.values()) + now
        last = found
