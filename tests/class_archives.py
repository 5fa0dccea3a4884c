"""Has the archives of classes made with which Kafka and Spark start faster (see `streamrt.jvm.archive`).

A test run starts dozens of JVMs. `python -m tests.class_archives` makes what is missing in `STREAMRT_CACHE_DIR`.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyspark import SparkContext

from streamrt.config import ProcessingMode
from streamrt.jvm.archive import cache_directory, class_archive
from streamrt.jvm.jars import fetch_jars
from streamrt.jvm.java import find_java
from streamrt.spark.sessions.gateway import Jvm, archive_kind, spark_class_path
from streamrt.spark.sessions.spark_session import close_session
from streamrt.testing import EmbeddedKafka
from tests.support import PROCESSING_MODES, Kafka


def work(kafka: Kafka, mode: ProcessingMode) -> None:
    """Run a small application that needs most of what other applications need."""
    left, right, middle, target = (kafka.topic(name, 2) for name in ("left", "right", "middle", "out"))
    for topic in (left, right):
        kafka.produce(topic, ["x"] * 10, key=None)
    app = kafka.app(processing_mode=mode, processing_guarantee="exactly-once")
    frames = [app.dataframe(app.topic(topic)) for topic in (left, right)]
    frames[0].concat(frames[1]).to_topic(app.topic(middle))
    sizes = app.dataframe(app.topic(middle)).group_by(len, name="size").tumbling_window(1_000).count().final()
    # A window closes where the records lie on both sides of a full second.
    sizes.to_topic(app.topic(target, key_serializer="int"))
    assert app.run(timeout=3, collect=False) is not None


def main() -> None:
    """Make the archives that are missing."""
    java = find_java()
    kinds: dict[str, Sequence[Path | str]] = {"kafka": fetch_jars("kafka")}
    for mode in PROCESSING_MODES:
        kinds[archive_kind(mode)] = spark_class_path(fetch_jars("spark"))

    def archive(kind: str) -> Path | None:
        """Return the archive of a kind, if it is there; others are of Java's own classes."""
        options = class_archive(kind, java, kinds[kind], writes=False).options
        files = [Path(file) for option in options for file in option.rpartition("=")[2].split(os.pathsep)]
        return next((file for file in files if file.name.startswith(f"{kind}-")), None)

    def missing() -> list[str]:
        return [kind for kind in kinds if archive(kind) is None]

    if not missing():
        return
    for kind in missing():
        # The second JVM of a kind is the one that writes the archive. Others do not count, such as the shared broker.
        for claim in (cache_directory() / "classes").glob(f"{kind}-*.claim"):
            claim.unlink()
        class_archive(kind, java, kinds[kind])
    print("Preparing Java, so that it starts faster in tests; this takes a minute", flush=True)
    with tempfile.TemporaryDirectory() as state, EmbeddedKafka() as broker:
        kafka = Kafka(broker.bootstrap_servers, Path(state))
        # In most lanes, the JVM of the mode that comes first serves both, so one archive has the classes of both.
        for mode in PROCESSING_MODES:
            work(kafka, mode)
        jvm: Jvm = vars(SparkContext._gateway)["own_jvm"]
        close_session()
        # It writes its archive now.
        jvm.process.wait()
    # The class path of both is the same.
    first, *others = (archive_kind(mode) for mode in PROCESSING_MODES)
    made = archive(first)
    for other in others:
        target = made and made.with_name(made.name.replace(first, other, 1))
        if made is not None and target is not None and not target.exists():
            os.link(made, target)
    if missing():
        print(f"Java starts without its archives of {', '.join(missing())}", flush=True)


if __name__ == "__main__":
    main()
