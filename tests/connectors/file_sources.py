"""Common parts of tests of file sources."""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from streamrt.connectors import Source
from streamrt.errors import ConfigurationError, SourceError
from streamrt.testing.connectors import (
    StatefulSourceConformance,
)
from tests.connectors.proxy import Proxy
from tests.connectors.sources import Run
from tests.support import wait_until

SECRET = "sesame+open/1234=="


def lines(values: Sequence[Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def numbers(start: int, end: int) -> list[dict[str, int]]:
    return [{"n": number} for number in range(start, end)]


class ObjectStoreConformance(StatefulSourceConformance):
    """Tests that hold for each object store. Subclasses define the store."""

    missing: ClassVar[type[SourceError]]
    container: ClassVar[str] = "archive"
    gate: Proxy
    folder: str

    def put(self, path: str, data: bytes) -> None:
        """Store a file in the folder of the test."""
        raise NotImplementedError

    def source(self, filepath: str = "", **options: Any) -> Source:
        """Return a source of a path in the folder of the test."""
        raise NotImplementedError

    def make(self) -> Any:
        self.put("in.jsonl", lines(numbers(0, 3)))
        return self.source(replay_speed=0)

    def run(self, *arguments: Any, **options: Any) -> Run:
        """Return a source that is ready to start."""
        return Run(self.source(*arguments, **{"replay_speed": 0, **options}))

    def test_folders(self) -> None:
        self.put("b.jsonl", lines(numbers(4, 5)))
        self.put("a/1.jsonl", lines(numbers(0, 2)))
        self.put("a/2.jsonl", lines(numbers(2, 4)))
        self.put("a/_SUCCESS", b"nothing")
        self.put(".hidden/1.jsonl", b"nothing")
        assert self.run().to_end().values == numbers(0, 5)
        assert self.run("a").to_end().values == numbers(0, 4)
        assert self.run("a/2.jsonl").to_end().values == numbers(2, 4)

    def test_partition_folders(self) -> None:
        self.put("0/0.jsonl", lines([{"_key": "a", "_timestamp": 5, "_value": 0}]))
        self.put("2/0.jsonl", lines([{"_timestamp": 6, "_value": 1}]))
        source = self.source(has_partition_folders=True, replay_speed=0)
        config = source.default_topic().config
        assert config is not None
        assert config.num_partitions == 3
        records = Run(source).to_end().records
        assert [record[1:] for record in records] == [(b"0", b"a", None, None, 5), (b"1", None, None, 2, 6)]

    def test_it_continues(self) -> None:
        self.put("a.jsonl", lines(numbers(0, 2)))
        run = self.run().to_end()
        self.put("a.jsonl", lines(numbers(0, 3)))
        self.put("b.jsonl", lines(numbers(3, 5)))
        Run(self.source(replay_speed=0), run.store, run.producer).to_end()
        assert run.values == numbers(0, 5)
        Run(self.source(replay_speed=0), run.store, run.producer).to_end()
        assert run.values == numbers(0, 5)

    def test_c3_replaced_files_and_half_lines(self) -> None:
        def again() -> list[Any]:
            return Run(self.source(replay_speed=0), run.store).to_end().values

        self.put("a.jsonl", lines(numbers(0, 2)))
        self.put("b.jsonl", lines(numbers(2, 3)) + b"20")
        run = self.run().to_end()
        assert run.values == numbers(0, 3)
        self.put("a.jsonl", lines(numbers(3, 5)))
        self.put("b.jsonl", lines(numbers(2, 3)) + b"20050\n")
        assert again() == [*numbers(3, 5), 20050]
        # A longer one, and the former content under another name.
        self.put("a.jsonl", lines(numbers(5, 9)))
        self.put("a.jsonl.1", lines(numbers(3, 5)) + lines([7]))
        assert again() == [7, *numbers(5, 9)]
        assert again() == []
        with Run(self.source("*.jsonl", replay_speed=0, monitor_continuously=0.05), run.store) as watching:
            self.put("c.jsonl", lines([8]))
            self.put("d.txt", b"nothing")
            assert watching.wait_for(1) == [8]

    def test_an_empty_path_of_a_bucket_is_all_of_it(self) -> None:
        self.put("a/1.jsonl", lines([self.folder]))
        self.put("b/1.jsonl", lines([f"{self.folder} again"]))
        assert {self.folder, f"{self.folder} again"} <= {str(value) for value in self.run(whole=True).to_end().values}

    @pytest.mark.slow
    def test_a_large_file_is_read_in_parts_while_the_store_breaks_off(self) -> None:
        count = 120_000
        text = "x" * 80
        self.put("large.jsonl", lines([{"n": number, "text": text} for number in range(count)]))
        self.gate.close()
        # Enough for the check and some blocks.
        self.gate.open()
        self.gate.close_after(6_000_000, answers=True)
        run = self.run(value_setter=lambda record: record["n"]).start()
        wait_until(lambda: not self.gate.is_open, what="the end of the connection")
        assert len(run.records) < count
        self.gate.open()
        run.to_end()
        assert run.values == list(range(count))

    def test_stop_while_the_store_hangs(self) -> None:
        self.put("a.jsonl", lines(numbers(0, 2)))
        self.gate.hang()
        before = self.gate.taken
        run = self.run().start()
        wait_until(lambda: self.gate.taken > before, what="a connection")
        assert run.stop() < 8
        assert run.error is None

    def test_no_such_path_or_bucket(self) -> None:
        message = str(self.run("nothing").failure())
        assert "there is no file and no directory" in message
        with pytest.raises(self.missing, match=r"there is no .* absent-container for the source rows"):
            self.run(container="absent-container").to_end()

    def test_it_cannot_be_reached(self) -> None:
        self.gate.close()
        message = str(self.run().failure())
        assert message.startswith("the source rows cannot read ")
        assert SECRET not in message
        assert "\n" not in message

    def test_parquet(self) -> None:
        import io

        import pyarrow
        import pyarrow.parquet

        data = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table({"n": list(range(2_000))}), data, row_group_size=300)
        self.put("a.parquet", data.getvalue())
        assert self.run(file_format="parquet").to_end().values == numbers(0, 2_000)

    def test_a_missing_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(ConfigurationError, match="needs the package"):
            self.source()
