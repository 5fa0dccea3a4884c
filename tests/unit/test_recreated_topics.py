"""Topics that are deleted and created again while an application runs."""

import logging
import threading
from collections.abc import Collection, Mapping

import pytest

from streamrt.errors import StaleTokenError
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.cluster import topic_ids
from streamrt.runtime.driver.life import recreated_topics
from streamrt.runtime.driver.life.recreated_topics import RecreationWatch
from tests.support import wait_until


class Ids:
    """A cluster that tells the ids of topics, or does not answer."""

    def __init__(self, **ids: str | None) -> None:
        self.ids: dict[str, str | None] = dict(ids)
        self.away = False
        # What brokers answer first whose metadata lag, one after the other.
        self.lagging: list[dict[str, str | None]] = []
        self.asked = 0

    def topic_ids(self, topic_names: Collection[str], timeout: float) -> Mapping[str, str | None]:
        if self.away:
            raise KafkaRequestError("no answer", retriable=True)
        self.asked += 1
        ids = {**self.ids, **(self.lagging.pop(0) if self.lagging else {})}
        return {name: ids.get(name) for name in topic_names}


def test_a3_a_topic_that_is_another_one_ends_the_application(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Ids(orders="x1", log="x2", out="x3")
    watch = RecreationWatch(cluster, {"orders": "x1", "log": "x2", "old": None}, ["out", "orders"])
    with caplog.at_level(logging.INFO, "streamrt"):
        watch.compare_ids()
        cluster.away = True
        watch.compare_ids()
        watch.check()
        cluster.away = False
        # Between the deletion and the creation.
        cluster.ids["orders"] = None
        watch.compare_ids()
        watch.compare_ids()
        watch.check()
        assert caplog.messages == ["topic 'orders' was deleted while the application runs"]
        caplog.clear()
        cluster.ids["out"] = "x4"
        watch.compare_ids()
        watch.compare_ids()
        watch.check()
        assert len(caplog.messages) == 1
        assert "the output topic 'out' was deleted and created again" in caplog.text
        cluster.ids["orders"] = "x9"
        watch.compare_ids()
    with pytest.raises(
        StaleTokenError, match=r"topic 'orders' was .* created again: its id was x1 and is x9.*`streamrt reset`"
    ):
        watch.check()


@pytest.mark.parametrize("before", ["x1", None])
def test_a3_clusters_without_ids_are_not_compared(before: str | None) -> None:
    cluster = Ids(orders="x1" if before is None else None)
    watch = RecreationWatch(cluster, {"orders": before})
    watch.compare_ids()
    watch.check()


def test_a3_a_thread_asks(caplog: pytest.LogCaptureFixture) -> None:
    watch = RecreationWatch(Ids(orders="x2"), {"orders": "x1"}, every_s=0.01)
    with watch.watching():
        wait_until(lambda: watch.failed, what="a topic of another id")
    with pytest.raises(StaleTokenError):
        watch.check()


@pytest.mark.parametrize(
    "lagging",
    [["old"], [None], ["old", "old"], [None, "old", None], ["old", None, "old"]],
    ids=str,
)
def test_a3_brokers_whose_metadata_lag_end_nothing(lagging: list[str | None], caplog: pytest.LogCaptureFixture) -> None:
    cluster = Ids(orders="x1", log="x2", out="x3")
    watch = RecreationWatch(cluster, {"orders": "x1", "log": "x2"}, ["out"], kept={"layout": "it is gone"})
    watch.compare_ids()
    for topic in ("orders", "log", "out"):
        cluster.lagging = [{topic: each} for each in lagging]
        watch.compare_ids()
        assert cluster.lagging == []
    watch.check()
    assert caplog.messages == []


def test_a3_a_new_topic_that_some_brokers_do_not_know_yet() -> None:
    cluster = Ids(orders="x9")
    cluster.lagging = [{"orders": None}, {}, {"orders": None}, {"orders": None}]
    watch = RecreationWatch(cluster, {"orders": "x1"})
    watch.compare_ids()
    with pytest.raises(StaleTokenError, match=r"its id was x1 and is x9"):
        watch.check()


def test_a3_topics_in_which_something_is_kept_are_watched(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Ids(orders="x1", layout="y1")
    watch = RecreationWatch(cluster, {"orders": "x1"}, kept={"layout": "restart it"})
    watch.compare_ids()
    cluster.ids["layout"] = None
    watch.compare_ids()
    cluster.ids["layout"] = "y2"
    watch.compare_ids()
    watch.compare_ids()
    watch.check()
    assert caplog.messages == [
        "topic 'layout' was deleted while the application runs",
        "topic 'layout' was deleted and created again while the application runs (its id was y1 and is y2): restart it",
    ]


def test_a3_a_run_that_ends_asks_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_ids, "PAUSE_S", 600)
    monkeypatch.setattr(recreated_topics, "_CLOSE_S", 60)
    cluster = Ids(orders="x2")
    watch = RecreationWatch(cluster, {"orders": "x1"}, every_s=0.01)
    with watch.watching():
        wait_until(lambda: cluster.asked, what="a request for ids")
    assert cluster.asked == 1
    assert "streamrt-topics" not in [thread.name for thread in threading.enumerate()]
    watch.check()
