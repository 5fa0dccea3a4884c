"""`KinesisSource`: the records of an Amazon Kinesis data stream.

The state has one entry, which `flush` writes:

```
"stream": {
    "created_ms": creation time of the stream; another stream of the same name has another one,
    "from_ms": start time of the first run if it began at the latest records, else null,
    "shards": {shard id: sequence number of the last record read, or null, or "end" after the whole shard},
}
```

A shard without a position begins at `from_ms`, or at its oldest record. Splits and merges close shards and open child
shards; a child is read after its parents have been read to their end, so the order of each key is kept.
"""

import email.utils
import logging
import time
from typing import Any, Literal, get_args

from streamrt.connectors.amazon.aws import AWSClient, AWSService
from streamrt.connectors.argument_checks import checked_count, checked_seconds, checked_text
from streamrt.connectors.background import StoppedError, call_in_background
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.failures import PassingError, RequestError
from streamrt.connectors.libraries import require_library
from streamrt.connectors.retries import Retries
from streamrt.connectors.sources.stateful import StatefulSource
from streamrt.errors import ArgumentValueError, SourceError
from streamrt.topics import Topic

__all__ = ["KinesisSource", "KinesisStreamShardsNotFound"]

logger = logging.getLogger("streamrt.connectors")

AutoOffsetReset = Literal["earliest", "latest"]

_STATE_KEY = "stream"
_END = "end"
_MAX_LIMIT = 10_000
_COMMIT_EVERY = 10_000
# A shard answers five reads a second, shared by all readers.
_READ_EVERY_S = 0.25
_DISCOVER_EVERY_S = 30.0


class KinesisStreamShardsNotFound(SourceError):  # noqa: N818 - the name is part of the public API
    """The stream of a `KinesisSource` does not exist, or has no shards."""


class _Shard:
    """One shard.

    Args:
        shard_id: its ID.
        parents: IDs of the shards that it continues.
        position: sequence number of the last record read, None, or `_END`.
    """

    def __init__(self, shard_id: str, parents: tuple[str, ...], position: str | None) -> None:
        self.shard_id = shard_id
        self.parents = parents
        self.position = position
        self.iterator: str | None = None
        self.read_at = 0.0

    @property
    def ended(self) -> bool:
        return self.position == _END


