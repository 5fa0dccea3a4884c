"""Where to begin in a partition: the decision, as a table."""

from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import OffsetOutOfRangeError, TopicConfigurationError
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.models import TopicPartition
from streamrt.runtime.driver.starting.start_offsets import StartPlan, StartRules, plan_start
from streamrt.runtime.driver.starting.state_setup import refuse_grown
from streamrt.runtime.metadata import CommitMetadata, CommittedMetadata, claimed, first_counts
from tests.unit.apps import application

PLACE = TopicPartition("orders", 3)
RESETS = ("earliest", "latest", "error")


def rules(reset: Any = "latest", *, recover: bool = True, **known: bool) -> StartRules:
    return StartRules("shop", reset, recover, **known)


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("known", [10, 15, 20])
def test_an_offset_of_the_group_counts_whatever_is_configured(reset: str, known: int) -> None:
    for recover in (True, False):
        assert plan_start(PLACE, known, (10, 20), rules(reset, recover=recover)) == StartPlan(known)


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize(("known", "bounds", "lost"), [(11, (12, 1011), 1), (0, (7, 7), 7), (9, (1_000, 2_000), 991)])
def test_fault_4_below_the_first_record_it_is_that_record(
    reset: str, known: int, bounds: tuple[int, int], lost: int
) -> None:
    plan = plan_start(PLACE, known, bounds, rules(reset))
    assert (plan.position, plan.moved, plan.lost) == (bounds[0], True, lost)
    assert f"offsets {known} to {bounds[0] - 1} were deleted before they were processed" in plan.notice
    assert f"up to {lost} record" in plan.notice
    assert f"continuing at offset {bounds[0]}" in plan.notice
    assert "orders[3]" in plan.notice
    assert "'shop'" in plan.notice


@pytest.mark.parametrize("reset", RESETS)
def test_fault_4_below_the_first_record_the_user_may_want_to_be_asked(reset: str) -> None:
    with pytest.raises(
        OffsetOutOfRangeError, match=r"offsets 11 to 49 were deleted.* set the group's offset to 50, or"
    ):
        plan_start(PLACE, 11, (50, 60), rules(reset, recover=False))


@pytest.mark.parametrize("recover", [True, False])
def test_fault_4_from_internal_topics_nobody_deletes_unprocessed_records(recover: bool) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=r"internal.* manually"):
        plan_start(PLACE, 11, (50, 60), rules("earliest", recover=recover, internal=True))
    with pytest.raises(OffsetOutOfRangeError, match="internal"):
        plan_start(PLACE, 61, (50, 60), rules("earliest", recover=recover, internal=True))


@pytest.mark.parametrize(("reset", "position"), [("earliest", 10), ("latest", 20)])
def test_above_the_end_the_user_has_said_where(reset: str, position: int) -> None:
    plan = plan_start(PLACE, 21, (10, 20), rules(reset))
    assert (plan.position, plan.moved, plan.lost) == (position, True, 0)
    assert "has processed orders[3] up to offset 21, but the partition has offsets 10 to 20" in plan.notice


@pytest.mark.parametrize(
    ("reset", "known", "words"),
    [
        ("earliest", {"recover": False}, "set the group's offset to 10 .* or to 20"),
        ("error", {}, "auto_offset_reset='error' does not allow .* to 10 .* or to 20"),
        ("earliest", {"exact_state": True}, "would count twice in the state.* another consumer_group"),
    ],
)
def test_above_the_end_what_cannot_be_chosen_is_refused(reset: str, known: dict[str, bool], words: str) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=words):
        plan_start(PLACE, 21, (10, 20), rules(reset, **known))


@pytest.mark.parametrize(("reset", "position"), [("earliest", 10), ("latest", 20)])
def test_a_group_that_begins_does_as_configured(reset: str, position: int) -> None:
    for recover in (True, False):
        assert plan_start(PLACE, None, (10, 20), rules(reset, recover=recover)) == StartPlan(position, moved=True)


def test_a_group_that_may_not_choose_is_refused() -> None:
    with pytest.raises(OffsetOutOfRangeError, match="has no committed offset for"):
        plan_start(PLACE, None, (10, 20), rules("error"))


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("why", ["internal", "added"])
def test_fault_5_of_what_is_new_to_a_group_all_is_unprocessed(reset: str, why: str) -> None:
    assert plan_start(PLACE, None, (10, 20), rules(reset, **{why: True})) == StartPlan(10, moved=True)


# -- Which partitions are new to a group ---------------------------------------------------------------------------------


def told(count: int) -> str:
    return CommitMetadata(first_counts={"orders": count}).first(TopicPartition("orders", 0))


TOLD = told(2)


@pytest.mark.parametrize(
    ("committed", "first"),
    [
        ({}, 4),
        ({0: ""}, 1),
        ({0: "", 1: "by hand"}, 2),
        ({0: TOLD}, 2),
        ({0: TOLD, 3: TOLD}, 2),
        ({3: TOLD}, 2),
        ({0: "", 3: TOLD}, 2),
        ({0: TOLD, 1: told(3)}, 2),
        ({0: '{"streamrt":1,"stores":{"orders":{"default":"x1"}}}', 1: ""}, 2),
    ],
    ids=str,
)
def test_fault_5_commits_tell_how_many_partitions_there_were_at_first(committed: dict[int, str], first: int) -> None:
    entries = {
        TopicPartition("orders", number): CommittedOffset(7, committed[number])
        if number in committed
        else CommittedOffset(None)
        for number in range(4)
    }
    assert first_counts(entries, {"orders": 4}) == {"orders": first}


def test_fault_5_each_commit_tells_how_many_partitions_there_were_at_first() -> None:
    place = TopicPartition("orders", 3)
    metadata = CommitMetadata({"orders": {"default": "x1"}}, first_counts={"orders": 2})
    texts = (metadata.first(place), metadata.encode(place), claimed(metadata.first(place), claim=7))
    assert [CommittedMetadata.decode(text).partitions for text in texts] == [2, 2, 2]
    assert [CommittedMetadata.decode(text).names("orders", "default") for text in texts] == [False, True, False]
    assert metadata.first(TopicPartition("customers", 0)) == ""
    for count in ("0", "-1", "true", '"2"', "[2]"):
        assert CommittedMetadata.decode(f'{{"streamrt":2,"partitions":{count}}}').partitions == 0


# -- Inputs that grew ----------------------------------------------------------------------------------------------------


def counting(*, state: bool) -> Application:
    app = application()
    frame = app.dataframe(app.topic("orders")).group_by("customer")
    frame.apply(lambda value, state: value, stateful=True) if state else frame.apply(lambda value: value)
    return app


@pytest.mark.parametrize(("state", "count", "refused"), [(True, 1, False), (True, 2, True), (False, 2, False)])
def test_fault_5_state_behind_a_grouping_of_one_partition_is_not_left_behind(
    state: bool, count: int, refused: bool
) -> None:
    topology = counting(state=state).topology
    text = '{"streamrt":1,"stores":{"orders":{"default.customer":"x1"}}}'
    committed = {TopicPartition("orders", 0): CommittedOffset(7, text)}
    if not refused:
        refuse_grown(topology, {"orders": count}, committed)
        return
    with pytest.raises(TopicConfigurationError, match=r"'orders' has 2 partitions now, and had 1 .*'default.customer'"):
        refuse_grown(topology, {"orders": count}, committed)
    elsewhere = text.replace('"orders"', '"repartition__group--orders--customer"')
    refuse_grown(topology, {"orders": count}, {TopicPartition("orders", 0): CommittedOffset(7, elsewhere)})
