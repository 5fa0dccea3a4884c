"""All sources of the project keep what the contract promises."""

from pathlib import Path

import pandas as pd
import pytest

from streamrt.connectors import BaseSource, CSVSource, PandasDataFrameSource, Source, StatefulSource
from streamrt.testing.connectors import BaseSourceConformance, SourceConformance, StatefulSourceConformance
from streamrt.topics import Topic


class Counting(Source):
    def run(self) -> None:
        number = 0
        while self.running:
            message = self.serialize(value=number)
            self.produce(message.value, message.key)
            number += 1
            self.sleep(0.005)


class Remembering(StatefulSource):
    def run(self) -> None:
        while self.running:
            number = self.state.get("number", 0)
            self.produce(self.serialize(value=number).value)
            self.state.set("number", number + 1)
            self.flush()
            self.sleep(0.005)


class Plain(BaseSource):
    # It may be told to stop before it starts.
    going = True

    def start(self) -> None:
        while self.going:
            self.producer.produce(self.producer_topic.name, b"1")
        self.producer.flush()

    def stop(self) -> None:
        self.going = False

    def default_topic(self) -> Topic:
        return Topic("plain")


class TestSource(SourceConformance):
    def make(self) -> Source:
        return Counting("counting")


class TestStatefulSource(StatefulSourceConformance):
    def make(self) -> StatefulSource:
        return Remembering("remembering")


class TestBaseSource(BaseSourceConformance):
    def make(self) -> BaseSource:
        return Plain()


class TestCSVSource(SourceConformance):
    @pytest.fixture(autouse=True)
    def file(self, tmp_path: Path) -> None:
        self.path = tmp_path / "in.csv"
        self.path.write_text("sku,n\na,1\nb,2\n")

    def make(self) -> CSVSource:
        return CSVSource(self.path, "rows")


class TestSlowCSVSource(TestCSVSource):
    def make(self) -> CSVSource:
        return CSVSource(self.path, "rows", delay=3600)


class TestPandasDataFrameSource(SourceConformance):
    def make(self) -> PandasDataFrameSource:
        return PandasDataFrameSource(pd.DataFrame({"sku": ["a", "b"], "n": [1, 2]}), key_column="sku", delay=0.001)