class KinesisSource(StatefulSource):
    """Produces the records of an Amazon Kinesis data stream.

    Values are the bytes of the records, keys their partition keys, timestamps their arrival times in milliseconds. The
    headers `kinesis.shard_id` and `kinesis.sequence_number` identify a record. The source remembers its position in each
    shard: a crash repeats the records since the last commit, and loses none; with `processing_guarantee="exactly-once"`, it
    repeats none, either. It reads new shards after a split or a merge. Needs the extra `aws`.

    Args:
        stream_name: name of the stream.
        aws_region: the region; by default `AWS_REGION`, then `AWS_DEFAULT_REGION` from the environment.
        aws_access_key_id: the access key ID, or a function that returns it; by default `AWS_ACCESS_KEY_ID`, else what
            boto3 finds, such as a role.
        aws_secret_access_key: the secret access key, or a function that returns it; by default `AWS_SECRET_ACCESS_KEY`.
        aws_endpoint_url: URL of the service; by default `AWS_ENDPOINT_URL_KINESIS`, then that of AWS.
        shutdown_timeout: seconds that the source has to end when the application stops.
        auto_offset_reset: where the first run begins: at the "earliest" records, or with those that arrive from then on.
        max_records_per_shard: maximum number of records in one read of a shard, 1 to 10,000.
        commit_interval: seconds between commits of the position.
        retry_backoff_secs: seconds to wait after a read that failed and may succeed later.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        aws_session_token: the token of temporary credentials, or a function that returns it; by default
            `AWS_SESSION_TOKEN`, if the keys also come from the environment.
        name: name of the source, unique in the application; by default `kinesis_<stream name>`.

    Raises:
        ConfigurationError: if an argument cannot be used, or boto3 is not installed.

    Example:
        ```python
        orders = KinesisSource("orders", aws_region="eu-west-1", auto_offset_reset="earliest")
        sdf = app.dataframe(source=orders)
        ```
    """

    def __init__(
        self,
        stream_name: str,
        aws_region: str | None = None,
        aws_access_key_id: CredentialInput | None = None,
        aws_secret_access_key: CredentialInput | None = None,
        aws_endpoint_url: str | None = None,
        shutdown_timeout: float = 10,
        auto_offset_reset: AutoOffsetReset = "latest",
        max_records_per_shard: int = 1000,
        commit_interval: float = 5.0,
        retry_backoff_secs: float = 5.0,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        aws_session_token: CredentialInput | None = None,
        name: str | None = None,
    ) -> None:
        require_library("KinesisSource", "boto3", "aws")
        checked_text("KinesisSource", "stream_name", stream_name)
        name = f"kinesis_{stream_name}" if name is None else name
        super().__init__(name, shutdown_timeout, on_client_connect_success, on_client_connect_failure)
        if auto_offset_reset not in get_args(AutoOffsetReset):
            raise ArgumentValueError(
                f'KinesisSource(auto_offset_reset={auto_offset_reset!r}) must be "earliest" or "latest"'
            )
        self._stream = stream_name
        self._latest = auto_offset_reset == "latest"
        self._limit = checked_count("KinesisSource", "max_records_per_shard", max_records_per_shard, most=_MAX_LIMIT)
        self._commit_interval = checked_seconds("KinesisSource", "commit_interval", commit_interval)
        self._backoff = checked_seconds("KinesisSource", "retry_backoff_secs", retry_backoff_secs)
        service = AWSService(
            "KinesisSource",
            "kinesis",
            access_key_id=aws_access_key_id,
            secret_access_key=aws_secret_access_key,
            session_token=aws_session_token,
            region=aws_region,
            endpoint_url=aws_endpoint_url,
        )
        self._place = f"the Kinesis stream {stream_name} at {service.where}"
        self._client = AWSClient(service)
        self._created_ms = 0
        self._now_ms = 0
        self._from_ms: int | None = None
        self._shards: dict[str, _Shard] = {}
        self._uncommitted = 0
        self._failing = False
        self._begun = False

    def __repr__(self) -> str:
        return f"KinesisSource({self._stream!r})"

    def default_topic(self) -> Topic:
        """Return a topic with the name of the source, values of bytes and text keys.

        Raises:
            ConfigurationError: if the name is not valid in a topic name.
        """
        return Topic(self.name, value_deserializer="bytes", value_serializer="bytes", key_deserializer="str")

    def setup(self) -> None:
        """Check that the stream exists and that the credentials are accepted.

        Raises:
            KinesisStreamShardsNotFound: if the stream does not exist.
            SourceError: if it cannot be reached.
        """
        try:
            self._describe_stream()
        except StoppedError:
            return
        except RequestError as error:
            raise self._make_problem(error) from None

    def _describe_stream(self) -> None:
        def describe() -> Any:
            return self._client.call("describe_stream_summary", StreamName=self._stream)

        answer = call_in_background(
            lambda: Retries().call(describe, passing=(PassingError,), what=f"the look at {self._place}"),
            lambda: self.running,
        )
        self._created_ms = _to_milliseconds(answer["StreamDescriptionSummary"]["StreamCreationTimestamp"])
        # The clock of the service decides which records arrive from now on.
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        self._now_ms = (
            int(time.time() * 1000) if date is None else _to_milliseconds(email.utils.parsedate_to_datetime(date))
        )

    def run(self) -> None:
        """Read and produce.

        Raises:
            SourceError: if the stream can no longer be read.
        """
        try:
            # The application may have handled a failure of setup.
            while self.running and not self._created_ms:
                try:
                    self._describe_stream()
                except RequestError as error:
                    self._pass_over(error)
                    self.sleep(self._backoff)
            if self.running:
                self._begin_reading()
                self._read_all()
        except StoppedError:
            pass
        except RequestError as error:
            raise self._make_problem(error) from None
        if self._begun:
            self._note_position()

    def _begin_reading(self) -> None:
        self._begun = True
        known = self.state.get(_STATE_KEY)
        if known is not None and known["created_ms"] == self._created_ms:
            self._from_ms = known["from_ms"]
            self._shards = {name: _Shard(name, (), position) for name, position in known["shards"].items()}
            return
        if known is not None:
            logger.warning("%s was created again: the source %s reads it from its beginning", self._place, self.name)
        self._from_ms = self._now_ms if known is None and self._latest else None
        # At once, so that a crash before the first commit does not move the beginning.
        self._commit()

    def _read_all(self) -> None:
        commit_at = time.monotonic() + self._commit_interval
        discover_at = 0.0
        while self.running:
            now = time.monotonic()
            if now >= discover_at:
                discover_at = now + (_DISCOVER_EVERY_S if self._discover_shards() else self._backoff)
            ended = False
            for shard in self._readable_shards():
                if shard.read_at <= time.monotonic() and self.running:
                    self._read_shard(shard)
                    ended |= shard.ended
            if ended:
                discover_at = 0.0
            now = time.monotonic()
            if self._uncommitted >= _COMMIT_EVERY or (now >= commit_at and self._uncommitted):
                self._commit()
            if now >= commit_at:
                commit_at = time.monotonic() + self._commit_interval
            next_reads = (shard.read_at for shard in self._readable_shards())
            self.sleep(min(*next_reads, commit_at, discover_at, now + self._backoff + 1) - time.monotonic())

    def _readable_shards(self) -> list[_Shard]:
        def ended(name: str) -> bool:
            parent = self._shards.get(name)
            # Parents that are older than the retention time are listed no more.
            return parent is None or parent.ended

        return [shard for shard in self._shards.values() if not shard.ended and all(map(ended, shard.parents))]

    def _discover_shards(self) -> bool:
        """Update the shards; return whether the service answered."""
        listed: dict[str, tuple[str, ...]] = {}
        arguments: dict[str, Any] = {"StreamName": self._stream}
        while arguments:
            try:
                answer = self._call_service("list_shards", **arguments)
            except RequestError as error:
                self._pass_over(error)
                return False
            for shard in answer["Shards"]:
                parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
                listed[shard["ShardId"]] = tuple(parent for parent in parents if parent)
            token = answer.get("NextToken")
            arguments = {"NextToken": token} if token else {}
        if not listed:
            raise KinesisStreamShardsNotFound(f"the source {self.name} cannot read {self._place}: it has no shards")
        for name in [name for name in self._shards if name not in listed]:
            if not self._shards[name].ended:
                logger.warning(
                    "the shard %s of %s was deleted, since its retention time is over, before the source %s had read it "
                    "to its end",
                    name,
                    self._place,
                    self.name,
                )
            del self._shards[name]
        for name, ancestors in listed.items():
            self._shards.setdefault(name, _Shard(name, (), None)).parents = ancestors
        return True

    def _read_shard(self, shard: _Shard) -> None:
        shard.read_at = time.monotonic() + _READ_EVERY_S
        try:
            if shard.iterator is None:
                shard.iterator = self._shard_iterator(shard)
            answer = self._call_service("get_records", ShardIterator=shard.iterator, Limit=self._limit)
        except RequestError as error:
            if error.code == "ExpiredIteratorException":
                shard.iterator = None
                shard.read_at = 0.0
                return
            if error.code == "ResourceNotFoundException" and shard.iterator is None:
                # Deleted after its retention time, unless the stream itself is gone.
                self._discover_shards()
                if shard.shard_id not in self._shards:
                    return
            self._pass_over(error)
            shard.read_at = time.monotonic() + self._backoff
            return
        self._failing = False
        for record in answer["Records"]:
            self._produce_record(record, shard)
        shard.iterator = answer.get("NextShardIterator")
        if shard.iterator is None:
            shard.position = _END
            self._uncommitted += 1

    def _shard_iterator(self, shard: _Shard) -> str:
        arguments: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
        if shard.position is not None:
            arguments = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": shard.position}
        elif self._from_ms is not None:
            arguments = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": self._from_ms / 1000}
        answer = self._call_service("get_shard_iterator", StreamName=self._stream, ShardId=shard.shard_id, **arguments)
        iterator: str = answer["ShardIterator"]
        return iterator

    def _produce_record(self, record: dict[str, Any], shard: _Shard) -> None:
        number = record["SequenceNumber"]
        self.produce(
            record["Data"],
            record["PartitionKey"],
            [("kinesis.shard_id", shard.shard_id.encode()), ("kinesis.sequence_number", number.encode())],
            timestamp=_to_milliseconds(record["ApproximateArrivalTimestamp"]),
        )
        shard.position = number
        self._uncommitted += 1

    def _call_service(self, operation: str, **arguments: Any) -> Any:
        return call_in_background(lambda: self._client.call(operation, **arguments), lambda: self.running)

    def _commit(self) -> None:
        self._note_position()
        self.flush()
        self._uncommitted = 0

    def _note_position(self) -> None:
        positions = {name: shard.position for name, shard in self._shards.items()}
        entry = {"created_ms": self._created_ms, "from_ms": self._from_ms, "shards": positions}
        self.state.set(_STATE_KEY, entry)

    def _pass_over(self, error: RequestError) -> None:
        """Log a failure that may pass, once for each outage; raise another one."""
        if not isinstance(error, PassingError):
            raise error
        level = logging.DEBUG if self._failing else logging.WARNING
        self._failing = True
        logger.log(level, "the source %s cannot read %s now: %s; it tries again", self.name, self._place, error)

    def _make_problem(self, error: RequestError) -> SourceError:
        if error.code == "ResourceNotFoundException":
            return KinesisStreamShardsNotFound(
                f"the source {self.name} cannot read {self._place}: the stream does not exist, or was deleted"
            )
        return SourceError(f"the source {self.name} cannot read {self._place}: {error}")


def _to_milliseconds(moment: Any) -> int:
    return int(moment.timestamp() * 1000)
