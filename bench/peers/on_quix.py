"""The cases of `bench/dataframe_cases.py` as applications of Quix Streams, for comparison.

Its dependencies conflict with those of StreamRT, so it has a separate environment (`make peers`), and this file imports
nothing from StreamRT:

    build/peers/quix/bin/python -m bench.peers.on_quix count localhost:9092 in out group --state-dir state

Settings are the library's defaults, except those that favour it in latency measurements (`--low-latency`): records are
sent at once, and with exactly-once a transaction is committed every 0.1 s.
"""

import time
from typing import Any

from quixstreams import Application  # type: ignore[import-not-found]

from bench.dataframe_cases import CASES, add
from bench.program_options import AT_LEAST_ONCE, EXACTLY_ONCE, peer_options

LOW_LATENCY_COMMIT_S = 0.1


def main() -> None:
    """Run one case until SIGTERM."""
    print("imported", time.time(), flush=True)
    chosen = peer_options(CASES, (AT_LEAST_ONCE, EXACTLY_ONCE)).parse_args()
    settings: dict[str, Any] = {}
    if chosen.low_latency:
        settings["producer_extra_config"] = {"linger.ms": 0}
        if chosen.guarantee == EXACTLY_ONCE:
            settings["commit_interval"] = LOW_LATENCY_COMMIT_S
    app = Application(
        chosen.address,
        consumer_group=chosen.group,
        auto_offset_reset="earliest",
        state_dir=chosen.state_dir,
        processing_guarantee=chosen.guarantee,
        loglevel="WARNING",
        **settings,
    )
    add(app, chosen.case, chosen.source, chosen.target)
    app.run()


if __name__ == "__main__":
    main()
