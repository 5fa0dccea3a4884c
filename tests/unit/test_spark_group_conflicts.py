"""Members of the consumer group that are another application."""

import pytest

from streamrt.kafka.cluster.groups import ListedMember
from streamrt.models import TopicPartition
from streamrt.runs.strangers import strangers, watch_strangers

OWN = ["orders", "repartition__shop--orders--customer"]


def member(*topics: str, client: str = "rdkafka", host: str = "10.0.0.7") -> ListedMember:
    return ListedMember(f"{client}-1", client, host, tuple(TopicPartition(topic, 0) for topic in topics))


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ([], []),
        ([member(*OWN), member("orders"), member()], []),
        ([member("orders", "bills", "accounts")], ["rdkafka on 10.0.0.7 reads accounts, bills"]),
        (
            [member("bills", host="b"), member("bills", host="a")],
            ["rdkafka on a reads bills", "rdkafka on b reads bills"],
        ),
        ([member("bills"), member("bills")], ["rdkafka on 10.0.0.7 reads bills"]),
        # Another version of the application may group by something else.
        ([member("repartition__shop--orders--day")], []),
        ([member("repartition__bank--orders--day")], ["rdkafka on 10.0.0.7 reads repartition__bank--orders--day"]),
    ],
)
def test_members_that_read_other_topics_are_strangers(members: list[ListedMember], found: list[str]) -> None:
    assert strangers(members, OWN, "shop") == found


def test_the_group_is_looked_at_until_there_is_something_to_warn_of(caplog: pytest.LogCaptureFixture) -> None:
    """At growing intervals: perhaps no one has told yet, or the other application may start later."""
    answers: list[list[ListedMember]] = [[], [member("orders")], [member("orders"), member("bills")]]
    pauses = []

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        return False

    watch_strangers("shop", OWN, lambda: answers.pop(0), wait)
    assert pauses == [5.0, 10.0, 20.0]
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert "consumer group 'shop' has members that read topics" in warning.getMessage()
    assert "rdkafka on 10.0.0.7 reads bills" in warning.getMessage()
    assert "give each application another consumer_group" in warning.getMessage()


def test_nobody_looks_at_the_group_when_the_run_is_over(caplog: pytest.LogCaptureFixture) -> None:
    pauses = iter([False] * 12 + [True])
    lengths = []

    def wait(seconds: float) -> bool:
        lengths.append(seconds)
        return next(pauses)

    watch_strangers("shop", OWN, lambda: [member("orders")], wait)
    assert max(lengths) == 600.0
    assert caplog.records == []
