"""What it costs to observe an application: records/s and processor time with and without control server, metrics and traces.

Both variants run in turn, several times in one run, each in new processes, because the machine is not equally fast all the
time. The observed one has a control server whose `/metrics` are read every second, and traces of one record in a hundred,
which it sends to a collector in this process. Each ratio is the median of the ratios of neighbouring runs.

    python -m bench.control
    python -m bench.control --cases count --runs 5 --check
"""

import contextlib
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench import common
from bench.runners import Runner, RunnerError, Running
from bench.throughput import BROKER, KEYS, RECORDS, SKIPPED, START_MS, Written, outputs_of

SAMPLE_RATIO = 0.01
SCRAPE_S = 1.0
TARGET = 0.95
VARIANTS = ("plain", "observed")
_LOOK_S = 0.05


@dataclass(frozen=True)
class Measured:
    """One run.

    Attributes:
        rate: records per second.
        cpu_us: microseconds of processor time for each record, of all processes of the application, with its JVM.
    """

    rate: float
    cpu_us: float


class Collector:
    """Takes spans, and forgets them.

    Attributes:
        requests: how many exports have come.
    """

    def __init__(self) -> None:
        self.requests = 0
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                collector.requests += 1
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Take no more."""
        self._server.shutdown()
        self._server.server_close()


class Scraper(common.Watcher):
    """Reads the metrics of an application, as Prometheus does.

    Args:
        port: the port of its control server.

    Attributes:
        scrapes: how often it got them.
    """

    def __init__(self, port: int) -> None:
        super().__init__(SCRAPE_S)
        self.scrapes = 0
        self._url = f"http://127.0.0.1:{port}/metrics"

    def look(self) -> None:
        """Read the metrics, if the server listens already."""
        with contextlib.suppress(OSError), urllib.request.urlopen(self._url, timeout=10) as answer:
            answer.read()
            self.scrapes += 1


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextlib.contextmanager
def started(
    mode: str, case: str, address: str, source: str, target: str, collector: str | None, sample_ratio: float
) -> Iterator[Running]:
    """Run an application, observed if there is a collector.

    Raises:
        RunnerError: if an application that should be observed was not.
    """
    if collector is None:
        with Running(Runner(mode), case, address, source, target) as running:
            yield running
        return
    port = free_port()
    options = ["--control", str(port), "--sample-ratio", str(sample_ratio)]
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector}
    with (
        Running(Runner(mode), case, address, source, target, options=options, environment=environment) as running,
        Scraper(port) as scraper,
    ):
        yield running
    if not scraper.scrapes:
        raise RunnerError(f"nothing answered at port {port}")


def measure(running: Running, written: Written, records: int, outputs: int, timeout_s: float) -> Measured:
    """Wait until all is written; measure from the first tenth on.

    Args:
        running: the application.
        written: counts its records.
        records: number of records that it reads.
        outputs: number of records that it writes.
        timeout_s: longest time without a record.

    Raises:
        RunnerError: if it ended, or no record came for too long.
    """
    begin: tuple[float, float, int] | None = None
    done, moved_at = 0, time.monotonic()
    while done < outputs:
        time.sleep(_LOOK_S)
        running.check()
        current = written.count()
        if current > done:
            done, moved_at = current, time.monotonic()
            if begin is None and done >= outputs * SKIPPED:
                begin = moved_at, running.cpu_s(), done
        elif time.monotonic() - moved_at > timeout_s:
            raise RunnerError(f"{done:,} of {outputs:,} records came, and then none for {timeout_s:.0f} s")
    cpu_s = running.cpu_s()
    if begin is None or begin[2] == done:
        raise RunnerError(f"all {outputs:,} records came at once: measure with more")
    processed = records * (done - begin[2]) / outputs
    return Measured(processed / (moved_at - begin[0]), (cpu_s - begin[1]) / processed * 1e6)


def main() -> int:
    """Run the benchmark and print the figures."""
    options = common.parser(__doc__ or "", runs=3)
    options.add_argument("--records", type=int, help="records per run; by default as many as a case needs")
    options.add_argument("--cases", nargs="+", choices=RECORDS, default=["stateless", "count"])
    options.add_argument("--modes", nargs="+", choices=common.MODES, default=list(common.MODES))
    options.add_argument(
        "--sample-ratio", type=float, default=SAMPLE_RATIO, help="share of the records that begin a trace"
    )
    options.add_argument("--timeout", type=float, default=120.0, help="seconds without output after which a run fails")
    options.add_argument("--check", action="store_true", help=f"fail if less than {TARGET:.0%}% of the rate is left")
    chosen = options.parse_args()
    rows: list[list[object]] = []
    missed: list[str] = []
    collector = Collector()
    with common.broker(BROKER) as address:
        for case in chosen.cases:
            records = chosen.records or RECORDS[case]
            source = common.unique("in")
            common.create_topics(address, source)
            common.fill(address, source, records, keys=KEYS, timestamp=lambda number: START_MS + number * 1_000 // KEYS)
            for mode in chosen.modes:
                runs: dict[str, list[Measured]] = {name: [] for name in VARIANTS}
                for number in range(chosen.runs):
                    # Neither variant always comes first.
                    for name in VARIANTS if number % 2 == 0 else VARIANTS[::-1]:
                        target = common.unique("out")
                        common.create_topics(address, target)
                        where = collector.address if name == "observed" else None
                        with started(mode, case, address, source, target, where, chosen.sample_ratio) as running:
                            topics = 2 if case == "group_by" else 1
                            written = Written(address, target, running.group, topics)
                            found = measure(
                                running, written, records, topics * outputs_of(case, records), chosen.timeout
                            )
                        runs[name].append(found)
                        common.console.print(
                            f"{case}, {mode}, {name}: {found.rate:,.0f} records/s, {found.cpu_us:.1f} µs each"
                        )
                pairs = list(zip(runs["plain"], runs["observed"], strict=True))
                rate = common.median([observed.rate / plain.rate for plain, observed in pairs])
                cpu = common.median([observed.cpu_us / plain.cpu_us for plain, observed in pairs])
                medians = [common.median([each.rate for each in runs[name]]) for name in VARIANTS]
                costs = [common.median([each.cpu_us for each in runs[name]]) for name in VARIANTS]
                rows.append([case, mode, *(f"{each:,.0f}" for each in medians), f"{rate:.3f}", *costs, f"{cpu:.3f}"])
                if rate < TARGET:
                    missed.append(f"{case} in {mode} mode")
    collector.close()
    if not collector.requests:
        raise RunnerError("no traces came")
    columns = ["case", "mode", "plain", "observed", "ratio", "µs plain", "µs observed", "ratio of µs"]
    common.show(f"records/s and processor time for a record, medians of {chosen.runs}", columns, rows)
    if missed and chosen.check:
        common.console.print(f"less than {TARGET:.0%} of the rate is left: {', '.join(missed)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
