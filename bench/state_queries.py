"""What state queries cost: records per second of a stateful application with and without queries, in turn in one run.

The topic was filled before, so the application works as fast as it can. Periods with and without queries alternate; queries
come at a steady rate from threads of the same process, for random keys. The table has the medians of both, their ratio, and
the times of answers.

    python -m bench.state_queries --mode resident
"""

import random
import threading
import time

from bench import common, dataframe_cases
from bench.common import Watcher
from streamrt import Application
from streamrt.errors import StateQueryError


class Queries(Watcher):
    """Asks for random keys.

    Args:
        app: the application.
        rate: queries in a second.
        keys: number of different keys.
    """

    def __init__(self, app: Application, rate: float, keys: int) -> None:
        super().__init__(1.0 / rate)
        self._app = app
        self._keys = keys
        self._asking: list[threading.Thread] = []
        self.seconds: list[float] = []
        self.refused = 0

    def look(self) -> None:
        """Ask, without waiting for the answer."""
        thread = threading.Thread(target=self._ask, daemon=True)
        thread.start()
        self._asking.append(thread)

    def _ask(self) -> None:
        begun = time.monotonic()
        try:
            self._app.query_state("default", b"%d" % random.randrange(self._keys))
            self.seconds.append(time.monotonic() - begun)
        except StateQueryError:
            self.refused += 1

    def wait(self) -> None:
        """Wait for the answers that are missing."""
        for thread in self._asking:
            thread.join(30)


def rate_over(app: Application, seconds: float) -> float:
    """Return records per second over some time."""
    before, begun = app.progress().records, time.monotonic()
    time.sleep(seconds)
    return (app.progress().records - before) / (time.monotonic() - begun)


def main() -> None:
    """Run the benchmark and print the figures."""
    options = common.parser(__doc__ or "")
    options.add_argument("--records", type=int, default=3_000_000, help="records in the topic")
    options.add_argument("--keys", type=int, default=1_000, help="different keys")
    options.add_argument("--rate", type=float, default=50.0, help="queries in a second")
    options.add_argument("--seconds", type=float, default=4.0, help="length of a period")
    options.add_argument("--guarantee", choices=common.GUARANTEES, default=common.GUARANTEES[0])
    common.add_mode(options)
    chosen = options.parse_args()
    with common.broker() as address, common.scratch() as state_dir:
        source, target = common.unique("in"), common.unique("out")
        common.create_topics(address, source, target)
        common.fill(address, source, chosen.records, keys=chosen.keys)
        settings = {"mode": chosen.mode, "guarantee": chosen.guarantee, "master": chosen.master}
        app = common.application(address, state_dir, **settings)
        dataframe_cases.add(app, "count", source, target)
        app.start()
        try:
            while app.progress().records < chosen.records // 8:
                time.sleep(0.1)
            without: list[float] = []
            queried: list[float] = []
            answers: list[float] = []
            refused = 0
            for _ in range(chosen.runs):
                alone = rate_over(app, chosen.seconds)
                with Queries(app, chosen.rate, chosen.keys) as queries:
                    asked = rate_over(app, chosen.seconds)
                queries.wait()
                if app.progress().records >= chosen.records:
                    common.console.print("the topic has ended before the last period: give more --records")
                    break
                without.append(alone)
                queried.append(asked)
                answers += queries.seconds
                refused += queries.refused
        finally:
            app.stop(wait=True)
    if not queried:
        raise SystemExit(1)
    ratio = common.median(queried) / common.median(without)
    columns = ["queries/s", "records/s", "records/s with queries", "ratio", "answers", "refused", "median ms", "p99 ms"]
    times = (1_000 * common.median(answers), 1_000 * common.percentile(answers, 0.99)) if answers else ("", "")
    row = [
        (len(answers) + refused) / (len(queried) * chosen.seconds),
        common.median(without),
        common.median(queried),
        f"{ratio:.3f}",
        len(answers),
        refused,
        *times,
    ]
    common.show(f"state queries, {chosen.mode}, {chosen.guarantee}", columns, [row])


if __name__ == "__main__":
    main()
