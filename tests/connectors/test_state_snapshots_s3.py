"""Snapshots of state in S3, with moto."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connectors.s3_server import KEY_ID, REGION, SECRET_KEY, S3Service, s3_service
from tests.support import unique
from tests.unit.snapshots import World, wait_for

pytestmark = pytest.mark.slow

BUCKET = unique("snapshots")


@pytest.fixture(scope="module")
def service() -> Iterator[S3Service]:
    with s3_service() as service:
        service.make_bucket(BUCKET)
        yield service


def world(service: S3Service, directory: Path, secret: str = SECRET_KEY) -> World:
    options = {
        "key": KEY_ID,
        "secret": secret,
        "client_kwargs": {"endpoint_url": service.url, "region_name": REGION},
        "config_kwargs": {"connect_timeout": 5, "read_timeout": 5, "retries": {"max_attempts": 1}},
    }
    return World(directory, f"s3://{BUCKET}/{directory.name}", keep=2, storage_options=options)


def test_a_lost_disk_is_restored_from_s3(service: S3Service, tmp_path: Path) -> None:
    task = world(service, tmp_path)
    task.open()
    for number in range(4):
        task.commit(a=number, b="x" * 200_000)
    keys = [key for key in service.keys(BUCKET) if key.startswith(f"{tmp_path.name}/shop/orders/default/changelog/0/")]
    assert len([key for key in keys if key.endswith(".manifest")]) == 2
    taken = task.stamp.changelog_offset
    task.lose_disk()
    task.open()
    assert task.state() == {"a": 3, "b": "x" * 200_000}
    assert task.clients.read_offsets in ([], [(taken, taken)])
    assert task.counted() == {"snapshot restores": 1}
    # A damaged object is passed over.
    largest = max(keys, key=lambda key: len(service.read(BUCKET, key)))
    service.client.put_object(Bucket=BUCKET, Key=largest, Body=service.read(BUCKET, largest)[:-1] + b"?")
    task.lose_disk()
    task.open()
    assert task.state() == {"a": 3, "b": "x" * 200_000}


def test_an_s3_service_that_is_away_stops_nothing(
    service: S3Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = world(service, tmp_path)
    task.open()
    task.commit(a=1)
    service.stop()
    task.commit(a=2)
    task.commit(a=3)
    lines = [each for each in caplog.records if each.levelno == logging.WARNING and "no snapshot" in each.message]
    assert len(lines) == 1
    assert SECRET_KEY not in caplog.text
    task.lose_disk()
    task.open()
    assert task.state() == {"a": 3}
    service.start()
    task.commit(a=4)
    wait_for(lambda: task.counted().get("snapshot uploads"))
    task.lose_disk()
    task.open()
    assert task.state() == {"a": 4}
    assert task.counted() == {"snapshot restores": 1}
