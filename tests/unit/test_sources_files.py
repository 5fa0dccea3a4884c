"""`CSVSource` and `PandasDataFrameSource`."""

import csv
import json
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pandas as pd
import pytest

from streamrt.connectors import CSVSource, PandasDataFrameSource, Source
from streamrt.errors import ConfigurationError, SourceError
from streamrt.testing.connectors import RecordingProducer, SourceRecord
from streamrt.topics import Topic


def run(source: Source) -> list[SourceRecord]:
    producer = RecordingProducer()
    source.configure(Topic("rows", key_serializer="str"), producer)
    source.start()
    assert producer.flushed == len(producer.records)
    return producer.records


def values(records: list[SourceRecord]) -> list[Any]:
    return [json.loads(record.value or b"null") for record in records]


class TestCSV:
    @pytest.fixture
    def write(self, tmp_path: Path) -> Callable[[str], Path]:
        def write(text: str) -> Path:
            path = tmp_path / "in.csv"
            path.write_bytes(text.encode())
            return path

        return write

    def test_rows(self, write: Callable[[str], Path]) -> None:
        path = write('sku,text\r\na,"two\r\nlines"\r\nb,größer\r\n')
        records = run(CSVSource(path, "rows"))
        assert values(records) == [{"sku": "a", "text": "two\r\nlines"}, {"sku": "b", "text": "größer"}]
        assert [record[2:] for record in records] == [(None, None, None, None)] * 2

    def test_keys_and_timestamps(self, write: Callable[[str], Path]) -> None:
        path = write("sku,at\na,1000\nb,2000\n")
        source = CSVSource(str(path), "rows", lambda row: row["sku"], lambda row: int(row["at"]))
        assert [(record.key, record.timestamp) for record in run(source)] == [(b"a", 1000), (b"b", 2000)]
        source = CSVSource(path, "rows", key_extractor=lambda row: row["sku"].encode())
        assert [record.key for record in run(source)] == [b"a", b"b"]

    def test_a_byte_order_mark_is_no_part_of_a_name(self, write: Callable[[str], Path]) -> None:
        assert values(run(CSVSource(write("\ufeffsku\na\n"), "rows"))) == [{"sku": "a"}]

    @pytest.mark.parametrize("text", ["", "sku,n\n"])
    def test_no_rows(self, write: Callable[[str], Path], text: str) -> None:
        assert run(CSVSource(write(text), "rows")) == []

    def test_a_dialect_travels(self, write: Callable[[str], Path]) -> None:
        csv.register_dialect("pipes", delimiter="|")
        try:
            data = cloudpickle.dumps(CSVSource(write("a|b\n1|2\n"), "rows", dialect="pipes"))
        finally:
            csv.unregister_dialect("pipes")
        assert values(run(pickle.loads(data))) == [{"a": "1", "b": "2"}]

    def test_stop_ends_a_delay(self, write: Callable[[str], Path]) -> None:
        producer = RecordingProducer()
        source = CSVSource(write("a\n1\n2\n"), "rows", delay=3600)
        source.configure(Topic("rows"), producer)
        threading.Timer(0.05, source.stop).start()
        source.start()
        assert len(producer.records) == 1

    @pytest.mark.parametrize(
        ("text", "options", "message"),
        [
            ("a,b\n1,2\n3\n", {}, "line 3 of .* cannot be produced by the source rows: it lacks the columns b"),
            ("a,b\n1,2,3,4\n", {}, "line 2 of .*: it has 2 more fields than the first row has names"),
            (
                "a\n1\n",
                {"key_extractor": lambda row: row["b"]},
                "line 2 of .*: key_extractor failed with KeyError: 'b'",
            ),
            ("a\n1\n", {"key_extractor": lambda row: 5}, "key_extractor returned a int, not str or bytes"),
            ("a\n1\n", {"timestamp_extractor": lambda row: "5"}, "timestamp_extractor returned a str, not int"),
            ("a\n1\n", {"timestamp_extractor": lambda row: True}, "timestamp_extractor returned a bool, not int"),
        ],
    )
    def test_bad_rows(self, write: Callable[[str], Path], text: str, options: dict[str, Any], message: str) -> None:
        with pytest.raises(SourceError, match=message):
            run(CSVSource(write(text), "rows", **options))

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "in.csv"
        path.write_bytes(b"a\n\xff\n")
        with pytest.raises(SourceError, match="cannot be read: 'utf-8' codec"):
            run(CSVSource(path, "rows"))

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match=r"there is no file .*missing\.csv for the source rows"):
            run(CSVSource(tmp_path / "missing.csv", "rows"))

    @pytest.mark.parametrize(
        ("options", "message"),
        [({"dialect": "lotus"}, "known are excel"), ({"delay": -1}, "delay"), ({"delay": float("nan")}, "delay")],
    )
    def test_wrong_parameters(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            CSVSource("in.csv", "rows", **options)


class TestPandas:
    FRAME = pd.DataFrame({"sku": ["a", None], "at": [1_000, 2_000], "price": [1.5, None], "n": [1, 2]})

    def test_rows(self) -> None:
        records = run(PandasDataFrameSource(self.FRAME, "sku", "at"))
        assert values(records) == [
            {"sku": "a", "at": 1_000, "price": 1.5, "n": 1},
            {"sku": None, "at": 2_000, "price": None, "n": 2},
        ]
        assert [(record.key, record.timestamp) for record in records] == [(b"a", 1_000), (None, 2_000)]

    def test_without_metadata_in_the_values(self) -> None:
        records = run(PandasDataFrameSource(self.FRAME, "sku", "at", keep_meta_as_values=False))
        assert values(records) == [{"price": 1.5, "n": 1}, {"price": None, "n": 2}]
        records = run(PandasDataFrameSource(self.FRAME, "sku", keep_meta_as_values=False))
        assert values(records)[0] == {"at": 1_000, "price": 1.5, "n": 1}
        assert records[0].timestamp is None

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    @pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
    def test_datetimes_as_timestamps(self, unit: Any, zone: str | None) -> None:
        at = pd.Series(pd.to_datetime([1_000_000_000_000], unit="ms")).dt.as_unit(unit)
        if zone is not None:
            at = at.dt.tz_localize("UTC").dt.tz_convert(zone)
        frame = pd.DataFrame({"sku": ["a"], "at": at})
        records = run(PandasDataFrameSource(frame, "sku", "at"))
        assert records[0].timestamp == 1_000_000_000_000
        assert values(records) == [{"sku": "a", "at": 1_000_000_000_000}]

    def test_missing_values_of_all_kinds(self) -> None:
        frame = pd.DataFrame(
            {
                "sku": ["a"],
                "na": pd.array([pd.NA], dtype="Int64"),
                "nat": [pd.NaT],
                "nan": [float("nan")],
                "list": [[1, None]],
            }
        )
        assert values(run(PandasDataFrameSource(frame, "sku"))) == [
            {"sku": "a", "na": None, "nat": None, "nan": None, "list": [1, None]}
        ]

    def test_its_default_topic(self) -> None:
        assert PandasDataFrameSource(self.FRAME, "sku").default_topic().name == "pandas-dataframe-source"

    @pytest.mark.parametrize(
        ("frame", "options", "message"),
        [
            (FRAME, {"key_column": "id"}, "key_column of source .* is 'id', but the DataFrame has 'sku', 'at'"),
            (FRAME, {"key_column": "sku", "timestamp_column": "t"}, "timestamp_column of source"),
            (FRAME, {"key_column": "sku", "timestamp_column": "price"}, "is of type float64"),
            (FRAME, {"key_column": "sku", "delay": -1}, "delay"),
            (pd.DataFrame([[1]]), {"key_column": "sku"}, "has the column 0: column names must be text"),
            (pd.DataFrame([[1, 2]], columns=["a", "a"]), {"key_column": "a"}, "two columns 'a'"),
        ],
    )
    def test_wrong_parameters(self, frame: pd.DataFrame, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            PandasDataFrameSource(frame, **options)

    def test_rows_that_have_no_json_form(self) -> None:
        frame = pd.DataFrame({"sku": ["a", "b"], "odd": [1, object()]})
        with pytest.raises(SourceError, match=r"row 1 of the DataFrame cannot be produced by the source .*astype"):
            run(PandasDataFrameSource(frame, "sku"))

    def test_keys_that_do_not_fit_the_topic(self) -> None:
        frame = pd.DataFrame({"sku": [5]})
        with pytest.raises(SourceError, match="row 0 of the DataFrame"):
            run(PandasDataFrameSource(frame, "sku"))

    def test_rows_without_a_timestamp(self) -> None:
        frame = pd.DataFrame({"sku": ["a"], "at": [pd.NaT]})
        with pytest.raises(SourceError, match="column 'at' is empty"):
            run(PandasDataFrameSource(frame, "sku", "at"))
