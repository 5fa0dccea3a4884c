"""`RateSource`: records at an even rate, for demos and load tests."""

import math
import random
import time
from collections.abc import Callable
from typing import Any

from streamrt.connectors.argument_checks import checked_count, checked_function, checked_type
from streamrt.connectors.sources.base import Source
from streamrt.errors import SourceError

__all__ = ["RateSource"]

Generator = Callable[[int, random.Random], Any]

# Records that are due within this time are produced together: each wake-up costs processor time.
_TICK_S = 0.005
# Records that are produced before the clock is read again.
_CHUNK = 1_000


class RateSource(Source):
    """Produces generated records at an even rate.

    Record `n` is due `n / rate` seconds after the start, and the pace does not drift: a source that was held up for a
    while catches up without pauses. Records that are due within 5 ms are produced together. A rate that the machine or
    the brokers cannot keep up with produces as fast as they can.

    With a seed, the same values and keys come in the same order at each start. The source has no state: each start
    begins with record 0.

    Args:
        rate: records in each second; `math.inf` for as many as possible.
        value: makes a value from the number of the record, which counts from 0, and a random number generator. The
            default is a dict of `number` and `value`, a random float from 0 to 1.
        key: makes a key in the same way, before the value; without it, records have no key.
        count: number of records after which the source ends; None for no end.
        seed: start of the random number generator; None for other random numbers at each start.
        name: name of the source, unique in the application.
        shutdown_timeout: seconds that the source has to end when the application stops.

    Raises:
        ConfigurationError: if an argument cannot be used.

    Example:
        ```python
        clicks = RateSource(
            rate=200,
            key=lambda number, rng: f"user-{rng.randrange(50)}",
            value=lambda number, rng: {"page": rng.choice(["home", "cart", "search"]), "ms": rng.expovariate(1 / 80)},
            seed=7,
            name="clicks",
        )
        sdf = app.dataframe(source=clicks)
        ```
    """

    def __init__(
        self,
        rate: float = 1000,
        value: Generator | None = None,
        key: Generator | None = None,
        count: int | None = None,
        seed: int | str | None = None,
        name: str = "rate",
        shutdown_timeout: float = 10,
    ) -> None:
        super().__init__(name, shutdown_timeout)
        wanted = "records in a second, more than 0"
        self._rate = checked_type("RateSource", "rate", rate, int | float, wanted, lambda rate: rate > 0)
        # Other objects would be hashed, differently in each process.
        checked_type("RateSource", "seed", seed, int | str, "an int or a str", optional=True)
        self._value = checked_function("RateSource", "value", value, optional=True) or _default_value
        self._key = checked_function("RateSource", "key", key, optional=True)
        self._count = None if count is None else checked_count("RateSource", "count", count, 0)
        self._seed = seed

    def run(self) -> None:
        """Produce the records.

        Raises:
            SourceError: if a function of the source fails or its result cannot be serialized; the message names the
                record.
        """
        rng = random.Random(self._seed)  # noqa: S311 - test data
        end = math.inf if self._count is None else self._count
        produced = 0
        begun = time.monotonic()
        while self.running and produced < end:
            elapsed = time.monotonic() - begun
            # The first record is due at the start.
            due = min(end, produced + _CHUNK, math.inf if math.isinf(self._rate) else int(elapsed * self._rate) + 1)
            while produced < due and self.running:
                self._produce_number(produced, rng)
                produced += 1
            if produced < end and not math.isinf(self._rate):
                until_next = produced / self._rate - (time.monotonic() - begun)
                if until_next > 0:
                    self.sleep(max(until_next, _TICK_S))

    def _produce_number(self, number: int, rng: random.Random) -> None:
        try:
            key = None if self._key is None else self._key(number, rng)
            message = self.serialize(key, self._value(number, rng))
        except Exception as error:
            raise SourceError(
                f"record {number} of the source {self.name} cannot be made: {type(error).__name__}: {error}"
            ) from error
        self.produce(message.value, message.key, message.headers)


def _default_value(number: int, rng: random.Random) -> dict[str, Any]:
    return {"number": number, "value": rng.random()}
