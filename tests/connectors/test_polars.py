"""`PolarsDataFrameSource`."""

import datetime
from typing import Any

import polars as pl
import pytest

from streamrt.connectors import PolarsDataFrameSource
from streamrt.errors import ConfigurationError, SourceError
from streamrt.testing.connectors import SourceConformance
from tests.connectors.sources import Run

FRAME = pl.DataFrame({"sku": ["a", None], "at": [1_000, 2_000], "price": [1.5, float("nan")], "n": [1, None]})


class TestConformance(SourceConformance):
    def make(self) -> PolarsDataFrameSource:
        return PolarsDataFrameSource(pl.DataFrame({"sku": ["a", "b"], "n": [1, 2]}), key_column="sku", delay=0.001)


class TestSlow(SourceConformance):
    def make(self) -> PolarsDataFrameSource:
        return PolarsDataFrameSource(pl.DataFrame({"sku": ["a", "b"]}), key_column="sku", delay=3600)


def test_rows() -> None:
    run = Run(PolarsDataFrameSource(FRAME, "sku", "at")).to_end()
    assert run.values == [
        {"sku": "a", "at": 1_000, "price": 1.5, "n": 1},
        {"sku": None, "at": 2_000, "price": None, "n": None},
    ]
    assert [(record.key, record.timestamp) for record in run.records] == [(b"a", 1_000), (None, 2_000)]


def test_without_metadata_in_the_values() -> None:
    run = Run(PolarsDataFrameSource(FRAME, "sku", "at", keep_meta_as_values=False)).to_end()
    assert run.values == [{"price": 1.5, "n": 1}, {"price": None, "n": None}]
    run = Run(PolarsDataFrameSource(FRAME, "sku", keep_meta_as_values=False)).to_end()
    assert run.values[0] == {"at": 1_000, "price": 1.5, "n": 1}
    assert run.records[0].timestamp is None


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_datetimes_as_timestamps(unit: Any, zone: str | None) -> None:
    at = pl.Series("at", [datetime.datetime(2001, 9, 9, 1, 46, 40)], dtype=pl.Datetime(unit))
    if zone is not None:
        at = at.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    run = Run(PolarsDataFrameSource(pl.DataFrame({"sku": ["a"], "at": at}), "sku", "at")).to_end()
    assert run.records[0].timestamp == 1_000_000_000_000
    assert run.values == [{"sku": "a", "at": 1_000_000_000_000}]


def test_keys_of_bytes_and_nested_values() -> None:
    frame = pl.DataFrame({"id": [b"\xff"], "list": [[1, None]], "struct": [{"x": 1}]})
    run = Run(PolarsDataFrameSource(frame, "id", keep_meta_as_values=False)).to_end()
    assert run.values == [{"list": [1, None], "struct": {"x": 1}}]
    assert run.records[0].key == b"\xff"


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (FRAME, {"key_column": "id"}, "key_column of source .* is 'id', but the DataFrame has 'sku', 'at'"),
        (FRAME, {"key_column": "sku", "timestamp_column": "t"}, "timestamp_column of source"),
        (FRAME, {"key_column": "sku", "timestamp_column": "price"}, "is of type Float64"),
        (FRAME, {"key_column": "sku", "delay": -1}, "delay"),
        (FRAME.lazy(), {"key_column": "sku"}, "needs a polars DataFrame, got LazyFrame"),
        ({"sku": ["a"]}, {"key_column": "sku"}, "needs a polars DataFrame, got dict"),
    ],
)
def test_wrong_arguments(frame: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PolarsDataFrameSource(frame, **options)


def test_rows_that_cannot_be_produced() -> None:
    frame = pl.DataFrame({"sku": ["a", "b"], "at": [None, datetime.datetime(2026, 1, 1)]})
    with pytest.raises(SourceError, match=r"row 1 of the DataFrame cannot be produced by the source .*cast"):
        Run(PolarsDataFrameSource(frame, "sku")).to_end()
    with pytest.raises(SourceError, match=r"row 0 .*column 'at' is empty"):
        Run(PolarsDataFrameSource(frame, "sku", "at")).to_end()
    with pytest.raises(SourceError, match="row 0 of the DataFrame"):
        Run(PolarsDataFrameSource(pl.DataFrame({"sku": [5]}), "sku")).to_end()


def test_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="PolarsDataFrameSource needs the package polars: run pip install"):
        PolarsDataFrameSource(FRAME, "sku")
