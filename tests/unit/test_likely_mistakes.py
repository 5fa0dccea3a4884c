"""Programs that run and compute nothing, or something else, are told so."""

import logging
import re
import subprocess
import sys
from datetime import timedelta

import pytest

from streamrt import Application
from streamrt.app import definition_of
from streamrt.errors import ArgumentTypeError
from streamrt.testing import TopologyTestDriver
from tests.unit.apps import application


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("seconds", [60, 1_800, 3_600, 86_400, 604_800])
def test_n1_the_length_of_a_window_in_seconds(seconds: int, caplog: pytest.LogCaptureFixture) -> None:
    app = application()
    app.dataframe(app.topic("in")).tumbling_window(seconds).count().final()
    [text] = warnings(caplog)
    assert f"lasts {seconds} milliseconds" in text
    assert f"timedelta(seconds={seconds})" in text


@pytest.mark.parametrize("length", [1_000, 1_500, 60_000, 3_600_000, timedelta(milliseconds=3_600)])
def test_n1_lengths_in_milliseconds_are_silent(length: int | timedelta, caplog: pytest.LogCaptureFixture) -> None:
    app = application()
    app.dataframe(app.topic("in")).tumbling_window(length).count().final()
    assert warnings(caplog) == []


def seconds_of(app: Application) -> TopologyTestDriver:
    topic = app.topic("in", timestamp_extractor=lambda value, headers, timestamp, kind: value["at"])
    app.dataframe(topic).to_topic(app.topic("out"))
    return TopologyTestDriver(app)


def test_n1_a_timestamp_in_seconds(caplog: pytest.LogCaptureFixture) -> None:
    driver = seconds_of(application())
    for at in (1_767_225_600, 1_767_225_601):
        driver.pipe("in", {"at": at}, timestamp=1_767_225_600_000)
    [text] = warnings(caplog)
    assert "the timestamp extractor of topic in returned 1767225600, which is in 1970" in text


def test_n1_timestamps_of_other_scales_are_silent(caplog: pytest.LogCaptureFixture) -> None:
    """A replay of 1970 also has such timestamps in Kafka."""
    driver = seconds_of(application())
    driver.pipe("in", {"at": 1_767_225_600_000}, timestamp=1_767_225_600_000)
    driver = seconds_of(application())
    driver.pipe("in", {"at": 1_767_225_600}, timestamp=1_767_225_600)
    driver = seconds_of(application())
    driver.pipe("in", {"at": 5}, timestamp=1_767_225_600_000)
    assert warnings(caplog) == []


def test_n1_a_window_that_is_never_emitted(caplog: pytest.LogCaptureFixture) -> None:
    app = application()
    frame = app.dataframe(app.topic("in"))
    frame.tumbling_window(1_000).count()
    frame.global_window()
    frame.sliding_window(1_000).count().current()
    definition_of(app).task_spec()
    texts = warnings(caplog)
    assert len(texts) == 2
    assert all("test_likely_mistakes.py" in text and "computes nothing: it has no final()" in text for text in texts)


def test_n5_an_argument_that_is_misspelt() -> None:
    with pytest.raises(ArgumentTypeError, match=r"Application\(\) has no argument .*; did you mean 'broker_address'\?"):
        Application(broker_adress="kafka:9092")  # type: ignore[call-arg]
    with pytest.raises(ArgumentTypeError, match=r"did you mean 'value_deserializer'\?"):
        application().topic("in", value_deserialiser="str")  # type: ignore[call-arg]


def test_n5_the_name_of_a_topic_in_place_of_a_topic() -> None:
    app = application()
    with pytest.raises(ArgumentTypeError, match=r"not a name: write to_topic\(app\.topic\('out'\)\)"):
        app.dataframe(app.topic("in")).to_topic("out")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "program",
    [
        "from streamrt import Catalog; Catalog('127.0.0.1:1', connect=True, timeout=0.1)",
        "from streamrt.kafka import Producer; Producer('k:1', extra_config={'linger.ms': 'x'}).produce('t', value=b'')",
    ],
)
@pytest.mark.slow
def test_n5_programs_without_an_application_end_with_one_sentence(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert re.search(r"^streamrt: \w+Error: ", done.stderr, re.MULTILINE), done.stderr


def test_n6_a_wrong_address_is_given_up_sooner_than_brokers_that_are_away() -> None:
    config = application()._config
    assert (config.broker_start_timeout, config.broker_outage_timeout) == (30, 120)
    told = application(broker_availability_timeout=0)._config
    assert (told.broker_start_timeout, told.broker_outage_timeout) == (0, 0)
