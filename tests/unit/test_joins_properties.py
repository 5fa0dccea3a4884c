"""Random histories of joins give what the definitions say, whatever the commits and restarts."""

from pathlib import Path
from typing import get_args

import pytest

from streamrt.joins import AsOfHow, IntervalHow
from streamrt.state import RocksDBStore
from tests.support import LONG
from tests.unit.joined import check_asof, check_interval, check_stream

# Cases for each `how`, of which there are ten.
CASES = 10_000 if LONG else 100


@pytest.mark.slow
@pytest.mark.parametrize("how", get_args(AsOfHow))
def test_asof(how: AsOfHow) -> None:
    assert sum(check_asof(seed, how) for seed in range(CASES)) > CASES


@pytest.mark.slow
@pytest.mark.parametrize("how", get_args(IntervalHow))
def test_interval(how: IntervalHow) -> None:
    assert sum(check_interval(seed, how) for seed in range(CASES)) > 3 * CASES


@pytest.mark.slow
@pytest.mark.parametrize("how", get_args(IntervalHow))
def test_stream(how: IntervalHow) -> None:
    assert sum(check_stream(seed, how) for seed in range(CASES)) > 3 * CASES


@pytest.mark.slow
def test_on_disk(tmp_path: Path) -> None:
    for seed in range(CASES // 33):
        check_asof(seed, "left", tmp_path / f"asof-{seed}", RocksDBStore)
        check_interval(seed, "outer", tmp_path / f"interval-{seed}", RocksDBStore)
        check_stream(seed, "outer", tmp_path / f"stream-{seed}", RocksDBStore)
