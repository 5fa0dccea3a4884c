import atexit
import gc
import logging
import signal
import ssl
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from streamrt import secret
from streamrt.testing.plugin import KafkaBroker
from tests.forks import Forks
from tests.hosts import HostedProgram, Hosts
from tests.support import LONG, PROCESSING_MODES, Kafka, Program

# Programs that are started in the background of a script ignore Ctrl+C, and so do those that they start. Tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long a case takes is the machine's business. Ordinary runs try the same cases each time, so that none fails by chance;
# long ones look for new cases.
settings.register_profile("streamrt", deadline=None, derandomize=not LONG, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("streamrt")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--processing-mode", choices=PROCESSING_MODES, help="run what runs in each processing mode in this one alone"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have tests that use `processing_mode` run once in each mode; where one must do, the others are skipped and say why."""
    if "processing_mode" not in metafunc.fixturenames:
        return
    asked = metafunc.config.getoption("--processing-mode")
    modes = PROCESSING_MODES if asked is None else (asked,)
    only = metafunc.definition.get_closest_marker("only_mode")
    skips = {} if only is None else skipped_modes(*only.args, **only.kwargs)
    chosen = [pytest.param(mode, marks=skips.get(mode, ())) for mode in modes]
    metafunc.parametrize("processing_mode", chosen, indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts programs, before anything is chosen by marks, and what only long runs do."""
    others: dict[str, list[str]] = {}
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if {"program", "hosted"} & set(item.fixturenames):
            item.add_marker("programs")
        if not LONG and is_left_to_long_runs(item, others):
            item.add_marker(pytest.mark.skip(reason="some of the modes and guarantees; make test-long runs them all"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Have collections of garbage pass over what lives until the end: modules, and thousands of tests."""
    gc.disable()
    yield
    gc.collect()
    gc.freeze()
    gc.enable()
    # The interpreter frees at its end what was kept: some libraries tell of what they find. Not before, since pytest collects
    # garbage when it ends.
    atexit.register(gc.unfreeze)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Keep what a test and its fixtures, those of its module too, leave in the process away from other tests.

    That is what an application sets up for the logger of the package, and passwords: these may be words in messages of
    another test.
    """
    package = logging.getLogger("streamrt")
    handlers, level, propagate = package.handlers[:], package.level, package.propagate
    result = yield
    package.handlers[:], package.propagate = handlers, propagate
    package.setLevel(level)
    secret._concealed.clear()
    return result


_CROSSED = ("processing_mode", "guarantee")
_UNITS = Path(__file__).parent / "unit"


def is_left_to_long_runs(item: pytest.Function, others: dict[str, list[str]]) -> bool:
    """Whether a test is one of those that show the same of the other mode, or the other guarantee.

    On Spark, ordinary runs take one of two modes, in turn, unless a test is marked `both_modes`; of two modes and two
    guarantees, they take each once. In `tests/unit`, they take half of the pairs of a mode with a guarantee, or with the
    other parameters of the test: these take turns, so each test runs in both modes. Other tests do all of them.

    Args:
        item: the test.
        others: the other parameters of tests so far, by test; those of this one are added.
    """
    chosen: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    is_unit, is_on_spark = item.path.parent == _UNITS, item.get_closest_marker("spark") is not None
    if "processing_mode" not in chosen or item.get_closest_marker("only_mode") is not None:
        return False
    if not (is_unit or is_on_spark) or item.get_closest_marker("both_modes") is not None:
        return False
    is_resident = chosen["processing_mode"] == "resident"
    turned = (zlib.crc32(item.originalname.encode()) + _turn_of(item, others)) % 2 == 1
    if "guarantee" in chosen:
        return ((chosen["guarantee"] == "exactly-once") == is_resident) is turned
    return is_resident is turned and (is_on_spark or len(chosen) > 1)


def _turn_of(item: pytest.Function, others: dict[str, list[str]]) -> int:
    """Return the number of a test's parameters other than mode and guarantee among those of the same function."""
    known = others.setdefault(item.nodeid.partition("[")[0], [])
    other = item.callspec.id
    for name in _CROSSED:
        other = other.replace(str(item.callspec.params.get(name, "")), "", 1)
    if other not in known:
        known.append(other)
    return known.index(other)


def skipped_modes(mode: str, *, reason: str, always: bool = True) -> dict[str, pytest.MarkDecorator]:
    """Return what keeps a test from running in other modes than the one that its marker `only_mode` names.

    Args:
        mode: the mode.
        reason: why the others are left out.
        always: whether long runs also leave them out.
    """
    if mode not in PROCESSING_MODES:
        raise pytest.UsageError(f"only_mode knows {' and '.join(PROCESSING_MODES)}, not {mode!r}")
    if LONG and not always:
        return {}
    skip = pytest.mark.skip(reason=f"in {mode} mode alone: {reason}")
    return {other: skip for other in PROCESSING_MODES if other != mode}


@pytest.fixture(scope="session", autouse=True)
def no_system_certificates() -> Iterator[None]:
    """Servers of tests have certificates of their own; to read those of the system takes 33 ms for each client."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: None)
        yield


@pytest.fixture
def processing_mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The mode in which applications of the test run, in this process and in its programs."""
    mode: str = request.param
    monkeypatch.setenv("STREAMRT_PROCESSING_MODE", mode)
    return mode


@pytest.fixture
def group_protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The protocol of the groups of a test, in this process and in its programs; see `tests.support.in_protocols`."""
    protocol: str = request.param
    monkeypatch.setenv("STREAMRT_GROUP_PROTOCOL", protocol)
    return protocol


@pytest.fixture
def kafka(kafka_broker: KafkaBroker, tmp_path: Path) -> Kafka:
    """The broker of the test run, with a state directory of this test's own."""
    return Kafka(kafka_broker.bootstrap_servers, tmp_path / "state")


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """A function that starts a Python program, a text or a file; what still runs at the end is killed."""
    programs: list[Program] = []

    def start(source: str | Path, **environment: str) -> Program:
        path = source
        if isinstance(source, str):
            path = tmp_path / f"program_{len(programs)}.py"
            path.write_text(source)
        programs.append(Program(Path(path), environment))
        return programs[-1]

    yield start
    for started in programs:
        started.kill()
        # Shown where the test has failed.
        print(*started.err, sep="", end="", file=sys.stderr)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Runs Python programs whose start and end are not what is tested, in a process that has imported what they need."""
    made = Forks()
    yield made
    made.close()


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Processes of the test run in which programs run one after another."""
    made = Hosts(tmp_path_factory.mktemp("hosts"))
    yield made
    made.close()


@pytest.fixture
def hosted(hosts: Hosts, tmp_path: Path) -> Iterator[Callable[..., HostedProgram]]:
    """A function that runs a Python program in a process which has run others; it is killed if it has not ended."""
    programs: list[HostedProgram] = []

    def start(source: str | Path, directory: Path = tmp_path, **environment: str) -> HostedProgram:
        programs.append(hosts.play(source, directory, environment))
        return programs[-1]

    yield start
    for started in programs:
        started.kill()
        # Shown where the test has failed.
        print(*started.err, sep="", end="", file=sys.stderr)
