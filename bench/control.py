"""What it costs to observe an application: records/s and processor time with and without control server, metrics and traces.

Both variants run in turn, several times in one run, each in new processes, because the machine is not equally fast all the
time. The observed one has a control server whose `/metrics` are read every second, and traces of one record in a hundred,
which it sends to a collector in this process. Each ratio is the median of the ratios of neighbouring runs.

    python -m bench.control
    python -m bench.control --cases count --runs 5 --check
"""

import contextlib
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench import common
from bench.peers.throughput import BROKER, Saturated, Written, fill, saturate
from bench.runners import Runner, RunnerError, Running

SAMPLE_RATIO = 0.01
SCRAPE_S = 1.0
TARGET = 0.95
VARIANTS = ("plain", "observed")
RECORDS = {"stateless": 1_000_000, "count": 600_000, "tumbling": 400_000, "group_by": 400_000}


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
    port = common.free_port()
    options = ["--control", str(port), "--sample-ratio", str(sample_ratio)]
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector}
    with (
        Running(Runner(mode), case, address, source, target, options=options, environment=environment) as running,
        Scraper(port) as scraper,
    ):
        yield running
    if not scraper.scrapes:
        raise RunnerError(f"nothing answered at port {port}")


def main() -> int:
    """Run the benchmark and print the figures."""
    options = common.parser(__doc__ or "", runs=3)
    options.add_argument("--records", type=int, help="records per run; by default as many as a case needs")
    options.add_argument("--cases", nargs="+", choices=RECORDS, default=["stateless", "count"])
    options.add_argument("--modes", nargs="+", choices=common.MODES, default=list(common.MODES))
    options.add_argument(
        "--sample-ratio", type=float, default=SAMPLE_RATIO, help="share of the records that begin a trace"
    )
    options.add_argument("--check", action="store_true", help=f"fail if less than {TARGET:.0%}% of the rate is left")
    chosen = options.parse_args()
    rows: list[list[object]] = []
    missed: list[str] = []
    collector = Collector()
    with common.broker(BROKER) as address:
        for case in chosen.cases:
            records = chosen.records or RECORDS[case]
            source = fill(address, records)
            for mode in chosen.modes:
                runs: dict[str, list[Saturated]] = {name: [] for name in VARIANTS}
                for number in range(chosen.runs):
                    # Neither variant always comes first.
                    for name in VARIANTS if number % 2 == 0 else VARIANTS[::-1]:
                        target = common.unique("out")
                        common.create_topics(address, target)
                        where = collector.address if name == "observed" else None
                        with started(mode, case, address, source, target, where, chosen.sample_ratio) as running:
                            found = saturate(running, Written(address, case, target, running.group), case, records)
                        runs[name].append(found)
                        common.console.print(
                            f"{case}, {mode}, {name}: {found.rate:,.0f} records/s, {found.cost_us:.1f} µs each"
                        )
                pairs = list(zip(runs["plain"], runs["observed"], strict=True))
                rate = common.median([observed.rate / plain.rate for plain, observed in pairs])
                cpu = common.median([observed.cost_us / plain.cost_us for plain, observed in pairs])
                medians = [common.median([each.rate for each in runs[name]]) for name in VARIANTS]
                costs = [common.median([each.cost_us for each in runs[name]]) for name in VARIANTS]
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
