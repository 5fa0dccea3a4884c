"""Groups of null: `group_by(..., nulls=...)`, keys with a null in them, and joins of these."""

import random
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import ArgumentValueError
from streamrt.kafka import TopicConfig
from streamrt.testing import TopologyTestDriver
from streamrt.windows import Count, Sum

pytestmark = pytest.mark.usefixtures("processing_mode")


def make_app(**settings: Any) -> Application:
    return Application("unused:9092", consumer_group="nulls", loglevel=None, **settings)


def present(driver: TopologyTestDriver, topic: str = "out") -> dict[Any, Any]:
    """Return the rows of a table by their keys."""
    rows: dict[Any, Any] = {}
    for record in driver.read(topic):
        rows[record.raw_key] = record.value
    return {key: row for key, row in rows.items() if row is not None}


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("nulls", ["skip", "group"])
def test_null_of_a_stream_is_one_group_or_none(partitions: int, nulls: Any) -> None:
    app = make_app()
    sdf = app.dataframe(app.topic("in", config=TopicConfig(partitions, 1)))
    by_country = sdf.group_by("country", nulls=nulls)
    by_country.agg(n=Count(), total=Sum("x")).to_stream().to_topic(app.topic("out", key_serializer="json"))
    by_country.tumbling_window(1_000).count().current().to_topic(app.topic("counts", key_serializer="json"))
    driver = TopologyTestDriver(app)
    dice = random.Random(partitions)
    for number in range(30):
        country = dice.choice(["FR", None])
        driver.pipe("in", {"country": country, "x": 1}, timestamp=number, partition=number % partitions)
    rows, counts = present(driver), present(driver, "counts")
    assert rows[b'"FR"'] == {"country": "FR", "n": counts[b'"FR"']["value"], "total": counts[b'"FR"']["value"]}
    if nulls == "group":
        assert rows[b"[null]"] == {"country": None, "n": 30 - rows[b'"FR"']["n"], "total": 30 - rows[b'"FR"']["n"]}
        assert counts[b"[null]"]["value"] == rows[b"[null]"]["n"]
    assert len(rows) == len(counts) == (2 if nulls == "group" else 1)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("nulls", ["skip", "group"])
def test_null_of_a_table_is_one_group_or_none(partitions: int, nulls: Any) -> None:
    app = make_app()
    people = app.table(app.topic("in", key_deserializer="str", config=TopicConfig(partitions, 1)))
    groups = people.group_by("country", nulls=nulls)
    groups.agg(n=Count()).to_stream().to_topic(app.topic("out", key_serializer="json"))
    groups.top(1, by="age").to_stream().to_topic(app.topic("oldest", key_serializer="json"))
    driver = TopologyTestDriver(app)
    dice = random.Random(7)
    rows: dict[str, Any] = {}
    for _ in range(60):
        name = dice.choice("abcdefgh")
        rows[name] = {"country": dice.choice(["FR", "DE", None]), "age": dice.randrange(9)}
        if dice.random() < 0.2:
            rows[name] = None
        driver.pipe("in", rows[name], key=name)
    expected: dict[Any, int] = {}
    for row in rows.values():
        if row is not None and (row["country"] is not None or nulls == "group"):
            expected[row["country"]] = expected.get(row["country"], 0) + 1
    assert {row["country"]: row["n"] for row in present(driver).values()} == expected
    oldest = present(driver, "oldest")
    assert {row["country"] for row in oldest.values()} == expected.keys()
    assert (b"[null,1]" in oldest) is (None in expected)


