"""The queries of the Nexmark benchmark about an auction house, each in at most five lines of dataframes.

Persons offer auctions, on which persons bid. Without an argument, the program writes 100,000 such events, out of order by up
to two seconds, to `nexmark-persons`, `nexmark-auctions` and `nexmark-bids`. With the name of a query, it processes all that
is there, prints the query in SQL, from `nexmark.sql`, and what the dataframe puts out, which is also in a topic, such as
`nexmark-q5`, and ends.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/nexmark.py q5
"""

import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson

from streamrt import (
    Application,
    StreamingDataFrame,
    StreamingTable,
    Topic,
    WatermarkStrategy,
)
from streamrt.connectors import FieldFolders, LocalFileSink
from streamrt.joins import BaseField, BaseLookup
from streamrt.kafka import TopicConfig
from streamrt.windows import (
    Aggregator,
    Count,
    CountDistinct,
    EventTimeSessions,
    First,
    Latest,
    Max,
    Mean,
    Min,
    Sum,
    TumblingEventTimeWindows,
    Window,
    WindowAssigner,
)

Row = dict[str, Any]
Table = StreamingTable[StreamingDataFrame]

# -- Events ------------------------------------------------------------------------------------------------------------

START = int(datetime(2024, 1, 1, 23, 59, 50, tzinfo=timezone.utc).timestamp() * 1_000)
STEP_MS = 10
"""Time from one event to the next one: no two have the same time."""
DISORDER_MS = 2_000
Kind = Literal["persons", "auctions", "bids"]
EPOCH: tuple[Kind, ...] = ("persons", *("auctions",) * 3, *("bids",) * 46)
"""The kinds of 50 events, which repeat."""
IN_FLIGHT = 100
"""Number of auctions that are open at a time, on average."""
LONGEST = timedelta(milliseconds=2 * IN_FLIGHT * len(EPOCH) * STEP_MS // 3)
"""Auctions end after this time at most."""
ACTIVE = 1_000
LEAD = 10
"""Some events are about persons and auctions that come later."""
FIRST_ID = 1_000
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne")
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")


class Event(NamedTuple):
    """An event, and when it arrives: later than it happened, by up to `DISORDER_MS`."""

    kind: Kind
    key: int
    value: Row
    arrived: int

    @property
    def timestamp(self) -> int:
        """The time at which it happened, in milliseconds."""
        time: int = self.value["date_time"]
        return time


class Generator:
    """Makes the events that a seed stands for.

    Args:
        seed: the same seed makes the same events.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._ends: set[int] = set()

    def make(self, number: int) -> Event:
        """Return an event; call it with 0, 1, and so on."""
        epoch, offset = divmod(number, len(EPOCH))
        kind, persons, auctions = EPOCH[offset], epoch + 1, 3 * epoch + min(offset, 3)
        time = START + number * STEP_MS
        key, value = {"persons": self._person, "auctions": self._auction, "bids": self._bid}[kind](
            persons, auctions, time
        )
        value |= {"date_time": time, "extra": self._text(20)}
        return Event(kind, key, value, time + self._random.randrange(DISORDER_MS + 1))

    def _person(self, persons: int, auctions: int, time: int) -> tuple[int, Row]:
        choose, number = self._random.choice, FIRST_ID + persons - 1
        name = f"{choose(FIRST_NAMES)} {choose(LAST_NAMES)}"
        email, card = f"{self._text(7)}@{self._text(5)}.com", f"{self._random.randrange(10**16):016}"
        place = {"city": choose(CITIES), "state": choose(STATES)}
        return number, {"id": number, "name": name, "email_address": email, "credit_card": card, **place}

    def _auction(self, persons: int, auctions: int, time: int) -> tuple[int, Row]:
        number, first = FIRST_ID + auctions - 1, self._price()
        expires = time + 1 + self._random.randrange(LONGEST // timedelta(milliseconds=1))
        while expires in self._ends:
            expires += 1
        self._ends.add(expires)
        return number, {
            "id": number,
            "item_name": self._text(20),
            "description": self._text(50),
            "initial_bid": first,
            "reserve": first + self._price(),
            "expires": expires,
            "seller": self._hot_or_recent(persons - 1, hot=0, of=4, recent=ACTIVE),
            "category": 10 + self._random.randrange(5),
        }

    def _bid(self, persons: int, auctions: int, time: int) -> tuple[int, Row]:
        auction = self._hot_or_recent(auctions - 1, hot=0, of=2, recent=IN_FLIGHT)
        bidder = self._hot_or_recent(persons - 1, hot=1, of=4, recent=ACTIVE)
        channel, url = self._random.choice(HOT_CHANNELS), "https://www.nexmark.com/hot/for/all/item.htm?query=1"
        if self._random.random() < 0.5:
            number = self._random.randrange(10_000)
            path = "/".join(self._text(5) for _ in range(3))
            known = "" if number % 10 == 0 else f"&channel_id={number * 7919 % 10_007}"
            channel, url = f"channel-{number}", f"https://www.nexmark.com/{path}/item.htm?query=1{known}"
        bid = {"auction": auction, "bidder": bidder, "price": self._price(), "channel": channel, "url": url}
        return auction, bid

    def _hot_or_recent(self, last: int, hot: int, of: int, recent: int) -> int:
        """Return the hot one of the last hundred, except for one in `of` times: then a recent one, or one to come."""
        if self._random.randrange(of):
            return FIRST_ID + last // 100 * 100 + hot
        return FIRST_ID + self._random.randint(max(last - recent, 0), last + LEAD)

    def _price(self) -> int:
        return round(100 * 10 ** (6 * self._random.random()))

    def _text(self, longest: int) -> str:
        letters = self._random.choices("abcdefghijklmnopqrstuvwxyz_", k=self._random.randint(3, longest))
        return "".join(letters)


def make_events(count: int, seed: int = 1) -> list[Event]:
    """Return events in the order in which they arrive.

    Args:
        count: how many.
        seed: the same seed makes the same events.
    """
    generator = Generator(seed)
    return sorted(map(generator.make, range(count)), key=lambda event: event.arrived)


# -- Sources -----------------------------------------------------------------------------------------------------------

PREFIX = "nexmark-"
"""Names of topics begin with it."""
FORMATS: Any = {"key_deserializer": "json", "key_serializer": "json"}
CONFIG = TopicConfig(num_partitions=2, replication_factor=1, extra_config={"retention.ms": "-1"})
IN_ORDER = WatermarkStrategy(out_of_orderness=timedelta(milliseconds=DISORDER_MS), idle_timeout=None)
"""No event is late, and no partition is left out."""


class Events:
    """The frames of the three kinds of events; a frame is made when a query asks for it.

    Args:
        app: the application that reads them.
    """

    def __init__(self, app: Application) -> None:
        self._app = app

    @cached_property
    def persons(self) -> StreamingDataFrame:
        """Persons, with their ids as keys."""
        return self._app.dataframe(declare_topic(self._app, "persons"))

    @cached_property
    def auctions(self) -> StreamingDataFrame:
        """Auctions, with their ids as keys."""
        return self._app.dataframe(declare_topic(self._app, "auctions"))

    @cached_property
    def bids(self) -> StreamingDataFrame:
        """Bids, with the ids of auctions as keys."""
        return self._app.dataframe(declare_topic(self._app, "bids"))


def declare_topic(app: Application, kind: str) -> Topic:
    """Declare the topic of a kind of events in an application."""
    return app.topic(PREFIX + kind, **FORMATS, config=CONFIG, watermark_strategy=IN_ORDER)


def write_events(app: Application, events: Iterable[Event]) -> None:
    """Write events to the topics of an application, which are created."""
    topics = {kind: declare_topic(app, kind) for kind in ("persons", "auctions", "bids")}
    with app.get_producer() as producer:
        for event in events:
            key, value = orjson.dumps(event.key), orjson.dumps(event.value)
            producer.produce(topics[event.kind].name, value, key, timestamp=event.timestamp)


SIDE_INPUT = {key: f"value-{key}" for key in range(10_000) if key % 7}


class SideInput(BaseLookup[BaseField]):
    """Finds the value of a key in the bounded side input, or None."""

    def join(self, fields: Any, on: int, value: Row, key: Any, timestamp: int, headers: Any) -> None:
        """Set columns of a record."""
        for column in fields:
            value[column] = SIDE_INPUT.get(on)


# -- Parts of queries --------------------------------------------------------------------------------------------------

BID = ["auction", "bidder", "price", "date_time", "extra"]
LONG = ["auction", "bidder", "price", "channel", "url", "date_time", "extra"]
AUCTION = [
    *("id", "item_name", "description", "initial_bid", "reserve", "expires", "seller", "category"),
    *("date_time", "extra"),
]
WINDOW = 10_000
HOUR = timedelta(hours=1)
FILES = Path("nexmark-q10")
CHANNEL_IDS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


def clock_of(bid: Row) -> datetime:
    """Return the time of a bid."""
    return datetime.fromtimestamp(bid["date_time"] / 1_000, timezone.utc)


def add_day(bid: Row) -> Row:
    """Return a bid with day and minute."""
    return {**bid, "day": f"{clock_of(bid):%Y-%m-%d}", "minute": f"{clock_of(bid):%H:%M}"}


def time_type(bid: Row) -> str:
    """Return the part of the day of a bid."""
    hour = clock_of(bid).hour
    return "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"


def channel_id(bid: Row) -> str | None:
    """Return the id of the channel of a bid, if it is known."""
    found = re.search(r"(?:&|^)channel_id=([^&]*)", bid["url"])
    return CHANNEL_IDS.get(bid["channel"].lower(), found and found[1])


def add_bid(auction: Row, bid: Row) -> Row:
    """Return an auction with one of its bids."""
    offer = {"bidder": bid["bidder"], "price": bid["price"], "bid_time": bid["date_time"], "bid_extra": bid["extra"]}
    return {**auction, **offer}


RANKS: dict[str, Callable[[Row], bool]] = {
    "total": lambda bid: True,
    "rank1": lambda bid: bid["price"] < 10_000,
    "rank2": lambda bid: 10_000 <= bid["price"] < 1_000_000,
    "rank3": lambda bid: bid["price"] >= 1_000_000,
}


def count_by_rank(counter: Callable[..., Aggregator], what: str, column: str | None = None) -> dict[str, Aggregator]:
    """Return aggregations that count all bids, and those of each range of prices."""
    return {f"{rank}_{what}": counter(column, where=condition) for rank, condition in RANKS.items()}


STATISTICS = {
    **count_by_rank(Count, "bids"),
    **count_by_rank(CountDistinct, "bidders", "bidder"),
    **count_by_rank(CountDistinct, "auctions", "auction"),
}


def measure(column: str, **aggregators: Callable[[str], Aggregator]) -> dict[str, Aggregator]:
    """Return aggregations of a column, named after both."""
    return {f"{name}_{column}": aggregator(column) for name, aggregator in aggregators.items()}


class UntilTheEnd(WindowAssigner):
    """Assigns the bids on an auction to the window in which it is open."""

    def assign_windows(self, value: Row, timestamp: int, now: int) -> Iterator[Window]:
        """Yield the window of a bid."""
        yield Window(value["date_time"], value["expires"] + 1)


# -- Queries -----------------------------------------------------------------------------------------------------------


def q0(events: Events) -> StreamingDataFrame:
    """Pass bids through."""
    return events.bids[BID]


def q1(events: Events) -> StreamingDataFrame:
    """Convert prices from dollars to euros."""
    return events.bids.apply(lambda bid: {**bid, "price": 0.908 * bid["price"]})[BID]


def q2(events: Events) -> StreamingDataFrame:
    """Select the bids on certain auctions."""
    return events.bids[events.bids["auction"] % 123 == 0][["auction", "price"]]


def q3(events: Events) -> StreamingDataFrame:
    """Find who sells in a category, in certain states."""
    persons = events.persons[events.persons["state"].isin(["OR", "ID", "CA"])]
    auctions = events.auctions[events.auctions["category"] == 10]
    sellers = auctions.join(persons, on=("seller", "id"), on_merge="keep-left", retention=HOUR)
    return sellers[["name", "city", "state", "id"]]


def q4(events: Events) -> Table:
    """Average the final prices of each category."""
    bids = events.auctions.join(events.bids, within=(0, LONGEST), on_merge=add_bid)
    finals = bids[bids["bid_time"] <= bids["expires"]].top(1, by="price")
    return finals.group_by("category").agg(average=Mean("price"))


def q5(events: Events) -> StreamingDataFrame:
    """Find the auctions with the most bids in the last ten seconds, every two seconds."""
    windows = events.bids.hopping_window(WINDOW, 2_000).agg(auction=First("auction"), num=Count()).final()
    best = windows.group_by("start").tumbling_window(2_000).top(1, by="num", method="rank").final()
    return best[["auction", "num", "start"]]


def q6(events: Events) -> StreamingDataFrame:
    """Average the prices of the last ten auctions of each seller, whenever one ends."""
    bids = events.auctions.join(events.bids, within=(0, LONGEST), on_merge=add_bid)
    open_bids = bids[bids["bid_time"] <= bids["expires"]].window(UntilTheEnd())
    ended = open_bids.agg(seller=First("seller"), id=First("id"), price=Max("price")).final()
    ended = ended.set_timestamp(lambda auction, *_: auction["end"]).group_by("seller")
    return ended.over(rows=10, order="time").agg(price=Mean("price"))[["seller", "id", "price"]]


def q7(events: Events) -> StreamingDataFrame:
    """Find the highest bids of each ten seconds."""
    of_auctions = events.bids.tumbling_window(WINDOW).top(1, by="price", method="rank").final()[[*BID, "start"]]
    best = of_auctions.group_by("start").tumbling_window(WINDOW).top(1, by="price", method="rank").final()
    return best[["auction", "price", "bidder", "date_time", "extra"]]


def q8(events: Events) -> StreamingDataFrame:
    """Find who has come and opened an auction in the same ten seconds."""
    window = TumblingEventTimeWindows(WINDOW)
    new = events.persons.join(events.auctions, on=("id", "seller"), on_merge="keep-left", window=window)
    return new.drop_duplicates()[["id", "name", "start"]]


def q9(events: Events) -> Table:
    """Find the bid that wins each auction."""
    bids = events.auctions.join(events.bids, within=(0, LONGEST), on_merge=add_bid)
    best = bids[bids["bid_time"] <= bids["expires"]].top(1, by=["price", "bid_time"], descending=[True, False])
    return best[[*AUCTION, "bidder", "price", "bid_time", "bid_extra"]]


def q10(events: Events) -> StreamingDataFrame:
    """Write bids to files, with a folder for each day and minute."""
    bids = events.bids[BID].apply(add_day)
    bids.sink(LocalFileSink(directory=FILES, folders=FieldFolders("day", "minute")))
    return bids


def q11(events: Events) -> StreamingDataFrame:
    """Count the bids of each session of a bidder, which ends when there is no bid for ten seconds."""
    sessions = events.bids.group_by("bidder").window(EventTimeSessions(WINDOW))
    return sessions.agg(bidder=First("bidder"), bid_count=Count()).final()


def q12(events: Events) -> StreamingDataFrame:
    """Count the bids of each bidder that arrive in ten seconds of the wall clock."""
    windows = events.bids.group_by("bidder").tumbling_window(WINDOW, time="processing")
    return windows.agg(bidder=First("bidder"), bid_count=Count()).final()[["bidder", "bid_count", "start"]]


def q13(events: Events) -> StreamingDataFrame:
    """Join bids with a bounded side input."""
    bids = events.bids[["auction", "bidder", "price", "date_time"]]
    bids = bids.join_lookup(SideInput(), {"value": BaseField()}, on=lambda bid, key: bid["auction"] % 10_000)
    return bids[bids["value"].notnull()]


def q14(events: Events) -> StreamingDataFrame:
    """Compute columns of the bids of a range of prices."""
    bids = events.bids.apply(lambda bid: {**bid, "price": 0.908 * bid["price"], "bid_time_type": time_type(bid)})
    bids["c_counts"] = bids["extra"].apply(lambda text: text.count("c"))
    return bids[(bids["price"] > 1_000_000) & (bids["price"] < 50_000_000)][[*BID, "bid_time_type", "c_counts"]]


def q15(events: Events) -> Table:
    """Keep statistics of each day."""
    return events.bids.apply(add_day).group_by("day").agg(**STATISTICS)


def q16(events: Events) -> Table:
    """Keep statistics of each channel and day."""
    return events.bids.apply(add_day).group_by(["channel", "day"]).agg(minute=Max("minute"), **STATISTICS)


def q17(events: Events) -> Table:
    """Keep statistics of each auction and day."""
    days = events.bids.apply(add_day).group_by(["auction", "day"])
    return days.agg(**count_by_rank(Count, "bids"), **measure("price", min=Min, max=Max, avg=Mean, sum=Sum))


def q18(events: Events) -> Table:
    """Keep the last bid of each bidder on each auction."""
    last = events.bids[LONG].group_by(["bidder", "auction"]).agg(bid=Latest())
    return last.apply(lambda row: row["bid"])


def q19(events: Events) -> Table:
    """Keep the ten highest bids on each auction, of equal ones the earlier ones."""
    bids = events.bids[LONG].group_by("auction")
    return bids.top(10, by=["price", "date_time"], descending=[True, False], rank="rank_number")


def q20(events: Events) -> StreamingDataFrame:
    """Join bids with their auctions in a category."""
    auctions = events.auctions[events.auctions["category"] == 10]
    joined = events.bids.join(auctions, on_merge="keep-left", retention=HOUR)
    return joined[[*LONG[:-1], "item_name", "initial_bid", "seller", "category"]]


def q21(events: Events) -> StreamingDataFrame:
    """Add the ids of channels, where they are known."""
    bids = events.bids.apply(lambda bid: {**bid, "channel_id": channel_id(bid)})
    return bids[bids["channel_id"].notnull()][["auction", "bidder", "price", "channel", "channel_id"]]


def q22(events: Events) -> StreamingDataFrame:
    """Split URLs into directories."""
    bids = events.bids.apply(lambda bid: {**bid, **{f"dir{n}": bid["url"].split("/")[n + 2] for n in (1, 2, 3)}})
    return bids[["auction", "bidder", "price", "channel", "dir1", "dir2", "dir3"]]


QUERIES: dict[str, Callable[[Events], StreamingDataFrame | Table]] = {
    query.__name__: query
    for query in (
        q0,
        q1,
        q2,
        q3,
        q4,
        q5,
        q6,
        q7,
        q8,
        q9,
        q10,
        q11,
        q12,
        q13,
        q14,
        q15,
        q16,
        q17,
        q18,
        q19,
        q20,
        q21,
        q22,
    )
}


def read_sql(name: str) -> str:
    """Return a query in DuckDB's SQL."""
    _, *queries = re.split(r"^-- (q\d+)\n", Path(__file__).with_name("nexmark.sql").read_text(), flags=re.MULTILINE)
    return dict(zip(queries[::2], queries[1::2], strict=True))[name].strip()


def build(app: Application, name: str = "q1", target: str | None = None) -> StreamingDataFrame:
    """Add a query to an application, and return what it puts out, which is also in a topic.

    A table puts out its changes: the new row of a key, or None if there is none any more.
    """
    result = QUERIES[name](Events(app))
    frame = result.to_stream() if isinstance(result, StreamingTable) else result
    return frame.to_topic(app.topic(target or PREFIX + name, **FORMATS, config=CONFIG))


if __name__ == "__main__":
    query = sys.argv[1] if sys.argv[1:] else "events"
    app = Application(consumer_group=f"nexmark-{query}", auto_offset_reset="earliest")
    if query == "events":
        write_events(app, make_events(100_000))
    else:
        print(read_sql(query))
        build(app, query).print(pretty=False)
        # The windows of q12 close by the wall clock, which goes on: press Ctrl-C.
        app.run(until=None if query == "q12" else "end", collect=False)
