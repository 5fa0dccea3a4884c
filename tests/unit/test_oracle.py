"""Recorded cases of PyFlink, which StreamRT answers in the same way: see `tests.oracle`."""

import json

import pytest

from tests.oracle.compare import expected, plain
from tests.oracle.minicluster import recorded as minicluster
from tests.oracle.minicluster.ours import run as run_script
from tests.oracle.minicluster.scripts import SCRIPTS
from tests.oracle.ours import run
from tests.oracle.recorded import NUMBERS, load
from tests.support import LONG, PROCESSING_MODES


@pytest.mark.slow
@pytest.mark.rows(
    "PF-E1",
    "PF-E2",
    "PF-E6",
    "PF-E7",
    "PF-E8",
    "PF-E9",
    "PF-E10",
    "PF-E11",
    "PF-F1",
    "PF-F2",
    "PF-F3",
    "PF-F4",
    "PF-F5",
    "PF-H2",
)
@pytest.mark.rows(
    "PF-G15", "PF-G16", "PF-G17", "PF-G18", "PF-G21", "PF-G28", "PF-G29", "PF-G31", "PF-G32", "PF-G33", "PF-H3"
)
@pytest.mark.parametrize("kind", NUMBERS)
def test_streamrt_puts_out_what_pyflink_did(kind: str, processing_mode: str) -> None:
    cases = list(load(kind))
    assert len(cases) == NUMBERS[kind]
    if not LONG:
        # Operators are the same in both modes.
        cases = cases[PROCESSING_MODES.index(processing_mode) :: len(PROCESSING_MODES)]
    for case, flink in cases:
        found = plain(case, json.loads(json.dumps(run(case))))
        assert found == expected(case, flink), case


@pytest.mark.slow
@pytest.mark.rows("PF-E7", "PF-F11", "PF-F14", "PF-F16", "PF-I5", "PF-I6", "PF-I9", "PF-K1", "PF-K2", "PF-K3", "PF-K5")
def test_streamrt_puts_out_what_a_mini_cluster_did(processing_mode: str) -> None:
    recorded = minicluster.load()
    assert list(recorded) == list(SCRIPTS)
    for name, case in SCRIPTS.items():
        wanted, found = minicluster.comparable(case, recorded[name], run_script(case))
        assert found == wanted, name