def test_functions_and_several_columns() -> None:
    app = make_app()
    sdf = app.dataframe(app.topic("in", config=TopicConfig(2, 1)))
    half = sdf.group_by(lambda row: row["a"], name="half", nulls="group").agg(n=Count())
    half.to_stream().to_topic(app.topic("half", key_serializer="json"))
    sdf.group_by(["a", "b"]).agg(n=Count()).to_stream().to_topic(app.topic("out", key_serializer="json"))
    driver = TopologyTestDriver(app)
    for number, (a, b) in enumerate([(1, None), (None, 2), (None, None), (1, None)]):
        driver.pipe("in", {"a": a, "b": b}, partition=number % 2)
    assert {key: row["n"] for key, row in present(driver).items()} == {
        b"[1,null]": 2,
        b"[null,2]": 1,
        b"[null,null]": 1,
    }
    assert {key: row["n"] for key, row in present(driver, "half").items()} == {b"1": 2, b"[null]": 2}


def test_a_skipped_record_says_what_makes_it_a_group(caplog: pytest.LogCaptureFixture) -> None:
    app = make_app()
    app.dataframe(app.topic("in")).group_by("a").agg(n=Count()).to_stream().to_topic(app.topic("out"))
    TopologyTestDriver(app).pipe("in", {"a": None})
    assert "group_by(..., nulls='group')" in caplog.text


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_keys_with_null_match_nothing(how: Any, caplog: pytest.LogCaptureFixture) -> None:
    app = make_app()
    tables = [
        app.dataframe(app.topic(topic)).group_by(["a", "b"]).agg(**{topic: Count()}) for topic in ("left", "right")
    ]
    tables[0].join(tables[1], how=how).to_stream().to_topic(app.topic("out", key_serializer="json"))
    driver = TopologyTestDriver(app)
    for topic in ("left", "right", "left"):
        for a in (1, None):
            driver.pipe(topic, {"a": a, "b": 2})
    rows = present(driver)
    assert rows[b"[1,2]"] == {"a": 1, "b": 2, "left": 2, "right": 1}
    assert (
        rows.get(b"[null,2]")
        == {
            "inner": None,
            "left": {"a": None, "b": 2, "left": 2},
            "right": {"a": None, "b": 2, "right": 1},
            "outer": {"a": None, "b": 2, "left": 2},
        }[how]
    )
    assert ("dropped the right row of the key [None, 2]" in caplog.text) is (how == "outer")


def test_a_stream_finds_no_row_of_null() -> None:
    app = make_app()
    clicks = app.dataframe(app.topic("clicks")).group_by("user", nulls="group")
    users = app.dataframe(app.topic("users")).group_by("user", nulls="group").as_table()
    clicks.join(users, how="left", on_merge="keep-left").to_topic(app.topic("out", key_serializer="json"))
    driver = TopologyTestDriver(app)
    for user in ("ann", None):
        driver.pipe("users", {"user": user, "age": 5})
        driver.pipe("clicks", {"user": user})
    assert [record.value for record in driver.read("out")] == [{"user": "ann", "age": 5}, {"user": None}]


@pytest.mark.parametrize("kind", ["interval", "asof"])
def test_streams_do_not_match_by_null(kind: str) -> None:
    app = make_app()
    left, right = (app.dataframe(app.topic(topic)).group_by("user", nulls="group") for topic in ("left", "right"))
    joined = left.join_interval(right, how="left") if kind == "interval" else left.join_asof(right, how="left")
    joined.to_topic(app.topic("out", key_serializer="json"))
    driver = TopologyTestDriver(app)
    driver.pipe("right", {"user": None, "age": 5}, timestamp=1)
    driver.pipe("left", {"user": None}, timestamp=1)
    assert [(record.raw_key, record.value) for record in driver.read("out")] == [(b"[null]", {"user": None})]


def test_what_is_refused() -> None:
    app = make_app()
    sdf = app.dataframe(app.topic("in"))
    with pytest.raises(ArgumentValueError, match=r"group_by\(nulls=...\)"):
        sdf.group_by("a", nulls="none")  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match=r"cannot hold the key of nulls='group', which is a list"):
        sdf.group_by("a", key_serializer="str", nulls="group")
    with pytest.raises(ArgumentValueError, match=r"group_by\(nulls=...\)"):
        sdf.as_table().group_by("a", nulls="none")  # type: ignore[arg-type]
